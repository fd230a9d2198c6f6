//! Owns the pipes of running instances: the pumps of their output, their stdin, and the events that a
//! conversation has to follow. Driven by [`Supervisor`](super::Supervisor). Never starts or ends a
//! process.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{DRAIN_MAX, LINGERING_MAX};
use afresh_core::service::Exit;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::services::Services;
use crate::definition::Definition;
use crate::os::{PipeWriter, write_now};
use crate::output::Output;
use crate::pipe::{Flow, Pumps};
use crate::process::Command;
use crate::wires::InstancePipes;

/// The instances of all services that have pipes.
pub(crate) struct Instances {
    pub(super) all: BTreeMap<(ServiceId, Generation), Instance>,
    pub(super) lingering: BTreeMap<ServiceId, Lingering>,
    events: VecDeque<InstanceEvent>,
    pub(super) wiring: Wiring,
    /// All of it has to end soon: the reader of our output is not waited for with each instance.
    pub(crate) is_hurried: bool,
    /// The last output of an instance was not read in time.
    is_unread: bool,
}

/// Where the pipes of instances lead.
pub(super) struct Wiring {
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    /// Stdin and stdout of each instance belong to a conversation.
    pub(super) has_conversations: bool,
    /// Gets the stdin of each new instance, and `None` when it is to be closed.
    pub(super) stdin: Option<mpsc::Sender<Option<PipeWriter>>>,
    /// Without a feeder, the stdin of instances stays open for [`Instances::write_stdin`].
    pub(super) holds_stdin: bool,
}

/// The pumps of one instance.
pub(super) struct Instance {
    /// 0 until it runs.
    pid: u32,
    /// The command, where a health check needs the same environment.
    command: Option<Command>,
    pumps: Pumps,
    /// Held while no feeder has it.
    stdin: Option<PipeWriter>,
}

/// Pumps of instances that are gone, whose last output our reader has not taken yet; those of the next
/// instance wait for them.
#[derive(Default)]
pub(super) struct Lingering {
    pub(super) pumps: JoinSet<()>,
    count: usize,
}

/// A step in the life of an instance that speaks a protocol.
pub(crate) struct InstanceEvent {
    pub(crate) service: ServiceId,
    pub(crate) generation: Generation,
    pub(crate) change: InstanceChange,
}

/// See [`InstanceEvent`].
pub(crate) enum InstanceChange {
    /// Its pipes are there.
    Attached(Box<InstancePipes>),
    /// It is to be given the session; with its process.
    Opened(u32),
    /// It is ended for this reason.
    Condemned(String),
    /// Its stop begins: no more requests for it, and its stdin is to be closed.
    Stopping,
    /// It could not be started, maybe in the place of one that serves.
    SpawnFailed { why: String, is_replacement: bool },
    /// Its process has ended, and its restart machine has heard of it.
    Exited(Exit),
}

/// Why bytes were not written to the stdin of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StdinError {
    /// No instance runs.
    NotRunning,
    /// The instance has closed it.
    Closed,
    /// There is no room: the instance does not read.
    Full,
    /// There was room for so much only, on a system that does not say so before.
    Partial(usize),
}

impl Instances {
    pub(super) fn new(wiring: Wiring) -> Self {
        Self {
            all: BTreeMap::new(),
            lingering: BTreeMap::new(),
            events: VecDeque::new(),
            wiring,
            is_hurried: false,
            is_unread: false,
        }
    }

