//! Owns the loop of `afresh up` and of `afresh keep`, which is the same with definitions that never change.
//! Driven by signals, the control API and the supervisor. Never decides what becomes of a service.

use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use afresh_core::audit::{Actor, Record};
use afresh_core::control::{ErrorAnswer, ServiceStatus, ShutdownAnswer, State};
use afresh_core::fleet::Transition;
use afresh_core::limits::{HURRY_GAP, OUTPUT_FLUSH_MAX, TRAIL_SYNC_WAIT, VIEW_INTERVAL};
use afresh_core::service::Input;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::configured_services::ConfiguredServices;
use super::{Reload, Reloaded};
use crate::control::{About, LoopRequest, Reloading};
use crate::hooks::HookSetup;
use crate::os::{SignalRequest, Signals};
use crate::runtime::{Runtime, RuntimeInput};
use crate::store::service_log::ServiceLogs;
use crate::supervise::Supervisor;
use crate::systemd_notify::Notify;

/// A loop over services, until all are down for good.
pub(crate) struct ServiceLoop {
    pub(crate) runtime: Runtime,
    /// Only with `afresh up`.
    configuration: Option<Configuration>,
    stopping_since: Option<Instant>,
    /// What or who has ended it.
    stopped_by: Actor,
}

/// The part of the loop that follows a configuration, and shows its services.
pub(crate) struct Configuration {
    pub(super) services: ConfiguredServices,
    pub(super) hooks: HookSetup,
    pub(super) reload: Reload,
    /// Without a terminal, SIGHUP means to read the configuration again.
    pub(super) has_terminal: bool,
    pub(super) notify: Notify,
    pub(super) view: StatusView,
}

/// The stream of states for the command that shows them.
pub(super) struct StatusView {
    about: About,
    statuses: Option<SyncSender<Vec<ServiceStatus>>>,
    changes: watch::Receiver<u64>,
    /// Changed states are sent from then on.
    send_at: Instant,
    /// Unchanged ones too, then: a wait that is shown gets shorter.
    send_again_at: Option<Instant>,
}

enum ConfigurationInput {
    WatchdogDue,
    ViewDue,
}

impl ServiceLoop {
    pub(crate) fn new(runtime: Runtime, configuration: Option<Configuration>) -> Self {
        let stopped_by = Actor::Afresh("all services have ended");
        Self { runtime, configuration, stopping_since: None, stopped_by }
    }

    /// Runs until the user wants it to end and all is down; without a configuration also until every
    /// service is at rest, and none was stopped by a client that may start it again.
    pub(crate) async fn drive(&mut self, mut output_closed: oneshot::Receiver<()>) {
        let mut has_reader = true;
        if let Some(configuration) = &mut self.configuration {
            self.runtime.supervise.log("all services are set up");
            configuration.notify.ready("all services are set up");
        }
        self.follow_configuration(ConfigurationInput::ViewDue);
        while !self.is_over() {
            if let Some(configuration) = &mut self.configuration {
                configuration.services.tidy(&mut self.runtime.supervise);
            }
            tokio::select! {
                input = self.runtime.wait() => self.react(input).await,
                input = next_of(&mut self.configuration) => self.follow_configuration(input),
                // As in `afresh keep … | head`: without us the command would have met the same end.
                _ = &mut output_closed, if has_reader => {
                    has_reader = false;
                    if self.stopping_since.is_none() {
                        let by = Actor::Afresh("closed output");
                        self.stop("the reader of the output is gone", by).await;
                    }
                }
            }
        }
        self.follow_configuration(ConfigurationInput::ViewDue);
        self.runtime.supervise.finish().await;
        self.runtime.supervise.close_hooks().await;
    }

    /// Ends all of it in order. Our readers are waited for as long as they take, as the command itself
    /// would; a stop makes it short.
    pub(crate) async fn close(
        self,
        mut end: Record,
        logs: Option<Arc<ServiceLogs>>,
        mut stdin: JoinSet<()>,
        written: Vec<oneshot::Receiver<()>>,
    ) {
        let Self { runtime, configuration, stopping_since, stopped_by } = self;
        end.props.push(("by", stopped_by.to_json()));
        let Runtime { supervise, control, mut signals } = runtime;
        supervise.recorder.note(end);
        control.close().await;
        let (recorder, lingering) = supervise.shutdown().await;
        stdin.shutdown().await;
        if let Some(logs) = &logs
            && !logs.flush().await
        {
            recorder.stderr.log("log: the disk did not take the last lines");
        }
        recorder.close(TRAIL_SYNC_WAIT);
        drop(configuration);
        let flushed = async {
            for mut pumps in lingering {
                while pumps.join_next().await.is_some() {}
            }
            if let Some(logs) = logs {
                logs.flush().await;
            }
            // Each resolves with the end of its thread.
            for thread in written {
                thread.await.ok();
            }
        };
        wait_for_readers(flushed, &mut signals, stopping_since.is_some()).await;
    }

