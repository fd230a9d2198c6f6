//! Owns the metrics: the counters of a service and of a run of a plan, and their page in the text format of
//! Prometheus. Driven by the events of the service and the records of the run. Never samples processes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::{Face, State, UsageStatus};
use crate::agent::Spent;
use crate::run::{Cause, Kind, Record};
use crate::service::Event;
use crate::time::Time;

/// The upper ends of the buckets, in seconds: a restart takes some ten milliseconds, and waits go up to
/// minutes.
const BUCKETS: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// What is counted of one service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    /// By what they followed: `requested`, `crash`, `killed` and so on.
    restarts: BTreeMap<&'static str, u64>,
    /// What the next instance follows; the first of several reasons, which are one restart.
    next_follows: Option<&'static str>,
    /// There has been an instance, or a try.
    has_begun: bool,
    /// It was stopped or given up since then: what comes next is a start.
    is_down: bool,
    /// Since when it has been down without a request.
    down_since: Option<Time>,
    recoveries: Histogram,
    checks: Histogram,
}

impl Vitals {
    /// Counts what has happened. `says_ready` is whether [`ready`](Self::ready) follows when an
    /// instance serves.
    pub fn note(&mut self, now: Time, event: &Event, says_ready: bool) {
        let reason = match event {
            Event::RestartRequested { .. } => "requested",
            Event::Replacing { .. } => "replaced",
            Event::Restarting { after, .. } => {
                self.down_since.get_or_insert(now);
                after.name()
            }
            Event::Started { .. } => {
                self.begun();
                if !says_ready {
                    self.ready(now);
                }
                return;
            }
            Event::SpawnFailed(_) => return self.begun(),
            Event::Adopted { .. } => {
                self.has_begun = true;
                return;
            }
            Event::SwapFailed { .. } => {
                self.next_follows = None;
                return;
            }
            Event::GaveUp { .. } | Event::Stopped(_) => {
                (self.down_since, self.next_follows, self.is_down) = (None, None, true);
                return;
            }
            _ => return,
        };
        self.next_follows.get_or_insert(reason);
    }

    /// Counts as the status of a service does: by instances, not by what was asked for.
    fn begun(&mut self) {
        // A request that came before the instance of an earlier one was up is told before that one's start.
        let usual = if std::mem::take(&mut self.is_down) { "started" } else { "requested" };
        let follows = self.next_follows.take().unwrap_or(usual);
        if std::mem::replace(&mut self.has_begun, true) {
            *self.restarts.entry(follows).or_default() += 1;
        }
    }

    /// An instance serves.
    pub fn ready(&mut self, now: Time) {
        if let Some(since) = self.down_since.take() {
            self.recoveries.observe(now.since(since));
        }
    }

    /// A health check was answered after this time.
    pub fn health_checked(&mut self, latency: Duration) {
        self.checks.observe(latency);
    }
}

/// How often something took how long.
#[derive(Clone, Debug, Default, PartialEq)]
struct Histogram {
    /// Not summed up.
    counts: [u64; BUCKETS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    fn observe(&mut self, took: Duration) {
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
        if let Some(at) = BUCKETS.iter().position(|end| took.as_secs_f64() <= *end) {
            self.counts[at] += 1;
        }
    }
}

/// What is counted of a run, since this process began with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunMetrics {
    /// Sessions that have ended, by why.
    sessions: BTreeMap<String, u64>,
    /// Restarts, by why the session before had ended.
    restarts: BTreeMap<String, u64>,
    remediations: u64,
    gates_passed: u64,
    gates_failed: u64,
    last: Option<Cause>,
    /// What was used in all, by this process and those before it.
    pub spent: Spent,
    /// How full the context is, from 0 to 1.
    pub context: Option<f64>,
}

impl RunMetrics {
    /// Counts what is written down.
    pub fn note(&mut self, record: &Record) {
        match record {
            Record::AttemptEnded { cause, .. } => {
                *self.sessions.entry(cause.to_string()).or_default() += 1;
                self.last = Some(*cause);
            }
            Record::AttemptBegan { kind: Kind::Restart(_), .. } => {
                let cause =
                    self.last.map_or_else(|| "unknown".to_owned(), |cause| cause.to_string());
                *self.restarts.entry(cause).or_default() += 1;
            }
            Record::AttemptBegan { kind: Kind::Remediation(_), .. } => self.remediations += 1,
            Record::GateEnded { passed: true, .. } => self.gates_passed += 1,
            Record::GateEnded { passed: false, .. } => self.gates_failed += 1,
            _ => {}
        }
    }
}

