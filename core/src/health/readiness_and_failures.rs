//! Owns the health of one service: when it is probed, and what follows from the results.
//!
//! ```text
//!             first good answer                 a failure
//!   starting ──────────────────▶ healthy ───────────────────▶ degraded ──▶ … ──▶ unhealthy
//!      │                            ▲       a good answer         │   failures_max in a row
//!      │ ready_timeout              └─────────────────────────────┘
//!      └──▶ unhealthy
//! ```
//!
//! To be ready and to be alive are two things: before the first good answer a failure only means "not
//! yet". And to be busy is not to be dead: a service that does not answer while its processes work, or
//! that says itself that it is busy, may fail twice as often. One that is stopped does no work, and is
//! found in the plain time.
//!
//! Driven by the daemon's loop, which probes. Never probes and reads no clock. One probe at a time, and the
//! next is a while after the end of the last.

use std::time::Duration;

use super::{Event, HealthCheck, HealthState, HealthStatus};
use crate::duration::show_duration;
use crate::id::Generation;
use crate::limits::{
    HEALTH_LATE_MAX, HEALTH_NOT_READY_NOTICE, HEALTH_OVERTIME, HEALTH_SAMPLE_WAIT,
    WEDGE_BUSY_PERCENT,
};
use crate::time::{Stamp, Time};

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// An instance runs, and is the one to be asked from now on.
    Started(Generation),
    /// An instance is gone, or on its way.
    Gone(Generation),
    /// A probe has ended.
    Probed {
        /// Of which instance.
        generation: Generation,
        /// Which probe.
        number: u64,
        /// What came of it.
        verdict: Verdict,
    },
    /// The answer to [`Effect::Sample`]: all the processor time that the instance's processes have
    /// used so far, where the system tells.
    Worked {
        /// Which instance.
        generation: Generation,
        /// How much.
        time: Option<Duration>,
    },
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
}

/// What came of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A good answer, after this time.
    Well(Duration),
    /// An answer, or a refusal, that says that it is not well, and how so.
    Ill(String),
    /// No answer in time, or one that tells nothing: it may be busy.
    Silent(String),
    /// It says itself, in its words, that it has too much to do.
    Busy(String),
}

/// Something that has to be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask; answer with `Probed`. A probe that still runs is given up for it.
    Probe {
        /// Which instance.
        generation: Generation,
        /// The number that the answer must carry.
        number: u64,
        /// How long it may take.
        timeout: Duration,
    },
    /// Find out how much processor time the instance's processes have used; answer with `Worked`.
    Sample(Generation),
    /// It has passed its first check.
    Ready(Generation),
    /// It counts as crashed.
    Unhealthy {
        /// Which instance.
        generation: Generation,
        /// In words, for the trail.
        why: String,
    },
    /// Record and log.
    Tell(Event),
}

/// The machine of one service.
#[derive(Debug)]
pub struct Health {
    check: HealthCheck,
    /// The instance that is asked.
    watched: Option<Watched>,
    /// Of the last probe, over all instances.
    number: u64,
    last_error: Option<String>,
    latency: Option<Duration>,
    checked_at: Option<Time>,
}

#[derive(Debug)]
struct Watched {
    generation: Generation,
    since: Time,
    ready: bool,
    /// When it has to be ready; none is any time.
    ready_before: Option<Time>,
    /// Probes without an answer before it was ready.
    silences: u32,
    /// After this time it is said that it is not ready yet.
    notice_after: Duration,
    /// In a row, since it was ready.
    failures: u32,
    /// When the first of them was.
    failing_since: Time,
    /// The last figure of its processor time, and when it came.
    sample: Option<(Time, Duration)>,
    step: ProbeStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeStep {
    /// The next probe is due then.
    Resting { until: Time },
    /// A probe runs. The daemon bounds it; should that fail, it counts as failed then.
    Probing { number: u64, until: Time },
    /// It has failed, and it is being found out whether the instance works.
    Judging { until: Time },
    /// It was said to be unhealthy: its end is near.
    Told,
}

impl Health {
    /// A service that does not run.
    pub fn new(check: HealthCheck) -> Self {
        Self { check, watched: None, number: 0, last_error: None, latency: None, checked_at: None }
    }

