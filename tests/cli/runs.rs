//! `afresh runs` over a `runs.db` that came with a clone.

use std::fs;

use afresh_tests::{TestEnv, reaches};
use nix::sys::signal::Signal;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

const TABLES: &str = "PRAGMA user_version = 3;
    CREATE TABLE runs (run INTEGER PRIMARY KEY, plan TEXT NOT NULL, title TEXT NOT NULL, agent TEXT NOT NULL,
        began TEXT NOT NULL, ended TEXT, finish TEXT, folder TEXT);
    CREATE TABLE records (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, number INTEGER NOT NULL, at TEXT NOT NULL,
        record TEXT NOT NULL);";

/// A terminal would obey each part of it.
const EVIL: &str = "\u{1b}]0;pwned\u{7}\u{1b}[2J\u{202e}\u{9b}31m\r\nevil";

fn database(env: &TestEnv) -> Connection {
    Connection::open(env.work().join(".afresh/runs.db")).unwrap()
}

#[test]
fn what_a_clone_says_of_runs_is_printed_as_text() {
    let env = TestEnv::new();
    let database = database(&env);
    database.execute_batch(TABLES).unwrap();
    let words = "INSERT INTO runs VALUES (1, ?1, ?1, ?1, ?1, ?1, NULL, ?1)";
    database.execute(words, params![EVIL]).unwrap();
    let records = [
        json!({"record": "stood", "branch": EVIL, "commit": EVIL}),
        json!({"record": "phase_began", "phase": EVIL, "base": EVIL}),
        json!({"record": "committed", "commit": EVIL, "message": EVIL}),
        json!({"record": "phase_ended", "phase": EVIL, "end": "failed", "detail": EVIL}),
    ];
    for (number, record) in (1..).zip(&records) {
        let words = "INSERT INTO records VALUES ((1 << 32) + ?1, 1, ?1, ?2, ?3)";
        database.execute(words, params![number, EVIL, record.to_string()]).unwrap();
    }
    drop(database);
    for (arguments, lines) in [(&["runs"][..], 2), (&["runs", "show"], 6)] {
        let shown = env.run(arguments);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let is_harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!shown.stdout.contains(is_harmful), "{arguments:?}: {:?}", shown.stdout);
        assert_eq!(shown.stdout.lines().count(), lines, "{:?}", shown.stdout);
        let mut json = arguments.to_vec();
        json.push("--json");
        let shown = env.run(&json);
        assert!(!shown.stdout.contains(is_harmful), "{json:?}: {:?}", shown.stdout);
        let value: Value = serde_json::from_str(&shown.stdout).unwrap();
        let run = value.get(0).unwrap_or(&value);
        assert_eq!(run["agent"], EVIL, "it is the same text");
    }
}

#[test]
fn a_database_that_is_not_one_of_ours_holds_up_nothing() {
    let endless = "CREATE VIEW runs AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
        SELECT x AS run, 'p' AS plan, 't' AS title, 'a' AS agent, 'b' AS began, NULL AS ended, NULL AS finish,
        '' AS folder FROM c WHERE x < 0;";
    let trigger = "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM records; END;";
    let computed = "DROP TABLE runs; CREATE TABLE runs (run INTEGER PRIMARY KEY, plan TEXT, title TEXT, agent TEXT,
        began TEXT, ended TEXT, finish TEXT, folder TEXT AS (hex(zeroblob(100000000))));";
    let large = "INSERT INTO runs SELECT value, 'p', printf('%.*c', 2000000, 'x'), 'a', 'b', NULL, NULL, ''
        FROM (WITH RECURSIVE c(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM c LIMIT 30) SELECT value FROM c);";
    for (setup, why) in [
        (format!("{TABLES} DROP TABLE runs; {endless}"), "`runs` is no table of afresh"),
        (format!("{TABLES} {trigger}"), "`t` is no table of afresh"),
        (format!("{TABLES} {computed}"), "`runs` is no table of afresh"),
        (format!("{TABLES} {large}"), "a text in it has more than"),
    ] {
        let env = TestEnv::new();
        database(&env).execute_batch(&setup).unwrap();
        env.write("PLAN.md", "# Shop\n\n## Phase: Model\n\nStore it.\n\n- Gates: none\n");
        for arguments in [&["runs"][..], &["runs", "--json"], &["runs", "show"]] {
            let mut command = env.start(arguments);
            let mut status = None;
            let ends = reaches(|| {
                status = command.try_wait();
                status.is_some()
            });
            if !ends {
                command.signal(Signal::SIGKILL);
                command.wait();
                panic!("{arguments:?} goes on with {setup}");
            }
            let code = status.and_then(|status| status.code());
            command.wait_stderr(why, 1);
            assert_ne!(code, Some(0), "{arguments:?}");
        }
        env.assert_nothing_left();
        fs::remove_file(env.work().join(".afresh/runs.db")).unwrap();
    }
}
