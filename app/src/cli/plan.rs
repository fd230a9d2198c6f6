//! `afresh plan`.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use afresh_core::duration::write_duration;
use afresh_core::run::plan::{EXAMPLE, Gate, Phase, Plan, PlanError};
use afresh_core::text::harmless;
use clap::{Args, Subcommand, ValueHint};
use serde_json::{Value, json};

use crate::cli::config::message_to_json;
use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Paint, counted};
use crate::plan_file::{self, ReadPlan};

/// Checks a plan for an agent, or writes an example of one.
///
/// A plan is Markdown: a title, and `## Phase: NAME` sections with the task in prose. Lines such as `-
/// Depends on: NAME`, `- Gate: COMMAND`, `- Files: src/**`, `- Time limit: 30m`, `- Cost limit: $5` and `-
/// Token limit: 2M` say more about a phase.
#[derive(Debug, Args)]
#[command(
    about = "Check a plan for an agent, or write an example of one",
    after_help = "Examples:\n  \
                  afresh plan new                  write PLAN.md, to start from\n  \
                  afresh plan check                is PLAN.md right, and what will be done when?\n  \
                  afresh plan check docs/next.md   another plan"
)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Check a plan and show its phases; exits with 3 where something is wrong
    Check {
        /// The plan
        #[arg(value_name = "FILE", default_value = "PLAN.md", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The verdict, every error as an object, and the phases
        #[arg(long)]
        json: bool,
    },
    /// Write an example of a plan
    New {
        /// The file to write, which must not exist; `-` is stdout
        #[arg(value_name = "FILE", default_value = "PLAN.md", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

pub(crate) fn run(arguments: &PlanArgs, environment: &Environment) -> CommandResult {
    match &arguments.command {
        PlanCommand::Check { file, json } => check(file, *json, environment),
        PlanCommand::New { file } => new(file, environment),
    }
}

fn check(file: &Path, json: bool, environment: &Environment) -> CommandResult {
    let ReadPlan { files, result } = plan_file::read(file, environment)?;
    if json {
        let (plan, messages) = match &result {
            Ok(sound) => (Some(plan_to_json(&sound.plan)), &sound.warnings),
            Err(errors) => (None, errors),
        };
        let messages: Vec<Value> = messages.iter().map(message).collect();
        let is_ok = result.is_ok();
        let verdict = json!({"ok": is_ok, "files": files, "messages": messages, "plan": plan});
        output::print_json(&verdict)?;
        return Ok(if is_ok { Exit::Success } else { Exit::Config });
    }
    let sound = result.map_err(|errors| CommandError::config(&errors))?;
    sound.warnings.iter().for_each(|warning| output::warn(&warning.to_string()));
    output::print(&shown(&files, &sound.plan))
}

/// The verdict, and the phases in the order in which they are done.
fn shown(files: &[String], plan: &Plan) -> String {
    let paint = Paint::stdout();
    let others = match files.len() {
        0 | 1 => String::new(),
        many => format!(" and {}", counted(many - 1, "file")),
    };
    let first = files.first().map(|file| harmless(file)).unwrap_or_default();
    let phases = counted(plan.phases.len(), "phase");
    let mut text =
        format!("ok: `{first}`{others}; {phases}\n\n{}\n", paint.bold(&harmless(&plan.title)));
    for (at, phase) in plan.phases.iter().enumerate() {
        let number = format!("{}.", at + 1);
        text.push_str(&format!("{number:>4} {}\n", paint.bold(&harmless(&phase.name))));
        for (key, value) in details(phase) {
            let key = paint.dim(&format!("{key:<10}"));
            text.push_str(&format!("     {key}  {}\n", harmless(&value)));
        }
    }
    text
}

fn details(phase: &Phase) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if !phase.depends_on.is_empty() {
        rows.push(("depends on", phase.depends_on.join(", ")));
    }
    for gate in &phase.gates {
        let name = (gate.name != gate.command).then(|| gate.name.clone());
        let label: Vec<String> =
            name.into_iter().chain(gate.time_max.map(write_duration)).collect();
        rows.push(match label.is_empty() {
            true => ("gate", gate.command.clone()),
            false => ("gate", format!("({}) {}", label.join(", "), gate.command)),
        });
    }
    if phase.gates.is_empty() {
        rows.push(("gate", "none".to_owned()));
    }
    if !phase.files.is_empty() {
        rows.push(("files", phase.files.join(", ")));
    }
    let limits: Vec<String> = [
        phase.time_max.map(write_duration),
        phase.dollars_max.map(|dollars| format!("${dollars}")),
        phase.tokens_max.map(|tokens| format!("{tokens} tokens")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !limits.is_empty() {
        rows.push(("at most", limits.join(", ")));
    }
    rows
}

fn plan_to_json(plan: &Plan) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let gate = |gate: &Gate| {
        let time_max_ms = gate.time_max.map(millis);
        json!({"name": gate.name, "command": gate.command, "time_max_ms": time_max_ms})
    };
    let phase = |phase: &Phase| {
        let gates: Vec<Value> = phase.gates.iter().map(gate).collect();
        json!({
            "name": phase.name,
            "task": phase.task,
            "depends_on": phase.depends_on,
            "gates": gates,
            "files": phase.files,
            "time_max_ms": phase.time_max.map(millis),
            "dollars_max": phase.dollars_max,
            "tokens_max": phase.tokens_max,
        })
    };
    let phases: Vec<Value> = plan.phases.iter().map(phase).collect();
    json!({"title": plan.title, "preface": plan.preface, "phases": phases})
}

fn message(error: &PlanError) -> Value {
    message_to_json(error.severity.word(), &error.message, &error.origin, error.hint.as_deref())
}

fn new(file: &Path, environment: &Environment) -> CommandResult {
    if file == Path::new("-") {
        return output::print(EXAMPLE);
    }
    let path = environment.cwd.join(file);
    let shown = environment.shown(&path);
    let written = File::create_new(&path).and_then(|mut file| file.write_all(EXAMPLE.as_bytes()));
    match written {
        Ok(()) => {
            output::print(&format!("wrote `{shown}`: change it, then run `afresh plan check`\n"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(CommandError::new(Exit::Failed, format!("`{shown}` exists, and is left as it is"))
                .hint("name another file, or `-` to see the example"))
        }
        Err(error) => {
            Err(CommandError::new(Exit::Unavailable, format!("cannot write `{shown}`: {error}")))
        }
    }
}
