//! `afresh demo`: a small service of our own is crashed, killed and restarted, and the times are
//! measured from outside, by the service's own word.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command as StdCommand, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use afresh_core::policy::{Backoff, Policy};
use afresh_core::time::show_duration;
use afresh_daemon::store::history::{Filter, History};
use afresh_daemon::store::workspace::{TrailFiles, Workspace};
use afresh_daemon::{Command, Keep, Request, monotonic};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Paint};

/// Watch a small service crash, be killed and be restarted.
///
/// Starts a service that is built in, keeps it alive, and then crashes it, kills it with SIGKILL
/// and asks for a restart. Each time the service starts a helper that detaches itself, as agents
/// do with every shell command; it must be gone when its service is. Takes a second, needs nothing
/// and leaves nothing behind.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What the service is started with.
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Where the demo listens
    address: String,
    /// Be the helper of this service
    #[arg(long)]
    helper_of: Option<u32>,
}

/// Nothing in the demo takes longer, even on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that is done to the service.
struct Act {
    name: &'static str,
    said: &'static str,
    play: fn(&Stage, &mut Instance) -> Result<(), CommandError>,
}

const ACTS: [Act; 3] = [
    Act {
        name: "crash",
        said: "the service crashes (exit code 1)",
        play: |_, it| it.tell("crash"),
    },
    Act { name: "kill", said: "somebody kills it (SIGKILL)", play: |_, it| it.kill() },
    Act {
        name: "restart",
        said: "a restart is asked for, with a reason",
        play: |stage, _| stage.ask(Request::Restart { reason: "new code".to_owned() }),
    },
];

pub(crate) fn run(arguments: &Arguments, environment: &Environment) -> Result<Exit, CommandError> {
    let folder = Folder::make()?;
    let screen = Screen { shown: !arguments.json, paint: Paint::stdout() };
    let stage = Stage::build(&folder, environment, screen)?;
    let mut instance = stage.next_instance()?;
    screen.say(&format!(
        "  the service is up (pid {}), with a helper that detached itself\n",
        instance.pid
    ));
    let mut results = Vec::new();
    for act in &ACTS {
        screen.say(&format!("\n{}\n", screen.paint.bold(&format!("▶ {}", act.said))));
        let begun = monotonic();
        (act.play)(&stage, &mut instance)?;
        let next = stage.next_instance()?;
        let down = monotonic().saturating_sub(begun);
        let helper_gone = instance.helper_is_gone();
        screen.say(&format!(
            "  {} after {}; {}\n",
            screen.paint.green(&format!("the next one answers (pid {})", next.pid)),
            show_duration(down),
            if helper_gone {
                "the old helper is gone too"
            } else {
                "THE OLD HELPER IS STILL THERE"
            }
        ));
        results.push(Outcome { act: act.name, down, helper_gone });
        instance = next;
    }
    screen.say(&format!("\n{}\n", screen.paint.bold("▶ afresh is stopped")));
    stage.ask(Request::Stop)?;
    let last_helper_gone = instance.helper_is_gone();
    let trail = stage.end()?;
    let all_well = last_helper_gone && results.iter().all(|result| result.helper_gone);
    summarise(arguments, &results, trail, all_well)
}

struct Outcome {
    act: &'static str,
    down: Duration,
    helper_gone: bool,
}

