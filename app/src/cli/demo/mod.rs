//! `afresh demo`: a client that never stops calling, and a server that crashes, gets new code, gets
//! broken code and is killed. The times are the client's own.

mod client;
mod server;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use afresh_core::time::show_duration;
use afresh_daemon::monotonic;
use clap::Args;
use serde_json::{Value, json};

use self::client::{Caller, Tally};
pub(crate) use self::server::{DemoServerArgs, serve};
use crate::error::{CommandError, Exit};
use crate::output::{self, Paint};

/// Watch an MCP server crash, change its code and be killed while its client goes on calling.
///
/// Starts a server that is built in behind `afresh mcp`, and a client that calls it ten times a
/// second over one connection. Then the server crashes, is restarted with new code by its agent, is
/// given code that does not start, and is killed with SIGKILL. At the end all calls are counted.
/// Takes some seconds, needs nothing and leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Nothing in the demo takes longer, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the client is watched after each act.
const WATCHED: Duration = Duration::from_millis(1_200);

/// One thing that is done to the server.
struct Act {
    name: &'static str,
    said: &'static str,
    play: fn(&mut DemoStage) -> Result<String, CommandError>,
}

const ACTS: [Act; 4] = [
    Act {
        name: "crash",
        said: "a bug: the server crashes in the middle of a call",
        play: |stage| stage.crash(),
    },
    Act {
        name: "restart",
        said: "the agent has written new code, and calls `restart_server`",
        play: |stage| stage.restart("v2", false),
    },
    Act {
        name: "broken",
        said: "the agent has written code that does not start, and calls `restart_server`",
        play: |stage| stage.restart("broken", true),
    },
    Act {
        name: "kill",
        said: "somebody kills the server with SIGKILL",
        play: |stage| stage.kill(),
    },
];

pub(crate) fn run(arguments: &DemoArgs) -> Result<Exit, CommandError> {
    let screen = DemoScreen::new(!arguments.json);
    screen.act("one client, one connection, ten calls a second; each dot is an answer");
    let mut stage = DemoStage::build(screen.clone())?;
    stage.caller.watch(WATCHED)?;
    let mut outcomes = Vec::new();
    for act in &ACTS {
        screen.act(act.said);
        stage.caller.take_pause();
        let told = (act.play)(&mut stage)?;
        stage.caller.watch(WATCHED)?;
        let pause = stage.caller.take_pause();
        for line in told.lines().take(8) {
            screen.line(&screen.paint.green(line));
        }
        screen.line(&format!("the longest that a call took: {}", show_duration(pause)));
        outcomes.push((act.name, pause));
    }
    let left = stage.end()?;
    summarise(arguments, &screen, &outcomes, stage.caller.tally(), left)
}

fn summarise(
    arguments: &DemoArgs,
    screen: &DemoScreen,
    outcomes: &[(&str, Duration)],
    tally: &Tally,
    left: usize,
) -> Result<Exit, CommandError> {
    let all_well = tally.lost() == 0 && tally.twice == 0 && left == 0;
    if arguments.json {
        let acts: Vec<Value> = outcomes
            .iter()
            .map(|(act, pause)| json!({"act": act, "pause_ms": pause.as_secs_f64() * 1e3}))
            .collect();
        let summary = json!({
            "calls": tally.calls,
            "answered": tally.answered,
            "lost": tally.lost(),
            "answered_twice": tally.twice,
            "unknown_outcome": tally.unknown,
            "longest_pause_ms": tally.longest.as_secs_f64() * 1e3,
            "acts": acts,
            "left_behind": left,
        });
        output::print(&format!("{summary:#}\n"))?;
    } else {
        let verdict = format!(
            "{} calls: {} lost, {} answered twice; longest pause {}",
            tally.calls,
            tally.lost(),
            tally.twice,
            show_duration(tally.longest),
        );
        let verdict =
            if all_well { screen.paint.green(&verdict) } else { screen.paint.red(&verdict) };
        let unknown = match tally.unknown {
            0 => String::new(),
            count => format!(
                "  {count} of them met the crash, and were told that their outcome is unknown\n"
            ),
        };
        let left = match left {
            0 => "  no process left behind\n".to_owned(),
            left => format!("  {left} PROCESSES LEFT BEHIND\n"),
        };
        screen.act("the client hangs up");
        output::print(&format!(
            "  {verdict}\n{unknown}{left}\n\
             Next: put `afresh mcp --` in front of your own server, or let `afresh adopt` do it.\n",
        ))?;
    }
    Ok(if all_well { Exit::Success } else { Exit::Failed })
}

