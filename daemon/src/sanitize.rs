//! Writes whole lines to a terminal, with escape sequences of services shown as text. Driven by the output
//! thread. Never changes what goes to a file or a pipe.

use std::io::{self, IsTerminal, Write};

use afresh_core::limits::{LINE_BYTES_MAX, OUTPUT_RETRY_PAUSE};
use afresh_core::text::tame;

/// A stream of ours. One that is no terminal gets all bytes as they are.
pub(crate) struct SanitizedStream<S> {
    stream: S,
    is_terminal: bool,
    wants_colours: bool,
    /// A line that has not ended yet.
    rest: Vec<u8>,
}

impl<S: Write + IsTerminal> SanitizedStream<S> {
    pub(crate) fn new(stream: S, wants_colours: bool) -> Self {
        let is_terminal = stream.is_terminal();
        Self { stream, is_terminal, wants_colours, rest: Vec::new() }
    }
}

impl<S: Write> Write for SanitizedStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.stream.write(bytes);
        }
        self.rest.extend_from_slice(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let whole = match end {
            None if self.rest.len() > LINE_BYTES_MAX => self.rest.len(),
            None => return Ok(bytes.len()),
            Some(end) => end,
        };
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        let lines = tame(&lines, self.wants_colours);
        let mut left = lines.as_bytes();
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process has set the terminal not to block. A caller that tried again would write
                // the same bytes twice.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(OUTPUT_RETRY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
