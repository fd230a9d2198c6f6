//! Owns the record of refused requests and connections: the trail and the events of the control API get them, as many as
//! `core/src/audit/refusal.rs` allows. Called by the connections of the control API and of the gateway, from their
//! tasks. Never waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afresh_core::audit::{Record, Refusal, RefusalBudget};
use afresh_core::time::Time;

/// Where refusals are recorded. Clones share one budget.
#[derive(Clone)]
pub(crate) struct Refusals(Arc<SharedRefusals>);

struct SharedRefusals {
    logger: &'static str,
    budget: Mutex<RefusalBudget>,
    record: Box<dyn Fn(Record) + Send + Sync>,
}

impl Refusals {
    /// Each record is handed to `record`, which must not wait.
    pub(crate) fn new(
        logger: &'static str,
        record: impl Fn(Record) + Send + Sync + 'static,
    ) -> Self {
        let (budget, record) = (Mutex::default(), Box::new(record));
        Self(Arc::new(SharedRefusals { logger, budget, record }))
    }

    /// Records a refusal, or counts it.
    pub(crate) fn note(&self, refusal: Refusal) {
        let now = Time::after_start(crate::monotonic());
        let noted = self.budget().note(now, refusal);
        self.write(noted);
    }

    /// Records the number of those that were only counted.
    pub(crate) fn finish(&self) {
        let last = self.budget().finish();
        self.write(last);
    }

    fn write(&self, refusal: Option<(Refusal, u64)>) {
        if let Some((refusal, suppressed)) = refusal {
            (self.0.record)(refusal.record(self.0.logger, suppressed));
        }
    }

    fn budget(&self) -> MutexGuard<'_, RefusalBudget> {
        // Nothing in there can panic halfway.
        self.0.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
