//! A terminal with lines that scroll by, and below them how all services are.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afresh_core::control::{ServiceStatus, State};
use afresh_core::limits::{LINE_BYTES_MAX, OUTPUT_FLUSH_MAX};
use afresh_core::text::{cells, cut_to_cells};

use crate::cli::status;
use crate::output::Paint;

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
    // A terminal that nobody has told its size says that it has none.
    size.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}

/// The terminal that is our stdout, shared by those who write lines and those who show states.
#[derive(Clone)]
pub(crate) struct Screen {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    terminal: io::Stdout,
    /// The states, as they stand below the last line.
    block: Vec<Row>,
    /// A line that has not ended yet.
    rest: Vec<u8>,
    paint: Paint,
    /// The states are taken away for good.
    has_ended: bool,
}

impl Screen {
    /// Shows the states that come over the stream, by a thread of its own: a terminal may be paused.
    pub(crate) fn new(statuses: Receiver<Vec<ServiceStatus>>) -> io::Result<Self> {
        let inner = Inner {
            terminal: io::stdout(),
            block: Vec::new(),
            rest: Vec::new(),
            paint: Paint::stdout(),
            has_ended: false,
        };
        let screen = Self { inner: Arc::new(Mutex::new(inner)) };
        let inner = Arc::clone(&screen.inner);
        let draw = move || {
            while let Ok(first) = statuses.recv() {
                let newest = statuses.try_iter().last().unwrap_or(first);
                let mut inner = locked(&inner);
                let block = block(&newest, terminal_size(), inner.paint);
                if block != inner.block && !inner.has_ended {
                    // A terminal that is gone is noticed where lines are written.
                    inner.draw("", block).ok();
                }
            }
        };
        let thread = std::thread::Builder::new().name("screen".to_owned()).stack_size(128 * 1024);
        thread.spawn(draw)?;
        Ok(screen)
    }

    /// Leaves the lines and takes the states away. A terminal that is paused is not waited for.
    pub(crate) fn end(self) {
        let (done, ended) = sync_channel(1);
        let erase = move || {
            let mut inner = locked(&self.inner);
            inner.has_ended = true;
            let rest = std::mem::take(&mut inner.rest);
            let rest = tame(&rest, inner.paint);
            inner.draw(&rest, Vec::new()).ok();
            done.send(()).ok();
        };
        if std::thread::Builder::new().spawn(erase).is_ok() {
            ended.recv_timeout(OUTPUT_FLUSH_MAX).ok();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is drawn is no worse for somebody's panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = locked(&self.inner);
        inner.rest.extend_from_slice(bytes);
        let end = inner.rest.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let whole = match end {
            None if inner.rest.len() > LINE_BYTES_MAX => inner.rest.len(),
            None => return Ok(bytes.len()),
            Some(end) => end,
        };
        let lines: Vec<u8> = inner.rest.drain(..whole).collect();
        let (lines, block) = (tame(&lines, inner.paint), inner.block.clone());
        inner.draw(&lines, block)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        locked(&self.inner).terminal.flush()
    }
}

impl Inner {
    /// In one write, so that nothing flickers.
    fn draw(&mut self, lines: &str, block: Vec<Row>) -> io::Result<()> {
        let all = redraw(lines, &self.block, &block, terminal_size());
        self.block = block;
        self.terminal.write_all(all.as_bytes())?;
        self.terminal.flush()
    }
}

/// Lines of services as they may be drawn: whatever a service prints, it is not obeyed, but for its colours.
fn tame(bytes: &[u8], paint: Paint) -> String {
    afresh_core::text::tame(bytes, paint == Paint::Colours)
}

/// At most a third of the screen, no line longer than it is wide: one that wraps would be two.
fn block(statuses: &[ServiceStatus], (columns, rows): (usize, usize), paint: Paint) -> Vec<Row> {
    // With so few rows, the lines are all there is room for.
    if statuses.is_empty() || rows < ROWS_MIN {
        return Vec::new();
    }
    let rows_max = (rows / 3).max(3);
    let mut shown: Vec<&ServiceStatus> = statuses.iter().collect();
    if statuses.len() > rows_max {
        // Those that are well need less to be seen.
        shown.sort_by_key(|status| matches!(status.state, State::Ready | State::Running));
        shown.truncate(rows_max - 1);
    }
    let dim = |text: &str| paint.dim(text);
    let mut rule = Row::default();
    rule.push(&"─".repeat(columns.min(72)), dim);
    let mut lines = vec![rule];
    lines.extend(status::lines_of(&shown, columns, paint));
    let left_out = statuses.len() - shown.len();
    if left_out > 0 {
        let mut more = Row::default();
        more.push(&cut_to_cells(&format!("and {left_out} more: `afresh status`"), columns), dim);
        lines.push(more);
    }
    lines
}

/// A line above it, three services, and two lines that scroll.
const ROWS_MIN: usize = 6;

#[cfg(test)]
pub(crate) mod testing {
    use afresh_core::control::{Face, Restarts};