    fn is_over(&self) -> bool {
        let Runtime { supervise, control, .. } = &self.runtime;
        let may_end = || self.configuration.is_none() && !control.holds(supervise);
        supervise.fleet.is_at_rest() && (self.stopping_since.is_some() || may_end())
    }

    fn follow_configuration(&mut self, input: ConfigurationInput) {
        let Some(Configuration { notify, view, .. }) = &mut self.configuration else { return };
        match input {
            ConfigurationInput::WatchdogDue => notify.alive(),
            ConfigurationInput::ViewDue => view.send(&self.runtime.supervise, notify),
        }
    }

    async fn react(&mut self, input: RuntimeInput) {
        match input {
            RuntimeInput::Supervise(wakeup) => self.runtime.supervise.react(wakeup).await,
            RuntimeInput::Control(ask) => self.answer(ask).await,
            RuntimeInput::Signal(signal) => self.follow_signal(signal).await,
        }
    }

    /// Acts on a signal. Only a user who presses Ctrl+C again, after a moment, is in a hurry: programs
    /// may send several signals for one stop.
    async fn follow_signal(&mut self, signal: SignalRequest) {
        let has_terminal = self.configuration.as_ref().is_none_or(|its| its.has_terminal);
        match (signal, self.stopping_since) {
            (SignalRequest::Stop("SIGHUP"), _) if !has_terminal => {
                drop(self.reload("SIGHUP", &Actor::Signal("SIGHUP")).await)
            }
            (SignalRequest::Restart(_), Some(_)) => {
                self.runtime.supervise.log(match self.configuration {
                    Some(_) => "nothing is begun any more: afresh is stopping",
                    None => "no restart: afresh is stopping",
                })
            }
            (SignalRequest::Restart(reason), None) => {
                let (reason, by) = (reason.to_owned(), Actor::Signal(reason));
                self.runtime.supervise.input(&Input::Restart { reason, by }).await;
            }
            (SignalRequest::Stop(name), None) => self.stop(name, Actor::Signal(name)).await,
            (SignalRequest::Interrupt, None) => {
                self.stop("interrupted", Actor::Signal("SIGINT")).await;
            }
            (SignalRequest::Interrupt, Some(since)) if since.elapsed() > HURRY_GAP => {
                self.runtime.supervise.hurry_up().await;
            }
            (SignalRequest::Interrupt | SignalRequest::Stop(_), Some(_)) => {}
        }
    }

    async fn stop(&mut self, why: &str, by: Actor) {
        self.stopping_since = Some(Instant::now());
        if let Some(configuration) = &self.configuration {
            configuration.notify.stopping(why);
        }
        self.runtime.supervise.log(&format!("{why}: stopping"));
        let all = self.runtime.supervise.fleet.ids();
        self.runtime.supervise.request(Transition::Shutdown, all, &by).await;
        self.stopped_by = by;
    }

    /// Answers a request of the control API.
    async fn answer(&mut self, ask: LoopRequest) {
        match ask {
            LoopRequest::Reload { reason, by, answer } if self.configuration.is_some() => {
                let done = self.reload(&reason, &by).await;
                // The client may have gone.
                answer.send(done).ok();
            }
            LoopRequest::Shutdown { reason, by, answer } if self.configuration.is_some() => {
                let supervise = &self.runtime.supervise;
                let ids = supervise.fleet.services();
                let up = ids.filter(|(_, service)| service.rest().is_none()).map(|(id, _)| id);
                let stopping = up.map(|id| supervise.services.name(id)).collect();
                if self.stopping_since.is_none() {
                    self.stop(&reason, by).await;
                }
                answer.send(Ok(ShutdownAnswer { stopping })).ok();
            }
            ask => self.runtime.answer(ask).await,
        }
    }

