//! The supervisor's end of the process layer: starts the warden, asks for guardians, hands out
//! pipes, and turns what guardians say into reports.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as StdCommand, Stdio as Null};
use std::time::Duration;

use afresh_core::definition::StopSignal;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    GUARDIAN_WORDS_MAX, SWEEP_MAX, SWEEP_PAUSE, WARDEN_LIFE_MIN, WARDEN_ORDERS_MAX,
};
use afresh_core::service::SpawnFailure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};
use tokio::signal::unix::{Signal as ChildSignal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::frames::{self, Launch, Order, WardenReport};
use super::handover_out::Keep;
use super::socket_task::Correspondent;
use super::spawn_error::explain;
use super::stdio::{Stdio, pipes};
use super::sweep::ended;
use super::tree::{self, Change, Remaining};
use super::wire::Inbox;
use super::{AdoptError, Command, OutputEnd, PlaceError, Report, os};

/// Why the process layer could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The warden did not start.
    #[error("cannot start the warden from `{}`", exe.display())]
    Warden {
        /// This binary.
        exe: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The ends of children cannot be heard.
    #[error("cannot listen for the ends of children")]
    Signals(#[source] io::Error),
    /// The next supervisor could not find us.
    #[error("cannot listen at `{}`, so no service could outlive afresh", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is not known what the supervisor before has left.
    #[error("cannot make sure that no service runs twice")]
    Place(#[source] PlaceError),
    /// What it has left cannot be taken over.
    #[error("cannot go on with the services that run")]
    Adopt(#[source] AdoptError),
    /// The path of this binary is not known.
    #[error("cannot find out the path of this binary")]
    Executable(#[source] io::Error),
}

/// All processes that afresh has started.
pub(crate) struct Processes {
    pub(super) exe: PathBuf,
    pub(super) warden: Option<Correspondent>,
    /// By service and number: a service has one for each instance, and one that is idle at most.
    pub(super) guardians: BTreeMap<(ServiceId, u64), Guardian>,
    /// Guardians that were lost, and whose tree is being swept.
    pub(super) burials: BTreeMap<u64, (ServiceId, Generation)>,
    pub(super) next_guardian: u64,
    pub(super) words: mpsc::Receiver<Word>,
    pub(super) words_sender: mpsc::Sender<Word>,
    pub(super) tasks: JoinSet<()>,
    pub(super) ready: VecDeque<Report>,
    /// Children that we had before we were afresh (a shell may `exec` us): none of our business.
    pub(super) spared: Vec<Pid>,
    /// The warden was killed: what it left is ours to sweep.
    pub(super) sweeping_since: Option<Instant>,
    pub(super) lost_warden: Option<Pid>,
    pub(super) warden_since: Option<Instant>,
    pub(super) child_ended: ChildSignal,
    /// The limit that we found and that our children get; ours is raised.
    pub(super) open_files: Option<(u64, u64)>,
    /// Where the next supervisor finds what is left of us.
    pub(super) keep: Option<Keep>,
}

pub(super) struct Guardian {
    pub(super) number: u64,
    /// Who forked it.
    pub(super) warden: Option<Pid>,
    pub(super) pid: Option<Pid>,
    pub(super) post: Correspondent,
    /// What it runs; none where it is idle.
    pub(super) current: Option<(Generation, Command)>,
    /// What it has run, whose end the loop has not been told.
    pub(super) unheard: Option<Generation>,
}

/// What comes in from the sockets.
pub(super) enum Word {
    Guardian {
        service: ServiceId,
        number: u64,
        report: frames::Report,
    },
    GuardianGone {
        service: ServiceId,
        number: u64,
    },
    /// What was written down of its instance's output is passed on.
    Taken {
        service: ServiceId,
        number: u64,
    },
    Warden(WardenReport),
    WardenGone {
        pid: Option<Pid>,
    },
}

impl Processes {
    /// Sets up the process layer, with the warden running.
    pub(crate) fn start() -> Result<Self, StartError> {
        let mut processes = Self::without_warden()?;
        processes.start_first_warden()?;
        Ok(processes)
    }

    pub(super) fn without_warden() -> Result<Self, StartError> {
        // Without it a killed warden's guardians would go to init: less, but not nothing.
        os::adopt_orphans().ok();
        let (words_sender, words) = mpsc::channel(GUARDIAN_WORDS_MAX);
        Ok(Self {
            exe: os::own_executable().map_err(StartError::Executable)?,
            warden: None,
            guardians: BTreeMap::new(),
            burials: BTreeMap::new(),
            next_guardian: 0,
            words,
            words_sender,
            tasks: JoinSet::new(),
            ready: VecDeque::new(),
            spared: os::children(getpid()),
            sweeping_since: None,
            lost_warden: None,
            warden_since: None,
            child_ended: signal(SignalKind::child()).map_err(StartError::Signals)?,
            open_files: raise_open_files(),
            keep: None,
        })
    }

    pub(super) fn start_first_warden(&mut self) -> Result<(), StartError> {
        self.start_warden().map_err(|source| StartError::Warden { exe: self.exe.clone(), source })
    }

    /// Starts an instance. The answer comes as a report.
    pub(crate) fn spawn(
        &mut self,
        service: ServiceId,
        generation: Generation,
        command: &Command,
        output: OutputEnd,
    ) -> Result<Stdio, SpawnFailure> {
        let failed = |error: io::Error| explain(command, &error);
        let (ours, mut theirs) = pipes().map_err(failed)?;
        let (kept, held) = self.kept(service, generation, &ours).map_err(failed)?;
        theirs.extend(held);
        let key = self.idle_guardian(service).map_err(failed)?;
        let launch = Launch {
            generation: generation.0,
            argv: command.argv.clone(),
            env: command.env.clone(),
            cwd: command.cwd.clone().or_else(|| std::env::current_dir().ok()),
            open_files: self.open_files,
            holds_output: output == OutputEnd::WithTheInstance,
            kept,
        };
        let order = Order::Launch(Box::new(launch));
        if let Some(guardian) = self.guardians.get_mut(&key) {
            guardian.current = Some((generation, command.clone()));
            match guardian.pid {
                Some(_) => guardian.post.send_first(&order, theirs),
                // It is yet to be born, and that takes longer.
                None => guardian.post.send(&order, theirs),
            }
        }
        Ok(ours)
    }

    /// This signal to the instance's process and its group.
    pub(crate) fn terminate(&self, service: ServiceId, generation: Generation, signal: StopSignal) {
        self.order(service, generation, &Order::Terminate(signal));
    }

    /// SIGKILL to the instance's whole tree.
    pub(crate) fn kill(&self, service: ServiceId, generation: Generation) {
        self.order(service, generation, &Order::Kill);
    }

    /// Gives up on the instance's guardian: it is killed, and its tree swept.
    pub(crate) fn abandon(&mut self, service: ServiceId, generation: Generation) {
        let key = self.guardian_of(service, generation).map(|(key, _)| key);
        if let Some(guardian) = key.and_then(|key| self.guardians.remove(&key)) {
            self.bury(service, guardian);
        }
    }

    /// The next report. Cancel safe.
    pub(crate) async fn next(&mut self) -> Report {
        self.acknowledge();
        loop {
            if let Some(report) = self.ready.pop_front() {
                self.hand_out(&report);
                return report;
            }
            tokio::select! {
                word = self.words.recv() => {
                    self.hear(word.expect("we hold a sender ourselves"));
                }
                // Guardians whose warden was killed are our children.
                _ = self.child_ended.recv() => drop(self.reap()),
                () = sleep(SWEEP_PAUSE), if self.sweeping_since.is_some() => self.sweep(),
            }
        }
    }

    /// Lets all guardians and the warden go, and waits until they have.
    pub(crate) async fn shutdown(mut self) {
        self.forget_all();
        self.guardians.clear();
        // Nobody listens any more: tasks with a last word must not wait for a place in the queue.
        self.words.close();
        let warden = self.warden.take().and_then(|warden| warden.pid);
        // Dropping the posts ends the tasks, which closes the sockets.
        while self.tasks.join_next().await.is_some() {}
        let deadline = Instant::now() + SWEEP_MAX * 2;
        while Instant::now() < deadline {
            let mut warden_alive = warden.is_some_and(|pid| os::name_if_alive(pid).is_some());
            let remaining = tree::reap(|pid, change| {
                warden_alive &= Some(pid) != warden || matches!(change, Change::Stopped);
            });
            let others = match remaining {
                Remaining::None => 0,
                Remaining::Some => {
                    let foreign = self.spared.iter().copied().chain(tree::in_our_session());
                    let spared: Vec<Pid> = foreign.chain(warden).collect();
                    tree::signal_all(Signal::SIGKILL, &spared)
                }
            };
            if !warden_alive && others == 0 {
                return;
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    pub(super) fn start_warden(&mut self) -> io::Result<()> {
        let (ours, theirs) = StdStream::pair()?;
        let mut command = StdCommand::new(&self.exe);
        command.arg0("afresh").arg(super::WARDEN_COMMAND).env_clear().current_dir("/");
        // Its end of our stderr would keep the reader of ours waiting.
        command.stdin(OwnedFd::from(theirs)).stdout(Null::null()).stderr(Null::null());
        if let Some(lock) = self.lock()? {
            // Inherited at once: there is no moment in which nobody holds it.
            command.stdout(lock);
        }
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let gone = Word::WardenGone { pid: Some(pid) };
        let words = self.words_sender.clone();
        let mut warden = Correspondent::open(
            ours,
            Inbox::default(),
            WARDEN_ORDERS_MAX,
            &mut self.tasks,
            words,
            Word::Warden,
            gone,
        )?;
        warden.pid = Some(pid);
        self.brief_warden(&warden)?;
        self.warden = Some(warden);
        self.warden_since = Some(Instant::now());
        Ok(())
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Guardian { service, number, report } => {
                self.hear_guardian((service, number), report);
            }
            Word::GuardianGone { service, number } => {
                if let Some(guardian) = self.guardians.remove(&(service, number)) {
                    self.bury(service, guardian);
                }
            }
            Word::Taken { service, number } => {
                if let Some(guardian) = self.guardians.get(&(service, number)) {
                    guardian.post.send(&Order::Taken, Vec::new());
                }
            }
            Word::Warden(WardenReport::Guardian { .. } | WardenReport::Given { .. }) => {}
            Word::Warden(WardenReport::Buried { guardian, survivors }) => {
                self.buried(guardian, survivors);
            }
            Word::Warden(WardenReport::ForkFailed { guardian, errno }) => {
                self.fork_failed(guardian, errno);
            }
            Word::WardenGone { pid } => {
                if self.warden.as_ref().is_some_and(|warden| warden.pid == pid) {
                    // One that another supervisor had started is not ours to wait for.
                    let foreign = self.keep.as_mut().and_then(|keep| keep.foreign_warden.take());
                    self.lost_warden = pid.filter(|_| foreign.is_none());
                    self.warden = None;
                    self.sweeping_since = Some(Instant::now());
                    let lived = self.warden_since.map_or(Duration::ZERO, |since| since.elapsed());
                    let text = if lived < WARDEN_LIFE_MIN && foreign.is_none() {
                        "the warden was killed soon after its start; the next start makes another"
                            .to_owned()
                    } else {
                        match self.start_warden() {
                            Ok(()) => "the warden was killed; a new one takes its place".to_owned(),
                            Err(error) => {
                                format!("the warden was killed, and no new one starts: {error}")
                            }
                        }
                    };
                    self.ready.push_back(Report::Notice(text));
                }
            }
        }
    }

    fn hear_guardian(&mut self, key: (ServiceId, u64), report: frames::Report) {
        let keeps = self.keeps();
        let Some(guardian) = self.guardians.get_mut(&key) else {
            return;
        };
        let service = key.0;
        let ready = match report {
            frames::Report::Hello { pid } => {
                guardian.pid = Some(Pid::from_raw(pid.cast_signed()));
                return;
            }
            frames::Report::Launched { generation, pid } => {
                Report::Spawned { service, generation: Generation(generation), pid }
            }
            frames::Report::LaunchFailed { errno, .. } => {
                let Some((generation, command)) = guardian.current.take() else {
                    return;
                };
                let failure = explain(&command, &io::Error::from_raw_os_error(errno));
                Report::SpawnFailed { service, generation, failure }
            }
            frames::Report::Ended { generation, gone } => {
                guardian.current = None;
                guardian.unheard = keeps.then_some(Generation(generation));
                ended(service, Generation(generation), gone)
            }
            // Said once, and heard before.
            frames::Report::Held(_) => return,
        };
        self.ready.push_back(ready);
        self.let_surplus_go(service);
    }
}

/// A thousand services need four descriptors each. Returns the limit that was there before.
fn raise_open_files() -> Option<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
    Some((soft, hard))
}
