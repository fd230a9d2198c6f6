//! Owns the entry point of the fuzzer: one binary, and the variable `AFRESH_FUZZ_TARGET` names the target. Driven by
//! libFuzzer. Never contains a check itself: each target has a file.
//!
//! `AFRESH_FUZZ_PLANTED=1` switches on one mistake for each target, in the target's own file and never in the code
//! under test: a target that does not find its planted mistake would not find a real one of that size.

#![no_main]

mod agents;
mod envelope;
mod frames;
mod http_heads;
mod input;
mod jsonc;
mod lines;
mod plan;
mod redaction;
mod sse;

use std::sync::OnceLock;

type Target = fn(&[u8]);

/// The targets by their names, which are also the names of the folders in `seeds/`.
const TARGETS: [(&str, Target); 9] = [
    ("lines", lines::check),
    ("envelope", envelope::check),
    ("jsonc", jsonc::check),
    ("plan", plan::check),
    ("http_heads", http_heads::check),
    ("agents", agents::check),
    ("frames", frames::check),
    ("sse", sse::check),
    ("redaction", redaction::check),
];

libfuzzer_sys::fuzz_target!(|data: &[u8]| chosen()(data));

fn chosen() -> Target {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("AFRESH_FUZZ_TARGET").unwrap_or_default();
        let target = TARGETS.iter().find(|(its, _)| *its == name);
        target.unwrap_or_else(|| panic!("`AFRESH_FUZZ_TARGET` names no target: `{name}`")).1
    })
}

/// Whether the planted mistakes are switched on.
fn is_planted() -> bool {
    static PLANTED: OnceLock<bool> = OnceLock::new();
    *PLANTED.get_or_init(|| std::env::var_os("AFRESH_FUZZ_PLANTED").is_some())
}

/// Takes the place of libc's: the hashes of maps are the same in each run, and so is what covers them.
///
/// # Safety
/// As for libc's: `length` bytes can be written at `bytes`.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(bytes: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller says that there is room.
    unsafe { std::ptr::write_bytes(bytes, 7, length) };
    length as isize
}
