//! Owns the check that the port of a service is free before it starts, and who has it where it is not. Called by the
//! supervisor before a start. Never listens.

use afresh_core::audit::redact::redact_args;
use afresh_core::definition::Port;
use afresh_core::limits::{HEALTH_SHOWN_CHARS_MAX, PORT_LOOKUP_WAIT};
use afresh_core::service::SpawnFailure;
use afresh_core::text::harmless;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::send_probes::addresses;
use crate::os::{PortHolder, holder_of};

/// Why the service cannot have its port; none where it is free, or the system does not tell.
pub(crate) async fn port_holder(port: &Port) -> Option<SpawnFailure> {
    let found = timeout(PORT_LOOKUP_WAIT, addresses(&port.host, port.port)).await.ok()?.ok()?;
    let look = spawn_blocking(move || found.into_iter().find_map(holder_of));
    let PortHolder { process } = look.await.ok()??;
    let holder = process.map(|(pid, command)| {
        let command = harmless(&redact_args(&command).join(" "));
        let short: String = command.chars().take(HEALTH_SHOWN_CHARS_MAX).collect();
        format!("pid {pid} ({short})")
    });
    Some(SpawnFailure::port_taken(port, holder.as_deref()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    fn port(host: &str, number: u16) -> Port {
        Port { host: host.to_owned(), port: number }
    }

    #[tokio::test]
    async fn who_listens_is_found_and_named() {
        for (listens, asked) in [
            ("127.0.0.1:0", "localhost"),
            ("127.0.0.1:0", "127.0.0.1"),
            ("127.0.0.1:0", "0.0.0.0"),
            ("0.0.0.0:0", "localhost"),
            ("[::1]:0", "localhost"),
            ("[::]:0", "127.0.0.1"),
        ] {
            // A machine may have no IPv6.
            let Ok(listener) = TcpListener::bind(listens) else { continue };
            let number = listener.local_addr().unwrap().port();
            let failure = port_holder(&port(asked, number)).await;
            let failure = failure.unwrap_or_else(|| panic!("{listens} asked as {asked}"));
            assert!(!failure.permanent);
            let begin = format!("port {number} on {asked} is taken");
            assert!(failure.message.starts_with(&begin), "{}", failure.message);
            if crate::os::TELLS_HOLDERS {
                let own = format!("pid {} (", std::process::id());
                assert!(failure.message.contains(&own), "{}", failure.message);
            }
            drop(listener);
            // Another test may get the same port for a while.
            let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
            while let Some(failure) = port_holder(&port(asked, number)).await {
                assert!(
                    tokio::time::Instant::now() < deadline,
                    "{listens} asked as {asked}: {failure:?}"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    #[tokio::test]
    async fn what_is_left_of_connections_is_no_hindrance() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        // Who closes first is left in TIME_WAIT.
        drop(server);
        drop(client);
        drop(listener);
        assert_eq!(port_holder(&port("localhost", address.port())).await, None);
        assert_eq!(port_holder(&port("no-such-host.invalid", 1)).await, None);
    }
}
