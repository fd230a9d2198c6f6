//! Owns lines of known width for a terminal, and how a block of them replaces the one before. Driven by the table of
//! states and by the screens. Never writes to the terminal.

use afresh_core::text::{cells, cut_to_cells};

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
mod tests {
    use super::*;
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
