//! Explains why a process could not be started, with a hint. Called after a failed start. Only looks at files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use afresh_core::service::SpawnFailure;

use super::Command;
use crate::os::is_variable;

/// Looks at the files to tell what the kernel meant by `error`.
pub(super) fn explain(command: &Command, error: &io::Error) -> SpawnFailure {
    let program = command.argv.first().cloned().unwrap_or_default();
    let name = program.to_string_lossy().into_owned();
    if let Some(cwd) = &command.cwd
        && !cwd.is_dir()
    {
        let shown = cwd.display();
        let what = if cwd.exists() { "is not a folder" } else { "does not exist" };
        return SpawnFailure {
            message: format!("the working folder `{shown}` {what}"),
            hint: Some("create it, or name another with `--cwd`".to_owned()),
            permanent: true,
            code: 125,
        };
    }
    match error.kind() {
        io::ErrorKind::NotFound => not_found(command, &name),
        io::ErrorKind::PermissionDenied => not_executable(command, &name, error),
        _ => other(&name, error),
    }
}

fn not_found(command: &Command, name: &str) -> SpawnFailure {
    // The file is there: then it is the interpreter in its first line that is missing.
    if let Some(path) = locate(command) {
        let (message, hint) = match interpreter(&path) {
            Some(interpreter) => (
                format!("`{name}` needs `{interpreter}`, which does not exist"),
                format!(
                    "install `{interpreter}`, or change the first line of `{}`",
                    path.display()
                ),
            ),
            None => (
                format!("`{name}` exists, but the loader that it needs does not"),
                "it was built for another system: install one built for this".to_owned(),
            ),
        };
        return SpawnFailure { message, hint: Some(hint), permanent: true, code: 127 };
    }
    let (message, hint) = if is_path(name) {
        (
            format!("no such file: `{name}`"),
            "check the path; a relative one starts at the working folder".to_owned(),
        )
    } else if name.contains(' ') {
        (
            format!("command not found: `{name}`"),
            "the command and its arguments are separate words: leave out the quotes around them"
                .to_owned(),
        )
    } else {
        (
            format!("command not found: `{name}`"),
            "install it, give its full path, or check PATH".to_owned(),
        )
    };
    SpawnFailure { message, hint: Some(hint), permanent: true, code: 127 }
}

fn not_executable(command: &Command, name: &str, error: &io::Error) -> SpawnFailure {
    let path = locate(command).unwrap_or_else(|| PathBuf::from(name));
    let (message, hint) = if path.is_dir() {
        (format!("`{name}` is a folder"), "name a program inside it".to_owned())
    } else if path.exists() {
        let run = match interpreter(&path) {
            Some(interpreter) => {
                format!(", or run it with its interpreter: `{interpreter} {name}`")
            }
            None => String::new(),
        };
        (format!("`{name}` is not executable"), format!("run `chmod +x {}`{run}", path.display()))
    } else {
        (format!("`{name}` cannot be run: {error}"), "check the rights of its folders".to_owned())
    };
    SpawnFailure { message, hint: Some(hint), permanent: true, code: 126 }
}

fn other(name: &str, error: &io::Error) -> SpawnFailure {
    let (message, hint, permanent) = match error.raw_os_error() {
        #[cfg(unix)]
        Some(nix::libc::E2BIG) => (
            format!("the arguments and environment of `{name}` are too long"),
            "pass less, or put it into a file".to_owned(),
            true,
        ),
        #[cfg(unix)]
        Some(nix::libc::EINVAL) => (
            format!("`{name}` cannot be run: an argument or variable contains a NUL byte"),
            "remove it".to_owned(),
            true,
        ),
        #[cfg(unix)]
        Some(nix::libc::EAGAIN) => (
            format!("`{name}` cannot be started: too many processes"),
            "raise `ulimit -u`, or end some".to_owned(),
            false,
        ),
        #[cfg(unix)]
        Some(nix::libc::EMFILE | nix::libc::ENFILE) => (
            format!("`{name}` cannot be started: too many open files"),
            "raise `ulimit -n`".to_owned(),
            false,
        ),
        _ => (
            format!("`{name}` cannot be started: {error}"),
            "it is tried again as the policy says".to_owned(),
            false,
        ),
    };
    SpawnFailure { message, hint: Some(hint), permanent, code: 126 }
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
    let start = first_bytes(path)?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    // A file with Windows line ends asks for `/bin/sh\r`: that must be seen.
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(|word| word.replace('\r', "\\r"))
}

fn first_bytes(path: &Path) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut start = Vec::new();
    fs::File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    Some(start)
}
