//! What the benches share: samples, memory and activity of processes, and the verdict.

#![expect(clippy::print_stdout, reason = "a bench prints its results")]

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::process::{self, Process};
use crate::{Running, TestEnv, afresh_binary, wait_for};

/// Runs a bench and prints its verdict; the exit code is 1 when a target was missed.
///
/// Does nothing but in `cargo bench`: `cargo test --all-targets` runs the benches too.
pub fn bench(title: &str, run: impl FnOnce(&mut Report)) -> ExitCode {
    if !std::env::args().any(|word| word == "--bench") {
        println!("{title}: run by `cargo bench`");
        return ExitCode::SUCCESS;
    }
    // Built before the clock runs, and before the first line of a table.
    afresh_binary();
    println!("\n{title}\n");
    let mut report = Report { missed: 0, figures: Vec::new() };
    run(&mut report);
    if let Some(folder) = std::env::var_os(JSON_FOLDER) {
        let name = title.split(':').next().unwrap_or(title);
        let path = PathBuf::from(folder).join(format!("{name}.json"));
        let version = env!("CARGO_PKG_VERSION");
        let all = json!({"bench": title, "afresh": version, "figures": report.figures});
        fs::write(&path, format!("{all:#}\n"))
            .expect("the folder of AFRESH_BENCH_JSON is writable");
        println!("\n  figures: {}", path.display());
    }
    ExitCode::from(u8::from(report.missed > 0))
}

/// The folder that benches write their figures to, as JSON.
const JSON_FOLDER: &str = "AFRESH_BENCH_JSON";

/// What a bench prints.
#[derive(Debug)]
pub struct Report {
    missed: usize,
    figures: Vec<Value>,
}

impl Report {
    /// One line of a table: a name on the left, columns on the right.
    pub fn row(&self, name: &str, columns: &[&str]) {
        let columns: String = columns.iter().map(|column| format!("{column:>14}")).collect();
        println!("  {name:<34}{columns}");
    }

    /// A figure for programs: of this program, in this unit.
    pub fn figure(&mut self, what: &str, of: &str, value: f64, unit: &str) {
        let value = (value * 1e3).round() / 1e3;
        self.figures.push(json!({"what": what, "of": of, "value": value, "unit": unit}));
    }

    /// A line by itself.
    pub fn note(&self, text: &str) {
        println!("  {text}");
    }

    /// The verdict on one target.
    pub fn target(&mut self, what: &str, measured: f64, most: f64, unit: &str) {
        self.verdict(
            measured <= most,
            &format!("{what}: {measured:.2}{unit}, target at most {most}{unit}"),
        );
    }

    /// The verdict on one where more is better.
    pub fn target_least(&mut self, what: &str, measured: f64, least: f64, unit: &str) {
        self.verdict(
            measured >= least,
            &format!("{what}: {measured:.2}{unit}, target at least {least}{unit}"),
        );
    }

    fn verdict(&mut self, met: bool, text: &str) {
        self.missed += usize::from(!met);
        println!("{}  {text}", if met { "PASS" } else { "FAIL" });
    }
}

/// Measured times of one thing.
#[derive(Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Takes one more in.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The median of what each is more than the other's of the same round, in milliseconds: what
    /// burdens the machine for a while burdens both. Panics without samples.
    pub fn median_added_to(&self, other: &Self) -> f64 {
        let pairs = self.0.iter().zip(&other.0);
        let mut added: Vec<f64> =
            pairs.map(|(own, other)| (own.as_secs_f64() - other.as_secs_f64()) * 1e3).collect();
        added.sort_by(f64::total_cmp);
        added[added.len() / 2]
    }

    /// The time that this part of them, between 0 and 1, does not exceed. Panics without samples.
    pub fn quantile(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().checked_sub(1).expect("there are samples");
        sorted[(last as f64 * part).round() as usize]
    }

    /// The middle one.
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }
}

