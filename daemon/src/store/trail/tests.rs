//! The trail against real files, other processes, full disks and kills.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use afresh_core::audit::{EventType, Level};
use afresh_core::limits::{
    TRAIL_FILE_BYTES_MAX, TRAIL_FILES_KEPT, TRAIL_LINE_BYTES_MAX, TRAIL_LOCK_WAIT,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};

use super::*;
use crate::store::history::{Filter, History, HistoryEntry};
use crate::store::testing::{TempDir, wait_for};

pub(in crate::store) fn event(n: u64) -> Record {
    Record {
        level: Level::Info,
        logger: "afresh.test".to_owned(),
        message: "Something happened".to_owned(),
        event_type: EventType::ServerStarted,
        props: vec![("n", n.into()), ("writer", std::process::id().into())],
    }
}

pub(in crate::store) fn number(entry: &HistoryEntry) -> u64 {
    entry.value["props"]["n"].as_u64().expect("a numbered record")
}

pub(in crate::store) fn numbers(path: &Path) -> Vec<u64> {
    let entries = read(path);
    entries.iter().filter(|e| e.event_type() == Some("server_started")).map(number).collect()
}

/// All records, each line of which must be whole.
fn read(path: &Path) -> Vec<HistoryEntry> {
    let mut history = History::open(path, Filter::default()).unwrap();
    let entries = history.by_ref().map(|entry| entry.unwrap()).collect();
    assert_eq!(history.damaged(), 0);
    entries
}

fn event_types(path: &Path) -> Vec<String> {
    read(path).iter().map(|e| e.event_type().unwrap().to_owned()).collect()
}

impl Trail {
    /// Like [`announce`](Self::announce), for threads.
    pub(in crate::store) fn announce_blocking(&self, record: Record) -> Result<(), AnnounceError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.announce(record))
    }
}

/// A trail and what it tells.
fn open(path: &Path) -> (Trail, Receiver<String>) {
    let (sender, notices) = mpsc::sync_channel(100);
    let limits = (TRAIL_FILE_BYTES_MAX, TRAIL_FILES_KEPT);
    let (file_bytes_max, files_kept) = limits;
    let settings = Settings { path: WritePath::named(path), file_bytes_max, files_kept };
    let trail = Trail::open(settings, move |notice| sender.try_send(notice).unwrap());
    (trail, notices)
}

fn close(trail: &Trail) {
    trail.close(Duration::from_secs(30)).unwrap();
}

fn next(notices: &Receiver<String>) -> String {
    notices.recv_timeout(Duration::from_secs(30)).unwrap()
}

#[test]
fn after_a_jump_of_the_clock_stamps_are_true_again_and_the_order_is_kept() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let at =
        |hours: u64| Stamp::since_unix_epoch(Duration::from_secs(1_800_000_000 + hours * 3600));
    // Set forward by a year and back again, then back by a day and forward again.
    let times = [at(24), at(24 * 366), at(25), at(1), at(26)];
    let clock = Mutex::new(times.into_iter());
    let settings =
        Settings { path: WritePath::named(&path), file_bytes_max: 1 << 20, files_kept: 1 };
    let clock = move || locked(&clock).next().expect("a stamp for each record");
    let trail = Trail::open_with_clock(settings, clock, |_| {});
    for n in 0..5 {
        trail.announce_blocking(event(n)).unwrap();
    }
    close(&trail);
    assert_eq!(numbers(&path), [0, 1, 2, 3, 4]);
    let stamps: Vec<_> = read(&path).iter().map(|entry| entry.stamp.unwrap()).collect();
    assert_eq!(stamps, times);
    // `--since` finds what came after a record with an earlier stamp.
    let filter = Filter { since: Some(at(25)), ..Filter::default() };
    let since = History::open(&path, filter).unwrap();
    assert_eq!(since.map(|entry| number(&entry.unwrap())).collect::<Vec<_>>(), [1, 2, 4]);
}

