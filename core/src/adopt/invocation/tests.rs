//! Installations as they are found, and invocations as people write them.

use super::*;

#[test]
fn the_cache_of_each_runner_is_known_by_its_layout() {
    use PackageRunner::{Bunx, Npx, Uvx};
    for (path, runner) in [
        ("/home/ada/.npm/_npx/8f497369b2d6166e/node_modules/.bin/afresh", Some(Npx)),
        ("/home/ada/.npm/_npx/8f49/node_modules/@afresh/linux-x64/bin/afresh", Some(Npx)),
        (
            r"C:\Users\ada\AppData\Local\npm-cache\_npx\8f49\node_modules\afresh\afresh.exe",
            Some(Npx),
        ),
        ("/home/ada/.cache/pnpm/dlx/ab12/19f/node_modules/.bin/afresh", Some(Npx)),
        ("/tmp/bunx-1000-afresh@0.2.0/node_modules/.bin/afresh", Some(Bunx)),
        ("/home/ada/.cache/uv/archive-v0/RL8Uan5TR_KOPf5B/bin/afresh", Some(Uvx)),
        ("/srv/uv-cache/environments-v2/afresh-1a2b/bin/afresh", Some(Uvx)),
        (r"C:\Users\ada\AppData\Local\uv\cache\archive-v0\RL8U\Scripts\afresh.exe", Some(Uvx)),
        ("/home/ada/.cargo/bin/afresh", None),
        ("/home/ada/.local/share/uv/tools/afresh/bin/afresh", None),
        ("/home/ada/.local/share/pipx/venvs/afresh/bin/afresh", None),
        ("/usr/lib/node_modules/afresh/node_modules/@afresh/linux-x64/bin/afresh", None),
        ("/home/ada/archive-v0/bin/afresh", None),
        ("/home/ada/archive-vx/a/bin/afresh", None),
        ("/home/ada/bunx-tools/afresh", None),
        ("", None),
    ] {
        assert_eq!(PackageRunner::of_cache(path), runner, "{path}");
    }
}

#[test]
fn each_installation_has_the_invocation_that_fits() {
    const NPX: &str = "/h/.npm/_npx/8f49/node_modules/.bin/afresh";
    const UVX: &str = "/h/.cache/uv/archive-v0/RL8U/bin/afresh";
    const PIPX: &str = "/h/.local/share/pipx/venvs/afresh/bin/afresh";
    const CARGO: &str = "/h/.cargo/bin/afresh";
    const MODULE: &str = "/work/node_modules/@afresh/linux-x64/bin/afresh";
    const VENV: &str = "/work/.venv/bin/afresh";
    let both = &[PackageRunner::Uvx, PackageRunner::Npx][..];
    let npx = "npx -y afresh@0.2.0";
    let uvx = "uvx afresh@0.2.0";
    for (path, on_path, runners, team, user) in [
        // PATH has it as long as the runner runs: that is no installation.
        (NPX, Some(NPX), both, npx, npx),
        (UVX, Some(UVX), both, uvx, uvx),
        (UVX, None, &[], uvx, uvx),
        (CARGO, Some(CARGO), both, "afresh", CARGO),
        (CARGO, None, both, npx, CARGO),
        (CARGO, None, &[PackageRunner::Uvx], uvx, CARGO),
        (CARGO, None, &[], CARGO, CARGO),
        // What PATH has outlives an upgrade.
        (PIPX, Some("/h/.local/bin/afresh"), both, "afresh", "/h/.local/bin/afresh"),
        (
            MODULE,
            Some("/work/node_modules/.bin/afresh"),
            both,
            npx,
            "/work/node_modules/.bin/afresh",
        ),
        (VENV, Some(VENV), &[PackageRunner::Uvx], uvx, VENV),
    ] {
        let own = OwnProgram {
            path,
            on_path,
            virtual_env: Some("/work/.venv"),
            version: "0.2.0",
            runners,
            has_script_runners: false,
        };
        assert_eq!(own.invocation(Audience::Team).join(" "), team, "{own:?}");
        assert_eq!(own.invocation(Audience::User).join(" "), user, "{own:?}");
        let windows = OwnProgram { has_script_runners: true, ..own };
        let of_windows = |line: &str| line.replace("npx -y", "cmd /c npx -y");
        assert_eq!(windows.invocation(Audience::Team).join(" "), team, "{own:?}");
        assert_eq!(windows.invocation(Audience::User).join(" "), of_windows(user), "{own:?}");
    }
}

