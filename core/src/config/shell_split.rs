//! Owns the splitting of a command line into words, as a shell does. Never expands anything.

/// Cuts it as a shell does, and expands nothing; none where a quote never ends. A backslash stands for itself unless
/// it is before what it has to protect: it is also in the paths of some systems.
pub(super) fn split(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        let protects = |next: &char| match quote {
            None => next.is_whitespace() || matches!(next, '\\' | '"' | '\''),
            Some(quote) => quote == '"' && matches!(next, '\\' | '"'),
        };
        match (letter, quote) {
            ('\\', _) => {
                let protected = rest.next_if(protects);
                word.get_or_insert_default().push(protected.unwrap_or('\\'));
            }
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(end)) if letter == end => quote = None,
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_as_a_shell_does() {
        let cases: [(&str, &[&str]); 8] = [
            ("", &[]),
            ("  npx  claude\t--x ", &["npx", "claude", "--x"]),
            (r#"sh -c "echo hi > x""#, &["sh", "-c", "echo hi > x"]),
            (r"a\ b 'c\ d' e\'f", &["a b", r"c\ d", "e'f"]),
            (r#""say \"it\" \n" ''"#, &[r#"say "it" \n"#, ""]),
            (r"C:\agent\run.exe --x", &[r"C:\agent\run.exe", "--x"]),
            (r#"--a="b c"d"#, &["--a=b cd"]),
            ("'it is ä' {prompt}", &["it is ä", "{prompt}"]),
        ];
        for (text, words) in cases {
            assert_eq!(
                split(text).as_deref(),
                Some(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()[..]),
                "{text}"
            );
        }
        for open in ["'a", "a \"b c", "\"a\\\""] {
            assert_eq!(split(open), None, "{open}");
        }
    }
}
