//! Tells systemd the state of this process: ready, stopping, alive. Driven by the loops. Never waits: a
//! message that finds no room is lost. The messages are those of `sd_notify(3)`.

use std::ffi::OsString;
use std::time::Duration;

use afresh_core::limits::NOTIFY_STATUS_CHARS_MAX;
use afresh_core::text::harmless;
use tokio::time::Instant;

use crate::clock::sleep_until;
use crate::os::{self, NotifySocket};

/// The variables by which systemd says where to tell it. They are for us: a service that has them
/// would speak in our name.
const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Takes them out of an environment that a service is to have.
pub fn without_notify(variables: &mut Vec<(OsString, OsString)>) {
    variables.retain(|(name, _)| !VARIABLES.iter().any(|ours| name == ours));
}

/// The connection to systemd. Without one, all of it does nothing.
pub(crate) struct Notify {
    socket: Option<NotifySocket>,
    /// The interval of the watchdog, and its next deadline.
    watchdog: Option<(Duration, Instant)>,
}

impl Notify {
    /// As the environment says that we were started with.
    pub(crate) fn new(variables: &[(OsString, OsString)]) -> Self {
        let variable =
            |name: &str| variables.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        let number = |name| variable(name).and_then(|value| value.to_str()?.parse::<u64>().ok());
        let socket = variable("NOTIFY_SOCKET").and_then(|place| NotifySocket::open(place).ok());
        let for_us = variable("WATCHDOG_PID").is_none()
            || number("WATCHDOG_PID") == Some(std::process::id().into());
        let wanted = number("WATCHDOG_USEC").filter(|usec| *usec > 0 && for_us && socket.is_some());
        let watchdog = wanted.map(|usec| {
            let period = Duration::from_micros(usec) / 2;
            (period, Instant::now() + period)
        });
        Self { socket, watchdog }
    }

    /// Services run.
    pub(crate) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\n{}", status_line(status)));
    }

    /// The status, in words.
    pub(crate) fn status(&self, status: &str) {
        self.say(&status_line(status));
    }

    /// The configuration is read again; [`ready`](Self::ready) says that it has been.
    pub(crate) fn reloading(&self) {
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={}", os::monotonic_micros()));
    }

    /// We end.
    pub(crate) fn stopping(&self, status: &str) {
        self.say(&format!("STOPPING=1\n{}", status_line(status)));
    }

    /// Resolves when it is time to say that we live; never without a watchdog. Cancel safe.
    pub(crate) async fn watchdog_due(&self) {
        sleep_until(self.watchdog.map(|(_, at)| at)).await;
    }

    /// Says that we live. For the loop alone: when it hangs, no other thread must say so.
    pub(crate) fn alive(&mut self) {
        if let Some((period, at)) = &mut self.watchdog {
            *at = Instant::now() + *period;
            self.say("WATCHDOG=1");
        }
    }

    fn say(&self, words: &str) {
        if let Some(socket) = &self.socket {
            // A message that does not fit is dropped.
            socket.send(words.as_bytes()).ok();
        }
    }
}

/// One line: a second one would be another message.
fn status_line(status: &str) -> String {
    let short: String = status.chars().take(NOTIFY_STATUS_CHARS_MAX).collect();
    format!("STATUS={}", harmless(&short))
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;
    use crate::store::testing::TempDir;

    fn variables(all: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        all.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn systemd_is_told_over_either_kind_of_socket() {
        let dir = TempDir::new();
        let path = dir.join("notify");
        let name = format!("afresh-test-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}")),
        ];
        for (socket, place) in sockets {
            let notify = Notify::new(&variables(&[("NOTIFY_SOCKET", &place)]));
            notify.ready("2 services\nREADY=0");
            assert_eq!(heard(&socket), "READY=1\nSTATUS=2 services␊READY=0");
            notify.status(&"x".repeat(10_000));
            assert_eq!(heard(&socket).len(), "STATUS=".len() + 200);
            notify.reloading();
            let said = heard(&socket);
            let micros = said.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            assert!(micros.parse::<u64>().is_ok_and(|micros| micros > 0), "{said}");
            notify.stopping("bye");
            assert_eq!(heard(&socket), "STOPPING=1\nSTATUS=bye");
        }
    }

    #[test]
    fn the_watchdog_hears_twice_as_often_as_it_must() {
        let dir = TempDir::new();
        let path = dir.join("notify").display().to_string();
        let socket = UnixDatagram::bind(&path).unwrap();
        let own = std::process::id().to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut notify = Notify::new(&variables(&[
                ("NOTIFY_SOCKET", &path),
                ("WATCHDOG_USEC", "20000"),
                ("WATCHDOG_PID", &own),
            ]));
            for _ in 0..3 {
                let before = Instant::now();
                notify.watchdog_due().await;
                notify.alive();
                assert_eq!(heard(&socket), "WATCHDOG=1");
                assert_eq!(notify.watchdog.unwrap().0, Duration::from_millis(10));
                assert!(notify.watchdog.unwrap().1 > before);
            }
        });
        // Another process is meant, or nothing that makes sense.
        for (usec, pid) in [("20000", "1"), ("0", &own), ("-1", &own), ("x", &own)] {
            let all =
                [("NOTIFY_SOCKET", path.as_str()), ("WATCHDOG_USEC", usec), ("WATCHDOG_PID", pid)];
            assert!(Notify::new(&variables(&all)).watchdog.is_none(), "{usec} {pid}");
        }
    }

    #[test]
    fn without_systemd_nothing_is_said() {
        for place in ["", "relative", "/no/such/socket", "@", "vsock:2:1234"] {
            let mut notify = Notify::new(&variables(&[("NOTIFY_SOCKET", place)]));
            notify.ready("x");
            notify.alive();
        }
        Notify::new(&[]).stopping("x");
    }

    #[test]
    fn a_service_does_not_speak_in_our_name() {
        let mut all = variables(&[
            ("PATH", "/bin"),
            ("NOTIFY_SOCKET", "@x"),
            ("WATCHDOG_USEC", "1"),
            ("WATCHDOG_PID", "1"),
        ]);
        without_notify(&mut all);
        assert_eq!(all, variables(&[("PATH", "/bin")]));
    }
}
