//! How a supervisor takes over what another one has left: it visits the warden, is given the guardians,
//! and takes each instance with its pipes, what it has printed meanwhile, and its end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;

use afresh_core::control::Stream;
use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{
    ADOPTION_WAIT, GUARDIAN_ORDERS_MAX, PREDECESSOR_GRACE, PREDECESSOR_WAIT, SWEEP_PAUSE,
    WARDEN_ORDERS_MAX,
};
use nix::unistd::Pid;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep};

use super::frames::{self, Held, Order, WardenOrder, WardenReport};
use super::handover_folder::{Place, Predecessor};
use super::handover_out::Keep;
use super::handover_protocol::{PROTOCOL, Visit, Wish, next_frame};
use super::host::{Guardian, Processes, StartError, Word};
use super::output_spool::{Earlier, Spilled};
use super::socket_task::Correspondent;
use super::sweep::ended;
use super::wire::{Frame, Inbox, send_all};
use super::{AdoptError, Command, Stdio, os};

/// All that another supervisor has left.
pub(crate) struct Adoption {
    pub(crate) processes: Processes,
    /// Its instances, each of which has to be given to [`Processes::take`].
    pub(crate) instances: Vec<AdoptedInstance>,
}

/// The process layer of a supervisor that begins.
pub(crate) struct Entered {
    pub(crate) processes: Processes,
    /// What runs already: for the loop to adopt.
    pub(crate) instances: Vec<AdoptedInstance>,
    /// What people should know.
    pub(crate) notices: Vec<String>,
}

/// An instance that another supervisor has started.
pub(crate) struct AdoptedInstance {
    number: u64,
    held: Held,
    socket: StdStream,
    inbox: Inbox,
    descriptors: [Option<OwnedFd>; 5],
}

impl AdoptedInstance {
    /// The name of its service.
    pub(crate) fn service(&self) -> &str {
        &self.held.kept.service
    }

    pub(crate) const fn generation(&self) -> Generation {
        Generation(self.held.generation)
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.held.pid
    }

    /// How long it has run; of one that has ended, how long it ran.
    pub(crate) const fn uptime(&self) -> Duration {
        Duration::from_millis(self.held.uptime_ms)
    }

    /// Whether it is the current one of its service.
    pub(crate) const fn is_current(&self) -> bool {
        self.held.kept.current
    }

    /// Whether its stop had begun.
    pub(crate) const fn is_stopping(&self) -> bool {
        self.held.stopping
    }

    /// Bytes of its output that are lost, because nobody came for too long.
    pub(crate) const fn lost_bytes(&self) -> u64 {
        self.held.lost
    }
}

/// What an adopted instance has printed and will print.
pub(crate) struct AdoptedStdio {
    pub(crate) stdio: Stdio,
    /// What stdout and stderr had printed before: comes first.
    pub(crate) earlier: [Earlier; 2],
}

impl Processes {
    /// Sets up the process layer in a folder that belongs to the workspace: takes over what the
    /// supervisor before has left to run, or waits until nothing of it is there, and begins anew.
    /// However that one ended and whatever `on_death` was then, nothing runs twice.
    pub(crate) async fn enter(
        folder: &Path,
        on_death: OnSupervisorDeath,
    ) -> Result<Entered, StartError> {
        let place = Place::open(folder).map_err(StartError::Place)?;
        let mut notices = Vec::new();
        match Self::adopt(&place, on_death).await {
            Ok(Some(Adoption { processes, instances })) => {
                return Ok(Entered { processes, instances, notices });
            }
            Ok(None) => {}
            Err(error @ AdoptError::Version { .. }) => {
                notices.push(format!("{error}: ending them"));
                Predecessor::end(&place, PREDECESSOR_GRACE).await.map_err(StartError::Place)?;
            }
            Err(error) => return Err(StartError::Adopt(error)),
        }
        let hold = Predecessor::wait_gone(&place, PREDECESSOR_WAIT).await;
        let processes = Self::start_in(&place, hold.map_err(StartError::Place)?, on_death)?;
        Ok(Entered { processes, instances: Vec::new(), notices })
    }

