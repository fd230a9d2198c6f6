//! Owns the names of files and folders whose changes never restart anything: folders of tools, and what editors leave
//! beside a file. Used by the daemon's watcher, beside the rules of `.gitignore`. Never looks at a file.

use std::ffi::OsStr;

/// Folders of tools, which change by themselves, or hold what is never edited.
const FOLDERS: [&str; 4] = [".git", ".afresh", "node_modules", "__pycache__"];

/// Whether nothing of this name is worth a look: a tool's folder, or what an editor leaves beside the
/// file that it writes.
pub fn is_noise(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    FOLDERS.contains(&name) || is_of_editor(name)
}

/// Whether a file of this name says what is to be ignored.
pub fn is_rules_file(name: &OsStr) -> bool {
    name == ".gitignore" || name == ".ignore"
}

fn is_of_editor(name: &str) -> bool {
    // Emacs' locks and backups; Vim's swap files, and its test of whether it may write in a folder.
    let is_swap =
        name.starts_with('.') && [".swp", ".swo", ".swx"].iter().any(|end| name.ends_with(end));
    name.ends_with('~')
        || name.starts_with(".#")
        || (name.starts_with('#') && name.ends_with('#') && name.len() > 1)
        || name.ends_with(".swp")
        || is_swap
        || name == "4913"
}
