//! Fuzzes the frames between supervisor, warden and guardians: pieces of any size give the same frames as the whole,
//! and a frame that was read is written in a form that is read as the same frame.

use afresh_daemon::fuzzing::{FRAME_KINDS, FramesRead, read_frames};

use crate::input::{first, pieces};
use crate::is_planted;

pub fn check(data: &[u8]) {
    let Some((kind, rest)) = first(data) else { return };
    let Some((seed, bytes)) = first(rest) else { return };
    let kind = kind % FRAME_KINDS;
    let whole = read_frames(kind, &[bytes]);
    assert_eq!(
        read_frames(kind, &pieces(seed, bytes)),
        whole,
        "the size of pieces does not matter"
    );
    for frame in &whole.frames {
        let mut frame = frame.clone();
        if is_planted() && kind == 0 && frame[4..] == [1, 4] {
            frame.pop();
        }
        let again = read_frames(kind, &[&frame]);
        assert_eq!(again, FramesRead { frames: vec![frame], left: 0, is_garbage: false });
    }
    let read: usize = bytes.len() - whole.left;
    assert!(whole.is_garbage || whole.frames.is_empty() == (read == 0));
}
