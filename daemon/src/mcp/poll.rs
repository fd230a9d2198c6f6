//! How the loop of `afresh mcp` waits: for the pipes of its one lane, and for everything else only where
//! that has stirred.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;
use tokio::time::Instant;

use super::fast_path::{Lane, Odd};
use super::timer_thread::Alarm;

/// What wakes the loop.
pub(super) struct Vigil {
    alarm: Alarm,
    /// What wakes us for anything but a pipe.
    aside: Arc<Aside>,
}

/// What ends the passing of messages.
pub(super) enum Came<T> {
    /// Something over the wires that is more than a message on its way.
    Odd(Odd),
    /// A moment that was waited for.
    Due,
    /// What else was waited for.
    Other(T),
}

impl Vigil {
    pub(super) fn start() -> io::Result<Self> {
        Ok(Self { alarm: Alarm::start()?, aside: Aside::new(Waker::noop().clone()) })
    }

    /// Passes messages on until there is something else to do: until `others` is ready, or the
    /// conversation wants to be woken, or the moment `due` has come.
    pub(super) async fn pass_until<T>(
        &mut self,
        lane: &mut Lane,
        due: Option<Instant>,
        others: impl Future<Output = T>,
    ) -> Came<T> {
        let mut others = pin!(others);
        // These have not been looked at yet.
        self.aside.is_woken.store(true, Ordering::Release);
        // It is not held back in favour of other tasks: it looks at everything else in time.
        unconstrained(poll_fn(|context| {
            // Only copies are known to be told apart rightly.
            let task = context.waker().clone();
            if !self.aside.task.will_wake(&task) {
                self.aside = Aside::new(task);
                self.alarm.forget();
            }
            let waker = Waker::from(Arc::clone(&self.aside));
            let aside_context = &mut Context::from_waker(&waker);
            let is_woken = self.aside.is_woken.swap(false, Ordering::AcqRel);
            if is_woken {
                lane.wires.look_for_ends(aside_context);
            }
            if let Some(odd) = lane.poll_wires(context) {
                // The others are looked at anew after that.
                return Poll::Ready(Came::Odd(odd));
            }
            if is_woken && let Poll::Ready(other) = others.as_mut().poll(aside_context) {
                return Poll::Ready(Came::Other(other));
            }
            let moment = lane.next_wakeup().into_iter().chain(due).min();
            self.poll_moment(moment, is_woken, &waker).map(|()| Came::Due)
        }))
        .await
    }

    /// Ready when the next moment has come that is waited for.
    fn poll_moment(&mut self, moment: Option<Instant>, is_woken: bool, waker: &Waker) -> Poll<()> {
        if is_woken {
            let now = Instant::now();
            self.alarm.note(now);
            if moment.is_some_and(|moment| moment <= now) {
                return Poll::Ready(());
            }
        }
        if let Some(moment) = moment {
            self.alarm.set(moment, waker);
        }
        Poll::Pending
    }
}

/// Wakes the task for anything but a pipe, and lets it know that.
struct Aside {
    is_woken: AtomicBool,
    task: Waker,
}

impl Aside {
    /// Everything is to be looked at once with a new one.
    fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { is_woken: AtomicBool::new(true), task })
    }
}

impl Wake for Aside {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}
