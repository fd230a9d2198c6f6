//! Logs on a real disk: order, rotation, age, losses, repair, reading and following.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use afresh_core::control::LogStream;
use afresh_core::definition::LogLimits;
use afresh_core::id::Generation;
use afresh_core::limits::{LINE_BYTES_MAX, SERVICE_LOG_QUEUE_BYTES_MAX};
use afresh_core::time::Stamp;

use super::read::{LogFollower, LogReader, LoggedLine, Query};
use super::*;
use crate::store::testing::TempDir;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

fn limits(file_bytes_max: u64, files_kept: u32) -> LogLimits {
    LogLimits { file_bytes_max, files_kept, age_max: None }
}

/// A writer, and what it tells.
fn start() -> (ServiceLogs, mpsc::Receiver<String>) {
    let (sender, told) = mpsc::sync_channel(1_000);
    (ServiceLogs::start(move |text| sender.send(text.to_owned()).unwrap()).unwrap(), told)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Hands lines in as a pump would, and waits until they are written.
fn write(logs: &ServiceLogs, log: &ServiceLog, stream: LogStream, text: &[u8]) {
    block_on(async {
        let mut tee = log.tee(Generation(1), stream);
        for chunk in text.chunks(16 * 1024) {
            tee.take(chunk.to_vec()).await;
        }
        tee.end().await;
        assert!(logs.flush().await);
    });
}

fn read(folder: &Path, query: Query) -> Vec<LoggedLine> {
    let mut reader = LogReader::open(folder, None, query).unwrap();
    let lines = std::iter::from_fn(|| reader.next_line().unwrap()).collect();
    assert_eq!((reader.damaged(), reader.take_missed()), (0, 0));
    lines
}

fn texts(lines: &[LoggedLine]) -> Vec<String> {
    lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect()
}

fn last(lines_max: usize) -> Query {
    Query { lines_max: Some(lines_max), ..Query::default() }
}

fn numbered(range: std::ops::Range<u32>) -> Vec<u8> {
    range.map(|n| format!("{n}\n")).collect::<String>().into_bytes()
}

#[test]
fn lines_are_whole_and_in_order_over_many_rotations() {
    let dir = TempDir::new();
    let (logs, told) = start();
    let log = logs.open(WritePath::beneath(&dir.join(""), "logs/web.log"), limits(100_000, 100));
    write(&logs, &log, LogStream::Stdout, &numbered(0..50_000));
    let found = texts(&read(&dir.join("logs"), Query::default()));
    assert_eq!(found.len(), 50_000);
    assert!(found.iter().enumerate().all(|(n, text)| *text == n.to_string()));
    for number in 1..20 {
        let file = fs::read(dir.join(format!("logs/web.log.{number}"))).unwrap();
        assert!(file.len() <= 100_000 && file.len() > 90_000 && file.ends_with(b"\n"));
    }
    assert!(told.try_recv().is_err());
    // The last ones are found from the end, however many.
    for count in [0, 1, 7, 3_000, 49_999, 50_000, 60_000] {
        let last = texts(&read(&dir.join("logs"), last(count)));
        assert_eq!(last, found[found.len() - count.min(found.len())..], "{count}");
    }
    let query = Query { grep: Some("4321".to_owned()), ..last(2) };
    assert_eq!(texts(&read(&dir.join("logs"), query)), ["43219", "44321"]);
}

#[test]
fn what_is_kept_stays_within_its_room() {
    let dir = TempDir::new();
    let (logs, _told) = start();
    for kept in [3, 1, 0] {
        let log =
            logs.open(WritePath::beneath(&dir.join(""), "logs/web.log"), limits(10_000, kept));
        write(&logs, &log, LogStream::Stdout, &numbered(0..10_000));
        let sizes = fs::read_dir(dir.join("logs")).unwrap().map(|e| e.unwrap().metadata().unwrap());
        let sizes: u64 = sizes.map(|metadata| metadata.len()).sum();
        assert!(sizes <= 10_000 * u64::from(kept + 1), "{sizes} with {kept}");
        let mut reader = LogReader::open(&dir.join("logs"), None, last(1)).unwrap();
        assert_eq!(reader.next_line().unwrap().unwrap().text, b"9999");
    }
}

#[test]
fn bytes_are_kept_as_they_came_and_long_lines_in_pieces() {
    let dir = TempDir::new();
    let (logs, _told) = start();
    let log = logs.open(WritePath::beneath(&dir.join(""), "logs/web.log"), LogLimits::default());
    let long = vec![b'x'; (1 << 20) + 1];
    let text = [b"\xff\x00\r\n\n# no head\n", &long[..], b"\nhalf"].concat();
    write(&logs, &log, LogStream::Stderr, &text);
    let lines = read(&dir.join("logs"), Query::default());
    let mut again = Vec::new();
    for line in &lines {
        assert!(line.text.len() <= LINE_BYTES_MAX && line.head.stream == LogStream::Stderr);
        again.extend_from_slice(&line.text);
        if !line.head.continues {
            again.push(b'\n');
        }
    }
    assert_eq!(again, [&text[..], b"\n"].concat());
    assert!(lines.iter().filter(|line| line.head.continues).count() >= 16);
}

#[test]
fn a_torn_line_is_mended_and_said() {
    let dir = TempDir::new();
    let path = dir.join("logs/web.log");
    let write_anew = |text: &[u8]| {
        let (logs, _told) = start();
        let log = logs.open(WritePath::named(&path), LogLimits::default());
        write(&logs, &log, LogStream::Stdout, text);
        drop((log, logs));
        crate::store::testing::wait_for("it is let go", || !is_written(&path));
    };
    write_anew(b"one\n");
    let whole = fs::read(&path).unwrap();
    for cut in 1..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        write_anew(b"two\n");
        let mut reader = LogReader::open(&dir.join("logs"), None, Query::default()).unwrap();
        let lines: Vec<LoggedLine> = std::iter::from_fn(|| reader.next_line().unwrap()).collect();
        let found = texts(&lines);
        assert_eq!(found.last().unwrap(), "two", "{cut}");
        assert!(reader.damaged() + found.len() as u64 <= 4, "{cut}: {found:?}");
        assert!(fs::read(&path).unwrap().starts_with(b"# afresh log 1, file "), "{cut}");
        fs::remove_file(dir.join("logs/web.log.1")).ok();
    }
}

