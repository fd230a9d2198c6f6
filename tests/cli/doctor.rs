//! `afresh doctor`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use afresh_tests::TestEnv;
use serde_json::Value;

/// Runs it with only these programs on PATH; gives its exit code and what it says.
fn examine(env: &TestEnv, programs: &[(&str, &str)]) -> (Option<i32>, Value) {
    examine_with(env, programs, &[])
}

/// The same, with more arguments.
fn examine_with(
    env: &TestEnv,
    programs: &[(&str, &str)],
    arguments: &[&str],
) -> (Option<i32>, Value) {
    let folder = env.home().join("bin");
    fs::create_dir_all(&folder).unwrap();
    for (name, script) in programs {
        write_script(&folder.join(name), script);
    }
    let mut doctor = env.afresh(&[&["doctor", "--json"], arguments].concat());
    doctor.env("PATH", &folder).stdin(Stdio::null());
    let output = doctor.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let said = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), said)
}

fn write_script(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

fn check<'a>(said: &'a Value, name: &str) -> &'a Value {
    let checks = said["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap()
}

#[track_caller]
fn assert_check(said: &Value, name: &str, verdict: &str, found: &str) {
    let check = check(said, name);
    assert_eq!(check["verdict"], verdict, "{check}");
    let text = check["found"].as_str().unwrap();
    assert!(text.contains(found), "{text}");
    assert_eq!(check["hint"].is_string(), verdict != "ok", "{check}");
}

#[test]
fn a_sound_machine_has_no_problem() {
    let env = TestEnv::new();
    let version = "printf '\\n\\033[1m2.1.0 (Claude Code)\\n'";
    let programs = [("claude", version), ("git", "echo git version 2.50")];
    let (code, said) = examine(&env, &programs);
    assert_eq!((code, &said["problems"]), (Some(0), &Value::from(0)), "{said}");
    assert_check(&said, "guardian", "ok", "its detached grandchild was gone with it");
    assert_check(&said, "mechanism", "ok", "guardian: ");
    assert_check(&said, "state", "ok", "/work/.afresh`, of the workspace");
    assert_check(&said, "trail", "ok", "no record yet");
    assert_check(&said, "configuration", "ok", "no errors");
    assert_check(&said, "claude", "ok", "␛[1m2.1.0 (Claude Code), `");
    assert_check(&said, "git", "ok", "git version 2.50");
    assert_check(&said, "codex", "ok", "not installed");
    assert_check(&said, "client files", "ok", "no server of a client is behind afresh here");
    for name in ["cgroup", "open files", "runtime folder"] {
        assert!(check(&said, name)["found"].is_string());
    }
    // It looks, and changes nothing.
    assert_eq!(fs::read_dir(env.work().join(".afresh")).unwrap().count(), 0);
    env.assert_nothing_left();
}

#[test]
fn agents_that_hang_flood_or_fail_are_warnings() {
    let env = TestEnv::new();
    let programs = [
        ("claude", "(while :; do /bin/sleep 1000; done) & wait"),
        ("codex", "while :; do echo flood; done"),
        ("opencode", "echo no licence >&2; exit 7"),
    ];
    let (code, said) = examine(&env, &programs);
    assert_eq!(code, Some(0), "{said}");
    assert_check(&said, "claude", "warning", "had not ended after 10 s");
    assert_check(&said, "codex", "warning", "does not stop printing");
    assert_check(&said, "opencode", "warning", "exited with code 7: no licence");
    assert_check(&said, "git", "warning", "not found on PATH");
    env.assert_nothing_left();
}

#[test]
fn what_is_broken_is_a_problem() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[default]\n");
    env.write(".afresh/audit.jsonl", "{\"half\n");
    let (code, said) = examine(&env, &[]);
    assert_eq!(code, Some(1));
    assert_check(&said, "configuration", "problem", "unknown section `[default]`");
    assert_check(&said, "trail", "warning", "damaged lines: 1");
    fs::remove_file(env.audit_file()).unwrap();
    fs::create_dir(env.audit_file()).unwrap();
    let (_, said) = examine(&env, &[]);
    assert_check(&said, "trail", "problem", "is no file");
    env.assert_nothing_left();
}

#[test]
fn the_text_says_all_without_colours() {
    let env = TestEnv::with_shared_sockets();
    env.write("afresh.toml", "[default]\n");
    let mut doctor = env.afresh(&["doctor"]);
    doctor.env("XDG_RUNTIME_DIR", "/nowhere");
    let output = doctor.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains('\u{1b}'), "{text}");
    for line in [
        "problem  configuration   unknown section `[default]`\n                         hint: run `afresh config check`\n",
        "warning  runtime folder  XDG_RUNTIME_DIR, `/nowhere`, does not exist: ",
        "\n\n1 problem, ",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
    env.assert_nothing_left();
}

