//! Owns a line that is being typed. Driven by the keys. Never draws.

use afresh_core::limits::STEER_CHARS_MAX;
use afresh_core::text::{cells, harmless};

/// A text of one line, and where the cursor is in it. No more than a page is taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Editor {
    text: Vec<char>,
    at: usize,
}

impl Editor {
    pub(super) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// Takes a character where the cursor is.
    pub(super) fn insert(&mut self, c: char) {
        if self.text.len() < STEER_CHARS_MAX && !c.is_control() {
            self.text.insert(self.at, c);
            self.at += 1;
        }
    }

    /// Takes a text that was pasted: its lines become one.
    pub(super) fn paste(&mut self, text: &str) {
        let text = text.trim_end_matches(['\r', '\n']).replace("\r\n", "\n");
        let room = STEER_CHARS_MAX - self.text.len();
        let one_line = text.chars().map(|c| if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c });
        let taken: Vec<char> = one_line.filter(|c| !c.is_control()).take(room).collect();
        let end = self.at + taken.len();
        self.text.splice(self.at..self.at, taken);
        self.at = end;
    }

    pub(super) fn backspace(&mut self) {
        if self.at > 0 {
            self.at -= 1;
            self.text.remove(self.at);
        }
    }

    pub(super) fn delete(&mut self) {
        if self.at < self.text.len() {
            self.text.remove(self.at);
        }
    }

    /// Moves the cursor by so many characters.
    pub(super) fn go(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.text.len());
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.at = 0;
    }

    /// The part of it that is seen in so many cells, and the cell that the cursor is in.
    pub(super) fn seen(&self, cells_max: usize) -> (String, usize) {
        let width = |c: &char| cells(c.encode_utf8(&mut [0; 4]));
        // The cursor stands behind what was typed, and needs a cell too.
        let room = cells_max.saturating_sub(1);
        let (mut from, mut before) = (self.at, 0);
        while from > 0 && before + width(&self.text[from - 1]) <= room {
            from -= 1;
            before += width(&self.text[from]);
        }
        let (mut to, mut used) = (self.at, before);
        while to < self.text.len() && used + width(&self.text[to]) <= cells_max {
            used += width(&self.text[to]);
            to += 1;
        }
        let seen: String = self.text[from..to].iter().collect();
        (harmless(&seen), before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_typed_mended_and_pasted() {
        let mut editor = Editor::default();
        "use tabs".chars().for_each(|c| editor.insert(c));
        editor.go(-4);
        editor.paste("no\n\ttwo \u{1b}[2J\r\n");
        assert_eq!(editor.text(), "use no  two [2Jtabs");
        editor.backspace();
        editor.delete();
        editor.insert('\u{7}');
        assert_eq!(editor.text(), "use no  two [2abs");
        editor.go(isize::MIN);
        editor.backspace();
        editor.delete();
        editor.go(isize::MAX);
        editor.delete();
        editor.insert('!');
        assert_eq!(editor.text(), "se no  two [2abs!");
        editor.clear();
        editor.backspace();
        assert_eq!(editor, Editor::default());
    }

    #[test]
    fn no_more_than_a_page_is_taken() {
        let mut editor = Editor::default();
        editor.paste(&"x".repeat(STEER_CHARS_MAX + 10));
        editor.insert('y');
        editor.paste("z");
        assert_eq!(editor.text(), "x".repeat(STEER_CHARS_MAX));
    }

    #[test]
    fn the_cursor_is_seen_wherever_it_is() {
        let mut editor = Editor::default();
        editor.paste("0123456789");
        assert_eq!(editor.seen(20), ("0123456789".to_owned(), 10));
        assert_eq!(editor.seen(5), ("6789".to_owned(), 4));
        editor.go(-8);
        assert_eq!(editor.seen(5), ("01234".to_owned(), 2));
        editor.go(isize::MIN);
        editor.paste("漢字");
        assert_eq!(editor.seen(4), ("字01".to_owned(), 2));
        for cells_max in 0..8 {
            let (seen, at) = editor.seen(cells_max);
            assert!(cells(&seen) <= cells_max && at <= cells_max, "{cells_max}: {seen} {at}");
        }
    }
}
