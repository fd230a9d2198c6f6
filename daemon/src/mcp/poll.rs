//! Owns the wait of a loop whose messages come first: that of `afresh mcp`, for the pipes of its one conversation, and that of
//! the hub of shared servers, for shims and servers. Everything else is polled only where it has woken the task. Besides, the
//! thread with the next deadline, which `gateway_servers.rs` uses too. Driven by `mcp.rs` and `share/hub.rs`. Never reads a
//! message itself.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;
use tokio::time::Instant;

/// What passes messages on in the task of a loop.
pub(crate) trait MessagePath {
    /// What only the loop can deal with.
    type Interruption;

    /// Asks to be woken by this context for anything that is no message.
    fn look_for_ends(&mut self, _context: &mut Context<'_>) {}

    /// Passes on what has come, for a bounded time, and asks to be woken for more.
    fn poll_messages(&mut self, context: &mut Context<'_>) -> Option<Self::Interruption>;

    /// When it is to be woken if nothing comes before.
    fn next_wakeup(&self) -> Option<Instant>;
}

/// Wakes the loop.
pub(crate) struct PipePoll {
    timer: TimerThread,
    /// The waker for anything but a pipe.
    other: Arc<OtherWaker>,
}

/// The reason to leave the fast path.
pub(crate) enum Polled<I, T> {
    /// Something over the pipes that is more than a message on its way.
    Interruption(I),
    /// A deadline has come.
    Due,
    /// The other future is ready.
    Other(T),
}

impl PipePoll {
    pub(crate) fn start() -> io::Result<Self> {
        Ok(Self { timer: TimerThread::start()?, other: OtherWaker::new(Waker::noop().clone()) })
    }

    /// Passes messages on until there is something else to do: until `others` is ready, or the
    /// path wants to be woken, or the deadline `due` has come.
    pub(crate) async fn pass_until<P: MessagePath, T>(
        &mut self,
        lane: &mut P,
        due: Option<Instant>,
        others: impl Future<Output = T>,
    ) -> Polled<P::Interruption, T> {
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
                lane.look_for_ends(other_context);
            }
            if let Some(interruption) = lane.poll_messages(context) {
                // The others are polled again after that.
                return Poll::Ready(Polled::Interruption(interruption));
            }
            if is_woken && let Poll::Ready(other) = others.as_mut().poll(other_context) {
                return Poll::Ready(Polled::Other(other));
            }
            let deadline = lane.next_wakeup().into_iter().chain(due).min();
            if is_woken {
                let now = Instant::now();
                self.timer.note(now);
                if deadline.is_some_and(|deadline| deadline <= now) {
                    return Poll::Ready(Polled::Due);
                }
            }
            if let Some(deadline) = deadline {
                self.timer.set(deadline, &waker);
            }
            Poll::Pending
        }))
        .await
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

/// Wakes a task at a deadline.
pub(super) struct TimerThread {
    deadlines: SyncSender<(Instant, Waker)>,
    set_to: Option<Instant>,
}

impl TimerThread {
    pub(super) fn start() -> io::Result<Self> {
        let (deadlines, set) = sync_channel(1);
        let thread = std::thread::Builder::new().name("timer".to_owned()).stack_size(64 * 1024);
        thread.spawn(move || run(&set))?;
        Ok(Self { deadlines, set_to: None })
    }

    /// Has the task woken at this deadline. An earlier one stays set: one that is obsolete wakes the task
    /// once for nothing, and no message pays for it.
    pub(super) fn set(&mut self, deadline: Instant, waker: &Waker) {
        if self.set_to.is_none_or(|set_to| deadline < set_to) {
            self.set_to = Some(deadline);
            // The thread takes it at once, and lives as long as we do.
            self.deadlines.send((deadline, waker.clone())).ok();
        }
    }

    /// Another task is to be woken from now on.
    pub(super) fn forget(&mut self) {
        self.set_to = None;
    }

    /// The deadline that it was set to may have come.
    pub(super) fn note(&mut self, now: Instant) {
        self.set_to.take_if(|set_to| *set_to <= now);
    }
}

/// The thread: wakes at the last deadline that it was given, and ends with its owner.
fn run(deadlines: &Receiver<(Instant, Waker)>) {
    while let Ok(mut next) = deadlines.recv() {
        loop {
            let (deadline, _) = &next;
            match deadlines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(earlier) => next = earlier,
                Err(RecvTimeoutError::Timeout) => break next.1.wake(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    struct Woken(SyncSender<Instant>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.send(Instant::now()).expect("the test listens");
        }
    }

    #[test]
    fn it_wakes_at_the_earliest_deadline_and_can_be_set_again() {
        let (woken, wakeups) = sync_channel(9);
        let waker = Waker::from(Arc::new(Woken(woken)));
        let mut timer = TimerThread::start().expect("there is room for a thread");
        let soon = Instant::now() + Duration::from_millis(20);
        timer.set(soon + Duration::from_secs(600), &waker);
        timer.set(soon, &waker);
        timer.set(soon + Duration::from_secs(300), &waker);
        let first = wakeups.recv_timeout(Duration::from_secs(60)).expect("it wakes");
        assert!(first >= soon);
        timer.note(first);
        timer.set(first, &waker);
        assert!(wakeups.recv_timeout(Duration::from_secs(60)).is_ok());
        drop((timer, waker));
        // The thread has ended, and nothing is woken any more.
        assert!(wakeups.recv().is_err());
    }
}