    /// Takes over what another supervisor has left to run; none where there is nothing. Waits for a
    /// moment while that supervisor is being killed.
    pub(crate) async fn adopt(
        place: &Place,
        on_death: OnSupervisorDeath,
    ) -> Result<Option<Adoption>, AdoptError> {
        let deadline = Instant::now() + ADOPTION_WAIT;
        loop {
            let Some(visit) = Visit::pay(place.folder()).map_err(AdoptError::Visit)? else {
                return Ok(None);
            };
            let greeting = &visit.greeting;
            if greeting.protocol != PROTOCOL {
                let version = greeting.version.clone();
                return Err(AdoptError::Version { version, warden: greeting.warden });
            }
            if !greeting.busy {
                return take_over(visit, place, on_death).map_err(AdoptError::Visit);
            }
            if deadline <= Instant::now() {
                return Err(AdoptError::Busy { warden: greeting.warden });
            }
            sleep(SWEEP_PAUSE).await;
        }
    }

    /// Takes an instance that another supervisor has started, as one of this service's. Its end, also
    /// where it has ended meanwhile, comes as a report. One that cannot be taken is ended.
    pub(crate) fn take(
        &mut self,
        service: ServiceId,
        instance: AdoptedInstance,
    ) -> io::Result<AdoptedStdio> {
        let (guardian, generation) = (instance.number, instance.generation());
        let taken = self.try_take(service, instance);
        if taken.is_err() {
            self.burials.insert(guardian, (service, generation));
            if let Some(warden) = &self.warden {
                warden.send(&WardenOrder::Bury { guardian }, Vec::new());
            }
        }
        taken
    }

    fn try_take(
        &mut self,
        service: ServiceId,
        instance: AdoptedInstance,
    ) -> io::Result<AdoptedStdio> {
        let AdoptedInstance { number, held, socket, inbox, descriptors } = instance;
        let [stdin, stdout, stderr, older, newer] = descriptors;
        let stdio = Stdio {
            stdin: pipe::Sender::from_owned_fd(or_closed(stdin, |(_, write)| write)?)?,
            stdout: pipe::Receiver::from_owned_fd(or_closed(stdout, |(read, _)| read)?)?,
            stderr: pipe::Receiver::from_owned_fd(or_closed(stderr, |(read, _)| read)?)?,
        };
        let post = Correspondent::open(
            socket,
            inbox,
            GUARDIAN_ORDERS_MAX,
            &mut self.tasks,
            self.words_sender.clone(),
            move |report| Word::Guardian { service, number, report },
            Word::GuardianGone { service, number },
        )?;
        let generation = Generation(held.generation);
        let runs = held.gone.is_none().then(|| (generation, Command::default()));
        let guardian = Guardian {
            number,
            warden: self.warden.as_ref().and_then(|warden| warden.pid),
            pid: Some(Pid::from_raw(held.guardian.cast_signed())),
            post,
            current: runs,
            unheard: held.gone.is_some().then_some(generation),
        };
        if !self.keeps() {
            guardian.post.send(&Order::Forget, Vec::new());
        }
        self.guardians.insert((service, number), guardian);
        self.ready.extend(held.gone.map(|gone| ended(service, generation, gone)));
        if let Some(keep) = self.keep.as_mut().filter(|_| held.kept.current) {
            keep.current.insert(service, generation);
        }
        let (spilled, taken) = Spilled::new(older.into_iter().chain(newer).collect());
        let words = self.words_sender.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                _ = taken => drop(words.send(Word::Taken { service, number }).await),
                () = words.closed() => {}
            }
        });
        let earlier =
            [Stream::Stdout, Stream::Stderr].map(|stream| Earlier::new(spilled.clone(), stream));
        Ok(AdoptedStdio { stdio, earlier })
    }
}

