//! `afresh doctor`: looks at the machine and says what to do about each thing. Changes nothing.

mod machine;
mod programs;
mod state_folder;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use afresh_core::config::TrailSettings;
use afresh_core::time::show_duration;

use crate::error_chain::chain;
use crate::os::is_variable;
use crate::process::{MECHANISM, Processes};
use crate::self_test::{SelfTest, self_test};
use crate::store::workspace::Workspace;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its subject.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub verdict: CheckVerdict,
    /// The finding.
    pub found: String,
    /// The remedy.
    pub hint: Option<String>,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckVerdict {
    /// Nothing to do.
    Ok,
    /// It works, but not as well as it could.
    Warning,
    /// Something does not work.
    Problem,
}

impl CheckVerdict {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Check {
    /// Nothing to do.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: CheckVerdict::Ok, found: found.into(), hint: None }
    }

    /// It could be better.
    pub fn warning(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Warning, hint: Some(hint.into()), ..Self::ok(name, found) }
    }

    /// It does not work.
    pub fn problem(name: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Problem, ..Self::warning(name, found, hint) }
    }
}

/// The surroundings to examine, besides the machine itself.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The folder we are in.
    pub cwd: PathBuf,
    /// The environment.
    pub variables: Vec<(OsString, OsString)>,
    /// The workspace.
    pub workspace: Workspace,
    /// The settings of the trail.
    pub trail: TrailSettings,
}

impl Examined {
    fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.variables.iter().find(|(key, _)| is_variable(key, name));
        found.map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }
}

/// Looks at everything. Programs are asked for their versions all at once, so that this takes no
/// longer than the slowest of them.
pub fn examine(examined: &Examined) -> Vec<Check> {
    // Before the process layer raises it.
    let limits = machine::limits();
    let (mut checks, programs) = processes(examined);
    checks.push(machine::cgroup());
    checks.extend(machine::watcher());
    checks.extend(limits);
    let only = examined.variable("AFRESH_RUNTIME_DIR").map(Path::new);
    let session = examined.variable("XDG_RUNTIME_DIR").map(Path::new);
    checks.push(machine::runtime_folder(only.filter(|folder| folder.is_absolute()), session));
    checks.extend(state_folder::checks(examined));
    checks.extend(programs);
    checks
}

/// The checks that need the process layer: its own test, and other programs.
fn processes(examined: &Examined) -> (Vec<Check>, Vec<Check>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let found = format!("cannot set up the event loop: {error}");
            return (vec![Check::problem(GUARDIAN, found, ASK)], Vec::new());
        }
    };
    runtime.block_on(async {
        let mut processes = match Processes::start() {
            Ok(processes) => processes,
            Err(error) => {
                let check = Check::problem(GUARDIAN, chain(&error), ASK);
                return (vec![check], Vec::new());
            }
        };
        let guardian = match self_test(&mut processes).await {
            SelfTest::Passed(took) => Check::ok(
                GUARDIAN,
                format!(
                    "a process was killed; its detached grandchild was gone with it, {} after the start",
                    show_duration(took)
                ),
            ),
            SelfTest::Failed(found) => Check::problem(GUARDIAN, found, ASK),
        };
        let mechanism = Check::ok("mechanism", MECHANISM);
        let programs = programs::checks(examined, &mut processes).await;
        processes.shutdown().await;
        (vec![guardian, mechanism], programs)
    })
}

const GUARDIAN: &str = "guardian";

const ASK: &str = "nothing can be kept alive safely here: see to the other findings first; if that \
                   does not help, report this with the system's name and version, and the sandbox \
                   or container around it";
