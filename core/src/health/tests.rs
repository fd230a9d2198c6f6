//! Histories of the health machine: named ones, and random ones that keep every promise.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::id::Generation;
use crate::limits::{HEALTH_LATE_MAX, HEALTH_OVERTIME, HEALTH_SAMPLE_WAIT};
use crate::service::State;
use crate::time::{Stamp, Time};

const FIRST: Generation = Generation(1);
const SECOND: Generation = Generation(2);

fn check() -> HealthCheck {
    HealthCheck::new(Probe::Tcp { address: "localhost:1".to_owned() })
}

fn at(millis: u64) -> Time {
    Time::after_start(Duration::from_millis(millis))
}

fn well() -> Verdict {
    Verdict::Well(Duration::from_millis(7))
}

fn silent() -> Verdict {
    Verdict::Silent("no answer".to_owned())
}

fn ill() -> Verdict {
    Verdict::Ill("status 500".to_owned())
}

fn busy() -> Verdict {
    Verdict::Busy("status 503".to_owned())
}

/// A service and its clock: wakes the machine when it wants to be woken.
struct Patient {
    health: Health,
    now: Time,
    generation: Generation,
    /// The number of the probe that runs.
    asked: u64,
    said: Vec<&'static str>,
    why: String,
}

impl Patient {
    fn new(check: HealthCheck) -> Self {
        let health = Health::new(check);
        let why = String::new();
        let mut patient =
            Self { health, now: at(0), generation: FIRST, asked: 0, said: Vec::new(), why };
        patient.input(Input::Started(FIRST));
        patient
    }

    fn ready() -> Self {
        let mut patient = Self::new(check());
        patient.answer(well());
        patient.said.clear();
        patient
    }

    fn input(&mut self, input: Input) {
        let now = self.now;
        for effect in self.health.handle(now, input) {
            self.said.push(match effect {
                Effect::Probe { generation, number, timeout } => {
                    assert_eq!((generation, timeout), (self.generation, self.health_timeout()));
                    self.asked = number;
                    "probe"
                }
                Effect::Sample(..) => "sample",
                Effect::Ready(..) => "ready",
                Effect::Unhealthy { why, .. } => {
                    self.why = why;
                    "unhealthy"
                }
                Effect::Tell(event) => event.parts("it").1.name(),
            });
        }
    }

    fn health_timeout(&self) -> Duration {
        check().timeout
    }

    /// Lets time pass until the machine wants to be woken.
    fn wait(&mut self) -> Duration {
        let next = self.health.next_wakeup().expect("it waits for something");
        let waited = next.since(self.now);
        self.now = self.now.max(next);
        self.input(Input::Wakeup);
        waited
    }

    fn answer(&mut self, verdict: Verdict) {
        let (generation, number) = (self.generation, self.asked);
        self.input(Input::Probed { generation, number, verdict });
    }

    /// Does not answer, and then has used so much processor time.
    fn hang(&mut self, used_ms: u64) {
        self.now = self.now + check().timeout;
        self.answer(silent());
        let time = Some(Duration::from_millis(used_ms));
        self.input(Input::Worked { generation: self.generation, time });
    }

    fn state(&self) -> HealthState {
        self.health.status(self.now, Stamp::default()).state
    }

    fn said(&mut self) -> Vec<&'static str> {
        std::mem::take(&mut self.said)
    }
}

const FAILED: &str = "health_check_failed";
const DEGRADED: &str = "health_degraded";

#[test]
fn it_is_ready_with_the_first_good_answer() {
    // O8
    let mut patient = Patient::new(check());
    assert_eq!((patient.said(), patient.state()), (vec!["probe"], HealthState::Starting));
    for _ in 0..20 {
        patient.answer(ill());
        assert_eq!((patient.said(), patient.state()), (vec![], HealthState::Starting));
        assert_eq!(patient.wait(), check().ready_interval);
        assert_eq!(patient.said(), ["probe"]);
    }
    patient.answer(well());
    assert_eq!(
        (patient.said(), patient.state()),
        (vec!["health_ready", "ready"], HealthState::Healthy)
    );
    assert_eq!(patient.wait(), check().interval);
    patient.answer(well());
    assert_eq!(patient.said(), ["probe"], "all is well, and nothing is said");
}

#[test]
fn the_next_probe_is_a_while_after_the_end_of_the_last() {
    let mut patient = Patient::ready();
    patient.wait();
    patient.now = patient.now + Duration::from_secs(9);
    patient.answer(well());
    assert_eq!(patient.wait(), check().interval);
}

