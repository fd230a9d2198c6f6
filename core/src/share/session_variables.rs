//! Owns the list of variables that belong to a terminal, a login or an agent's own session, and say nothing to a server.
//! Used by [`Identity`](super::Identity). Never knows a value.

/// Variables that differ between two sessions of one user who wants the same: `docs/guide/share.md` has this list too.
const SESSION_VARIABLES: [&str; 44] = [
    "_",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "PPID",
    "COLUMNS",
    "LINES",
    "TERM",
    "COLORTERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID",
    "TTY",
    "GPG_TTY",
    "WINDOWID",
    "WINDOW",
    "STY",
    "TMUX",
    "TMUX_PANE",
    "DESKTOP_STARTUP_ID",
    "XDG_ACTIVATION_TOKEN",
    "XDG_SESSION_ID",
    "DBUS_STARTER_ADDRESS",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MANAGERPID",
    "NOTIFY_SOCKET",
    "SYSTEMD_EXEC_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "WATCHDOG_PID",
    "SECURITYSESSIONID",
    "LaunchInstanceID",
    "XPC_SERVICE_NAME",
    "XPC_FLAGS",
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_THREAD_ID",
    "CODEX_SESSION_ID",
    "GEMINI_CLI",
    "COPILOT_AGENT_SESSION_ID",
];

/// The beginnings of names of such variables.
const SESSION_VARIABLE_PREFIXES: [&str; 11] = [
    "SSH_",
    "ITERM_",
    "KITTY_",
    "WEZTERM_",
    "ALACRITTY_",
    "KONSOLE_",
    "GNOME_TERMINAL_",
    "GHOSTTY_",
    "VTE_",
    "VSCODE_",
    "ZELLIJ",
];

/// Whether a variable is one that belongs to a session.
pub fn is_of_session(name: &str) -> bool {
    SESSION_VARIABLES.contains(&name)
        || SESSION_VARIABLE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_terminals_are_told_from_those_of_servers() {
        for name in ["TERM_SESSION_ID", "WINDOWID", "SSH_CLIENT", "VSCODE_PID", "ITERM_SESSION_ID"]
        {
            assert!(is_of_session(name), "{name}");
        }
        for name in ["PATH", "HOME", "GITHUB_TOKEN", "AFRESH_X", "LANG", "NODE_ENV", "VIRTUAL_ENV"]
        {
            assert!(!is_of_session(name), "{name}");
        }
    }
}