/// A client's file with one server behind afresh, as these words call it.
fn client_file(words: &[&str]) -> String {
    let rest = [&words[1..], &["mcp", "--name", "docs", "--", "server"]].concat();
    serde_json::json!({"mcpServers": {"docs": {"command": words[0], "args": rest}}}).to_string()
}

#[test]
fn client_files_that_call_another_afresh_are_named() {
    let env = TestEnv::new();
    fs::create_dir_all(env.home().join(".cursor")).unwrap();
    let old = env.home().join("old/afresh");
    fs::create_dir_all(old.parent().unwrap()).unwrap();
    write_script(&old, "echo ran >> $HOME/ran; echo afresh 0.0.1");
    let (gone, old) = (env.home().join("gone/afresh"), old.display().to_string());
    let gone = gone.display().to_string();
    let npx = ("npx", "exit 1");
    let own = afresh_tests::afresh_binary().display().to_string();
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], bool, &'a str, &'a str);
    let cases: [Case<'_>; 8] = [
        (&[&gone], &[], true, "problem", "gone/afresh`, which does not exist"),
        (&["afresh"], &[], false, "problem", "runs `afresh`, which is not on PATH"),
        (
            &["npx", "-y", "afresh@0.0.1"],
            &[npx],
            false,
            "warning",
            "runs afresh 0.0.1 by `npx`; this is",
        ),
        (&["npx", "-y", "afresh@0.0.1"], &[], false, "problem", "by `npx`, which is not on PATH"),
        (
            &["npx", "-y", "afresh@999.0.0"],
            &[npx],
            false,
            "ok",
            "could not be asked for 999.0.0: `npm` is not on PATH",
        ),
        (
            &["afresh"],
            &[("afresh", "echo afresh 0.0.1")],
            false,
            "warning",
            "`afresh`, which is afresh 0.0.1; this is",
        ),
        (&[&old], &[], true, "warning", "old/afresh`, which is afresh 0.0.1; this is"),
        (&[&own], &[], true, "ok", "1 server of a client is behind afresh"),
    ];
    for (words, programs, is_users, verdict, found) in cases {
        fs::remove_dir_all(env.home().join("bin")).ok();
        fs::remove_file(env.work().join(".mcp.json")).ok();
        fs::remove_file(env.home().join(".cursor/mcp.json")).ok();
        let file = match is_users {
            true => env.home().join(".cursor/mcp.json"),
            false => env.work().join(".mcp.json"),
        };
        fs::write(&file, client_file(words)).unwrap();
        let (_, said) = examine(&env, programs);
        assert_check(&said, "client files", verdict, found);
    }
    assert_eq!(fs::read_to_string(env.home().join("ran")).unwrap(), "ran\n");
    // A program that only a project's file names is not run.
    fs::write(env.work().join(".mcp.json"), client_file(&[&old])).unwrap();
    fs::remove_file(env.home().join(".cursor/mcp.json")).unwrap();
    let (_, said) = examine(&env, &[]);
    assert_check(&said, "client files", "ok", "1 server of a client is behind afresh");
    assert_eq!(fs::read_to_string(env.home().join("ran")).unwrap(), "ran\n");
    env.assert_nothing_left();
}

/// What npm prints for a version that the registry does not have.
const NPM_E404: &str = r#"echo '{"error": {"code": "E404", "summary": "No match"}}'; exit 1"#;