#[test]
fn who_is_never_ready_counts_as_crashed() {
    let mut patient = Patient::new(check());
    while patient.state() == HealthState::Starting {
        patient.answer(ill());
        patient.wait();
    }
    assert_eq!(patient.now, at(60_000));
    assert_eq!(patient.why, "not ready within 1 m, the last check: status 500");
    let told = patient.said().into_iter().filter(|word| *word == "health_not_ready");
    assert_eq!(told.count(), 3, "after 10, 20 and 40 seconds");
    assert_eq!((patient.state(), patient.health.next_wakeup()), (HealthState::Unhealthy, None));
    // A probe that hangs does not put it off.
    let mut patient =
        Patient::new(HealthCheck { ready_timeout: Some(Duration::from_secs(3)), ..check() });
    patient.wait();
    assert_eq!((patient.why.as_str(), patient.now), ("not ready within 3 s", at(3_000)));
    // Where there is no such time, it may take as long as it likes.
    let mut patient = Patient::new(HealthCheck { ready_timeout: None, ..check() });
    for _ in 0..100_000 {
        patient.answer(silent());
        patient.wait();
    }
    assert_eq!(patient.state(), HealthState::Starting);
}

#[test]
fn failures_in_a_row_count_as_a_crash_and_one_does_not() {
    // O8 O9
    let mut patient = Patient::ready();
    patient.wait();
    patient.answer(ill());
    assert_eq!(
        (patient.said(), patient.state()),
        (vec!["probe", FAILED, DEGRADED], HealthState::Degraded)
    );
    patient.wait();
    patient.answer(well());
    assert_eq!(
        (patient.said(), patient.state()),
        (vec!["probe", "health_recovered"], HealthState::Healthy)
    );
    for failures in 1..=3 {
        patient.wait();
        patient.answer(ill());
        assert_eq!(patient.health.status(patient.now, Stamp::default()).failures, failures);
    }
    assert_eq!(patient.said().last(), Some(&"unhealthy"));
    assert_eq!(patient.why, "3 times in a row, the last time: status 500");
}

#[test]
fn who_is_stopped_is_found_in_the_plain_time() {
    let mut patient = Patient::ready();
    for _ in 0..3 {
        assert_ne!(patient.state(), HealthState::Unhealthy);
        patient.wait();
        patient.hang(5_000);
    }
    assert_eq!(patient.state(), HealthState::Unhealthy);
    assert_eq!(patient.now, at(60_000));
}

#[test]
fn who_works_gets_twice_the_time_and_no_more() {
    let mut patient = Patient::ready();
    for round in 1..=6 {
        assert_ne!(patient.state(), HealthState::Unhealthy, "{round}");
        patient.wait();
        patient.hang(round * 20_000);
    }
    assert_eq!(patient.state(), HealthState::Unhealthy);
    // It stops working: then there is nothing to wait for.
    let mut patient = Patient::ready();
    for used in [20_000, 40_000, 60_000, 60_000] {
        assert_ne!(patient.state(), HealthState::Unhealthy);
        patient.wait();
        patient.hang(used);
    }
    assert_eq!(patient.state(), HealthState::Unhealthy);
    // A good answer in between ends it.
    let mut patient = Patient::ready();
    for used in [20_000, 40_000, 60_000, 80_000] {
        patient.wait();
        patient.hang(used);
    }
    patient.wait();
    patient.answer(well());
    assert_eq!(patient.state(), HealthState::Healthy);
    // Where nobody tells, it counts as idle; a figure that does not come too.
    let mut patient = Patient::ready();
    for _ in 0..3 {
        patient.wait();
        patient.answer(silent());
        assert_eq!(patient.wait(), HEALTH_SAMPLE_WAIT);
    }
    assert_eq!(patient.state(), HealthState::Unhealthy);
}

#[test]
fn who_says_that_it_is_busy_gets_twice_the_time_too() {
    let mut patient = Patient::ready();
    for round in 1..=6 {
        assert_ne!(patient.state(), HealthState::Unhealthy, "{round}");
        patient.wait();
        patient.answer(busy());
    }
    assert_eq!(patient.state(), HealthState::Unhealthy);
}

