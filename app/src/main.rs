//! The `afresh` binary.
fn main() {
    let mut args: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    if args[0] == "__warden" {
        afresh_daemon::warden().unwrap();
        return;
    }
    let policy = afresh_core::policy::Policy::default();
    let keep = afresh_daemon::Keep {
        name: "x".into(),
        command: afresh_daemon::Command {
            argv: args.split_off(1),
            cwd: None,
            env: std::env::vars_os().collect(),
        },
        policy,
        copies: 1,
        workspace: afresh_daemon::store::workspace::Workspace::find(
            &std::env::current_dir().unwrap(),
            None,
            None,
        ),
        trail: afresh_core::config::load(&[], &[], &[]).unwrap().trail,
        version: "0.1.0",
        watcher: None,
        stdin: true,
        quiet: false,
    };
    let code = afresh_daemon::keep(keep).unwrap();
    std::process::exit(code);
}
