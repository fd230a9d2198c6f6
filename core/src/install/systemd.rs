//! The unit of a user's systemd.
//!
//! Each setting has rules of its own: `ExecStart=` and `Environment=` know quotes and backslashes,
//! `WorkingDirectory=` takes the rest of its line as it is, and `%` means something in all of them.

use super::mark::marked;
use super::{InstallError, Installation, refused};
use crate::limits::{INSTALL_STOP_WAIT, INSTALL_WATCHDOG};
use crate::text::harmless;

pub(super) fn text(it: &Installation) -> Result<String, InstallError> {
    let program = executable(&it.program)?;
    let workspace = folder(&it.workspace)?;
    let path =
        it.path.as_deref().map(|path| format!("Environment={}\n", quoted(&format!("PATH={path}"))));
    let body = format!(
        "[Unit]\n\
         Description=afresh up in {description}\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart={program} up\n\
         WorkingDirectory={workspace}\n\
         {path}\
         Restart=on-failure\n\
         RestartSec=1\n\
         # A command line or a configuration that is wrong does not get better by itself.\n\
         RestartPreventExitStatus=2 3 4\n\
         WatchdogSec={watchdog}\n\
         TimeoutStopSec={stop}\n\
         KillMode=mixed\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        description = harmless(&it.workspace).replace('%', "%%"),
        path = path.unwrap_or_default(),
        watchdog = INSTALL_WATCHDOG.as_secs(),
        stop = INSTALL_STOP_WAIT.as_secs(),
    );
    Ok(marked("# ", &format!("\n{body}")))
}

/// The program of a command line.
fn executable(path: &str) -> Result<String, InstallError> {
    // systemd takes none of these in the path of a program, however they are written.
    if path.chars().any(|c| c.is_control() || "\\\"'".contains(c)) {
        return Err(refused("the program", path, "has characters that systemd does not take"));
    }
    // A colon in front says that `$` is just that.
    let colon = if path.contains('$') { ":" } else { "" };
    Ok(format!("{colon}{}", quoted(path)))
}

/// A folder as the rest of a line.
fn folder(path: &str) -> Result<String, InstallError> {
    let is_plain =
        path.trim() == path && !path.ends_with('\\') && !path.chars().any(char::is_control);
    match is_plain {
        true => Ok(path.replace('%', "%%")),
        false => Err(refused("the folder", path, "cannot be written into a unit of systemd")),
    }
}

/// One word, in double quotes.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