#[test]
fn a_new_instance_begins_anew_and_late_word_is_dropped() {
    let mut patient = Patient::ready();
    patient.wait();
    patient.answer(ill());
    patient.wait();
    let late = patient.asked;
    patient.input(Input::Gone(FIRST));
    assert_eq!((patient.state(), patient.health.next_wakeup()), (HealthState::Unknown, None));
    patient.said.clear();
    patient.input(Input::Probed { generation: FIRST, number: late, verdict: well() });
    patient.input(Input::Worked { generation: FIRST, time: None });
    assert_eq!(patient.said(), Vec::<&str>::new());
    patient.generation = SECOND;
    patient.input(Input::Started(SECOND));
    patient.input(Input::Gone(FIRST));
    assert_eq!((patient.said(), patient.state()), (vec!["probe"], HealthState::Starting));
    patient.input(Input::Probed { generation: FIRST, number: late, verdict: well() });
    patient.input(Input::Probed { generation: SECOND, number: late, verdict: well() });
    assert_eq!((patient.said(), patient.state()), (vec![], HealthState::Starting));
    patient.answer(well());
    assert_eq!(patient.health.status(patient.now, Stamp::default()).failures, 0);
    patient.answer(ill());
    assert_eq!(patient.state(), HealthState::Healthy, "the same probe has only one result");
}

#[test]
fn a_probe_that_never_ends_counts_as_failed() {
    let mut patient = Patient::ready();
    patient.wait();
    assert_eq!(patient.wait(), check().timeout + HEALTH_OVERTIME);
    assert_eq!(patient.said(), ["probe", FAILED, DEGRADED, "sample"]);
}

