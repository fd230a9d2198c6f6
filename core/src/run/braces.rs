//! Patterns with braces, which git does not know: `src/{a,b}.rs` is two of them.

use crate::limits::BRACED_PATTERNS_MAX;

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
}
