//! The process layer on Windows: a job object for each instance. Compiles; not run yet.
//!
//! There is no warden and no guardian. A job holds all that its processes start, none of them can
//! leave it, and the system ends all of them when the last handle of the job is closed, be it
//! because afresh was killed. `unix/` has the same functions for the other systems.
//! Nothing outlives its supervisor here: there is no handover.

#![expect(unsafe_code, reason = "job objects have no safe face")]

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use afresh_core::definition::{OnSupervisorDeath, StopSignal};
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::{SWEEP_MAX, SWEEP_PAUSE};
use afresh_core::service::{Exit, SpawnFailure};
use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use tokio::process::{Child, Command as TokioCommand};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep};
use windows_sys::Win32::Foundation::{INVALID_HANDLE_VALUE, STATUS_CONTROL_C_EXIT, WAIT_TIMEOUT};
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, GenerateConsoleCtrlEvent};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, TH32CS_SNAPTHREAD, THREADENTRY32, Thread32First, Thread32Next,
};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
    JOBOBJECT_EXTENDED_LIMIT_INFORMATION, JobObjectBasicProcessIdList,
    JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
    TerminateJobObject,
};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_SUSPENDED, OpenProcess, OpenThread, PROCESS_SYNCHRONIZE,
    PROCESS_TERMINATE, ResumeThread, THREAD_SUSPEND_RESUME, TerminateProcess, WaitForSingleObject,
};

use super::spawn_error::explain;
use super::{
    AbandonedWarden, Command, Entered, OutputEnd, Remains, Report, RetainedInstance, TreeUsage,
};
use crate::write_path::WritePath;

/// The mechanism that keeps processes from outliving us, in words.
pub(crate) const MECHANISM: &str = "job object: all that a service starts ends with afresh";

/// The signals that a kill by us and Ctrl+C are elsewhere.
const SIGKILL: i32 = 9;
const SIGINT: i32 = 2;

/// The exit code that a kill by us gives, as a shell would show it.
const KILLED: i32 = 128 + SIGKILL;

/// Why the process layer could not be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Jobs end with the one who made them.
    #[error("services cannot outlive afresh on Windows; set `on_supervisor_death = \"kill\"`")]
    CannotKeep,
}

/// Our ends of an instance's pipes.
pub(crate) struct InstanceStdio {
    pub(crate) stdin: NamedPipeServer,
    pub(crate) stdout: NamedPipeServer,
    pub(crate) stderr: NamedPipeServer,
}

/// All processes that afresh has started.
pub(crate) struct Processes {
    instances: BTreeMap<(ServiceId, Generation), RunningInstance>,
    /// One for each instance: waits for its end.
    tasks: JoinSet<EndedInstance>,
    ready: VecDeque<Report>,
}

struct RunningInstance {
    leader: u32,
    job: Arc<JobObject>,
    /// We did it: the exit code is not its own.
    killed: bool,
    task: AbortHandle,
}

/// Its exit code, where it has one, and what it left.
type EndedInstance = (ServiceId, Generation, Option<i32>, Remains);

impl Processes {
    /// Sets up the process layer.
    pub(crate) fn start() -> Result<Self, StartError> {
        Ok(Self { instances: BTreeMap::new(), tasks: JoinSet::new(), ready: VecDeque::new() })
    }

    /// Starts an instance. That it runs comes as a report.
    pub(crate) fn spawn(
        &mut self,
        service: ServiceId,
        generation: Generation,
        command: &Command,
        _output: OutputEnd,
    ) -> Result<InstanceStdio, SpawnFailure> {
        let (ours, child, leader, job) =
            launch(command).map_err(|error| explain(command, &error))?;
        let job = Arc::new(job);
        let task = self.tasks.spawn(guard(service, generation, child, leader, job.clone()));
        let instance = RunningInstance { leader, job, killed: false, task };
        self.instances.insert((service, generation), instance);
        self.ready.push_back(Report::Spawned { service, generation, pid: leader });
        Ok(ours)
    }

