//! Processes as the kernel sees them.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A process of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its command line.
    pub command: String,
    /// Its name in `ps`.
    pub name: String,
}

impl Process {
    /// Sends it a signal; it may be gone already.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).ok();
    }

    /// Whether it is one of afresh's own: supervisor, warden or guardian.
    pub fn is_ours(&self) -> bool {
        self.name.starts_with("afresh")
    }
}

/// Living processes that carry the mark of a test, with the wardens and guardians above them.
///
/// Wardens have no environment, so they are found as ancestors and by their open lifeline: a
/// warden belongs to the test when its parent does.
pub fn marked(mark: &str) -> Vec<Process> {
    let wanted = format!("AFRESH_TEST_MARK={mark}");
    let all = all();
    let has_mark = |pid: i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let mut found: Vec<Process> = all.iter().filter(|p| has_mark(p.pid)).cloned().collect();
    loop {
        let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
        let kin = |process: &&Process| {
            let related = pids.contains(&process.parent)
                || found.iter().any(|other| other.parent == process.pid && process.is_ours());
            related && !pids.contains(&process.pid)
        };
        let more: Vec<Process> = all.iter().filter(kin).cloned().collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// All processes but zombies.
pub fn all() -> Vec<Process> {
    let pids = fs::read_dir("/proc").expect("there is a /proc").flatten();
    pids.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// One process, unless it is gone or a zombie.
pub fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1.to_owned();
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
    Some(Process { pid, parent, command, name })
}

/// How many children of a process are zombies.
pub fn zombies_of(parent: i32) -> usize {
    let pids = fs::read_dir("/proc").expect("there is a /proc").flatten();
    let is_zombie = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, after)) = stat.rsplit_once(')') else {
            return false;
        };
        let mut fields = after.split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(&parent.to_string())
    };
    pids.filter(|entry| entry.file_name().to_str().is_some_and(is_zombie)).count()
}

/// The most that a process has had in memory so far, in kB.
pub fn peak_resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).expect("a number")
}
