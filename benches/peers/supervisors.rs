//! The supervisors that are compared: how each is told what to keep, started and ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use afresh_tests::{TestEnv, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Afresh,
    Supervisord,
    Circus,
    Pm2,
}

/// What a supervisor is set up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To restart as fast as it can be told to.
    Fast,
    /// As it comes, but for what its services need.
    Stock,
}

/// A program that is to be kept alive.
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) command: Vec<String>,
}

impl Service {
    /// One that the hostile program plays.
    pub(crate) fn new(name: String, words: &[&str]) -> Self {
        let words = [&[env!("CARGO_BIN_EXE_hostile")], words].concat();
        Self { name, command: words.into_iter().map(str::to_owned).collect() }
    }
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Afresh, Self::Supervisord, Self::Circus, Self::Pm2];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Afresh => "afresh up",
            Self::Supervisord => "supervisord 4.3.0",
            Self::Circus => "circus 0.19.0",
            Self::Pm2 => "PM2 7.0.4",
        }
    }

    /// Whether `benches/peers/install` was run, and found it.
    pub(crate) fn is_installed(self) -> bool {
        self == Self::Afresh || self.program().exists()
    }

    fn program(self) -> PathBuf {
        let default = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/peers")).to_owned();
        let cache = std::env::var_os("PEERS_CACHE").map_or(default, PathBuf::from);
        cache.join(match self {
            Self::Afresh => "",
            Self::Supervisord => "python/bin/supervisord",
            Self::Circus => "python/bin/circusd",
            Self::Pm2 => "npm/node_modules/.bin/pm2",
        })
    }
}

/// A supervisor that runs, in a folder of its own.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    pub(crate) env: TestEnv,
    /// None where it goes to the background by itself.
    child: Option<Child>,
}

