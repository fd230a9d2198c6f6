//! Owns the wait of the loop of `afresh mcp`: for the pipes of its one conversation, and for everything
//! else only where that has woken the task. Driven by `event_loop.rs`. Never reads a message itself.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;
use tokio::time::Instant;

use super::fast_path::{FastPath, Interruption};
use super::timer_thread::TimerThread;

/// Wakes the loop.
pub(super) struct PipePoll {
    timer: TimerThread,
    /// The waker for anything but a pipe.
    other: Arc<OtherWaker>,
}

/// The reason to leave the fast path.
pub(super) enum Polled<T> {
    /// Something over the pipes that is more than a message on its way.
    Interruption(Interruption),
    /// A deadline has come.
    Due,
    /// The other future is ready.
    Other(T),
}

impl PipePoll {
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self { timer: TimerThread::start()?, other: OtherWaker::new(Waker::noop().clone()) })
    }

    /// Passes messages on until there is something else to do: until `others` is ready, or the
    /// conversation wants to be woken, or the deadline `due` has come.
    pub(super) async fn pass_until<T>(
        &mut self,
        lane: &mut FastPath,
        due: Option<Instant>,
        others: impl Future<Output = T>,
    ) -> Polled<T> {
        let mut others = pin!(others);
        // The others have not been polled yet.
        self.other.is_woken.store(true, Ordering::Release);
        // Without tokio's budget: it polls everything else in time.
        unconstrained(poll_fn(|context| {
            // Only clones are compared reliably.
            let task = context.waker().clone();
            if !self.other.task.will_wake(&task) {
                self.other = OtherWaker::new(task);
                self.timer.forget();
            }
            let waker = Waker::from(Arc::clone(&self.other));
            let other_context = &mut Context::from_waker(&waker);
            let is_woken = self.other.is_woken.swap(false, Ordering::AcqRel);
            if is_woken {
                lane.wires.look_for_ends(other_context);
            }
            if let Some(interruption) = lane.poll_wires(context) {
                // The others are polled again after that.
                return Poll::Ready(Polled::Interruption(interruption));
            }
            if is_woken && let Poll::Ready(other) = others.as_mut().poll(other_context) {
                return Poll::Ready(Polled::Other(other));
            }
            let deadline = lane.next_wakeup().into_iter().chain(due).min();
            self.poll_deadline(deadline, is_woken, &waker).map(|()| Polled::Due)
        }))
        .await
    }

    /// Ready when the next deadline has come.
    fn poll_deadline(
        &mut self,
        deadline: Option<Instant>,
        is_woken: bool,
        waker: &Waker,
    ) -> Poll<()> {
        if is_woken {
            let now = Instant::now();
            self.timer.note(now);
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Poll::Ready(());
            }
        }
        if let Some(deadline) = deadline {
            self.timer.set(deadline, waker);
        }
        Poll::Pending
    }
}

/// Wakes the task for anything but a pipe, and notes it.
struct OtherWaker {
    is_woken: AtomicBool,
    task: Waker,
}

impl OtherWaker {
    /// With a new waker everything is to be polled once.
    fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { is_woken: AtomicBool::new(true), task })
    }
}

impl Wake for OtherWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
