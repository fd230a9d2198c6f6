//! Owns the check of how clients' configurations invoke afresh: paths that are gone, versions that are older than
//! this one or gone from their registry, runners that are not installed. Driven by `doctor`. Runs a program only where the user named it, on PATH
//! or in a file of their own: a project's file may name any.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use afresh_core::adopt::{File, Invocation, is_older};
use afresh_core::limits::DOCTOR_FINDINGS_MAX;
use afresh_core::text::harmless;

use super::registry_queries::{PinnedVersion, Publication};
use super::{Check, CheckVerdict, Examined};
use crate::os::HOME_VARIABLE;
use crate::store::client_files::{ClientFile, FileOwner};

const NAME: &str = "client files";

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The invocations of afresh in all files of clients.
#[derive(Debug, Default)]
pub(super) struct ClientInvocations(Vec<ClientInvocation>);

#[derive(Debug)]
struct ClientInvocation {
    /// The file and the server.
    place: String,
    owner: FileOwner,
    target: Target,
}

/// The thing that a client starts.
#[derive(Debug)]
enum Target {
    /// A program that is there.
    Program { path: PathBuf, shown: String },
    /// A program that is not.
    Missing(String),
    /// A package of this version, by a runner.
    Package { runner: String, is_missing: bool, version: Option<String> },
    /// A program whose path depends on the client.
    Unknown,
}

impl ClientInvocations {
    /// Reads the files. One that cannot be read or understood is left to `adopt`, which says why.
    pub(super) fn find(examined: &Examined) -> Self {
        let variable = |name: &str| {
            examined.variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let root = examined.workspace.root();
        let home = variable(HOME_VARIABLE);
        let files = ClientFile::find(&examined.cwd, root, home.as_deref(), &variable);
        let mut all = Vec::new();
        for file in files {
            let Ok(text) = file.read() else { continue };
            let path = file.path.display().to_string();
            let Ok(read) = File::read(&path, &text.bytes) else { continue };
            for server in &read.servers {
                let Some(invocation) = server.invocation() else { continue };
                let shown = file.path.strip_prefix(&examined.cwd).unwrap_or(&file.path);
                let place = format!("`{}` in `{}`", server.name, shown.display());
                let target = Target::of(invocation, examined);
                all.push(ClientInvocation { place, owner: file.scope, target });
            }
        }
        Self(all)
    }

    /// The programs whose versions are to be asked for, each once.
    pub(super) fn programs(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = self.0.iter().filter_map(ClientInvocation::askable).collect();
        paths.sort();
        paths.dedup();
        paths
    }

    /// The versions to ask the registries for: others than this one, behind runners that are there.
    pub(super) fn pins(&self) -> BTreeSet<PinnedVersion> {
        self.0.iter().filter_map(|one| one.target.pin()).collect()
    }

    /// The verdict, with what each program has said of its version, and each registry of a pin.
    pub(super) fn check(
        &self,
        versions: &BTreeMap<PathBuf, String>,
        published: &BTreeMap<PinnedVersion, Publication>,
    ) -> Check {
        let mut findings: Vec<Check> =
            self.0.iter().filter_map(|one| one.finding(versions, published)).collect();
        // The worst first: not all may be shown.
        findings.sort_by_key(|check| Reverse(check.verdict));
        let count = match self.0.len() {
            0 => "no server of a client is behind afresh here".to_owned(),
            1 => "1 server of a client is behind afresh".to_owned(),
            count => format!("{count} servers of clients are behind afresh"),
        };
        let Some(worst) = findings.first() else { return Check::ok(NAME, count) };
        let is_ok = worst.verdict == CheckVerdict::Ok;
        let shown = findings.iter().take(DOCTOR_FINDINGS_MAX).map(|check| check.found.clone());
        let mut parts: Vec<String> = is_ok.then_some(count).into_iter().chain(shown).collect();
        if findings.len() > DOCTOR_FINDINGS_MAX {
            parts.push(format!("and {} more", findings.len() - DOCTOR_FINDINGS_MAX));
        }
        let found = parts.join("; ");
        Check { name: NAME, verdict: worst.verdict, found, hint: worst.hint.clone() }
    }
}

impl Target {
    fn of(invocation: Invocation<'_>, examined: &Examined) -> Self {
        let on_path = |name: &str| examined.program(name);
        // A path of Windows is none elsewhere, and `~` or `${…}` is for the client to replace.
        let is_name = |word: &str| !word.contains(['/', '\\', '$', '~']);
        match invocation {
            Invocation::Package { runner, version } => Self::Package {
                runner: runner.to_owned(),
                is_missing: is_name(runner) && on_path(runner).is_none(),
                version: version.map(str::to_owned),
            },
            Invocation::Program(name) if is_name(name) => {
                let bare = name.strip_suffix(".exe").unwrap_or(name);
                let shown = harmless(name);
                match on_path(bare) {
                    Some(path) => Self::Program { path, shown },
                    None => Self::Missing(format!("`{shown}`, which is not on PATH")),
                }
            }
            Invocation::Program(path)
                if invocation.local_path().is_some() && Path::new(path).is_absolute() =>
            {
                let shown = harmless(path);
                // What cannot be looked at may be there.
                match Path::new(path).try_exists().unwrap_or(true) {
                    true => Self::Program { path: path.into(), shown },
                    false => Self::Missing(format!("`{shown}`, which does not exist")),
                }
            }
            Invocation::Program(_) => Self::Unknown,
        }
    }
}

impl Target {
    /// The version that a registry is asked for.
    fn pin(&self) -> Option<PinnedVersion> {
        let Self::Package { runner, is_missing: false, version: Some(version) } = self else {
            return None;
        };
        let pin = PinnedVersion { runner: runner.clone(), version: version.clone() };
        (version != VERSION).then_some(pin)
    }
}

impl ClientInvocation {
    /// The program to ask for its version: another one than this, named by the user.
    fn askable(&self) -> Option<PathBuf> {
        let Target::Program { path, shown } = &self.target else { return None };
        let is_name = !shown.contains(['/', '\\']);
        let own = std::env::current_exe().and_then(|own| own.canonicalize()).ok();
        let is_own = path.canonicalize().ok() == own;
        (!is_own && (is_name || self.owner == FileOwner::User)).then(|| path.clone())
    }

