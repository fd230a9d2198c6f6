//! Owns the search for the known name nearest to an unknown one, for hints. Used wherever users write names. Never
//! guesses at long words.

use strsim::osa_distance;

/// The nearest of the names, where one is near; the first of several.
///
/// Letter case and `-` for `_` do not count; the last word of a name is near it too.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Long words are no typos, and the time grows with the square of the length.
    if word.len() > 64 {
        return None;
    }
    let word = plain(word);
    let letters = word.chars().count();
    let (score, name) = names
        .into_iter()
        .map(|name| {
            let known = plain(name);
            let tail = letters > 3 && known.ends_with(&format!("_{word}"));
            let far = (known.chars().count().max(letters) / 3).clamp(1, 3);
            let score = match osa_distance(&word, &known) {
                near if near <= far => near,
                _ if tail => far + 1,
                _ => usize::MAX,
            };
            (score, name)
        })
        .min_by_key(|(score, _)| *score)?;
    (score < usize::MAX).then_some(name)
}

fn plain(word: &str) -> String {
    word.to_lowercase().replace('-', "_")
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
}
