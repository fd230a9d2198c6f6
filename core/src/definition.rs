//! Owns the definition of a service: a value that the configuration fills in and the daemon carries out. Never runs
//! anything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::health::HealthCheck;
use crate::policy::Policy;

/// One service of `afresh up`.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceDefinition {
    /// Its key, in the trail and in commands.
    pub name: String,
    /// How the log calls it.
    pub title: String,
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
    /// The folder it starts in, from the workspace; the workspace itself where none is given.
    pub cwd: Option<PathBuf>,
    /// Variables that are set on top of afresh's own and of `env_file`.
    pub env: Vec<(String, String)>,
    /// A file of `NAME=value` lines, from the workspace; read at each start.
    pub env_file: Option<PathBuf>,
    /// When and how it is restarted and stopped.
    pub policy: Policy,
    /// The signal that asks it to stop.
    pub stop_signal: StopSignal,
    /// What has to be there before it is started. Stopped in the opposite order.
    pub depends_on: Vec<Dependency>,
    /// When it is ready, and whether it still is well. Without, it is ready as soon as it runs.
    pub health: Option<HealthCheck>,
    /// Restarted when its processes hold more memory than this together; none is any amount.
    pub memory_bytes_max: Option<u64>,
    /// Whether `afresh up` starts it.
    pub autostart: bool,
    /// How much of its output is kept on disk.
    pub log: LogLimits,
    /// The place that it must have for itself; checked before each start.
    pub port: Option<Port>,
}

/// The signal that asks a service to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Terminate,
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    Hangup,
    /// SIGQUIT.
    Quit,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
}

/// Another service that has to be there first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Its name.
    pub name: String,
    /// How far it has to be.
    pub until: Until,
}

/// How far a service has to be for those that need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// Its process runs.
    Started,
    /// It is ready, by its health check where it has one.
    #[default]
    Ready,
}

/// How much output is kept on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// A file is rotated at this size.
    pub file_bytes_max: u64,
    /// Rotated files that are kept for each service.
    pub files_kept: u32,
    /// Files whose last line is older than this go; none keeps them.
    pub age_max: Option<Duration>,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { file_bytes_max: 16 << 20, files_kept: 5, age_max: None }
    }
}

/// A place in the network that a service must have for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The name or address that it listens on.
    pub host: String,
    /// The number.
    pub port: u16,
}

/// What becomes of the services when the supervisor itself is killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSupervisorDeath {
    /// They go with it.
    #[default]
    Kill,
    /// They run on, and the next `afresh up` takes them over.
    Keep,
}

impl StopSignal {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Terminate, Self::Interrupt, Self::Hangup, Self::Quit, Self::User1, Self::User2];

    /// The names of all, as signals are called.
    pub const NAMES: [&'static str; 6] =
        ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"];

    /// Its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl FromStr for StopSignal {
    type Err = ();

    /// The signal of a name, in letters of any size, with or without its `SIG`.
    fn from_str(name: &str) -> Result<Self, ()> {
        let name = name.to_ascii_uppercase();
        let short = name.strip_prefix("SIG").unwrap_or(&name);
        Self::ALL.into_iter().find(|signal| &signal.name()["SIG".len()..] == short).ok_or(())
    }
}

impl Until {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ready => "ready",
        }
    }
}

/// What a new set of definitions does to the services of an old one, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New ones, in the new order.
    pub added: Vec<String>,
    /// Those that are no longer there, in the old order.
    pub removed: Vec<String>,
    /// Those that are defined in another way, in the new order.
    pub changed: Vec<String>,
    /// All others, in the new order.
    pub unchanged: Vec<String>,
}

impl Changes {
    /// Whether nothing is different.
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Compares two sets of definitions. Their order is no difference.
pub fn changes(old: &[ServiceDefinition], new: &[ServiceDefinition]) -> Changes {
    let by_name = |all: &'_ [ServiceDefinition]| -> BTreeMap<String, usize> {
        all.iter().enumerate().map(|(index, one)| (one.name.clone(), index)).collect()
    };
    let (before, after) = (by_name(old), by_name(new));
    let mut changes = Changes::default();
    for service in new {
        let kind = match before.get(&service.name).map(|index| &old[*index]) {
            None => &mut changes.added,
            Some(was) if was == service => &mut changes.unchanged,
            Some(_) => &mut changes.changed,
        };
        kind.push(service.name.clone());
    }
    let gone = old.iter().filter(|service| !after.contains_key(&service.name));
    changes.removed = gone.map(|service| service.name.clone()).collect();
    changes
}

/// What a service that runs has to hold to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// A service whose processes hold more memory than this is restarted; none is any amount.
    pub memory_bytes_max: Option<u64>,
    /// A server that is silent for this long with a call unanswered is suspected to be wedged; none
    /// never suspects.
    pub wedge_timeout: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, command: &str) -> ServiceDefinition {
        ServiceDefinition {
            name: name.to_owned(),
            title: name.to_owned(),
            command: vec![command.to_owned()],
            cwd: None,
            env: Vec::new(),
            env_file: None,
            policy: Policy::default(),
            stop_signal: StopSignal::default(),
            depends_on: Vec::new(),
            health: None,
            memory_bytes_max: None,
            autostart: true,
            log: LogLimits::default(),
            port: None,
        }
    }

    #[test]
    fn signals_have_their_usual_names() {
        for signal in StopSignal::ALL {
            assert_eq!(signal.name().parse(), Ok(signal));
        }
        assert_eq!("term".parse(), Ok(StopSignal::Terminate));
        assert_eq!("SigInt".parse(), Ok(StopSignal::Interrupt));
        for name in ["", "SIG", "KILL", "SIGSIGTERM", "15"] {
            assert_eq!(name.parse::<StopSignal>(), Err(()), "{name}");
        }
    }

    #[test]
    fn changes_are_found_by_name() {
        let old = [service("a", "1"), service("b", "1"), service("c", "1")];
        let new = [service("d", "1"), service("c", "2"), service("a", "1")];
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let wanted = Changes {
            added: names(&["d"]),
            removed: names(&["b"]),
            changed: names(&["c"]),
            unchanged: names(&["a"]),
        };
        assert_eq!(changes(&old, &new), wanted);
        assert!(!wanted.is_empty());
        let reversed: Vec<_> = old.iter().rev().cloned().collect();
        assert!(changes(&old, &reversed).is_empty());
        assert_eq!(changes(&[], &old).added.len(), 3);
        assert_eq!(changes(&old, &[]).removed.len(), 3);
    }

    #[test]
    fn every_field_counts_as_a_change() {
        let old = service("a", "1");
        let differs = |edit: fn(&mut ServiceDefinition)| {
            let mut new = old.clone();
            edit(&mut new);
            changes(std::slice::from_ref(&old), &[new]).changed.len() == 1
        };
        assert!(differs(|new| new.title.push('x')));
        assert!(differs(|new| new.env.push(("A".into(), "1".into()))));
        assert!(differs(|new| new.policy.max_restarts += 1));
        assert!(differs(|new| new.autostart = false));
        assert!(differs(|new| new.log.files_kept += 1));
        assert!(differs(|new| new.port = Some(Port { host: "localhost".into(), port: 1 })));
    }
}
