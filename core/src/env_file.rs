//! Owns the syntax of files of `NAME=value` lines, from which services get variables.
//!
//! Reads text only: which file it is, and when it is read, is the daemon's. Nothing is expanded, so
//! that a `$` in a password stays one.

use std::collections::BTreeMap;

use crate::limits::{ENV_FILE_BYTES_MAX, ENV_FILE_NAMES_MAX};

/// What is wrong with such a file. Its `Display` never quotes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct EnvFileError {
    /// The line, from 1; where a quote is open, the line that opens it.
    pub line: usize,
    /// What is wrong there.
    pub problem: EnvFileProblem,
}

/// What can be wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvFileProblem {
    /// The file is larger than such a file can be.
    #[error("the file is larger than {}KiB", ENV_FILE_BYTES_MAX / 1024)]
    TooLarge,
    /// The file has more names than such a file can have.
    #[error("the file has more than {ENV_FILE_NAMES_MAX} names")]
    TooMany,
    /// The bytes are not UTF-8.
    #[error("this is not UTF-8 text")]
    Encoding,
    /// There is no `=`.
    #[error("there is no `=`: write `NAME=value`")]
    NoValue,
    /// What stands before the `=` is not a name.
    #[error(
        "this is no name: it takes letters, digits, `_`, `.` and `-`, and begins with a letter or `_`"
    )]
    BadName,
    /// A quote has no end.
    #[error("the quote that begins here has no end")]
    OpenQuote,
    /// Something stands after the closing quote.
    #[error("only a comment may follow the closing quote")]
    AfterQuote,
    /// A NUL byte, which no variable can hold.
    #[error("a variable cannot hold a NUL byte")]
    Nul,
}

/// Reads the variables of a file, in the order of their names; the last of equal names wins.
///
/// A line is empty, a comment after `#`, or `NAME=value` with an optional `export` before it. A value
/// without quotes ends at the end of its line or before ` #`. In single quotes everything is as it is
/// written; in double quotes `\n`, `\r`, `\t`, `\"`, `\\` and `\$` are what they are in a shell's
/// `printf`. A value in quotes may go on over lines.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, String>, EnvFileError> {
    let at = |line, problem| EnvFileError { line, problem };
    if bytes.len() > ENV_FILE_BYTES_MAX {
        return Err(at(1, EnvFileProblem::TooLarge));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let line_of = |end: usize| 1 + bytes[..end].iter().filter(|byte| **byte == b'\n').count();
    let text = std::str::from_utf8(bytes)
        .map_err(|error| at(line_of(error.valid_up_to()), EnvFileProblem::Encoding))?;
    if let Some(nul) = text.find('\0') {
        return Err(at(line_of(nul), EnvFileProblem::Nul));
    }
    let mut variables = BTreeMap::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (read, after) = entry(rest).map_err(|problem| at(line, problem))?;
        if let Some((name, value)) = read {
            variables.insert(name.to_owned(), value);
        }
        if variables.len() > ENV_FILE_NAMES_MAX {
            return Err(at(line, EnvFileProblem::TooMany));
        }
        line += rest[..rest.len() - after.len()].matches('\n').count();
        rest = after;
    }
    Ok(variables)
}

type Entry<'a> = (Option<(&'a str, String)>, &'a str);

/// One entry, and what comes after its line.
fn entry(text: &str) -> Result<Entry<'_>, EnvFileProblem> {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok((None, after));
    }
    let line = match line.strip_prefix("export") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start(),
        _ => line,
    };
    let (name, value) = line.split_once('=').ok_or(EnvFileProblem::NoValue)?;
    let name = name.trim_end();
    if !is_name(name) {
        return Err(EnvFileProblem::BadName);
    }
    let value = value.trim_start();
    let Some(quote @ ('"' | '\'')) = value.chars().next() else {
        return Ok((Some((name, plain(value).to_owned())), after));
    };
    // A value in quotes may go on over lines: it is read from the text, not from its line.
    let start = text.len() - text.split_once('=').ok_or(EnvFileProblem::NoValue)?.1.len();
    let opened = text[start..].trim_start_matches([' ', '\t']);
    let (value, rest) = quoted(&opened[1..], quote).ok_or(EnvFileProblem::OpenQuote)?;
    let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
    let line = line.trim();
    if !line.is_empty() && !line.starts_with('#') {
        return Err(EnvFileProblem::AfterQuote);
    }
    Ok((Some((name, value)), after))
}

