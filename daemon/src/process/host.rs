//! The supervisor's end of the process layer: starts the warden, asks for guardians, hands out
//! pipes, and turns what guardians say into reports.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command as StdCommand;

use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    GUARDIAN_ORDERS_MAX, GUARDIAN_WORDS_MAX, SWEEP_MAX, SWEEP_PAUSE, WARDEN_ORDERS_MAX,
};
use afresh_core::service::{Exit, SpawnFailure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::explain::explain;
use super::tree::{self, Remaining};
use super::wire::{self, End, Frame, Inbox, Launch, Order, Survivor, WardenOrder, WardenReport};
use super::{Command, Remains, Report, os};

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
    /// The path of this binary is not known.
    #[error("cannot find out the path of this binary")]
    Executable(#[source] io::Error),
}

/// Our ends of an instance's pipes.
#[derive(Debug)]
pub(crate) struct Stdio {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

/// All processes that afresh has started.
pub(crate) struct Processes {
    exe: PathBuf,
    warden: Option<Correspondent>,
    guardians: BTreeMap<ServiceId, Guardian>,
    /// Guardians that were lost, and whose tree is being swept.
    burials: BTreeMap<u64, (ServiceId, Generation)>,
    next_guardian: u64,
    words: mpsc::Receiver<Word>,
    words_sender: mpsc::Sender<Word>,
    tasks: JoinSet<()>,
    ready: VecDeque<Report>,
    /// Children that we had before we were afresh (a shell may `exec` us): none of our business.
    spared: Vec<Pid>,
    /// The warden was killed: what it left is ours to sweep.
    sweeping_since: Option<Instant>,
    lost_warden: Option<Pid>,
    /// The limit that we found and that our children get; ours is raised.
    open_files: Option<(u64, u64)>,
}

struct Guardian {
    number: u64,
    pid: Option<Pid>,
    post: Correspondent,
    /// What it runs.
    current: Option<(Generation, Command)>,
}

/// Somebody at the other end of a socket.
struct Correspondent {
    pid: Option<Pid>,
    orders: mpsc::Sender<Parcel>,
}

struct Parcel {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// What comes in from the sockets.
enum Word {
    Guardian {
        service: ServiceId,
        number: u64,
        report: wire::Report,
    },
    GuardianGone {
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
        // Without it a killed warden's guardians would go to init: less, but not nothing.
        os::adopt_orphans().ok();
        let (words_sender, words) = mpsc::channel(GUARDIAN_WORDS_MAX);
        let mut processes = Self {
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
            open_files: raise_open_files(),
        };
        processes
            .start_warden()
            .map_err(|source| StartError::Warden {
                exe: processes.exe.clone(),
                source,
            })?;
        Ok(processes)
    }

    /// Starts an instance. The answer comes as a report.
    pub(crate) fn spawn(
        &mut self,
        service: ServiceId,
        generation: Generation,
        command: &Command,
    ) -> Result<Stdio, SpawnFailure> {
        let failed = |error: io::Error| explain(command, &error);
        let (ours, theirs) = pipes().map_err(failed)?;
        let guardian = self.guardian(service).map_err(failed)?;
        let launch = Launch {
            generation: generation.0,
            argv: command.argv.clone(),
            env: command.env.clone(),
            cwd: command.cwd.clone().or_else(|| std::env::current_dir().ok()),
            open_files: self.open_files,
        };
        let order = Order::Launch(Box::new(launch));
        let post = &mut self
            .guardians
            .get_mut(&service)
            .filter(|g| g.number == guardian);
        if let Some(guardian) = post {
            guardian.current = Some((generation, command.clone()));
            guardian.post.send(&order, theirs);
        }
        Ok(ours)
    }

    /// SIGTERM to the service's process and its group.
    pub(crate) fn terminate(&self, service: ServiceId) {
        self.order(service, &Order::Terminate);
    }

    /// SIGKILL to the service's whole tree.
    pub(crate) fn kill(&self, service: ServiceId) {
        self.order(service, &Order::Kill);
    }

    /// Gives up on the service's guardian: it is killed, and its tree swept.
    pub(crate) fn abandon(&mut self, service: ServiceId) {
        if let Some(guardian) = self.guardians.remove(&service) {
            self.bury(service, guardian);
        }
    }

    /// The next report. Cancel safe.
    pub(crate) async fn next(&mut self) -> Report {
        loop {
            if let Some(report) = self.ready.pop_front() {
                return report;
            }
            tokio::select! {
                word = self.words.recv() => {
                    self.hear(word.expect("we hold a sender ourselves"));
                }
                () = sleep(SWEEP_PAUSE), if self.sweeping_since.is_some() => self.sweep(),
            }
        }
    }

    /// Lets all guardians and the warden go, and waits until they have.
    pub(crate) async fn shutdown(mut self) {
        self.guardians.clear();
        // Nobody listens any more: tasks with a last word must not wait for a place in the queue.
        self.words.close();
        let warden = self.warden.take().and_then(|warden| warden.pid);
        // Dropping the posts ends the tasks, which closes the sockets.
        while self.tasks.join_next().await.is_some() {}
        let deadline = Instant::now() + SWEEP_MAX * 2;
        while Instant::now() < deadline {
            let mut warden_alive = warden.is_some_and(|pid| os::name_if_alive(pid).is_some());
            let remaining = tree::reap(|reaped| warden_alive &= Some(reaped.pid) != warden);
            let others = match remaining {
                Remaining::None => 0,
                Remaining::Some => {
                    let spared: Vec<Pid> = self.spared.iter().copied().chain(warden).collect();
                    tree::signal_all(Signal::SIGKILL, &spared)
                }
            };
            if !warden_alive && others == 0 {
                return;
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    fn order(&self, service: ServiceId, order: &Order) {
        if let Some(guardian) = self.guardians.get(&service) {
            guardian.post.send(order, Vec::new());
        }
    }

    /// The number of the service's guardian; made, if there is none.
    fn guardian(&mut self, service: ServiceId) -> io::Result<u64> {
        if let Some(guardian) = self.guardians.get(&service) {
            return Ok(guardian.number);
        }
        if self.warden.is_none() {
            self.start_warden()?;
        }
        let number = self.next_guardian;
        self.next_guardian += 1;
        let (ours, theirs) = StdStream::pair()?;
        let post = self.correspond(
            ours,
            GUARDIAN_ORDERS_MAX,
            move |report| Word::Guardian {
                service,
                number,
                report,
            },
            Word::GuardianGone { service, number },
        )?;
        if let Some(warden) = &self.warden {
            warden.send(&WardenOrder::Fork { guardian: number }, vec![theirs.into()]);
        }
        self.guardians.insert(
            service,
            Guardian {
                number,
                pid: None,
                post,
                current: None,
            },
        );
        Ok(number)
    }

    fn start_warden(&mut self) -> io::Result<()> {
        let (ours, theirs) = StdStream::pair()?;
        let mut command = StdCommand::new(&self.exe);
        command
            .arg0("afresh")
            .arg(super::WARDEN_COMMAND)
            .env_clear()
            .current_dir("/");
        // Its end of our stderr would keep the reader of ours waiting.
        command
            .stdin(OwnedFd::from(theirs))
            .stdout(null())
            .stderr(null());
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let gone = Word::WardenGone { pid: Some(pid) };
        let mut warden = self.correspond(ours, WARDEN_ORDERS_MAX, Word::Warden, gone)?;
        warden.pid = Some(pid);
        self.warden = Some(warden);
        Ok(())
    }

    /// Gives a socket its task.
    fn correspond<F: Frame + Send + 'static>(
        &mut self,
        socket: StdStream,
        orders_max: usize,
        word: impl Fn(F) -> Word + Send + 'static,
        gone: Word,
    ) -> io::Result<Correspondent> {
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        let (orders, parcels) = mpsc::channel(orders_max);
        let words = self.words_sender.clone();
        self.tasks.spawn(async move {
            converse(&socket, parcels, &words, word).await;
            // Nobody listens any more when we shut down.
            words.send(gone).await.ok();
        });
        while self.tasks.try_join_next().is_some() {}
        Ok(Correspondent { pid: None, orders })
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Guardian {
                service,
                number,
                report,
            } => {
                if self
                    .guardians
                    .get(&service)
                    .is_some_and(|g| g.number == number)
                {
                    self.hear_guardian(service, report);
                }
            }
            Word::GuardianGone { service, number } => {
                if self
                    .guardians
                    .get(&service)
                    .is_some_and(|g| g.number == number)
                    && let Some(guardian) = self.guardians.remove(&service)
                {
                    self.bury(service, guardian);
                }
            }
            Word::Warden(WardenReport::Buried {
                guardian,
                survivors,
            }) => {
                self.buried(guardian, survivors);
            }
            Word::Warden(WardenReport::ForkFailed { guardian, errno }) => {
                self.fork_failed(guardian, errno);
            }
            Word::WardenGone { pid } => {
                if self.warden.as_ref().is_some_and(|warden| warden.pid == pid) {
                    self.warden = None;
                    self.lost_warden = pid;
                    self.sweeping_since = Some(Instant::now());
                    let text = "the warden was killed; a new one takes its place".to_owned();
                    self.ready.push_back(Report::Notice(text));
                }
            }
        }
    }

    fn hear_guardian(&mut self, service: ServiceId, report: wire::Report) {
        let Some(guardian) = self.guardians.get_mut(&service) else {
            return;
        };
        let ready = match report {
            wire::Report::Hello { pid } => {
                guardian.pid = Some(Pid::from_raw(pid.cast_signed()));
                return;
            }
            wire::Report::Launched { generation, pid } => Report::Spawned {
                service,
                generation: Generation(generation),
                pid,
            },
            wire::Report::LaunchFailed { errno, .. } => {
                let Some((generation, command)) = guardian.current.take() else {
                    return;
                };
                let failure = explain(&command, &io::Error::from_raw_os_error(errno));
                Report::SpawnFailed {
                    service,
                    generation,
                    failure,
                }
            }
            wire::Report::Ended {
                generation,
                end,
                leftovers,
                survivors,
            } => {
                guardian.current = None;
                let exit = match end {
                    End::Code(code) => Exit::Code(code),
                    End::Signal(signal) => Exit::Signal(signal),
                };
                let remains = Remains {
                    leftovers,
                    survivors: named(survivors),
                };
                Report::Exited {
                    service,
                    generation: Generation(generation),
                    exit,
                    remains,
                }
            }
        };
        self.ready.push_back(ready);
    }

    /// A guardian is lost: what it left has to be gone before its service may start again.
    fn bury(&mut self, service: ServiceId, guardian: Guardian) {
        if let Some((generation, _)) = guardian.current {
            self.burials.insert(guardian.number, (service, generation));
        }
        match &self.warden {
            Some(warden) => warden.send(
                &WardenOrder::Bury {
                    guardian: guardian.number,
                },
                vec![],
            ),
            None => {
                self.sweeping_since.get_or_insert_with(Instant::now);
            }
        }
        self.ready.push_back(Report::Notice(
            "a guardian was lost; what it guarded is ended".to_owned(),
        ));
    }

    fn buried(&mut self, number: u64, survivors: Vec<Survivor>) {
        if let Some((service, generation)) = self.burials.remove(&number) {
            let remains = Remains {
                leftovers: 0,
                survivors: named(survivors),
            };
            self.ready.push_back(Report::Exited {
                service,
                generation,
                exit: Exit::Unknown,
                remains,
            });
        }
    }

    fn fork_failed(&mut self, number: u64, errno: i32) {
        let found = self
            .guardians
            .iter()
            .find(|(_, guardian)| guardian.number == number);
        let Some(service) = found.map(|(service, _)| *service) else {
            return;
        };
        let lost = self
            .guardians
            .remove(&service)
            .and_then(|guardian| guardian.current);
        if let Some((generation, command)) = lost {
            let failure = explain(&command, &io::Error::from_raw_os_error(errno));
            self.ready.push_back(Report::SpawnFailed {
                service,
                generation,
                failure,
            });
        }
    }

    /// Without a warden the guardians are our children, and what lost ones left is too.
    fn sweep(&mut self) {
        let lost_warden = &mut self.lost_warden;
        let remaining = tree::reap(|reaped| {
            lost_warden.take_if(|pid| *pid == reaped.pid);
        });
        let living = self.guardians.values().filter_map(|guardian| guardian.pid);
        let warden = self.warden.as_ref().and_then(|warden| warden.pid);
        let spared: Vec<Pid> = living
            .chain(warden)
            .chain(self.spared.iter().copied())
            .collect();
        let strays = match remaining {
            Remaining::None => 0,
            Remaining::Some => tree::signal_all(Signal::SIGKILL, &spared),
        };
        let given_up = self
            .sweeping_since
            .is_none_or(|since| since.elapsed() > SWEEP_MAX);
        let done = strays == 0 && self.lost_warden.is_none();
        if !done && !given_up {
            return;
        }
        self.sweeping_since = None;
        let survivors = if strays > 0 {
            tree::survivors(&spared)
        } else {
            Vec::new()
        };
        for number in self.burials.keys().copied().collect::<Vec<_>>() {
            self.buried(number, survivors.clone());
        }
    }
}

impl Correspondent {
    /// Sends without waiting. A correspondent whose queue is full hangs, and one that is gone has
    /// said so: both are dealt with elsewhere, by the stop ladder and the end of the socket.
    fn send(&self, frame: &impl Frame, fds: Vec<OwnedFd>) {
        self.orders
            .try_send(Parcel {
                bytes: frame.to_bytes(),
                fds,
            })
            .ok();
    }
}

/// Carries parcels out and words in, until either side has had enough.
async fn converse<F: Frame>(
    socket: &UnixStream,
    mut parcels: mpsc::Receiver<Parcel>,
    words: &mpsc::Sender<Word>,
    word: impl Fn(F) -> Word,
) {
    let mut inbox = Inbox::default();
    loop {
        tokio::select! {
            parcel = parcels.recv() => {
                let Some(parcel) = parcel else { return };
                if deliver(socket, &parcel).await.is_err() {
                    return;
                }
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    return;
                }
                match socket.try_io(Interest::READABLE, || inbox.receive(socket.as_fd())) {
                    Ok(true) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    Ok(false) | Err(_) => return,
                }
                loop {
                    match inbox.next() {
                        Ok(Some(frame)) => {
                            if words.send(word(frame)).await.is_err() {
                                return;
                            }
                        }
                        Ok(None) => break,
                        Err(_) => return,
                    }
                }
            }
        }
    }
}

async fn deliver(socket: &UnixStream, parcel: &Parcel) -> io::Result<()> {
    let fds: Vec<RawFd> = parcel.fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut sent = 0;
    while sent < parcel.bytes.len() {
        let beside = if sent == 0 { &fds[..] } else { &[] };
        sent += socket
            .async_io(Interest::WRITABLE, || {
                wire::send(socket.as_fd(), &parcel.bytes[sent..], beside)
            })
            .await?;
    }
    Ok(())
}

fn named(survivors: Vec<Survivor>) -> Vec<(u32, String)> {
    survivors
        .into_iter()
        .map(|survivor| (survivor.pid, survivor.name))
        .collect()
}

/// Our ends, and theirs in the order stdin, stdout, stderr.
fn pipes() -> io::Result<(Stdio, Vec<OwnedFd>)> {
    let (their_stdin, our_stdin) = os::pipe()?;
    let (our_stdout, their_stdout) = os::pipe()?;
    let (our_stderr, their_stderr) = os::pipe()?;
    let ours = Stdio {
        stdin: pipe::Sender::from_owned_fd(our_stdin)?,
        stdout: pipe::Receiver::from_owned_fd(our_stdout)?,
        stderr: pipe::Receiver::from_owned_fd(our_stderr)?,
    };
    Ok((ours, vec![their_stdin, their_stdout, their_stderr]))
}

fn null() -> std::process::Stdio {
    std::process::Stdio::null()
}

/// A thousand services need four descriptors each. Returns the limit that was there before.
fn raise_open_files() -> Option<(u64, u64)> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).ok()?;
    Some((soft, hard))
}
