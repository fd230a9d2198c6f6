//! What runs beside the services: short commands, and the hooks that are told of everything.

use std::time::Duration;

use super::{Happened, Supervise};
use crate::clock::now;
use crate::hooks::{HookSetup, Hooks, Mouth};
use crate::run_briefly::{BriefRunner, Briefs};

/// Both, as the loop has them.
pub(super) struct Beside {
    pub(super) briefs: Briefs,
    pub(super) hooks: Hooks,
}

impl Beside {
    pub(super) fn new() -> Self {
        Self { briefs: Briefs::new(), hooks: Hooks::default() }
    }
}

impl Supervise {
    /// From now on these hooks are told of what happens, and no others.
    pub(crate) fn start_hooks(&mut self, setup: HookSetup) {
        let mouth = Mouth {
            stderr: self.around.stderr.clone(),
            trail: self.around.trail.clone(),
            logger: self.around.logger,
        };
        let briefs = self.briefs();
        self.beside.hooks.start(setup, briefs, mouth);
    }

    /// Runs short commands in this loop's process layer, from any task.
    pub(crate) fn briefs(&self) -> BriefRunner {
        self.beside.briefs.runner()
    }

    /// Gives the hooks a bounded time to hear the rest, while the loop goes on for them.
    pub(crate) async fn close_hooks(&mut self) {
        let (mut tellers, lost) = self.beside.hooks.close();
        if lost > 0 {
            self.log(&format!("{lost} events were not told to hooks: too many came at once"));
        }
        while !tellers.is_empty() {
            let happened: Happened = tokio::select! {
                _ = tellers.join_next() => continue,
                happened = self.wait() => happened,
            };
            self.react(happened).await;
        }
    }
}

/// A number that differs between two starts, for the jitter.
pub(crate) fn seed() -> u64 {
    let clock = Duration::from_secs_f64(now().unix_seconds()).as_nanos() as u64;
    clock ^ (u64::from(std::process::id()) << 32)
}
