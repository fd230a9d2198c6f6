//! Owns which variables of afresh's own environment a server gets: those of `inherit_env = "minimal"`. Applied by the
//! daemon when it starts a server. Never reads a variable.

/// Which of afresh's own variables a server gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InheritedEnv {
    /// All but those that are the gateway's own.
    #[default]
    All,
    /// Those that programs need to run at all: [`BASIC_VARIABLES`] and [`BASIC_PREFIXES`].
    Minimal,
}

/// Variables that programs need to find other programs, their user's folders, their language and their terminal. The
/// last two lines are those of Windows.
pub const BASIC_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TMPDIR",
    "TZ",
    "PWD",
    "TMP",
    "TEMP",
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "USERNAME",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "PROGRAMFILES",
];

/// How further ones of these begin.
pub const BASIC_PREFIXES: &[&str] = &["LC_", "XDG_"];
