//! Fuzzes the configuration files of MCP clients, JSON with comments and TOML: what a full parser reads is read, and
//! what `adopt` writes is turned back into the same bytes.

use afresh_core::adopt::{File, State, Wrapper};

use crate::input::first;
use crate::is_planted;

const WRAPPER: Wrapper<'static> = Wrapper {
    invocation: &["npx", "-y", "afresh@0.2.0"],
    with: &[],
    version: Some("0.2.0"),
    gone: &[],
};

pub fn check(data: &[u8]) {
    let Some((choice, bytes)) = first(data) else { return };
    let path = if choice % 4 == 0 { "config.toml" } else { "mcp.json" };
    let file = match File::read(path, bytes) {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.to_string().contains('\u{1b}'), "an error is safe to print");
            let is_json = serde_json::from_slice::<serde_json::Value>(bytes).is_ok();
            assert!(path == "config.toml" || !is_json, "JSON is JSON with comments: {error}");
            return;
        }
    };
    let text = std::str::from_utf8(bytes).expect("it was read");
    let edits = file.adopt(&WRAPPER, &|_| true);
    file.diff(&edits);
    let adopted = file.with(&edits);
    let again = File::read(path, adopted.as_bytes()).expect("what adopt writes can be read");
    let names = |file: &File<'_>| file.servers.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&file), names(&again));
    let was_adopted = file.servers.iter().any(|server| server.state() == State::Adopted);
    if was_adopted {
        // The undo takes away what was there before, too.
        return;
    }
    assert_eq!(again.adopt(&WRAPPER, &|_| true), [], "the second time changes nothing");
    let mut undone = again.with(&again.undo(&|_| true));
    if is_planted() && adopted != text && text.contains("//") && text.contains('\r') {
        undone.push('\n');
    }
    assert_eq!(undone, text, "undone from {adopted}");
}
