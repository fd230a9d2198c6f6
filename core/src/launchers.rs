//! Decides which processes between a client and afresh are watched: npx, its shell, uvx, and the launcher of the npm
//! package. Killed by SIGKILL they pass nothing on, while the client's end of our stdin stays open; their end has to be
//! noticed. Reads no process table: the daemon's `os` does.

use crate::limits::LAUNCHERS_MAX;

/// The variable that names the launcher of the npm package, by its process id.
pub const LAUNCHER_VARIABLE: &str = "AFRESH_LAUNCHER_PID";

/// What the environment says about how this process was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartedBy {
    /// The launcher of the npm package. Servers inherit the variable, so it counts for the parent alone.
    launcher: Option<u32>,
    /// Whether npx has started a command of ours.
    is_npx: bool,
}

/// A process above this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its id.
    pub pid: u32,
    /// The name of its program's file; none where the system does not tell.
    pub program: Option<String>,
}

impl StartedBy {
    /// Reads the variables of the environment.
    pub fn variables<'a>(variable: impl Fn(&str) -> Option<&'a str>) -> Self {
        // What else npx starts has the same variables, and its children too.
        let script = variable("npm_lifecycle_script").unwrap_or_default();
        let word = script.split_whitespace().next().unwrap_or_default();
        let program = word.trim_matches(['\'', '"']).rsplit(['/', '\\']).next();
        Self {
            launcher: variable(LAUNCHER_VARIABLE).and_then(|pid| pid.parse().ok()),
            is_npx: variable("npm_lifecycle_event") == Some("npx") && program == Some("afresh"),
        }
    }

    /// The processes whose end is the end of the client's wish, of those above this one, the parent first.
    pub fn watched(self, ancestors: impl IntoIterator<Item = Ancestor>) -> Vec<u32> {
        let mut watched = Vec::new();
        // Shells between npx and us; without npx above them they are somebody else's.
        let mut shells = Vec::new();
        for (at, Ancestor { pid, program }) in ancestors.into_iter().take(LAUNCHERS_MAX).enumerate()
        {
            let program = program.as_deref();
            match () {
                () if at == 0 && self.launcher == Some(pid) => watched.push(pid),
                () if self.is_npx && program.is_some_and(is_shell) => shells.push(pid),
                () if self.is_npx && program.is_none_or(is_node) => {
                    watched.append(&mut shells);
                    watched.push(pid);
                    break;
                }
                () if matches!(program, Some("uv" | "uvx")) => {
                    watched.push(pid);
                    break;
                }
                () => break,
            }
        }
        watched
    }
}

fn is_shell(program: &str) -> bool {
    ["sh", "dash", "bash", "zsh", "ksh", "busybox"].contains(&program)
}

/// Node or Bun, also with a version behind the name: Fedora's npx runs `node-22`.
fn is_node(program: &str) -> bool {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit());
    let name = if name == program { name } else { name.strip_suffix('-').unwrap_or(name) };
    ["node", "nodejs", "bun"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(variables: &[(&str, &str)], programs: &[&str]) -> Vec<u32> {
        let started_by = StartedBy::variables(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
        });
        let program = |name: &str| Some(name.to_owned()).filter(|name| name != "?");
        started_by.watched(
            (10..).zip(programs).map(|(pid, name)| Ancestor { pid, program: program(name) }),
        )
    }

    #[test]
    fn what_passes_no_sigkill_on_is_watched_and_nothing_else() {
        const NPX: (&str, &str) = ("npm_lifecycle_event", "npx");
        const OURS: (&str, &str) = ("npm_lifecycle_script", "'afresh' mcp -- server");
        const QUOTED: (&str, &str) = ("npm_lifecycle_script", "\"/x/.bin/afresh\"");
        const OTHER: (&str, &str) = ("npm_lifecycle_script", "claude");
        const LAUNCHER: (&str, &str) = (LAUNCHER_VARIABLE, "10");
        const ABOVE: (&str, &str) = (LAUNCHER_VARIABLE, "11");
        for (variables, programs, expected) in [
            // A client starts us: it closes our stdin with its own end.
            (&[][..], &["node", "zsh"][..], &[][..]),
            (&[], &["sh", "node"], &[]),
            // The launcher, alone and beneath npx.
            (&[LAUNCHER], &["node", "node"], &[10]),
            (&[LAUNCHER, NPX, OURS], &["node", "node", "client"], &[10, 11]),
            (&[LAUNCHER, NPX, OURS], &["node", "sh", "node", "client"], &[10, 11, 12]),
            // npx starts us itself, or by a shell that stays.
            (&[NPX, OURS], &["node", "client"], &[10]),
            (&[NPX, QUOTED], &["sh", "node", "client"], &[10, 11]),
            (&[NPX, OURS], &["?", "?"], &[10]),
            // A server of ours starts another afresh, and leaves it: the variables are inherited.
            (&[NPX, OURS, ABOVE], &["python", "node"], &[]),
            (&[NPX, OURS], &["sh", "afresh", "node"], &[]),
            // A client that npx has started may outlive npx.
            (&[NPX, OTHER], &["node", "sh", "node"], &[]),
            (&[("npm_lifecycle_event", "start"), OURS], &["sh", "node"], &[]),
            // A distribution's node has its version in its name.
            (&[LAUNCHER], &["node-22", "zsh"], &[10]),
            (&[NPX, OURS], &["node-22", "client"], &[10]),
            (&[NPX, OURS], &["sh", "nodejs18", "client"], &[10, 11]),
            (&[NPX, OURS], &["bun-1", "client"], &[10]),
            (&[NPX, OURS], &["node-gyp", "client"], &[]),
            (&[NPX, OURS], &["node-", "client"], &[]),
            (&[NPX, OURS], &["nodemon", "client"], &[]),
            (&[], &["uv", "client"], &[10]),
            (&[], &["uvx", "uv"], &[10]),
            (&[], &["python", "uv"], &[]),
        ] {
            assert_eq!(watched(variables, programs), expected, "{variables:?} {programs:?}");
        }
    }

    #[test]
    fn the_way_up_is_bounded() {
        let variables = [("npm_lifecycle_event", "npx"), ("npm_lifecycle_script", "afresh")];
        let mut programs = vec!["sh"; LAUNCHERS_MAX];
        programs.push("node");
        assert!(watched(&variables, &programs).is_empty());
        assert_eq!(watched(&variables, &programs[1..]).len(), LAUNCHERS_MAX);
    }
}
