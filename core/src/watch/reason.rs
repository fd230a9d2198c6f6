//! Puts a change of files into words, as the reason of a restart.

use std::path::{Path, PathBuf};

use crate::text::{harmless, tail};

/// Longer paths are cut at their beginning: the end says more.
const CHARS_MAX: usize = 80;

/// `src/server.py changed`, `src/server.py and 3 more changed`; paths in `base` are shown from there.
pub fn reason(changed: &[PathBuf], base: &Path) -> String {
    let Some((first, more)) = changed.split_first() else {
        return "watched files changed".to_owned();
    };
    let first = shown(first, base);
    match more.len() {
        0 => format!("{first} changed"),
        more => format!("{first} and {more} more changed"),
    }
}

fn shown(path: &Path, base: &Path) -> String {
    let short = path.strip_prefix(base).ok().filter(|rest| !rest.as_os_str().is_empty());
    let text = harmless(&short.unwrap_or(path).to_string_lossy());
    match tail(&text, CHARS_MAX).len() == text.len() {
        true => text,
        false => format!("…{}", tail(&text, CHARS_MAX - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_said_in_a_few_words() {
        let say = |paths: &[&str]| {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            reason(&paths, Path::new("/home/ada/project"))
        };
        assert_eq!(say(&["/home/ada/project/src/server.py"]), "src/server.py changed");
        assert_eq!(say(&["src/a.py", "b", "c", "d"]), "src/a.py and 3 more changed");
        assert_eq!(say(&["/etc/hosts"]), "/etc/hosts changed");
        assert_eq!(say(&["/home/ada/project"]), "/home/ada/project changed");
        assert_eq!(say(&["a\n\u{1b}[2J"]), "a␊␛[2J changed");
        assert_eq!(say(&[]), "watched files changed");
        let long = say(&[&format!("{}/end.py", "x".repeat(500))]);
        assert!(long.starts_with("…xxx") && long.ends_with("x/end.py changed"), "{long}");
        assert_eq!(long.chars().count(), CHARS_MAX + " changed".len());
    }
}
