//! What the kernel and the session grant.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use afresh_core::limits::OPEN_FILES_MIN;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::unistd::Uid;

use super::Check;

/// The limits of this process, which its children inherit.
pub(super) fn limits() -> Vec<Check> {
    let mut checks = vec![open_files()];
    #[cfg(target_os = "linux")]
    checks.push(process_count());
    checks
}

fn open_files() -> Check {
    const NAME: &str = "open files";
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Err(errno) => Check::warning(NAME, format!("cannot be found out: {errno}"), "ignore it"),
        Ok((soft, hard)) => {
            let found = format!("{} allowed, {} for afresh", count(soft), count(hard));
            if hard < OPEN_FILES_MIN {
                return Check::warning(
                    NAME,
                    found,
                    format!(
                        "raise the hard limit (`ulimit -Hn`) to {OPEN_FILES_MIN} for hundreds of services"
                    ),
                );
            }
            Check::ok(NAME, found)
        }
    }
}

#[cfg(target_os = "linux")]
fn process_count() -> Check {
    use afresh_core::limits::PROCESSES_MIN;
    const NAME: &str = "processes";
    match getrlimit(Resource::RLIMIT_NPROC) {
        Err(errno) => Check::warning(NAME, format!("cannot be found out: {errno}"), "ignore it"),
        Ok((soft, hard)) => {
            let found = format!("{} allowed, {} at most", count(soft), count(hard));
            if soft < PROCESSES_MIN {
                let hint = format!("run `ulimit -u {PROCESSES_MIN}`, or have the limit raised");
                return Check::warning(NAME, found, hint);
            }
            Check::ok(NAME, found)
        }
    }
}

fn count(limit: u64) -> String {
    if limit == RLIM_INFINITY { "any number".to_owned() } else { limit.to_string() }
}

/// Cgroups come on top of what keeps processes together: they are never needed.
#[cfg(target_os = "linux")]
pub(super) fn cgroup() -> Check {
    use nix::unistd::{AccessFlags, access};

    use crate::process::Cgroup;
    const NAME: &str = "cgroup";
    let Some(own) = Cgroup::own() else {
        return Check::ok(NAME, "no cgroup version 2 here (on top, not needed)");
    };
    let path = own.path().display();
    // Made and removed again: only that shows whether it can be.
    if own.child(u64::MAX).is_some() {
        let found = format!("`{path}` can be used: each service gets a cgroup of its own");
        return Check::ok(NAME, found);
    }
    let why = if access(own.path(), AccessFlags::W_OK).is_err() {
        "cannot be written"
    } else {
        "can have no children with `cgroup.kill`"
    };
    Check::ok(NAME, format!("`{path}` {why} (on top, not needed)"))
}

/// Only Linux has cgroups.
#[cfg(not(target_os = "linux"))]
pub(super) fn cgroup() -> Check {
    Check::ok("cgroup", "this system has none (on top, not needed)")
}

/// How much may be watched for changes.
#[cfg(target_os = "linux")]
pub(super) fn watcher() -> Option<Check> {
    use afresh_core::limits::{WATCHERS_MIN, WATCHES_MIN};
    let read = |name: &str| -> Option<u64> {
        let path = format!("/proc/sys/fs/inotify/{name}");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    Some(watcher_of(
        (read("max_user_watches"), WATCHES_MIN),
        (read("max_user_instances"), WATCHERS_MIN),
    ))
}

/// The kernel says nothing about it here.
#[cfg(not(target_os = "linux"))]
pub(super) fn watcher() -> Option<Check> {
    None
}

#[cfg(target_os = "linux")]
fn watcher_of(watches: (Option<u64>, u64), watchers: (Option<u64>, u64)) -> Check {
    const NAME: &str = "file watcher";
    let ((Some(files), files_min), (Some(instances), instances_min)) = (watches, watchers) else {
        return Check::warning(
            NAME,
            "the kernel does not say how many files may be watched",
            "where nothing can be watched, files are looked at every so often",
        );
    };
    let found = format!("{files} files by {instances} watchers");
    let wanted: Vec<String> =
        [("max_user_watches", files, files_min), ("max_user_instances", instances, instances_min)]
            .into_iter()
            .filter(|(_, has, min)| has < min)
            .map(|(name, _, min)| format!("fs.inotify.{name}={min}"))
            .collect();
    if wanted.is_empty() {
        return Check::ok(NAME, found);
    }
    let hint = format!(
        "run `sudo sysctl {}`, and put it into `/etc/sysctl.d/` to keep it",
        wanted.join(" ")
    );
    Check::warning(NAME, format!("only {found}"), hint)
}

/// Where sockets go: a folder that is this user's alone, and gone with the session.
pub(super) fn runtime_folder(folder: Option<&Path>) -> Check {
    const NAME: &str = "runtime folder";
    let uid = Uid::effective();
    let instead = std::env::temp_dir().join(format!("afresh-{uid}"));
    let instead = format!("`{}` is used instead", instead.display());
    let Some(folder) = folder else {
        return Check::ok(NAME, format!("XDG_RUNTIME_DIR is not set: {instead}"));
    };
    let path = folder.display();
    let wrong = match folder.metadata() {
        _ if !folder.is_absolute() => "is not an absolute path",
        Err(_) => "does not exist",
        Ok(metadata) if !metadata.is_dir() => "is not a folder",
        Ok(metadata) if metadata.uid() != uid.as_raw() => "belongs to another user",
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => "is open to other users",
        Ok(_) => return Check::ok(NAME, format!("`{path}`")),
    };
    Check::warning(
        NAME,
        format!("XDG_RUNTIME_DIR, `{path}`, {wrong}: {instead}"),
        "set it to a folder of this user with the rights 0700, or unset it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[cfg(target_os = "linux")]
    #[test]
    fn small_limits_are_named_in_the_hint() {
        let check = |watches, watchers| watcher_of((Some(watches), 8_192), (Some(watchers), 128));
        assert_eq!(check(8_192, 128).verdict, Verdict::Ok);
        let hint = check(8_191, 128).hint.unwrap();
        assert!(hint.contains("`sudo sysctl fs.inotify.max_user_watches=8192`"), "{hint}");
        let hint = check(1, 1).hint.unwrap();
        assert!(hint.contains("max_user_watches=8192 fs.inotify.max_user_instances=128"), "{hint}");
        assert_eq!(watcher_of((None, 1), (Some(1), 1)).verdict, Verdict::Warning);
    }

    #[test]
    fn a_runtime_folder_is_ours_alone_or_not_used() {
        let dir = crate::store::TempDir::new();
        let folder = dir.join("run");
        let verdict = |folder: &Path| runtime_folder(Some(folder)).verdict;
        assert_eq!(runtime_folder(None).verdict, Verdict::Ok);
        assert_eq!(verdict(&folder), Verdict::Warning);
        assert_eq!(verdict(Path::new("relative")), Verdict::Warning);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(verdict(&folder), Verdict::Warning);
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(verdict(&folder), Verdict::Ok);
    }
}
