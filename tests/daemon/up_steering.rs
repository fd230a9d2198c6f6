//! What a person is told who starts, stops, restarts and reloads services of `afresh up`.

use afresh_tests::TestEnv;

use crate::stop;
use crate::up::{define, fails, idle, order, wait_up};

#[test]
fn a_restart_says_who_depends_on_it_and_several_go_in_their_order() {
    let env = TestEnv::new();
    let services = [
        idle("api", "depends_on = [\"db\"]"),
        idle("db", ""),
        idle("web", "depends_on = [\"api\"]"),
        idle("job", "depends_on = [\"db\"]\nautostart = false"),
    ];
    define(&env, &services);
    let mut afresh = env.start(&["up"]);
    let old = ["api", "db", "web"].map(|name| wait_up(&env, name));
    let api = env.run(&["restart", "api"]);
    let told =
        "web depends on api; it was not restarted; `afresh restart api web` restarts both in order";
    assert!(api.code == Some(0) && api.stderr.contains(told), "{api:?}");
    let db = env.run(&["restart", "db"]);
    let told = "api and web depend on db; they were not restarted; `afresh restart db api web` restarts all";
    assert!(db.code == Some(0) && db.stderr.contains(told), "{db:?}");
    assert_eq!(wait_up(&env, "web"), old[2], "what is not named goes on");
    let all = env.run(&["restart", "web", "api", "db"]);
    assert!(all.code == Some(0) && !all.stderr.contains("depend"), "{all:?}");
    assert_eq!(order(&env, "server_restart_requested"), ["api", "db", "db", "api", "web"]);
    let started = order(&env, "server_started");
    assert_eq!(started[started.len() - 3..], ["db", "api", "web"]);
    // One that does not come up takes no other with it.
    let old = wait_up(&env, "api");
    let missing = "[service.db]\ncommand = [\"/no/such/program\"]\n".to_owned();
    define(&env, &[services[0].clone(), services[2].clone(), missing]);
    env.run(&["reload"]);
    let failed = env.run(&["restart", "db", "api"]);
    let told = "api: not restarted: it depends on db, which is not up";
    assert!(failed.code == Some(1) && failed.stdout.contains(told), "{failed:?}");
    assert_eq!(wait_up(&env, "api"), old);
    fails(&env.run(&["restart", "dp"]), 4, &["did you mean `db`?"]);
    stop(&env, &mut afresh);
}
