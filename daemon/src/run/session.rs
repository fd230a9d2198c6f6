//! The session of an agent: its start, what is heard of it, and the steps of its end.

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use afresh_core::agent::{Heard, Session, Setup, Told};
use afresh_core::definition::StopSignal;
use afresh_core::id::Generation;
use afresh_core::limits::{AGENT_TERM_WAIT, KILL_PATIENCE};
use afresh_core::run::{Attempt, Input, Record, Say};
use afresh_core::service::Exit;
use tokio::time::Instant;

use super::agent::Agent;
use super::agent_output::{Said, Word};
use super::log::SessionLog;
use super::{AGENT, Driver, stamp};
use crate::os;
use crate::process::{Command, InstanceStdio, OutputEnd, Report};

/// The session that runs.
pub(super) struct Running {
    pub(super) attempt: Attempt,
    pub(super) agent: Agent,
    /// The steps of its end, and when the next one is due.
    pub(super) ending: Option<(Ending, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Asked,
    Terminated,
    Killed,
    Abandoned,
}

impl Driver {
    pub(super) fn open(&mut self, attempt: Attempt, prompt: String) {
        let settings = self.run.agent.settings_variable().and_then(|name| {
            let own = self.run.env.iter().find(|(variable, _)| variable == name)?;
            own.1.to_str().map(str::to_owned)
        });
        let setup = Setup {
            program: self.run.program.clone(),
            folder: self.run.folder.to_string_lossy().into_owned(),
            model: self.run.model.clone(),
            permission: self.run.permission,
            id: uuid(),
            port: free_port(),
            prompt,
            servers: (self.run.servers)(),
            file: self.run.servers_file.to_string_lossy().into_owned(),
            settings,
        };
        let machine = self.run.agent.session(setup, uuid());
        let start = machine.start();
        if let Some(content) = &start.file
            && let Err(error) = self.write_servers_file(content)
        {
            let why = format!("cannot write `{}`: {error}", self.run.servers_file.display());
            return self.give(Input::NotStarted(attempt, why));
        }
        let mut env = self.run.env.clone();
        env.extend(start.env.iter().map(|(name, value)| (name.into(), value.into())));
        let argv = start.argv.iter().map(OsString::from).collect();
        let command = Command { argv, cwd: Some(self.run.folder.clone()), env };
        let generation = Generation(u64::from(attempt.0));
        let output = OutputEnd::WhenClosed;
        match self.processes.spawn(AGENT, generation, &command, output) {
            Ok(stdio) => self.begin(attempt, machine, stdio),
            Err(failure) => self.give(Input::NotStarted(attempt, failure.message)),
        }
    }

    fn write_servers_file(&self, content: &[u8]) -> std::io::Result<()> {
        self.remove_servers_file();
        os::create_private(&self.run.servers_file)?.write_all(content)
    }

    /// There are secrets in it.
    pub(super) fn remove_servers_file(&self) {
        // It need not be there.
        std::fs::remove_file(&self.run.servers_file).ok();
    }

    fn begin(&mut self, attempt: Attempt, machine: Box<dyn Session + Send>, stdio: InstanceStdio) {
        let path = self.run.logs.join(format!("session-{}.jsonl", attempt.0));
        let log = SessionLog::create(&path, Arc::clone(&self.secrets));
        let (kind, words) = (self.run.agent, self.words.0.clone());
        let agent = Agent::new(attempt, kind, machine, stdio, words, log);
        self.session = Some(Running { attempt, agent, ending: None });
    }

    pub(super) fn hear(&mut self, report: Report) {
        match report {
            Report::Spawned { pid, .. } => {
                self.board.process = Some((pid, stamp()));
                if let Some(session) = &mut self.session {
                    let heard = session.agent.started(stamp());
                    self.heard(heard);
                }
            }
            Report::SpawnFailed { failure, .. } => {
                if let Some(session) = self.session.take() {
                    self.give(Input::NotStarted(session.attempt, failure.message));
                }
            }
            Report::Exited { exit, .. } => {
                if let Some(session) = &mut self.session {
                    session.agent.exited(exit);
                }
                self.end_if_over();
            }
            Report::Notice(text) => {
                self.says.push(Say::Note(text, true));
            }
        }
    }

