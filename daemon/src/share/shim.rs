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
use crate::os::{self, Interest, PollResult, PolledStream, Ready};
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
        buffer: vec![0; SHARE_CHUNK_BYTES],
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
    /// For what is read.
    buffer: Vec<u8>,
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
        let client =
            Interest { reads: self.shim.takes_lines() && !self.to_hub.is_full(), writes: false };
        let answers = Interest { reads: false, writes: !self.to_client.bytes.is_empty() };
        let hub =
            Interest { reads: !self.to_client.is_full(), writes: !self.to_hub.bytes.is_empty() };
        // That nobody reads the answers any more matters while there are none, too. Any other stream of which nothing is
        // wanted is left out: its end is dealt with when it is wanted again.
        let streams = [
            Some((&self.client, client)).filter(|_| !client.is_none()),
            Some((&self.answers, answers)),
            self.hub.as_ref().map(|stream| (stream, hub)).filter(|_| !hub.is_none()),
        ];
        let polled = match os::poll_streams(streams, &self.launchers, wait) {
            Ok(polled) => polled,
            Err(error) => {
                self.log(&format!("cannot wait for the client: {error}"));
                self.end = Some(End::Done);
                return;
            }
        };
        if wait.is_some_and(|wait| wait.is_zero()) || polled.is_none() {
            self.handle(ShimInput::Wakeup);
        }
        let Some(PollResult { streams: [client, answers, of_hub], has_end }) = polled else {
            return;
        };
        self.serve_hub(of_hub, hub.reads);
        if has_end {
            self.launchers.clear();
            self.handle(ShimInput::ClientGone);
        }
        if answers.is_broken {
            // Nobody reads the answers any more.
            self.end = Some(End::Done);
        } else if answers.can_write {
            self.flush_to_client();
        }
        if client.can_read {
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
        match self.client.read(&mut self.buffer) {
            Ok(0) => self.handle(ShimInput::ClientGone),
            Ok(length) => {
                let mut inputs = VecDeque::new();
                let give = |frame| inputs.push_back(ShimInput::Client(frame));
                self.client_lines.push(&self.buffer[..length], give);
                self.handle_all(inputs);
            }
            Err(error) if is_passing(&error) => {}
            Err(_) => self.handle(ShimInput::ClientGone),
        }
    }

    fn read_hub(&mut self) {
        let Some(hub) = &self.hub else { return };
        match hub.read(&mut self.buffer) {
            Ok(length @ 1..) => {
                let mut inputs = VecDeque::new();
                let give = |frame| inputs.push_back(ShimInput::Hub(frame));
                self.hub_lines.push(&self.buffer[..length], give);
                self.handle_all(inputs);
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

    fn handle(&mut self, input: ShimInput) {
        self.handle_all(VecDeque::from([input]));
    }

    /// Hands inputs to the machine, and does what it says.
    fn handle_all(&mut self, mut inputs: VecDeque<ShimInput>) {
        let now = self.now();
        while let Some(input) = inputs.pop_front() {
            for effect in self.shim.handle(now, input) {
                match effect {
                    ShimEffect::ToClient(line) => self.to_client.push(&line),
                    ShimEffect::ToHub(line) => self.to_hub.push(&line),
                    // What the old hub has sent before is handed on first.
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
        if let Some(hub) = &self.hub
            && self.to_hub.write(hub).is_err()
        {
            // It takes nothing any more. Its end shows in the next read, behind what it has sent.
            self.to_hub = Waiting::default();
        }
    }

    /// Writes what the client still reads, for a moment.
    fn flush(&mut self) {
        let until = Instant::now() + CLIENT_GONE_WITHIN;
        while !self.to_client.bytes.is_empty() && Instant::now() < until {
            let wait = until.saturating_duration_since(Instant::now());
            let answers = (&self.answers, Interest { reads: false, writes: true });
            let polled = os::poll_streams([Some(answers)], &[], Some(wait));
            let can_write =
                matches!(polled, Ok(Some(PollResult { streams: [its], .. })) if its.can_write);
            if !can_write || self.to_client.write(&self.answers).is_err() {
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
