//! Formats services as lines of known width: the table of `afresh status`, the block of `afresh up`, and how such a
//! block replaces the one before. Driven by these commands. Never asks a service, and never writes to the terminal.

use std::time::Duration;

use afresh_core::control::{HealthState, HealthStatus, ServiceStatus, State};
use afresh_core::duration::show_duration;
use afresh_core::text::{cells, cut_to_cells, harmless};

use crate::output::Paint;

/// How much of a processor a service uses, in percent; none where it is not known.
pub(crate) type Load<'a> = &'a dyn Fn(&ServiceStatus) -> Option<f64>;

const HEADER: [&str; 10] = [
    "NAME",
    "STATE",
    "PID",
    "UPTIME",
    "RESTARTS",
    "LAST EXIT",
    "HEALTH",
    "CPU",
    "MEMORY",
    "WORKSPACE",
];

/// Nothing is known, or there is nothing.
const NONE: &str = "-";

/// A table, and below it why services are not well. Columns that would be empty are left out.
pub(crate) fn table(
    statuses: &[&ServiceStatus],
    with_workspace: bool,
    load: Load<'_>,
    screen_columns: usize,
    paint: Paint,
) -> Vec<Row> {
    let mut rows: Vec<[String; 10]> = statuses.iter().map(|status| row(status, load)).collect();
    let names_max = names_max(rows.iter().map(|row| &row[1]), screen_columns);
    for row in &mut rows {
        row[0] = cut_to_cells(&row[0], names_max);
    }
    let columns: Vec<usize> = (0..HEADER.len())
        .filter(|column| with_workspace || HEADER[*column] != "WORKSPACE")
        .filter(|column| rows.iter().any(|row| row[*column] != NONE))
        .collect();
    let width = |column: usize| {
        let texts = rows.iter().map(|row| cells(&row[column]));
        texts.chain([HEADER[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().map(|column| width(*column)).collect();
    let line =
        |texts: &[String; 10], state: &dyn Fn(&str) -> String, rest: &dyn Fn(&str) -> String| {
            let mut line = Row::default();
            for (at, (column, width)) in columns.iter().zip(&widths).enumerate() {
                let text = &texts[*column];
                let gap = if at + 1 < columns.len() { width - cells(text) + 2 } else { 0 };
                line.push(text, |text| if *column == 1 { state(text) } else { rest(text) });
                line.push(&" ".repeat(gap), str::to_owned);
            }
            line
        };
    let bold = |text: &str| paint.bold(text);
    let mut lines = vec![line(&HEADER.map(str::to_owned), &bold, &bold)];
    for (status, row) in statuses.iter().zip(&rows) {
        lines.push(line(row, &|text| colour(&status.state, text, paint), &str::to_owned));
    }
    for status in statuses {
        if let State::Failed { why } | State::Degraded { why } = &status.state {
            let mut line = Row::default();
            let name = format!("{}: ", harmless(&status.name));
            line.push(&name, |name| colour(&status.state, name, paint));
            line.push(&harmless(why), str::to_owned);
            lines.push(line);
        }
    }
    lines
}

fn row(status: &ServiceStatus, load: Load<'_>) -> [String; 10] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    [
        harmless(&status.name),
        state_of(status),
        or_none(status.pid.map(|pid| pid.to_string())),
        or_none(status.uptime_ms.map(|millis| show_duration(rounded(millis)))),
        status.restarts.total.to_string(),
        or_none(status.last_exit.as_ref().map(|exit| harmless(&exit.text))),
        or_none(status.health.as_ref().and_then(health_of)),
        or_none(load(status).map(percent)),
        or_none(status.usage.map(|usage| memory(usage.memory_bytes))),
        or_none(status.workspace.as_deref().map(harmless)),
    ]
}

fn health_of(health: &HealthStatus) -> Option<String> {
    match (health.state, health.latency_ms) {
        (HealthState::Unknown, _) => None,
        (HealthState::Healthy, Some(millis)) => Some(format!("healthy {millis} ms")),
        (state, _) => Some(state.name().to_owned()),
    }
}

/// The processor time since the start of the process, by its age.
pub(crate) fn average(status: &ServiceStatus) -> Option<f64> {
    let (usage, uptime_ms) = (status.usage?, status.uptime_ms?);
    Some(usage.cpu_ms as f64 * 100.0 / uptime_ms.max(1) as f64)
}

pub(crate) fn percent(load: f64) -> String {
    if load < 9.95 { format!("{load:.1} %") } else { format!("{load:.0} %") }
}

pub(crate) fn memory(bytes: u64) -> String {
    let mut number = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while number >= 1_000.0
        && let Some(next) = units.next()
    {
        number /= 1_024.0;
        unit = next;
    }
    let digits = if number < 9.95 && unit != "B" { 1 } else { 0 };
    format!("{number:.digits$} {unit}")
}

/// A line for each service, none longer than a terminal is wide.
pub(crate) fn lines_of(statuses: &[&ServiceStatus], columns: usize, paint: Paint) -> Vec<Row> {
    let names: Vec<String> = statuses.iter().map(|status| harmless(&status.name)).collect();
    let states: Vec<String> = statuses.iter().map(|status| state_of(status)).collect();
    let names_max = names_max(states.iter(), columns);
    let names: Vec<String> = names.iter().map(|name| cut_to_cells(name, names_max)).collect();
    let width = names.iter().map(|name| cells(name)).max().unwrap_or(0);
    let line = |(status, name): (&&ServiceStatus, &String)| {
        let mut rest = String::new();
        if let Some(pid) = status.pid {
            rest.push_str(&format!("  pid {pid}"));
        }
        if status.restarts.total > 0 {
            rest.push_str(&format!("  restarts {}", status.restarts.total));
        }
        if let Some(exit) = status.last_exit.as_ref() {
            rest.push_str(&format!("  last: {}", harmless(&exit.text)));
        }
        let name = format!("{name}{}  ", " ".repeat(width - cells(name)));
        let mut line = Row::default();
        let room = |line: &Row| columns.saturating_sub(line.cells());
        line.push(&cut_to_cells(&name, room(&line)), str::to_owned);
        line.push(&cut_to_cells(&state_of(status), room(&line)), |text| {
            colour(&status.state, text, paint)
        });
        line.push(&cut_to_cells(&rest, room(&line)), |text| paint.dim(text));
        line
    };
    statuses.iter().zip(&names).map(line).collect()
}

/// How wide names may be, so that each state is seen at least as far as it has to be to be known.
fn names_max<'a>(states: impl Iterator<Item = &'a String>, screen_columns: usize) -> usize {
    let states = states.map(|state| cells(state)).max().unwrap_or(0);
    screen_columns.saturating_sub(2 + states.min(STATE_CELLS)).max(1)
}

/// What is enough of a state: `backing off…`, `waiting for…`.
const STATE_CELLS: usize = 12;

/// The state in a word, and what it waits for.
fn state_of(status: &ServiceStatus) -> String {
    if let Some(run) = &status.run {
        let about = if run.context_exact { "" } else { "about " };
        let context = run.context_percent.map(|part| format!(", context {about}{part:.0} %"));
        let (doing, phase) = (harmless(&run.doing), harmless(&run.phase));
        return format!("{doing}: {phase}{}", context.unwrap_or_default());
    }
    match &status.state {
        _ if !status.waits_for.is_empty() => {
            format!("waiting for {}", harmless(&status.waits_for.join(", ")))
        }
        // Why is a sentence, and stands below.
        State::Failed { .. } => "failed".to_owned(),
        State::Degraded { .. } => "degraded".to_owned(),
        state => harmless(&state.to_string()),
    }
}

/// Tenths of a second do not matter for a service that has run for a minute.
pub(crate) fn rounded(millis: u64) -> Duration {
    if millis < 1_000 { Duration::from_millis(millis) } else { Duration::from_secs(millis / 1_000) }
}

fn colour(state: &State, text: &str, paint: Paint) -> String {
    match state {
        State::Ready | State::Running => paint.green(text),
        State::Waiting
        | State::Starting
        | State::Degraded { .. }
        | State::Restarting
        | State::BackingOff { .. }
        | State::Stopping => paint.yellow(text),
        State::CrashLoop { .. } | State::Failed { .. } => paint.red(text),
        State::Stopped | State::Finished => paint.dim(text),
    }
}

/// A line that is drawn, and of which it is known how wide it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// As it is printed.
    pub(crate) text: String,
    /// Its parts, without and with their colours.
    parts: Vec<(String, String)>,
}

impl Row {
    /// One without colours.
    pub(crate) fn plain(text: &str) -> Self {
        let mut row = Self::default();
        row.push(text, str::to_owned);
        row
    }

    /// Goes on with a text that is harmless.
    pub(crate) fn push(&mut self, text: &str, paint: impl FnOnce(&str) -> String) {
        if text.is_empty() {
            return;
        }
        let painted = paint(text);
        self.text.push_str(&painted);
        self.parts.push((text.to_owned(), painted));
    }

    /// How many cells it takes.
    pub(crate) fn cells(&self) -> usize {
        self.parts.iter().map(|(text, _)| cells(text)).sum()
    }

    /// The same, so short that it takes no more than so many cells.
    fn cut(self, columns: usize) -> Self {
        if self.cells() <= columns {
            return self;
        }
        let mut row = Self::default();
        for (text, painted) in self.parts {
            let room = columns.saturating_sub(row.cells());
            if cells(&text) <= room {
                row.push(&text, |_| painted);
            } else {
                // Its colours are those around the text.
                let cut = cut_to_cells(&text, room);
                row.push(&cut, |cut| painted.replacen(&text, cut, 1));
                break;
            }
        }
        row
    }
}

/// So many of these lines as fit, none wider than the terminal.
pub(crate) fn cut(mut lines: Vec<Row>, (columns, rows): (usize, usize)) -> Vec<Row> {
    let rows_max = rows.saturating_sub(1).max(1);
    if lines.len() > rows_max {
        let left_out = lines.len() - (rows_max - 1);
        lines.truncate(rows_max - 1);
        lines.push(Row::plain(&format!("and {left_out} lines more")));
    }
    lines.into_iter().map(|line| line.cut(columns)).collect()
}

/// What puts lines and a block below them in the place of the block before.
///
/// A terminal that has become narrower since has broken the lines of that block into several.
pub(crate) fn redraw(
    lines: &str,
    before: &[Row],
    block: &[Row],
    (columns, _): (usize, usize),
) -> String {
    let broken = |row: &Row| row.cells().div_ceil(columns.max(1)).max(1);
    let erased: usize = before.iter().map(broken).sum();
    let mut all = String::new();
    if erased > 0 {
        // Up to the first line of the block, and everything from there on away.
        all.push_str(&format!("\u{1b}[{erased}F\u{1b}[J"));
    }
    all.push_str(lines);
    for row in block {
        all.push_str(&row.text);
        all.push('\n');
    }
    all
}

/// Columns and rows.
pub(crate) fn terminal_size() -> (usize, usize) {
    let size = terminal_size::terminal_size();
    let size = size.map(|(columns, rows)| (columns.0.into(), rows.0.into()));
    // A terminal without a known size reports zero.
    size.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use afresh_core::control::{LastExit, UsageStatus};

    use super::testing::service;
    use super::*;

    fn shown(statuses: &[ServiceStatus], with_workspace: bool) -> Vec<String> {
        let all: Vec<&ServiceStatus> = statuses.iter().collect();
        let rows = table(&all, with_workspace, &average, usize::MAX, Paint::Plain);
        assert!(rows.iter().all(|row| row.cells() == cells(&row.text)), "{rows:?}");
        rows.into_iter().map(|row| row.text).collect()
    }

    #[test]
    fn empty_columns_are_left_out_and_wide_names_are_measured() {
        let mut wide = service("漢字", State::Ready);
        wide.uptime_ms = Some(10_000);
        wide.usage = Some(UsageStatus { memory_bytes: 50 * 1024 * 1024, cpu_ms: 250 });
        let lines = shown(&[wide.clone(), service("web\u{1b}[2J", State::Stopped)], false);
        assert_eq!(
            lines,
            [
                "NAME     STATE    UPTIME  RESTARTS  CPU    MEMORY",
                "漢字     ready    10 s    0         2.5 %  50 MiB",
                "web␛[2J  stopped  -       0         -      -",
            ]
        );
        wide.workspace = Some("/shop".to_owned());
        assert!(shown(&[wide.clone()], true)[1].ends_with("50 MiB  /shop"));
        assert!(!shown(&[wide], false)[0].contains("WORKSPACE"));
    }

    #[test]
    fn what_is_wrong_stands_below() {
        let mut failed = service("db", State::Failed { why: "no\nport\u{7}".to_owned() });
        failed.last_exit =
            Some(LastExit { code: Some(3), signal: None, text: "exited".to_owned() });
        failed.health = Some(HealthStatus {
            state: HealthState::Healthy,
            failures: 0,
            last_error: None,
            latency_ms: Some(7),
            checked_at: None,
        });
        let lines = shown(&[failed], false);
        assert_eq!(lines[0], "NAME  STATE   RESTARTS  LAST EXIT  HEALTH");
        assert_eq!(lines[1], "db    failed  0         exited     healthy 7 ms");
        assert_eq!(lines[2], "db: no␊port␇");
    }

    #[test]
    fn long_names_leave_room_for_the_state() {
        let name = "twenty-letters-long-";
        let waiting = State::BackingOff { next_try_ms: 4_000 };
        let all = [service(name, State::Ready), service("web", waiting)];
        let all: Vec<&ServiceStatus> = all.iter().collect();
        let texts = |rows: Vec<Row>| rows.into_iter().map(|row| row.text).collect::<Vec<_>>();
        let lines = texts(lines_of(&all, 20, Paint::Plain));
        assert_eq!(lines, ["twent…  ready", "web     backing off…"]);
        let lines = texts(table(&all, false, &average, 20, Paint::Plain));
        assert!(lines[1].starts_with("twent…  ready "), "{lines:?}");
        let lines = texts(lines_of(&all[..1], 27, Paint::Plain));
        assert_eq!(lines, ["twenty-letters-long-  ready"], "there is room for it");
        for columns in 1..20 {
            let lines = texts(lines_of(&all[..1], columns, Paint::Plain));
            assert!(columns < 8 || lines[0].ends_with("ready"), "{columns}: {lines:?}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 KiB"),
            (5_000_000, "4.8 MiB"),
            (50_000_000, "48 MiB"),
            (1_073_741_824, "1.0 GiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(memory(bytes), text);
        }
        assert_eq!([percent(0.0), percent(9.96), percent(399.6)], ["0.0 %", "10 %", "400 %"]);
    }

    use crate::output::Paint;

    fn texts(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.text.as_str()).collect()
    }

    #[test]
    fn a_block_that_a_narrower_terminal_has_broken_goes_away_whole() {
        let before = [Row::plain("0123456789"), Row::plain(""), Row::plain("漢字")];
        let after = [Row::plain("new")];
        assert_eq!(redraw("line\n", &before, &after, (80, 24)), "\u{1b}[3F\u{1b}[Jline\nnew\n");
        assert_eq!(redraw("", &before, &[], (4, 24)), "\u{1b}[5F\u{1b}[J");
        assert_eq!(redraw("", &[], &after, (4, 24)), "new\n");
    }

    #[test]
    fn lines_are_cut_with_their_colours() {
        let mut row = Row::default();
        row.push("name ", str::to_owned);
        row.push("running", |text| Paint::Colours.green(text));
        let rows = vec![row.clone(), row.clone(), row];
        let cut = cut(rows, (8, 3));
        assert_eq!(texts(&cut), ["name \u{1b}[32mru…\u{1b}[0m", "and 2 l…"]);
    }
}
