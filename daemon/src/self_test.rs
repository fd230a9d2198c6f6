//! Tests the process layer on this machine: kills a process that hides a grandchild in a session of its own,
//! and looks for survivors. Driven by the doctor.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use afresh_core::limits::SELF_TEST_MAX;

use crate::os::leave_session;
use crate::process::{Command, Processes, is_alive, kill_one, own_executable};
use crate::run_briefly::{Brief, BriefEnding, BriefOutcome, run_briefly};

/// The hidden subcommand that plays the process which hides a grandchild; see [`self_test_process`].
pub const SELF_TEST_COMMAND: &str = "__self-test";

/// The result of the self-test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SelfTest {
    /// Nothing was left, after this long.
    Passed(Duration),
    /// The reason.
    Failed(String),
}

/// Runs the self-test.
pub(crate) async fn self_test(processes: &mut Processes) -> SelfTest {
    let exe = match own_executable() {
        Ok(exe) => exe,
        Err(error) => return SelfTest::Failed(format!("cannot find this binary: {error}")),
    };
    let brief = Brief {
        command: Command {
            argv: vec![exe.into(), SELF_TEST_COMMAND.into()],
            cwd: Some("/".into()),
            env: Vec::new(),
        },
        stdin: Vec::new(),
        time_max: SELF_TEST_MAX,
        output_bytes_max: 64,
    };
    match run_briefly(processes, vec![brief]).await.pop() {
        Some(outcome) => judge(&outcome),
        None => SelfTest::Failed("nothing was run".to_owned()),
    }
}

fn judge(outcome: &BriefOutcome) -> SelfTest {
    let failed = |text: String| SelfTest::Failed(text);
    let how = match &outcome.ending {
        BriefEnding::SpawnFailed(failure) => return failed(failure.message.clone()),
        BriefEnding::TimedOut => return failed("its processes did not end in time".to_owned()),
        BriefEnding::TooMuchOutput => return failed("another program answered".to_owned()),
        BriefEnding::Exited(exit) => exit,
    };
    if let Some((pid, name)) = outcome.remains.survivors.first() {
        return failed(format!("{name} (pid {pid}) could not be ended"));
    }
    let text = String::from_utf8_lossy(&outcome.stdout);
    let Some(grandchild) = text.trim().parse().ok() else {
        return failed(format!("the test process {how} before it had a grandchild"));
    };
    if is_alive(grandchild) {
        return failed(format!("the grandchild (pid {grandchild}) is still alive"));
    }
    SelfTest::Passed(outcome.took)
}

/// Plays the process of the self-test: starts a child in a session of its own, which starts a
/// grandchild and ends. The grandchild tells its pid and would stay for a while; this process is
/// killed as soon as it has.
pub fn self_test_process() -> io::Result<()> {
    match std::env::args().nth(2).as_deref() {
        None => {
            let mut child = again("child")?.stdout(Stdio::piped()).spawn()?;
            let mut line = Vec::new();
            if let Some(pipe) = child.stdout.take() {
                BufReader::new(pipe).read_until(b'\n', &mut line)?;
            }
            child.wait()?;
            io::stdout().write_all(&line)?;
            io::stdout().flush()?;
            kill_one(std::process::id())?;
        }
        Some("child") => {
            leave_session()?;
            // The parent ends at once, so that the grandchild is reparented.
            drop(again("grandchild")?.spawn()?);
        }
        Some(_) => {
            writeln!(io::stdout(), "{}", std::process::id())?;
            std::thread::park_timeout(SELF_TEST_MAX * 2);
        }
    }
    Ok(())
}

fn again(role: &str) -> io::Result<StdCommand> {
    let mut command = StdCommand::new(own_executable()?);
    command.args([SELF_TEST_COMMAND, role]).stdin(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}
