//! `afresh doctor`.

use afresh_core::config::{self, TrailSettings};
use afresh_core::text::harmless;
use afresh_daemon::store::workspace::Workspace;
use afresh_daemon::{Check, CheckVerdict, Examined, examine};
use clap::Args;
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::error::{CommandResult, Exit};
use crate::output::{self, Paint, counted};

/// Checks this machine, and says what to do about what is missing.
///
/// The guardian is tried out: a process that hides a grandchild is killed, and nothing may be left of it. All
/// else is looked at, and nothing is changed. Where a client's file names another version of afresh behind npx,
/// bunx or uvx, the registry is asked whether it has it, by npm, bun or uv.
///
/// Exits with 1 where there is a problem; warnings alone are no reason to worry.
#[derive(Debug, Args)]
#[command(
    about = "Check this machine, and say what to do about what is missing",
    after_help = "Examples:\n  \
                  afresh doctor\n  \
                  afresh doctor --offline\n  \
                  afresh doctor --json | jq '.checks[] | select(.verdict != \"ok\")'"
)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Ask no package registry for the versions that client files name
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(arguments: &DoctorArgs, environment: &Environment) -> CommandResult {
    let workspace = environment.workspace();
    let (config, trail) = check_config(environment, &workspace);
    let mut checks = examine(&Examined {
        cwd: environment.cwd.clone(),
        variables: environment.variables.clone(),
        workspace,
        trail,
        may_ask_registries: !arguments.offline,
    });
    // Beside the state, before the programs.
    let after = checks.iter().position(|check| check.name == "trail");
    checks.insert(after.map_or(checks.len(), |index| index + 1), config);
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (problems, warnings) = (count(CheckVerdict::Problem), count(CheckVerdict::Warning));
    if arguments.json {
        let all: Vec<Value> = checks.iter().map(to_json).collect();
        output::print_json(&json!({"problems": problems, "warnings": warnings, "checks": all}))?;
    } else {
        let paint = Paint::stdout();
        let lines: String = checks.iter().map(|check| show(check, paint)).collect();
        output::print(&format!("{lines}\n{}\n", summary(problems, warnings)))?;
    }
    Ok(if problems == 0 { Exit::Success } else { Exit::Failed })
}

/// The check of the configuration, and what it says about the trail.
fn check_config(environment: &Environment, workspace: &Workspace) -> (Check, TrailSettings) {
    const NAME: &str = "configuration";
    let hint = "run `afresh config check`";
    match environment.quiet_config(workspace, &[]) {
        Ok(config) => {
            let check = match config.warnings.first() {
                Some(warning) => Check::warning(NAME, warning.message.clone(), hint),
                None => Check::ok(NAME, "no errors"),
            };
            (check, config.trail)
        }
        Err(error) => {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            let found = first.strip_prefix("error: ").unwrap_or(first);
            let built_in = config::load(&[], &[], &[]).map(|config| config.trail);
            let trail = built_in.expect("the defaults are right: tests of core load them");
            (Check::problem(NAME, found, hint), trail)
        }
    }
}

fn to_json(check: &Check) -> Value {
    let Check { name, verdict, found, hint } = check;
    json!({"name": name, "verdict": verdict.name(), "found": found, "hint": hint})
}

fn show(check: &Check, paint: Paint) -> String {
    let word = format!("{:7}", check.verdict.name());
    let word = match check.verdict {
        CheckVerdict::Ok => paint.green(&word),
        CheckVerdict::Warning => paint.yellow(&word),
        CheckVerdict::Problem => paint.red(&word),
    };
    let name = paint.bold(&format!("{:14}", check.name));
    let found = harmless(&check.found);
    let hint = check.hint.as_ref().map(|hint| format!("{:25}hint: {}\n", "", harmless(hint)));
    let hint = hint.unwrap_or_default();
    format!("{word}  {name}  {found}\n{hint}")
}

fn summary(problems: usize, warnings: usize) -> String {
    match (problems, warnings) {
        (0, 0) => "all is well".to_owned(),
        (0, warnings) => format!("no problem, {}", counted(warnings, "warning")),
        (problems, 0) => counted(problems, "problem"),
        (problems, warnings) => {
            format!("{}, {}", counted(problems, "problem"), counted(warnings, "warning"))
        }
    }
}
