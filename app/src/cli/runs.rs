//! `afresh runs`.

use afresh_core::run::{Attempt, Finish, Kind, PhaseEnd, Record, ResumeState, shown_output};
use afresh_core::text::harmless;
use afresh_daemon::store::runs::{RunRow, Runs};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit};
use crate::output::{self, Lines, Paint};

/// Show the runs of plans here, and what happened in each
#[derive(Debug, Args)]
#[command(
    long_about = "Shows the runs of plans in this workspace, newest first, or what happened in one of them: its \
                  phases, sessions, restarts, gates, tokens and cost, and how full the context was.",
    after_help = "Examples:\n  \
                  afresh runs                the last runs\n  \
                  afresh runs show           what happened in the last one\n  \
                  afresh runs show 3 --json  all that is known of run 3, for programs"
)]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,

    /// Only the last so many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// For programs: an array of objects
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// Show what happened in a run
    Show {
        /// Its number; the last one where none is given
        #[arg(value_name = "RUN")]
        run: Option<i64>,
        /// For programs: the run and all its records
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &RunsArgs, environment: &Environment) -> CommandResult {
    let workspace = environment.located_workspace();
    let runs = match Runs::path_in(workspace.state()).exists() {
        true => Some(Runs::open(&workspace.writable_state())?),
        false => None,
    };
    match &arguments.command {
        None => list(runs.as_ref(), arguments),
        Some(RunsCommand::Show { run, json }) => show(runs.as_ref(), *run, *json),
    }
}

fn list(runs: Option<&Runs>, arguments: &RunsArgs) -> CommandResult {
    let rows = runs.map_or(Ok(Vec::new()), |runs| runs.list(arguments.limit))?;
    if arguments.json {
        return output::print_json(&rows.iter().map(row_to_json).collect());
    }
    if rows.is_empty() {
        output::remark("no plan was run here yet; `afresh run PLAN.md` does");
        return Ok(Exit::Success);
    }
    let mut lines = Lines::new();
    let paint = Paint::stdout();
    let head = format!("{:>4}  {:<20}  {:<9}  {:<8}  TITLE", "RUN", "BEGAN", "STATE", "AGENT");
    lines.write(&paint.dim(&head))?;
    for row in rows {
        let state = format!("{:<9}", state(row.finish.as_ref()));
        let state = match row.finish {
            Some(Finish::Done) => paint.green(&state),
            Some(Finish::Failed { .. } | Finish::Refused { .. }) => paint.red(&state),
            Some(Finish::Stopped { .. } | Finish::Skipped { .. }) | None => paint.yellow(&state),
        };
        let began = harmless(row.began.get(..19).unwrap_or(&row.began));
        let (agent, title) = (harmless(&row.agent), harmless(&row.title));
        lines.write(&format!("{:>4}  {began:<20}  {state}  {agent:<8}  {title}", row.run))?;
    }
    lines.flush()?;
    Ok(Exit::Success)
}

const fn state(finish: Option<&Finish>) -> &'static str {
    match finish {
        None => "open",
        Some(Finish::Done) => "done",
        Some(Finish::Skipped { .. }) => "skipped",
        Some(Finish::Failed { .. }) => "failed",
        Some(Finish::Stopped { .. }) => "stopped",
        Some(Finish::Refused { .. }) => "refused",
    }
}

fn row_to_json(row: &RunRow) -> Value {
    json!({
        "run": row.run,
        "plan": row.plan,
        "title": row.title,
        "agent": row.agent,
        "began": row.began,
        "ended": row.ended,
        "state": state(row.finish.as_ref()),
        "finish": row.finish,
    })
}

fn show(runs: Option<&Runs>, run: Option<i64>, json: bool) -> CommandResult {
    let missing = || {
        let text = match run {
            Some(run) => format!("there is no run {run} here"),
            None => "no plan was run here yet".to_owned(),
        };
        CommandError::new(Exit::NotFound, text).hint("`afresh runs` lists them")
    };
    let runs = runs.ok_or_else(missing)?;
    let row = match run {
        Some(run) => runs.one(run)?,
        None => runs.list(1)?.pop(),
    };
    let row = row.ok_or_else(missing)?;
    let records = runs.records(row.run)?;
    if json {
        let each = records.iter().map(|(at, record)| json!({"at": at, "record": record}));
        let mut whole = row_to_json(&row);
        whole["records"] = each.collect();
        return output::print_json(&whole);
    }
    let mut lines = Lines::new();
    let paint = Paint::stdout();
    let (title, state) = (paint.bold(&harmless(&row.title)), state(row.finish.as_ref()));
    lines.write(&format!("{title} (run {}, {}, {state})", row.run, harmless(&row.agent)))?;
    for (at, record) in &records {
        if let Some(text) = told(record, paint) {
            let clock = harmless(at.get(11..19).unwrap_or(at));
            lines.write(&format!("{}  {text}", paint.dim(&clock)))?;
        }
        if let Record::GateEnded { passed: false, output, .. } = record {
            for line in shown_output(output) {
                lines.write(&paint.dim(&format!("            {line}")))?;
            }
        }
    }
    for line in totals(&records).into_iter().chain(chart(&records)) {
        lines.write(&line)?;
    }
    lines.flush()?;
    Ok(Exit::Success)
}

