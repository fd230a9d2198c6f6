//! Finds and ends processes of a run that was killed together with its guardians. All that a run starts has a
//! mark in its environment, the same for all runs of a workspace, and hands it on.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use afresh_core::limits::{ORPHANED_GRACE, SWEEP_MAX, SWEEP_PAUSE};

use super::session::uuid;
use crate::os;
use crate::process::{kill_one, terminate_one};

/// The variable that has the mark.
const VARIABLE: &str = "AFRESH_RUN_MARK";

/// The file with the random part of the mark.
const FILE: &str = "run-mark";

/// The content of the mark's file; none where a clone has put something else in its place.
fn read_mark(path: &Path) -> Option<String> {
    let mut text = String::new();
    let is_file = path.symlink_metadata().is_ok_and(|metadata| metadata.is_file());
    let file = os::open_to_read(path).ok().filter(|_| is_file)?;
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
    pub fn of(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE);
        let is_ours =
            |text: &String| text.len() == uuid().len() && !text.contains(char::is_control);
        let kept = read_mark(&path).filter(is_ours);
        let random = match kept {
            Some(random) => random,
            None => {
                fs::remove_file(&path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?;
                let random = uuid();
                os::create_private(&path)?.write_all(random.as_bytes())?;
                random
            }
        };
        // A copy of the folder is another workspace.
        Ok(Self(format!("{random} {}", fs::canonicalize(state)?.display())))
    }

    /// Writes the mark's file again, where it was deleted.
    pub fn put_back(&self, state: &Path) -> io::Result<()> {
        let path = state.join(FILE);
        let random = self.0.split(' ').next().unwrap_or_default();
        match path.symlink_metadata().is_ok() {
            true => Ok(()),
            false => os::create_private(&path)?.write_all(random.as_bytes()),
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
