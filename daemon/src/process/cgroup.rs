//! Owns a cgroup for each guardian, where the kernel and our rights allow one: `cgroup.kill` ends a
//! guardian and its whole tree at one stroke, fork bombs included.
//!
//! On top of the subreapers, never instead of them: most places have no cgroup that we may write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Pid;

use super::guardian::GUARDIAN;

/// A cgroup (version 2) that we may use.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: PathBuf,
    /// We made it, so we remove it.
    made: bool,
}

impl Cgroup {
    /// The cgroup that this process is in, if children can be made in it and killed.
    pub(crate) fn own() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        Self::find(&mounts, &own).filter(|cgroup| cgroup.path.join("cgroup.procs").exists())
    }

    /// The mount point is wherever it is: in the usual place, or beside version 1.
    fn find(mounts: &str, own: &str) -> Option<Self> {
        let is_v2 = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let mount = mounts.lines().find(is_v2)?.split(' ').nth(1)?;
        let inside = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(Self { path: Path::new(mount).join(inside), made: false })
    }

    /// Ends what supervisors that were killed together with all around them have left here.
    ///
    /// Only those of our own PID namespace: in another one their numbers mean other processes. And
    /// none of a supervisor that lives: its guardians may have lost their warden, not their work. Nor
    /// one with a guardian in it: its supervisor is another one by now, or it is about to go.
    pub(crate) fn clean(&self) {
        let Some(ours) = namespace() else { return };
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let parts: Vec<&str> = name.to_str().unwrap_or_default().split('-').collect();
            let ["afresh", namespace, supervisor, warden, _] = parts[..] else { continue };
            // A warden that outlives its supervisor is giving the services their grace.
            let lives = |pid: &str| Path::new("/proc").join(pid).exists();
            let is_left = namespace == ours && !lives(supervisor) && !lives(warden);
            if is_left && !has_guardian(&entry.path()) {
                let left = Self { path: entry.path(), made: true };
                left.kill();
            }
        }
    }

    /// A new cgroup inside this one; `None` where that is not allowed.
    pub(crate) fn child(&self, supervisor: u32, number: u64) -> Option<Self> {
        let warden = std::process::id();
        let name = format!("afresh-{}-{supervisor}-{warden}-{number}", namespace()?);
        let path = self.path.join(name);
        fs::create_dir(&path).ok()?;
        let child = Self { path, made: true };
        // Kernels before 5.14 have no `cgroup.kill`; without it there is no use for it.
        child.path.join("cgroup.kill").exists().then_some(child)
    }

    /// Kills everything inside.
    pub(crate) fn kill(&self) {
        // Where it fails, the sweep does the same more slowly.
        fs::write(self.path.join("cgroup.kill"), "1").ok();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.made {
            // What was killed a moment ago may still be going. What cannot be killed keeps it, and
            // the next warden tries again.
            for _ in 0..20 {
                match remove_empty(&self.path) {
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => return,
                }
            }
        }
    }
}

/// Whether a guardian is alive in a cgroup.
fn has_guardian(path: &Path) -> bool {
    let inside = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let mut pids = inside.lines().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    pids.any(|pid| {
        super::os::name_if_alive(pid).is_some_and(|name| name.as_bytes() == GUARDIAN.to_bytes())
    })
}

/// Removes a cgroup and those inside it: a service may be an afresh itself.
fn remove_empty(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// The PID namespace that the numbers of processes belong to; `None` where `/proc` shows another.
fn namespace() -> Option<String> {
    let link = super::os::can_list().then(|| fs::read_link("/proc/self/ns/pid").ok())??;
    let text = link.to_str()?;
    Some(text.strip_prefix("pid:[")?.strip_suffix(']')?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_wherever_it_is() {
        let hybrid = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = Cgroup::find(hybrid, "1:cpu:/x\n0::/a/b\n").map(|cgroup| cgroup.path.clone());
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/unified/a/b")));
        assert!(Cgroup::find("cgroup / cgroup rw 0 0", "0::/").is_none());
        assert!(Cgroup::find(hybrid, "1:cpu:/x\n").is_none());
    }
}