/// A record as a line of the story; none for those that are only counted.
fn told(record: &Record, paint: Paint) -> Option<String> {
    Some(match record {
        Record::PhaseBegan { phase, .. } => paint.bold(&format!("phase: {}", harmless(phase))),
        Record::AttemptBegan { attempt, kind, .. } => {
            let kind = match kind {
                Kind::First => String::new(),
                Kind::Restart(number) => format!(" (restart {number})"),
                Kind::Remediation(number) => format!(" (remediation {number})"),
                Kind::Resumed => " (goes on)".to_owned(),
            };
            format!("session {} begins{kind}", attempt.0)
        }
        Record::AttemptEnded { attempt, cause, detail, .. } => {
            format!("session {} ends: {cause} ({})", attempt.0, harmless(detail))
        }
        Record::Committed { commit, message } => {
            let commit = harmless(commit.get(..9).unwrap_or(commit));
            format!("commit {commit} {}", harmless(message))
        }
        Record::GateEnded { gate, passed: true, took_ms, .. } => {
            let seconds = *took_ms as f64 / 1e3;
            paint.green(&format!("gate passed: {} ({seconds:.1} s)", harmless(gate)))
        }
        Record::GateEnded { gate, ending, .. } => {
            paint.red(&format!("gate failed: {} ({})", harmless(gate), harmless(ending)))
        }
        Record::Waiting { why, until } => {
            paint.yellow(&format!("waits until {}: {}", harmless(until), harmless(why)))
        }
        Record::PhaseEnded { phase, end, detail } => {
            let end = match end {
                PhaseEnd::Done => "done",
                PhaseEnd::Skipped => "skipped",
                PhaseEnd::Failed => "failed",
            };
            let detail =
                if detail.is_empty() { String::new() } else { format!(": {}", harmless(detail)) };
            format!("phase {end}: {}{detail}", harmless(phase))
        }
        Record::RunEnded { finish } => match finish {
            Finish::Done => "the run is done".to_owned(),
            Finish::Skipped { why } => format!("the run is over: {}", harmless(why)),
            Finish::Failed { why } | Finish::Stopped { why } | Finish::Refused { why, .. } => {
                format!("the run is {}: {}", state(Some(finish)), harmless(why))
            }
        },
        Record::SessionNamed { .. }
        | Record::Sampled { .. }
        | Record::Spent { .. }
        | Record::Worked { .. }
        | Record::Stood { .. }
        | Record::Seen { .. }
        | Record::Beside { .. }
        | Record::Progress { .. } => return None,
    })
}

fn totals(records: &[(String, Record)]) -> Vec<String> {
    let past = ResumeState::of(records.iter().map(|(_, record)| record));
    let cost = past.spent.dollars.map_or(String::new(), |cost| format!(", ${cost:.2}"));
    let (input, cached, output) = (past.spent.input, past.spent.cached, past.spent.output);
    let guess = if past.spent.guessed { "about " } else { "" };
    let restarts = past.restarts;
    vec![
        String::new(),
        format!(
            "{guess}{input} tokens in ({cached} from the cache), {output} out{cost}; {restarts} restarts"
        ),
    ]
}

/// How full the context was: a bar for each sample, a line for each session.
fn chart(records: &[(String, Record)]) -> Vec<String> {
    let mut sessions: Vec<(Attempt, Vec<f64>)> = Vec::new();
    for (_, record) in records {
        if let Record::Sampled { attempt, used, window: Some(window), .. } = record
            && *window > 0
        {
            let percent = *used as f64 / *window as f64 * 100.0;
            match sessions.last_mut() {
                Some((last, samples)) if last == attempt => samples.push(percent),
                _ => sessions.push((*attempt, vec![percent])),
            }
        }
    }
    if sessions.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "context, by session:".to_owned()];
    for (attempt, samples) in sessions {
        let last = samples.last().copied().unwrap_or_default();
        // At most so many of them, evenly.
        let chunks = samples.chunks(samples.len().div_ceil(60).max(1));
        let bars: String =
            chunks.map(|chunk| bar(chunk.iter().copied().fold(0.0, f64::max))).collect();
        lines.push(format!("{:>4}  {bars}  {last:.0} %", attempt.0));
    }
    lines
}

fn bar(percent: f64) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let at = (percent / 100.0 * BARS.len() as f64) as usize;
    BARS[at.min(BARS.len() - 1)]
}
