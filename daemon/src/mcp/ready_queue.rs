//! Who of many servers is to be polled: each has a bell of its own, and whoever was rung for stands in a
//! list, once. So a message of one costs nothing for the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use afresh_core::id::ServiceId;

/// Who was rung for. Each is in it once, so that there are never more than there are bells.
pub(super) struct Rung {
    list: Mutex<List>,
    /// A moment that one of them waits for may have come.
    is_time: AtomicBool,
}

struct List {
    services: Vec<ServiceId>,
    /// Woken for the first of them.
    task: Waker,
}

/// Is rung when there is something for one server.
pub(super) struct Bell {
    service: ServiceId,
    rung: Arc<Rung>,
    is_rung: AtomicBool,
    /// For something else than its pipes.
    is_rung_aside: AtomicBool,
}

impl Rung {
    pub(super) fn new() -> Arc<Self> {
        let list = List { services: Vec::new(), task: Waker::noop().clone() };
        Arc::new(Self { list: Mutex::new(list), is_time: AtomicBool::new(false) })
    }

    /// Takes all who were rung for, in their order; the task is woken for the next.
    pub(super) fn take(&self, task: &Waker, into: &mut VecDeque<ServiceId>) {
        let mut list = self.list();
        into.extend(list.services.drain(..));
        if !list.task.will_wake(task) {
            list.task = task.clone();
        }
    }

    /// Whether the alarm has rung since the last time.
    pub(super) fn is_time(&self) -> bool {
        self.is_time.swap(false, Ordering::AcqRel)
    }

    fn note(&self, service: ServiceId) {
        let mut list = self.list();
        list.services.push(service);
        // For those before it the task was woken already, and it takes all.
        let task = (list.services.len() == 1).then(|| list.task.clone());
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        // Nothing in there panics.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The alarm's way: it is not said whose moment has come.
impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.is_time.store(true, Ordering::Release);
        let task = self.list().task.clone();
        task.wake();
    }
}

impl Bell {
    pub(super) fn new(service: ServiceId, rung: &Arc<Rung>) -> Arc<Self> {
        Arc::new(Self {
            service,
            rung: Arc::clone(rung),
            is_rung: AtomicBool::new(false),
            is_rung_aside: AtomicBool::new(false),
        })
    }

    /// There is something for its pipes.
    pub(super) fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::AcqRel) {
            self.rung.note(self.service);
        }
    }

    /// There is something besides, or there may be.
    pub(super) fn ring_aside(&self) {
        self.is_rung_aside.store(true, Ordering::Release);
        self.ring();
    }

    /// It is dealt with from now on. Returns whether there is something besides the pipes.
    pub(super) fn answer(&self) -> bool {
        // Takes over what was done before it was rung.
        self.is_rung.swap(false, Ordering::AcqRel);
        self.is_rung_aside.swap(false, Ordering::AcqRel)
    }
}

/// The way of the pipes.
impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// The way of everything else.
pub(super) struct Aside(pub(super) Arc<Bell>);

impl Wake for Aside {
    fn wake(self: Arc<Self>) {
        self.0.ring_aside();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.ring_aside();
    }
}