    /// Ctrl+Break to the instance's process group. One that is not at our console does not hear it:
    /// the kill that follows does for it.
    pub(crate) fn terminate(
        &self,
        service: ServiceId,
        generation: Generation,
        _signal: StopSignal,
    ) {
        if let Some(instance) = self.instances.get(&(service, generation)) {
            // SAFETY: takes numbers. The leader is a group of its own, so that we are spared.
            unsafe { GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, instance.leader) };
        }
    }

    /// Ends everything in the instance's job.
    pub(crate) fn kill(&mut self, service: ServiceId, generation: Generation) {
        if let Some(instance) = self.instances.get_mut(&(service, generation)) {
            instance.killed = true;
            instance.job.kill();
        }
    }

    /// Gives up on what a kill has not ended: its end is told, with the names of the living.
    pub(crate) fn abandon(&mut self, service: ServiceId, generation: Generation) {
        let instance = self.instances.remove(&(service, generation));
        if let Some(RunningInstance { job, task, .. }) = instance {
            task.abort();
            job.kill();
            let remains = Remains { leftovers: 0, survivors: named(job.processes()) };
            let exit = Exit::Unknown;
            self.ready.push_back(Report::Exited { service, generation, exit, remains });
        }
    }

    /// The next report. Cancel safe.
    pub(crate) async fn next(&mut self) -> Report {
        loop {
            if let Some(report) = self.ready.pop_front() {
                return report;
            }
            match self.tasks.join_next().await {
                Some(Ok(ended)) => self.hear(ended),
                // It was abandoned.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Ends everything that is left.
    pub(crate) async fn shutdown(mut self) {
        self.instances.clear();
        self.tasks.shutdown().await;
    }

    fn hear(&mut self, (service, generation, code, remains): EndedInstance) {
        let instance = self.instances.remove(&(service, generation));
        let Some(RunningInstance { killed, .. }) = instance else { return };
        let exit = match code {
            Some(KILLED) if killed => Exit::Signal(SIGKILL),
            Some(STATUS_CONTROL_C_EXIT) => Exit::Signal(SIGINT),
            Some(code) => Exit::Code(code),
            None => Exit::Unknown,
        };
        self.ready.push_back(Report::Exited { service, generation, exit, remains });
    }
}

/// Waits for the leader's end, and ends what it left.
async fn guard(
    service: ServiceId,
    generation: Generation,
    mut child: Child,
    leader: u32,
    job: Arc<JobObject>,
) -> EndedInstance {
    let code = child.wait().await.ok().and_then(|status| status.code());
    // The leader may be listed a moment longer.
    let others = || job.processes().into_iter().filter(|pid| *pid != leader);
    let leftovers = others().count() as u32;
    job.kill();
    let deadline = Instant::now() + SWEEP_MAX;
    while others().count() > 0 && Instant::now() < deadline {
        sleep(SWEEP_PAUSE).await;
    }
    let remains = Remains { leftovers, survivors: named(others()) };
    (service, generation, code, remains)
}

fn named(survivors: impl IntoIterator<Item = u32>) -> Vec<(u32, String)> {
    survivors.into_iter().map(|pid| (pid, "a process".to_owned())).collect()
}

/// Starts a command in a job of its own: held until it is in there, so that none of its children
/// can be born outside.
fn launch(command: &Command) -> io::Result<(InstanceStdio, Child, u32, JobObject)> {
    let job = JobObject::new()?;
    let (stdin, their_stdin) = pipe(OpenOptions::new().read(true))?;
    let (stdout, their_stdout) = pipe(OpenOptions::new().write(true))?;
    let (stderr, their_stderr) = pipe(OpenOptions::new().write(true))?;
    let (program, arguments) = command.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut started = TokioCommand::new(program);
    started.args(arguments).env_clear().envs(command.env.iter().cloned());
    started.stdin(their_stdin).stdout(their_stdout).stderr(their_stderr);
    // Should it not get as far as its job, it goes with its handle.
    started.creation_flags(CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP).kill_on_drop(true);
    if let Some(cwd) = &command.cwd {
        started.current_dir(cwd);
    }
    let child = started.spawn()?;
    let (handle, leader) = child.raw_handle().zip(child.id()).ok_or(io::ErrorKind::NotFound)?;
    job.take_in(handle)?;
    resume(leader)?;
    Ok((InstanceStdio { stdin, stdout, stderr }, child, leader, job))
}

/// Lets a process run that was started suspended, and so has one thread.
fn resume(pid: u32) -> io::Result<()> {
    // SAFETY: takes numbers; the handle that comes back is owned by this function.
    let threads = unsafe { owned(CreateToolhelp32Snapshot(TH32CS_SNAPTHREAD, 0)) }?;
    let size = size_of::<THREADENTRY32>() as u32;
    let mut entry = THREADENTRY32 { dwSize: size, ..THREADENTRY32::default() };
    // SAFETY: the snapshot is open, and the entry says how long it is; so below.
    let mut found = unsafe { Thread32First(threads.as_raw_handle(), &raw mut entry) } != 0;
    while found && entry.th32OwnerProcessID != pid {
        // SAFETY: as above.
        found = unsafe { Thread32Next(threads.as_raw_handle(), &raw mut entry) } != 0;
    }
    if !found {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: takes numbers; the handle that comes back is owned by this function.
    let thread = unsafe { owned(OpenThread(THREAD_SUSPEND_RESUME, 0, entry.th32ThreadID)) }?;
    // SAFETY: the thread's handle is open, with the right to do this.
    match unsafe { ResumeThread(thread.as_raw_handle()) } {
        u32::MAX => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Holds all processes of an instance; closing it ends them.
struct JobObject(OwnedHandle);

impl JobObject {
    fn new() -> io::Result<Self> {
        // SAFETY: it has neither attributes nor a name; the handle is owned by this function.
        let job = Self(unsafe { owned(CreateJobObjectW(null(), null())) }?);
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        let (place, size) = ((&raw const limits).cast(), size_of_val(&limits) as u32);
        let kind = JobObjectExtendedLimitInformation;
        // SAFETY: the handle is open, and `limits` is what this kind of information looks like.
        done(unsafe { SetInformationJobObject(job.0.as_raw_handle(), kind, place, size) })?;
        Ok(job)
    }

    fn take_in(&self, process: RawHandle) -> io::Result<()> {
        // SAFETY: both handles are open.
        done(unsafe { AssignProcessToJobObject(self.0.as_raw_handle(), process) })
    }

    fn kill(&self) {
        // SAFETY: the handle is open. What is still there afterwards is named as a survivor.
        unsafe { TerminateJobObject(self.0.as_raw_handle(), KILLED.cast_unsigned()) };
    }

    /// The first of the processes in it.
    fn processes(&self) -> Vec<u32> {
        /// As `JOBOBJECT_BASIC_PROCESS_ID_LIST`, with more room.
        #[repr(C)]
        struct Listed {
            assigned: u32,
            count: u32,
            pids: [usize; 64],
        }
        let mut listed = Listed { assigned: 0, count: 0, pids: [0; 64] };
        let (place, size) = ((&raw mut listed).cast(), size_of::<Listed>() as u32);
        let (job, kind) = (self.0.as_raw_handle(), JobObjectBasicProcessIdList);
        // SAFETY: the handle is open, and the list as long as it says; when there are more, it is full.
        unsafe { QueryInformationJobObject(job, kind, place, size, null_mut()) };
        let known = listed.pids.iter().take(listed.count as usize);
        known.filter_map(|pid| u32::try_from(*pid).ok()).collect()
    }
}

/// Our end of a new pipe, and theirs, opened as they need it. Pipes without a name cannot be waited
/// for. Ours is open in both directions: only what can be read is ever said to be writable.
fn pipe(options: &OpenOptions) -> io::Result<(NamedPipeServer, File)> {
    let random = RandomState::new().build_hasher().finish();
    let name = format!(r"\\.\pipe\afresh-{}-{random:016x}", std::process::id());
    let ours = ServerOptions::new().first_pipe_instance(true).max_instances(1).create(&name)?;
    // If another process opens it first, this fails: nothing is written to a stranger.
    Ok((ours, options.open(&name)?))
}

/// This binary.
pub(crate) fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// There are no cgroups.
pub(crate) fn own_cgroup() -> Option<(PathBuf, bool)> {
    None
}

/// Nothing here ends a supervisor for no reason of its own.
pub(crate) fn ignore_in_supervisor() -> io::Result<()> {
    Ok(())
}

/// There is no warden here.
pub(crate) fn run_warden() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Kills one process by its id.
pub(crate) fn kill_one(pid: u32) -> io::Result<()> {
    // SAFETY: takes numbers; the handle that comes back is owned by this function.
    let process = unsafe { owned(OpenProcess(PROCESS_TERMINATE, 0, pid)) }?;
    // SAFETY: the handle is open, with the right to do this.
    done(unsafe { TerminateProcess(process.as_raw_handle(), KILLED.cast_unsigned()) })
}

/// A process cannot be asked to end there.
pub(crate) fn terminate_one(pid: u32) -> io::Result<()> {
    kill_one(pid)
}

/// Whether a process runs.
pub(crate) fn is_alive(pid: u32) -> bool {
    // SAFETY: takes numbers; the handle that comes back is owned by this function.
    let process = unsafe { owned(OpenProcess(PROCESS_SYNCHRONIZE, 0, pid)) };
    // SAFETY: the handle is open, with the right to do this.
    process.is_ok_and(|it| unsafe { WaitForSingleObject(it.as_raw_handle(), 0) } == WAIT_TIMEOUT)
}

/// The usage of a process and its descendants. Not implemented yet: the job of an instance knows it, and a
/// process id does not lead there.
pub(crate) fn usage_of_tree(_pid: u32) -> Option<TreeUsage> {
    None
}

/// See [`usage_of_tree`].
pub(crate) fn usage_of_trees(roots: &[u32]) -> Vec<Option<TreeUsage>> {
    vec![None; roots.len()]
}

/// See [`usage_of_tree`].
pub(crate) fn own_usage() -> Option<TreeUsage> {
    None
}

/// The caller owns the handle, or it is none.
unsafe fn owned(handle: RawHandle) -> io::Result<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller says so.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An instance that another supervisor has started: there is none here.
pub(crate) struct AdoptedInstance {
    pub(crate) retained: RetainedInstance,
    never: Infallible,
}

/// The spooled output of an instance: there is none here.
pub(crate) enum SpoolReader {}

impl SpoolReader {
    pub(crate) fn next(&mut self) -> Option<(Vec<u8>, Box<dyn FnOnce() + Send>)> {
        match *self {}
    }
}

/// No warden outlives its supervisor here.
pub(crate) fn abandoned_warden(_folder: &Path) -> Option<AbandonedWarden> {
    None
}

/// See [`abandoned_warden`].
pub(crate) fn end_lost(_folder: &Path) -> Result<usize, Vec<u32>> {
    Ok(0)
}

impl Processes {
    /// Sets up the process layer. All that a supervisor before had started went with it.
    pub(crate) async fn enter(
        _folder: &WritePath,
        on_death: OnSupervisorDeath,
    ) -> Result<Entered, StartError> {
        match on_death {
            OnSupervisorDeath::Keep => Err(StartError::CannotKeep),
            OnSupervisorDeath::Kill => {
                let (instances, notices) = (Vec::new(), Vec::new());
                Ok(Entered { processes: Self::start()?, instances, notices })
            }
        }
    }

    /// There is nothing to take.
    pub(crate) fn take(
        &mut self,
        _service: ServiceId,
        instance: AdoptedInstance,
    ) -> io::Result<(InstanceStdio, [SpoolReader; 2])> {
        match instance.never {}
    }

    /// No supervisor will come after us, so there is nothing to tell it.
    pub(crate) fn introduce(&mut self, _service: ServiceId, _name: &str) {}

    /// See [`Self::introduce`].
    pub(crate) fn mark(&mut self, _service: ServiceId, _current: Option<Generation>) {}

    /// See [`Self::introduce`].
    pub(crate) fn hold_stdin(&mut self) {}

    /// See [`Self::introduce`].
    pub(crate) fn close_stdin(&self, _service: ServiceId, _generation: Generation) {}
}
