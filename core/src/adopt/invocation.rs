//! Owns the words by which a client's configuration invokes afresh: a name, a path, or a package runner as in
//! `npx -y afresh@0.2.0`. Chooses them for `adopt`, and recognises them for `adopt`, `doctor` and the import of the
//! gateway. Never looks at the machine: the program's path, its version and what PATH has are given.

use std::cmp::Ordering;

/// A program that fetches a package into a cache of its own and runs it from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackageRunner {
    /// Of npm.
    Npx,
    /// Of Bun.
    Bunx,
    /// Of uv.
    Uvx,
}

/// The readers of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All who work on a project, each on a machine of their own.
    Team,
    /// The user of this machine alone.
    User,
}

/// The running program, and what is known of its installation.
#[derive(Clone, Copy, Debug)]
pub struct OwnProgram<'a> {
    /// Its path.
    pub path: &'a str,
    /// The path at which PATH has it, where it does.
    pub on_path: Option<&'a str>,
    /// The folder of the active virtual environment of Python.
    pub virtual_env: Option<&'a str>,
    /// Its version.
    pub version: &'a str,
    /// The package runners on PATH.
    pub runners: &'a [PackageRunner],
    /// Whether `npx` is a script that many clients cannot start by themselves, as on Windows.
    pub has_script_runners: bool,
}

impl PackageRunner {
    /// All of them, the most common first.
    pub const ALL: [Self; 3] = [Self::Npx, Self::Uvx, Self::Bunx];

    /// The program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Npx => "npx",
            Self::Bunx => "bunx",
            Self::Uvx => "uvx",
        }
    }

    /// The words that run afresh in this version.
    pub fn invocation(self, version: &str, audience: Audience, has_scripts: bool) -> Vec<String> {
        let words: &[&str] = match (self, audience) {
            // `npx` is `npx.cmd` there. A team's file stays usable for those on other systems.
            (Self::Npx, Audience::User) if has_scripts => &["cmd", "/c", "npx", "-y"],
            // Without `-y` it would ask on a terminal that a client does not have.
            (Self::Npx, _) => &["npx", "-y"],
            (Self::Bunx, _) => &["bunx"],
            (Self::Uvx, _) => &["uvx"],
        };
        let package = format!("{PACKAGE}@{version}");
        words.iter().map(|word| (*word).to_owned()).chain([package]).collect()
    }

    /// The runner whose cache a program lies in; such a path is gone when the cache is cleaned.
    pub fn of_cache(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split(['/', '\\']).collect();
        // `~/.npm/_npx/HASH/node_modules/…`
        if parts.contains(&"_npx") {
            return Some(Self::Npx);
        }
        // `/tmp/bunx-UID-PACKAGE@VERSION/node_modules/…`
        if parts.iter().any(|part| part.starts_with("bunx-")) && parts.contains(&"node_modules") {
            return Some(Self::Bunx);
        }
        // `~/.cache/pnpm/dlx/HASH/ID/node_modules/…`: pnpm and npx fetch the same package.
        if parts.windows(2).any(|two| two == ["pnpm", "dlx"]) {
            return Some(Self::Npx);
        }
        // `~/.cache/uv/archive-v0/ID/bin/afresh`, `…\environments-v2\ID\Scripts\afresh.exe`
        let [.., cache, _, "bin" | "Scripts", _] = &parts[..] else { return None };
        let kind = cache.trim_end_matches(|c: char| c.is_ascii_digit());
        (kind != *cache && ["archive-v", "environments-v"].contains(&kind)).then_some(Self::Uvx)
    }
}

