//! `afresh doctor`: looks at the machine, the state folder and the programs that afresh works with, and says what to
//! do about each thing. Changes nothing.

mod client_invocations;
mod registry_queries;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use afresh_core::agent::AgentKind;
use afresh_core::config::TrailSettings;
use afresh_core::duration::show_duration;
use afresh_core::limits::{
    FREE_BYTES_MIN, OPEN_FILES_MIN, PROCESSES_MIN, VERSION_BYTES_MAX, VERSION_PROBE_MAX,
    WATCHERS_MIN, WATCHES_MIN,
};
use afresh_core::service::Exit;
use afresh_core::text::harmless;

use self::client_invocations::{ClientInvocations, version_in};
use self::registry_queries::RegistryQueries;
use crate::error_chain::chain;
use crate::os::{self, ProcessLimit, WatchLimits, is_variable, program_in};
use crate::process::{Command, MECHANISM, Processes, own_cgroup};
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, run_briefly};
use crate::self_test::self_test;
use crate::store::history::{Filter, History};
use crate::store::workspace::{TrailFiles, Workspace};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its subject.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub verdict: CheckVerdict,
    /// The finding.
    pub found: String,
    /// The remedy.
    pub hint: Option<String>,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckVerdict {
    /// Nothing to do.
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// Something does not work.
    Problem,
}

impl CheckVerdict {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Check {
    /// Nothing to do.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: CheckVerdict::Ok, found: found.into(), hint: None }
    }

    /// It could be better.
    pub fn warning(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Warning, hint: Some(hint.into()), ..Self::ok(name, found) }
    }

    /// It does not work.
    pub fn problem(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Problem, ..Self::warning(name, found, hint) }
    }
}

/// The surroundings to examine, besides the machine itself.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The folder we are in.
    pub cwd: PathBuf,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The workspace.
    pub workspace: Workspace,
    /// The settings of the trail.
    pub trail: TrailSettings,
    /// Whether package registries may be asked for versions.
    pub may_ask_registries: bool,
}

impl Examined {
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(key, _)| is_variable(key, name));
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// The program that a shell would run.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let mut folders = std::env::split_paths(self.variable("PATH")?);
        folders.find_map(|folder| program_in(&self.cwd.join(folder), name))
    }
}

/// Looks at everything. Programs are asked for their versions all at once, so that this takes no
/// longer than the slowest of them.
pub fn examine(examined: &Examined) -> Vec<Check> {
    // Before the process layer raises it.
    let limits = limits();
    let (mut checks, programs) = processes(examined);
    checks.push(cgroup());
    checks.extend(watcher());
    checks.extend(limits);
    let only = examined.variable("AFRESH_RUNTIME_DIR").map(Path::new);
    let session = examined.variable("XDG_RUNTIME_DIR").map(Path::new);
    checks.push(runtime_folder(only.filter(|folder| folder.is_absolute()), session));
    checks.extend(state_checks(examined));
    checks.extend(programs);
    checks
}

/// The checks that need the process layer: its own test, and other programs.
fn processes(examined: &Examined) -> (Vec<Check>, Vec<Check>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let found = format!("cannot set up the event loop: {error}");
            return (vec![Check::problem(GUARDIAN, found, ASK)], Vec::new());
        }
    };
    runtime.block_on(async {
        let mut processes = match Processes::start() {
            Ok(processes) => processes,
            Err(error) => {
                let check = Check::problem(GUARDIAN, chain(&error), ASK);
                return (vec![check], Vec::new());
            }
        };
        let guardian = match self_test(&mut processes).await {
            Ok(took) => {
                let found = "a process was killed; its detached grandchild was gone with it";
                let took = show_duration(took);
                Check::ok(GUARDIAN, format!("{found}, {took} after the start"))
            }
            Err(found) => Check::problem(GUARDIAN, found, ASK),
        };
        let mechanism = Check::ok("mechanism", MECHANISM);
        let mut programs = program_checks(examined, &mut processes).await;
        programs.push(client_check(examined, &mut processes).await);
        processes.shutdown().await;
        (vec![guardian, mechanism], programs)
    })
}

const GUARDIAN: &str = "guardian";

const ASK: &str = "nothing can be kept alive safely here: see to the other findings first; if that \
                   does not help, report this with the system's name and version, and the sandbox \
                   or container around it";