/// A time as a column.
pub fn micros(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

/// A time as a column.
pub fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

impl TestEnv {
    /// Starts `afresh` with so many services that do nothing, and waits until nothing is left to do.
    pub fn idle_services(&self, copies: usize) -> Supervised {
        let hostile = afresh_binary().with_file_name("hostile");
        let copies_text = copies.to_string();
        let mut command = self.afresh(&["keep", "--policy", "never", "--copies", &copies_text]);
        command.arg("--").arg(hostile).arg("idle");
        let supervised = Supervised(Running::start(command));
        wait_for("all services run", || {
            Household::of(supervised.pid())
                .is_some_and(|household| household.services.len() == copies)
        });
        wait_for("all starts are on record", || self.events("server_started").len() == copies);
        supervised.wait_for_rest();
        supervised
    }
}

/// An `afresh` with services.
#[derive(Debug)]
pub struct Supervised(Running);

impl Supervised {
    /// The supervisor's process id.
    pub fn pid(&self) -> i32 {
        self.0.pid()
    }

    /// Ends it in order.
    #[track_caller]
    pub fn end(&mut self) {
        self.0.signal(Signal::SIGTERM);
        self.0.wait();
    }

    /// Waits until none of its processes has been on a CPU for a while.
    fn wait_for_rest(&self) {
        let look = || {
            std::thread::sleep(REST);
            let household = Household::of(self.pid()).expect("it runs");
            Activity::of(household.own()).switches
        };
        let mut before = look();
        wait_for("afresh is at rest", || {
            let now = look();
            std::mem::replace(&mut before, now) == now
        });
    }
}

/// Far longer than any step of a start takes, such as bringing the trail to disk.
const REST: Duration = Duration::from_millis(500);

/// The processes of one `afresh`, its services' not counted.
#[derive(Debug)]
pub struct Household {
    /// The one that was started.
    pub supervisor: i32,
    /// The one that makes guardians.
    pub warden: i32,
    /// One for each service.
    pub guardians: Vec<i32>,
    /// What the guardians guard.
    pub services: Vec<i32>,
}

impl Household {
    /// Looks for what is below a supervisor; none while it has no warden.
    pub fn of(supervisor: i32) -> Option<Self> {
        let all = process::all();
        let warden = pids(&all, &[supervisor], "afresh-warden").pop()?;
        let guardians = pids(&all, &[warden], "afresh-guardian");
        let services = pids(&all, &guardians, "hostile");
        Some(Self { supervisor, warden, guardians, services })
    }

    /// All of them but the services.
    pub fn own(&self) -> impl Iterator<Item = i32> {
        [self.supervisor, self.warden].into_iter().chain(self.guardians.iter().copied())
    }
}

fn pids(all: &[Process], parents: &[i32], name: &str) -> Vec<i32> {
    all.iter()
        .filter(|process| process.name == name && parents.contains(&process.parent))
        .map(|process| process.pid)
        .collect()
}

/// Memory of a process, in kB. All zero when it is gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// What it has in memory, shared or not.
    pub rss: u64,
    /// The same, with shared pages divided among those who share them.
    pub pss: u64,
    /// What belongs to no file: heap and stacks. Pages of files come and go with the kernel's cache.
    pub anonymous: u64,
    /// What no other process shares: it is free again when the process ends.
    pub private: u64,
}

impl Memory {
    /// That of one process.
    pub fn of(pid: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let field = |name| field(&text, name);
        let private = field("Private_Clean:") + field("Private_Dirty:");
        Self { rss: field("Rss:"), pss: field("Pss:"), anonymous: field("Anonymous:"), private }
    }
}

/// What a process has done so far, in all of its threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Activity {
    /// Clock ticks of CPU, user and system.
    pub ticks: u64,
    /// The same by the scheduler's own, finer count.
    pub nanoseconds: u64,
    /// How often it was put on a CPU, or off.
    pub switches: u64,
}

impl Activity {
    /// That of some processes together.
    pub fn of(pids: impl Iterator<Item = i32>) -> Self {
        let mut sum = Self::default();
        for pid in pids {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
            for task in tasks.flatten() {
                let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
                let status = read("status");
                sum.switches += field(&status, "voluntary_ctxt_switches:")
                    + field(&status, "nonvoluntary_ctxt_switches:");
                sum.nanoseconds += first_number(&read("schedstat"));
                sum.ticks += ticks(&read("stat"));
            }
        }
        sum
    }

    /// What was done since an earlier look.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ticks: self.ticks - earlier.ticks,
            nanoseconds: self.nanoseconds - earlier.nanoseconds,
            switches: self.switches - earlier.switches,
        }
    }
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0, first_number)
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The ticks that a process has used: the 14th and 15th field of `stat`, counted from behind the name, which may hold blanks.
pub fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let times = fields.split_whitespace().skip(11).take(2);
    times.filter_map(|time| time.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let mut samples = Samples::default();
        for millis in [5, 1, 4, 2, 3] {
            samples.push(Duration::from_millis(millis));
        }
        assert_eq!(samples.median(), Duration::from_millis(3));
        assert_eq!(samples.quantile(1.0), Duration::from_millis(5));
        let mut others = Samples::default();
        for millis in [3, 2, 3, 2, 3] {
            others.push(Duration::from_millis(millis));
        }
        assert_eq!(samples.median_added_to(&others).round(), 0.0);
    }

    #[test]
    fn our_own_figures_are_found() {
        let me = std::process::id().cast_signed();
        let memory = Memory::of(me);
        assert!(memory.rss >= memory.pss && memory.pss > 0);
        assert!(memory.rss > memory.anonymous && memory.anonymous > 0);
        assert!(Activity::of([me].into_iter()).switches > 0);
        assert_eq!(ticks("1 (a) b) S 0 0 0 0 0 0 0 0 0 0 7 5 9"), 12);
    }
}
