//! Owns patterns and names of files: those that a run never commits, lines of a `.gitignore` as globs for git; patterns
//! with braces, which git does not know; names for a line that people read.

use crate::limits::{BRACED_PATTERNS_MAX, GIT_NAMED_MAX};

/// A pattern of files that are never committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exclude {
    /// Without slashes at its ends.
    glob: String,
    /// Whether it counts from a folder: its globs do so, too. Those of others count from the top, at any depth.
    pub is_anchored: bool,
    /// Whether it is only for folders.
    is_folder: bool,
}

impl Exclude {
    /// Reads a pattern, or says what is wrong with it: one that matches nothing would give away what it should keep.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty");
        }
        if text.starts_with('!') {
            return Err("would take something in again");
        }
        let glob = text.strip_prefix("./").or_else(|| text.strip_prefix('/')).unwrap_or(text);
        let is_anchored = glob.len() < text.len();
        let (glob, is_folder) = match glob.strip_suffix('/') {
            Some(glob) => (glob, true),
            None => (glob, false),
        };
        let mut parts = glob.split('/');
        if parts.clone().any(|part| part == "..") {
            return Err("leads out of the folder");
        }
        if parts.any(|part| part.is_empty() || part == ".") {
            return Err("has a part that is no name, and so matches nothing");
        }
        check_glob(glob.as_bytes())?;
        let is_anchored = is_anchored || glob.contains('/');
        Ok(Self { glob: glob.to_owned(), is_anchored, is_folder })
    }

    /// Globs in which `**` stands for any folders: what it matches, and all that is in there.
    pub fn globs(&self) -> impl Iterator<Item = String> {
        let glob = if self.is_anchored { self.glob.clone() } else { format!("**/{}", self.glob) };
        let inner = format!("{glob}/**");
        (!self.is_folder).then_some(glob).into_iter().chain([inner])
    }
}

/// Whether git would ever find a match.
fn check_glob(glob: &[u8]) -> Result<(), &'static str> {
    let mut at = 0;
    while let Some(byte) = glob.get(at) {
        at = match byte {
            b'\\' if at + 1 == glob.len() => return Err("ends with a backslash"),
            b'\\' => at + 2,
            b'[' => end_of_set(glob, at + 1).ok_or("has a `[` without its `]`")?,
            _ => at + 1,
        };
    }
    Ok(())
}

/// Behind the set whose inside begins there.
fn end_of_set(glob: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin;
    if matches!(glob.get(at), Some(b'!' | b'^')) {
        at += 1;
    }
    let first = at;
    loop {
        match glob.get(at)? {
            b']' if at > first => return Some(at + 1),
            b'/' => return None,
            b'\\' => at += 2,
            b'[' if glob.get(at + 1) == Some(&b':') => {
                let rest = glob.get(at + 2..)?;
                at += 2 + rest.windows(2).position(|pair| pair == b":]")? + 2;
            }
            _ => at += 1,
        }
    }
}

/// The patterns that one with braces stands for; itself where it has none, or where there would be too many.
pub fn expand_braces(pattern: &str) -> Vec<String> {
    let (mut done, mut open) = (Vec::new(), vec![pattern.to_owned()]);
    while let Some(next) = open.pop() {
        match split(&next) {
            // The last of these is taken next.
            Some(parts) => open.extend(parts.into_iter().rev()),
            None => done.push(next),
        }
        if open.len() + done.len() > BRACED_PATTERNS_MAX {
            return vec![pattern.to_owned()];
        }
    }
    done
}

/// A pattern for each part of the first braces that have parts.
fn split(pattern: &str) -> Option<Vec<String>> {
    for (begin, _) in pattern.match_indices('{') {
        let (mut depth, mut cuts, mut is_escaped) = (0_usize, vec![begin], false);
        for (at, c) in pattern.char_indices().skip_while(|(at, _)| *at < begin) {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '{' => depth += 1,
                ',' if depth == 1 => cuts.push(at),
                '}' if depth == 1 => {
                    cuts.push(at);
                    break;
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
        let (&end, is_over) = (cuts.last()?, pattern[*cuts.last()?..].starts_with('}'));
        if is_over && cuts.len() > 2 {
            let (before, after) = (&pattern[..begin], &pattern[end + 1..]);
            let part =
                |pair: &[usize]| format!("{before}{}{after}", &pattern[pair[0] + 1..pair[1]]);
            return Some(cuts.windows(2).map(part).collect());
        }
    }
    None
}

/// The first of some names, and how many more there are.
pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<String> =
        names.by_ref().take(GIT_NAMED_MAX).map(|name| format!("`{name}`")).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_each_of_their_parts() {
        for (pattern, wanted) in [
            ("src/**", &["src/**"][..]),
            ("src/{a,b}.rs", &["src/a.rs", "src/b.rs"]),
            ("{a,b}/{c,d}", &["a/c", "a/d", "b/c", "b/d"]),
            ("x{a,{b,c}d}", &["xa", "xbd", "xcd"]),
            ("x{,s}", &["x", "xs"]),
            ("{a}", &["{a}"]),
            ("{a,b", &["{a,b"]),
            ("{x}{é,b}", &["{x}é", "{x}b"]),
            (r"{a\,b}", &[r"{a\,b}"]),
        ] {
            assert_eq!(expand_braces(pattern), wanted, "{pattern}");
        }
        let many = "{a,b}".repeat(30);
        assert_eq!(expand_braces(&many), [many]);
    }

    #[test]
    fn patterns_mean_what_they_mean_in_a_gitignore() {
        for (text, is_anchored, globs) in [
            ("*.key", false, &["**/*.key", "**/*.key/**"][..]),
            (" .env ", false, &["**/.env", "**/.env/**"]),
            ("out/", false, &["**/out/**"]),
            ("/one.txt", true, &["one.txt", "one.txt/**"]),
            ("./one.txt", true, &["one.txt", "one.txt/**"]),
            ("/out/", true, &["out/**"]),
            ("a/b", true, &["a/b", "a/b/**"]),
            ("a/b/", true, &["a/b/**"]),
            ("**/x", true, &["**/x", "**/x/**"]),
            ("[]a].x", false, &["**/[]a].x", "**/[]a].x/**"]),
            ("[[:alpha:]]", false, &["**/[[:alpha:]]", "**/[[:alpha:]]/**"]),
            (r"\[x", false, &[r"**/\[x", r"**/\[x/**"]),
            (":x", false, &["**/:x", "**/:x/**"]),
        ] {
            let exclude = Exclude::parse(text).unwrap();
            assert_eq!(exclude.is_anchored, is_anchored, "{text}");
            assert_eq!(exclude.globs().collect::<Vec<_>>(), globs, "{text}");
        }
    }

    #[test]
    fn patterns_that_cannot_match_are_mistakes() {
        for text in [
            "",
            " ",
            "/",
            "./",
            "//",
            "!x",
            "../x",
            "a/../b",
            "a//b",
            "a/./b",
            "[",
            "x[",
            "[!",
            "[]",
            "[a/b]",
            "[[:alpha:",
            "[a\\",
            "x\\",
        ] {
            assert!(Exclude::parse(text).is_err(), "{text}");
        }
    }
}
