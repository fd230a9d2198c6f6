//! A project that was merely cloned, with links and names that lead elsewhere: nothing outside of it is written or read.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use afresh_tests::{Finished, Running, TestEnv, wait_for};
use nix::sys::signal::Signal;
use nix::unistd::Uid;

use super::HOSTILE;
use super::run::{RUN, git, repository};

/// All files beneath a folder with their contents, links included.
fn contents(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    for path in entries.map(|entry| entry.path()) {
        match path.is_dir() && !path.is_symlink() {
            true => all.extend(contents(&path)),
            false => all.push((path.clone(), fs::read_to_string(&path).unwrap_or_default())),
        }
    }
    all.sort();
    all
}

/// A file and a folder of the user, which no project may change.
fn with_victims() -> TestEnv {
    let env = TestEnv::new();
    fill(&env);
    env
}

fn fill(env: &TestEnv) {
    fs::create_dir(env.home().join("folder")).expect("ours");
    for name in [".bashrc", "folder/kept"] {
        fs::write(env.home().join(name), "export MINE=1\n").expect("ours");
    }
}

#[track_caller]
fn assert_untouched(env: &TestEnv) {
    let mut found = contents(&env.home());
    // The user's own state is afresh's to write.
    found.retain(|(path, _)| !path.starts_with(env.home().join(".local")));
    let wanted = [".bashrc", "folder/kept"]
        .map(|name| (env.home().join(name), "export MINE=1\n".to_owned()));
    assert_eq!(found, wanted);
}

#[track_caller]
fn fails(done: &Finished, code: i32, said: &[&str]) {
    assert_eq!(done.code, Some(code), "{done:?}");
    for text in said {
        assert!(done.stderr.contains(text), "{text}: {done:?}");
    }
}

fn service(env: &TestEnv, more: &str) {
    env.write("afresh.toml", &format!("[service.web]\ncommand = [{HOSTILE:?}, \"idle\"]\n{more}"));
}

#[test]
fn a_marker_or_trail_behind_a_link_of_the_project_is_a_configuration_error() {
    let env = with_victims();
    symlink(env.home(), env.work().join("docs")).expect("ours");
    symlink(env.home().join(".bashrc"), env.work().join("direct")).expect("ours");
    for (key, path, link) in [
        ("marker_file", "docs/.bashrc", "docs"),
        ("marker_file", "docs/new", "docs"),
        ("marker_file", "direct", "direct"),
        ("audit_file", "docs/audit.jsonl", "docs"),
    ] {
        env.write("afresh.toml", &format!("[trail]\n{key} = \"{path}\"\n"));
        let said = format!("`{key}` of a project leads through the symbolic link");
        let link = format!("work/{link}`");
        let said = [said.as_str(), &link, "afresh.toml:2:", "hint: name a file that no link"];
        fails(&env.run(&["mcp", "--", HOSTILE, "exit", "42"]), 3, &said);
        fails(&env.run(&["keep", "--", HOSTILE, "exit", "42"]), 3, &said);
        assert_eq!(env.run(&["config", "check"]).code, Some(3));
    }
    assert_untouched(&env);
    env.assert_nothing_left();
}

#[test]
fn a_link_that_appears_later_is_not_followed_either() {
    let env = with_victims();
    env.write("afresh.toml", "[trail]\nmarker_file = \"docs/.bashrc\"\n");
    let mut afresh = env.start(&["keep", "--", HOSTILE, "idle"]);
    afresh.wait_started(1);
    symlink(env.home(), env.work().join("docs")).expect("ours");
    afresh.signal(Signal::SIGUSR1);
    afresh.wait_stderr("docs` is a symbolic link, and none is followed in a project", 1);
    afresh.wait_started(2);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    assert_untouched(&env);
    env.assert_nothing_left();
}

#[test]
fn what_the_user_names_may_be_a_link() {
    let env = TestEnv::new();
    fs::create_dir(env.home().join("state")).expect("ours");
    symlink(env.home().join("state"), env.work().join("docs")).expect("ours");
    let mut command = env.afresh(&["keep", "--", HOSTILE, "exit-at", "2", "42"]);
    command.env("AFRESH_TRAIL_MARKER_FILE", "docs/marker.json");
    let mut afresh = Running::start(command);
    wait_for("it is marked", || env.home().join("state/marker.json").exists());
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    env.assert_nothing_left();
}