/// What is measured of one service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceMetrics {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: State,
    /// For how long the current process has run.
    pub uptime: Option<Duration>,
    /// The current process.
    pub pid: Option<u32>,
    /// What it and its descendants use, where the system tells.
    pub usage: Option<UsageStatus>,
    /// What was counted.
    pub vitals: Vitals,
    /// What was counted of a run; none where it is no run.
    pub run: Option<RunMetrics>,
}

/// What is measured of one afresh process.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Its version.
    pub version: String,
    /// Which command it is.
    pub face: Face,
    /// How much has happened.
    pub events: u64,
    /// Memory of afresh itself that is resident, where the system tells.
    pub memory_bytes: Option<u64>,
    /// Processor time of afresh itself, where the system tells.
    pub cpu_time: Option<Duration>,
    /// Its services.
    pub services: Vec<ServiceMetrics>,
}

impl Metrics {
    /// All of it, as `GET /metrics` gives it.
    pub fn to_text(&self) -> String {
        let mut page = MetricsText::default();
        page.family("afresh_info", "gauge", "What runs: always 1.");
        page.sample("afresh_info", &[("version", &self.version), ("face", self.face.name())], 1.0);
        page.family("afresh_events_total", "counter", "Events told so far; see /v1/events.");
        page.sample("afresh_events_total", &[], self.events as f64);
        if let Some(bytes) = self.memory_bytes {
            let name = "process_resident_memory_bytes";
            page.family(name, "gauge", "Resident memory of afresh itself.");
            page.sample(name, &[], bytes as f64);
        }
        if let Some(time) = self.cpu_time {
            let name = "process_cpu_seconds_total";
            page.family(name, "counter", "Processor time of afresh itself.");
            page.sample(name, &[], time.as_secs_f64());
        }
        if self.services.is_empty() {
            return page.0;
        }
        let services = || self.services.iter().map(|service| (service.name.as_str(), service));
        page.families(&SERVICE_FAMILIES, services);
        for (name, help, histogram) in HISTOGRAMS {
            page.family(name, "histogram", help);
            for (service, metrics) in services() {
                page.histogram(name, service, histogram(&metrics.vitals));
            }
        }
        let runs = || services().filter_map(|(name, service)| Some((name, service.run.as_ref()?)));
        if runs().next().is_some() {
            page.families(&RUN_FAMILIES, runs);
        }
        page.0
    }
}

/// A family of samples: its name, kind and help, and each value of a service or a run with its label.
type Family<T> = (&'static str, &'static str, &'static str, fn(&T) -> Vec<Sample<'_>>);

type Sample<'a> = (Option<(&'static str, &'a str)>, f64);

const SERVICE_FAMILIES: [Family<ServiceMetrics>; 5] = [
    (
        "afresh_service_state",
        "gauge",
        "The state of a service: 1 for the one it is in, 0 for the others.",
        |service| {
            let is_it = |word| f64::from(u8::from(service.state.word() == word));
            State::WORDS.map(|word| (Some(("state", word)), is_it(word))).to_vec()
        },
    ),
    (
        "afresh_service_uptime_seconds",
        "gauge",
        "How long the current process has run; 0 where there is none.",
        |service| vec![(None, service.uptime.unwrap_or_default().as_secs_f64())],
    ),
    // One that does not run has no samples of what it uses.
    (
        "afresh_service_resident_memory_bytes",
        "gauge",
        "Resident memory of the current process and its descendants.",
        |service| service.usage.iter().map(|usage| (None, usage.memory_bytes as f64)).collect(),
    ),
    (
        "afresh_service_cpu_seconds_total",
        "counter",
        "Processor time of the current process and its descendants.",
        |service| {
            let time = service.usage.map(|usage| Duration::from_millis(usage.cpu_ms));
            time.iter().map(|time| (None, time.as_secs_f64())).collect()
        },
    ),
    ("afresh_service_restarts_total", "counter", "Restarts, by what they followed.", |service| {
        by_label("reason", &service.vitals.restarts)
    }),
];

/// A family of histograms: its name and help, and the histogram of one service.
type HistogramFamily = (&'static str, &'static str, fn(&Vitals) -> &Histogram);