impl OwnProgram<'_> {
    /// How a configuration for these readers invokes it.
    pub fn invocation(&self, audience: Audience) -> Vec<String> {
        let of = |runner: PackageRunner| {
            runner.invocation(self.version, audience, self.has_script_runners)
        };
        if let Some(runner) = PackageRunner::of_cache(self.path) {
            return of(runner);
        }
        let is_local = |path: &&str| self.is_of_project(path);
        let name = self.on_path.filter(|path| !is_local(path));
        let runner = || PackageRunner::ALL.into_iter().find(|it| self.runners.contains(it));
        let path = || vec![self.on_path.unwrap_or(self.path).to_owned()];
        match (audience, name) {
            (Audience::Team, Some(_)) => vec![PACKAGE.to_owned()],
            (Audience::Team, None) => runner().map_or_else(path, of),
            (Audience::User, _) => path(),
        }
    }

    /// Whether PATH has this only in a shell of one project: clients are started without it.
    fn is_of_project(&self, path: &str) -> bool {
        let in_env =
            |env: &str| path.strip_prefix(env).is_some_and(|rest| rest.starts_with(['/', '\\']));
        let parts: Vec<&str> = path.split(['/', '\\']).collect();
        let in_modules = parts.windows(2).any(|two| two == ["node_modules", ".bin"]);
        in_modules || self.virtual_env.is_some_and(in_env)
    }
}

/// The name of the program and of its packages in all registries.
const PACKAGE: &str = "afresh";

/// Whether a command is afresh, wherever it is installed.
pub fn is_afresh(command: &str) -> bool {
    let name = base_name(command);
    name == PACKAGE || name.eq_ignore_ascii_case("afresh.exe")
}

/// Whether a word is afresh, or its package with or without a version.
pub(crate) fn names_afresh(word: &str) -> bool {
    is_afresh(word) || is_package(word)
}

fn base_name(command: &str) -> &str {
    command.rsplit(['/', '\\']).next().unwrap_or(command)
}

fn is_package(word: &str) -> bool {
    word == PACKAGE || version_of(word).is_some()
}

/// What stands behind the package's name: a version, or a tag such as `latest`.
fn version_of(word: &str) -> Option<&str> {
    let rest = word.strip_prefix(PACKAGE)?;
    rest.strip_prefix('@').or_else(|| rest.strip_prefix("=="))
}

/// The invocation that a configuration has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invocation<'a> {
    /// By a name that PATH leads somewhere, or by a path.
    Program(&'a str),
    /// By a package runner.
    Package {
        /// The program that runs it.
        runner: &'a str,
        /// The exact version that is asked for, if one is.
        version: Option<&'a str>,
    },
}

impl<'a> Invocation<'a> {
    /// The path that it names, where that may be looked at: to look at one on another machine would send it the
    /// user's credentials, on Windows, because of what a project's file says.
    pub fn local_path(&self) -> Option<&'a str> {
        let Self::Program(path) = *self else { return None };
        // Two separators of either kind begin the name of a host.
        let is_remote = path.chars().take(2).filter(|c| ['/', '\\'].contains(c)).count() == 2;
        (path.contains(['/', '\\']) && !is_remote).then_some(path)
    }
}

/// Where the words of an invocation are in a command line that begins with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InvocationWords {
    /// The program: afresh or the runner.
    pub(super) program: usize,
    /// The package with its version, behind a runner.
    pub(super) package: Option<usize>,
    /// The first word behind it.
    pub(super) end: usize,
}

impl InvocationWords {
    /// Recognises the invocation that a command line begins with.
    pub(super) fn find(words: &[&str]) -> Option<Self> {
        let program = behind_cmd(words)?;
        if is_afresh(words.get(program)?) {
            return Some(Self { program, package: None, end: program + 1 });
        }
        let line = &words[program..];
        let runner = RUNNERS.iter().find(|runner| runner.begins(line))?;
        let mut at = program + runner.words.len();
        let mut package = None;
        loop {
            let word = *words.get(at)?;
            if !word.starts_with('-') {
                let own = package.is_some_and(|_| word == PACKAGE) || is_package(word);
                return own.then_some(Self { program, package: package.or(Some(at)), end: at + 1 });
            }
            let is_value = runner.value_flags.contains(&word);
            if PACKAGE_FLAGS.contains(&word) && is_package(words.get(at + 1)?) {
                package = Some(at + 1);
            }
            at += 1 + usize::from(is_value);
        }
    }

    /// What these words say.
    pub(super) fn read<'a>(&self, words: &[&'a str]) -> Invocation<'a> {
        let program = words[self.program];
        match self.package.map(|at| words[at]) {
            None => Invocation::Program(program),
            Some(package) => {
                let version =
                    version_of(package).filter(|version| ExactVersion::parse(version).is_some());
                Invocation::Package { runner: program, version }
            }
        }
    }
}