#[test]
fn what_is_no_marker_is_never_replaced_by_one() {
    let env = TestEnv::new();
    let text = "{\"name\": \"app\", \"scripts\": {}}\n";
    env.write("package.json", text);
    env.write("afresh.toml", "[trail]\nmarker_file = \"package.json\"\n");
    let mut afresh = env.start(&["keep", "--", HOSTILE, "idle"]);
    for instance in 1..=3 {
        afresh.wait_started(instance);
        afresh.signal(Signal::SIGUSR1);
    }
    afresh.wait_started(4);
    afresh.signal(Signal::SIGTERM);
    assert_eq!(afresh.wait().code(), Some(0), "{}", afresh.stderr());
    let said = afresh.stderr().matches("package.json` is not a restart marker").count();
    assert_eq!(said, 1, "once: {}", afresh.stderr());
    assert_eq!(fs::read_to_string(env.work().join("package.json")).expect("it is there"), text);
    assert_eq!(env.events("restart_marker_failed").len(), 3);
    env.assert_nothing_left();
}

#[test]
fn links_in_the_state_folder_lead_up_nowhere() {
    // Those that `up` cannot be without are an error, the others are said in its log.
    for (name, is_needed) in [
        ("up.lock", true),
        ("up.log", true),
        ("logs", false),
        ("audit.jsonl", false),
        ("restart_marker.json", false),
        (".gitignore", false),
        ("logs/web.log", false),
        ("logs/web.log.lock", false),
    ] {
        let env = with_victims();
        service(&env, "");
        fs::create_dir(env.work().join(".afresh/logs")).expect("ours");
        let place = env.work().join(".afresh").join(name);
        let target = match name {
            "logs" => {
                fs::remove_dir(&place).expect("it is empty");
                env.home().join("folder")
            }
            _ => env.home().join(".bashrc"),
        };
        symlink(target, &place).expect("ours");
        let up = env.run(&["up", "-d"]);
        if is_needed {
            let link = format!(".afresh/{name}` is a symbolic link");
            fails(&up, 5, &[&link]);
        } else {
            assert_eq!(up.code, Some(0), "{name}: {up:?}");
            assert_eq!(env.run(&["restart", "web"]).code, Some(0), "{name}");
            assert_eq!(env.run(&["down"]).code, Some(0), "{name}");
        }
        assert_untouched(&env);
        assert!(place.is_symlink(), "{name}: it is left as it is");
        env.assert_nothing_left();
    }
}

#[test]
fn links_in_the_state_folder_lead_a_run_nowhere() {
    for (name, target) in [
        ("run.lock", ".bashrc"),
        ("run.lock", "new"),
        ("runs.db", ".bashrc"),
        ("runs.db", "new"),
        ("runs.db-wal", "new"),
        ("runs", "folder"),
    ] {
        let env = repository(&[]);
        fill(&env);
        let place = env.work().join(".afresh").join(name);
        symlink(env.home().join(target), &place).expect("ours");
        let run = env.run(&RUN);
        assert_ne!(run.code, Some(0), "{name}: {run:?}");
        if name != "runs.db-wal" {
            let link = format!(".afresh/{name}` is a symbolic link");
            assert!(run.stderr.contains(&link), "{name}: {run:?}");
        }
        assert_untouched(&env);
        env.assert_nothing_left();
    }
}

#[test]
fn what_a_clone_links_to_is_not_shown() {
    let env = TestEnv::new();
    let (other, state) = (env.home().join("other"), env.work().join(".afresh"));
    fs::create_dir_all(other.join("logs")).expect("ours");
    assert_eq!(env.run(&["keep", "--log", "--name", "web", "--", "echo", "hush"]).code, Some(0));
    for name in ["audit.jsonl", "logs"] {
        fs::rename(state.join(name), other.join(name)).expect("ours");
        symlink(other.join(name), state.join(name)).expect("ours");
    }
    for command in [&["history"][..], &["logs"], &["logs", "web"]] {
        fails(&env.run(command), 5, &["is a symbolic link, and none is followed in a project"]);
    }
    fs::remove_dir_all(&state).expect("ours");
    symlink(&other, &state).expect("ours");
    for command in [&["history"][..], &["logs"]] {
        let shown = env.run(command);
        assert!(!shown.stdout.contains("hush") && !shown.stdout.contains("web"), "{shown:?}");
    }
    env.assert_nothing_left();
}

