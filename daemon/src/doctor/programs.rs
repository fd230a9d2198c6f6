//! Checks the programs that afresh works with: their paths and versions.

use std::path::{Path, PathBuf};

use afresh_core::limits::{VERSION_BYTES_MAX, VERSION_PROBE_MAX};
use afresh_core::service::Exit;
use afresh_core::text::harmless;
use afresh_core::time::show_duration;

use super::{Check, Examined};
use crate::os::program_in;
use crate::process::{Command, Processes};
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, run_briefly};

/// A program, and what to say where it is missing.
struct Program {
    name: &'static str,
    missing: fn() -> Check,
}

const PROGRAMS: [Program; 4] = [
    Program {
        name: "git",
        missing: || {
            Check::warning("git", "not found on PATH", "install it: agents work in repositories")
        },
    },
    Program { name: "claude", missing: || Check::ok("claude", NOT_INSTALLED) },
    Program { name: "codex", missing: || Check::ok("codex", NOT_INSTALLED) },
    Program { name: "opencode", missing: || Check::ok("opencode", NOT_INSTALLED) },
];

const NOT_INSTALLED: &str = "not installed";

pub(super) async fn checks(examined: &Examined, processes: &mut Processes) -> Vec<Check> {
    let found: Vec<Option<PathBuf>> =
        PROGRAMS.iter().map(|program| find(program.name, examined)).collect();
    let brief = |path: &PathBuf| Brief {
        command: Command {
            argv: vec![path.into(), "--version".into()],
            cwd: Some(examined.cwd.clone()),
            env: examined.variables.clone(),
        },
        stdin: Vec::new(),
        time_max: VERSION_PROBE_MAX,
        output_bytes_max: VERSION_BYTES_MAX,
    };
    let briefs: Vec<Brief> = found.iter().flatten().map(brief).collect();
    let mut outcomes = run_briefly(processes, briefs).await.into_iter();
    PROGRAMS
        .iter()
        .zip(&found)
        .map(|(program, path)| {
            // There is an outcome for each that was found, in their order.
            let outcome = path.as_ref().and_then(|path| Some((path, outcomes.next()?)));
            match outcome {
                Some((path, outcome)) => judge(program.name, path, &outcome),
                None => (program.missing)(),
            }
        })
        .collect()
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

/// The program that a shell would run.
fn find(name: &str, examined: &Examined) -> Option<PathBuf> {
    std::env::split_paths(examined.variable("PATH")?)
        .find_map(|folder| program_in(&examined.cwd.join(folder), name))
}