    use super::*;

    /// A service of which little is known.
    pub(crate) fn service(name: &str, state: State) -> ServiceStatus {
        ServiceStatus {
            name: name.to_owned(),
            group: None,
            face: Face::Up,
            state,
            says_ready: false,
            pid: None,
            supervisor_pid: 1,
            generation: 1,
            started_at: None,
            uptime_ms: None,
            restarts: Restarts::default(),
            candidate_pid: None,
            spare_pid: None,
            waits_for: Vec::new(),
            depends_on: Vec::new(),
            swap_failed: None,
            last_exit: None,
            health: None,
            usage: None,
            run: None,
            workspace: None,
            command: String::new(),
            mechanism: String::new(),
            version: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::service;
    use super::*;

    fn texts(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.text.as_str()).collect()
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut web = service("web", State::Running);
        web.pid = Some(4711);
        let wide = service("漢字漢字", State::Stopped);
        let hostile = service("\u{1b}[2J\u{7}", State::Failed { why: String::new() });
        let all = [web, wide, hostile];
        assert_eq!(
            texts(&block(&all, (40, 24), Paint::Plain)),
            [
                "─".repeat(40).as_str(),
                "web       running  pid 4711",
                "漢字漢字  stopped",
                "␛[2J␇     failed"
            ]
        );
        for columns in 0..40 {
            for paint in [Paint::Plain, Paint::Colours] {
                for row in block(&all, (columns, 24), paint) {
                    assert!(row.cells() <= columns, "{columns}: {row:?}");
                }
            }
        }
        assert_eq!(
            texts(&block(&all, (12, 24), Paint::Plain))[1..3],
            ["web  running", "漢…  stopped"]
        );
    }

    #[test]
    fn where_not_all_fit_those_that_are_not_well_do() {
        let mut all: Vec<ServiceStatus> =
            (0..100).map(|at| service(&format!("s{at}"), State::Running)).collect();
        all[77].state = State::CrashLoop { next_try_ms: 1_000 };
        let shown = block(&all, (80, 12), Paint::Plain);
        assert_eq!(shown.len(), 5, "a third of the screen, and the line above: {shown:?}");
        assert!(shown[1].text.starts_with("s77"), "{shown:?}");
        assert_eq!(shown[4].text, "and 97 more: `afresh status`");
        assert_eq!(block(&all, (80, 5), Paint::Plain), [], "there is no room for it");
        assert_eq!(block(&[], (80, 24), Paint::Plain), []);
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

    #[test]
    fn what_services_print_is_not_obeyed_but_for_colours() {
        let hostile = b"\x1b[2J\x1b[10A\x1b]0;title\x07\rx\x9b1J\n\x1b[31mred\r\n\tlast";
        assert_eq!(
            tame(hostile, Paint::Colours),
            "␛[2J␛[10A␛]0;title␇␍x�1J\n\u{1b}[31mred\u{1b}[0m\n    last\n"
        );
        assert_eq!(tame(b"\x1b[31mred\n", Paint::Plain), "red\n");
    }
}