/// A value without quotes, up to its comment.
fn plain(value: &str) -> &str {
    if value.starts_with('#') {
        return "";
    }
    let comment = [" #", "\t#"].iter().filter_map(|mark| value.find(mark)).min();
    value[..comment.unwrap_or(value.len())].trim_end()
}

/// What stands before the closing quote, and what comes after it.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            _ if letter == quote => return Some((value, &text[at + 1..])),
            '\\' if quote == '"' => match letters.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                escaped @ ('"' | '\\' | '$') => value.push(escaped),
                // As in `C:\projects`: no escape of ours, so it is meant as it is written.
                other => value.extend(['\\', other]),
            },
            // The end of a line on Windows is the end of a line.
            '\r' if text[at + 1..].starts_with('\n') => {}
            _ => value.push(letter),
        }
    }
    None
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Whether a text can be the name of a variable: letters, digits and `_`, and no digit at first.
pub(crate) fn is_variable(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Option<String> {
        parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}")).remove("A")
    }

    #[test]
    fn every_way_to_write_a_value_is_read() {
        let cases = [
            ("A=1", "1"),
            ("A=", ""),
            ("  export\tA = two words  ", "two words"),
            ("A=a#b # comment", "a#b"),
            ("A=# comment", ""),
            ("A='$HOME # \\n'  # comment", "$HOME # \\n"),
            ("A=\"a\\nb\\t\\\"\\\\ \\$x \\d\"", "a\nb\t\"\\ $x \\d"),
            ("A=\"-----BEGIN\r\nlast\"\r\n", "-----BEGIN\nlast"),
            ("A='one\ntwo'\nB=3", "one\ntwo"),
            ("A=x=y==", "x=y=="),
            ("A=it's", "it's"),
            ("\u{feff}A=1\r\n", "1"),
            ("A=1\nA=2", "2"),
            ("exported=1\nA=é", "é"),
            ("# A=0\n\n\nA=1\n", "1"),
        ];
        for (text, value) in cases {
            assert_eq!(one(text).as_deref(), Some(value), "{text:?}");
        }
        assert_eq!(one(""), None);
        assert_eq!(parse(b"B.c-d_1=1").unwrap().len(), 1);
    }

    #[test]
    fn errors_name_the_line_and_no_value() {
        let cases: [(&[u8], usize, EnvFileProblem); 9] = [
            (b"A=1\nsecret", 2, EnvFileProblem::NoValue),
            (b"A='1\n2'\n\n1A=secret", 4, EnvFileProblem::BadName),
            (b"=secret", 1, EnvFileProblem::BadName),
            (b"two words=secret", 1, EnvFileProblem::BadName),
            (b"A=1\nB=\"secret\n\n", 2, EnvFileProblem::OpenQuote),
            (b"B=\"secret\\", 1, EnvFileProblem::OpenQuote),
            (b"A='a\nb' secret", 1, EnvFileProblem::AfterQuote),
            (b"A=1\nB=\0", 2, EnvFileProblem::Nul),
            (b"A=1\n\nB=\xff", 3, EnvFileProblem::Encoding),
        ];
        for (bytes, line, problem) in cases {
            let error = parse(bytes).unwrap_err();
            assert_eq!(error, EnvFileError { line, problem });
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn files_have_bounds() {
        let large = vec![b'#'; ENV_FILE_BYTES_MAX + 1];
        assert!(parse(&large[1..]).is_ok());
        assert_eq!(parse(&large).unwrap_err().problem, EnvFileProblem::TooLarge);
        let many = |count: usize| (0..count).map(|n| format!("A{n}=\n")).collect::<String>();
        assert!(parse(many(ENV_FILE_NAMES_MAX).as_bytes()).is_ok());
        let error = parse(many(ENV_FILE_NAMES_MAX + 1).as_bytes()).unwrap_err();
        assert_eq!(error.problem, EnvFileProblem::TooMany);
        // Whatever the bytes are, it ends, and soon.
        for piece in ["'", "\"", "\\", "=", "A='", "A=\"\\", "#", "\n", "\r", "export "] {
            let text = piece.repeat(ENV_FILE_BYTES_MAX / piece.len());
            for text in [text.clone(), format!("A={text}")] {
                let count = parse(text.as_bytes()).map_or(0, |variables| variables.len());
                assert!(count <= 1, "{piece}");
            }
        }
    }
}
