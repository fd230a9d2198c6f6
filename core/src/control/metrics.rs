//! Owns the counters of a service and their text in the format of Prometheus. Driven by its events. Never samples
//! processes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

pub use super::metrics_run::RunMetrics;
use super::{Face, State, UsageStatus};
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
                (self.down_since, self.next_follows) = (None, None);
                return;
            }
            _ => return,
        };
        self.next_follows.get_or_insert(reason);
    }

    /// Counts as the status of a service does: by instances, not by what was asked for.
    fn begun(&mut self) {
        let follows = self.next_follows.take();
        if std::mem::replace(&mut self.has_begun, true) {
            *self.restarts.entry(follows.unwrap_or("started")).or_default() += 1;
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

/// What is shown of them.
type Measure = fn(&Vitals) -> &Histogram;

/// What is shown of what a service uses.
type OfUsage = fn(UsageStatus) -> f64;

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
        if !self.services.is_empty() {
            self.write_services(&mut page);
            super::metrics_run::write(&self.services, &mut page);
        }
        page.0
    }

    fn write_services(&self, page: &mut MetricsText) {
        let name = "afresh_service_state";
        page.family(
            name,
            "gauge",
            "The state of a service: 1 for the one it is in, 0 for the others.",
        );
        for service in &self.services {
            for word in State::WORDS {
                let value = if service.state.word() == word { 1.0 } else { 0.0 };
                page.sample(name, &[("service", &service.name), ("state", word)], value);
            }
        }
        let name = "afresh_service_uptime_seconds";
        page.family(name, "gauge", "How long the current process has run; 0 where there is none.");
        for service in &self.services {
            let uptime = service.uptime.unwrap_or_default().as_secs_f64();
            page.sample(name, &[("service", &service.name)], uptime);
        }
        self.write_usage(page);
        let name = "afresh_service_restarts_total";
        page.family(name, "counter", "Restarts, by what they followed.");
        for service in &self.services {
            for (reason, count) in &service.vitals.restarts {
                let labels = [("service", service.name.as_str()), ("reason", reason)];
                page.sample(name, &labels, *count as f64);
            }
        }
        let histograms: [(_, _, Measure); 2] = [
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
        for (name, help, of) in histograms {
            page.family(name, "histogram", help);
            for service in &self.services {
                page.histogram(name, &service.name, of(&service.vitals));
            }
        }
    }
}

impl Metrics {
    /// What services use. One that does not run has no samples.
    fn write_usage(&self, page: &mut MetricsText) {
        let measures: [(_, _, _, OfUsage); 2] = [
            (
                "afresh_service_resident_memory_bytes",
                "gauge",
                "Resident memory of the current process and its descendants.",
                |usage| usage.memory_bytes as f64,
            ),
            (
                "afresh_service_cpu_seconds_total",
                "counter",
                "Processor time of the current process and its descendants.",
                |usage| Duration::from_millis(usage.cpu_ms).as_secs_f64(),
            ),
        ];
        for (name, kind, help, of) in measures {
            page.family(name, kind, help);
            for service in &self.services {
                if let Some(usage) = service.usage {
                    page.sample(name, &[("service", &service.name)], of(usage));
                }
            }
        }
    }
}

/// The text format of Prometheus, version 0.0.4.
#[derive(Default)]
pub(super) struct MetricsText(String);

impl MetricsText {
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").ok();
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        writeln!(self.0, "{name}{labels} {value}").ok();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Generation;
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
        let requested = || Event::RestartRequested { pid: Some(7), reason: "new code".to_owned() };
        vitals.note(at(0), &started(), false);
        for event in [requested(), requested(), started(), requested(), restarting(), started()] {
            vitals.note(at(1), &event, false);
        }
        assert_eq!(vitals.restarts, BTreeMap::from([("requested", 2)]));
        // One that is called off is none.
        for event in [requested(), Event::Stopped(Ending::StoppedByUser), started()] {
            vitals.note(at(2), &event, false);
        }
        assert_eq!(vitals.restarts, BTreeMap::from([("requested", 2), ("started", 1)]));
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let mut vitals = Vitals::default();
        let reason = "new".to_owned();
        vitals.note(at(0), &started(), false);
        vitals.note(at(0), &Event::RestartRequested { pid: None, reason }, false);
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
}
