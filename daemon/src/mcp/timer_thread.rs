//! Owns the next deadline of a conversation, in a thread of its own. Driven by `poll.rs` and `servers.rs`.
//!
//! A timer of the runtime would be set in the kernel and taken back again for each message, as it bounds
//! how long the loop waits. This one is set once, and the loop waits without a bound.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::Waker;

use tokio::time::Instant;

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