const HISTOGRAMS: [HistogramFamily; 2] = [
    (
        "afresh_service_recovery_seconds",
        "The time from the end of an instance that failed until the next one is up.",
        |vitals| &vitals.recoveries,
    ),
    (
        "afresh_service_health_check_seconds",
        "How long health checks took to be answered.",
        |vitals| &vitals.checks,
    ),
];

const RUN_FAMILIES: [Family<RunMetrics>; 7] = [
    (
        "afresh_run_sessions_total",
        "counter",
        "Sessions of an agent that have ended, by why.",
        |run| by_label("cause", &run.sessions),
    ),
    (
        "afresh_run_restarts_total",
        "counter",
        "Restarts, by why the session before had ended.",
        |run| by_label("cause", &run.restarts),
    ),
    (
        "afresh_run_remediations_total",
        "counter",
        "Sessions to mend what made a gate fail.",
        |run| vec![(None, run.remediations as f64)],
    ),
    ("afresh_run_gates_total", "counter", "Gates that were run.", |run| {
        let label = |word| Some(("result", word));
        vec![(label("passed"), run.gates_passed as f64), (label("failed"), run.gates_failed as f64)]
    }),
    (
        "afresh_run_tokens_total",
        "counter",
        "Tokens; those from a cache are also counted as input.",
        |run| {
            let label = |word| Some(("kind", word));
            vec![
                (label("input"), run.spent.input as f64),
                (label("cached"), run.spent.cached as f64),
                (label("output"), run.spent.output as f64),
            ]
        },
    ),
    (
        "afresh_run_cost_dollars_total",
        "counter",
        "What was spent, as far as the agent says.",
        |run| run.spent.dollars.into_iter().map(|dollars| (None, dollars)).collect(),
    ),
    ("afresh_run_context_ratio", "gauge", "How full the context of the agent is.", |run| {
        run.context.into_iter().map(|context| (None, context)).collect()
    }),
];

fn by_label<'a, K: AsRef<str>>(
    label: &'static str,
    counts: &'a BTreeMap<K, u64>,
) -> Vec<Sample<'a>> {
    counts.iter().map(|(value, count)| (Some((label, value.as_ref())), *count as f64)).collect()
}

/// The text format of Prometheus, version 0.0.4.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "{name}{labels} {value}").ok();
    }

    /// The samples of all of these, family by family.
    fn families<'a, T: 'a, I: Iterator<Item = (&'a str, &'a T)>>(
        &mut self,
        families: &[Family<T>],
        all: impl Fn() -> I,
    ) {
        for (name, kind, help, samples) in families {
            self.family(name, kind, help);
            for (service, metrics) in all() {
                for (label, value) in samples(metrics) {
                    let labels: Vec<(&str, &str)> =
                        [("service", service)].into_iter().chain(label).collect();
                    self.sample(name, &labels, value);
                }
            }
        }
    }

    fn histogram(&mut self, name: &str, service: &str, histogram: &Histogram) {
        if histogram.count == 0 {
            return;
        }
        let bucket = format!("{name}_bucket");
        let mut sum = 0;
        for (end, count) in BUCKETS.iter().zip(histogram.counts) {
            sum += count;
            let labels = [("service", service), ("le", &end.to_string())];
            self.sample(&bucket, &labels, sum as f64);
        }
        let labels = [("service", service), ("le", "+Inf")];
        self.sample(&bucket, &labels, histogram.count as f64);
        let labels = &labels[..1];
        self.sample(&format!("{name}_sum"), labels, histogram.sum.as_secs_f64());
        self.sample(&format!("{name}_count"), labels, histogram.count as f64);
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Joins what `GET /metrics` of several processes gave, each with its pid. In the text format all samples of a
/// metric stand together and no two are alike, so each says in a label whose it is; a single page stays as it
/// is.
pub fn joined(pages: &[(u32, String)]) -> String {
    if let [(_, page)] = pages {
        return page.clone();
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut families: Vec<(String, String)> = Vec::new();
    for (pid, page) in pages {
        let mut at = None;
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let name = rest.split(' ').nth(1).unwrap_or_default();
                let place = *places.entry(name).or_insert_with(|| {
                    families.push(Default::default());
                    families.len() - 1
                });
                let (head, samples) = &mut families[place];
                // What it is was said by the first.
                if samples.is_empty() {
                    head.push_str(line);
                    head.push('\n');
                }
                at = Some(place);
            } else if let Some((_, samples)) = at.and_then(|at| families.get_mut(at)) {
                samples.push_str(&labelled(line, *pid));
                samples.push('\n');
            }
        }
    }
    families.into_iter().map(|(head, samples)| head + &samples).collect()
}