fn summarise(
    arguments: &Arguments,
    results: &[Outcome],
    trail: usize,
    all_well: bool,
) -> Result<Exit, CommandError> {
    if arguments.json {
        let restarts: Vec<serde_json::Value> = results
            .iter()
            .map(|result| {
                serde_json::json!({
                    "cause": result.act,
                    "down_ms": result.down.as_secs_f64() * 1000.0,
                    "helper_gone": result.helper_gone,
                })
            })
            .collect();
        let summary = serde_json::json!({
            "restarts": restarts, "trail_records": trail, "left_behind": u32::from(!all_well),
        });
        output::print(&format!("{summary:#}\n"))?;
    } else {
        let downs: Vec<String> = results
            .iter()
            .map(|result| format!("{} {}", result.act, show_duration(result.down)))
            .collect();
        let left = if all_well { "nothing" } else { "SOMETHING" };
        output::print(&format!(
            "\n  {} restarts, down for: {}\n  {trail} records in the trail, {left} left behind\n\n\
             Next: `afresh keep -- YOUR COMMAND`, then `afresh history`.\n",
            results.len(),
            downs.join(", ")
        ))?;
    }
    Ok(if all_well { Exit::Success } else { Exit::Failed })
}

/// Where lines go.
#[derive(Clone, Copy)]
struct Screen {
    shown: bool,
    paint: Paint,
}

impl Screen {
    fn say(self, text: &str) {
        if self.shown {
            // The demo goes on without its audience, and ends like any other.
            output::print(text).ok();
        }
    }
}

/// The supervisor in a thread of its own, and the door at which instances report.
struct Stage {
    door: mpsc::Receiver<Instance>,
    requests: afresh_daemon::RequestSender,
    supervisor: JoinHandle<Result<i32, afresh_daemon::KeepError>>,
    narrator: JoinHandle<()>,
    audit: std::path::PathBuf,
}

impl Stage {
    fn build(
        folder: &Folder,
        environment: &Environment,
        screen: Screen,
    ) -> Result<Self, CommandError> {
        let unavailable = |error: std::io::Error| CommandError::new(Exit::Unavailable, error);
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(unavailable)?;
        let address = listener.local_addr().map_err(unavailable)?.to_string();
        let program = std::env::current_exe().map_err(unavailable)?;
        let workspace = Workspace::find(&folder.0, None, None);
        let config = afresh_core::config::load(&[], &[], &[]).expect("defaults are valid");
        let audit = TrailFiles::of(&workspace, &config.trail).audit;
        let (requests, request_queue) = afresh_daemon::requests();
        let (watcher, told) = afresh_daemon::watcher();
        let keep = Keep {
            name: "demo".to_owned(),
            command: Command {
                argv: vec![program.into(), "__demo-service".into(), address.into()],
                cwd: Some(folder.0.clone()),
                env: environment.variables.clone(),
            },
            policy: Policy { backoff: at_once(), ..Policy::default() },
            copies: 1,
            workspace,
            trail: config.trail,
            version: env!("CARGO_PKG_VERSION"),
            watcher: Some(watcher),
            requests: Some(request_queue),
            control: None,
            stdin: false,
            quiet: true,
        };
        Ok(Self {
            door: open_door(listener),
            requests,
            supervisor: std::thread::spawn(move || afresh_daemon::keep(keep)),
            narrator: std::thread::spawn(move || narrate(told, screen)),
            audit,
        })
    }

    fn next_instance(&self) -> Result<Instance, CommandError> {
        self.door.recv_timeout(PATIENCE).map_err(|_| {
            CommandError::new(Exit::Failed, "the service did not come up within 10 s")
                .hint("run `afresh doctor`")
        })
    }

    fn ask(&self, request: Request) -> Result<(), CommandError> {
        self.requests
            .blocking_send(request)
            .map_err(|_| CommandError::new(Exit::Failed, "the supervisor has ended"))
    }

    /// Waits for the end, and counts the records.
    fn end(self) -> Result<usize, CommandError> {
        let ended = self.supervisor.join();
        self.narrator.join().ok();
        match ended {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(CommandError::new(Exit::Unavailable, error)),
            Err(_) => return Err(CommandError::new(Exit::Internal, "the supervisor panicked")),
        }
        let history = History::open(&self.audit, Filter::default())?;
        Ok(history.filter(Result::is_ok).count())
    }
}

fn at_once() -> Backoff {
    let zero = Duration::ZERO;
    Backoff::Exponential {
        base: zero,
        factor: 2.0,
        cap: Duration::from_secs(60),
        jitter_percent: 0,
    }
}

