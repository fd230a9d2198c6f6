//! Owns what `afresh --version --verbose` prints: the commit, the profile and the target of this binary, as `build.rs` found
//! them. Never asks git.

/// Whether the command line is these two words, in any order. Clap ends at `--version`, and knows no flag for it.
pub(crate) fn is_verbose() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    let has = |names: &[&str]| words.iter().any(|word| names.iter().any(|name| word == name));
    words.len() == 2 && has(&["--version", "-V"]) && has(&["--verbose"])
}

/// One line for each fact.
pub(crate) fn verbose() -> String {
    format!(
        "afresh {}\ncommit: {}\nprofile: {}\ntarget: {}\n",
        env!("CARGO_PKG_VERSION"),
        env!("AFRESH_COMMIT"),
        env!("AFRESH_PROFILE"),
        env!("AFRESH_TARGET"),
    )
}
