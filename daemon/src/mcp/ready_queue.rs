//! Owns which of many peers of one loop were woken: servers, or shims. Each has a waker of its own, and one that was woken
//! stands in a list once, so that what a message costs does not depend on how many there are. Driven by the wakers of pipes
//! and sockets, and by the loop that takes the list. Polls nothing itself.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The peers that were woken. Each is in it once, so that there are never more than there are peers.
pub(crate) struct ReadyQueue<Key> {
    list: Mutex<ReadyList<Key>>,
    /// A deadline of one of them may have come.
    is_timer_due: AtomicBool,
}

struct ReadyList<Key> {
    keys: Vec<Key>,
    /// Woken for the first of them.
    task: Waker,
}

/// Notes that there is something for one peer.
pub(crate) struct ReadyFlag<Key> {
    key: Key,
    queue: Arc<ReadyQueue<Key>>,
    is_ready: AtomicBool,
    /// For something else than its pipes.
    is_other_ready: AtomicBool,
}

impl<Key> ReadyQueue<Key> {
    pub(crate) fn new() -> Arc<Self> {
        let list = ReadyList { keys: Vec::new(), task: Waker::noop().clone() };
        Arc::new(Self { list: Mutex::new(list), is_timer_due: AtomicBool::new(false) })
    }

    /// Takes all that were woken, in their order; the task is woken for the next.
    pub(crate) fn take(&self, task: &Waker, into: &mut VecDeque<Key>) {
        let mut list = self.list();
        into.extend(list.keys.drain(..));
        if !list.task.will_wake(task) {
            list.task = task.clone();
        }
    }

    /// Whether the timer has fired since the last time.
    pub(super) fn take_timer(&self) -> bool {
        self.is_timer_due.swap(false, Ordering::AcqRel)
    }

    fn push(&self, key: Key) {
        let mut list = self.list();
        list.keys.push(key);
        // For those before it the task was woken already, and it takes all.
        let task = (list.keys.len() == 1).then(|| list.task.clone());
        drop(list);
        if let Some(task) = task {
            task.wake();
        }
    }

    fn list(&self) -> MutexGuard<'_, ReadyList<Key>> {
        // Nothing in there panics.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of the timer: it does not say whose deadline has come.
impl<Key: Send> Wake for ReadyQueue<Key> {
    fn wake(self: Arc<Self>) {
        self.is_timer_due.store(true, Ordering::Release);
        let task = self.list().task.clone();
        task.wake();
    }
}

impl<Key: Copy> ReadyFlag<Key> {
    pub(crate) fn new(key: Key, queue: &Arc<ReadyQueue<Key>>) -> Arc<Self> {
        Arc::new(Self {
            key,
            queue: Arc::clone(queue),
            is_ready: AtomicBool::new(false),
            is_other_ready: AtomicBool::new(false),
        })
    }

    /// There is something for its pipes.
    pub(crate) fn set(&self) {
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            self.queue.push(self.key);
        }
    }

    /// The same by the task itself, which takes the queue before it waits: it is not woken.
    pub(crate) fn set_by_task(&self) {
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            self.queue.list().keys.push(self.key);
        }
    }

    /// There is something besides, or there may be.
    pub(super) fn set_other(&self) {
        self.is_other_ready.store(true, Ordering::Release);
        self.set();
    }

    /// Clears it before the peer is polled. Returns whether there is something besides the pipes.
    pub(crate) fn clear(&self) -> bool {
        // Takes over what was done before it was set.
        self.is_ready.swap(false, Ordering::AcqRel);
        self.is_other_ready.swap(false, Ordering::AcqRel)
    }
}

/// The waker of the pipes.
impl<Key: Copy + Send + Sync> Wake for ReadyFlag<Key> {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

/// The waker of everything else.
pub(super) struct OtherReady<Key>(pub(super) Arc<ReadyFlag<Key>>);

impl<Key: Copy + Send + Sync> Wake for OtherReady<Key> {
    fn wake(self: Arc<Self>) {
        self.0.set_other();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.set_other();
    }
}
