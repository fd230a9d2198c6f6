//! `afresh plan`.

use afresh_tests::TestEnv;

use crate::run_into_closed_pipe;

const PLAN: &str = "# Shop\n\n## Phase 2: API\n\nServe it.\n\n- Depends on: 1\n- Gate (unit, 5m): make test\n\
                    - Files: src/**, docs/\n- Time limit: 90 min\n- Cost limit: $2.50\n- Token limit: 2M\n\n\
                    ## Phase 1: Model\n\nStore it.\n\n- Gate: make model\n\n## Phase 3: Manual\nWrite it.\n- Gates: none\n";

#[test]
fn the_example_is_right() {
    let env = TestEnv::new();
    let new = env.run(&["plan", "new"]);
    assert_eq!((new.code, new.stderr.as_str()), (Some(0), ""));
    assert_eq!(new.stdout, "wrote `PLAN.md`: change it, then run `afresh plan check`\n");
    let check = env.run(&["plan", "check"]);
    assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""));
    assert!(check.stdout.starts_with("ok: `PLAN.md`; 3 phases\n"), "{}", check.stdout);
    let printed = env.run(&["plan", "new", "-"]);
    assert_eq!(printed.stdout, std::fs::read_to_string(env.work().join("PLAN.md")).unwrap());
    let closed = run_into_closed_pipe(env.afresh(&["plan", "new", "-"]));
    assert_eq!((closed.code, closed.stderr.as_str()), (Some(0), ""));
}

#[test]
fn no_plan_is_overwritten() {
    let env = TestEnv::new();
    env.write("PLAN.md", "mine");
    let new = env.run(&["plan", "new"]);
    assert_eq!((new.code, new.stdout.as_str()), (Some(1), ""));
    assert_eq!(
        new.stderr,
        "error: `PLAN.md` exists, and is left as it is\n\
         hint: name another file, or `-` to see the example\n"
    );
    assert_eq!(std::fs::read_to_string(env.work().join("PLAN.md")).unwrap(), "mine");
    let nowhere = env.run(&["plan", "new", "no/folder/PLAN.md"]);
    assert_eq!(nowhere.code, Some(5));
    let start = "error: cannot write `no/folder/PLAN.md`: ";
    assert!(nowhere.stderr.starts_with(start), "{}", nowhere.stderr);
}

#[test]
fn phases_are_shown_in_their_order() {
    let env = TestEnv::new();
    env.write("next.md", PLAN);
    let check = env.run(&["plan", "check", "next.md"]);
    assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        check.stdout,
        "\
ok: `next.md`; 3 phases

Shop
  1. Model
     gate        make model
  2. API
     depends on  Model
     gate        (unit, 5m) make test
     files       src/**, docs/
     at most     90m, $2.5, 2000000 tokens
  3. Manual
     gate        none
"
    );
    let json = env.run(&["plan", "check", "--json", "next.md"]);
    assert_eq!(json.code, Some(0));
    let verdict: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(verdict["ok"], true);
    assert_eq!(verdict["files"], serde_json::json!(["next.md"]));
    let phase = &verdict["plan"]["phases"][1];
    assert_eq!(phase["name"], "API");
    assert_eq!(phase["depends_on"], serde_json::json!(["Model"]));
    assert_eq!(
        phase["gates"],
        serde_json::json!([{"name": "unit", "command": "make test", "time_max_ms": 300_000}])
    );
    assert_eq!(
        (&phase["time_max_ms"], &phase["tokens_max"]),
        (&5_400_000.into(), &2_000_000.into())
    );
}

#[test]
fn every_mistake_is_shown() {
    let env = TestEnv::new();
    env.write("PLAN.md", "## Phase: Store\nDo.\n- Gats: make\n\n## Phase: Page\nDo.\n- Gate: make\n- Depends on: Stroe\n");
    let check = env.run(&["plan", "check"]);
    assert_eq!((check.code, check.stdout.as_str()), (Some(3), ""));
    assert_eq!(
        check.stderr,
        "\
error: the phase `Store` has no gate
 --> PLAN.md:1:4
  |
1 | ## Phase: Store
  |    ^^^^^^^^^^^^
hint: add the command that shows that it is done, such as `- Gate: cargo test`, or write `- Gates: none`

warning: `Gats` is no key, so this line is part of the task
 --> PLAN.md:3:3
  |
3 | - Gats: make
  |   ^^^^
hint: did you mean `Gate`?

error: the phase `Page` depends on `Stroe`, which is no phase
 --> PLAN.md:8:15
  |
8 | - Depends on: Stroe
  |               ^^^^^
hint: did you mean `Store`?
"
    );
    let json = env.run(&["plan", "check", "--json"]);
    assert_eq!(json.code, Some(3));
    let verdict: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&verdict["ok"], &verdict["plan"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(verdict["messages"][1]["severity"], "warning");
    assert_eq!(verdict["messages"][2]["origin"]["line"], 8);
    assert_eq!(verdict["messages"][2]["hint"], "did you mean `Store`?");
}

#[test]
fn linked_phases_are_read_from_the_folder_of_the_plan() {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.work().join("docs/phases/folder.md")).unwrap();
    env.write("docs/phases/a b.md", "# Phase: A\n\nDo it.\n\n- Gate: make\n");
    env.write("docs/plan.md", "# All\n\n## Phases\n\n- [Phase 1: A](phases/a%20b.md)\n");
    let check = env.run(&["plan", "check", "docs/plan.md"]);
    assert_eq!((check.code, check.stderr.as_str()), (Some(0), ""));
    assert!(
        check.stdout.starts_with("ok: `docs/plan.md` and 1 file; 1 phase\n"),
        "{}",
        check.stdout
    );

    env.write(
        "docs/plan.md",
        "## Phases\n- [A](phases/gone.md)\n- [B](phases/folder.md)\n- [C](../c.md)\n- [D](link.md)\n",
    );
    std::os::unix::fs::symlink("../c.md", env.work().join("docs/link.md")).expect("a link");
    env.write("c.md", "Do.\n- Gate: c\n");
    let check = env.run(&["plan", "check", "docs/plan.md"]);
    assert_eq!(check.code, Some(3));
    for wanted in [
        "error: cannot read `docs/phases/gone.md`: there is no such file\n --> docs/plan.md:2:7\n",
        "error: cannot read `docs/phases/folder.md`: it is not a file\n --> docs/plan.md:3:7\n",
        "error: cannot read `docs/link.md`: it is a link to a file outside of the plan's folder\n",
        "error: `../c.md` leads out of the folder of the plan\n --> docs/plan.md:4:7\n",
    ] {
        assert!(check.stderr.contains(wanted), "{}", check.stderr);
    }
}

#[test]
fn a_plan_that_is_not_there_is_said() {
    let env = TestEnv::new();
    let check = env.run(&["plan", "check"]);
    assert_eq!((check.code, check.stdout.as_str()), (Some(4), ""));
    assert_eq!(
        check.stderr,
        "error: there is no file `PLAN.md`\n\
         hint: run `afresh plan new` to write an example, or name the plan\n"
    );
    let folder = env.run(&["plan", "check", ".."]);
    assert_eq!(folder.code, Some(3));
    assert!(folder.stderr.ends_with("` is not a file\n"), "{}", folder.stderr);
    std::fs::write(env.work().join("PLAN.md"), b"## Phase: \xff\n").unwrap();
    let check = env.run(&["plan", "check"]);
    assert_eq!(check.code, Some(3));
    assert!(check.stderr.starts_with("error: the file is not UTF-8 text\n"), "{}", check.stderr);
}
