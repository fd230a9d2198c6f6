//! The loop of `afresh up`.

use afresh_core::control::{Refusal, ServiceStatus, ShutdownAnswer, State};
use afresh_core::limits::VIEW_INTERVAL;
use afresh_core::service::Input;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::fleet::Fleet;
use super::{Lines, Reloaded, Up};
use crate::control::{About, Ask, Control, Reloading};
use crate::keep::{self, Wish};
use crate::notify::Notify;
use crate::os::{Asked, Signals};
use crate::supervise::Supervise;

/// The loop of `afresh up`, and all it looks at.
pub(super) struct Daemon {
    pub(super) supervise: Supervise,
    pub(super) fleet: Fleet,
    pub(super) control: Control,
    pub(super) about: About,
    pub(super) signals: Signals,
    pub(super) notify: Notify,
    pub(super) changes: watch::Receiver<u64>,
    /// States that changed are shown from then on.
    pub(super) show_at: Instant,
    /// And those that did not, then.
    pub(super) show_again: Option<Instant>,
    pub(super) stopping_since: Option<Instant>,
    pub(super) up: Up,
}

impl Daemon {
    /// Runs until somebody wants it to end, and all is down.
    pub(super) async fn drive(&mut self, mut broken: oneshot::Receiver<()>) {
        let mut stream_works = true;
        self.supervise.log("all services are set up");
        self.notify.ready("all services are set up");
        self.show();
        while self.stopping_since.is_none() || !self.supervise.is_at_rest() {
            self.fleet.tidy(&mut self.supervise);
            let wish = tokio::select! {
                happened = self.supervise.wait() => {
                    self.supervise.react(happened).await;
                    continue;
                }
                ask = self.control.next() => {
                    self.answer(ask).await;
                    continue;
                }
                asked = self.signals.next() => self.wish_of(asked),
                () = self.notify.watchdog_due() => {
                    self.notify.alive();
                    continue;
                }
                () = due(&mut self.changes, self.show_at, self.show_again) => {
                    self.show();
                    continue;
                }
                _ = &mut broken, if stream_works => {
                    stream_works = false;
                    let is_new = self.stopping_since.is_none();
                    is_new.then_some(Wish::Stop("whoever read our output is gone"))
                }
            };
            self.follow(wish).await;
        }
        self.show();
    }

    fn wish_of(&self, asked: Asked) -> Option<Wish> {
        match asked {
            Asked::Stop("SIGHUP") if matches!(self.up.lines, Lines::File) => Some(Wish::Reload),
            asked => keep::wish_of(asked, self.stopping_since),
        }
    }

    async fn follow(&mut self, wish: Option<Wish>) {
        match wish {
            None => {}
            Some(Wish::Restart(_)) if self.stopping_since.is_some() => {
                self.supervise.log("nothing is begun any more: afresh is stopping");
            }
            Some(Wish::Restart(reason)) => self.supervise.input(&Input::Restart { reason }).await,
            Some(Wish::Reload) => drop(self.reload("SIGHUP").await),
            Some(Wish::Stop(why)) => self.stop(why).await,
            Some(Wish::Hurry) => self.supervise.hurry_up().await,
        }
    }

    async fn stop(&mut self, why: &str) {
        self.stopping_since = Some(Instant::now());
        self.notify.stopping(why);
        self.supervise.log(&format!("{why}: stopping"));
        self.supervise.shut_down().await;
    }

    /// Answers a question of the control API.
    async fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Reload { reason, answer } => {
                let done = self.reload(&reason).await;
                // Whoever asked may have gone.
                answer.send(done).ok();
            }
            Ask::Shutdown { reason, answer } => {
                let ids = self.supervise.core().services();
                let up = ids.filter(|(_, service)| service.rest().is_none()).map(|(id, _)| id);
                let stopping = up.map(|id| self.supervise.name(id)).collect();
                if self.stopping_since.is_none() {
                    self.stop(&reason).await;
                }
                answer.send(Ok(ShutdownAnswer { stopping })).ok();
            }
            ask => self.control.answer(&mut self.supervise, ask).await,
        }
    }

    /// Reads the configuration again; a bad one changes nothing.
    async fn reload(&mut self, why: &str) -> Result<Reloading, Refusal> {
        if self.stopping_since.is_some() {
            return Err(Refusal::new("nothing is begun any more: afresh is stopping"));
        }
        match (self.up.reload)() {
            Ok(Reloaded { services, hooks, notes }) => {
                notes.iter().for_each(|note| self.supervise.log(note));
                self.notify.reloading();
                self.supervise.log(&format!("{why}: reading the configuration again"));
                if hooks != self.up.hooks.definitions {
                    self.up.hooks.definitions = hooks;
                    self.supervise.start_hooks(self.up.hooks.clone());
                }
                let mut reloading = self.fleet.apply(&mut self.supervise, services).await;
                reloading.answer.notes = notes;
                self.notify.ready("the configuration was read again");
                Ok(reloading)
            }
            Err(wrong) => {
                self.supervise.log(&format!("the configuration stays as it was:\n{wrong}"));
                Err(Refusal::new(format!("the configuration stays as it was\n{wrong}")))
            }
        }
    }

    fn show(&mut self) {
        self.changes.borrow_and_update();
        let now = Instant::now();
        self.show_at = now + VIEW_INTERVAL;
        let ids = self.supervise.core().services().map(|(id, _)| id);
        let all: Vec<ServiceStatus> =
            ids.filter_map(|id| self.about.status(&self.supervise, id)).collect();
        let is_up = |state: &State| matches!(state, State::Ready | State::Running);
        let up = all.iter().filter(|status| is_up(&status.state)).count();
        self.notify.status(&format!("{up} of {} services are ready", all.len()));
        self.show_again = (self.up.show)(&all).map(|after| now + after);
    }
}

/// Waits until states are to be shown. Cancel safe.
async fn due(changes: &mut watch::Receiver<u64>, at: Instant, again: Option<Instant>) {
    let changed = async {
        // Whoever changes it lives as long as the loop.
        changes.changed().await.ok();
        changes.mark_changed();
        sleep_until(at).await;
    };
    match again {
        Some(again) => timeout_at(again, changed).await.unwrap_or(()),
        None => changed.await,
    }
}