/// The limits of this process, which its children inherit.
fn limits() -> Vec<Check> {
    let files_hint =
        format!("raise the hard limit (`ulimit -Hn`) to {OPEN_FILES_MIN} for hundreds of services");
    let files = os::open_files_limit().map(|limit| {
        let is_small =
            |limit: ProcessLimit| limit.at_most.is_some_and(|most| most < OPEN_FILES_MIN);
        limit_of("open files", limit, "for afresh", is_small, files_hint)
    });
    let processes = os::processes_limit().map(|limit| {
        let is_small = |limit: ProcessLimit| limit.now.is_some_and(|now| now < PROCESSES_MIN);
        let hint = format!("run `ulimit -u {PROCESSES_MIN}`, or have the limit raised");
        limit_of("processes", limit, "at most", is_small, hint)
    });
    files.into_iter().chain(processes).collect()
}

fn limit_of(
    name: &'static str,
    limit: io::Result<ProcessLimit>,
    for_whom: &str,
    is_small: fn(ProcessLimit) -> bool,
    hint: String,
) -> Check {
    let limit = match limit {
        Ok(limit) => limit,
        Err(error) => {
            return Check::warning(name, format!("cannot be found out: {error}"), "ignore it");
        }
    };
    let count = |limit: Option<u64>| limit.map_or("any number".to_owned(), |most| most.to_string());
    let found = format!("{} allowed, {} {for_whom}", count(limit.now), count(limit.at_most));
    if is_small(limit) { Check::warning(name, found, hint) } else { Check::ok(name, found) }
}

