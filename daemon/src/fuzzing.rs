//! Owns the entry points of the fuzz targets (`fuzz/`) into private modules. Compiled with the feature `fuzzing` alone.
//! Never contains logic of its own.

pub use crate::gateway::admit_request;
pub use crate::process::{FRAME_KINDS, FramesRead, read_frames};
