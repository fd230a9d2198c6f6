//! Tests the process layer on this machine: kills a process that hides a grandchild in a session of its own,
//! and looks for survivors. Driven by the doctor.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use afresh_core::limits::SELF_TEST_MAX;

use crate::os::leave_session;
use crate::process::{Command, Processes, is_alive, kill_one, own_executable};
use crate::run_briefly::{Brief, BriefEnding, run_briefly};

/// The hidden subcommand that plays the process which hides a grandchild; see [`self_test_process`].
pub const SELF_TEST_COMMAND: &str = "__self-test";

/// Runs the self-test. Returns how long it took until nothing was left, or the reason of the failure.
pub(crate) async fn self_test(processes: &mut Processes) -> Result<Duration, String> {
    let exe = own_executable().map_err(|error| format!("cannot find this binary: {error}"))?;
    let argv = vec![exe.into(), SELF_TEST_COMMAND.into()];
    let brief = Brief {
        command: Command { argv, cwd: Some("/".into()), env: Vec::new() },
        stdin: Vec::new(),
        time_max: SELF_TEST_MAX,
        output_bytes_max: 64,
    };
    let outcome = run_briefly(processes, vec![brief]).await.pop().ok_or("nothing was run")?;
    let how = match &outcome.ending {
        BriefEnding::SpawnFailed(failure) => return Err(failure.message.clone()),
        BriefEnding::TimedOut => return Err("its processes did not end in time".to_owned()),
        BriefEnding::TooMuchOutput => return Err("another program answered".to_owned()),
        BriefEnding::Exited(exit) => exit,
    };
    if let Some((pid, name)) = outcome.remains.survivors.first() {
        return Err(format!("{name} (pid {pid}) could not be ended"));
    }
    match String::from_utf8_lossy(&outcome.stdout).trim().parse() {
        Err(_) => Err(format!("the test process {how} before it had a grandchild")),
        Ok(pid) if is_alive(pid) => Err(format!("the grandchild (pid {pid}) is still alive")),
        Ok(_) => Ok(outcome.took),
    }
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