    /// Reads the configuration again; a bad one changes nothing.
    async fn reload(&mut self, why: &str, by: &Actor) -> Result<Reloading, ErrorAnswer> {
        let Some(configuration) = &mut self.configuration else {
            return Err(ErrorAnswer::new("there is no configuration"));
        };
        if self.stopping_since.is_some() {
            return Err(ErrorAnswer::new("nothing is begun any more: afresh is stopping"));
        }
        let supervise = &mut self.runtime.supervise;
        match (configuration.reload)() {
            Ok(Reloaded { services, hooks, notes }) => {
                notes.iter().for_each(|note| supervise.log(note));
                configuration.notify.reloading();
                supervise.log(&format!("{why}: reading the configuration again"));
                if hooks != configuration.hooks.definitions {
                    configuration.hooks.definitions = hooks;
                    supervise.start_hooks(configuration.hooks.clone());
                }
                let mut reloading = configuration.services.apply(supervise, services, by).await;
                reloading.answer.notes = notes;
                configuration.notify.ready("the configuration was read again");
                Ok(reloading)
            }
            Err(wrong) => {
                supervise.log(&format!("the configuration stays as it was:\n{wrong}"));
                Err(ErrorAnswer::new(format!("the configuration stays as it was\n{wrong}")))
            }
        }
    }
}

impl StatusView {
    pub(super) fn new(
        about: About,
        statuses: Option<SyncSender<Vec<ServiceStatus>>>,
        changes: watch::Receiver<u64>,
    ) -> Self {
        Self { about, statuses, changes, send_at: Instant::now(), send_again_at: None }
    }

    /// Sends the states. The receiver is not waited for: one that is behind gets them later.
    fn send(&mut self, supervise: &Supervisor, notify: &Notify) {
        self.changes.borrow_and_update();
        let now = Instant::now();
        self.send_at = now + VIEW_INTERVAL;
        let all = self.about.statuses(supervise);
        let is_up = |state: &State| matches!(state, State::Ready | State::Running);
        let up = all.iter().filter(|status| is_up(&status.state)).count();
        notify.status(&format!("{up} of {} services are ready", all.len()));
        let counts_down = |status: &ServiceStatus| {
            matches!(status.state, State::BackingOff { .. } | State::CrashLoop { .. })
        };
        let counts_down = all.iter().any(counts_down);
        let in_a_second = now + Duration::from_secs(1);
        self.send_again_at = counts_down.then_some(in_a_second);
        match self.statuses.as_ref().map(|statuses| statuses.try_send(all)) {
            None | Some(Ok(())) => {}
            Some(Err(TrySendError::Full(_))) => self.send_again_at = Some(in_a_second),
            Some(Err(TrySendError::Disconnected(_))) => self.statuses = None,
        }
        if self.statuses.is_none() {
            self.send_again_at = None;
        }
    }

    /// Waits until states are to be sent. Cancel safe.
    async fn due(&mut self) {
        let changed = async {
            // The sender lives as long as the loop.
            self.changes.changed().await.ok();
            self.changes.mark_changed();
            tokio::time::sleep_until(self.send_at).await;
        };
        match self.send_again_at {
            Some(again) => timeout_at(again, changed).await.unwrap_or(()),
            None => changed.await,
        }
    }
}

/// Waits for what only a loop with a configuration has. Cancel safe.
async fn next_of(configuration: &mut Option<Configuration>) -> ConfigurationInput {
    let Some(Configuration { notify, view, .. }) = configuration else {
        return std::future::pending().await;
    };
    tokio::select! {
        () = notify.watchdog_due() => ConfigurationInput::WatchdogDue,
        () = view.due() => ConfigurationInput::ViewDue,
    }
}

/// Waits until all output is written; a stop, or a signal that wants one, bounds it.
async fn wait_for_readers(flushed: impl Future<Output = ()>, signals: &mut Signals, stopped: bool) {
    let mut flushed = pin!(flushed);
    let mut waits = !stopped;
    while waits {
        tokio::select! {
            () = &mut flushed => return,
            // A restart is no stop, and there is nothing left to restart.
            asked = signals.next() => waits = matches!(asked, SignalRequest::Restart(_)),
        }
    }
    timeout(OUTPUT_FLUSH_MAX, flushed).await.ok();
}
