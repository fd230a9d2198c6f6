//! Writes the files that make `afresh up` start with the machine: a unit for systemd, or an agent for launchd.
//!
//! Makes texts with a mark, and tells by that whether one that is there was edited since; writes nothing and starts
//! nothing.

use crate::limits::{INSTALL_NAME_CHARS_MAX, INSTALL_STOP_WAIT, INSTALL_WATCHDOG};
use crate::text::harmless;

/// A manager of programs that start with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// The systemd of the user.
    Systemd,
    /// launchd, on macOS.
    Launchd,
}

/// One `afresh up` that is to start with the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// The manager that starts it.
    pub manager: Manager,
    /// Its name there, besides `afresh`; see [`name_of`].
    pub name: String,
    /// afresh itself, by its whole path.
    pub program: String,
    /// The folder that it works for.
    pub workspace: String,
    /// The PATH for programs; that of the shell, because a manager's own is short.
    pub path: Option<String>,
}

/// A value that a manager does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{}` {why}", harmless(value))]
pub struct InstallError {
    what: &'static str,
    value: String,
    why: &'static str,
}

impl Installation {
    /// Its name for the manager.
    pub fn label(&self) -> String {
        match self.manager {
            Manager::Systemd => format!("afresh-{}.service", self.name),
            Manager::Launchd => format!("afresh.{}", self.name),
        }
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        match self.manager {
            Manager::Systemd => self.label(),
            Manager::Launchd => format!("{}.plist", self.label()),
        }
    }

    /// The content of its file.
    pub fn text(&self) -> Result<String, InstallError> {
        match self.manager {
            Manager::Systemd => systemd_unit(self),
            Manager::Launchd => launchd_agent(self),
        }
    }

    /// The commands after its file is written, each with whether it may fail. `user` is the number of
    /// the user, `file` where it was written.
    pub fn enable(&self, user: u32, file: &str) -> Vec<InstallStep> {
        let label = self.label();
        match self.manager {
            Manager::Systemd => vec![
                step(true, &["systemctl", "--user", "daemon-reload"]),
                step(true, &["systemctl", "--user", "enable", "--now", &label]),
                // Without it, the user's systemd starts with the first login, and ends with the last.
                step(false, &["loginctl", "enable-linger"]),
            ],
            Manager::Launchd => {
                vec![step(true, &["launchctl", "bootstrap", &format!("gui/{user}"), file])]
            }
        }
    }

    /// The commands before its file is removed.
    pub fn disable(&self, user: u32) -> Vec<InstallStep> {
        let label = self.label();
        match self.manager {
            Manager::Systemd => {
                vec![step(false, &["systemctl", "--user", "disable", "--now", &label])]
            }
            Manager::Launchd => {
                vec![step(false, &["launchctl", "bootout", &format!("gui/{user}/{label}")])]
            }
        }
    }

    /// The commands after its file is removed.
    pub fn forget(&self) -> Vec<InstallStep> {
        match self.manager {
            Manager::Systemd => vec![step(false, &["systemctl", "--user", "daemon-reload"])],
            Manager::Launchd => Vec::new(),
        }
    }
}

/// A command of the manager's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallStep {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether all else is in vain when it fails.
    pub must: bool,
}

fn step(must: bool, words: &[&str]) -> InstallStep {
    InstallStep { command: words.iter().map(|word| (*word).to_owned()).collect(), must }
}

/// A name for the manager out of one of a folder: short, and only of what every manager takes.
pub fn name_of(folder: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let name: String = folder.chars().take(INSTALL_NAME_CHARS_MAX).map(plain).collect();
    let name = name.trim_matches(['.', '-']);
    if name.is_empty() { "workspace".to_owned() } else { name.to_owned() }
}

/// A name as a user gives it.
pub fn parse_name(text: &str) -> Result<String, String> {
    match name_of(text) == text {
        true => Ok(text.to_owned()),
        false => {
            Err("a name has letters, digits, `_`, `.` and `-`, and begins with none of the last \
                      two"
            .to_owned())
        }
    }
}

fn refused(what: &'static str, value: &str, why: &'static str) -> InstallError {
    InstallError { what, value: value.to_owned(), why }
}