#[test]
fn losses_are_said_once_and_written_into_the_log() {
    let dir = TempDir::new();
    let (logs, told) = start();
    let path = dir.join("logs/web.log");
    let log = logs.open(WritePath::named(&path), LogLimits::default());
    // Fails for root too.
    fs::create_dir_all(&path).unwrap();
    for n in 0..5 {
        log.say(Generation(2), &format!("lost {n}"));
    }
    write(&logs, &log, LogStream::Stdout, b"lost\nlost\n");
    let said = told.try_recv().unwrap();
    assert!(said.contains("web.log` cannot be written: it is a folder, not a file"), "{said}");
    assert!(told.try_recv().unwrap().ends_with("lacks 7 lines"));
    fs::remove_dir(&path).unwrap();
    log.say(Generation(3), "kept");
    block_on(logs.flush());
    let said = told.try_recv().unwrap();
    assert!(said.contains("is written again, and lacks 8 lines"), "{said}");
    log.say(Generation(3), "kept too");
    block_on(logs.flush());
    let found = texts(&read(&dir.join("logs"), Query::default()));
    let note = "[8 lines are missing here: it is a folder, not a file; remove it]";
    assert_eq!(found, [note, "kept too"]);
    assert!(told.try_recv().is_err());
}

#[test]
fn what_is_removed_is_made_again() {
    let dir = TempDir::new();
    let (logs, told) = start();
    let log =
        logs.open(WritePath::beneath(&dir.join(""), ".afresh/logs/web.log"), LogLimits::default());
    for n in 0..9 {
        write(&logs, &log, LogStream::Stdout, format!("{n}\n").as_bytes());
        match n % 3 {
            0 => fs::remove_file(dir.join(".afresh/logs/web.log")).unwrap(),
            1 => fs::remove_dir_all(dir.join(".afresh")).unwrap(),
            _ => fs::write(dir.join(".afresh/logs/web.log"), "").unwrap(),
        }
    }
    write(&logs, &log, LogStream::Stdout, b"last\n");
    assert_eq!(texts(&read(&dir.join(".afresh/logs"), Query::default())), ["last"]);
    assert!(dir.join(".afresh/.gitignore").exists());
    assert!(told.try_recv().is_err());
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let dir = TempDir::new();
    let (logs, told) = start();
    fs::create_dir_all(dir.join("logs")).unwrap();
    fs::write(dir.join("mine"), "mine\n").unwrap();
    std::os::unix::fs::symlink(dir.join("mine"), dir.join("logs/link.log")).unwrap();
    std::os::unix::fs::symlink(dir.join("nothing"), dir.join("logs/to-nothing.log")).unwrap();
    for name in ["link", "to-nothing"] {
        let log =
            logs.open(WritePath::beneath(&dir.join("logs"), file_name(name)), LogLimits::default());
        write(&logs, &log, LogStream::Stdout, b"x\n");
        assert!(told.try_recv().unwrap().contains("symbolic link"));
        assert!(told.try_recv().unwrap().ends_with("lacks 1 line"));
    }
    assert_eq!(fs::read(dir.join("mine")).unwrap(), b"mine\n");
    assert!(!dir.join("nothing").exists());
    // Somebody's file is kept, under a number.
    fs::write(dir.join("logs/other.log"), "somebody's\n").unwrap();
    let log = logs.open(WritePath::beneath(&dir.join(""), "logs/other.log"), LogLimits::default());
    write(&logs, &log, LogStream::Stdout, b"x\n");
    assert_eq!(fs::read(dir.join("logs/other.log.1")).unwrap(), b"somebody's\n");
}