    /// Starts the pumps of an instance.
    pub(super) async fn attach(
        &mut self,
        services: &mut Services,
        (service, generation): (ServiceId, Generation),
        stdin: PipeWriter,
        [stdout, stderr]: [Flow; 2],
        command: Option<Command>,
    ) {
        let Some([out_taps, err_taps]) = services.taps(service, generation) else { return };
        let Some(Definition { form, .. }) = services.definition(service) else { return };
        let lingering = self.lingering.entry(service).or_default();
        let earlier = std::mem::take(&mut lingering.pumps);
        if earlier.is_empty() {
            lingering.count = 0;
        }
        let mut flows = vec![(stderr, self.wiring.stderr.clone(), err_taps)];
        let (pumps, stdin) = match self.wiring.has_conversations {
            true => {
                let pumps = Pumps::start(flows, form, earlier);
                let stdout = stdout.pipe;
                let pipes = InstancePipes { generation, stdin, stdout };
                self.push_event(service, generation, InstanceChange::Attached(Box::new(pipes)));
                (pumps, None)
            }
            false => {
                flows.push((stdout, self.wiring.stdout.clone(), out_taps));
                let stdin = match &self.wiring.stdin {
                    // The feeder lives as long as the loop.
                    Some(feeder) => feeder.send(Some(stdin)).await.err().and_then(|lost| lost.0),
                    None => self.wiring.holds_stdin.then_some(stdin),
                };
                (Pumps::start(flows, form, earlier), stdin)
            }
        };
        self.all.insert((service, generation), Instance { pid: 0, command, pumps, stdin });
    }

    pub(super) fn set_pid(&mut self, service: ServiceId, generation: Generation, pid: u32) {
        if let Some(instance) = self.all.get_mut(&(service, generation)) {
            instance.pid = pid;
        }
    }

    /// The process of an instance and the command for its health check.
    pub(super) fn process_of(
        &self,
        service: ServiceId,
        generation: Generation,
    ) -> (u32, Option<Command>) {
        let instance = self.all.get(&(service, generation));
        instance.map_or((0, None), |instance| (instance.pid, instance.command.clone()))
    }

    pub(super) fn has_any_of(&self, service: ServiceId) -> bool {
        self.all.keys().any(|(its, _)| *its == service)
    }

    pub(super) async fn close_stdin(&mut self, service: ServiceId, generation: Generation) {
        if let Some(feeder) = &self.wiring.stdin {
            feeder.send(None).await.ok();
        }
        if let Some(instance) = self.all.get_mut(&(service, generation)) {
            instance.stdin = None;
        }
    }

    /// Writes to the stdin of an instance, all of it or nothing, and returns its process. Never waits
    /// for an instance that does not read.
    pub(super) fn write_stdin(
        &mut self,
        service: ServiceId,
        generation: Generation,
        bytes: &[u8],
    ) -> Result<u32, StdinError> {
        let instance = self.all.get_mut(&(service, generation));
        let running = instance.filter(|instance| instance.pid != 0);
        let instance = running.ok_or(StdinError::NotRunning)?;
        let stdin = instance.stdin.as_ref().ok_or(StdinError::Closed)?;
        match write_now(stdin, bytes) {
            Ok(length) if length == bytes.len() => Ok(instance.pid),
            Ok(length) => Err(StdinError::Partial(length)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(StdinError::Full),
            Err(_) => {
                instance.stdin = None;
                Err(StdinError::Closed)
            }
        }
    }

    /// Takes what is left in the pipes of an instance that is gone, so that its last lines precede the
    /// record of its end. Returns whether output of earlier instances had to be dropped: our own
    /// reader does not take it.
    pub(super) async fn end(&mut self, service: ServiceId, generation: Generation) -> bool {
        let Some(mut instance) = self.all.remove(&(service, generation)) else { return false };
        // While all of it ends, the reader is waited for once.
        let wait = if self.is_hurried && self.is_unread { Duration::ZERO } else { DRAIN_MAX };
        self.is_unread = timeout(wait, instance.pumps.drain()).await.is_err();
        if !self.is_unread {
            return false;
        }
        // The rest follows when the reader goes on.
        let lingering = self.lingering.entry(service).or_default();
        lingering.count += 1;
        let is_dropped = lingering.count > LINGERING_MAX;
        if is_dropped {
            lingering.count = 0;
            instance.pumps.tasks.abort_all();
        }
        lingering.pumps = instance.pumps.tasks;
        is_dropped
    }

    /// Queues an event where there are conversations to take it.
    pub(super) fn push_event(
        &mut self,
        service: ServiceId,
        generation: Generation,
        change: InstanceChange,
    ) {
        if self.wiring.has_conversations {
            self.events.push_back(InstanceEvent { service, generation, change });
        }
    }

    /// The next event for a conversation. To be asked until there is none, after every call.
    pub(crate) fn next_event(&mut self) -> Option<InstanceEvent> {
        self.events.pop_front()
    }
}
