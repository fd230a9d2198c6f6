//! Decides whether a server is silent (it owes an answer, and does not answer a probe either), and whether it is wedged:
//! it does no work either, for so long that it has to be replaced.
//!
//! ```text
//!            a call is overdue, all is silent             patience is over
//!   Calm ──────────────────────────────────▶ Probing ──────────────────────▶ Wedged
//!    ▲                                        │   ▲ │
//!    └──── any line, no call, a question ─────┘   └─┘ the processor worked for it: wait again
//! ```
//!
//! The patience is short where the client has given up all of its calls, since nobody is disappointed by a restart then,
//! and `wedge_timeout` while one is waited for.
//!
//! A probe alone decides nothing: many servers answer calls and no `ping`. One that was seen doing
//! so is suspected only after twice the time, and only if it does not work at all. Where it cannot be
//! said how much a server works, it never counts as wedged.
//!
//! [`WedgeWatch`] gathers the inputs, so that a message costs one flag. Sends nothing and reads no clock: the
//! conversation's driver does, one machine for each server.

use std::time::Duration;

use super::envelope::Id;
use super::replay::Era;
use crate::duration::show_duration;
use crate::limits::{
    WEDGE_ASK_AFTER, WEDGE_BUSY_PERCENT, WEDGE_GIVEN_UP_WAIT, WEDGE_LOOK_INTERVAL_MAX,
    WEDGE_LOOK_INTERVAL_MIN, WEDGE_PROBE_WAIT,
};
use crate::time::Time;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A new instance serves. What is known of the server's manners stays.
    Started,
    /// What is owed has changed, or whether the server waits for its client.
    Calls(Calls),
    /// The server answered a request of the client's.
    CallAnswered,
    /// The server said something else: progress, a log message, a request.
    Heard,
    /// The server answered our probe, be it with an error.
    ProbeAnswered,
    /// The answer to [`Effect::Sample`]: all the processor time that the server's processes have used
    /// so far, where the system tells.
    CpuTime(Option<Duration>),
    /// The time of `next_wakeup` has come.
    Wakeup,
}

/// What has to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Send the server a request that every server can answer, by its method.
    SendProbe(&'static str),
    /// Find out how much processor time the server's processes have used.
    Sample,
    /// The server has said nothing for so long, and did not answer a probe.
    Silent(Duration),
    /// It says something again.
    Heard,
    /// The server is wedged, and has to be replaced.
    Wedged {
        /// In words, for the trail.
        why: String,
    },
}

/// The method of the request that finds out whether a server lives. None before the era is known: then there has been
/// no call that could be overdue.
const fn probe_of(era: Era) -> Option<&'static str> {
    match era {
        Era::Unknown => None,
        Era::Legacy => Some("ping"),
        // This era has no `ping`.
        Era::Modern => Some("server/discover"),
    }
}

/// The machine of one server.
#[derive(Debug, Default)]
pub(super) struct Wedge {
    /// None is never.
    timeout: Option<Duration>,
    /// How long it may be silent with a call unanswered before it is probed.
    ask_after: Duration,
    calls: Calls,
    /// The last sign of life, or the instance's start.
    alive_at: Time,
    suspicion: Suspicion,
    /// It was told that the server is silent.
    is_silent: bool,
    /// The last probe was not answered. `call_answered` is when a call was, all the same.
    unanswered: Option<Unanswered>,
}

/// The requests that are owed, from both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Requests that the instance has and has not answered, without those that stay open on
    /// purpose, such as `subscriptions/listen`.
    pub(super) in_flight: usize,
    /// When the oldest of all that it has not answered was given to it.
    pub(super) oldest_since: Time,
    /// When the client last gave up one that it has not answered.
    pub(super) given_up_at: Option<Time>,
    /// Requests of the server's own that the client has not answered: a person may be thinking.
    pub(super) questions: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    call_answered: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Suspicion {
    #[default]
    Calm,
    /// A probe was sent.
    Probing {
        probe: &'static str,
        sent_at: Time,
        /// Since when each figure has shown that it does no work.
        idle_since: Option<Time>,
        /// When to compare the processor time with `sample`.
        check_at: Time,
        /// The first figure, and when it came.
        sample: Option<(Time, Duration)>,
        /// The figure to compare with was asked for.
        asked: bool,
    },
    /// It was told; the next instance begins anew.
    Told,
}