/// The unit of a user's systemd.
///
/// Each setting has rules of its own: `ExecStart=` and `Environment=` know quotes and backslashes,
/// `WorkingDirectory=` takes the rest of its line as it is, and `%` means something in all of them.
fn systemd_unit(it: &Installation) -> Result<String, InstallError> {
    let program = unit_program(&it.program)?;
    let workspace = unit_folder(&it.workspace)?;
    let path = it
        .path
        .as_deref()
        .map(|path| format!("Environment={}\n", unit_quoted(&format!("PATH={path}"))));
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
fn unit_program(path: &str) -> Result<String, InstallError> {
    // systemd takes none of these in the path of a program, however they are written.
    if path.chars().any(|c| c.is_control() || "\\\"'".contains(c)) {
        return Err(refused("the program", path, "has characters that systemd does not take"));
    }
    // A colon in front says that `$` is just that.
    let colon = if path.contains('$') { ":" } else { "" };
    Ok(format!("{colon}{}", unit_quoted(path)))
}

/// A folder as the rest of a line.
fn unit_folder(path: &str) -> Result<String, InstallError> {
    let is_plain =
        path.trim() == path && !path.ends_with('\\') && !path.chars().any(char::is_control);
    match is_plain {
        true => Ok(path.replace('%', "%%")),
        false => Err(refused("the folder", path, "cannot be written into a unit of systemd")),
    }
}

/// One word, in double quotes.
fn unit_quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            c if "\"\\".contains(c) => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

const PLIST_HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                    <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
                    \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n";

/// The agent of a user's launchd, as a property list.
fn launchd_agent(it: &Installation) -> Result<String, InstallError> {
    let program = xml_escaped("the program", &it.program)?;
    let workspace = xml_escaped("the folder", &it.workspace)?;
    let label = xml_escaped("the name", &it.label())?;
    let path = match &it.path {
        Some(path) => format!(
            "  <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    \
             <string>{}</string>\n  </dict>\n",
            xml_escaped("PATH", path)?
        ),
        None => String::new(),
    };
    let body = format!(
        "<plist version=\"1.0\">\n\
         <dict>\n  \
           <key>Label</key>\n  <string>{label}</string>\n  \
           <key>ProgramArguments</key>\n  <array>\n    <string>{program}</string>\n    \
           <string>up</string>\n  </array>\n  \
           <key>WorkingDirectory</key>\n  <string>{workspace}</string>\n\
         {path}  \
           <key>RunAtLoad</key>\n  <true/>\n  \
           <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  \
           <key>ExitTimeOut</key>\n  <integer>{stop}</integer>\n\
         </dict>\n\
         </plist>\n",
        stop = INSTALL_STOP_WAIT.as_secs(),
    );
    Ok(marked(&format!("{PLIST_HEAD}<!-- "), &format!(" -->\n{body}")))
}

/// A text between tags.
fn xml_escaped(what: &'static str, text: &str) -> Result<String, InstallError> {
    if text.chars().any(char::is_control) {
        return Err(refused(what, text, "has characters that a property list does not take"));
    }
    Ok(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// Without two hyphens in a row: a comment in XML may not have them.
const MARK: &str = "Written by `afresh install`, which can also undo it. Checksum ";

/// The state of a file that is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Free,
    /// Just what we would write.
    Same,
    /// An earlier one of ours, for the same folder.
    Older,
    /// One of ours, for another folder.
    Elsewhere,
    /// One of ours that was edited.
    Changed,
    /// Not one of ours.
    Foreign,
}

/// Compares a file that exists with the text that would be written.
pub fn standing(there: Option<&[u8]>, ours: &str) -> Standing {
    let Some(there) = there else { return Standing::Free };
    if there == ours.as_bytes() {
        return Standing::Same;
    }
    let Ok(text) = std::str::from_utf8(there) else { return Standing::Foreign };
    let found = text.split_once(MARK).and_then(|(before, rest)| {
        let (checksum, after) = rest.split_at_checked(CHECKSUM_LEN)?;
        Some(checksum == checksum_of(before, after))
    });
    match found {
        None => Standing::Foreign,
        Some(false) => Standing::Changed,
        Some(true) if folder_in(text) != folder_in(ours) => Standing::Elsewhere,
        Some(true) => Standing::Older,
    }
}

/// A text with its mark, which stands where `before` ends and `after` begins.
fn marked(before: &str, after: &str) -> String {
    format!("{before}{MARK}{}{after}", checksum_of(before, after))
}

const CHECKSUM_LEN: usize = 16;

/// FNV-1a: detects an edit, and is no protection.
fn checksum_of(before: &str, after: &str) -> String {
    let bytes = before.bytes().chain(after.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The line that has the folder.
fn folder_in(text: &str) -> Option<&str> {
    let mut lines = text.lines();
    let line = lines.find(|line| line.contains("WorkingDirectory"))?;
    if line.starts_with("WorkingDirectory=") { Some(line) } else { lines.next() }
}

#[cfg(test)]
mod tests;