/// Tells what the supervisor tells.
fn narrate(mut told: afresh_daemon::ToldReceiver, screen: Screen) {
    let begun = monotonic();
    while let Some((_, event)) = told.blocking_recv() {
        let at = monotonic().saturating_sub(begun).as_secs_f64() * 1000.0;
        let line = format!("{at:>8.1} ms  {}", event.message("demo"));
        screen.say(&format!("  {}\n", screen.paint.dim(&line)));
    }
}

/// An instance of the service, as it introduced itself.
struct Instance {
    pid: u32,
    service: TcpStream,
    helper: TcpStream,
}

impl Instance {
    fn tell(&mut self, word: &str) -> Result<(), CommandError> {
        let told = writeln!(self.service, "{word}");
        told.map_err(|error| CommandError::new(Exit::Failed, error))
    }

    fn kill(&mut self) -> Result<(), CommandError> {
        afresh_daemon::kill_process(self.pid)
            .map_err(|error| CommandError::new(Exit::Failed, error))
    }

    /// The helper holds its connection as long as it lives.
    fn helper_is_gone(&mut self) -> bool {
        self.helper.set_read_timeout(Some(PATIENCE)).ok();
        // The end of the stream, or a reset: both mean that nobody is there any more.
        match self.helper.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Pairs each service with its helper as they connect.
fn open_door(listener: TcpListener) -> mpsc::Receiver<Instance> {
    let (sender, door) = mpsc::sync_channel(4);
    std::thread::spawn(move || {
        let mut services: Vec<(u32, TcpStream)> = Vec::new();
        let mut helpers: Vec<(u32, TcpStream)> = Vec::new();
        for stream in listener.incoming().flatten() {
            let Some((kind, pid)) = introduction(&stream) else { continue };
            if kind == "service" { &mut services } else { &mut helpers }.push((pid, stream));
            let complete =
                services.iter().position(|(pid, _)| helpers.iter().any(|(of, _)| of == pid));
            let Some(place) = complete else { continue };
            let (pid, service) = services.remove(place);
            let Some(helper) = helpers.iter().position(|(of, _)| *of == pid) else { continue };
            let (_, helper) = helpers.remove(helper);
            if sender.send(Instance { pid, service, helper }).is_err() {
                return;
            }
        }
    });
    door
}

fn introduction(stream: &TcpStream) -> Option<(String, u32)> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.try_clone().ok()?.take(100)).read_line(&mut line).ok()?;
    let (kind, pid) = line.trim().split_once(' ')?;
    Some((kind.to_owned(), pid.parse().ok()?))
}

/// A temporary workspace that goes with us.
struct Folder(std::path::PathBuf);

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

/// The service: says that it is up, has a helper, and does what it is told.
pub(crate) fn serve(arguments: &ServeArguments) -> Result<Exit, CommandError> {
    let failed = |error: std::io::Error| CommandError::new(Exit::Failed, error);
    let mut demo = TcpStream::connect(&arguments.address).map_err(failed)?;
    if let Some(pid) = arguments.helper_of {
        writeln!(demo, "helper {pid}").map_err(failed)?;
        // Until somebody ends us: the demo never says a word.
        demo.read(&mut [0]).map_err(failed)?;
        return Ok(Exit::Success);
    }
    let pid = std::process::id();
    writeln!(demo, "service {pid}").map_err(failed)?;
    let mut helper = StdCommand::new(std::env::current_exe().map_err(failed)?);
    helper.args(["__demo-service", &arguments.address, "--helper-of", &pid.to_string()]);
    helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // What a plain kill of our process group would miss.
    afresh_daemon::detach(&mut helper);
    helper.spawn().map_err(failed)?;
    for line in BufReader::new(demo).lines() {
        if line.map_err(failed)? == "crash" {
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Success)
}
