//! How the pipes of an instance are connected.

use std::io;

use afresh_core::id::{Generation, ServiceId};

use super::{Instance, Supervise};
use crate::os::{PipeWriter, write_now};
use crate::pipe::{Flow, Pumps};
use crate::process::Command;
use crate::wires::InstancePipes;

impl Supervise {
    /// Starts the pumps of an instance.
    pub(super) async fn attach(
        &mut self,
        service: ServiceId,
        generation: Generation,
        stdin: PipeWriter,
        [stdout, stderr]: [Flow; 2],
        command: Option<Command>,
    ) {
        let Some(kept) = self.services.get_mut(&service) else {
            return;
        };
        let earlier = std::mem::take(&mut kept.lingering);
        if earlier.is_empty() {
            kept.lingering_count = 0;
        }
        let [out_taps, err_taps] = kept.taps(generation);
        let mut pumped = vec![(stderr, self.around.stderr.clone(), err_taps)];
        let form = &kept.definition.form;
        let (pumps, stdin) = match self.around.has_talkers {
            true => {
                let pumps = Pumps::start(pumped, form, earlier);
                let stdout = stdout.pipe;
                let talker =
                    InstancePipes { service, generation, stdin, stdout, gone: pumps.gone() };
                self.talkers.push_back(talker);
                (pumps, None)
            }
            false => {
                pumped.push((stdout, self.around.stdout.clone(), out_taps));
                let stdin = match &self.around.stdin {
                    // The feeder lives as long as the loop.
                    Some(feeder) => feeder.send(Some(stdin)).await.err().and_then(|lost| lost.0),
                    None => self.around.holds_stdin.then_some(stdin),
                };
                (Pumps::start(pumped, form, earlier), stdin)
            }
        };
        kept.instances.insert(generation, Instance { pid: 0, command, pumps, stdin });
    }

    /// Nobody would take it where there is no conversation.
    pub(super) fn take_turn(&mut self, turn: Turn) {
        if self.around.has_talkers {
            self.turns.push_back(turn);
        }
    }

    /// The next new instance, with its pipes. It is asked before every turn is taken.
    pub(crate) fn next_talker(&mut self) -> Option<InstancePipes> {
        self.talkers.pop_front()
    }

    /// The next thing that a conversation has to be told. It is asked after every call, so that
    /// no more waits than one call brings.
    pub(crate) fn next_turn(&mut self) -> Option<Turn> {
        self.turns.pop_front()
    }

    /// Writes to the stdin of the current instance of a service, all of it or nothing, and returns its
    /// process. The loop waits for nobody who does not read.
    pub(crate) fn type_to(&mut self, service: ServiceId, bytes: &[u8]) -> Result<u32, NotTaken> {
        let current = self.core.service(service).and_then(|service| service.current());
        let kept = self.services.get_mut(&service);
        let instances = kept.map(|kept| &mut kept.instances);
        let instance = instances.zip(current).and_then(|(all, current)| all.get_mut(&current));
        let instance = instance.filter(|instance| instance.pid != 0).ok_or(NotTaken::Down)?;
        let stdin = instance.stdin.as_ref().ok_or(NotTaken::Closed)?;
        match write_now(stdin, bytes) {
            Ok(length) if length == bytes.len() => Ok(instance.pid),
            Ok(length) => Err(NotTaken::Partly(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(NotTaken::Full),
            Err(_) => {
                instance.stdin = None;
                Err(NotTaken::Closed)
            }
        }
    }
}

/// What becomes of an instance that speaks a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) service: ServiceId,
    pub(crate) generation: Generation,
    pub(crate) becomes: Becomes,
}

/// See [`Turn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// It is to be given the session; with its process.
    Opened(u32),
    /// Its stop begins: nothing more is said to it, and its stdin is to be closed.
    Leaving,
}

/// Why an instance does not get what was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// None runs.
    Down,
    /// Nobody reads there any more.
    Closed,
    /// There is no room: it does not read.
    Full,
    /// There was room for so much only, on a system that does not say so before.
    Partly(usize),
}