    /// Records one input, and returns what has to be done now. Late word of an instance that is gone,
    /// or of a probe that was given up, changes nothing.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut all = Vec::new();
        let effects = &mut all;
        self.forgive_sleep(now);
        match input {
            Input::Started(generation) => self.started(now, generation),
            Input::Gone(generation) => {
                self.watched.take_if(|watched| watched.generation == generation);
            }
            Input::Probed { generation, number, verdict } => {
                let is_awaited = |watched: &Watched| {
                    let asked =
                        matches!(watched.step, ProbeStep::Probing { number: n, .. } if n == number);
                    watched.generation == generation && asked
                };
                if self.watched.as_ref().is_some_and(is_awaited) {
                    self.probed(now, verdict, effects);
                }
            }
            Input::Worked { generation, time } => self.worked(now, generation, time, effects),
            Input::Wakeup => {}
        }
        // Each step leads to a state that waits for something else, so this ends.
        while self.next_wakeup().is_some_and(|at| at <= now) {
            self.step(now, effects);
        }
        all
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        let watched = self.watched.as_ref()?;
        let step = match watched.step {
            ProbeStep::Resting { until }
            | ProbeStep::Probing { until, .. }
            | ProbeStep::Judging { until } => until,
            ProbeStep::Told => return None,
        };
        Some(watched.ready_before.map_or(step, |before| before.min(step)))
    }

    /// How well it is. `stamp` is the wall clock's `now`.
    pub fn status(&self, now: Time, stamp: Stamp) -> HealthStatus {
        let state = match &self.watched {
            None => HealthState::Unknown,
            Some(Watched { step: ProbeStep::Told, .. }) => HealthState::Unhealthy,
            Some(Watched { ready: false, .. }) => HealthState::Starting,
            Some(Watched { failures: 0, .. }) => HealthState::Healthy,
            Some(_) => HealthState::Degraded,
        };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        HealthStatus {
            state,
            failures: self.watched.as_ref().map_or(0, |watched| watched.failures),
            last_error: self.last_error.clone(),
            latency_ms: self.latency.map(millis),
            checked_at: self.checked_at.map(|at| stamp.earlier_by(now.since(at)).to_string()),
        }
    }

    fn started(&mut self, now: Time, generation: Generation) {
        if self.watched.as_ref().is_some_and(|watched| watched.generation == generation) {
            return;
        }
        (self.last_error, self.latency, self.checked_at) = (None, None, None);
        self.watched = Some(Watched {
            generation,
            since: now,
            ready: false,
            ready_before: self.check.ready_timeout.map(|timeout| now + timeout),
            silences: 0,
            notice_after: HEALTH_NOT_READY_NOTICE,
            failures: 0,
            failing_since: now,
            sample: None,
            step: ProbeStep::Resting { until: now },
        });
    }

    /// We ourselves were stopped, and so was the service perhaps: that time does not count.
    fn forgive_sleep(&mut self, now: Time) {
        let late = self.next_wakeup().map_or(Duration::ZERO, |at| now.since(at));
        if let Some(watched) = self.watched.as_mut().filter(|_| late > HEALTH_LATE_MAX) {
            watched.ready_before = watched.ready_before.map(|before| before + late);
            if let ProbeStep::Probing { until, .. } | ProbeStep::Judging { until } =
                &mut watched.step
            {
                *until = *until + late;
            }
        }
    }

    /// Does what is due.
    fn step(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(watched) = &mut self.watched else { return };
        let generation = watched.generation;
        if let Some(before) = watched.ready_before.filter(|before| *before <= now) {
            let waited = show_duration(before.since(watched.since));
            let last = match &self.last_error {
                Some(error) => format!(", the last check: {error}"),
                None => String::new(),
            };
            return self.tell_unhealthy(format!("not ready within {waited}{last}"), effects);
        }
        match watched.step {
            ProbeStep::Resting { .. } => {
                self.number += 1;
                let silences = (!watched.ready).then_some(watched.silences);
                let (number, timeout) = (self.number, self.check.patience(silences));
                watched.step =
                    ProbeStep::Probing { number, until: now + timeout + HEALTH_OVERTIME };
                effects.push(Effect::Probe { generation, number, timeout });
            }
            ProbeStep::Probing { .. } => {
                let why = "the check did not end".to_owned();
                self.probed(now, Verdict::Silent(why), effects);
            }
            ProbeStep::Judging { .. } => self.judge(now, false, effects),
            ProbeStep::Told => {}
        }
    }