/// Where lines go: those of the story, those of afresh, and the dots between them.
#[derive(Clone)]
struct DemoScreen {
    shown: bool,
    paint: Paint,
    /// Dots stand in the line that was begun last.
    in_dots: Arc<Mutex<bool>>,
}

impl DemoScreen {
    fn new(shown: bool) -> Self {
        Self { shown, paint: Paint::stdout(), in_dots: Arc::default() }
    }

    fn act(&self, said: &str) {
        self.print(&format!("\n{}\n", self.paint.bold(&format!("▶ {said}"))), false);
    }

    fn line(&self, text: &str) {
        self.print(&format!("  {text}\n"), false);
    }

    fn dot(&self) {
        self.print("·", true);
    }

    fn print(&self, text: &str, is_dot: bool) {
        if !self.shown {
            return;
        }
        let mut in_dots = self.in_dots.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match (*in_dots, is_dot) {
            (true, false) => "\n",
            (false, true) => "  ",
            _ => "",
        };
        *in_dots = is_dot;
        // The demo goes on without its audience, and ends like any other.
        output::print(&format!("{before}{text}")).ok();
    }
}

/// The client, the server's code, and the processes that were seen.
struct DemoStage {
    caller: Caller,
    code: PathBuf,
    _folder: Folder,
}

impl DemoStage {
    fn build(screen: DemoScreen) -> Result<Self, CommandError> {
        let folder = Folder::make()?;
        let code = folder.0.join("server-code");
        let stage =
            Self { caller: Caller::connect(&folder.0, &code, screen)?, code, _folder: folder };
        Ok(stage)
    }

    fn write(&self, code: &str) -> Result<(), CommandError> {
        std::fs::write(&self.code, code).map_err(|error| CommandError::new(Exit::Failed, error))
    }

    fn crash(&mut self) -> Result<String, CommandError> {
        let answer = self.caller.call("crash", &json!({}))?;
        Ok(format!("the call that crashed it was answered: {}", text_of(&answer)))
    }

    fn restart(&mut self, code: &str, must_fail: bool) -> Result<String, CommandError> {
        self.write(code)?;
        let answer = self.caller.call("restart_server", &json!({"reason": "new code"}))?;
        if answer["result"]["isError"] != must_fail {
            let text = format!("restart_server answered {}", text_of(&answer));
            return Err(CommandError::new(Exit::Failed, text));
        }
        Ok(format!("the agent is told: {}", text_of(&answer)))
    }

    fn kill(&mut self) -> Result<String, CommandError> {
        // What does not start stays with the one who wrote it.
        self.write("v2")?;
        let pid = self.caller.server_pid()?;
        afresh_daemon::kill_process(pid).map_err(|error| CommandError::new(Exit::Failed, error))?;
        // The first call may have been on its way when it happened.
        let until = monotonic() + PATIENCE;
        while monotonic() < until {
            let next = self.caller.server_pid()?;
            if next != pid {
                return Ok(format!("pid {pid} is gone, pid {next} answers"));
            }
        }
        Err(CommandError::new(Exit::Failed, "no other instance answers"))
    }

    /// Hangs up. Returns how many of the processes that were seen are still there.
    fn end(&mut self) -> Result<usize, CommandError> {
        self.caller.hang_up()?;
        let alive = |pid: &&u32| afresh_daemon::process_is_alive(**pid);
        Ok(self.caller.tally().pids.iter().filter(alive).count())
    }
}

fn text_of(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or("nothing").to_owned()
}

/// A temporary workspace that goes with us.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Self, CommandError> {
        let path = std::env::temp_dir().join(format!("afresh-demo-{}", std::process::id()));
        std::fs::create_dir_all(path.join(".afresh")).map_err(|error| {
            let text = format!("cannot make the folder `{}`: {error}", path.display());
            CommandError::new(Exit::Unavailable, text).hint("set TMPDIR to a folder of yours")
        })?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
