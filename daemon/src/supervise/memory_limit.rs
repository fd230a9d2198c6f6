//! Services that may hold only so much memory: looked at now and then, by a thread of its own.

use std::collections::BTreeMap;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::MEMORY_LOOK_INTERVAL;
use afresh_core::memory::weigh;
use afresh_core::service::Input;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use super::Supervise;
use crate::process::memory_of_tree;

/// The looks.
#[derive(Default)]
pub(super) struct Scales {
    /// When the next one is due; none where there is nothing to look at.
    at: Option<Instant>,
    under_way: Option<JoinHandle<Vec<Weight>>>,
    /// When services were last restarted for their memory.
    restarted: BTreeMap<ServiceId, Instant>,
}

/// What the processes of an instance hold; none where it is gone.
pub(crate) type Weight = (ServiceId, Generation, Option<u64>);

impl Scales {
    /// A service is there that may hold this much.
    pub(super) fn expect(&mut self, bytes_max: Option<u64>) {
        if bytes_max.is_some() {
            self.at.get_or_insert_with(|| Instant::now() + MEMORY_LOOK_INTERVAL);
        }
    }

    /// Waits until a look is due, or done with what it has found. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Vec<Weight>> {
        if let Some(look) = &mut self.under_way {
            // One that came to grief has found nothing.
            let found = look.await.unwrap_or_default();
            self.under_way = None;
            return Some(found);
        }
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
        None
    }
}

impl Supervise {
    /// Acts on what [`Scales::next`] brought.
    pub(super) async fn weighed(&mut self, found: Option<Vec<Weight>>) {
        let Some(found) = found else {
            self.scales.at = Some(Instant::now() + MEMORY_LOOK_INTERVAL);
            let limited =
                self.services.iter().filter(|(_, k)| k.definition.memory_bytes_max.is_some());
            let running = limited.filter_map(|(id, _)| {
                let snapshot = self.core.service(*id)?.snapshot(self.now());
                Some((*id, Generation(snapshot.generation?), snapshot.pid?))
            });
            let running: Vec<(ServiceId, Generation, u32)> = running.collect();
            let look = move || {
                let weight = |(id, generation, pid)| (id, generation, memory_of_tree(pid));
                running.into_iter().map(weight).collect()
            };
            self.scales.under_way = Some(spawn_blocking(look));
            return;
        };
        for (service, generation, bytes) in found {
            let Some(kept) = self.services.get(&service) else { continue };
            let (Some(bytes), Some(max)) = (bytes, kept.definition.memory_bytes_max) else {
                continue;
            };
            let last = self.scales.restarted.get(&service).map(Instant::elapsed);
            let stable_after = kept.definition.policy.stable_after;
            let Some(over) = weigh(bytes, max, last, stable_after) else { continue };
            self.scales.restarted.insert(service, Instant::now());
            let reason = over.reason;
            let input = match over.is_again {
                true => Input::Unhealthy { generation, why: reason },
                false => Input::Restart { reason },
            };
            self.input_to(service, input).await;
        }
    }
}
