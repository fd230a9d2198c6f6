//! `afresh demo`.

use afresh_tests::TestEnv;

#[test]
fn the_demo_loses_no_call_and_fits_into_80_columns() {
    let env = TestEnv::new();
    let done = env.run(&["demo"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{}", done.stdout);
    for line in done.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let verdicts = done.stdout.lines().filter(|line| line.contains("✓ no call lost")).count();
    assert_eq!(verdicts, 4, "{}", done.stdout);
    // Where lines are wrapped depends on the numbers of processes in them.
    let words = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "4 of 4 The server is killed with SIGKILL.",
        "its outcome is unknown",
        "Tools added: goodbye",
        "expected `v1` or `v2`, found `broken`",
        "still serves",
        ": 0 lost, 0 answered twice",
        "no process left behind",
    ] {
        assert!(words.contains(part), "{part}\nis not in\n{}", done.stdout);
    }
    // What afresh logs is for those who ask.
    assert!(!done.stdout.contains("spare instance"), "{}", done.stdout);
    env.assert_nothing_left();
}

#[test]
fn the_demo_shows_the_log_on_demand() {
    let env = TestEnv::new();
    let done = env.run(&["demo", "--log"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("demo has a spare instance"), "{}", done.stdout);
    env.assert_nothing_left();
}