#[test]
fn invocations_are_recognised_as_people_write_them() {
    let package = |runner, version| Invocation::Package { runner, version };
    let program = Invocation::Program;
    for (line, found) in [
        ("afresh", Some((program("afresh"), 1))),
        ("/opt/x/afresh mcp", Some((program("/opt/x/afresh"), 1))),
        (r"cmd /c afresh.exe mcp", Some((program("afresh.exe"), 3))),
        ("npx -y afresh@0.2.0 mcp", Some((package("npx", Some("0.2.0")), 3))),
        ("npx afresh", Some((package("npx", None), 2))),
        ("npx --yes --registry http://r afresh@latest mcp", Some((package("npx", None), 5))),
        ("npx -y -p afresh@0.1.0 afresh mcp", Some((package("npx", Some("0.1.0")), 5))),
        ("npx -y -- afresh@0.2.0 mcp", Some((package("npx", Some("0.2.0")), 4))),
        (r"cmd /c npx -y afresh@0.2.0 mcp", Some((package("npx", Some("0.2.0")), 5))),
        (r"C:\n\npx.cmd -y afresh@0.2.0", Some((package(r"C:\n\npx.cmd", Some("0.2.0")), 3))),
        ("CMD.EXE /d /C npx afresh", Some((package("npx", None), 5))),
        ("npm exec -y afresh@0.2.0 -- mcp", Some((package("npm", Some("0.2.0")), 4))),
        ("pnpm dlx afresh@0.2.0", Some((package("pnpm", Some("0.2.0")), 3))),
        ("bunx afresh@0.2.0", Some((package("bunx", Some("0.2.0")), 2))),
        ("uvx afresh@0.2.0 mcp", Some((package("uvx", Some("0.2.0")), 2))),
        (
            "/usr/bin/uvx --from afresh==0.2.0 afresh",
            Some((package("/usr/bin/uvx", Some("0.2.0")), 4)),
        ),
        ("uv tool run afresh", Some((package("uv", None), 4))),
        ("pipx run afresh==0.2.0", Some((package("pipx", Some("0.2.0")), 3))),
        ("npx -y afresher mcp", None),
        ("npx -y server-x afresh mcp", None),
        ("npx -y -p afresh@0.1.0 other mcp", None),
        ("npx -y", None),
        ("npx -p", None),
        ("uv run afresh", None),
        ("cmd afresh", None),
        ("cmd /c", None),
        ("python -m afresh", None),
        ("", None),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let seen = InvocationWords::find(&words);
        assert_eq!(seen.map(|seen| (seen.read(&words), seen.end)), found, "{line}");
    }
}

#[test]
fn no_path_of_another_machine_is_looked_at() {
    for (program, path) in [
        ("/opt/afresh", Some("/opt/afresh")),
        (r"C:\afresh.exe", Some(r"C:\afresh.exe")),
        (r"\\host\share\afresh.exe", None),
        ("//host/share/afresh.exe", None),
        ("afresh", None),
    ] {
        assert_eq!(Invocation::Program(program).local_path(), path);
    }
    let package = Invocation::Package { runner: "/bin/npx", version: None };
    assert_eq!(package.local_path(), None);
}

#[test]
fn only_an_older_exact_version_is_replaced() {
    for (word, newer) in [
        ("afresh@0.1.9", Some("afresh@0.2.0")),
        ("afresh==0.1.0", Some("afresh==0.2.0")),
        ("afresh@0.2.0-rc.1", Some("afresh@0.2.0")),
        ("afresh@0.2.0", None),
        ("afresh@0.10.0", None),
        ("afresh@1.0.0-rc.1", None),
        ("afresh@latest", None),
        ("afresh@0.1", None),
        ("afresh@^0.1.0", None),
        ("afresh", None),
        ("other@0.1.0", None),
    ] {
        assert_eq!(newer_package(word, "0.2.0").as_deref(), newer, "{word}");
    }
}
