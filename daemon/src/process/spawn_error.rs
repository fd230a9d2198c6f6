//! Explains why a process could not be started, with a hint. Called after a failed start. Only looks at files.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use afresh_core::service::SpawnFailure;

use super::Command;
use crate::os::is_variable;

/// Looks at the files to tell what the kernel meant by `error`.
pub(super) fn explain(command: &Command, error: &io::Error) -> SpawnFailure {
    let name = command.argv.first().cloned().unwrap_or_default().to_string_lossy().into_owned();
    let (code, permanent, (message, hint)) = match (&command.cwd, error.kind()) {
        (Some(cwd), _) if !cwd.is_dir() => {
            let what = if cwd.exists() { "is not a folder" } else { "does not exist" };
            let message = format!("the working folder `{}` {what}", cwd.display());
            (125, true, (message, "create it, or name another with `--cwd`".to_owned()))
        }
        (_, io::ErrorKind::NotFound) => (127, true, not_found(command, &name)),
        (_, io::ErrorKind::PermissionDenied) => (126, true, not_executable(command, &name, error)),
        _ => {
            let (message, hint, permanent) = other(&name, error);
            (126, permanent, (message, hint.to_owned()))
        }
    };
    SpawnFailure { message, hint: Some(hint), permanent, code }
}

/// The message and the hint.
fn not_found(command: &Command, name: &str) -> (String, String) {
    // The file is there: then it is the interpreter in its first line that is missing.
    if let Some(path) = locate(command) {
        let shown = path.display();
        return match interpreter(&path) {
            Some(interpreter) => (
                format!("`{name}` needs `{interpreter}`, which does not exist"),
                format!("install `{interpreter}`, or change the first line of `{shown}`"),
            ),
            None => (
                format!("`{name}` exists, but the loader that it needs does not"),
                "it was built for another system: install one built for this".to_owned(),
            ),
        };
    }
    let (what, hint) = if is_path(name) {
        ("no such file", "check the path; a relative one starts at the working folder")
    } else if name.contains(' ') {
        let hint =
            "the command and its arguments are separate words: leave out the quotes around them";
        ("command not found", hint)
    } else {
        ("command not found", "install it, give its full path, or check PATH")
    };
    (format!("{what}: `{name}`"), hint.to_owned())
}

/// The message and the hint.
fn not_executable(command: &Command, name: &str, error: &io::Error) -> (String, String) {
    let path = locate(command).unwrap_or_else(|| PathBuf::from(name));
    if path.is_dir() {
        return (format!("`{name}` is a folder"), "name a program inside it".to_owned());
    }
    if !path.exists() {
        let hint = "check the rights of its folders";
        return (format!("`{name}` cannot be run: {error}"), hint.to_owned());
    }
    let run = interpreter(&path).map_or_else(String::new, |interpreter| {
        format!(", or run it with its interpreter: `{interpreter} {name}`")
    });
    (format!("`{name}` is not executable"), format!("run `chmod +x {}`{run}", path.display()))
}

/// The message, the hint, and whether it will fail again.
fn other(name: &str, error: &io::Error) -> (String, &'static str, bool) {
    let not_started = |why: &str| format!("`{name}` cannot be started: {why}");
    match error.raw_os_error() {
        #[cfg(unix)]
        Some(nix::libc::E2BIG) => {
            let message = format!("the arguments and environment of `{name}` are too long");
            (message, "pass less, or put it into a file", true)
        }
        #[cfg(unix)]
        Some(nix::libc::EINVAL) => {
            let why = "an argument or variable contains a NUL byte";
            (format!("`{name}` cannot be run: {why}"), "remove it", true)
        }
        #[cfg(unix)]
        Some(nix::libc::EAGAIN) => {
            (not_started("too many processes"), "raise `ulimit -u`, or end some", false)
        }
        #[cfg(unix)]
        Some(nix::libc::EMFILE | nix::libc::ENFILE) => {
            (not_started("too many open files"), "raise `ulimit -n`", false)
        }
        _ => (not_started(&error.to_string()), "it is tried again as the policy says", false),
    }
}

fn is_path(name: &str) -> bool {
    name.contains(std::path::is_separator)
}

/// The file that would be run, whether it may be run or not.
fn locate(command: &Command) -> Option<PathBuf> {
    let program = Path::new(command.argv.first()?);
    let cwd = command.cwd.as_deref().unwrap_or(Path::new("."));
    if is_path(&program.to_string_lossy()) {
        return Some(cwd.join(program)).filter(|path| path.exists());
    }
    let path = command.env.iter().find(|(name, _)| is_variable(name, "PATH"))?;
    std::env::split_paths(&path.1)
        .map(|folder| cwd.join(folder).join(program))
        .find(|path| path.is_file())
}

fn interpreter(path: &Path) -> Option<String> {
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    // A file with Windows line ends asks for `/bin/sh\r`: that must be seen.
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(|word| word.replace('\r', "\\r"))
}
