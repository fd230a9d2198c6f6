//! Finds a hint for a server that does not start, by the lines of its stderr.

/// What to do about a server that cannot live beside its older self.
pub fn hint_of(words: &str) -> Option<&'static str> {
    let words = words.to_lowercase();
    let held = ["eaddrinuse", "address already in use", "address in use", "is locked", "lock file"];
    held.iter().any(|word| words.contains(word)).then_some(
        "It seems to need a port or a lock that the old instance holds: `--restart-mode replace` \
         stops the old one first.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_be_there_twice_is_told_apart() {
        assert!(hint_of("Error: listen EADDRINUSE: address already in use :::8080").is_some());
        assert!(hint_of("sqlite3.OperationalError: database is locked").is_some());
        assert!(hint_of("SyntaxError: invalid syntax").is_none());
    }
}