impl Wedge {
    /// A server of which nothing is known. A timeout of none never suspects.
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        let ask_after = timeout.map_or(WEDGE_ASK_AFTER, |timeout| timeout.min(WEDGE_ASK_AFTER));
        Self { timeout, ask_after, ..Self::default() }
    }

    /// Whether it does not answer a probe.
    pub(super) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Whether it does not answer a probe, and was last seen doing no work. One that works may still answer.
    pub(super) const fn is_idle(&self) -> bool {
        self.is_silent && matches!(self.suspicion, Suspicion::Probing { idle_since: Some(_), .. })
    }

    /// Records one input, and returns what has to be done now. `era` is the conversation's.
    pub(super) fn handle(&mut self, now: Time, era: Era, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Started => {
                self.alive_at = self.alive_at.max(now);
                self.calls = Calls::default();
                self.is_silent = false;
                self.suspicion = Suspicion::Calm;
                // The probe of the old instance is void; only what it has shown stays.
                self.unanswered = self.unanswered.filter(|_| self.ignores_probes(now));
            }
            Input::Calls(calls) => {
                self.calls = calls;
                if !self.may_suspect() {
                    self.calm(&mut effects);
                }
            }
            Input::CallAnswered => {
                self.alive(now, &mut effects);
                if let Some(Unanswered { call_answered }) = &mut self.unanswered {
                    call_answered.get_or_insert(now);
                }
            }
            Input::Heard => self.alive(now, &mut effects),
            Input::ProbeAnswered => {
                self.alive(now, &mut effects);
                self.unanswered = None;
            }
            Input::CpuTime(figure) => self.compare(now, figure, &mut effects),
            Input::Wakeup => self.wake(now, era, &mut effects),
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub(super) fn next_wakeup(&self, era: Era) -> Option<Time> {
        probe_of(era)?;
        match self.suspicion {
            Suspicion::Calm => self.ask_at(),
            Suspicion::Probing { asked, check_at, .. } => {
                self.silent_at().into_iter().chain((!asked).then_some(check_at)).min()
            }
            Suspicion::Told => None,
        }
    }

    fn alive(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.alive_at = self.alive_at.max(now);
        self.calm(effects);
    }

    fn calm(&mut self, effects: &mut Vec<Effect>) {
        if !matches!(self.suspicion, Suspicion::Told) {
            self.suspicion = Suspicion::Calm;
            effects.extend(std::mem::take(&mut self.is_silent).then_some(Effect::Heard));
        }
    }

    /// A server that has asked its client something waits for it, and not we for the server.
    fn may_suspect(&self) -> bool {
        (self.calls.in_flight > 0 || self.is_given_up()) && self.calls.questions == 0
    }

    /// Whether the client gave up a call, and the server has been silent since. It may leave that unanswered: any sign of
    /// life is enough.
    pub(super) fn is_given_up(&self) -> bool {
        self.calls.given_up_at.is_some_and(|at| at >= self.alive_at)
    }

    fn silent_since(&self) -> Time {
        self.alive_at.max(self.calls.oldest_since)
    }

    /// When it is probed.
    fn ask_at(&self) -> Option<Time> {
        self.timeout.filter(|_| self.may_suspect())?;
        let since = self.silent_since();
        Some(since + self.ask_after * self.times(since + self.ask_after))
    }

    /// When it counts as silent.
    fn silent_at(&self) -> Option<Time> {
        let Suspicion::Probing { sent_at, .. } = self.suspicion else { return None };
        (!self.is_silent).then_some(sent_at + self.probe_wait() * 2 / 3)
    }

    /// From when on it is wedged, if it does no work.
    fn wedged_at(&self, now: Time) -> Option<Time> {
        let timeout = self.timeout?;
        let Suspicion::Probing { sent_at, idle_since, .. } = self.suspicion else { return None };
        let times = self.times(now);
        match self.calls.in_flight {
            0 => {
                let wait = timeout.min(WEDGE_GIVEN_UP_WAIT) * times;
                Some(sent_at.max(idle_since.unwrap_or(now)) + wait)
            }
            _ => Some(self.silent_since() + timeout * times + self.patience(now)),
        }
    }

    /// Whether the server was seen answering a call and not the probe that was sent before.
    ///
    /// One that does one thing after the other answers the probe right after the call: it gets the
    /// time for it.
    fn ignores_probes(&self, now: Time) -> bool {
        let answered = self.unanswered.and_then(|unanswered| unanswered.call_answered);
        answered.is_some_and(|at| now.since(at) >= self.probe_wait())
    }

    /// Who does not answer probes gets everything twice as long.
    fn times(&self, now: Time) -> u32 {
        if self.ignores_probes(now) { 2 } else { 1 }
    }

    fn patience(&self, now: Time) -> Duration {
        self.probe_wait() * self.times(now)
    }

    /// Who wants to know soon does not wait long for the probe either.
    fn probe_wait(&self) -> Duration {
        self.timeout.map_or(WEDGE_PROBE_WAIT, |timeout| timeout.min(WEDGE_PROBE_WAIT))
    }

    fn wake(&mut self, now: Time, era: Era, effects: &mut Vec<Effect>) {
        let patience = self.patience(now);
        if self.silent_at().is_some_and(|at| at <= now) {
            self.is_silent = true;
            effects.push(Effect::Silent(now.since(self.silent_since())));
        }
        match &mut self.suspicion {
            Suspicion::Calm => {
                let is_due = self.ask_at().is_some_and(|at| at <= now);
                let Some(probe) = probe_of(era).filter(|_| is_due) else { return };
                self.suspicion = Suspicion::Probing {
                    probe,
                    sent_at: now,
                    idle_since: None,
                    check_at: now + patience,
                    sample: None,
                    asked: false,
                };
                // What was learned from the probe before stays, until this one is answered.
                self.unanswered.get_or_insert_default();
                effects.extend([Effect::SendProbe(probe), Effect::Sample]);
            }
            Suspicion::Probing { check_at, sample, asked, idle_since, .. } if *check_at <= now => {
                // We ourselves were asleep, and so was the server perhaps: that time does not count.
                if now.since(*check_at) > patience {
                    (*check_at, *sample, *idle_since) = (now + patience, None, None);
                } else {
                    *asked = true;
                }
                effects.push(Effect::Sample);
            }
            Suspicion::Probing { .. } | Suspicion::Told => {}
        }
    }

    fn compare(&mut self, now: Time, figure: Option<Duration>, effects: &mut Vec<Effect>) {
        let patience = self.patience(now);
        let ignores_probes = self.ignores_probes(now);
        let Suspicion::Probing { probe, sample, asked, idle_since, .. } = &mut self.suspicion
        else {
            return;
        };
        let probe = *probe;
        match (figure, *sample) {
            (Some(_), Some(_)) if !*asked => return,
            (Some(figure), Some((since, before)))
                if !works(before, figure, now.since(since), ignores_probes) =>
            {
                idle_since.get_or_insert(since);
            }
            // Nothing shows that it does not work: it stays as it is, and is looked at again.
            _ => *idle_since = None,
        }
        (*sample, *asked) = (figure.map(|figure| (now, figure)), false);
        let is_idle = idle_since.is_some();
        let wedged_at = self.wedged_at(now);
        if is_idle && wedged_at.is_some_and(|at| at <= now) {
            let why = format!(
                "a call is unanswered for {}, the server has been silent for {}, did not answer \
                 `{probe}`, and its processes do no work",
                show_duration(now.since(self.calls.oldest_since)),
                show_duration(now.since(self.silent_since())),
            );
            self.suspicion = Suspicion::Told;
            return effects.push(Effect::Wedged { why });
        }
        if let Suspicion::Probing { check_at, .. } = &mut self.suspicion {
            // The last look is not before the patience is over, and not long after.
            let is_last = |at: &Time| *at > now + patience && *at < now + patience * 2;
            *check_at = wedged_at.filter(is_last).unwrap_or(now + patience);
        }
    }
}

