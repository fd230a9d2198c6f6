//! Owns the list of servers that are to be polled: each has a waker of its own, and one that was woken
//! stands in the list once. So a message of one server costs nothing for the others. Driven by the wakers
//! of pipes and timers; `servers.rs` takes the list.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use afresh_core::id::ServiceId;

/// The servers that were woken. Each is in it once, so that there are never more than there are servers.
pub(super) struct ReadyQueue {
    list: Mutex<ReadyList>,
    /// A deadline of one of them may have come.
    is_timer_due: AtomicBool,
}

struct ReadyList {
    services: Vec<ServiceId>,
    /// Woken for the first of them.
    task: Waker,
}

/// Notes that there is something for one server.
pub(super) struct ReadyFlag {
    service: ServiceId,
    queue: Arc<ReadyQueue>,
    is_ready: AtomicBool,
    /// For something else than its pipes.
    is_other_ready: AtomicBool,
}

impl ReadyQueue {
    pub(super) fn new() -> Arc<Self> {
        let list = ReadyList { services: Vec::new(), task: Waker::noop().clone() };
        Arc::new(Self { list: Mutex::new(list), is_timer_due: AtomicBool::new(false) })
    }

    /// Takes all that were woken, in their order; the task is woken for the next.
    pub(super) fn take(&self, task: &Waker, into: &mut VecDeque<ServiceId>) {
        let mut list = self.list();
        into.extend(list.services.drain(..));
        if !list.task.will_wake(task) {
            list.task = task.clone();
        }
    }

    /// Whether the timer has fired since the last time.
    pub(super) fn take_timer(&self) -> bool {
        self.is_timer_due.swap(false, Ordering::AcqRel)
    }

    fn push(&self, service: ServiceId) {
        let mut list = self.list();
        list.services.push(service);
        // For those before it the task was woken already, and it takes all.
        let task = (list.services.len() == 1).then(|| list.task.clone());
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn list(&self) -> MutexGuard<'_, ReadyList> {
        // Nothing in there panics.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of the timer: it does not say whose deadline has come.
impl Wake for ReadyQueue {
    fn wake(self: Arc<Self>) {
        self.is_timer_due.store(true, Ordering::Release);
        let task = self.list().task.clone();
        task.wake();
    }
}

impl ReadyFlag {
    pub(super) fn new(service: ServiceId, queue: &Arc<ReadyQueue>) -> Arc<Self> {
        Arc::new(Self {
            service,
            queue: Arc::clone(queue),
            is_ready: AtomicBool::new(false),
            is_other_ready: AtomicBool::new(false),
        })
    }

    /// There is something for its pipes.
    pub(super) fn set(&self) {
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            self.queue.push(self.service);
        }
    }

    /// There is something besides, or there may be.
    pub(super) fn set_other(&self) {
        self.is_other_ready.store(true, Ordering::Release);
        self.set();
    }

    /// Clears it before the server is polled. Returns whether there is something besides the pipes.
    pub(super) fn clear(&self) -> bool {
        // Takes over what was done before it was set.
        self.is_ready.swap(false, Ordering::AcqRel);
        self.is_other_ready.swap(false, Ordering::AcqRel)
    }
}

/// The waker of the pipes.
impl Wake for ReadyFlag {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

/// The waker of everything else.
pub(super) struct OtherReady(pub(super) Arc<ReadyFlag>);

impl Wake for OtherReady {
    fn wake(self: Arc<Self>) {
        self.0.set_other();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.set_other();
    }
}
