//! `afresh gateway`, as far as it starts nothing.

use afresh_tests::TestEnv;

#[test]
fn spans_need_a_url_to_go_to() {
    let env = TestEnv::new();
    env.write("afresh.toml", "[server.a]\ncommand = [\"true\"]\n");
    let cases: [(&[&str], &str); 2] = [
        (&["gateway", "--otlp", "127.0.0.1:4318"], "begins with `http://`"),
        (&["gateway", "--otlp"], "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ];
    for (arguments, says) in cases {
        let refused = env.run(arguments);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{}", refused.stderr);
        assert!(refused.stderr.contains(says), "{}", refused.stderr);
    }
}
