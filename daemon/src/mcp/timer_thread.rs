//! The next moment that a conversation waits for, kept by a thread of its own.
//!
//! A timer of the runtime's would be set in the kernel and taken back again for each message, as it
//! bounds how long the loop waits. This one is set once, and the loop waits without a bound.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::Waker;

use tokio::time::Instant;

/// Wakes a task at a moment.
pub(super) struct Alarm {
    moments: SyncSender<(Instant, Waker)>,
    set_to: Option<Instant>,
}

impl Alarm {
    pub(super) fn start() -> io::Result<Self> {
        let (moments, set) = sync_channel(1);
        let thread = std::thread::Builder::new().name("alarm".to_owned()).stack_size(64 * 1024);
        thread.spawn(move || ring(&set))?;
        Ok(Self { moments, set_to: None })
    }

    /// Sees to it that the task is woken at this moment. Where it is to be woken before that, it stays
    /// so: a moment that is needed no more comes once for nothing, and no message pays for it.
    pub(super) fn set(&mut self, moment: Instant, waker: &Waker) {
        if self.set_to.is_none_or(|set_to| moment < set_to) {
            self.set_to = Some(moment);
            // The thread takes it at once, and lives as long as we do.
            self.moments.send((moment, waker.clone())).ok();
        }
    }

    /// Another task is to be woken from now on.
    pub(super) fn forget(&mut self) {
        self.set_to = None;
    }

    /// What it was set to may have come.
    pub(super) fn note(&mut self, now: Instant) {
        self.set_to.take_if(|set_to| *set_to <= now);
    }
}

/// The thread: rings at the last moment that it was given, and ends with the alarm.
fn ring(moments: &Receiver<(Instant, Waker)>) {
    while let Ok(mut next) = moments.recv() {
        loop {
            let (moment, _) = &next;
            match moments.recv_timeout(moment.saturating_duration_since(Instant::now())) {
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

    struct Rung(SyncSender<Instant>);

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.send(Instant::now()).expect("the test listens");
        }
    }

    #[test]
    fn it_rings_at_the_earliest_moment_and_can_be_set_again() {
        let (rung, rings) = sync_channel(9);
        let waker = Waker::from(Arc::new(Rung(rung)));
        let mut alarm = Alarm::start().expect("there is room for a thread");
        let soon = Instant::now() + Duration::from_millis(20);
        alarm.set(soon + Duration::from_secs(600), &waker);
        alarm.set(soon, &waker);
        alarm.set(soon + Duration::from_secs(300), &waker);
        let first = rings.recv_timeout(Duration::from_secs(60)).expect("it rings");
        assert!(first >= soon);
        alarm.note(first);
        alarm.set(first, &waker);
        assert!(rings.recv_timeout(Duration::from_secs(60)).is_ok());
        drop((alarm, waker));
        // The thread has ended, and nothing rings any more.
        assert!(rings.recv().is_err());
    }
}