/// The package in another version, where this word asks for an older one exactly.
pub(super) fn newer_package(word: &str, version: &str) -> Option<String> {
    let old = version_of(word)?;
    let rest = &word[..word.len() - old.len()];
    is_older(old, version).then(|| format!("{rest}{version}"))
}

/// Whether the first of two exact versions is older; false where one is not a version.
pub fn is_older(version: &str, than: &str) -> bool {
    let both = ExactVersion::parse(version).zip(ExactVersion::parse(than));
    both.is_some_and(|(one, other)| one.cmp(&other) == Ordering::Less)
}

/// Three numbers, and whether it is a release: what comes before one is older than it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExactVersion([u64; 3], bool);

impl ExactVersion {
    fn parse(text: &str) -> Option<Self> {
        let (numbers, before) = match text.split_once(['-', '+']) {
            Some((numbers, _)) => (numbers, text[numbers.len()..].starts_with('-')),
            None => (text, false),
        };
        let numbers: Option<Vec<u64>> = numbers.split('.').map(|part| part.parse().ok()).collect();
        Some(Self(numbers?.try_into().ok()?, !before))
    }
}

/// Where the line begins behind `cmd /c`, by which clients on Windows start scripts.
fn behind_cmd(words: &[&str]) -> Option<usize> {
    if program_name(words.first()?) != "cmd" {
        return Some(0);
    }
    let switches = words[1..].iter().take_while(|word| word.starts_with('/'));
    let (mut count, mut runs) = (0, false);
    for switch in switches {
        count += 1;
        runs |= switch.eq_ignore_ascii_case("/c");
    }
    runs.then_some(1 + count)
}

/// The name of a program without its folder, and without what Windows puts behind it.
fn program_name(command: &str) -> String {
    let name = base_name(command).to_ascii_lowercase();
    let ends = [".exe", ".cmd", ".ps1", ".bat"];
    let bare = ends.iter().find_map(|end| name.strip_suffix(end)).map(str::to_owned);
    bare.unwrap_or(name)
}

/// How a runner is told what to run.
struct RunnerSyntax {
    words: &'static [&'static str],
    /// Flags that are followed by a value.
    value_flags: &'static [&'static str],
}

/// Flags whose value is the package.
const PACKAGE_FLAGS: [&str; 4] = ["-p", "--package", "--from", "--spec"];

const NODE_FLAGS: &[&str] =
    &["-p", "--package", "--registry", "--cache", "--userconfig", "-w", "--workspace", "--prefix"];

const UV_FLAGS: &[&str] = &[
    "--from",
    "--with",
    "-p",
    "--python",
    "--index-url",
    "-i",
    "--index",
    "--default-index",
    "--extra-index-url",
    "--cache-dir",
    "--refresh-package",
];

const RUNNERS: [RunnerSyntax; 9] = [
    RunnerSyntax { words: &["npx"], value_flags: NODE_FLAGS },
    RunnerSyntax { words: &["npm", "exec"], value_flags: NODE_FLAGS },
    RunnerSyntax { words: &["bunx"], value_flags: NODE_FLAGS },
    RunnerSyntax { words: &["bun", "x"], value_flags: NODE_FLAGS },
    RunnerSyntax { words: &["pnpm", "dlx"], value_flags: NODE_FLAGS },
    RunnerSyntax { words: &["yarn", "dlx"], value_flags: NODE_FLAGS },
    RunnerSyntax { words: &["uvx"], value_flags: UV_FLAGS },
    RunnerSyntax { words: &["uv", "tool", "run"], value_flags: UV_FLAGS },
    RunnerSyntax { words: &["pipx", "run"], value_flags: &["--spec", "--python", "--index-url"] },
];

impl RunnerSyntax {
    fn begins(&self, words: &[&str]) -> bool {
        let Some((program, rest)) = words.split_first() else { return false };
        program_name(program) == self.words[0] && rest.starts_with(&self.words[1..])
    }
}

#[cfg(test)]
mod tests;