    fn probed(&mut self, now: Time, verdict: Verdict, effects: &mut Vec<Effect>) {
        let Some(watched) = &mut self.watched else { return };
        self.checked_at = Some(now);
        let (why, is_silent, is_busy) = match verdict {
            Verdict::Well(latency) => {
                self.latency = Some(latency);
                return self.well(now, effects);
            }
            Verdict::Ill(why) => (why, false, false),
            Verdict::Silent(why) => (why, true, false),
            Verdict::Busy(why) => (why, false, true),
        };
        self.last_error = Some(why.clone());
        if !watched.ready {
            watched.silences = watched.silences.saturating_add(is_silent.into());
            watched.step = ProbeStep::Resting { until: now + self.check.ready_interval };
            let after = now.since(watched.since);
            if after >= watched.notice_after {
                watched.notice_after = after.saturating_mul(2);
                effects.push(Effect::Tell(Event::NotReady { after, why }));
            }
            return;
        }
        watched.failures = watched.failures.saturating_add(1);
        let (failures, failures_max) = (watched.failures, self.check.failures_max.max(1));
        let event = Event::CheckFailed { failures, failures_max, why: why.clone() };
        effects.push(Effect::Tell(event));
        if failures == 1 {
            watched.failing_since = now;
            effects.push(Effect::Tell(Event::Degraded { why }));
        }
        if is_silent {
            watched.step = ProbeStep::Judging { until: now + HEALTH_SAMPLE_WAIT };
            effects.push(Effect::Sample(watched.generation));
        } else {
            self.judge(now, is_busy, effects);
        }
    }

    fn well(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let Some(watched) = &mut self.watched else { return };
        let event = match (watched.ready, watched.failures) {
            (false, _) => Some(Event::Ready { after: now.since(watched.since) }),
            (true, 0) => None,
            (true, failures) => {
                let after = now.since(watched.failing_since);
                Some(Event::WellAgain { failures, after })
            }
        };
        effects.extend(event.map(Effect::Tell));
        if !watched.ready {
            effects.push(Effect::Ready(watched.generation));
        }
        (watched.ready, watched.ready_before) = (true, None);
        (watched.failures, watched.sample) = (0, None);
        watched.step = ProbeStep::Resting { until: now + self.check.interval };
        self.last_error = None;
    }

    fn worked(
        &mut self,
        now: Time,
        generation: Generation,
        time: Option<Duration>,
        effects: &mut Vec<Effect>,
    ) {
        let is_judged = |watched: &&mut Watched| {
            watched.generation == generation && matches!(watched.step, ProbeStep::Judging { .. })
        };
        let Some(watched) = self.watched.as_mut().filter(is_judged) else { return };
        let sample = time.map(|time| (now, time));
        let before = std::mem::replace(&mut watched.sample, sample);
        let is_busy = before.zip(sample).is_some_and(|(before, after)| works(before, after));
        self.judge(now, is_busy, effects);
    }

    /// A check has failed: whether that was one too many. One that is busy may fail twice as often.
    fn judge(&mut self, now: Time, is_busy: bool, effects: &mut Vec<Effect>) {
        let Some(watched) = &mut self.watched else { return };
        let failures_max = self.check.failures_max.max(1);
        let enough = if is_busy { failures_max.saturating_mul(2) } else { failures_max };
        if watched.failures < enough {
            watched.step = ProbeStep::Resting { until: now + self.check.interval };
            return;
        }
        let last = self.last_error.clone().unwrap_or_default();
        let why = match watched.failures {
            1 => last,
            failures => format!("{failures} times in a row, the last time: {last}"),
        };
        self.tell_unhealthy(why, effects);
    }

    fn tell_unhealthy(&mut self, why: String, effects: &mut Vec<Effect>) {
        let Some(watched) = &mut self.watched else { return };
        watched.step = ProbeStep::Told;
        effects.push(Effect::Unhealthy { generation: watched.generation, why });
    }
}

/// Whether processes worked between two figures of their processor time. A smaller one comes from a
/// process that has ended: something happens.
fn works((since, before): (Time, Duration), (now, after): (Time, Duration)) -> bool {
    let Some(used) = after.checked_sub(before) else { return true };
    used * 100 > now.since(since) * WEDGE_BUSY_PERCENT
}