impl Peer {
    /// Starts it with these services; their sockets are in the home of `env`.
    pub(crate) fn start(kind: Kind, purpose: Purpose, env: TestEnv, services: &[Service]) -> Self {
        let mut command = match kind {
            Kind::Afresh => afresh(&env, services),
            Kind::Supervisord => supervisord(&env, services),
            Kind::Circus => circus(&env, purpose, services),
            Kind::Pm2 => pm2(&env, services),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match kind {
            Kind::Pm2 => {
                assert!(command.status().is_ok_and(|status| status.success()), "PM2 starts");
                None
            }
            _ => Some(command.spawn().expect("it starts")),
        };
        Self { kind, env, child }
    }

    /// Its own processes: the first is the one that decides.
    pub(crate) fn own(&self) -> Vec<i32> {
        let alive = self.env.alive();
        let own = alive.iter().filter(|process| process.name != "hostile");
        let mut pids: Vec<i32> = own.map(|process| process.pid).collect();
        let first = match &self.child {
            Some(child) => child.id().cast_signed(),
            None => self.daemon().unwrap_or(0),
        };
        pids.sort_by_key(|pid| (*pid != first, *pid));
        pids
    }

    /// The processes of its services.
    pub(crate) fn services(&self) -> Vec<i32> {
        let alive = self.env.alive();
        alive
            .iter()
            .filter(|process| process.name == "hostile")
            .map(|process| process.pid)
            .collect()
    }

    /// Where what a service prints is written.
    pub(crate) fn log(&self, service: &str) -> PathBuf {
        match self.kind {
            Kind::Afresh => self.env.work().join(format!(".afresh/logs/{service}.log")),
            _ => self.env.work().join(format!("{service}.log")),
        }
    }

    /// The process of PM2 that is in the background.
    fn daemon(&self) -> Option<i32> {
        fs::read_to_string(self.env.home().join(".pm2/pm2.pid")).ok()?.trim().parse().ok()
    }

    /// Ends it with all of its services.
    pub(crate) fn end(mut self) {
        match &mut self.child {
            Some(child) => {
                let pid = Pid::from_raw(child.id().cast_signed());
                kill(pid, Signal::SIGTERM).expect("it runs");
                child.wait().expect("our child");
            }
            None => {
                let mut command = Command::new(Kind::Pm2.program());
                self.env.furnish(&mut command);
                command.arg("kill").stdout(Stdio::null()).stderr(Stdio::null());
                command.status().expect("PM2 starts");
            }
        }
        self.env.assert_nothing_left();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only where something went wrong is anything left.
        wait_for("the end of all", || {
            let left = self.env.alive();
            left.iter().for_each(|process| process.signal(Signal::SIGKILL));
            if let Some(child) = &mut self.child {
                child.wait().ok();
            }
            left.is_empty()
        });
    }
}

fn afresh(env: &TestEnv, services: &[Service]) -> Command {
    let text: String = services
        .iter()
        .map(|Service { name, command }| {
            format!(
                "[service.{name}]\ncommand = {command:?}\npolicy = \"always\"\ndelay = \"0s\"\n\
                 throttle = \"0s\"\nstable_after = \"0s\"\nmax_restarts = 0\ncrash_loop_count = 0\n\
                 log.max_size = \"1GiB\"\n"
            )
        })
        .collect();
    env.write("afresh.toml", &text);
    env.afresh(&["up", "--plain"])
}

fn supervisord(env: &TestEnv, services: &[Service]) -> Command {
    let work = env.work();
    let work = work.display();
    let programs: String = services
        .iter()
        .map(|Service { name, command }| {
            format!(
                "[program:{name}]\ncommand={}\nautorestart=true\nstartsecs=0\n\
                 stdout_logfile={work}/{name}.log\nstdout_logfile_maxbytes=0\n\
                 stderr_logfile=NONE\n",
                command.join(" ")
            )
        })
        .collect();
    let text = format!(
        "[supervisord]\nnodaemon=true\nlogfile={work}/own.log\npidfile={work}/own.pid\n{programs}"
    );
    let path = env.write("supervisord.conf", &text);
    let mut command = Command::new(Kind::Supervisord.program());
    env.furnish(&mut command);
    command.arg("-c").arg(path);
    command
}

fn circus(env: &TestEnv, purpose: Purpose, services: &[Service]) -> Command {
    let (home, work) = (env.home(), env.work());
    let (home, work) = (home.display(), work.display());
    let watchers: String = services
        .iter()
        .map(|Service { name, command }| {
            format!(
                "[watcher:{name}]\ncmd = {}\nnumprocesses = 1\nmax_retry = -1\nwarmup_delay = 0\n\
                 copy_env = True\nstdout_stream.class = FileStream\n\
                 stdout_stream.filename = {work}/{name}.log\n",
                command.join(" ")
            )
        })
        .collect();
    // It looks for dead processes this often, in seconds; 5 as it comes.
    let delay = if purpose == Purpose::Fast { "check_delay = 0.05\n" } else { "" };
    let text = format!(
        "[circus]\n{delay}endpoint = ipc://{home}/endpoint\npubsub_endpoint = ipc://{home}/pubsub\n\
         statsd = False\n{watchers}"
    );
    let path = env.write("circus.ini", &text);
    let mut command = Command::new(Kind::Circus.program());
    env.furnish(&mut command);
    command.arg(path);
    command
}

fn pm2(env: &TestEnv, services: &[Service]) -> Command {
    let work = env.work();
    let apps: Vec<serde_json::Value> = services
        .iter()
        .map(|Service { name, command }| {
            serde_json::json!({
                "name": name,
                "script": command[0],
                "args": command[1..],
                "interpreter": "none",
                "exec_mode": "fork",
                "autorestart": true,
                "min_uptime": 0,
                "max_restarts": 1_000_000_000,
                "restart_delay": 0,
                "vizion": false,
                "pmx": false,
                "merge_logs": true,
                "out_file": work.join(format!("{name}.log")),
                "error_file": "/dev/null",
            })
        })
        .collect();
    let path = env.write("apps.json", &serde_json::json!({ "apps": apps }).to_string());
    let mut command = Command::new(Kind::Pm2.program());
    env.furnish(&mut command);
    command.arg("start").arg(path);
    command
}
