//! How much memory and processor time a process and all its descendants use.
//!
//! The sum is one of a moment that passes while it is taken: a process that ends meanwhile counts or
//! not.

use std::time::Duration;

/// What processes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Memory that is resident. What several processes share is counted for each of them, so
    /// this can be more than they hold together.
    pub(crate) memory_bytes: u64,
    /// Processor time since their start, with that of their children that have ended.
    pub(crate) cpu_time: Duration,
}

/// The memory that a process and all its descendants hold; none where it is gone, or the system does
/// not tell.
pub(crate) fn memory_of_tree(pid: u32) -> Option<u64> {
    Some(usage_of_tree(pid)?.memory_bytes)
}

/// The processor time that a process and all its descendants have used; none where it is gone, or
/// the system does not tell.
pub(crate) fn cpu_time_of_tree(pid: u32) -> Option<Duration> {
    Some(usage_of_tree(pid)?.cpu_time)
}

/// What this process itself uses, without its descendants; none where the system does not tell.
pub(crate) fn own_usage() -> Option<Usage> {
    #[cfg(unix)]
    return super::os::usage(nix::unistd::getpid());
    #[cfg(windows)]
    return None;
}

#[cfg(windows)]
use super::windows::usage_of_tree;

#[cfg(unix)]
fn usage_of_tree(pid: u32) -> Option<Usage> {
    let root = nix::unistd::Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 0)?);
    let mut sum = super::os::usage(root)?;
    for pid in super::tree::below(vec![root]).into_iter().skip(1) {
        // One that ended during the walk uses nothing.
        if let Some(usage) = super::os::usage(pid) {
            sum.memory_bytes = sum.memory_bytes.saturating_add(usage.memory_bytes);
            sum.cpu_time = sum.cpu_time.saturating_add(usage.cpu_time);
        }
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::store::wait_for;

    /// Killed with its group at the end.
    struct Tree(Child);

    impl Tree {
        fn of(script: &str) -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
            crate::os::detach(&mut command);
            Self(command.spawn().unwrap())
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let group = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
            nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).ok();
            self.0.wait().ok();
        }
    }

    #[test]
    fn the_work_of_grandchildren_counts() {
        let tree = Tree::of("(sh -c 'while :; do :; done' & wait) & wait");
        let pid = tree.0.id();
        let own = || super::super::os::usage(nix::unistd::Pid::from_raw(pid.cast_signed()));
        wait_for("work in the tree", || cpu_time_of_tree(pid) > Some(Duration::from_millis(200)));
        assert!(own().unwrap().cpu_time < Duration::from_millis(100), "the leader itself waits");
        assert!(memory_of_tree(pid).unwrap() > own().unwrap().memory_bytes);
    }

    #[test]
    fn nobody_uses_nothing() {
        let mut tree = Tree::of("exit 0");
        tree.0.wait().unwrap();
        for pid in [tree.0.id(), 0, u32::MAX] {
            assert_eq!((memory_of_tree(pid), cpu_time_of_tree(pid)), (None, None));
        }
    }
}
