//! Owns the loop of a shim: one thread between its client and the hub. Called by `afresh mcp --share`. Decides nothing, and
//! sets nothing up that it does not need: there is one for each client of each server.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::Child;

use afresh_core::launchers::StartedBy;
use afresh_core::limits::{CLIENT_GONE_WITHIN, OUTBOX_BYTES_MAX, SHARE_CHUNK_BYTES};
use afresh_core::mcp::frame::LineSplitter;
use afresh_core::share::{SessionRequest, Shim, ShimEffect, ShimInput};
use afresh_core::time::Time;
use tokio::time::Instant;

use super::hub_place::HubPlace;
use crate::clock::now;
use crate::os::{self, PolledStream, Ready};
use crate::process::own_executable;

/// What a shim is started with.
#[derive(Debug)]
pub struct ShimSetup {
    /// Where the hub is.
    pub place: HubPlace,
    /// The server that the client needs.
    pub session: SessionRequest,
    /// How this process was started: its end may be that of the client.
    pub started_by: StartedBy,
    /// afresh's version.
    pub version: &'static str,
    /// The arguments of this process without those that share, for a server that cannot be shared.
    pub unshared: Vec<OsString>,
}

/// How a shim ended.
#[derive(Debug)]
pub enum ShimEnd {
    /// The client has gone.
    Done,
    /// The server cannot be shared, and could not be run in place of this process.
    Failed(io::Error),
}

/// Stands between the client and the hub until the client is gone.
pub fn run_shim(setup: ShimSetup) -> ShimEnd {
    let (client, answers) = match (PolledStream::own_stdin(), PolledStream::own_stdout()) {
        (Ok(client), Ok(answers)) => (client, answers),
        (Err(error), _) | (_, Err(error)) => return ShimEnd::Failed(error),
    };
    let ShimSetup { place, session, started_by, version, unshared } = setup;
    let Some(launchers) = PolledStream::ends_of(os::Launchers::find(started_by)) else {
        return ShimEnd::Done;
    };
    let name = session.name.clone();
    let shim = Shim::new(session, version, std::process::id());
    let mut shim = ShimLoop {
        shim,
        name,
        place,
        start: Instant::now(),
        client,
        answers,
        launchers,
        hub: None,
        hub_child: None,
        client_lines: LineSplitter::default(),
        hub_lines: LineSplitter::default(),
        to_client: Waiting::default(),
        to_hub: Waiting::default(),
        end: None,
    };
    os::settle_memory();
    shim.handle(ShimInput::Started);
    while shim.end.is_none() {
        shim.turn();
    }
    match shim.end.take() {
        Some(End::Unshared(why)) => {
            shim.log(&format!("the server is not shared: {why}"));
            let executable = match own_executable() {
                Ok(executable) => executable,
                Err(error) => return ShimEnd::Failed(error),
            };
            ShimEnd::Failed(os::become_afresh(&executable, &unshared))
        }
        Some(End::Done) | None => {
            shim.flush();
            ShimEnd::Done
        }
    }
}

enum End {
    Done,
    Unshared(String),
}

/// Bytes that wait for a reader.
#[derive(Default)]
struct Waiting {
    bytes: VecDeque<u8>,
}

impl Waiting {
    fn push(&mut self, line: &[u8]) {
        self.bytes.extend(line);
        self.bytes.push_back(b'\n');
    }

