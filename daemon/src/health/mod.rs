//! Health checks: performs the probes that the machines in core ask for, each in a task of its own,
//! bounded in time and bytes.
//!
//! `Checks` is what the loop waits on. It decides nothing, and starts no process: commands that check
//! are run by the loop, which has the processes, and is asked for it.

mod connect;
mod exec;
mod http;
mod mcp;
mod port;

use std::collections::BTreeMap;
use std::time::Duration;

use afresh_core::health::mcp::Manner;
use afresh_core::health::{
    Effect, Event, Health, HealthCheck, HealthStatus, Input, Probe, Verdict,
};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::Input as ServiceInput;
use afresh_core::time::{Stamp, Time, show_duration};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

pub(crate) use self::port::taken;
use crate::process::{Command, cpu_time_of_tree};
use crate::run_briefly::BriefRunner;

/// The health of all services that have a check.
pub(crate) struct Checks {
    /// The moment from which the machines count.
    start: Instant,
    services: BTreeMap<ServiceId, Checked>,
    /// At most one probe and one look at the processor time for each service.
    tasks: JoinSet<Found>,
    /// Runs the commands that check.
    briefs: BriefRunner,
}

struct Checked {
    defined: HealthCheck,
    /// What is asked of the newest instance.
    check: HealthCheck,
    machine: Health,
    /// Instances that serve or are to, with their processes. The newest is the one that is asked.
    instances: BTreeMap<Generation, Instance>,
    /// The probe that runs, where it is a task.
    probing: Option<(Generation, AbortHandle)>,
    /// How an instance wants to be asked, if it is an MCP server.
    manner: Option<(Generation, Manner)>,
}

struct Instance {
    pid: u32,
    /// What it runs: commands that check get its folder and its environment.
    command: Option<Command>,
}

/// What was found.
pub(crate) enum Found {
    /// What came of a probe.
    Probed(Probed),
    /// The processor time that an instance has used.
    Worked { service: ServiceId, generation: Generation, time: Option<Duration> },
    /// A machine wants to be woken.
    Due,
}

/// What came of a probe.
pub(crate) struct Probed {
    pub(crate) asked: Asked,
    pub(crate) verdict: Verdict,
    manner: Option<Manner>,
}

/// A probe of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) service: ServiceId,
    pub(crate) generation: Generation,
    number: u64,
}

/// What the loop has to do.
pub(crate) enum Order {
    /// Tell the restart machine.
    Hand(ServiceId, ServiceInput),
    /// Record and log.
    Tell(ServiceId, Event),
}

impl Checks {
    pub(crate) fn new(start: Instant, briefs: BriefRunner) -> Self {
        Self { start, services: BTreeMap::new(), tasks: JoinSet::new(), briefs }
    }