#[test]
fn one_log_has_one_writer() {
    let dir = TempDir::new();
    let (one, _told) = start();
    let (other, told) = start();
    let path = dir.join("logs/web.log");
    let log = one.open(WritePath::named(&path), LogLimits::default());
    assert!(!is_written(&path));
    write(&one, &log, LogStream::Stdout, b"one\n");
    assert!(is_written(&path));
    write(
        &other,
        &other.open(WritePath::named(&path), LogLimits::default()),
        LogStream::Stdout,
        b"other\n",
    );
    assert!(told.try_recv().unwrap().contains("another afresh writes it"));
    assert_eq!(texts(&read(&dir.join("logs"), Query::default())), ["one"]);
    drop((log, one));
    crate::store::testing::wait_for("it is let go", || !is_written(&path));
}

#[test]
fn old_files_go() {
    let dir = TempDir::new();
    let (logs, _told) = start();
    let day = Duration::from_secs(86_400);
    let limits = LogLimits { age_max: Some(day), ..limits(100, 10) };
    let path = dir.join("logs/web.log");
    let log = logs.open(WritePath::named(&path), limits);
    write(&logs, &log, LogStream::Stdout, b"1\n2\n3\n4\n5\n6\n");
    assert!(dir.join("logs/web.log.2").exists());
    let old = fs::File::open(dir.join("logs/web.log.2")).unwrap();
    old.set_modified(SystemTime::now() - 2 * day).unwrap();
    // A file whose first line is too old makes way for a new one.
    let line = b"# afresh log 1, file 9\n2026-01-01T00:00:00.000Z stdout 1 old\n";
    fs::write(&path, line).unwrap();
    drop((log, logs));
    crate::store::testing::wait_for("it is let go", || !is_written(&path));
    let (logs, _told) = start();
    let limits = LogLimits { file_bytes_max: 100_000, ..limits };
    let log = logs.open(WritePath::named(&path), limits);
    write(&logs, &log, LogStream::Stdout, b"7\n");
    assert!(!dir.join("logs/web.log.2").exists());
    write(&logs, &log, LogStream::Stdout, b"8\n");
    let newest = fs::read_to_string(&path).unwrap();
    assert!(
        newest.starts_with("# afresh log 1, file 10\n") && newest.ends_with(" 8\n"),
        "{newest}"
    );
    assert_eq!(texts(&read(&dir.join("logs"), last(3))), ["old", "7", "8"]);
}

#[test]
fn several_services_are_read_by_time() {
    let dir = TempDir::new();
    let line =
        |second: u32, text: &str| format!("2026-01-01T00:00:{second:02}.000Z stdout 1 {text}\n");
    fs::create_dir(dir.join("logs")).unwrap();
    let head = "# afresh log 1, file 1\n".to_owned();
    let web = head.clone() + &line(1, "a") + &line(3, "c") + &line(5, "e");
    fs::write(dir.join("logs/web.log"), web).unwrap();
    fs::write(dir.join("logs/api.log"), head + &line(2, "b") + &line(3, "d") + &line(6, "f"))
        .unwrap();
    let all = |query: Query| texts(&read(&dir.join("logs"), query)).concat();
    // Of the same moment, in the order of the names.
    assert_eq!(all(Query::default()), "abdcef");
    for (count, found) in [(1, "f"), (2, "ef"), (4, "dcef"), (3, "cef"), (9, "abdcef")] {
        assert_eq!(all(last(count)), found, "{count}");
    }
    let since = Stamp::parse("2026-01-01T00:00:03Z");
    assert_eq!(all(Query { since, ..Query::default() }), "dcef");
    assert_eq!(all(Query { since, ..last(9) }), "dcef");
    assert_eq!(all(Query { stream: Some(LogStream::Stderr), ..Query::default() }), "");
    let names = Some(vec!["web".to_owned()]);
    let mut reader = LogReader::open(&dir.join("logs"), names, last(2)).unwrap();
    let line = reader.next_line().unwrap().unwrap();
    assert_eq!(
        (line.text.as_slice(), reader.services()[line.service].as_str()),
        (&b"c"[..], "web")
    );
}

