//! Sums the memory and processor time of a process and all its descendants. Asked by memory limits, the
//! watch on hung servers and `status`. Keeps nothing between two calls.
//!
//! The sum is one of a moment that passes while it is taken: a process that ends meanwhile counts or
//! not.

use std::collections::BTreeMap;

use nix::unistd::{Pid, getpid};

use super::descendants::below;
use super::os;
use crate::process::TreeUsage;

/// The usage of each of these processes with its descendants. All of them together cost one walk through the
/// table of processes.
pub(crate) fn usage_of_trees(roots: &[u32]) -> Vec<Option<TreeUsage>> {
    // A single tree is found faster by its own threads.
    let table = if roots.len() > 1 { ProcessTable::read() } else { None };
    let of = |root: &u32| table.as_ref().map_or_else(|| usage_of_tree(*root), |it| it.sum(*root));
    roots.iter().map(of).collect()
}

/// All processes of one moment.
#[derive(Default)]
struct ProcessTable {
    used: BTreeMap<Pid, TreeUsage>,
    children: BTreeMap<Pid, Vec<Pid>>,
}

impl ProcessTable {
    fn read() -> Option<Self> {
        let mut table = Self::default();
        for (pid, parent, usage) in os::table()? {
            table.used.insert(pid, usage);
            table.children.entry(parent).or_default().push(pid);
        }
        Some(table)
    }

    fn sum(&self, root: u32) -> Option<TreeUsage> {
        let children = |pid| self.children.get(&pid).cloned().unwrap_or_default();
        sum(root, |pid| self.used.get(&pid).copied(), children)
    }
}

/// The usage of this process itself, without its descendants; none where the system does not tell.
pub(crate) fn own_usage() -> Option<TreeUsage> {
    os::usage(getpid())
}

/// The usage of a process and all its descendants; none where it is gone, or the system does not tell.
pub(crate) fn usage_of_tree(pid: u32) -> Option<TreeUsage> {
    sum(pid, os::usage, os::children)
}

fn sum(
    root: u32,
    usage: impl Fn(Pid) -> Option<TreeUsage>,
    children: impl Fn(Pid) -> Vec<Pid>,
) -> Option<TreeUsage> {
    let root = Pid::from_raw(i32::try_from(root).ok().filter(|pid| *pid > 0)?);
    let mut sum = usage(root)?;
    for pid in below(vec![root], children).into_iter().skip(1) {
        // One that ended during the walk uses nothing.
        let other = usage(pid).unwrap_or_default();
        sum.memory_bytes = sum.memory_bytes.saturating_add(other.memory_bytes);
        sum.cpu_time = sum.cpu_time.saturating_add(other.cpu_time);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

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
            let group = Pid::from_raw(self.0.id().cast_signed());
            nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL).ok();
            self.0.wait().ok();
        }
    }

    #[test]
    fn the_work_of_grandchildren_counts() {
        let tree = Tree::of("(sh -c 'while :; do :; done' & wait) & wait");
        let pid = tree.0.id();
        let own = || os::usage(Pid::from_raw(pid.cast_signed()));
        wait_for("work in the tree", || {
            usage_of_tree(pid).unwrap().cpu_time > Duration::from_millis(200)
        });
        assert!(own().unwrap().cpu_time < Duration::from_millis(100), "the leader itself waits");
        assert!(usage_of_tree(pid).unwrap().memory_bytes > own().unwrap().memory_bytes);
    }

    #[test]
    fn one_walk_serves_many_trees() {
        let busy = Tree::of("(sh -c 'while :; do :; done' & wait) & wait");
        let idle = Tree::of("read -r line");
        let pids = [busy.0.id(), idle.0.id(), u32::MAX, busy.0.id()];
        let mut found = Vec::new();
        wait_for("work in the tree", || {
            found = usage_of_trees(&pids);
            found[0].is_some_and(|usage| usage.cpu_time > Duration::from_millis(200))
        });
        assert_eq!((found[2], found[3]), (None, found[0]));
        let idle = found[1].unwrap();
        assert!(idle.cpu_time < Duration::from_millis(100), "{idle:?}");
        assert!(found[0].unwrap().memory_bytes > idle.memory_bytes, "two more processes");
        assert_eq!(usage_of_trees(&[]), []);
    }

    #[test]
    fn numbers_that_were_given_anew_make_no_circle() {
        let [one, two, three] = [1, 2, 3].map(Pid::from_raw);
        let used = [1, 2].map(|pid| {
            (Pid::from_raw(pid), TreeUsage { memory_bytes: 10, cpu_time: Duration::ZERO })
        });
        let table = ProcessTable {
            used: BTreeMap::from(used),
            children: BTreeMap::from([(one, vec![two, three]), (two, vec![one])]),
        };
        assert_eq!(table.sum(1).unwrap().memory_bytes, 20);
        assert_eq!(table.sum(3), None);
    }

    #[test]
    fn a_process_that_is_gone_uses_nothing() {
        let mut tree = Tree::of("exit 0");
        tree.0.wait().unwrap();
        for pid in [tree.0.id(), 0, u32::MAX] {
            assert_eq!(usage_of_tree(pid), None);
        }
    }
}
