//! Owns the entry point of the fuzz target `frames`: reads frames of every kind out of bytes that arrive in pieces.
//! Compiled with the feature `fuzzing` alone. Never touches a socket.

use super::messages::{
    Frame, FrameReader, Greeting, GuardianInvitation, GuardianOrder, GuardianReport,
    VisitorRequest, WardenOrder, WardenReport,
};

/// How many kinds of frames there are.
pub const FRAME_KINDS: u8 = 7;

/// The frames in some bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct FramesRead {
    /// Each whole frame, as it is written again.
    pub frames: Vec<Vec<u8>>,
    /// Bytes behind the last whole frame.
    pub left: usize,
    /// These bytes are no frame.
    pub is_garbage: bool,
}

/// Reads frames of one kind, below [`FRAME_KINDS`], as far as there are any.
pub fn read_frames(kind: u8, pieces: &[&[u8]]) -> FramesRead {
    match kind {
        0 => read::<GuardianOrder>(pieces),
        1 => read::<GuardianReport>(pieces),
        2 => read::<WardenOrder>(pieces),
        3 => read::<WardenReport>(pieces),
        4 => read::<GuardianInvitation>(pieces),
        5 => read::<Greeting>(pieces),
        _ => read::<VisitorRequest>(pieces),
    }
}

fn read<F: Frame>(pieces: &[&[u8]]) -> FramesRead {
    let mut reader = FrameReader::default();
    let mut read = FramesRead { frames: Vec::new(), left: 0, is_garbage: false };
    for piece in pieces {
        reader.bytes.extend_from_slice(piece);
        while !read.is_garbage {
            match reader.next::<F>() {
                Ok(Some(frame)) => read.frames.push(frame.to_bytes()),
                Ok(None) => break,
                Err(_) => read.is_garbage = true,
            }
        }
    }
    read.left = reader.bytes.len();
    read
}