    /// Writes what is taken now.
    fn write(&mut self, stream: &PolledStream) -> io::Result<()> {
        while !self.bytes.is_empty() {
            match stream.write(self.bytes.as_slices().0) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.bytes.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.bytes.capacity() > SHARE_CHUNK_BYTES {
            self.bytes = VecDeque::new();
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes.len() > OUTBOX_BYTES_MAX
    }
}

struct ShimLoop {
    shim: Shim,
    name: String,
    place: HubPlace,
    start: Instant,
    client: PolledStream,
    answers: PolledStream,
    /// The processes between the client and us; none after the first of them has ended.
    launchers: Vec<PolledStream>,
    hub: Option<PolledStream>,
    /// The hub, where we have started it: waited for when it is gone.
    hub_child: Option<Child>,
    client_lines: LineSplitter,
    hub_lines: LineSplitter,
    to_client: Waiting,
    to_hub: Waiting,
    end: Option<End>,
}

impl ShimLoop {
    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    /// Waits for the next thing, and deals with it.
    fn turn(&mut self) {
        let wait = self
            .shim
            .next_wakeup()
            .map(|at| (self.start + at.since_start()).saturating_duration_since(Instant::now()));
        let reads_client = self.shim.takes_lines() && !self.to_hub.is_full();
        let reads_hub = !self.to_client.is_full();
        let writes_hub = !self.to_hub.bytes.is_empty();
        let writes_client = !self.to_client.bytes.is_empty();
        let mut streams =
            vec![(&self.client, reads_client, false), (&self.answers, false, writes_client)];
        streams.extend(self.launchers.iter().map(|launcher| (launcher, true, false)));
        let hub_at = streams.len();
        streams.extend(self.hub.as_ref().map(|hub| (hub, reads_hub, writes_hub)));
        let ready = match os::poll_streams(&streams, wait) {
            Ok(ready) => ready,
            Err(error) => {
                self.log(&format!("cannot wait for the client: {error}"));
                self.end = Some(End::Done);
                return;
            }
        };
        if wait.is_some_and(|wait| wait.is_zero()) || ready.is_empty() {
            self.handle(ShimInput::Wakeup);
        }
        if let Some(hub) = ready.get(hub_at) {
            self.serve_hub(*hub, reads_hub);
        }
        if ready.iter().take(hub_at).skip(2).any(|launcher| launcher.can_read) {
            self.launchers.clear();
            self.handle(ShimInput::ClientGone);
        }
        match ready.get(1) {
            // Nobody reads the answers any more.
            Some(answers) if answers.is_broken => self.end = Some(End::Done),
            Some(answers) if answers.can_write => self.flush_to_client(),
            _ => {}
        }
        if reads_client && ready.first().is_some_and(|client| client.can_read) {
            self.read_client();
        }
    }

    fn serve_hub(&mut self, ready: Ready, reads: bool) {
        if ready.can_write {
            self.flush_to_hub();
        }
        if reads && ready.can_read {
            self.read_hub();
        } else if ready.is_broken && !ready.can_read {
            self.lose_hub();
        }
    }

    fn read_client(&mut self) {
        let mut buffer = [0; SHARE_CHUNK_BYTES];
        match self.client.read(&mut buffer) {
            Ok(0) => self.handle(ShimInput::ClientGone),
            Ok(length) => {
                let mut frames = Vec::new();
                self.client_lines.push(&buffer[..length], |frame| frames.push(frame));
                for frame in frames {
                    self.handle(ShimInput::Client(frame));
                }
            }
            Err(error) if is_passing(&error) => {}
            Err(_) => self.handle(ShimInput::ClientGone),
        }
    }

    fn read_hub(&mut self) {
        let Some(hub) = &self.hub else { return };
        let mut buffer = [0; SHARE_CHUNK_BYTES];
        match hub.read(&mut buffer) {
            Ok(length @ 1..) => {
                let mut frames = Vec::new();
                self.hub_lines.push(&buffer[..length], |frame| frames.push(frame));
                for frame in frames {
                    self.handle(ShimInput::Hub(frame));
                }
            }
            Err(error) if is_passing(&error) => {}
            Ok(0) | Err(_) => self.lose_hub(),
        }
    }

    fn lose_hub(&mut self) {
        self.disconnect();
        self.handle(ShimInput::HubGone);
    }

    fn disconnect(&mut self) {
        self.hub = None;
        (self.hub_lines, self.to_hub) = (LineSplitter::default(), Waiting::default());
    }

    /// Hands an input to the machine, and does what it says.
    fn handle(&mut self, input: ShimInput) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.now();
            for effect in self.shim.handle(now, input) {
                match effect {
                    ShimEffect::ToClient(line) => self.to_client.push(&line),
                    ShimEffect::ToHub(line) => self.to_hub.push(&line),
                    ShimEffect::Connect => inputs.push_back(self.connect()),
                    ShimEffect::Disconnect => self.disconnect(),
                    ShimEffect::Log(text) => self.log(&text),
                    ShimEffect::Unshared(why) => self.end = Some(End::Unshared(why)),
                    ShimEffect::End => self.end = Some(End::Done),
                }
            }
        }
        self.flush_to_client();
        self.flush_to_hub();
    }

    /// Connects to the hub, or starts one.
    fn connect(&mut self) -> ShimInput {
        // One that has ended is no process of ours any more.
        if let Some(child) = &mut self.hub_child
            && child.try_wait().is_ok_and(|ended| ended.is_some())
        {
            self.hub_child = None;
        }
        match PolledStream::connect(self.place.socket()) {
            Ok(hub) => {
                self.hub = Some(hub);
                ShimInput::Connected
            }
            Err(error) => {
                let why = match self.place.start_hub() {
                    Ok(Some(child)) => {
                        self.hub_child = Some(child);
                        "it has not come up in time".to_owned()
                    }
                    Ok(None) => format!("cannot connect to it: {error}"),
                    Err(error) => format!("cannot start it: {error}"),
                };
                ShimInput::NotConnected(why)
            }
        }
    }

    fn flush_to_client(&mut self) {
        if self.to_client.write(&self.answers).is_err() {
            self.end.get_or_insert(End::Done);
        }
    }

    fn flush_to_hub(&mut self) {
        // Its end shows in the next read.
        if let Some(hub) = &self.hub {
            self.to_hub.write(hub).ok();
        }
    }

    /// Writes what the client still reads, for a moment.
    fn flush(&mut self) {
        let until = Instant::now() + CLIENT_GONE_WITHIN;
        while !self.to_client.bytes.is_empty() && Instant::now() < until {
            let wait = until.saturating_duration_since(Instant::now());
            let ready = os::poll_streams(&[(&self.answers, false, true)], Some(wait));
            if !ready.is_ok_and(|ready| ready.first().is_some_and(|its| its.can_write))
                || self.to_client.write(&self.answers).is_err()
            {
                return;
            }
        }
    }

    fn log(&self, text: &str) {
        let line = format!("[{}] [SUPERVISOR] {}: {text}\n", now(), self.name);
        // There may be no reader.
        if let Ok(mut stderr) = os::stderr() {
            stderr.write_all(line.as_bytes()).ok();
        }
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