#[test]
fn records_are_written_in_order() {
    let dir = TempDir::new();
    let path = dir.join("deep/er/audit.jsonl");
    let (trail, notices) = open(&path);
    for n in 0..500 {
        trail.append(event(n));
    }
    close(&trail);
    assert_eq!(numbers(&path), Vec::from_iter(0..500));
    assert!(read(&path).is_sorted_by_key(|entry| entry.stamp.unwrap()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(notices.try_recv().is_err());
    assert!(matches!(trail.announce_blocking(event(1)), Err(AnnounceError::Closed)));
}

#[tokio::test]
async fn an_announced_record_is_on_disk() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let (trail, _notices) = open(&path);
    trail.announce(event(1)).await.unwrap();
    assert_eq!(numbers(&path), [1]);
    trail.announce(event(2)).await.unwrap();
    assert_eq!(numbers(&path), [1, 2]);
    close(&trail);
}

#[test]
fn secrets_and_long_values_stay_out() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let (trail, _notices) = open(&path);
    let mut record = event(1);
    record.message = "with --token abc1".to_owned();
    record.props.push(("text", "x y ".repeat(TRAIL_LINE_BYTES_MAX).into()));
    trail.announce_blocking(record).unwrap();
    let entry = &read(&path)[0];
    assert_eq!(entry.message(), Some("with --token [redacted]"));
    assert!(entry.line.len() < TRAIL_LINE_BYTES_MAX);
    close(&trail);
}

#[test]
fn rotation_keeps_the_newest_files() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let settings = Settings { path: WritePath::named(&path), file_bytes_max: 1000, files_kept: 2 };
    let trail = Trail::open(settings, |notice| panic!("{notice:?}"));
    for n in 0..50 {
        trail.append(event(n));
    }
    close(&trail);
    let found = numbers(&path);
    assert!(found.len() < 30 && found.is_sorted() && found.last() == Some(&49), "{found:?}");
    let mut names: Vec<_> = fs::read_dir(dir.join(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]);
    for name in names {
        assert!(fs::metadata(dir.join(name)).unwrap().len() <= 1000);
    }
}

#[test]
fn a_file_that_cannot_be_rotated_grows_and_this_is_told() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    // A folder with something in it can't be renamed over.
    fs::create_dir_all(dir.join("audit.jsonl.1/x")).unwrap();
    let settings = Settings { path: WritePath::named(&path), file_bytes_max: 300, files_kept: 1 };
    let (sender, notices) = mpsc::sync_channel(100);
    let trail = Trail::open(settings, move |notice| sender.try_send(notice).unwrap());
    for n in 0..10 {
        trail.append(event(n));
    }
    close(&trail);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 10);
    assert!(next(&notices).contains("cannot be rotated"));
    assert!(notices.try_recv().is_err());
}

#[test]
fn a_deleted_file_or_folder_is_made_again() {
    let dir = TempDir::new();
    let path = dir.join("state/audit.jsonl");
    let (trail, _notices) = open(&path);
    trail.announce_blocking(event(0)).unwrap();
    fs::remove_file(&path).unwrap();
    trail.announce_blocking(event(1)).unwrap();
    assert_eq!(numbers(&path), [1]);
    fs::write(dir.join("other"), "").unwrap();
    fs::rename(dir.join("other"), &path).unwrap();
    trail.announce_blocking(event(2)).unwrap();
    assert_eq!(numbers(&path), [2]);
    fs::remove_dir_all(dir.join("state")).unwrap();
    trail.announce_blocking(event(3)).unwrap();
    assert_eq!(numbers(&path), [3]);
    close(&trail);
}

#[test]
fn a_torn_line_is_cut_off_and_put_on_record() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let whole = event(0).to_safe_line(now());
    let torn = format!("{{\"token\":\"hush1\",\"text\":\"{}\u{1F980}", "\0".repeat(9000));
    fs::write(&path, format!("{whole}{}", &torn)).unwrap();
    let (trail, _notices) = open(&path);
    trail.announce_blocking(event(1)).unwrap();
    assert_eq!(event_types(&path), ["server_started", "trail_repaired", "server_started"]);
    let repaired = &read(&path)[1];
    assert_eq!(repaired.level, Some(Level::Warning));
    assert_eq!(repaired.value["logger"], "afresh.trail");
    assert_eq!(repaired.value["props"]["bytes"], torn.len());
    let fragment = repaired.value["props"]["fragment"].as_str().unwrap();
    assert!(fragment.starts_with("{\"token\":\"[redacted]\"") && fragment.len() <= 1034);

    // Torn while the file is open; nothing but a torn line; a record that lacks only its end.
    let append = |text: &str| {
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    };
    append("{");
    trail.announce_blocking(event(2)).unwrap();
    append(event(3).to_safe_line(now()).trim_end());
    trail.announce_blocking(event(4)).unwrap();
    assert_eq!(numbers(&path), [0, 1, 2, 3, 4]);
    assert_eq!(event_types(&path).iter().filter(|e| *e == "trail_repaired").count(), 2);
    fs::write(&path, "{").unwrap();
    trail.announce_blocking(event(5)).unwrap();
    assert_eq!(event_types(&path), ["trail_repaired", "server_started"]);
    close(&trail);
}

