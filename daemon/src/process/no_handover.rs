//! The same functions as `handover_in.rs` and `handover_out.rs`, for Windows: a job ends with the process
//! that made it, so that nothing outlives its supervisor.

use std::io;
use std::path::Path;
use std::time::Duration;

use afresh_core::definition::OnSupervisorDeath;
use afresh_core::id::{Generation, ServiceId};

use super::AbandonedWarden;
use super::windows::{InstanceStdio, Processes, StartError};

/// The process layer of a supervisor that begins.
pub(crate) struct Entered {
    pub(crate) processes: Processes,
    pub(crate) instances: Vec<AdoptedInstance>,
    pub(crate) notices: Vec<String>,
}

/// An instance that another supervisor has started: there is none here.
pub(crate) enum AdoptedInstance {}

impl AdoptedInstance {
    pub(crate) fn service(&self) -> &str {
        match *self {}
    }

    pub(crate) fn generation(&self) -> Generation {
        match *self {}
    }

    pub(crate) fn pid(&self) -> u32 {
        match *self {}
    }

    pub(crate) fn uptime(&self) -> Duration {
        match *self {}
    }

    pub(crate) fn is_current(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_stopping(&self) -> bool {
        match *self {}
    }

    pub(crate) fn lost_bytes(&self) -> u64 {
        match *self {}
    }
}

/// The output of an adopted instance.
pub(crate) struct AdoptedStdio {
    pub(crate) stdio: InstanceStdio,
    pub(crate) earlier: [SpoolReader; 2],
}

/// The spooled output of an instance: there is none here.
pub(crate) enum SpoolReader {}

impl SpoolReader {
    pub(crate) fn next(&mut self) -> Option<(Vec<u8>, SpoolProgress)> {
        match *self {}
    }
}

/// The progress of a stream with a chunk.
pub(crate) enum SpoolProgress {}

impl SpoolProgress {
    pub(crate) fn note(self) {
        match self {}
    }
}

/// No warden outlives its supervisor here.
pub(crate) fn abandoned_warden(_folder: &Path) -> Option<AbandonedWarden> {
    None
}

impl Processes {
    /// Sets up the process layer. All that a supervisor before had started went with it.
    pub(crate) async fn enter(
        _folder: &Path,
        on_death: OnSupervisorDeath,
    ) -> Result<Entered, StartError> {
        match on_death {
            OnSupervisorDeath::Keep => Err(StartError::CannotKeep),
            OnSupervisorDeath::Kill => Ok(Entered {
                processes: Self::start()?,
                instances: Vec::new(),
                notices: Vec::new(),
            }),
        }
    }

    /// There is nothing to take.
    pub(crate) fn take(
        &mut self,
        _service: ServiceId,
        instance: AdoptedInstance,
    ) -> io::Result<AdoptedStdio> {
        match instance {}
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
