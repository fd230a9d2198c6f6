//! Owns the health checks of all services: performs the probes that the machines in core ask for, each
//! in a task of its own, bounded in time and bytes. Driven by the supervisor's loop, which waits on
//! [`Checks`]. Never decides, and starts no process: commands that check are run by the loop.

mod port_check;
mod send_probes;

use std::collections::BTreeMap;
use std::time::Duration;

use afresh_core::duration::show_duration;
use afresh_core::health::mcp::Manner;
use afresh_core::health::{
    Effect, Event, Health, HealthCheck, HealthStatus, Input, Probe, Verdict,
};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::Input as ServiceInput;
use afresh_core::time::{Stamp, Time};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout};

pub(crate) use self::port_check::port_holder;
use self::send_probes::{connect, host_and_port, probe_http, probe_mcp, run_command};
use crate::clock::sleep_until;
use crate::process::{Command, usage_of_tree};
use crate::run_briefly::BriefRunner;

/// The health of all services that have a check.
pub(crate) struct Checks {
    /// The moment from which the machines count.
    start: Instant,
    services: BTreeMap<ServiceId, ServiceCheck>,
    /// At most one probe and one look at the processor time for each service.
    tasks: JoinSet<CheckEvent>,
    /// Runs the commands that check.
    briefs: BriefRunner,
}

struct ServiceCheck {
    defined: HealthCheck,
    /// What is asked of the newest instance.
    check: HealthCheck,
    machine: Health,
    /// Instances that serve or are to, with their processes. The newest is the one that is asked.
    instances: BTreeMap<Generation, CheckedInstance>,
    /// The probe that runs, where it is a task.
    probing: Option<(Generation, AbortHandle)>,
    /// How an instance wants to be asked, if it is an MCP server.
    manner: Option<(Generation, Manner)>,
}

struct CheckedInstance {
    pid: u32,
    /// What it runs: commands that check get its folder and its environment.
    command: Option<Command>,
}

/// What was found.
pub(crate) enum CheckEvent {
    /// What came of a probe, and how an MCP server wants to be asked.
    Probed { probe: ProbeId, verdict: Verdict, manner: Option<Manner> },
    /// The processor time that an instance has used.
    Worked { service: ServiceId, generation: Generation, time: Option<Duration> },
    /// A machine wants to be woken.
    Due,
}

/// A probe of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeId {
    pub(crate) service: ServiceId,
    pub(crate) generation: Generation,
    number: u64,
}

/// What the loop has to do.
pub(crate) enum CheckRequest {
    /// Hand an input to the restart machine.
    Input(ServiceId, ServiceInput),
    /// Record and log an event.
    Record(ServiceId, Event),
}

impl Checks {
    pub(crate) fn new(start: Instant, briefs: BriefRunner) -> Self {
        Self { start, services: BTreeMap::new(), tasks: JoinSet::new(), briefs }
    }

    /// Takes a service in; nothing is asked before an instance is there.
    pub(crate) fn add(&mut self, service: ServiceId, check: HealthCheck) {
        let checked = ServiceCheck {
            machine: Health::new(check.clone()),
            defined: check.clone(),
            check,
            instances: BTreeMap::new(),
            probing: None,
            manner: None,
        };
        self.services.insert(service, checked);
    }

    /// Forgets a service.
    pub(crate) fn remove(&mut self, service: ServiceId) {
        if let Some(mut checked) = self.services.remove(&service) {
            checked.give_up(|_| true);
        }
    }

    /// An instance is there, and is asked from now on; `command` is what it runs.
    pub(crate) fn started(
        &mut self,
        service: ServiceId,
        generation: Generation,
        pid: u32,
        command: Option<Command>,
    ) -> Vec<CheckRequest> {
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        checked.check = checked.defined.for_start(|name| command.as_ref()?.variable(name));
        checked.instances.insert(generation, CheckedInstance { pid, command });
        self.watch_newest(service)
    }

    /// An instance is gone, or on its way.
    pub(crate) fn gone(&mut self, service: ServiceId, generation: Generation) -> Vec<CheckRequest> {
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        checked.instances.remove(&generation);
        checked.give_up(|of| of == generation);
        let mut orders = self.handle(service, Input::Gone(generation));
        // One that was to take the place of another and failed leaves that one.
        orders.extend(self.watch_newest(service));
        orders
    }

    /// Waits for something to act on. Cancel safe.
    pub(crate) async fn next(&mut self) -> CheckEvent {
        let wakeups = self.services.values().filter_map(|checked| checked.machine.next_wakeup());
        let wakeup = wakeups.min().map(|at| self.start + at.since_start());
        tokio::select! {
            // One that was given up finds nothing.
            Some(found) = self.tasks.join_next() => found.unwrap_or(CheckEvent::Due),
            () = sleep_until(wakeup) => CheckEvent::Due,
        }
    }