#[test]
fn a_git_file_that_points_elsewhere_makes_a_run_write_nothing_there() {
    for target in ["../home", "../other.git"] {
        let env = repository(&[]);
        fill(&env);
        fs::rename(env.work().join(".git"), env.work().join("../other.git")).expect("ours");
        env.write(".git", &format!("gitdir: {target}\n"));
        fails(&env.run(&RUN), 3, &["which does not name", "core.worktree"]);
        assert!(!env.work().join(target).join("afresh-run.lock").exists());
        assert_untouched(&env);
        env.assert_nothing_left();
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn the_state_folder_is_made_private_and_mended() {
    let env = TestEnv::new();
    let state = env.work().join(".afresh");
    for mode in [0o755, 0o777, 0o750, 0o700] {
        fs::set_permissions(&state, fs::Permissions::from_mode(mode)).expect("ours");
        let done = env.run(&["keep", "--", HOSTILE, "exit", "0"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(mode_of(&state), 0o700, "{mode:o}");
    }
    // Without one, a folder with `.git` is a workspace too.
    fs::remove_dir_all(&state).expect("ours");
    fs::create_dir(env.work().join(".git")).expect("ours");
    assert_eq!(env.run(&["keep", "--", HOSTILE, "exit", "0"]).code, Some(0));
    assert_eq!(mode_of(&state), 0o700);
    env.assert_nothing_left();
}

#[test]
fn a_state_folder_of_another_user_is_not_used() {
    if !Uid::effective().is_root() {
        println!("skipped: only root can give a folder to another user");
        return;
    }
    let env = TestEnv::new();
    let state = env.work().join(".afresh");
    chown(&state, Some(65_534), None).expect("we are root");
    let before = contents(&state);
    let done = env.run(&["keep", "--", HOSTILE, "exit", "0"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for said in ["work/.afresh` belongs to another user", "state goes to `"] {
        assert!(done.stderr.contains(said), "{said}: {done:?}");
    }
    assert_eq!(contents(&state), before);
    let history = env.run(&["history"]);
    assert!(history.stdout.contains("started"), "it is found where it went: {history:?}");
    env.assert_nothing_left();
}

#[test]
fn files_that_a_project_has_afresh_read_are_in_the_project() {
    let env = TestEnv::new();
    fs::write(env.home().join("secret"), "KEY=hunter2hunter2\n").expect("ours");
    symlink(env.home().join("secret"), env.work().join(".env")).expect("ours");
    service(&env, "env_file = \".env\"\n");
    let said = ["`env_file` of a project leads out of it, to", "home/secret`", "afresh.toml:3:"];
    fails(&env.run(&["up"]), 3, &said);
    // A link within the project is no way out.
    fs::remove_file(env.work().join(".env")).expect("ours");
    env.write("real.env", "KEY=1\n");
    symlink("real.env", env.work().join(".env")).expect("ours");
    assert_eq!(env.run(&["config", "check"]).code, Some(0));

    env.write(
        "afresh.toml",
        "[gateway.token.me]\ntoken_file = \"token\"\n[server.a]\ncommand = [\"x\"]\n",
    );
    symlink(env.home().join("secret"), env.work().join("token")).expect("ours");
    fails(&env.run(&["gateway", "--list"]), 3, &["`token_file` of a project leads out of it"]);

    fs::remove_file(env.work().join("afresh.toml")).expect("ours");
    symlink(env.home().join("secret"), env.work().join("afresh.toml")).expect("ours");
    let refused = env.run(&["keep", "--", HOSTILE, "exit", "0"]);
    fails(&refused, 3, &["afresh.toml` leads out of the project, to"]);
    assert!(!refused.stderr.contains("hunter2"), "{refused:?}");

    fs::remove_file(env.work().join("afresh.toml")).expect("ours");
    symlink(env.home().join("secret"), env.work().join(".mcp.json")).expect("ours");
    fails(&env.run(&["gateway", "--list"]), 3, &[".mcp.json` leads out of the project, to"]);
    env.assert_nothing_left();
}

#[test]
fn a_token_that_comes_with_a_workspace_opens_nothing() {
    let env = TestEnv::new();
    let shipped = "ab".repeat(32);
    let token = env.work().join(".afresh/token");
    fs::write(&token, format!("{shipped}\n")).expect("ours");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("ours");
    let keep = ["keep", "--listen", "0", "--", HOSTILE, "exit", "0"];
    assert_eq!(env.run(&keep).code, Some(0));
    let own = env.home().join(".local/state/afresh/private/control.token");
    assert_ne!(fs::read_to_string(own).expect("a token").trim(), shipped);
    assert_eq!(fs::read_to_string(token).expect("it is there").trim(), shipped, "not touched");
    env.assert_nothing_left();
}

#[test]
fn a_fifo_in_the_state_folder_holds_up_no_command() {
    let env = TestEnv::new();
    nix::unistd::mkfifo(&env.work().join(".afresh/run"), nix::sys::stat::Mode::S_IRWXU)
        .expect("ours");
    for arguments in [&["status"][..], &["down"], &["restart", "a"]] {
        let mut command = env.start(arguments);
        command.wait();
    }
    env.assert_nothing_left();
}

fn finished(mut command: Command) -> Finished {
    let output = command.output().expect("it runs");
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

#[test]
fn a_folder_that_looks_like_a_repository_starts_nothing() {
    let env = TestEnv::new();
    git(&env, &["init", "-q"]);
    // A sparse index lets git fetch what it lacks, by a program that its configuration names.
    let made = env.home().join("made");
    fs::create_dir(&made).expect("ours");
    let run = |arguments: &[&str]| {
        let done = Command::new("git").arg("-C").arg(&made).args(arguments).output();
        let done = done.expect("git runs");
        assert!(done.status.success(), "{arguments:?}: {done:?}");
    };
    run(&["init", "-q"]);
    for folder in ["d", "e"] {
        fs::create_dir(made.join(folder)).expect("ours");
        fs::write(made.join(folder).join("f"), folder).expect("ours");
    }
    run(&["add", "."]);
    run(&["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "x"]);
    run(&["sparse-checkout", "init", "--cone", "--sparse-index"]);
    run(&["sparse-checkout", "set", "e"]);
    let folder = env.work().join("sec");
    fs::create_dir_all(folder.join("refs/heads")).expect("ours");
    fs::create_dir_all(folder.join("objects")).expect("ours");
    fs::create_dir_all(folder.join("info")).expect("ours");
    fs::write(folder.join("HEAD"), "ref: refs/heads/master\n").expect("ours");
    fs::copy(made.join(".git/index"), folder.join("index")).expect("ours");
    fs::copy(made.join(".git/info/sparse-checkout"), folder.join("info/sparse-checkout"))
        .expect("ours");
    let config = "[core]\nrepositoryformatversion = 1\nbare = false\nworktree = .\nsparseCheckout = true\n\
                  sparseCheckoutCone = true\n[index]\nsparse = true\n[extensions]\npartialClone = origin\n\
                  [remote \"origin\"]\npromisor = true\nurl = .\nuploadpack = \"touch $HOME/started; false \"\n";
    fs::write(folder.join("config"), config).expect("ours");
    env.write("sec/tok", &"ab".repeat(32));
    env.write(
        "afresh.toml",
        &format!(
            "[gateway.token.me]\ntoken_file = \"sec/tok\"\n[server.a]\ncommand = [{HOSTILE:?}]\n"
        ),
    );
    assert_eq!(env.run(&["gateway", "--list"]).code, Some(0), "git does not track it");
    assert!(!env.home().join("started").exists());
    git(&env, &["add", "sec/tok"]);
    fails(&env.run(&["gateway", "--list"]), 3, &["git tracks it"]);
    assert!(!env.home().join("started").exists());
    env.assert_nothing_left();
}

#[test]
fn a_token_that_git_tracks_is_refused() {
    let env = TestEnv::new();
    git(&env, &["init", "-q"]);
    // A home folder can be a repository.
    let home = env.home();
    let git_at_home = |arguments: &[&str]| {
        let finished = Command::new("git").arg("-C").arg(&home).args(arguments).status();
        assert!(finished.is_ok_and(|status| status.success()), "{arguments:?}");
    };
    let keep = ["keep", "--listen", "0", "--", HOSTILE, "exit", "0"];
    assert_eq!(env.run(&keep).code, Some(0));
    git_at_home(&["init", "-q"]);
    git_at_home(&["add", "-f", ".local/state/afresh/private/control.token"]);
    fails(&env.run(&keep), 5, &["is tracked by git", "remove it, and a new one is made"]);
    git_at_home(&["rm", "-q", "-f", ".local/state/afresh/private/control.token"]);
    assert_eq!(env.run(&keep).code, Some(0));

    env.write("gateway.token", &"ab".repeat(32));
    git(&env, &["add", "gateway.token"]);
    let server = format!("[server.a]\ncommand = [{HOSTILE:?}]\n");
    env.write(
        "afresh.toml",
        &format!("[gateway.token.me]\ntoken_file = \"gateway.token\"\n{server}"),
    );
    let said = ["token `me` cannot be read from `gateway.token`", "git tracks it"];
    fails(&env.run(&["gateway", "--list"]), 3, &said);
    // Where git cannot say it, it may be so.
    let mut command = env.afresh(&["gateway", "--list"]);
    command.env("PATH", env.home());
    let said = ["whether git tracks it is not known: git cannot be run", "use `token_env`"];
    fails(&finished(command), 3, &said);

    let secret = "cd".repeat(32);
    env.write("afresh.toml", &format!("[gateway.token.me]\ntoken = \"{secret}\"\n{server}"));
    assert_eq!(env.run(&["gateway", "--list"]).code, Some(0), "git does not know it yet");
    git(&env, &["add", "afresh.toml"]);
    let refused = env.run(&["gateway", "--list"]);
    fails(&refused, 3, &["`token` stands in a file that git tracks", "afresh.toml:2:"]);
    assert!(!refused.stderr.contains(&secret), "{refused:?}");
    env.assert_nothing_left();
}
