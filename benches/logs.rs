//! A burst of output, through afresh to its log on disk: how many lines a second, and whether all are
//! there in order. Beside it the same burst straight into a file, and through a pipe that a bare pump
//! copies into one.

#![expect(clippy::disallowed_types, reason = "real processes run by the real clock")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use afresh_core::control::LogStream;
use afresh_core::log_line::LogHead;
use afresh_tests::measure::{Report, Samples, bench, millis};
use afresh_tests::{TestEnv, afresh_binary};

const LINES: u32 = 100_000;
const ROUNDS: usize = 15;

/// Takes one burst, and says how long that took.
type Way = fn(&TestEnv) -> Duration;

fn main() -> ExitCode {
    bench("logs: a burst of 100,000 lines", run)
}

fn run(report: &mut Report) {
    report.row("", &["median", "slowest", "lines/s"]);
    let env = TestEnv::new();
    let ways: [(&str, Way); 4] = [
        ("straight into a file", into_file),
        ("a bare pump into a file", pumped),
        ("afresh keep --log, one file", |env| logged(env, "16MiB")),
        ("afresh keep --log, 1 MiB each", |env| logged(env, "1MiB")),
    ];
    let mut samples: [Samples; 4] = Default::default();
    for round in 0..=ROUNDS {
        for ((_, way), samples) in ways.iter().zip(&mut samples) {
            let took = way(&env);
            // The first round is to warm up.
            if round > 0 {
                samples.push(took);
            }
        }
    }
    let mut rates = Vec::new();
    for ((name, _), samples) in ways.iter().zip(&samples) {
        let rate = f64::from(LINES) / samples.median().as_secs_f64();
        let columns = [millis(samples.median()), millis(samples.quantile(1.0))];
        report.row(name, &[&columns[0], &columns[1], &format!("{rate:.0}")]);
        rates.push(rate);
    }
    report.note("every burst was complete and in order");
    report.target_least("afresh, lines per second", rates[2], 400_000.0, "");
    report.target_least("afresh, with rotations, lines per second", rates[3], 400_000.0, "");
    env.assert_nothing_left();
}

/// Lines such as a server writes, as fast as they go.
fn burst() -> Command {
    let mut command = Command::new(afresh_binary().with_file_name("hostile"));
    command.args(["burst", &LINES.to_string()]);
    command
}

fn into_file(env: &TestEnv) -> Duration {
    let path = env.work().join("plain");
    let start = Instant::now();
    let file = File::create(&path).expect("it is ours");
    assert!(burst().stdout(file).status().expect("it starts").success());
    let took = start.elapsed();
    check(lines_of(&path).iter().map(Vec::as_slice));
    took
}

fn pumped(env: &TestEnv) -> Duration {
    let path = env.work().join("pumped");
    let start = Instant::now();
    let mut child = burst().stdout(Stdio::piped()).spawn().expect("it starts");
    let mut pipe = child.stdout.take().expect("it is piped");
    let mut file = File::create(&path).expect("it is ours");
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match pipe.read(&mut buffer).expect("a pipe") {
            0 => break,
            length => file.write_all(&buffer[..length]).expect("there is room"),
        }
    }
    assert!(child.wait().expect("our child").success());
    let took = start.elapsed();
    check(lines_of(&path).iter().map(Vec::as_slice));
    took
}

/// With the start and the end of afresh itself.
fn logged(env: &TestEnv, size: &str) -> Duration {
    let logs = env.work().join(".afresh/logs");
    fs::remove_dir_all(&logs).ok();
    let command = burst();
    let sizes = ["--log", "--log-size", size, "--log-files", "19"];
    let flags = [&["keep", "--policy", "never", "--name", "burst"], &sizes[..], &["--"]].concat();
    let mut afresh = env.afresh(&flags);
    afresh.arg(command.get_program()).args(command.get_args());
    afresh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    assert!(afresh.status().expect("it starts").success());
    let took = start.elapsed();
    let mut found = Vec::new();
    for number in (0..20).rev() {
        let name = if number == 0 { "burst.log".to_owned() } else { format!("burst.log.{number}") };
        found.extend(lines_of(&logs.join(name)));
    }
    check(found.iter().filter_map(|line| {
        let (head, text) = LogHead::parse(line)?;
        (head.stream == LogStream::Stdout).then_some(text)
    }));
    took
}

fn lines_of(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap_or_default();
    bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// Every line is there, once, and in its place.
fn check<'a>(lines: impl Iterator<Item = &'a [u8]>) {
    let numbers = lines.filter(|line| !line.is_empty()).map(|line| -> u32 {
        let number = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).expect("a number")
    });
    assert!(numbers.eq(0..LINES), "complete and in order");
}