/// A sample that says whose it is.
fn labelled(sample: &str, pid: u32) -> String {
    let end = sample.find(['{', ' ']).unwrap_or(sample.len());
    let (name, rest) = sample.split_at(end);
    match rest.strip_prefix('{') {
        Some(rest) => format!("{name}{{supervisor_pid=\"{pid}\",{rest}"),
        None => format!("{name}{{supervisor_pid=\"{pid}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Actor;
    use crate::id::Generation;
    use crate::run::Attempt;
    use crate::service::Ending;

    fn at(millis: u64) -> Time {
        Time::after_start(Duration::from_millis(millis))
    }

    fn restarting() -> Event {
        let after = Ending::Crash;
        Event::Restarting { delay: Duration::ZERO, after, attempt: 1, attempts_max: 5 }
    }

    fn started() -> Event {
        Event::Started { pid: 7, generation: Generation(2), restarts: 1 }
    }

    fn metrics(vitals: Vitals) -> Metrics {
        let service = ServiceMetrics {
            name: "a\"b\\c\nd".to_owned(),
            state: State::CrashLoop { next_try_ms: 5 },
            uptime: None,
            pid: None,
            usage: Some(UsageStatus { memory_bytes: 4_096, cpu_ms: 250 }),
            vitals,
            run: None,
        };
        Metrics {
            version: "0.1.0".to_owned(),
            face: Face::Keep,
            events: 3,
            memory_bytes: Some(1_024),
            cpu_time: Some(Duration::from_millis(1_500)),
            services: vec![service],
        }
    }

    #[test]
    fn recovery_is_from_the_failure_until_it_is_up() {
        let mut vitals = Vitals::default();
        vitals.note(at(0), &started(), false);
        assert_eq!(vitals.recoveries.count, 0, "the first start recovers nothing");
        // Two failures in a row are one time of being down.
        vitals.note(at(1_000), &restarting(), false);
        vitals.note(at(1_500), &started(), true);
        vitals.note(at(2_000), &restarting(), false);
        vitals.note(at(3_000), &started(), false);
        assert_eq!((vitals.recoveries.count, vitals.recoveries.sum), (1, Duration::from_secs(2)));
        // Where somebody says when it serves, that counts.
        vitals.note(at(4_000), &restarting(), true);
        vitals.note(at(4_100), &started(), true);
        vitals.ready(at(4_500));
        vitals.ready(at(9_000));
        assert_eq!(vitals.recoveries.sum, Duration::from_millis(2_500));
        // Nobody recovers from what was given up, or is wanted down.
        for last in [
            Event::Stopped(Ending::StoppedByUser),
            Event::GaveUp { restarts: 5, last: Ending::Clean },
        ] {
            vitals.note(at(10_000), &restarting(), false);
            vitals.note(at(10_000), &last, false);
            vitals.note(at(99_000), &started(), false);
        }
        assert_eq!(vitals.recoveries.count, 2);
        assert_eq!(vitals.restarts, BTreeMap::from([("crash", 3), ("started", 2)]));
    }

    #[test]
    fn requests_that_are_merged_are_one_restart() {
        let mut vitals = Vitals::default();
        let by = Actor::Afresh("test");
        let requested = || Event::RestartRequested {
            pid: Some(7),
            reason: "new code".to_owned(),
            by: by.clone(),
        };
        vitals.note(at(0), &started(), false);
        for event in [requested(), requested(), started(), requested(), restarting(), started()] {
            vitals.note(at(1), &event, false);
        }
        assert_eq!(vitals.restarts, BTreeMap::from([("requested", 2)]));
        // One that waits for its second is told before the start of the one before.
        for event in [requested(), requested(), started(), started()] {
            vitals.note(at(1), &event, false);
        }
        assert_eq!(vitals.restarts, BTreeMap::from([("requested", 4)]));
        // One that is called off is none.
        for event in [requested(), Event::Stopped(Ending::StoppedByUser), started()] {
            vitals.note(at(2), &event, false);
        }
        assert_eq!(vitals.restarts, BTreeMap::from([("requested", 4), ("started", 1)]));
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let mut vitals = Vitals::default();
        let (reason, by) = ("new".to_owned(), Actor::Afresh("test"));
        vitals.note(at(0), &started(), false);
        vitals.note(at(0), &Event::RestartRequested { pid: None, reason, by }, false);
        vitals.note(at(0), &started(), false);
        vitals.note(at(0), &restarting(), false);
        vitals.note(at(70), &started(), false);
        vitals.health_checked(Duration::from_secs(3_600));
        let text = metrics(vitals).to_text();
        for line in [
            "# HELP afresh_info What runs: always 1.\n# TYPE afresh_info gauge\n",
            "afresh_info{version=\"0.1.0\",face=\"keep\"} 1\n",
            "# TYPE afresh_service_state gauge\n",
            "afresh_service_state{service=\"a\\\"b\\\\c\\nd\",state=\"crash loop\"} 1\n",
            "afresh_service_state{service=\"a\\\"b\\\\c\\nd\",state=\"running\"} 0\n",
            "_restarts_total{service=\"a\\\"b\\\\c\\nd\",reason=\"crash\"} 1\n",
            "_restarts_total{service=\"a\\\"b\\\\c\\nd\",reason=\"requested\"} 1\n",
            "_recovery_seconds_bucket{service=\"a\\\"b\\\\c\\nd\",le=\"0.05\"} 0\n",
            "_recovery_seconds_bucket{service=\"a\\\"b\\\\c\\nd\",le=\"0.1\"} 1\n",
            "_recovery_seconds_bucket{service=\"a\\\"b\\\\c\\nd\",le=\"300\"} 1\n",
            "_recovery_seconds_sum{service=\"a\\\"b\\\\c\\nd\"} 0.07\n",
            "_health_check_seconds_bucket{service=\"a\\\"b\\\\c\\nd\",le=\"300\"} 0\n",
            "_health_check_seconds_bucket{service=\"a\\\"b\\\\c\\nd\",le=\"+Inf\"} 1\n",
            "_resident_memory_bytes{service=\"a\\\"b\\\\c\\nd\"} 4096\n",
            "_cpu_seconds_total{service=\"a\\\"b\\\\c\\nd\"} 0.25\n",
            "process_resident_memory_bytes 1024\n",
            "process_cpu_seconds_total 1.5\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
    }

    #[test]
    fn without_services_there_are_no_families_of_them() {
        let text = Metrics { services: Vec::new(), ..metrics(Vitals::default()) }.to_text();
        assert!(!text.contains("afresh_service"), "{text}");
    }

    #[test]
    fn restarts_are_counted_by_what_they_followed() {
        // S9
        let mut run = RunMetrics::default();
        let began =
            |kind| Record::AttemptBegan { attempt: Attempt(1), phase: "A".to_owned(), kind };
        let ended = |cause| Record::AttemptEnded {
            attempt: Attempt(1),
            cause,
            handoff: None,
            detail: String::new(),
        };
        for record in [
            began(Kind::First),
            ended(Cause::ContextLimitRestart),
            began(Kind::Restart(1)),
            ended(Cause::Done),
            began(Kind::Remediation(1)),
            ended(Cause::Stopped),
        ] {
            run.note(&record);
        }
        assert_eq!(run.restarts, BTreeMap::from([("CONTEXT_LIMIT_RESTART".to_owned(), 1)]));
        assert_eq!((run.sessions.len(), run.sessions["DONE"], run.remediations), (3, 1, 1));
    }

    #[test]
    fn pages_of_several_are_one_page() {
        let page = |events: u32, more: &str| {
            format!(
                "# HELP events Told.\n# TYPE events counter\nevents {events}\n\
                 # HELP state Is.\n# TYPE state gauge\nstate{{name=\"a b{{\"}} 1\n{more}"
            )
        };
        let more = "# HELP other Else.\n# TYPE other gauge\nother 7\n";
        assert_eq!(joined(&[(5, page(1, ""))]), page(1, ""));
        assert_eq!(joined(&[]), "");
        assert_eq!(
            joined(&[(5, page(1, "")), (6, page(2, more))]),
            "# HELP events Told.\n# TYPE events counter\n\
             events{supervisor_pid=\"5\"} 1\nevents{supervisor_pid=\"6\"} 2\n\
             # HELP state Is.\n# TYPE state gauge\n\
             state{supervisor_pid=\"5\",name=\"a b{\"} 1\nstate{supervisor_pid=\"6\",name=\"a b{\"} 1\n\
             # HELP other Else.\n# TYPE other gauge\nother{supervisor_pid=\"6\"} 7\n"
        );
    }
}