#[test]
fn a_full_disk_is_told_and_put_on_record_when_it_is_over() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    symlink("/dev/full", &path).unwrap();
    let (trail, notices) = open(&path);
    let error = trail.announce_blocking(event(0)).unwrap_err();
    assert!(matches!(error, AnnounceError::Write(_)), "{error}");
    let text = next(&notices);
    let start = format!("trail: 1 record could not be written to `{}`", path.display());
    assert!(text.starts_with(&start) && text.contains("No space left on device"), "{text}");
    for n in 1..5 {
        trail.append(event(n));
    }
    assert!(trail.announce_blocking(event(5)).is_err());
    assert!(notices.try_recv().is_err(), "the next notice is not due yet");

    fs::remove_file(&path).unwrap();
    trail.announce_blocking(event(6)).unwrap();
    assert_eq!(event_types(&path), ["trail_records_lost", "server_started"]);
    assert_eq!(read(&path)[0].value["props"]["count"], 6);
    assert_eq!(numbers(&path), [6]);
    assert!(next(&notices).contains("can be written again; 6 records were lost"));
    assert!(read(&path).is_sorted_by_key(|entry| entry.stamp.unwrap()));
    close(&trail);
}

#[test]
fn what_is_no_file_gives_a_clear_error() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("folder")).unwrap();
    mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
    symlink(dir.join("nothing"), dir.join("dangling")).unwrap();
    fs::write(dir.join("file"), "").unwrap();
    for (path, problem) in [
        ("folder", "it is a directory, not a file"),
        ("fifo", "it is a FIFO, not a file"),
        ("dangling", "it is a symbolic link to nothing, not a file"),
        // Permission denied does not stop root; this does.
        ("file/audit.jsonl", "cannot create the folder"),
    ] {
        let (trail, notices) = open(&dir.join(path));
        trail.append(event(0));
        let text = next(&notices);
        assert!(text.contains(problem), "{text}");
        let closed = trail.close(Duration::from_secs(30));
        assert!(matches!(closed, Err(CloseTrailError::Lost(1))), "{closed:?}");
    }
    assert!(!dir.join("nothing").exists());
}

#[test]
fn a_full_queue_loses_records_and_says_so() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let holder = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    holder.lock().unwrap();
    let (trail, notices) = open(&path);
    // While the writer waits for the lock, nobody empties the queue.
    let total = 2 * TRAIL_QUEUE_LEN_MAX as u64 + 10;
    for n in 0..total {
        trail.append(event(n));
    }
    drop(holder);
    close(&trail);
    let text = next(&notices);
    assert!(text.contains("others wait for the disk"), "{text}");
    // The first may be on record before the last is lost.
    let entries = read(&path);
    let lost = entries.iter().filter(|e| e.event_type() == Some("trail_records_lost"));
    let count: u64 = lost.map(|e| e.value["props"]["count"].as_u64().unwrap()).sum();
    assert_eq!(numbers(&path).len() as u64 + count, total);
}

/// Not a test by itself: the process that others start, hold up and kill. It announces records
/// until it is killed, and reports each one that is on disk.
#[test]
fn writer_process() {
    let Ok(path) = std::env::var("AFRESH_TEST_TRAIL") else {
        return;
    };
    let settings =
        Settings { path: WritePath::named(path), file_bytes_max: 4000, files_kept: 5000 };
    let trail = Trail::open(settings, |_| {});
    let count: u64 = std::env::var("AFRESH_TEST_COUNT").unwrap().parse().unwrap();
    for n in 0..count {
        trail.append(event(2 * n));
        if trail.announce_blocking(event(2 * n + 1)).is_err() {
            return;
        }
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "ack {}", 2 * n + 1).unwrap();
        stdout.flush().unwrap();
    }
}

/// Killed when it goes out of scope, whatever the test does.
struct Writing(Child);

impl Writing {
    fn start(path: &Path, count: u64) -> Self {
        Self::start_by(&mut Command::new("env"), path, count)
    }