/// Becomes the supervisor of a warden that has none. None where it ends meanwhile.
fn take_over(
    mut visit: Visit,
    place: &Place,
    on_death: OnSupervisorDeath,
) -> io::Result<Option<Adoption>> {
    // First of all it allows us the descriptors that we are given.
    let mut processes = Processes::without_warden().map_err(io::Error::other)?;
    visit.wish(Wish::Adopt { protocol: PROTOCOL })?;
    let mut sockets = Vec::new();
    let next_guardian = loop {
        match visit.next()? {
            Some(WardenReport::Guardian { guardian }) => {
                let socket = visit.inbox.next_fd().ok_or(io::ErrorKind::InvalidData)?;
                sockets.push((guardian, StdStream::from(socket)));
            }
            Some(WardenReport::Given { next_guardian }) => break next_guardian,
            Some(_) => {}
            None => return Ok(None),
        }
    };
    let (hold, listener) = (visit.inbox.next_fd(), visit.inbox.next_fd());
    let (Some(hold), Some(listener)) = (hold, listener) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut instances = Vec::new();
    for (number, socket) in sockets {
        match ask(number, socket)? {
            Some(instance) => instances.push(instance),
            // It has nothing, or hangs: in both cases it has to be gone before anything starts.
            None => bury(&mut visit, number)?,
        }
    }
    let listener = (on_death == OnSupervisorDeath::Keep).then_some(listener);
    let mut keep = Keep::new(place.clone(), hold.into(), listener);
    keep.foreign_warden = Some(Pid::from_raw(visit.greeting.warden.cast_signed()));
    processes.next_guardian = next_guardian;
    let gone = Word::WardenGone { pid: keep.foreign_warden };
    let words = processes.words_sender.clone();
    let mut warden = Correspondent::open(
        visit.socket,
        visit.inbox,
        WARDEN_ORDERS_MAX,
        &mut processes.tasks,
        words,
        Word::Warden,
        gone,
    )?;
    warden.pid = keep.foreign_warden;
    if keep.listener.is_none() {
        warden.send(&WardenOrder::Leave, Vec::new());
    }
    processes.warden = Some(warden);
    processes.warden_since = Some(Instant::now());
    processes.keep = Some(keep);
    Ok(Some(Adoption { processes, instances }))
}

/// Asks a guardian what it has kept; none where it has nothing, or does not answer.
fn ask(number: u64, socket: StdStream) -> io::Result<Option<AdoptedInstance>> {
    socket.set_read_timeout(Some(ADOPTION_WAIT))?;
    let mut inbox = Inbox::default();
    let Ok(Some(frames::Report::Held(held))) = next_frame(&socket, &mut inbox) else {
        return Ok(None);
    };
    let descriptors = held.beside.map(|there| if there { inbox.next_fd() } else { None });
    if descriptors.each_ref().map(Option::is_some) != held.beside {
        return Err(io::Error::other("not all descriptors have arrived; is there a limit?"));
    }
    Ok(Some(AdoptedInstance { number, held: *held, socket, inbox, descriptors }))
}

fn bury(visit: &mut Visit, guardian: u64) -> io::Result<()> {
    send_all(visit.socket.as_fd(), &WardenOrder::Bury { guardian }.to_bytes())?;
    loop {
        match visit.next()? {
            Some(WardenReport::Buried { guardian: buried, .. }) if buried == guardian => {
                return Ok(());
            }
            Some(_) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A pipe that has come to its end has no descriptor any more: one whose other end is closed is as good.
fn or_closed(
    descriptor: Option<OwnedFd>,
    end: impl Fn((OwnedFd, OwnedFd)) -> OwnedFd,
) -> io::Result<OwnedFd> {
    match descriptor {
        Some(descriptor) => Ok(descriptor),
        None => os::pipe().map(end),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::super::handover_protocol::Greeting;
    use super::*;
    use crate::store::testing::TempDir;

    #[tokio::test]
    async fn a_warden_of_another_version_is_left_alone() {
        let scratch = TempDir::new();
        let place = Place::open(&scratch.join("run")).unwrap();
        let listener = UnixListener::from(place.listen().unwrap());
        listener.set_nonblocking(false).unwrap();
        let warden = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let version = "9.9.9".to_owned();
            let greeting = Greeting { protocol: u64::MAX, version, ..Greeting::default() };
            send_all(socket.as_fd(), &greeting.to_bytes()).unwrap();
            next_frame::<Wish>(&socket, &mut Inbox::default()).unwrap()
        });
        let refused = Processes::adopt(&place, OnSupervisorDeath::Keep).await;
        let Err(AdoptError::Version { version, .. }) = refused else {
            panic!("it is not of this version");
        };
        assert_eq!(version, "9.9.9");
        assert_eq!(warden.join().unwrap(), None, "nothing is said to it");
    }
}
