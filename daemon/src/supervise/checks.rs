//! The loop's side of health checks: when they begin and end, and what follows from them; and whether
//! a service's port is free.

use afresh_core::health::Verdict;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::service::{Event, Input, SpawnFailure};

use super::Supervise;
use crate::health::{Found, Order, Probed, taken};

impl Supervise {
    /// An instance is to serve: it is checked from now on, or ready where there is nothing to check.
    pub(super) fn check(&mut self, service: ServiceId, generation: Generation, pid: u32) {
        let definition = self.services.get(&service).map(|kept| &kept.definition);
        if definition.is_some_and(|definition| definition.ready_at_start) {
            self.follow_ups.push_back((service, Input::Ready { generation }));
        }
        let kept = self.services.get(&service);
        let command = kept.and_then(|kept| kept.instances.get(&generation)?.command.clone());
        let orders = self.checks.started(service, generation, pid, command);
        let inputs = self.carry_out(orders);
        self.follow_ups.extend(inputs);
    }

    /// The stop of an instance begins, or it is gone: it is not asked any more.
    pub(super) fn uncheck(&mut self, service: ServiceId, generation: Generation) {
        let orders = self.checks.gone(service, generation);
        let inputs = self.carry_out(orders);
        self.follow_ups.extend(inputs);
    }

    /// Acts on what a check has found.
    pub(super) async fn checked(&mut self, found: Found) {
        if let Found::Probed(Probed { asked, verdict: Verdict::Well { latency }, .. }) = &found
            && let Some(kept) = self.services.get_mut(&asked.service)
        {
            kept.past.vitals.health_checked(*latency);
        }
        let orders = self.checks.react(found);
        self.hand(orders).await;
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
