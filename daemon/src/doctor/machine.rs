//! Checks the limits of the kernel and of the session.

use std::path::Path;

use afresh_core::limits::{OPEN_FILES_MIN, PROCESSES_MIN, WATCHERS_MIN, WATCHES_MIN};

use super::Check;
use crate::os::{self, WatchLimits};
use crate::process::own_cgroup;

/// The limits of this process, which its children inherit.
pub(super) fn limits() -> Vec<Check> {
    open_files().into_iter().chain(process_count()).collect()
}

fn open_files() -> Option<Check> {
    const NAME: &str = "open files";
    let limit = match os::open_files_limit()? {
        Ok(limit) => limit,
        Err(error) => return Some(unknown(NAME, &error)),
    };
    let found = format!("{} allowed, {} for afresh", count(limit.now), count(limit.at_most));
    if limit.at_most.is_some_and(|most| most < OPEN_FILES_MIN) {
        let hint = format!(
            "raise the hard limit (`ulimit -Hn`) to {OPEN_FILES_MIN} for hundreds of services"
        );
        return Some(Check::warning(NAME, found, hint));
    }
    Some(Check::ok(NAME, found))
}

fn process_count() -> Option<Check> {
    const NAME: &str = "processes";
    let limit = match os::processes_limit()? {
        Ok(limit) => limit,
        Err(error) => return Some(unknown(NAME, &error)),
    };
    let found = format!("{} allowed, {} at most", count(limit.now), count(limit.at_most));
    if limit.now.is_some_and(|now| now < PROCESSES_MIN) {
        let hint = format!("run `ulimit -u {PROCESSES_MIN}`, or have the limit raised");
        return Some(Check::warning(NAME, found, hint));
    }
    Some(Check::ok(NAME, found))
}

fn unknown(name: &'static str, error: &std::io::Error) -> Check {
    Check::warning(name, format!("cannot be found out: {error}"), "ignore it")
}

fn count(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any number".to_owned(), |limit| limit.to_string())
}

/// Cgroups come on top of what keeps processes together: they are never needed.
pub(super) fn cgroup() -> Check {
    const NAME: &str = "cgroup";
    let Some((path, usable)) = own_cgroup() else {
        return Check::ok(NAME, "no cgroup version 2 here (on top, not needed)");
    };
    let shown = path.display();
    if usable {
        let found = format!("`{shown}` can be used: each service gets a cgroup of its own");
        return Check::ok(NAME, found);
    }
    let why = if os::can_write(&path).is_err() {
        "cannot be written"
    } else {
        "can have no children with `cgroup.kill`"
    };
    Check::ok(NAME, format!("`{shown}` {why} (on top, not needed)"))
}

/// The limits of watches, where the kernel watches.
pub(super) fn watcher() -> Option<Check> {
    let WatchLimits { files, watchers } = os::watch_limits()?;
    Some(watcher_of((files, WATCHES_MIN), (watchers, WATCHERS_MIN)))
}

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

/// The folder of sockets: one that is this user's alone, and gone with the session.
pub(super) fn runtime_folder(only: Option<&Path>, folder: Option<&Path>) -> Check {
    const NAME: &str = "runtime folder";
    if let Some(only) = only {
        return Check::ok(NAME, format!("`{}`, as AFRESH_RUNTIME_DIR says", only.display()));
    }
    let instead = format!("`{}` is used instead", os::own_temporary_folder().display());
    let Some(folder) = folder else {
        return Check::ok(NAME, format!("XDG_RUNTIME_DIR is not set: {instead}"));
    };
    let path = folder.display();
    let wrong = match folder.metadata() {
        _ if !folder.is_absolute() => "is not an absolute path",
        Err(_) => "does not exist",
        Ok(metadata) if !metadata.is_dir() => "is not a folder",
        Ok(metadata) => match os::not_ours_alone(&metadata) {
            Some(wrong) => wrong,
            None => return Check::ok(NAME, format!("`{path}`")),
        },
    };
    Check::warning(
        NAME,
        format!("XDG_RUNTIME_DIR, `{path}`, {wrong}: {instead}"),
        "set it to a folder of this user with the rights 0700, or unset it",
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::doctor::CheckVerdict;

    #[test]
    fn small_limits_are_named_in_the_hint() {
        let check = |watches, watchers| watcher_of((Some(watches), 8_192), (Some(watchers), 128));
        assert_eq!(check(8_192, 128).verdict, CheckVerdict::Ok);
        let hint = check(8_191, 128).hint.unwrap();
        assert!(hint.contains("`sudo sysctl fs.inotify.max_user_watches=8192`"), "{hint}");
        let hint = check(1, 1).hint.unwrap();
        assert!(hint.contains("max_user_watches=8192 fs.inotify.max_user_instances=128"), "{hint}");
        assert_eq!(watcher_of((None, 1), (Some(1), 1)).verdict, CheckVerdict::Warning);
    }

    #[test]
    fn a_runtime_folder_is_ours_alone_or_not_used() {
        let dir = crate::store::TempDir::new();
        let folder = dir.join("run");
        let verdict = |folder: &Path| runtime_folder(None, Some(folder)).verdict;
        assert_eq!(runtime_folder(None, None).verdict, CheckVerdict::Ok);
        assert_eq!(runtime_folder(Some(Path::new("/nowhere")), None).verdict, CheckVerdict::Ok);
        assert_eq!(verdict(&folder), CheckVerdict::Warning);
        assert_eq!(verdict(Path::new("relative")), CheckVerdict::Warning);
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(verdict(&folder), CheckVerdict::Warning);
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(verdict(&folder), CheckVerdict::Ok);
    }
}
