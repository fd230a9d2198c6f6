//! The loop's side of health checks: when they begin and end, and what follows from them; and whether
//! a service's port is free.

use afresh_core::health::Verdict;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{HEALTH_OUTPUT_BYTES_MAX, HEALTH_SHOWN_CHARS_MAX};
use afresh_core::service::{Event, Exit, Input, SpawnFailure};
use afresh_core::time::show_duration;

use super::Supervise;
use crate::health::{Asked, Found, Order, taken};
use crate::os::is_variable;
use crate::output::presentable;
use crate::process::{Command, Report};
use crate::run_briefly::{Brief, BriefEnding, Outcome, Word};

impl Supervise {
    /// An instance is to serve: it is checked from now on, or ready where there is nothing to check.
    pub(super) fn check(&mut self, service: ServiceId, generation: Generation, pid: u32) {
        let definition = self.services.get(&service).map(|kept| &kept.definition);
        if definition.is_some_and(|definition| definition.ready_at_start) {
            self.follow_ups.push_back((service, Input::Ready { generation }));
        }
        let kept = self.services.get(&service);
        let command = kept.and_then(|kept| kept.instances.get(&generation)?.command.as_ref());
        let variable = |name: &str| {
            let mut variables = command?.env.iter().filter(|(other, _)| is_variable(other, name));
            variables.next_back().map(|(_, value)| value.to_string_lossy().into_owned())
        };
        let orders = self.checks.started(service, generation, pid, variable);
        let inputs = self.carry_out(orders);
        self.follow_ups.extend(inputs);
    }

    /// The stop of an instance begins, or it is gone: it is not asked any more.
    pub(super) fn uncheck(&mut self, service: ServiceId, generation: Generation) {
        let running = self.checking.iter();
        let of_it = |asked: &Asked| (asked.service, asked.generation) == (service, generation);
        let ids: Vec<ServiceId> =
            running.filter(|(_, asked)| of_it(asked)).map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.briefs.end(&mut self.processes, id));
        let orders = self.checks.gone(service, generation);
        let inputs = self.carry_out(orders);
        self.follow_ups.extend(inputs);
    }

    /// Acts on what a check has found.
    pub(super) async fn checked(&mut self, found: Found) {
        let orders = self.checks.react(found);
        self.hand(orders).await;
    }

    /// Acts on word of a command that checks.
    pub(super) async fn checking(&mut self, word: Word) {
        self.briefs.react(&mut self.processes, word);
        self.take_outcomes().await;
    }

    /// The same, of its process.
    pub(super) async fn heard_of_brief(&mut self, report: Report) {
        self.briefs.hear(report);
        self.take_outcomes().await;
    }

    async fn take_outcomes(&mut self) {
        while let Some((id, outcome)) = self.briefs.finished() {
            if let Some(asked) = self.checking.remove(&id) {
                let orders = self.checks.ran(asked, judged(&outcome));
                self.hand(orders).await;
            }
        }
    }

    async fn hand(&mut self, orders: Vec<Order>) {
        for (service, input) in self.carry_out(orders) {
            self.input_to(service, input).await;
        }
    }

    /// Does what has to be done, and returns what the restart machines have to be told.
    fn carry_out(&mut self, orders: Vec<Order>) -> Vec<(ServiceId, Input)> {
        let mut inputs = Vec::new();
        for order in orders {
            match order {
                Order::Hand(service, input) => inputs.push((service, input)),
                Order::Tell(service, event) => self.tell(service, Event::Health(event)),
                Order::Run { asked, command, time_max } => {
                    let kept = self.services.get(&asked.service);
                    let instance = kept.and_then(|kept| kept.instances.get(&asked.generation));
                    let Some(like) = instance.and_then(|instance| instance.command.clone()) else {
                        continue;
                    };
                    let argv = command.into_iter().map(Into::into).collect();
                    let command = Command { argv, ..like };
                    let output_bytes_max = HEALTH_OUTPUT_BYTES_MAX;
                    let brief = Brief { command, time_max, output_bytes_max };
                    let id = self.briefs.begin(&mut self.processes, &brief);
                    self.checking.insert(id, asked);
                }
            }
        }
        inputs
    }

    /// Why a service cannot be started now: somebody else has its port. One of its own instances may
    /// have it, and is to be replaced.
    pub(super) async fn port_taken(&self, service: ServiceId) -> Option<SpawnFailure> {
        let kept = self.services.get(&service)?;
        match &kept.definition.port {
            Some(port) if kept.instances.is_empty() => taken(port).await,
            _ => None,
        }
    }
}

/// What the end of a command that checks says.
fn judged(outcome: &Outcome) -> Verdict {
    let quoted = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let short: String = last.trim().chars().take(HEALTH_SHOWN_CHARS_MAX).collect();
        presentable(&short)
    };
    let took = show_duration(outcome.took);
    match &outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => Verdict::Well { latency: outcome.took },
        // It may have failed because the service is busy: a command does not say.
        BriefEnding::Exited(exit) => Verdict::Silent {
            why: match [quoted(&outcome.stderr), quoted(&outcome.stdout)] {
                [said, _] | [_, said] if !said.is_empty() => format!("the check {exit}: {said}"),
                _ => format!("the check {exit}"),
            },
        },
        BriefEnding::SpawnFailed(failure) => {
            Verdict::Ill { why: format!("the check could not be started: {}", failure.message) }
        }
        BriefEnding::TimedOut => {
            Verdict::Silent { why: format!("the check had not ended after {took}, and was killed") }
        }
        BriefEnding::TooMuchOutput => {
            let why = format!("the check printed more than {HEALTH_OUTPUT_BYTES_MAX} bytes");
            Verdict::Ill { why }
        }
    }
}