    pub(super) fn take(&mut self, word: Word) {
        let Word { attempt, said } = word;
        if said.iter().any(|said| matches!(said, Said::Piece)) {
            self.give(Input::Stirred(attempt));
        }
        let now = stamp();
        for said in said {
            let session = self.session.as_mut().filter(|session| session.attempt == attempt);
            let Some(session) = session else { return };
            let heard = session.agent.take(now, said);
            self.heard(heard);
        }
        if let Some(session) = &mut self.session {
            session.agent.write_log();
        }
        self.end_if_over();
    }

    pub(super) fn tell(&mut self, attempt: Attempt, told: &Told) {
        if let Some(session) = self.session.as_mut().filter(|session| session.attempt == attempt) {
            let heard = session.agent.tell(stamp(), told);
            self.heard(heard);
        }
    }

    pub(super) fn heard(&mut self, heard: Vec<Heard>) {
        let Some(attempt) = self.session.as_ref().map(|session| session.attempt) else { return };
        for heard in heard {
            let heard = heard.without_secrets(&self.secrets);
            self.give(Input::Heard(attempt, heard));
        }
    }

    /// The session has ended when its process is gone and its last words are heard.
    pub(super) fn end_if_over(&mut self) {
        let Some(session) = self.session.take_if(|session| session.agent.is_over()) else { return };
        self.remove_servers_file();
        let attempt = session.attempt;
        let exit = session.agent.exit.map_or(Exit::Unknown, |(exit, _)| exit);
        for heard in session.agent.ended(stamp(), &exit) {
            let heard = heard.without_secrets(&self.secrets);
            self.give(Input::Heard(attempt, heard));
        }
        self.give(Input::SessionEnded(attempt, exit.to_string()));
    }

    /// Begins the end of a session, where it has not begun: it is asked first.
    pub(super) fn end(&mut self, attempt: Attempt) {
        self.tell(attempt, &Told::End);
        if let Some(session) = self.session.as_mut().filter(|session| session.attempt == attempt)
            && session.ending.is_none()
        {
            session.ending = Some((Ending::Asked, Instant::now() + session.agent.end_wait()));
        }
    }

    /// Somebody does not want to wait.
    pub(super) fn end_faster(&mut self) {
        if let Some(session) = &mut self.session
            && let Some((_, at)) = &mut session.ending
        {
            *at = Instant::now();
        }
        self.step_of_end(Instant::now());
    }

    pub(super) fn step_of_end(&mut self, now: Instant) {
        let Some(session) = &mut self.session else { return };
        let Some((step, _)) = session.ending.filter(|(_, at)| *at <= now) else { return };
        let generation = Generation(u64::from(session.attempt.0));
        let (next, wait) = match step {
            Ending::Asked => {
                self.processes.terminate(AGENT, generation, StopSignal::Terminate);
                (Ending::Terminated, AGENT_TERM_WAIT)
            }
            Ending::Terminated => {
                self.processes.kill(AGENT, generation);
                (Ending::Killed, KILL_PATIENCE)
            }
            Ending::Killed | Ending::Abandoned => {
                self.processes.abandon(AGENT, generation);
                (Ending::Abandoned, KILL_PATIENCE)
            }
        };
        session.ending = Some((next, now + wait));
    }

    pub(super) fn note_end(&self, record: &Record) {
        if let Record::AttemptEnded { attempt, cause, detail, .. } = record {
            let path = self.run.logs.join(format!("session-{}.jsonl", attempt.0));
            SessionLog::append(&path, Arc::clone(&self.secrets)).ended(stamp(), *cause, detail);
        }
    }
}

/// A port that nobody has at this moment.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0));
    listener.and_then(|listener| listener.local_addr()).map_or(0, |address| address.port())
}

/// A random UUID, version 4.
pub(super) fn uuid() -> String {
    let mut bytes = os::random_bytes::<16>().unwrap_or_default();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
