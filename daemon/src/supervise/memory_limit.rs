//! Owns the measurements of services with a memory limit. Driven by
//! [`Supervisor::wait`](super::Supervisor::wait). Core decides what too much memory leads to.

use std::collections::BTreeMap;

use afresh_core::fleet::Fleet;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::MEMORY_LOOK_INTERVAL;
use afresh_core::memory_limit::{OverLimit, over_limit};
use afresh_core::time::Time;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;

use super::services::Services;
use crate::clock::sleep_until;
use crate::definition::Definition;
use crate::process::usage_of_tree;

/// The memory limits of all services.
#[derive(Default)]
pub(super) struct MemoryLimits {
    /// When the next measurement is due; none while no service has a limit.
    due_at: Option<Instant>,
    measuring: Option<JoinHandle<Vec<Measurement>>>,
    /// When services were last restarted for their memory.
    restarted: BTreeMap<ServiceId, Instant>,
}

/// The memory that the processes of an instance hold; none where it is gone.
pub(crate) type Measurement = (ServiceId, Generation, Option<u64>);

impl MemoryLimits {
    /// A service is defined, maybe with a limit.
    pub(super) fn expect(&mut self, definition: &Definition) {
        if definition.memory_bytes_max.is_some() {
            self.due_at.get_or_insert_with(|| Instant::now() + MEMORY_LOOK_INTERVAL);
        }
    }

    /// Waits until a measurement is due, or done with its results. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Vec<Measurement>> {
        if let Some(measuring) = &mut self.measuring {
            // One that panicked has no results.
            let measured = measuring.await.unwrap_or_default();
            self.measuring = None;
            return Some(measured);
        }
        sleep_until(self.due_at).await;
        None
    }

    /// Measures the services with a limit, in a thread of its own.
    pub(super) fn measure(&mut self, services: &Services, fleet: &Fleet, now: Time) {
        self.due_at = Some(Instant::now() + MEMORY_LOOK_INTERVAL);
        let running = services.limited().filter_map(|id| {
            let snapshot = fleet.service(id)?.snapshot(now);
            Some((id, Generation(snapshot.generation?), snapshot.pid?))
        });
        let running: Vec<(ServiceId, Generation, u32)> = running.collect();
        self.measuring = Some(spawn_blocking(move || {
            let measure = |(id, generation, pid)| {
                (id, generation, usage_of_tree(pid).map(|it| it.memory_bytes))
            };
            running.into_iter().map(measure).collect()
        }));
    }

    /// Judges a result; a service that is over its limit is expected to be restarted.
    pub(super) fn judge(
        &mut self,
        service: ServiceId,
        definition: &Definition,
        bytes: u64,
    ) -> Option<OverLimit> {
        let last = self.restarted.get(&service).map(Instant::elapsed);
        let stable_after = definition.policy.stable_after;
        let over = over_limit(bytes, definition.memory_bytes_max?, last, stable_after)?;
        self.restarted.insert(service, Instant::now());
        Some(over)
    }
}
