//! Checks the state folder, and the trail in it.

use std::fs;
use std::io;
use std::path::Path;

use afresh_core::limits::FREE_BYTES_MIN;

use super::{Check, Examined};
use crate::os;
use crate::store::history::{Filter, History};
use crate::store::workspace::{TrailFiles, Workspace};

pub(super) fn checks(examined: &Examined) -> Vec<Check> {
    let mut used = examined.workspace.clone();
    used.locate();
    let audit = TrailFiles::of(&used, &examined.trail).audit;
    vec![state(&examined.workspace, &used), trail(&audit)]
}

fn state(wanted: &Workspace, used: &Workspace) -> Check {
    const NAME: &str = "state";
    let folder = used.state();
    let path = folder.display();
    if let Err(error) = writable(folder) {
        return Check::problem(
            NAME,
            format!("`{path}` cannot be written: {error}"),
            "no trail can be kept: change its rights, or set XDG_STATE_HOME",
        );
    }
    if wanted.state() != folder {
        let wanted = wanted.state().display();
        return Check::warning(
            NAME,
            format!("`{wanted}` cannot be written: `{path}` is used instead"),
            format!("change the rights of `{wanted}`"),
        );
    }
    let place = match used.root() {
        Some(root) => format!("in `{path}`, of the workspace `{}`", root.display()),
        None => format!("in `{path}`, as this is no workspace"),
    };
    match free_bytes(folder) {
        Some(free) if free < FREE_BYTES_MIN => Check::warning(
            NAME,
            format!("{place}; only {} are free", show_bytes(free)),
            "make room: without it the trail loses records",
        ),
        Some(free) => Check::ok(NAME, format!("{place}; {} are free", show_bytes(free))),
        None => Check::ok(NAME, place),
    }
}

fn trail(audit: &Path) -> Check {
    const NAME: &str = "trail";
    let path = audit.display();
    let history = match History::open(audit, Filter::default()) {
        Ok(history) => history,
        Err(error) => {
            return Check::problem(
                NAME,
                format!("`{path}` cannot be read: {error}"),
                "change its rights",
            );
        }
    };
    if audit.exists() && !audit.is_file() {
        return Check::problem(NAME, format!("`{path}` is no file"), "remove it");
    }
    if let Err(error) = writable(audit) {
        return Check::problem(
            NAME,
            format!("`{path}` cannot be written: {error}"),
            "change its rights, or name another file by `audit_file` in `[trail]`",
        );
    }
    let mut history = history;
    let (mut records, mut bytes) = (0_u64, 0_u64);
    for entry in history.by_ref() {
        match entry {
            Ok(entry) => {
                records += 1;
                bytes += entry.line.len() as u64 + 1;
            }
            Err(error) => {
                return Check::problem(
                    NAME,
                    format!("`{path}` cannot be read: {error}"),
                    "check the disk",
                );
            }
        }
    }
    let found = match records {
        0 => format!("`{path}`, no record yet"),
        1 => format!("`{path}`, 1 record, {}", show_bytes(bytes)),
        _ => format!("`{path}`, {records} records, {}", show_bytes(bytes)),
    };
    match history.damaged() {
        0 => Check::ok(NAME, found),
        damaged => Check::warning(
            NAME,
            format!("{found}; damaged lines: {damaged}"),
            "they are passed over, all others are read; a kill or a full disk can leave such a line",
        ),
    }
}

/// Whether a file or folder can be written, or made in the nearest folder above that exists.
fn writable(path: &Path) -> io::Result<()> {
    let existing = path.ancestors().find(|path| path.exists());
    let existing = existing.unwrap_or(path);
    if existing != path && !existing.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    os::can_write(existing)
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let existing = folder.ancestors().find(|path| fs::exists(path).ok() == Some(true))?;
    os::free_bytes(existing)
}

fn show_bytes(bytes: u64) -> String {
    let units = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    let unit = units.into_iter().find(|(_, unit)| bytes >= *unit);
    match unit {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_for_people() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (1_550_000, "1.5 MB"),
            (27_990_000_000, "27.9 GB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(show_bytes(bytes), text);
        }
    }
}
