//! Gives the binary what `afresh --version --verbose` prints: commit, profile and target. Works in a clone, in an unpacked
//! crate and without git. Never fails a build.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=AFRESH_COMMIT");
    let commit = Some(variable("AFRESH_COMMIT")).filter(|commit| !commit.is_empty());
    let commit = commit.or_else(commit_of_crate).or_else(commit_of_clone);
    println!("cargo::rustc-env=AFRESH_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // `PROFILE` is `release` for all that inherit from it.
    let profile = profile_of(&variable("OUT_DIR")).unwrap_or_else(|| variable("PROFILE"));
    println!("cargo::rustc-env=AFRESH_PROFILE={profile}");
    println!("cargo::rustc-env=AFRESH_TARGET={}", variable("TARGET"));
}

/// What `cargo package` has noted in the crate: there the clone is another one, or none.
fn commit_of_crate() -> Option<String> {
    let note = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = note.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(short)
}

/// The commit that is checked out, where the crate is in a clone of its repository.
fn commit_of_clone() -> Option<String> {
    if !Path::new("../.git").exists() {
        return None;
    }
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    // It has a line for each change of HEAD, be it a commit or another branch.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "HEAD"]).map(|commit| short(&commit))
}

fn short(commit: &str) -> String {
    commit.chars().take(12).collect()
}

/// The folder of the profile, of `…/PROFILE/build/afresh-HASH/out`.
fn profile_of(out_dir: &str) -> Option<String> {
    let folder = Path::new(out_dir).ancestors().find(|path| path.ends_with("build"))?.parent()?;
    let name = folder.file_name()?.to_str()?;
    // Cargo calls the folder of `dev` so.
    Some(if name == "debug" { "dev" } else { name }.to_owned())
}