/// Whether a server worked between two figures of its processor time. A smaller one comes from a
/// process that has ended: something happens.
fn works(before: Duration, after: Duration, within: Duration, any_counts: bool) -> bool {
    let Some(used) = after.checked_sub(before) else { return true };
    if any_counts { !used.is_zero() } else { used * 100 > within * WEDGE_BUSY_PERCENT }
}

/// The machine that decides, and its inputs for the next check.
#[derive(Debug, Default)]
pub(super) struct WedgeWatch {
    pub(super) machine: Wedge,
    /// None is not until the next request.
    pub(super) check_at: Option<Time>,
    /// When the server last sent something, if that was after the last check.
    pub(super) sent_at: Option<Time>,
    /// When it last answered a call, the same way.
    pub(super) answered_at: Option<Time>,
    /// Our request that probes it.
    pub(super) probe: Option<Id>,
}

impl WedgeWatch {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        Self { machine: Wedge::new(timeout), ..Self::default() }
    }

    /// A request was given to the server: from now on it is checked.
    pub(super) fn watch(&mut self, now: Time) {
        if let (None, Some(timeout)) = (self.check_at, self.machine.timeout) {
            let interval = (timeout / 10).clamp(WEDGE_LOOK_INTERVAL_MIN, WEDGE_LOOK_INTERVAL_MAX);
            self.check_at = Some(now + interval);
        }
    }

    pub(super) fn next_wakeup(&self, era: Era) -> Option<Time> {
        self.check_at?;
        self.machine.next_wakeup(era).into_iter().chain(self.check_at).min()
    }

    /// What the server has done since the last check, and when.
    pub(super) fn take_signs(&mut self) -> impl Iterator<Item = (Time, Input)> + use<> {
        let answered = self.answered_at.take().map(|at| (at, Input::CallAnswered));
        let sent = self.sent_at.take().map(|at| (at, Input::Heard));
        answered.into_iter().chain(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);
    const WEDGED: &str = "wedged";

    fn at(seconds: u64) -> Time {
        Time::after_start(Duration::from_secs(seconds))
    }

    /// One step of a history: the second, the input, and what has to be done by it.
    type Step = (u64, Input, &'static [&'static str]);

    fn call(since: u64) -> Input {
        Input::Calls(Calls { in_flight: 1, oldest_since: at(since), ..Calls::default() })
    }

    /// The client has given up the call.
    fn given_up(since: u64, given_up_at: u64) -> Input {
        let (oldest_since, given_up_at) = (at(since), Some(at(given_up_at)));
        Input::Calls(Calls { oldest_since, given_up_at, ..Calls::default() })
    }

    fn cpu(millis: u64) -> Input {
        Input::CpuTime(Some(Duration::from_millis(millis)))
    }

    fn play(wedge: &mut Wedge, era: Era, steps: &[Step]) {
        for (index, (second, input, wanted)) in steps.iter().enumerate() {
            let effects = wedge.handle(at(*second), era, *input);
            let found: Vec<&str> = effects
                .iter()
                .map(|effect| match effect {
                    Effect::SendProbe(probe) => probe,
                    Effect::Sample => "sample",
                    Effect::Silent(_) => "silent",
                    Effect::Heard => "heard",
                    Effect::Wedged { .. } => WEDGED,
                })
                .collect();
            assert_eq!(found, *wanted, "step {index}: {input:?} at {second}");
        }
    }

    /// One that is probed only when it could be wedged.
    fn late() -> Wedge {
        Wedge { ask_after: TIMEOUT, ..Wedge::new(Some(TIMEOUT)) }
    }

    fn history(steps: &[Step]) -> Wedge {
        let mut wedge = late();
        play(&mut wedge, Era::Legacy, steps);
        wedge
    }

    const ASKED: &[&str] = &["ping", "sample"];
    const NONE: &[&str] = &[];
    const SAMPLE: &[&str] = &["sample"];
    const SILENT: &[&str] = &["silent", "sample"];

    #[test]
    fn a_stopped_server_is_wedged() {
        let wedge = history(&[
            (0, Input::Started, NONE),
            (10, call(10), NONE),
            (309, Input::Wakeup, NONE),
            (310, Input::Wakeup, ASKED),
            (310, cpu(5_000), NONE),
            (330, Input::Wakeup, &["silent"]),
            (339, Input::Wakeup, NONE),
            (340, Input::Wakeup, SAMPLE),
            (340, cpu(5_200), &[WEDGED]),
            // It is said once.
            (700, Input::Wakeup, NONE),
            (700, cpu(5_200), NONE),
        ]);
        assert_eq!(wedge.next_wakeup(Era::Legacy), None);
    }

    #[test]
    fn what_is_said_names_all_reasons() {
        let mut wedge = history(&[
            (10, call(10), NONE),
            (310, Input::Wakeup, ASKED),
            (310, cpu(0), NONE),
            (340, Input::Wakeup, SILENT),
        ]);
        let effects = wedge.handle(at(340), Era::Legacy, cpu(0));
        let why = "a call is unanswered for 5 m 30 s, the server has been silent for 5 m 30 s, did \
                   not answer `ping`, and its processes do no work";
        assert_eq!(effects, [Effect::Wedged { why: why.to_owned() }]);
    }

    #[test]
    fn a_busy_server_is_waited_for() {
        history(&[
            (0, call(0), NONE),
            (300, Input::Wakeup, ASKED),
            (300, cpu(1_000), NONE),
            (330, Input::Wakeup, SILENT),
            // A little more than 1 % of 30 s.
            (330, cpu(1_301), NONE),
            (360, Input::Wakeup, SAMPLE),
            // A process of it has ended.
            (360, cpu(200), NONE),
            (390, Input::Wakeup, SAMPLE),
            (390, cpu(500), &[WEDGED]),
        ]);
    }

    #[test]
    fn signs_of_life_end_the_suspicion() {
        for life in [Input::Heard, Input::ProbeAnswered, Input::CallAnswered] {
            let wedge = history(&[
                (0, call(0), NONE),
                (300, Input::Wakeup, ASKED),
                (300, cpu(0), NONE),
                (329, life, NONE),
                (330, Input::Wakeup, NONE),
                (330, cpu(0), NONE),
            ]);
            assert_eq!(wedge.next_wakeup(Era::Legacy), wedge.ask_at(), "{life:?}");
            assert!(wedge.ask_at().is_some_and(|asked| asked >= at(629)), "{life:?}");
        }
    }

    #[test]
    fn without_a_call_or_with_a_question_nobody_is_suspected() {
        let question = Input::Calls(Calls { in_flight: 1, questions: 1, ..Calls::default() });
        for input in [question, Input::Calls(Calls::default())] {
            let wedge = history(&[(0, input, NONE), (5_000, Input::Wakeup, NONE)]);
            assert_eq!(wedge.next_wakeup(Era::Legacy), None);
            history(&[
                (0, call(0), NONE),
                (300, Input::Wakeup, ASKED),
                (300, cpu(0), NONE),
                (310, input, NONE),
                (330, Input::Wakeup, NONE),
                (330, cpu(0), NONE),
            ]);
        }
        // Nor where it is turned off, or the era is not known.
        let mut off = Wedge::new(None);
        play(&mut off, Era::Legacy, &[(0, call(0), NONE), (9_999, Input::Wakeup, NONE)]);
        let mut early = Wedge::new(Some(TIMEOUT));
        play(&mut early, Era::Unknown, &[(0, call(0), NONE), (9_999, Input::Wakeup, NONE)]);
        assert_eq!((off.next_wakeup(Era::Legacy), early.next_wakeup(Era::Unknown)), (None, None));
    }

    #[test]
    fn the_modern_era_has_its_own_probe() {
        let mut wedge = late();
        let asked: &[&str] = &["server/discover", "sample"];
        play(&mut wedge, Era::Modern, &[(0, call(0), NONE), (300, Input::Wakeup, asked)]);
    }

    #[test]
    fn where_the_system_tells_nothing_nobody_is_wedged() {
        let unknown = Input::CpuTime(None);
        history(&[
            (0, call(0), NONE),
            (300, Input::Wakeup, ASKED),
            (300, unknown, NONE),
            (330, Input::Wakeup, SILENT),
            (330, unknown, NONE),
            (360, Input::Wakeup, SAMPLE),
            (360, unknown, NONE),
        ]);
    }

    #[test]
    fn time_in_which_we_slept_does_not_count() {
        history(&[
            (0, call(0), NONE),
            (300, Input::Wakeup, ASKED),
            (300, cpu(0), NONE),
            (4_000, Input::Wakeup, SILENT),
            (4_000, cpu(0), NONE),
            (4_030, Input::Wakeup, SAMPLE),
            (4_030, cpu(0), &[WEDGED]),
        ]);
    }

    #[test]
    fn who_answers_calls_and_no_probes_gets_twice_the_time() {
        let learn: &[Step] = &[
            (0, call(0), NONE),
            (300, Input::Wakeup, ASKED),
            (300, cpu(0), NONE),
            (320, Input::CallAnswered, NONE),
            (320, call(320), NONE),
            (620, Input::Wakeup, NONE),
            (919, Input::Wakeup, NONE),
            (920, Input::Wakeup, ASKED),
            (920, cpu(0), NONE),
            (950, Input::Wakeup, &["silent"]),
            (980, Input::Wakeup, SAMPLE),
        ];
        // The least work counts.
        let mut wedge = history(learn);
        play(&mut wedge, Era::Legacy, &[(980, cpu(10), NONE)]);
        // It is not forgotten with the instance.
        play(
            &mut wedge,
            Era::Legacy,
            &[
                (1_000, Input::Started, NONE),
                (1_000, call(1_000), NONE),
                (1_599, Input::Wakeup, NONE),
            ],
        );
        play(&mut history(learn), Era::Legacy, &[(980, cpu(0), &[WEDGED])]);
        // An answer, however late, shows that it was only slow.
        let mut wedge = history(&learn[..5]);
        play(
            &mut wedge,
            Era::Legacy,
            &[
                (325, Input::ProbeAnswered, NONE),
                (325, call(320), NONE),
                (625, Input::Wakeup, ASKED),
            ],
        );
    }

    /// Small numbers out of a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % bound
        }
    }

    #[test]
    fn one_that_does_not_answer_is_silent_early_and_wedged_late() {
        let mut wedge = Wedge::new(Some(TIMEOUT));
        let begin: &[Step] = &[
            (0, Input::Started, NONE),
            (10, call(10), NONE),
            (39, Input::Wakeup, NONE),
            (40, Input::Wakeup, ASKED),
            (40, cpu(0), NONE),
            (59, Input::Wakeup, NONE),
            (60, Input::Wakeup, &["silent"]),
        ];
        play(&mut wedge, Era::Legacy, begin);
        assert!(wedge.is_silent());
        for second in (70..340).step_by(30) {
            let steps: &[Step] = &[(second, Input::Wakeup, SAMPLE), (second, cpu(0), NONE)];
            play(&mut wedge, Era::Legacy, steps);
        }
        play(&mut wedge, Era::Legacy, &[(340, Input::Wakeup, SAMPLE), (340, cpu(0), &[WEDGED])]);
        // It was only slow.
        let mut slow = Wedge::new(Some(TIMEOUT));
        play(&mut slow, Era::Legacy, begin);
        play(&mut slow, Era::Legacy, &[(65, Input::CallAnswered, &["heard"])]);
        assert!(!slow.is_silent());
    }

    #[test]
    fn where_the_client_gave_up_the_patience_is_shorter() {
        let mut wedge = Wedge::new(Some(TIMEOUT));
        let begin: &[Step] = &[
            (0, Input::Started, NONE),
            (10, call(10), NONE),
            (40, Input::Wakeup, ASKED),
            (40, cpu(0), NONE),
            (60, Input::Wakeup, &["silent"]),
            (62, given_up(10, 62), NONE),
            (70, Input::Wakeup, SAMPLE),
            (70, cpu(0), NONE),
            (100, Input::Wakeup, SAMPLE),
        ];
        play(&mut wedge, Era::Legacy, begin);
        play(&mut wedge, Era::Legacy, &[(100, cpu(0), &[WEDGED])]);
        // One that works meanwhile is waited for, and idle as long from then on.
        let mut busy = Wedge::new(Some(TIMEOUT));
        play(&mut busy, Era::Legacy, begin);
        let steps: &[Step] = &[
            (100, cpu(2_000), NONE),
            (130, Input::Wakeup, SAMPLE),
            (130, cpu(2_000), NONE),
            (160, Input::Wakeup, SAMPLE),
            (160, cpu(2_000), &[WEDGED]),
        ];
        play(&mut busy, Era::Legacy, steps);
        // One that answers the probe may leave the call unanswered.
        let mut polite = Wedge::new(Some(TIMEOUT));
        let steps: &[Step] = &[
            (0, Input::Started, NONE),
            (10, call(10), NONE),
            (20, given_up(10, 20), NONE),
            (40, Input::Wakeup, ASKED),
            (41, Input::ProbeAnswered, NONE),
            (42, given_up(10, 20), NONE),
        ];
        play(&mut polite, Era::Legacy, steps);
        assert_eq!(polite.next_wakeup(Era::Legacy), None, "it is not asked again");
    }

    #[test]
    fn in_no_history_a_server_is_wedged_without_all_the_reasons() {
        for ask_after in [TIMEOUT, WEDGE_ASK_AFTER] {
            let mut wedged = 0;
            for seed in 0..600 {
                wedged += u32::from(random_history(seed, ask_after));
            }
            assert!(wedged > 50, "the histories reach it: {wedged}");
        }
    }

    /// Plays one history and judges each verdict by what happened. Whether there was one.
    fn random_history(seed: u64, ask_after: Duration) -> bool {
        let mut random = Random(seed);
        let mut wedge = Wedge { ask_after, ..Wedge::new(Some(TIMEOUT)) };
        let (mut now, mut used) = (0, 0);
        let (mut heard, mut probed, mut owed, mut questions) = (0, None, None, 0);
        let mut samples = Vec::new();
        // Some servers never say anything, and some never work.
        let (quiet, lazy) = (random.below(2) == 0, random.below(2) == 0);
        for _ in 0..400 {
            let step = match wedge.next_wakeup(Era::Legacy) {
                Some(at) if random.below(3) > 0 => {
                    at.since(Time::after_start(Duration::from_secs(now))).as_secs()
                }
                _ => random.below(40),
            };
            now += step;
            used += if lazy { 0 } else { step * random.below(30) };
            let input = match random.below(if quiet { 5 } else { 8 }) {
                0 if owed.is_none() => {
                    (owed, questions) = (Some(now), random.below(8) / 7);
                    Input::Calls(Calls {
                        in_flight: 1,
                        oldest_since: at(now),
                        questions: questions as usize,
                        given_up_at: None,
                    })
                }
                5 => Input::Heard,
                6 => Input::ProbeAnswered,
                7 => Input::CallAnswered,
                _ => Input::Wakeup,
            };
            if matches!(input, Input::Heard | Input::ProbeAnswered | Input::CallAnswered) {
                (heard, probed) = (now, None);
            }
            let mut effects = wedge.handle(at(now), Era::Legacy, input);
            if input == Input::CallAnswered {
                owed = None;
                effects.extend(wedge.handle(at(now), Era::Legacy, Input::Calls(Calls::default())));
            }
            if effects.iter().any(|effect| matches!(effect, Effect::SendProbe(_))) {
                probed = Some(now);
            }
            if effects.contains(&Effect::Sample) {
                samples.push((now, used));
                effects.extend(wedge.handle(at(now), Era::Legacy, cpu(used)));
            }
            if effects.iter().any(|effect| matches!(effect, Effect::Wedged { .. })) {
                let since = owed.expect("a call is owed").max(heard);
                let probed = probed.expect("a probe was sent, and nothing was heard since");
                assert!(probed - since >= ask_after.as_secs(), "seed {seed}: overdue and silent");
                let silent = Duration::from_secs(now - since);
                assert!(silent >= TIMEOUT + WEDGE_PROBE_WAIT, "seed {seed}: for long enough");
                assert!(now - probed >= WEDGE_PROBE_WAIT.as_secs(), "seed {seed}: it had its time");
                assert_eq!(questions, 0, "seed {seed}: it waits for nobody");
                let [.., (before, used_before), (_, used)] = samples[..] else {
                    panic!("seed {seed}: two figures are compared");
                };
                let within = now - before;
                assert!(within >= WEDGE_PROBE_WAIT.as_secs(), "seed {seed}: far enough apart");
                assert!((used - used_before) <= within * 10, "seed {seed}: it does no work");
                return true;
            }
        }
        false
    }
}
