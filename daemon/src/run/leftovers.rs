//! Finds and ends processes of a run that was killed together with its guardians. All that a run starts has a
//! mark in its environment, the same for all runs of a workspace, and hands it on.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};

use afresh_core::limits::{ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};

use super::session::uuid;
use crate::os;
use crate::process::{kill_one, terminate_one};
use crate::write_path::WritePath;

/// The variable that has the mark.
const VARIABLE: &str = "AFRESH_RUN_MARK";

/// The file with the random part of the mark.
const FILE: &str = "run-mark";

/// The content of the mark's file; none where it is not there yet, or a clone has put something else in its place.
fn read_mark(mark: &WritePath) -> Option<String> {
    let mut text = String::new();
    let file = mark.open_to_append().ok()?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return None;
    }
    file.take(MARK_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// More than a mark has.
const MARK_BYTES_MAX: u64 = 64;

/// The mark of the runs of one workspace.
#[derive(Clone, Debug)]
pub struct ProcessMark(String);

impl ProcessMark {
    /// The mark of the workspace with this state, made where there is none.
    pub fn of(state: &WritePath) -> io::Result<Self> {
        let mark = state.join(FILE);
        let is_ours =
            |text: &String| text.len() == uuid().len() && !text.contains(char::is_control);
        let random = match read_mark(&mark).filter(is_ours) {
            Some(random) => random,
            None => {
                mark.remove().or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?;
                let random = uuid();
                mark.create_private()?.write_all(random.as_bytes())?;
                random
            }
        };
        // A copy of the folder is another workspace.
        Ok(Self(format!("{random} {}", fs::canonicalize(state.path())?.display())))
    }

    /// Writes the mark's file again, where it was deleted.
    pub fn put_back(&self, state: &WritePath) -> io::Result<()> {
        let mark = state.join(FILE);
        let random = self.0.split(' ').next().unwrap_or_default();
        match mark.is_there() {
            true => Ok(()),
            false => mark.create_private()?.write_all(random.as_bytes()),
        }
    }

    /// Puts the mark into an environment, in place of one that is there.
    pub fn put(&self, env: &mut Vec<(OsString, OsString)>) {
        env.retain(|(name, _)| name != VARIABLE);
        env.push((VARIABLE.into(), self.0.clone().into()));
    }

    /// Ends all that still has the mark; no run may be active in the workspace. Returns how many those were, or which
    /// cannot be ended. Where it is one of them who starts us, all are left: it would be ended itself.
    pub fn end_leftovers(&self, own: &[(OsString, OsString)]) -> Result<usize, Vec<u32>> {
        if own.iter().any(|(name, value)| name == VARIABLE && *value == *self.0) {
            return Ok(0);
        }
        let find = || os::processes_with(VARIABLE, &self.0);
        let found = find();
        // Who is gone meanwhile needs no signal.
        found.iter().for_each(|pid| terminate_one(*pid).unwrap_or_default());
        let rounds = |time: std::time::Duration| time.as_millis() / SWEEP_PAUSE.as_millis();
        let graceful = rounds(ORPHANED_GRACE);
        for round in 0..graceful + rounds(SWEEP_MAX) {
            let left = find();
            if left.is_empty() {
                return Ok(found.len());
            }
            if round >= graceful {
                left.iter().for_each(|pid| kill_one(*pid).unwrap_or_default());
            }
            std::thread::sleep(SWEEP_PAUSE);
        }
        match find() {
            left if left.is_empty() => Ok(found.len()),
            left => Err(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::store::testing::TempDir;

    #[test]
    fn the_mark_is_made_once_and_never_behind_a_link() {
        let dir = TempDir::new();
        fs::create_dir(dir.join("outside")).unwrap();
        let state = WritePath::beneath(&dir.join("."), ".afresh");
        symlink(dir.join("outside"), state.path()).unwrap();
        ProcessMark::of(&state).unwrap_err();
        assert_eq!(fs::read_dir(dir.join("outside")).unwrap().count(), 0);
        fs::remove_file(state.path()).unwrap();
        state.make_folder().unwrap();
        // Something else in the place of the file is replaced, and what it leads to is not.
        fs::write(dir.join("outside/file"), "theirs").unwrap();
        symlink(dir.join("outside/file"), state.path().join(FILE)).unwrap();
        let mark = ProcessMark::of(&state).unwrap();
        assert_eq!(fs::read_to_string(dir.join("outside/file")).unwrap(), "theirs");
        assert_eq!(ProcessMark::of(&state).unwrap().0, mark.0);
        fs::remove_file(state.path().join(FILE)).unwrap();
        mark.put_back(&state).unwrap();
        assert_eq!(ProcessMark::of(&state).unwrap().0, mark.0);
    }
}
