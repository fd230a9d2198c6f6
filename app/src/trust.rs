//! Owns the answer to whether the user trusts what the project's files ask for, by `trust.json`. Made for each load of
//! the configuration. Never changes the file: `cli/trust.rs` does.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::text::harmless;
use afresh_core::trust::TrustRequest;
use afresh_daemon::error_chain::chain;
use afresh_daemon::own_actor;
use afresh_daemon::store::trail::Trail;
use afresh_daemon::store::trust::{Repository, TrustFile};
use afresh_daemon::store::user_state::UserStateError;
use afresh_daemon::store::workspace::Workspace;

use crate::output;

/// What the user has accepted here.
pub(crate) struct Trust {
    /// Why `trust.json` cannot be used: then nothing is accepted.
    pub(crate) problem: Option<String>,
    pub(crate) known: TrustFile,
    pub(crate) repository: Repository,
    cwd: PathBuf,
    /// All is accepted: `--trust`.
    pub(crate) is_all: bool,
    /// What counts for that reason alone.
    waved_through: RefCell<Vec<String>>,
}

impl Trust {
    /// By what was read of `trust.json`, for a workspace; with `--trust` all is accepted.
    pub(crate) fn new(
        read: Result<TrustFile, UserStateError>,
        root: &Path,
        cwd: &Path,
        is_all: bool,
    ) -> Self {
        let (known, problem) = match read {
            Ok(known) => (known, None),
            Err(error) => (TrustFile::default(), Some(chain(&error))),
        };
        let (repository, cwd) = (Repository::of(root), cwd.to_owned());
        Self { problem, known, repository, cwd, is_all, waved_through: RefCell::default() }
    }

    /// Whether a request counts.
    pub(crate) fn accepts(&self, request: &TrustRequest) -> bool {
        let is_known = self.known.accepts(&self.repository.identity, &self.located(request));
        if self.is_all && !is_known {
            self.waved_through.borrow_mut().push(request.name.clone());
        }
        is_known || self.is_all
    }

    /// A request with its file as it is called in every worktree, wherever a command was started.
    pub(crate) fn located(&self, request: &TrustRequest) -> TrustRequest {
        let path = self.cwd.join(&request.file);
        let file = path.strip_prefix(&self.repository.top).unwrap_or(&path);
        TrustRequest { file: file.display().to_string(), ..request.clone() }
    }

    /// Says which requests among those that begin with one of these count for this process alone, and why none does
    /// where `trust.json` cannot be used. Returns the former.
    pub(crate) fn say(&self, beginnings: &[&str], untrusted: &[String]) -> Vec<String> {
        let mut names = self.waved_through.take();
        names.retain(|name| beginnings.iter().any(|begin| name.starts_with(begin)));
        names.dedup();
        if !names.is_empty() {
            let names: Vec<String> =
                names.iter().map(|name| format!("`{}`", harmless(name))).collect();
            output::warn(&format!("note: `--trust` accepts {} for this process", names.join(", ")));
        }
        if let (Some(problem), false) = (&self.problem, untrusted.is_empty()) {
            output::warn(&format!("warning: nothing counts as trusted: {problem}"));
        }
        names
    }

    /// Puts on record what `--trust` accepts.
    pub(crate) fn record_flag(
        &self,
        workspace: &Workspace,
        trail: &TrailSettings,
        names: &[String],
    ) {
        if !names.is_empty() {
            let what = "`--trust` accepted for this process";
            self.record(&mut workspace.clone(), trail, (EventType::TrustGranted, what), names);
        }
    }

    /// Puts a decision on record. One that cannot be written holds up nothing.
    pub(crate) fn record(
        &self,
        workspace: &mut Workspace,
        trail: &TrailSettings,
        (event_type, what): (EventType, &str),
        names: &[String],
    ) {
        let record = Record {
            level: Level::Info,
            logger: "afresh.trust".to_owned(),
            message: format!("{what}: {}", names.join(", ")),
            event_type,
            props: vec![
                ("names", names.into()),
                ("repository", self.repository.identity.clone().into()),
                ("pid", std::process::id().into()),
                ("by", own_actor().to_json()),
            ],
        };
        if let Err(why) = Trail::write_one(workspace, trail, record) {
            output::warn(&format!("warning: the decision is not in the trail: {why}"));
        }
    }
}