    /// Acts on what `next` brought.
    pub(crate) fn react(&mut self, found: CheckEvent) -> Vec<CheckRequest> {
        match found {
            CheckEvent::Probed { probe, verdict, manner } => {
                if let Some(checked) = self.services.get_mut(&probe.service) {
                    checked.manner = manner.map(|manner| (probe.generation, manner));
                }
                let ProbeId { service, generation, number } = probe;
                self.handle(service, Input::Probed { generation, number, verdict })
            }
            CheckEvent::Worked { service, generation, time } => {
                self.handle(service, Input::Worked { generation, time })
            }
            CheckEvent::Due => {
                let now = self.now();
                let is_due = |checked: &ServiceCheck| {
                    checked.machine.next_wakeup().is_some_and(|at| at <= now)
                };
                let due = self.services.iter().filter(|(_, checked)| is_due(checked));
                let due: Vec<ServiceId> = due.map(|(service, _)| *service).collect();
                due.into_iter().flat_map(|service| self.handle(service, Input::Wakeup)).collect()
            }
        }
    }

    /// How well a service is; none where it has no check. `stamp` is the wall clock's now.
    pub(crate) fn status(&self, service: ServiceId, stamp: Stamp) -> Option<HealthStatus> {
        Some(self.services.get(&service)?.machine.status(self.now(), stamp))
    }

    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    fn watch_newest(&mut self, service: ServiceId) -> Vec<CheckRequest> {
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        let Some(generation) = checked.instances.keys().next_back().copied() else {
            return Vec::new();
        };
        checked.give_up(|of| of != generation);
        self.handle(service, Input::Started(generation))
    }

    fn handle(&mut self, service: ServiceId, input: Input) -> Vec<CheckRequest> {
        let now = self.now();
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        let effects = checked.machine.handle(now, input);
        effects.into_iter().filter_map(|effect| self.perform(service, effect)).collect()
    }

    /// Does what can be done here.
    fn perform(&mut self, service: ServiceId, effect: Effect) -> Option<CheckRequest> {
        match effect {
            Effect::Probe { generation, number, timeout } => {
                let checked = self.services.get_mut(&service)?;
                checked.give_up(|_| true);
                let probe = ProbeId { service, generation, number };
                let task = if let Probe::Exec { command } = &checked.check.probe {
                    let like = checked.instances.get(&generation)?.command.as_ref()?;
                    let argv = command.iter().map(Into::into).collect();
                    let command = Command { argv, ..like.clone() };
                    self.tasks.spawn(run_command(self.briefs.clone(), probe, command, timeout))
                } else {
                    let known = checked.manner.as_ref().filter(|(of, _)| *of == generation);
                    let manner = known.map(|(_, manner)| manner.clone());
                    let asked = checked.check.probe.clone();
                    self.tasks.spawn(run_probe(probe, asked, timeout, manner))
                };
                checked.probing = Some((generation, task));
                None
            }
            Effect::Sample(generation) => {
                let pid = self.services.get(&service)?.instances.get(&generation)?.pid;
                self.tasks.spawn_blocking(move || CheckEvent::Worked {
                    service,
                    generation,
                    time: usage_of_tree(pid).map(|usage| usage.cpu_time),
                });
                None
            }
            Effect::Ready(generation) => {
                Some(CheckRequest::Input(service, ServiceInput::Ready(generation)))
            }
            Effect::Unhealthy { generation, why } => {
                Some(CheckRequest::Input(service, ServiceInput::Unhealthy(generation, why)))
            }
            Effect::Tell(event) => Some(CheckRequest::Record(service, event)),
        }
    }
}

impl ServiceCheck {
    /// Ends the probe that runs, if it is one of these instances.
    fn give_up(&mut self, of: impl Fn(Generation) -> bool) {
        if let Some((_, task)) = self.probing.take_if(|(generation, _)| of(*generation)) {
            task.abort();
        }
    }
}

/// Asks a service, in its time.
async fn run_probe(
    id: ProbeId,
    probe: Probe,
    time_max: Duration,
    mut manner: Option<Manner>,
) -> CheckEvent {
    let begun = Instant::now();
    let asking = async {
        match &probe {
            Probe::Http { url, status, json, headers } => {
                probe_http(url, *status, json.as_ref(), headers).await
            }
            Probe::Tcp { address } => match host_and_port(address) {
                Some((host, port)) => connect(host, port).await.map(drop),
                None => {
                    let why = format!("`{address}` is no address: write `host:port`");
                    Err(Verdict::Ill(why))
                }
            },
            Probe::Mcp { url } => probe_mcp(url, &mut manner).await,
            // See `run_command`.
            Probe::Exec { .. } => Ok(()),
        }
    };
    let verdict = match timeout(time_max, asking).await {
        Ok(Ok(())) => Verdict::Well(begun.elapsed()),
        Ok(Err(verdict)) => verdict,
        Err(_) => Verdict::Silent(format!("no answer within {}", show_duration(time_max))),
    };
    CheckEvent::Probed { probe: id, verdict, manner }
}
