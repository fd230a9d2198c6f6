//! Owns the terminal of `afresh up`: lines that scroll by, and the states of all services below them. Driven by the
//! writers of lines and by the snapshots of the supervisor. Never waits for a terminal that is paused.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use afresh_core::control::{ServiceStatus, State};
use afresh_core::limits::{LINE_BYTES_MAX, OUTPUT_FLUSH_MAX};
use afresh_core::text::cut_to_cells;

use crate::output::Paint;
use crate::status_table::{self, Row, redraw, terminal_size};

/// The terminal that is our stdout, shared by the writers of lines and of states.
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

/// What is behind a lock, also after the panic of another thread.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is drawn is no worse for the panic of a thread.
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

/// Lines of services as they may be drawn: of the control sequences that a service prints, only colours are kept.
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
    lines.extend(status_table::lines_of(&shown, columns, paint));
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
mod tests {
    use super::*;
    use crate::status_table::testing::service;

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
    fn what_services_print_is_not_obeyed_but_for_colours() {
        let hostile = b"\x1b[2J\x1b[10A\x1b]0;title\x07\rx\x9b1J\n\x1b[31mred\r\n\tlast";
        assert_eq!(
            tame(hostile, Paint::Colours),
            "␛[2J␛[10A␛]0;title␇␍x�1J\n\u{1b}[31mred\u{1b}[0m\n    last\n"
        );
        assert_eq!(tame(b"\x1b[31mred\n", Paint::Plain), "red\n");
    }
}