#[test]
fn registries_are_asked_for_versions_that_client_files_name() {
    let env = TestEnv::new();
    let (npx, bunx, uvx) = (("npx", "exit 9"), ("bunx", "exit 9"), ("uvx", "exit 9"));
    let npx_of = |version: &str| ["npx".to_owned(), "-y".to_owned(), format!("afresh@{version}")];
    let (old, new) = (npx_of("0.0.1"), npx_of("999.0.0"));
    let (old, new): (Vec<&str>, Vec<&str>) =
        (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
    let refused = r#"echo '{"error": {"code": "EHOST", "summary": "no route"}}'; exit 1"#;
    let uv_gone =
        "read -r line; echo 'error: Because there is no version of' $line and more >&2; exit 1";
    let uv_has = "read -r line; echo '# a comment'; echo $line";
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str, &'a str, &'a str);
    let cases: [Case<'_>; 12] = [
        (&new, &[npx, ("npm", r#"echo '"999.0.0"'"#)], "ok", "and 999.0.0 is published", ""),
        (
            &new,
            &[npx, ("npm", NPM_E404)],
            "warning",
            "and 999.0.0 is gone from the registry",
            "`afresh adopt --undo`, then `afresh adopt`, writes",
        ),
        (
            &old,
            &[npx, ("npm", NPM_E404)],
            "warning",
            "and 0.0.1 is gone from the registry",
            "`afresh adopt` writes",
        ),
        (&old, &[npx, ("npm", r#"echo '"0.0.1"'"#)], "warning", "and 0.0.1 is published", "adopt"),
        (&new, &[npx, ("npm", refused)], "ok", "could not be asked for 999.0.0: no route", ""),
        (
            &new,
            &[npx, ("npm", "(while :; do /bin/sleep 1000; done) & wait")],
            "ok",
            "could not be asked for 999.0.0: `npm` had no answer after 5 s",
            "",
        ),
        (
            &new,
            &[npx, ("npm", "while :; do echo flood; done")],
            "ok",
            "could not be asked for 999.0.0: `npm` does not stop printing",
            "",
        ),
        (&["bunx", "afresh@999.0.0"], &[bunx, ("npm", NPM_E404)], "warning", "is gone", "adopt"),
        (
            &["bunx", "afresh@999.0.0"],
            &[bunx, ("npm", "exit 1"), ("bun", r#"echo '"999.0.0"'"#)],
            "ok",
            "is published",
            "",
        ),
        (&["uvx", "afresh@999.0.0"], &[uvx, ("uv", uv_has)], "ok", "is published", ""),
        (&["uvx", "afresh==999.0.0"], &[uvx, ("uv", uv_gone)], "warning", "is gone", "adopt"),
        (&["uvx", "afresh@999.0.0"], &[uvx], "ok", "999.0.0: `uv` is not on PATH", ""),
    ];
    for (words, programs, verdict, found, hint) in cases {
        fs::remove_dir_all(env.home().join("bin")).ok();
        env.write(".mcp.json", &client_file(words));
        let (code, said) = examine(&env, programs);
        assert_eq!(code, Some(0), "{said}");
        assert_check(&said, "client files", verdict, found);
        let said_hint = check(&said, "client files")["hint"].as_str().unwrap_or_default();
        assert!(said_hint.contains(hint), "{said_hint}");
    }
    env.assert_nothing_left();
}

#[test]
fn registries_are_asked_at_once_from_the_home_folder_and_not_offline() {
    let env = TestEnv::new();
    let waits_for = |own: &str, other: &str, answer: &str| {
        let wait = format!("while [ ! -e $HOME/{other} ]; do /bin/sleep 0.01; done");
        format!(": > $HOME/{own}; {wait}; echo $PWD >> $HOME/asked; {answer}")
    };
    let npm = waits_for("npm-ran", "uv-ran", r#"echo '"999.0.0"'"#);
    let uv = waits_for("uv-ran", "npm-ran", "echo afresh==999.0.0");
    let programs = [("npx", "exit 9"), ("uvx", "exit 9"), ("npm", &npm), ("uv", &uv)];
    let server = |command: &str, package: &str| serde_json::json!({"command": command, "args": [package, "mcp", "--", "server"]});
    let own = format!("afresh@{}", env!("CARGO_PKG_VERSION"));
    let servers = serde_json::json!({"mcpServers": {
        "a": server("npx", "afresh@999.0.0"),
        "b": server("npx", "afresh@999.0.0"),
        "c": server("uvx", "afresh==999.0.0"),
        "d": server("npx", &own),
        "e": server("npx", "afresh@latest"),
        "f": server("npx", "afresh@999.0.0-x y"),
    }});
    env.write(".mcp.json", &servers.to_string());
    env.write(".npmrc", "registry=http://127.0.0.1:9/\n");
    let (_, said) = examine_with(&env, &programs, &["--offline"]);
    assert_eq!(check(&said, "client files")["found"], "6 servers of clients are behind afresh");
    assert!(!env.home().join("npm-ran").exists());
    let (_, said) = examine(&env, &programs);
    for found in [
        "6 servers of clients are behind afresh; `a` in `.mcp.json` runs afresh 999.0.0 by `npx`, and 999.0.0 is published; `b`",
        "`c` in `.mcp.json` runs afresh 999.0.0 by `uvx`, and 999.0.0 is published",
        "could not be asked for 999.0.0-x y: it is not written as a version",
    ] {
        assert_check(&said, "client files", "ok", found);
    }
    // Each once, however many servers have the version, and never in the folder of the project.
    let home = env.home().display().to_string();
    let asked = fs::read_to_string(env.home().join("asked")).unwrap();
    assert_eq!(asked, format!("{home}\n{home}\n"));
    env.assert_nothing_left();
}
