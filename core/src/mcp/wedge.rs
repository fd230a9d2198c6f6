//! Decides whether a server is wedged: it owes an answer, and neither sends nor does anything.
//!
//! ```text
//!            a call is overdue, all is silent             patience is over
//!   Calm ──────────────────────────────────▶ Probing ──────────────────────▶ Wedged
//!    ▲                                        │   ▲ │
//!    └──── any line, no call, a question ─────┘   └─┘ the processor worked for it: wait again
//! ```
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
    WEDGE_BUSY_PERCENT, WEDGE_LOOK_INTERVAL_MAX, WEDGE_LOOK_INTERVAL_MIN, WEDGE_PROBE_WAIT,
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
    calls: Calls,
    /// The last sign of life, or the instance's start.
    alive_at: Time,
    suspicion: Suspicion,
    /// The last probe was not answered. `call_answered` is when a call was, all the same.
    unanswered: Option<Unanswered>,
}

/// The requests that are owed, from both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Requests that the instance has and has not answered, without those that stay open on
    /// purpose, such as `subscriptions/listen`.
    pub(super) in_flight: usize,
    /// When the oldest of them was given to it.
    pub(super) oldest_since: Time,
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
        Self { timeout, ..Self::default() }
    }

    /// Records one input, and returns what has to be done now. `era` is the conversation's.
    pub(super) fn handle(&mut self, now: Time, era: Era, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Started => {
                self.alive(now);
                self.calls = Calls::default();
                self.suspicion = Suspicion::Calm;
                // The probe of the old instance is void; only what it has shown stays.
                self.unanswered = self.unanswered.filter(|_| self.ignores_probes(now));
            }
            Input::Calls(calls) => {
                self.calls = calls;
                if !self.may_suspect() {
                    self.calm();
                }
            }
            Input::CallAnswered => {
                self.alive(now);
                if let Some(Unanswered { call_answered }) = &mut self.unanswered {
                    call_answered.get_or_insert(now);
                }
            }
            Input::Heard => self.alive(now),
            Input::ProbeAnswered => {
                self.alive(now);
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
            Suspicion::Calm => self.suspect_at(),
            Suspicion::Probing { asked: false, check_at, .. } => Some(check_at),
            Suspicion::Probing { asked: true, .. } | Suspicion::Told => None,
        }
    }

    fn alive(&mut self, now: Time) {
        self.alive_at = self.alive_at.max(now);
        self.calm();
    }

    fn calm(&mut self) {
        if !matches!(self.suspicion, Suspicion::Told) {
            self.suspicion = Suspicion::Calm;
        }
    }

    /// A server that has asked its client something waits for it, and not we for the server.
    fn may_suspect(&self) -> bool {
        self.calls.in_flight > 0 && self.calls.questions == 0
    }

    fn suspect_at(&self) -> Option<Time> {
        let timeout = self.timeout.filter(|_| self.may_suspect())?;
        let silent_since = self.alive_at.max(self.calls.oldest_since);
        Some(silent_since + timeout * self.times(silent_since + timeout))
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
        match &mut self.suspicion {
            Suspicion::Calm => {
                let is_due = self.suspect_at().is_some_and(|at| at <= now);
                let Some(probe) = probe_of(era).filter(|_| is_due) else { return };
                let check_at = now + patience;
                self.suspicion = Suspicion::Probing { probe, check_at, sample: None, asked: false };
                // What was learned from the probe before stays, until this one is answered.
                self.unanswered.get_or_insert_default();
                effects.extend([Effect::SendProbe(probe), Effect::Sample]);
            }
            Suspicion::Probing { check_at, sample, asked, .. } if *check_at <= now => {
                // We ourselves were asleep, and so was the server perhaps: that time does not count.
                if now.since(*check_at) > patience {
                    (*check_at, *sample) = (now + patience, None);
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
        let Suspicion::Probing { probe, check_at, sample, asked } = &mut self.suspicion else {
            return;
        };
        let again = match (figure, *sample) {
            // Nothing shows that it does not work: it stays as it is, and is looked at again.
            (None, _) => None,
            (Some(_), Some(_)) if !*asked => return,
            (Some(figure), Some((since, before)))
                if !works(before, figure, now.since(since), ignores_probes) =>
            {
                let why = format!(
                    "a call is unanswered for {}, the server has been silent for {}, did not answer \
                     `{probe}`, and its processes do no work",
                    show_duration(now.since(self.calls.oldest_since)),
                    show_duration(now.since(self.alive_at.max(self.calls.oldest_since))),
                );
                self.suspicion = Suspicion::Told;
                return effects.push(Effect::Wedged { why });
            }
            (Some(figure), _) => Some((now, figure)),
        };
        (*check_at, *sample, *asked) = (now + patience, again, false);
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
    /// The server has sent something since the last check.
    pub(super) has_sent: bool,
    /// It has answered a call since then.
    pub(super) has_answered: bool,
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

    /// What the server has done since the last check.
    pub(super) fn take_signs(&mut self) -> impl Iterator<Item = Input> + use<> {
        let answered = std::mem::take(&mut self.has_answered).then_some(Input::CallAnswered);
        let sent = std::mem::take(&mut self.has_sent).then_some(Input::Heard);
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
        Input::Calls(Calls { in_flight: 1, oldest_since: at(since), questions: 0 })
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
                    Effect::Wedged { .. } => WEDGED,
                })
                .collect();
            assert_eq!(found, *wanted, "step {index}: {input:?} at {second}");
        }
    }

    fn history(steps: &[Step]) -> Wedge {
        let mut wedge = Wedge::new(Some(TIMEOUT));
        play(&mut wedge, Era::Legacy, steps);
        wedge
    }

    const ASKED: &[&str] = &["ping", "sample"];
    const NONE: &[&str] = &[];
    const SAMPLE: &[&str] = &["sample"];

    #[test]
    fn a_stopped_server_is_wedged() {
        let wedge = history(&[
            (0, Input::Started, NONE),
            (10, call(10), NONE),
            (309, Input::Wakeup, NONE),
            (310, Input::Wakeup, ASKED),
            (310, cpu(5_000), NONE),
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
            (340, Input::Wakeup, SAMPLE),
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
            (330, Input::Wakeup, SAMPLE),
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
            assert_eq!(
                wedge.next_wakeup(Era::Legacy),
                Some(wedge.suspect_at().unwrap()),
                "{life:?}"
            );
            assert!(wedge.suspect_at().unwrap() >= at(629), "{life:?}");
        }
    }

    #[test]
    fn without_a_call_or_with_a_question_nobody_is_suspected() {
        let question = Input::Calls(Calls { in_flight: 1, oldest_since: at(0), questions: 1 });
        let none = Input::Calls(Calls { in_flight: 0, oldest_since: at(0), questions: 0 });
        for input in [question, none] {
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
        let mut wedge = Wedge::new(Some(TIMEOUT));
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
            (330, Input::Wakeup, SAMPLE),
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
            (4_000, Input::Wakeup, SAMPLE),
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
            (950, Input::Wakeup, NONE),
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
    fn in_no_history_a_server_is_wedged_without_all_the_reasons() {
        let mut wedged = 0;
        for seed in 0..600 {
            wedged += u32::from(random_history(seed));
        }
        assert!(wedged > 50, "the histories reach it: {wedged}");
    }

    /// Plays one history and judges each verdict by what happened. Whether there was one.
    fn random_history(seed: u64) -> bool {
        let mut random = Random(seed);
        let mut wedge = Wedge::new(Some(TIMEOUT));
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
                let none =
                    Input::Calls(Calls { in_flight: 0, oldest_since: at(now), questions: 0 });
                effects.extend(wedge.handle(at(now), Era::Legacy, none));
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
                assert!(probed - since >= TIMEOUT.as_secs(), "seed {seed}: overdue and silent");
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