    fn finding(
        &self,
        versions: &BTreeMap<PathBuf, String>,
        published: &BTreeMap<PinnedVersion, Publication>,
    ) -> Option<Check> {
        let place = harmless(&self.place);
        let adopt = match self.owner {
            FileOwner::User => "afresh adopt --user",
            FileOwner::Project | FileOwner::Named => "afresh adopt",
        };
        let rewrite = |verdict, found: String, hint: String| {
            Some(Check { name: NAME, verdict, found, hint: Some(hint) })
        };
        match &self.target {
            Target::Missing(what) if what.contains(['/', '\\']) => rewrite(
                CheckVerdict::Problem,
                format!("{place} runs {what}"),
                format!("`{adopt}` writes how afresh is called today"),
            ),
            Target::Missing(what) => rewrite(
                CheckVerdict::Problem,
                format!("{place} runs {what}"),
                "install afresh into a folder of PATH, or name this one: `afresh adopt --undo`, then \
                 `afresh adopt`"
                    .to_owned(),
            ),
            Target::Package { runner, is_missing: true, .. } => {
                let runner = harmless(runner);
                rewrite(
                    CheckVerdict::Problem,
                    format!("{place} runs afresh by `{runner}`, which is not on PATH"),
                    format!("install `{runner}`, or `{adopt} --undo` and `{adopt}` to write another way"),
                )
            }
            Target::Package { runner, version: Some(version), .. } => {
                let of_registry = self.target.pin().and_then(|pin| published.get(&pin));
                let is_older = is_older(version, VERSION);
                let (runner, version) = (harmless(runner), harmless(version));
                let found = format!("{place} runs afresh {version} by `{runner}`");
                let rest = match of_registry {
                    None => String::new(),
                    Some(Publication::Published) => format!(", and {version} is published"),
                    Some(Publication::Gone) => format!(", and {version} is gone from the registry"),
                    Some(Publication::Unknown(why)) => {
                        format!(", and the registry could not be asked for {version}: {why}")
                    }
                };
                match (is_older, of_registry) {
                    (true, _) => rewrite(
                        CheckVerdict::Warning,
                        format!("{found}; this is {VERSION}{rest}"),
                        format!("`{adopt}` writes {VERSION}"),
                    ),
                    // `adopt` leaves newer versions as they are.
                    (false, Some(Publication::Gone)) => rewrite(
                        CheckVerdict::Warning,
                        format!("{found}{rest}"),
                        format!("`{adopt} --undo`, then `{adopt}`, writes {VERSION}"),
                    ),
                    (false, Some(_)) => Some(Check::ok(NAME, format!("{found}{rest}"))),
                    (false, None) => None,
                }
            }
            Target::Program { path, shown } => {
                let version = versions.get(path)?;
                is_older(version, VERSION).then_some(())?;
                rewrite(
                    CheckVerdict::Warning,
                    format!("{place} runs `{shown}`, which is afresh {version}; this is {VERSION}"),
                    "update that installation".to_owned(),
                )
            }
            Target::Package { .. } | Target::Unknown => None,
        }
    }
}

/// The version in what `afresh --version` prints.
pub(super) fn version_in(stdout: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stdout);
    let rest = text.lines().next()?.trim().strip_prefix("afresh ")?;
    rest.split_whitespace().next().map(harmless)
}
