//! A terminal that programs draw on: what is seen where, on either of its screens.

use std::collections::{BTreeMap, BTreeSet};

/// What a terminal shows after it was given some output.
#[derive(Debug, Default)]
pub struct Grid {
    cells: BTreeMap<(usize, usize), char>,
    row: usize,
    column: usize,
    /// Its private modes that are on: 1049 is the other screen, 2004 tells what is pasted.
    pub modes: BTreeSet<String>,
    /// All that was written to the usual screen.
    pub usual: String,
}

impl Grid {
    /// Gives it all that a program has written. Panics at what it does not know.
    pub fn of(raw: &str) -> Self {
        let mut grid = Self::default();
        let mut chars = raw.chars().peekable();
        while let Some(c) = chars.next() {
            if c != '\u{1b}' {
                grid.print(c);
                continue;
            }
            // Output that is still on its way may end anywhere.
            let Some(kind) = chars.next() else { break };
            assert_eq!(kind, '[', "the terminal is told something strange: {raw:?}");
            let mut numbers = String::new();
            while let Some(part) = chars.next_if(|c| c.is_ascii_digit() || ";?".contains(*c)) {
                numbers.push(part);
            }
            let Some(verb) = chars.next() else { break };
            grid.obey(&numbers, verb);
        }
        grid
    }

    /// Whether a whole screen is drawn.
    pub fn is_drawn(&self) -> bool {
        self.modes.contains("1049")
    }

    /// The rows of that screen.
    pub fn rows(&self) -> Vec<String> {
        let last = self.cells.keys().map(|(row, _)| *row).max().unwrap_or(0);
        let row = |row: usize| {
            let cells = self.cells.range((row, 0)..(row + 1, 0));
            let mut text = Vec::new();
            for ((_, column), c) in cells {
                text.resize((*column).max(text.len()), ' ');
                text.push(*c);
            }
            text.into_iter().collect::<String>().trim_end().to_owned()
        };
        (0..=last).map(row).collect()
    }

    fn print(&mut self, c: char) {
        if !self.is_drawn() {
            self.usual.push(c);
            return;
        }
        assert!(!c.is_control(), "{c:?} on a screen that is drawn");
        self.cells.insert((self.row, self.column), c);
        self.column += 1;
    }

    fn obey(&mut self, numbers: &str, verb: char) {
        let mode = numbers.strip_prefix('?').map(str::to_owned);
        match (verb, mode) {
            ('h', Some(mode)) => {
                if mode == "1049" {
                    self.cells.clear();
                }
                self.modes.insert(mode);
            }
            ('l', Some(mode)) => drop(self.modes.remove(&mode)),
            ('m', None) => {}
            ('J', None) if numbers == "2" => self.cells.clear(),
            ('H', None) => {
                let mut places = numbers.split(';').map(|number| number.parse().unwrap_or(1));
                let mut place = || places.next().unwrap_or(1_usize) - 1;
                (self.row, self.column) = (place(), place());
            }
            (verb, _) => panic!("the terminal is told to do `{numbers}{verb}`"),
        }
    }
}