    /// Starts it by another program, which executes its arguments.
    fn start_by(command: &mut Command, path: &Path, count: u64) -> Self {
        let child = command
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "store::trail::tests::writer_process", "--nocapture"])
            .env("AFRESH_TEST_TRAIL", path)
            .env("AFRESH_TEST_COUNT", count.to_string())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.unwrap())
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// What it has on disk, after it ended.
    fn acknowledged(&mut self) -> Vec<(u32, u64)> {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let acks = lines
            .filter_map(|line| line.unwrap().strip_prefix("ack ").and_then(|n| n.parse().ok()))
            .map(|n| (self.0.id(), n))
            .collect();
        self.0.wait().unwrap();
        acks
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn writers_and_numbers(path: &Path) -> Vec<(u32, u64)> {
    let entries = read(path);
    let ours = entries.iter().filter(|e| e.event_type() == Some("server_started"));
    let writer =
        |e: &HistoryEntry| u32::try_from(e.value["props"]["writer"].as_u64().unwrap()).unwrap();
    ours.map(|entry| (writer(entry), number(entry))).collect()
}

#[test]
fn many_processes_write_and_rotate_without_a_loss() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let mut writers: Vec<_> = (0..4).map(|_| Writing::start(&path, 100)).collect();
    let mut expected = Vec::new();
    for writer in &mut writers {
        assert_eq!(writer.acknowledged().len(), 100);
        expected.extend((0..200).map(|n| (writer.0.id(), n)));
    }
    let mut found = writers_and_numbers(&path);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert!(dir.join("audit.jsonl.5").exists(), "it was rotated");
}

#[test]
fn what_was_acknowledged_survives_kills_at_random_points() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    let mut acknowledged = Vec::new();
    let mut seed = u64::from(std::process::id());
    for round in 0..50 {
        let mut writers: Vec<_> = (0..2).map(|_| Writing::start(&path, u64::MAX / 4)).collect();
        for writer in &mut writers {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            // Somewhere after the first records; where exactly is left to chance.
            let mut lines = BufReader::new(writer.0.stdout.take().unwrap()).lines();
            let mut left = 1 + (seed >> 33) % 8;
            while left > 0 {
                let line = lines.next().expect("it runs until it is killed").unwrap();
                if let Some(n) = line.strip_prefix("ack ") {
                    acknowledged.push((writer.0.id(), n.parse().unwrap()));
                    left -= 1;
                }
            }
            for _ in 0..(seed >> 40) % 5000 {
                std::hint::spin_loop();
            }
            writer.signal(Signal::SIGKILL);
            let rest = lines.map(|line| line.unwrap());
            acknowledged.extend(rest.filter_map(|line| {
                Some((writer.0.id(), line.strip_prefix("ack ")?.parse().ok()?))
            }));
        }
    }
    let (trail, _notices) = open(&path);
    trail.announce_blocking(event(0)).unwrap(); // Repairs what the last one left.
    close(&trail);

    let mut found = writers_and_numbers(&path);
    found.sort_unstable();
    assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "no record stands there twice");
    for record in &acknowledged {
        assert!(found.binary_search(record).is_ok(), "{record:?} is lost");
    }
    assert!(acknowledged.len() >= 100);
}

#[test]
fn a_record_that_fits_only_in_part_is_taken_out_again() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    // A limit on the length of files cuts a write short, as a full disk does.
    let mut writer = Writing::start_by(
        Command::new("sh").args(["-c", r#"trap "" XFSZ; ulimit -f 2; exec "$0" "$@""#]),
        &path,
        1000,
    );
    let acknowledged = writer.acknowledged();
    assert!(!acknowledged.is_empty() && acknowledged.len() < 1000);
    let content = fs::read_to_string(&path).unwrap();
    assert!(content.ends_with("}\n"), "{content}");
    assert!(content.len() < 2048 && !content.len().is_multiple_of(512));
    let found = writers_and_numbers(&path);
    assert!(acknowledged.iter().all(|record| found.contains(record)));
}

#[test]
fn a_stopped_process_that_holds_the_lock_holds_up_nobody_else() {
    let dir = TempDir::new();
    let path = dir.join("audit.jsonl");
    fs::write(&path, "{").unwrap();
    // The lock belongs to the open file, which a stopped child shares.
    let holder = OpenOptions::new().append(true).open(&path).unwrap();
    holder.lock().unwrap();
    let mut child =
        Writing(Command::new("sleep").arg("600").stdin(Stdio::from(holder)).spawn().unwrap());
    child.signal(Signal::SIGSTOP);
    let (trail, notices) = open(&path);
    let start = Instant::now();
    trail.announce_blocking(event(1)).unwrap();
    assert!(start.elapsed() >= TRAIL_LOCK_WAIT);
    // Without the lock nothing is cut, and our record is not joined to the torn line.
    let content = fs::read_to_string(&path).unwrap();
    assert!(content.starts_with("{\n{\"timestamp\""), "{content}");
    assert!(notices.try_recv().is_err());

    child.0.kill().unwrap();
    child.0.wait().unwrap();
    trail.announce_blocking(event(2)).unwrap();
    close(&trail);
    wait_for("both records", || fs::read_to_string(&path).unwrap().lines().count() == 3);
}
