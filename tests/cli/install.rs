//! `afresh install`, with a systemctl that only writes down what it is asked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use afresh_tests::{Finished, TestEnv};

/// Runs `afresh install FLAGS` in a folder, with the programs of the test in front of PATH.
fn install_in(env: &TestEnv, folder: &Path, flags: &[&str]) -> Finished {
    let bin = env.home().join("bin");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = env.afresh(&[&["install"], flags].concat());
    let output = command.current_dir(folder).env("PATH", path).stdin(Stdio::null()).output();
    let output = output.expect("afresh runs");
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn install(env: &TestEnv, flags: &[&str]) -> Finished {
    install_in(env, &env.work(), flags)
}

/// An environment whose systemctl and loginctl end with a code.
fn with_systemctl(code: i32) -> TestEnv {
    let env = TestEnv::new();
    let bin = env.home().join("bin");
    fs::create_dir_all(&bin).expect("ours");
    for name in ["systemctl", "loginctl"] {
        let asked = env.home().join("asked").display().to_string();
        let script =
            format!("#!/bin/sh\necho {name} \"$@\" >>'{asked}'\necho no >&2\nexit {code}\n");
        fs::write(bin.join(name), script).expect("ours");
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("ours");
    }
    env
}

fn unit(env: &TestEnv) -> PathBuf {
    env.home().join(".config/systemd/user/afresh-work.service")
}

fn asked(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(env.home().join("asked")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn it_is_installed_once_and_taken_back() {
    let env = with_systemctl(0);
    // Nobody can be asked here.
    let done = install(&env, &[]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    assert!(done.stdout.contains("ExecStart="), "{}", done.stdout);
    assert!(done.stderr.contains("then: systemctl --user enable --now afresh-work.service"));
    assert!(!unit(&env).exists() && asked(&env).is_empty());

    let done = install(&env, &["--yes"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let text = fs::read_to_string(unit(&env)).expect("it is written");
    assert_eq!(install(&env, &["--print"]).stdout, text);
    assert!(text.contains(&format!("WorkingDirectory={}\n", env.work().display())), "{text}");
    assert_eq!(
        asked(&env),
        [
            "systemctl --user daemon-reload",
            "systemctl --user enable --now afresh-work.service",
            "loginctl enable-linger",
        ]
    );
    let done = install(&env, &["--yes"]);
    assert_eq!(done.code, Some(0));
    assert!(done.stderr.contains("nothing to do"), "{}", done.stderr);
    assert_eq!(asked(&env).len(), 3, "the second time nothing is done");

    assert_eq!(install(&env, &["--undo"]).code, Some(1));
    assert!(unit(&env).exists());
    assert_eq!(install(&env, &["--undo", "--yes"]).code, Some(0));
    assert!(!unit(&env).exists());
    assert_eq!(
        asked(&env)[3..],
        ["systemctl --user disable --now afresh-work.service", "systemctl --user daemon-reload"]
    );
    let done = install(&env, &["--undo", "--yes"]);
    assert_eq!((done.code, asked(&env).len()), (Some(0), 5), "{}", done.stderr);
    env.assert_nothing_left();
}

#[test]
fn what_somebody_has_changed_is_left_alone() {
    let env = with_systemctl(0);
    assert_eq!(install(&env, &["--yes"]).code, Some(0));
    let text = fs::read_to_string(unit(&env)).expect("it is written");
    for (changed, said) in [
        (text.replace("RestartSec=1", "RestartSec=5"), "was changed since afresh wrote it"),
        ("[Service]\nExecStart=/bin/true\n".to_owned(), "was not written by afresh"),
    ] {
        fs::write(unit(&env), &changed).expect("ours");
        for flags in [["--yes"].as_slice(), &["--undo", "--yes"]] {
            let done = install(&env, flags);
            assert_eq!(done.code, Some(1), "{}", done.stderr);
            assert!(
                done.stderr.contains(said) && done.stderr.contains("--force"),
                "{}",
                done.stderr
            );
            assert_eq!(fs::read_to_string(unit(&env)).expect("it is there"), changed);
        }
    }
    assert_eq!(install(&env, &["--undo", "--yes", "--force"]).code, Some(0));
    assert!(!unit(&env).exists());
}

#[test]
fn two_workspaces_of_one_name_do_not_meet() {
    let env = with_systemctl(0);
    assert_eq!(install(&env, &["--yes"]).code, Some(0));
    let other = env.home().join("other/work");
    fs::create_dir_all(other.join(".git")).expect("ours");
    for flags in [["--yes"].as_slice(), &["--undo", "--yes"]] {
        let done = install_in(&env, &other, flags);
        assert_eq!(done.code, Some(1), "{}", done.stderr);
        assert!(done.stderr.contains("for another workspace"), "{}", done.stderr);
        assert!(done.stderr.contains("--name"), "{}", done.stderr);
    }
    assert_eq!(install_in(&env, &other, &["--yes", "--name=second"]).code, Some(0));
    assert!(unit(&env).with_file_name("afresh-second.service").exists());
    for name in ["", "../x", "a b", "-x", "x\ny"] {
        let done = install(&env, &["--print", "--name", name]);
        assert_eq!(done.code, Some(2), "{name:?}: {}", done.stdout);
    }
}

#[test]
fn a_systemd_that_is_not_there_is_said() {
    let env = with_systemctl(1);
    let done = install(&env, &["--yes"]);
    assert_eq!(done.code, Some(1), "{}", done.stderr);
    let said = "error: `systemctl --user daemon-reload` failed: it exited with code 1: no";
    assert!(done.stderr.contains(said), "{}", done.stderr);
    assert!(done.stderr.contains("the file stays"), "{}", done.stderr);
    assert!(unit(&env).exists());
    // It goes all the same.
    let done = install(&env, &["--undo", "--yes"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("warning: `systemctl"), "{}", done.stderr);
    assert!(!unit(&env).exists());
    env.assert_nothing_left();
}

#[test]
fn systemd_understands_the_unit() {
    let env = with_systemctl(0);
    let folder = env.home().join("50% \"off\" $HOME ü");
    fs::create_dir_all(folder.join(".git")).expect("ours");
    let done = install_in(&env, &folder, &["--print"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    let file = env.home().join("afresh-x.service");
    // The path of the program is good, and the one of another is not: so it is read as it is meant.
    for (text, is_good) in [
        (done.stdout.clone(), true),
        (done.stdout.replace("/afresh\" up", "/afresh-gone\" up"), false),
    ] {
        fs::write(&file, text).expect("ours");
        let mut verify = Command::new("systemd-analyze");
        verify.args(["--user", "verify"]).arg(&file).env("XDG_RUNTIME_DIR", env.runtime());
        // Where there is no systemd, there is nobody to ask.
        let Ok(verified) = verify.output() else { return };
        let said = String::from_utf8_lossy(&verified.stderr);
        assert_eq!(said.trim().is_empty(), is_good, "{said}");
    }
}