    /// Takes a service in; nothing is asked before an instance is there.
    pub(crate) fn add(&mut self, service: ServiceId, check: HealthCheck) {
        let checked = Checked {
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
    ) -> Vec<Order> {
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        checked.check = checked.defined.for_start(|name| command.as_ref()?.variable(name));
        checked.instances.insert(generation, Instance { pid, command });
        self.watch_newest(service)
    }

    /// An instance is gone, or on its way.
    pub(crate) fn gone(&mut self, service: ServiceId, generation: Generation) -> Vec<Order> {
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        checked.instances.remove(&generation);
        checked.give_up(|of| of == generation);
        let mut orders = self.handle(service, Input::Gone { generation });
        // One that was to take the place of another and failed leaves that one.
        orders.extend(self.watch_newest(service));
        orders
    }

    /// Waits for something to act on. Cancel safe.
    pub(crate) async fn next(&mut self) -> Found {
        let wakeups = self.services.values().filter_map(|checked| checked.machine.next_wakeup());
        let wakeup = wakeups.min().map(|at| self.start + at.since_start());
        let due = async {
            match wakeup {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // One that was given up finds nothing.
            Some(found) = self.tasks.join_next() => found.unwrap_or(Found::Due),
            () = due => Found::Due,
        }
    }

    /// Acts on what `next` brought.
    pub(crate) fn react(&mut self, found: Found) -> Vec<Order> {
        match found {
            Found::Probed(Probed { asked, verdict, manner }) => {
                if let Some(checked) = self.services.get_mut(&asked.service) {
                    checked.manner = manner.map(|manner| (asked.generation, manner));
                }
                self.ran(asked, verdict)
            }
            Found::Worked { service, generation, time } => {
                self.handle(service, Input::Worked { generation, time })
            }
            Found::Due => {
                let now = self.now();
                let is_due =
                    |checked: &Checked| checked.machine.next_wakeup().is_some_and(|at| at <= now);
                let due = self.services.iter().filter(|(_, checked)| is_due(checked));
                let due: Vec<ServiceId> = due.map(|(service, _)| *service).collect();
                due.into_iter().flat_map(|service| self.handle(service, Input::Wakeup)).collect()
            }
        }
    }

    /// A probe has ended.
    pub(crate) fn ran(&mut self, asked: Asked, verdict: Verdict) -> Vec<Order> {
        let Asked { service, generation, number } = asked;
        self.handle(service, Input::Probed { generation, number, verdict })
    }

    /// How well a service is; none where it has no check. `stamp` is the wall clock's now.
    pub(crate) fn status(&self, service: ServiceId, stamp: Stamp) -> Option<HealthStatus> {
        Some(self.services.get(&service)?.machine.status(self.now(), stamp))
    }

    fn now(&self) -> Time {
        Time::after_start(self.start.elapsed())
    }

    fn watch_newest(&mut self, service: ServiceId) -> Vec<Order> {
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        let Some(generation) = checked.instances.keys().next_back().copied() else {
            return Vec::new();
        };
        checked.give_up(|of| of != generation);
        self.handle(service, Input::Started { generation })
    }

    fn handle(&mut self, service: ServiceId, input: Input) -> Vec<Order> {
        let now = self.now();
        let Some(checked) = self.services.get_mut(&service) else { return Vec::new() };
        let effects = checked.machine.handle(now, input);
        effects.into_iter().filter_map(|effect| self.perform(service, effect)).collect()
    }

    /// Does what can be done here.
    fn perform(&mut self, service: ServiceId, effect: Effect) -> Option<Order> {
        match effect {
            Effect::Probe { generation, number, timeout } => {
                let checked = self.services.get_mut(&service)?;
                checked.give_up(|_| true);
                let asked = Asked { service, generation, number };
                if let Probe::Exec { command } = &checked.check.probe {
                    let like = checked.instances.get(&generation)?.command.as_ref()?;
                    let argv = command.iter().map(Into::into).collect();
                    let command = Command { argv, ..like.clone() };
                    let run = exec::run(self.briefs.clone(), asked, command, timeout);
                    checked.probing = Some((generation, self.tasks.spawn(run)));
                    return None;
                }
                let known = checked.manner.as_ref().filter(|(of, _)| *of == generation);
                let manner = known.map(|(_, manner)| manner.clone());
                let task =
                    self.tasks.spawn(ask(asked, checked.check.probe.clone(), timeout, manner));
                checked.probing = Some((generation, task));
                None
            }
            Effect::Sample { generation } => {
                let pid = self.services.get(&service)?.instances.get(&generation)?.pid;
                self.tasks.spawn_blocking(move || Found::Worked {
                    service,
                    generation,
                    time: cpu_time_of_tree(pid),
                });
                None
            }
            Effect::Ready { generation } => {
                Some(Order::Hand(service, ServiceInput::Ready { generation }))
            }
            Effect::Unhealthy { generation, why } => {
                Some(Order::Hand(service, ServiceInput::Unhealthy { generation, why }))
            }
            Effect::Tell(event) => Some(Order::Tell(service, event)),
        }
    }
}

impl Checked {
    /// Ends the probe that runs, if it is one of these instances.
    fn give_up(&mut self, of: impl Fn(Generation) -> bool) {
        if let Some((_, task)) = self.probing.take_if(|(generation, _)| of(*generation)) {
            task.abort();
        }
    }
}

/// Asks a service, in its time.
async fn ask(asked: Asked, probe: Probe, time_max: Duration, mut manner: Option<Manner>) -> Found {
    let begun = Instant::now();
    let asking = async {
        match &probe {
            Probe::Http { url, status, json, headers } => {
                http::probe(url, *status, json.as_ref(), headers).await
            }
            Probe::Tcp { address } => match connect::host_and_port(address) {
                Some((host, port)) => connect::connect(host, port).await.map(drop),
                None => {
                    let why = format!("`{address}` is no address: write `host:port`");
                    Err(Verdict::Ill { why })
                }
            },
            Probe::Mcp { url } => mcp::probe(url, &mut manner).await,
            // See `exec.rs`.
            Probe::Exec { .. } => Ok(()),
        }
    };
    let verdict = match timeout(time_max, asking).await {
        Ok(Ok(())) => Verdict::Well { latency: begun.elapsed() },
        Ok(Err(verdict)) => verdict,
        Err(_) => Verdict::Silent { why: format!("no answer within {}", show_duration(time_max)) },
    };
    Found::Probed(Probed { asked, verdict, manner })
}