#[test]
fn who_loses_the_first_requests_is_asked_again_soon() {
    let url = "http://localhost:1/".to_owned();
    let probe = Probe::Http { url, status: None, json: None, headers: Vec::new() };
    let check = HealthCheck::new(probe);
    let mut health = Health::new(check.clone());
    let mut now = at(0);
    let mut input = Input::Started(FIRST);
    let mut patience = Vec::new();
    for silences in 0..8 {
        let effects = health.handle(now, input);
        let [Effect::Probe { number, timeout, .. }] = effects[..] else { panic!("{effects:?}") };
        patience.push(timeout.as_millis());
        now = now + timeout;
        let verdict = if silences < 7 { silent() } else { well() };
        health.handle(now, Input::Probed { generation: FIRST, number, verdict });
        now = health.next_wakeup().expect("it waits for the next probe");
        input = Input::Wakeup;
    }
    assert_eq!(patience, [250, 500, 1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    let effects = health.handle(now, Input::Wakeup);
    let [Effect::Probe { timeout, .. }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(timeout, check.timeout, "one that was ready may be busy");
}

#[test]
fn time_in_which_we_slept_does_not_count() {
    let mut patient = Patient::new(check());
    patient.answer(ill());
    patient.now = at(3_600_000);
    patient.input(Input::Wakeup);
    assert_eq!(patient.state(), HealthState::Starting);
    patient.answer(ill());
    patient.now = patient.now + check().ready_timeout.unwrap() + HEALTH_LATE_MAX;
    patient.input(Input::Wakeup);
    assert_eq!(patient.state(), HealthState::Starting, "it has had its time once");
}

#[test]
fn what_is_shown_is_fixed() {
    let mut patient = Patient::ready();
    patient.wait();
    patient.answer(ill());
    patient.now = patient.now + Duration::from_secs(2);
    let stamp = Stamp::parse("2026-11-15T08:42:03.000Z").unwrap();
    let status = patient.health.status(patient.now, stamp);
    let shown = json!({
        "state": "degraded",
        "failures": 1,
        "last_error": "status 500",
        "latency_ms": 7,
        "checked_at": "2026-11-15T08:42:01.000Z",
    });
    assert_eq!(serde_json::to_value(&status).unwrap(), shown);
    let degraded = State::Degraded { why: "status 500".to_owned() };
    let states = [
        (State::Running, State::Starting),
        (State::Ready, degraded),
        (State::Restarting, State::Restarting),
        (State::Stopped, State::Stopped),
    ];
    for (state, wanted) in states {
        assert_eq!(state.with_health(&status), wanted);
    }
    let well = HealthStatus { state: HealthState::Healthy, ..status };
    assert_eq!(State::Ready.with_health(&well), State::Ready);
}

/// Small numbers out of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// What an observer knows of a history.
struct Observer {
    health: Health,
    check: HealthCheck,
    history: Vec<String>,
    now: Time,
    alive: Option<Generation>,
    started: Time,
    /// The probe that runs, and when it counts as lost.
    probing: Option<(u64, Time)>,
    ready: bool,
    failures: u32,
    told: bool,
}

impl Observer {
    fn hear(&mut self, input: Input) {
        self.history.push(format!("{:?} {input:?}", self.now));
        match &input {
            Input::Started(generation) => {
                (self.alive, self.started, self.probing) = (Some(*generation), self.now, None);
                (self.ready, self.failures, self.told) = (false, 0, false);
            }
            Input::Gone(generation) if self.alive == Some(*generation) => self.alive = None,
            Input::Probed { generation, number, verdict }
                if self.alive == Some(*generation) && self.runs(*number) =>
            {
                self.probing = None;
                match verdict {
                    Verdict::Well(..) => self.failures = 0,
                    _ => self.failures += u32::from(self.ready),
                }
            }
            Input::Wakeup if self.probing.is_some_and(|(_, lost_at)| lost_at <= self.now) => {
                self.probing = None;
                self.failures += u32::from(self.ready);
            }
            _ => {}
        }
        for effect in self.health.handle(self.now, input) {
            self.history.push(format!("    {effect:?}"));
            match effect {
                Effect::Probe { generation, number, timeout } => {
                    assert_eq!(self.alive, Some(generation));
                    let lost_at = self.now + timeout + HEALTH_OVERTIME;
                    let other = self.probing.replace((number, lost_at));
                    assert_eq!(other, None, "two probes at once");
                    assert!(!self.told);
                }
                Effect::Sample(generation) => assert_eq!(self.alive, Some(generation)),
                Effect::Ready(generation) => {
                    assert_eq!((self.alive, self.ready), (Some(generation), false));
                    self.ready = true;
                }
                Effect::Unhealthy { generation, .. } => {
                    assert_eq!((self.alive, self.told), (Some(generation), false));
                    let enough = match self.ready {
                        true => self.failures >= self.check.failures_max,
                        false => Some(self.now.since(self.started)) >= self.check.ready_timeout,
                    };
                    assert!(enough);
                    self.told = true;
                }
                Effect::Tell(_) => assert!(self.alive.is_some()),
            }
        }
        // One that is busy all the time is not spared for ever.
        let twice = self.check.failures_max * 2;
        assert!(self.failures <= twice);
        let waits = self.health.next_wakeup();
        match self.alive {
            Some(_) if !self.told => assert!(waits.is_some_and(|at| at > self.now)),
            _ => assert_eq!(waits, None),
        }
    }

    fn runs(&self, number: u64) -> bool {
        self.probing.is_some_and(|(running, _)| running == number)
    }

    /// Lets time pass, but not beyond what the machine waits for.
    fn pass(&mut self, time: Duration) {
        let next = self.health.next_wakeup().unwrap_or(self.now + time);
        self.now = self.now + time.min(next.since(self.now));
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:#?}", self.history);
        }
    }
}

#[test]
fn in_no_history_is_a_promise_broken() {
    let mut ends = [0_u32; 2];
    for seed in 0..2_000 {
        let mut random = Random(seed);
        let check = HealthCheck {
            failures_max: 1 + random.below(4) as u32,
            ready_timeout: (random.below(3) > 0).then(|| Duration::from_secs(1 + random.below(90))),
            ..check()
        };
        let mut observer = Observer {
            health: Health::new(check.clone()),
            check,
            history: vec![format!("seed {seed}")],
            now: at(0),
            alive: None,
            started: at(0),
            probing: None,
            ready: false,
            failures: 0,
            told: false,
        };
        // Some are mostly well, some never.
        let luck = random.below(10);
        let mut generation = 0;
        for _ in 0..200 {
            step(&mut observer, &mut random, luck, &mut generation);
            if let Some(generation) = observer.alive.filter(|_| observer.told) {
                ends[usize::from(observer.ready)] += 1;
                observer.hear(Input::Gone(generation));
            }
        }
    }
    assert!(ends.iter().all(|count| *count > 500), "the histories reach it: {ends:?}");
}

fn step(observer: &mut Observer, random: &mut Random, luck: u64, generation: &mut u64) {
    let any = Generation(*generation - random.below(2).min(*generation));
    let used = Duration::from_millis(
        observer.now.since_start().as_millis() as u64 / (1 + random.below(200)),
    );
    match random.below(12) {
        0 if observer.alive.is_none() || random.below(20) == 0 => {
            *generation += 1;
            observer.hear(Input::Started(Generation(*generation)));
        }
        1 if random.below(10) == 0 => observer.hear(Input::Gone(any)),
        2 => observer.hear(Input::Worked { generation: any, time: Some(used) }),
        3 => {
            let number = random.below(50);
            // Of the probe that runs, there is one word.
            if !observer.runs(number) {
                observer.hear(Input::Probed { generation: any, number, verdict: well() });
            }
        }
        4..7 => {
            let Some(((number, _), generation)) = observer.probing.zip(observer.alive) else {
                return;
            };
            observer.pass(Duration::from_millis(random.below(10_000)));
            let verdict = match random.below(10) {
                n if n < luck => well(),
                n if n % 3 == 0 => ill(),
                n if n % 3 == 1 => silent(),
                _ => busy(),
            };
            observer.hear(Input::Probed { generation, number, verdict });
        }
        _ => {
            observer.pass(Duration::from_secs(100));
            observer.hear(Input::Wakeup);
        }
    }
}

mod logins_and_answers {
    use serde_json::json;

    use super::*;

    fn check() -> HealthCheck {
        let url = "http://localhost:4096/global/health".to_owned();
        let probe = Probe::Http { url, status: None, json: None, headers: Vec::new() };
        HealthCheck { is_opencode: true, ..HealthCheck::new(probe) }
    }

    fn headers(check: &HealthCheck, variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let check = check.for_start(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert!(!check.is_opencode);
        match check.probe {
            Probe::Http { headers, .. } => headers,
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_password_in_the_environment_is_sent() {
        let password = ("OPENCODE_SERVER_PASSWORD", "sesame");
        let basic = |value: &str| vec![("Authorization".to_owned(), format!("Basic {value}"))];
        assert_eq!(headers(&check(), &[]), []);
        assert_eq!(headers(&check(), &[("OPENCODE_SERVER_PASSWORD", "")]), []);
        assert_eq!(headers(&check(), &[password]), basic("b3BlbmNvZGU6c2VzYW1l"));
        let name = ("OPENCODE_SERVER_USERNAME", "ada");
        assert_eq!(headers(&check(), &[password, name]), basic("YWRhOnNlc2FtZQ=="));
        let mut own = check();
        if let Probe::Http { headers, .. } = &mut own.probe {
            headers.push(("authorization".to_owned(), "Bearer x".to_owned()));
        }
        assert_eq!(headers(&own, &[password]).len(), 1);
        let plain = HealthCheck { is_opencode: false, ..check() };
        assert_eq!(headers(&plain, &[password]), []);
    }

    fn ill(why: &str) -> Result<(), Verdict> {
        Err(Verdict::Ill(why.to_owned()))
    }

    #[test]
    fn status_and_field_decide() {
        // O8
        let healthy = Some(("healthy".to_owned(), json!(true)));
        let deep = Some(("checks.1.state".to_owned(), json!("up")));
        let html = "<!doctype html><title>opencode</title>";
        let busy = |why: &str| Err(Verdict::Busy(why.to_owned()));
        let cases = [
            (None, &None, 200, html, Ok(())),
            (None, &None, 204, "", Ok(())),
            (Some(401), &None, 401, "", Ok(())),
            (Some(200), &None, 204, "", ill("it answered with status 204")),
            (None, &None, 302, "", ill("it answered with status 302")),
            (None, &None, 503, "", busy("it answered with status 503")),
            (Some(503), &None, 503, "", Ok(())),
            (None, &healthy, 200, r#"{"healthy":true,"version":"1.18.33"}"#, Ok(())),
            (None, &healthy, 200, r#"{"healthy":false}"#, ill("`healthy` is false, not true")),
            (None, &healthy, 200, r#"{"healthy":"true"}"#, ill("`healthy` is \"true\", not true")),
            (None, &healthy, 200, "[]", ill("the JSON of its answer has no `healthy`")),
            (None, &healthy, 200, "1", ill("the JSON of its answer has no `healthy`")),
            (None, &healthy, 500, r#"{"healthy":true}"#, ill("it answered with status 500")),
            (None, &healthy, 200, html, ill("it answered with status 200, but not with JSON")),
            (None, &healthy, 200, "", ill("it answered with status 200, but not with JSON")),
            (None, &deep, 200, r#"{"checks":[{},{"state":"up"}]}"#, Ok(())),
            (
                None,
                &deep,
                200,
                r#"{"checks":[]}"#,
                ill("the JSON of its answer has no `checks.1.state`"),
            ),
        ];
        for (wanted_status, wanted, status, body, verdict) in cases {
            let found = judge_http(wanted_status, wanted.as_ref(), status, body.as_bytes());
            assert_eq!(found, verdict, "{status} {body}");
        }
    }

    #[test]
    fn what_is_shown_is_short() {
        let wanted = ("a".to_owned(), json!(1));
        let body = json!({ "a": "ü".repeat(10_000) }).to_string();
        let Err(Verdict::Ill(why)) = judge_http(None, Some(&wanted), 200, body.as_bytes()) else {
            panic!("it is not 1");
        };
        assert!(why.chars().count() < crate::limits::HEALTH_SHOWN_CHARS_MAX + 50, "{why}");
    }
}
