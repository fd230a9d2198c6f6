//! Owns the breaking of a line into rows of a terminal. Used by the live view of a run and by the demo.

use afresh_core::text::cells;

/// Breaks a harmless line into rows of so many cells, between words where that is possible. What does not stand
/// in the first row is indented as that one is.
pub(crate) fn wrap(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    if cells(line) <= columns {
        return vec![line.to_owned()];
    }
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let indent = if indent.len() * 2 < columns { indent } else { String::new() };
    let mut rows = Vec::new();
    let (mut row, mut used, mut is_new) = (String::new(), 0, false);
    for word in line.split_inclusive(' ') {
        let width = cells(word.trim_end());
        if used > 0 && !is_new && used + width > columns && indent.len() + width <= columns {
            rows.push(std::mem::replace(&mut row, indent.clone()));
            (used, is_new) = (indent.len(), true);
        }
        for c in word.chars() {
            let width = cells(c.encode_utf8(&mut [0; 4]));
            if used + width > columns && used > 0 {
                if c == ' ' {
                    // A blank is not needed at the end of a row.
                    continue;
                }
                rows.push(std::mem::replace(&mut row, indent.clone()));
                used = indent.len();
            }
            row.push(c);
            used += width;
            is_new = false;
        }
    }
    rows.push(row);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_no_row_is_too_wide() {
        let cases: [(&str, usize, &[&str]); 7] = [
            ("  short", 10, &["  short"]),
            ("  one two three", 9, &["  one two", "  three"]),
            ("  one two three", 8, &["  one ", "  two ", "  three"]),
            ("0123456789", 4, &["0123", "4567", "89"]),
            ("a 0123456789", 4, &["a 01", "2345", "6789"]),
            ("  漢字漢字", 5, &["  漢", "  字", "  漢", "  字"]),
            ("", 0, &[""]),
        ];
        for (line, columns, rows) in cases {
            assert_eq!(wrap(line, columns), rows, "{line} in {columns}");
        }
        let hostile = "  e\u{301}\u{301} 漢字 \u{200d}x a-very-long-word-that-fits-nowhere ␛[2J";
        for columns in 2..40 {
            for row in wrap(hostile, columns) {
                assert!(cells(&row) <= columns, "{columns}: {row:?}");
            }
        }
    }
}