/// Cgroups come on top of what keeps processes together: they are never needed.
fn cgroup() -> Check {
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
fn watcher() -> Option<Check> {
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
fn runtime_folder(only: Option<&Path>, folder: Option<&Path>) -> Check {
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

/// The programs that afresh works with.
fn programs() -> impl Iterator<Item = &'static str> {
    let agents = AgentKind::ALL.into_iter().filter(|kind| *kind != AgentKind::Command);
    ["git"].into_iter().chain(agents.map(AgentKind::name))
}

async fn program_checks(examined: &Examined, processes: &mut Processes) -> Vec<Check> {
    let found: Vec<Option<PathBuf>> = programs().map(|name| examined.program(name)).collect();
    let briefs: Vec<Brief> =
        found.iter().flatten().map(|path| version_probe(examined, path)).collect();
    let mut outcomes = run_briefly(processes, briefs).await.into_iter();
    let check = |(name, path): (&'static str, &Option<PathBuf>)| {
        // There is an outcome for each that was found, in their order.
        match path.as_ref().and_then(|path| Some((path, outcomes.next()?))) {
            Some((path, outcome)) => judge(name, path, &outcome),
            None if name == "git" => {
                Check::warning(name, "not found on PATH", "install it: agents work in repositories")
            }
            None => Check::ok(name, "not installed"),
        }
    };
    programs().zip(&found).map(check).collect()
}

/// Asks a program for its version.
fn version_probe(examined: &Examined, path: &Path) -> Brief {
    Brief {
        command: Command {
            argv: vec![path.into(), "--version".into()],
            cwd: Some(examined.cwd.clone()),
            env: examined.variables.clone(),
        },
        stdin: Vec::new(),
        time_max: VERSION_PROBE_MAX,
        output_bytes_max: VERSION_BYTES_MAX,
    }
}

/// How the configurations of clients invoke afresh. Programs and registries are asked at once.
async fn client_check(examined: &Examined, processes: &mut Processes) -> Check {
    let invocations = ClientInvocations::find(examined);
    let programs = invocations.programs();
    let pins = if examined.may_ask_registries { invocations.pins() } else { BTreeSet::new() };
    let (queries, of_registries) = RegistryQueries::plan(pins, examined);
    let mut briefs: Vec<Brief> =
        programs.iter().map(|path| version_probe(examined, path)).collect();
    briefs.extend(of_registries);
    let mut outcomes = run_briefly(processes, briefs).await;
    let published = queries.answers(&outcomes.split_off(programs.len().min(outcomes.len())));
    let version =
        |(path, outcome): (PathBuf, BriefOutcome)| Some((path, version_in(&outcome.stdout)?));
    let versions: BTreeMap<PathBuf, String> =
        programs.into_iter().zip(outcomes).filter_map(version).collect();
    invocations.check(&versions, &published)
}

fn judge(name: &'static str, path: &Path, outcome: &BriefOutcome) -> Check {
    let shown = path.display();
    let failed = |why: String| {
        Check::warning(
            name,
            format!("`{shown}`, but {why}"),
            format!("run `{name} --version` by hand, or install it anew"),
        )
    };
    match &outcome.ending {
        BriefEnding::Exited(Exit::Code(0)) => {
            let said = first_line(&outcome.stdout).or_else(|| first_line(&outcome.stderr));
            let version = said.unwrap_or_else(|| "it does not say which version".to_owned());
            Check::ok(name, format!("{version}, `{shown}`"))
        }
        BriefEnding::Exited(exit) => {
            let said = first_line(&outcome.stderr).or_else(|| first_line(&outcome.stdout));
            let said = said.map_or_else(String::new, |said| format!(": {said}"));
            failed(format!("`--version` {exit}{said}"))
        }
        BriefEnding::SpawnFailed(failure) => failed(failure.message.clone()),
        BriefEnding::TimedOut => failed(format!(
            "`--version` had not ended after {} and was ended",
            show_duration(VERSION_PROBE_MAX)
        )),
        BriefEnding::TooMuchOutput => failed("`--version` does not stop printing".to_owned()),
    }
}

/// The first line that says something, without what a terminal would obey.
fn first_line(bytes: &[u8]) -> Option<String> {
    const CHARS_MAX: usize = 80;
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(harmless(&line.chars().take(CHARS_MAX).collect::<String>()))
}

/// The state folder, and the trail in it.
fn state_checks(examined: &Examined) -> Vec<Check> {
    let mut used = examined.workspace.clone();
    used.locate();
    let audit = TrailFiles::of(&used, &examined.trail).audit;
    vec![state(&examined.workspace, &used), trail(audit.path())]
}

fn state(wanted: &Workspace, used: &Workspace) -> Check {
    const NAME: &str = "state";
    let folder = used.state();
    let path = folder.display();
    if let Err(error) = writable(folder) {
        return Check::problem(
            NAME,
            format!("`{path}` cannot be written: {error}"),
            "no trail can be kept: change its rights, or set XDG_STATE_HOME",
        );
    }
    if wanted.state() != folder {
        let wanted = wanted.state().display();
        return Check::warning(
            NAME,
            format!("`{wanted}` cannot be written: `{path}` is used instead"),
            format!("change the rights of `{wanted}`"),
        );
    }
    let place = match used.root() {
        Some(root) => format!("in `{path}`, of the workspace `{}`", root.display()),
        None => format!("in `{path}`, as this is no workspace"),
    };
    match free_bytes(folder) {
        Some(free) if free < FREE_BYTES_MIN => Check::warning(
            NAME,
            format!("{place}; only {} are free", show_bytes(free)),
            "make room: without it the trail loses records",
        ),
        Some(free) => Check::ok(NAME, format!("{place}; {} are free", show_bytes(free))),
        None => Check::ok(NAME, place),
    }
}

fn trail(audit: &Path) -> Check {
    const NAME: &str = "trail";
    let path = audit.display();
    let unreadable = |error: io::Error, hint: &str| {
        Check::problem(NAME, format!("`{path}` cannot be read: {error}"), hint)
    };
    let mut history = match History::open(audit, Filter::default()) {
        Ok(history) => history,
        Err(error) => return unreadable(error, "change its rights"),
    };
    if audit.exists() && !audit.is_file() {
        return Check::problem(NAME, format!("`{path}` is no file"), "remove it");
    }
    if let Err(error) = writable(audit) {
        return Check::problem(
            NAME,
            format!("`{path}` cannot be written: {error}"),
            "change its rights, or name another file by `audit_file` in `[trail]`",
        );
    }
    let (mut records, mut bytes) = (0_u64, 0_u64);
    for entry in history.by_ref() {
        match entry {
            Ok(entry) => {
                records += 1;
                bytes += entry.line.len() as u64 + 1;
            }
            Err(error) => return unreadable(error, "check the disk"),
        }
    }
    let found = match records {
        0 => format!("`{path}`, no record yet"),
        1 => format!("`{path}`, 1 record, {}", show_bytes(bytes)),
        _ => format!("`{path}`, {records} records, {}", show_bytes(bytes)),
    };
    match history.damaged() {
        0 => Check::ok(NAME, found),
        damaged => Check::warning(
            NAME,
            format!("{found}; damaged lines: {damaged}"),
            "they are passed over, all others are read; a kill or a full disk can leave such a line",
        ),
    }
}

/// Whether a file or folder can be written, or made in the nearest folder above that exists.
fn writable(path: &Path) -> io::Result<()> {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(path);
    if existing != path && !existing.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    os::can_write(existing)
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|path| fs::exists(path).ok() == Some(true))?;
    os::free_bytes(existing)
}

fn show_bytes(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    let unit = units.into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(verdict(&folder), CheckVerdict::Warning);
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(verdict(&folder), CheckVerdict::Ok);
    }

    #[test]
    fn bytes_are_shown_for_people() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (1_550_000, "1.5 MB"),
            (27_990_000_000, "27.9 GB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