#[test]
fn followers_miss_nothing_and_repeat_nothing() {
    const LINES: u32 = 20_000;
    let dir = TempDir::new();
    let (logs, _told) = start();
    let log = logs.open(WritePath::beneath(&dir.join(""), "logs/web.log"), limits(20_000, 100));
    write(&logs, &log, LogStream::Stdout, &numbered(0..100));
    let folder = dir.join("logs");
    let follow = |names: Option<Vec<String>>| {
        let mut follower = LogFollower::open(&folder, names, last(10)).unwrap();
        std::thread::spawn(move || {
            let mut found: Vec<u32> = Vec::new();
            while found.last() != Some(&(LINES - 1)) {
                let line = follower.next(PATIENCE).unwrap().expect("a line");
                found.push(String::from_utf8(line.text).unwrap().parse().unwrap());
            }
            assert_eq!(follower.files.take_missed(), 0);
            assert!(follower.next(Some(Duration::ZERO)).unwrap().is_none());
            found
        })
    };
    let followers = [follow(None), follow(Some(vec!["web".to_owned()]))];
    for start in (100..LINES).step_by(100) {
        write(&logs, &log, LogStream::Stdout, &numbered(start..start + 100));
    }
    for follower in followers {
        let found = follower.join().unwrap();
        assert!(found.iter().copied().eq(90..LINES), "{:?}", &found[..20]);
    }
}

#[test]
fn a_follower_who_lags_is_told_what_is_missing() {
    let dir = TempDir::new();
    let (logs, _told) = start();
    let log = logs.open(WritePath::beneath(&dir.join(""), "logs/web.log"), limits(1_000, 1));
    write(&logs, &log, LogStream::Stdout, b"first\n");
    let mut follower = LogFollower::open(&dir.join("logs"), None, last(1)).unwrap();
    assert_eq!(follower.next(PATIENCE).unwrap().unwrap().text, b"first");
    write(&logs, &log, LogStream::Stdout, &numbered(0..1_000));
    let mut found = Vec::new();
    while let Some(line) = follower.next(Some(Duration::from_millis(50))).unwrap() {
        found.push(line.text);
    }
    assert_eq!(found.last().unwrap(), b"999");
    assert!(follower.files.take_missed() > 10);
}

#[test]
fn names_become_names_of_files_and_back() {
    let folder = Path::new("/logs");
    for (name, file) in [
        ("web", "web.log"),
        ("web.log", "web.log.log"),
        ("my web-1_ü", "my web-1_ü.log"),
        ("../../etc/passwd", "%2E./../etc/passwd.log"),
        (".hidden", "%2Ehidden.log"),
        ("100%", "100%25.log"),
        ("a\nb:c", "a%0Ab%3Ac.log"),
    ] {
        let path = file_of(folder, name);
        let wanted = file.replace('/', "%2F");
        assert_eq!(path, folder.join(&wanted), "{name}");
        assert_eq!(service_of(&wanted).as_deref(), Some(name));
    }
    for other in ["web.log.1", "web.log.lock", ".log", "%zz.log", "%2", "%FF.log", "web"] {
        assert_eq!(service_of(other), None, "{other}");
    }
}

#[test]
fn nobody_waits_for_a_disk_that_hangs_twice() {
    let dir = TempDir::new();
    let (logs, told) = start();
    let log = logs.open(WritePath::beneath(&dir.join(""), "logs/web.log"), LogLimits::default());
    // The writer is held up as by a disk that does not answer.
    let hung = log.target.state.lock().unwrap();
    block_on(async {
        let mut tee = log.tee(Generation(1), LogStream::Stdout);
        let begun = tokio::time::Instant::now();
        for _ in 0..4 * SERVICE_LOG_QUEUE_BYTES_MAX / 10_000 {
            tee.take([&[b'x'; 9_999][..], b"\n"].concat()).await;
        }
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(3), "{waited:?}");
        drop(hung);
        // When the disk answers again, what is missing stands where it is missing.
        let room = || log.queue.room.available_permits() == SERVICE_LOG_QUEUE_BYTES_MAX;
        crate::store::testing::wait_for("the disk answers", room);
        tee.take(b"back\n".to_vec()).await;
        tee.end().await;
    });
    block_on(logs.flush());
    let found = texts(&read(&dir.join("logs"), Query::default()));
    let xs = found.iter().filter(|text| text.starts_with('x')).count();
    assert!(xs > 90 && xs < 300, "{xs}");
    let note = found.iter().position(|text| text.contains("missing here: the disk was too slow"));
    assert!(note.is_some_and(|note| found[note + 1..].iter().all(|text| text == "back")));
    assert!(told.try_recv().unwrap().contains("the disk was too slow"));
    assert!(told.try_recv().unwrap().contains("is written again"));
}
