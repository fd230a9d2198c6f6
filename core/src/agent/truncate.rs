//! Texts of agents, cut to what is kept of them.

/// At most this many characters of a text, the last of them `…` where something was cut.
pub(super) fn cut(text: &str, chars_max: usize) -> String {
    // Most texts are short, and no text has more characters than bytes.
    if text.len() <= chars_max || text.chars().nth(chars_max).is_none() {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// The same, as one line.
pub(super) fn cut_to_line(text: &str, chars_max: usize) -> String {
    let mut words = text.split_whitespace();
    let mut line = words.next().unwrap_or_default().to_owned();
    for word in words {
        // What comes later is cut anyway.
        if line.len() > chars_max * 4 {
            break;
        }
        line.push(' ');
        line.push_str(word);
    }
    cut(&line, chars_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_characters() {
        for (text, max, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("äöü", 3, "äöü"),
            ("äöüß", 3, "äö…"),
            ("", 0, ""),
        ] {
            assert_eq!(cut(text, max), expected);
        }
        assert_eq!(cut_to_line(" a\n  b\tc ", 10), "a b c");
        assert_eq!(cut_to_line(&"word ".repeat(100_000), 10), "word word…");
    }
}
