//! A terminal with lines that scroll by, and below them how all services are.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use afresh_core::control::{ServiceStatus, State};
use afresh_core::limits::LINE_BYTES_MAX;

use crate::cli::status;
use crate::output::Paint;

/// The terminal that is our stdout, shared by those who write lines and those who show states.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Mutex<Inner>>);

struct Inner {
    terminal: io::Stdout,
    /// The states, as they stand below the last line.
    block: Vec<String>,
    /// A line that has not ended yet.
    rest: Vec<u8>,
    paint: Paint,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let inner = Inner {
            terminal: io::stdout(),
            block: Vec::new(),
            rest: Vec::new(),
            paint: Paint::stdout(),
        };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Shows states in place of those before; says when they want to be shown again: a wait that
    /// is told gets shorter.
    pub(crate) fn show(&self, statuses: &[ServiceStatus]) -> Option<Duration> {
        let mut inner = self.inner();
        let paint = inner.paint;
        let block = block(statuses, terminal_size(), paint);
        if block != inner.block {
            // A terminal that is gone is noticed by whoever writes lines.
            inner.draw(b"", block).ok();
        }
        let counts_down = |status: &ServiceStatus| {
            matches!(status.state, State::BackingOff { .. } | State::CrashLoop { .. })
        };
        statuses.iter().any(counts_down).then_some(Duration::from_secs(1))
    }

    /// Leaves the lines and takes the states away.
    pub(crate) fn end(&self) {
        self.inner().draw(b"", Vec::new()).ok();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // What is drawn is no worse for somebody's panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = self.inner();
        inner.rest.extend_from_slice(bytes);
        let end = inner.rest.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let whole = match end {
            None if inner.rest.len() > LINE_BYTES_MAX => {
                inner.rest.push(b'\n');
                inner.rest.len()
            }
            None => return Ok(bytes.len()),
            Some(end) => end,
        };
        let lines: Vec<u8> = inner.rest.drain(..whole).collect();
        let block = std::mem::take(&mut inner.block);
        let erased = block.len();
        inner.redraw(&lines, erased, block)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner().terminal.flush()
    }
}

impl Inner {
    fn draw(&mut self, lines: &[u8], block: Vec<String>) -> io::Result<()> {
        let erased = self.block.len();
        self.redraw(lines, erased, block)
    }

    /// In one write, so that nothing flickers.
    fn redraw(&mut self, lines: &[u8], erased: usize, block: Vec<String>) -> io::Result<()> {
        let mut all = Vec::new();
        if erased > 0 {
            // Up to the first line of the block, and everything from there on away.
            write!(all, "\u{1b}[{erased}F\u{1b}[J")?;
        }
        all.extend_from_slice(lines);
        for line in &block {
            writeln!(all, "{line}")?;
        }
        self.block = block;
        self.terminal.write_all(&all)?;
        self.terminal.flush()
    }
}

/// Columns and rows.
fn terminal_size() -> (usize, usize) {
    let size = terminal_size::terminal_size();
    size.map_or((80, 24), |(columns, rows)| (columns.0.into(), rows.0.into()))
}

/// At most a third of the screen, no line longer than it is wide: one that wraps would be two.
fn block(statuses: &[ServiceStatus], (columns, rows): (usize, usize), paint: Paint) -> Vec<String> {
    if statuses.is_empty() {
        return Vec::new();
    }
    let rows_max = (rows / 3).max(3);
    let all: Vec<&ServiceStatus> = statuses.iter().collect();
    let mut shown = all.clone();
    let left_out = match all.len() > rows_max {
        // Those that are well need less to be seen.
        true => {
            shown.sort_by_key(|status| matches!(status.state, State::Ready | State::Running));
            shown.truncate(rows_max - 1);
            all.len() - shown.len()
        }
        false => 0,
    };
    let mut lines = vec![paint.dim(&"─".repeat(columns.min(72)))];
    lines.extend(status::lines_of(&shown, columns, paint));
    if left_out > 0 {
        lines.push(paint.dim(&format!("and {left_out} more: `afresh status`")));
    }
    lines
}
