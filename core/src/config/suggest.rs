//! What the person may have meant: the known name that is nearest to an unknown one.

/// The nearest of the names, where one is near; the first of several.
///
/// Letter case and `-` for `_` do not count; the last word of a name is near it too.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long words are no typos, and the time grows with the square of the length.
    if word.len() > 64 {
        return None;
    }
    let word = plain(word);
    let (score, name) = names
        .into_iter()
        .map(|name| {
            let known = plain(name);
            let tail = word.len() > 3 && known.ends_with(&[&['_'], &word[..]].concat());
            let far = (known.len().max(word.len()) / 3).clamp(1, 3);
            let score = match distance(&word, &known) {
                near if near <= far => near,
                _ if tail => far + 1,
                _ => usize::MAX,
            };
            (score, name)
        })
        .min_by_key(|(score, _)| *score)?;
    (score < usize::MAX).then_some(name)
}

fn plain(word: &str) -> Vec<char> {
    let lower = word.chars().flat_map(char::to_lowercase);
    lower.map(|c| if c == '-' { '_' } else { c }).collect()
}

/// The least number of letters to add, drop, change or swap with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let names = ["delay", "max_delay", "max_restarts", "stop_timeout", "always"];
        let cases = [
            ("max_restart", Some("max_restarts")),
            ("maxRestarts", Some("max_restarts")),
            ("MAX-RESTARTS", Some("max_restarts")),
            ("restarts", Some("max_restarts")),
            ("timeout", Some("stop_timeout")),
            ("dealy", Some("delay")),
            ("delya", Some("delay")),
            ("alway", Some("always")),
            ("always", Some("always")),
            ("", None),
            ("x", None),
            ("colour", None),
            ("déläy", None),
        ];
        for (word, name) in cases {
            assert_eq!(nearest(word, names), name, "{word}");
        }
        assert_eq!(nearest(&"delay".repeat(100_000), names), None);
    }

    #[test]
    fn distances_count_single_changes() {
        let cases =
            [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("kitten", "sitting", 3)];
        for (from, to, wanted) in cases {
            assert_eq!(distance(&plain(from), &plain(to)), wanted, "{from} {to}");
            assert_eq!(distance(&plain(to), &plain(from)), wanted, "{to} {from}");
        }
    }
}
