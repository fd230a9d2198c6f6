//! `afresh gateway`, as far as it starts nothing.

use afresh_tests::TestEnv;

#[test]
fn spans_need_a_build_that_can_send_them() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[server.a]\ncommand = [\"true\"]\n");
    let refused = env.run(&["gateway", "--otlp", "127.0.0.1:4318"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{}", refused.stderr);
    let says = if cfg!(feature = "otel") { "begins with `http://`" } else { "--features otel" };
    assert!(refused.stderr.contains(says), "{}", refused.stderr);
}
