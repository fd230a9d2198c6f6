//! Owns the repair of a last line that a dead writer left torn, and the record about it, `trail_repaired`. Driven by
//! `file.rs`, under the lock. Never cuts a whole record.

use std::io;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::limits::{TRAIL_FRAGMENT_BYTES_MAX, TRAIL_LINE_BYTES_MAX};
use afresh_core::time::Stamp;
use serde_json::Value;

use super::file::OpenTrailFile;
use crate::os;
use crate::store::rotation::ends_torn;

impl OpenTrailFile {
    /// Cuts off a last line without an end, which a dead writer left, and returns the record that
    /// says so. A record that only lacks its newline gets it.
    pub(super) fn repair(&mut self, stamp: Stamp) -> io::Result<Option<String>> {
        let len = self.len()?;
        if !ends_torn(&self.file)? {
            return Ok(None);
        }
        let start = self.last_line_start(len)?;
        let bytes = usize::try_from(len - start).unwrap_or(usize::MAX);
        let mut fragment = vec![0; bytes.min(TRAIL_LINE_BYTES_MAX)];
        os::read_exact_at(&self.file, &mut fragment, start)?;
        if bytes < TRAIL_LINE_BYTES_MAX
            && serde_json::from_slice::<Value>(&fragment).is_ok_and(|v| v.is_object())
        {
            self.append_line("\n", true)?;
            return Ok(None);
        }
        // One who had waited too long for the lock may have appended since.
        if self.len()? != len {
            return Ok(None);
        }
        os::cut(&self.file, start)?;
        fragment.truncate(TRAIL_FRAGMENT_BYTES_MAX);
        let record = Record {
            level: Level::Warning,
            logger: "afresh.trail".to_owned(),
            message: "Trail repaired: its last line was torn".to_owned(),
            event_type: EventType::TrailRepaired,
            props: vec![
                ("bytes", bytes.into()),
                ("fragment", String::from_utf8_lossy(&fragment).into()),
            ],
        };
        Ok(Some(record.to_safe_line(stamp)))
    }

    fn last_line_start(&self, len: u64) -> io::Result<u64> {
        let mut end = len;
        let mut block = [0; 4096];
        while end > 0 {
            let start = end.saturating_sub(block.len() as u64);
            let block = &mut block[..(end - start) as usize];
            os::read_exact_at(&self.file, block, start)?;
            if let Some(newline) = block.iter().rposition(|b| *b == b'\n') {
                return Ok(start + newline as u64 + 1);
            }
            end = start;
        }
        Ok(0)
    }
}
