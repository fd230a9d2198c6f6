//! `afresh status --watch`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use afresh_core::control::ServiceStatus;
use afresh_daemon::control::{Reached, Watcher, Woken};

use super::{StatusArgs, rows};
use crate::environment::Environment;
use crate::error::{CommandError, Exit};
use crate::output::{self, Paint};
use crate::row::{Row, cut, redraw, terminal_size};
use crate::running::{RunningServices, ServiceScope, failed};
use crate::status_table::average;

pub(super) fn run(
    arguments: &StatusArgs,
    environment: &Environment,
    interval: Duration,
) -> Result<Exit, CommandError> {
    let mut watcher = Watcher::new().map_err(failed)?;
    let (draws, paint) = (output::can_draw(), Paint::stdout());
    let (mut drawn, mut before) = (Vec::new(), Before::default());
    // A name that never was is a mistake; one that goes may come back.
    let mut was_there = arguments.name.is_none();
    loop {
        let (running, warnings) =
            RunningServices::look(environment, ServiceScope::of(arguments.all))?;
        let chosen: Vec<&Reached> = match &arguments.name {
            None => running.services.iter().collect(),
            Some(name) => match running.named(name) {
                Ok(named) => named,
                Err(error) if !was_there => return Err(error),
                Err(_) => Vec::new(),
            },
        };
        was_there = true;
        let mut lines: Vec<Row> = warnings.iter().map(|warning| Row::plain(warning)).collect();
        if chosen.is_empty() {
            lines.push(Row::plain(&match &arguments.name {
                Some(_) => "it does not run any more".to_owned(),
                None => running.nothing_here(),
            }));
        } else {
            let columns = if draws { terminal_size().0 } else { usize::MAX };
            let load = |status: &ServiceStatus| before.load(status);
            lines.extend(rows(arguments, &chosen, &load, columns, paint));
        }
        before.take(&chosen);
        if draws {
            let size = terminal_size();
            let lines = cut(lines, size);
            output::print(&redraw("", &drawn, &lines, size))?;
            drawn = lines;
        } else {
            let text: String = lines.iter().map(|line| format!("{}\n", line.text)).collect();
            output::print(&format!("{text}\n"))?;
        }
        let sockets: Vec<PathBuf> =
            running.services.iter().map(|reached| reached.socket.clone()).collect();
        if watcher.wait(&sockets, interval) == Woken::End {
            return Ok(Exit::Success);
        }
    }
}

/// What was seen at the last look.
#[derive(Default)]
struct Before {
    /// By process: the processor time, the age, and what that came to.
    seen: BTreeMap<u32, (u64, u64, Option<f64>)>,
}

impl Before {
    /// How much of a processor a service has used since the last look.
    fn load(&self, status: &ServiceStatus) -> Option<f64> {
        let seen = self.seen.get(&status.pid?);
        let (usage, uptime_ms) = (status.usage?, status.uptime_ms?);
        match seen {
            Some((_, then_ms, load)) if uptime_ms < then_ms + SHORTEST_MS => *load,
            Some((cpu_ms, then_ms, _)) => {
                let used = usage.cpu_ms.saturating_sub(*cpu_ms) as f64;
                Some(used * 100.0 / (uptime_ms - then_ms) as f64)
            }
            None => average(status),
        }
    }

    fn take(&mut self, chosen: &[&Reached]) {
        let mut seen = BTreeMap::new();
        for status in chosen.iter().map(|reached| &reached.status) {
            let (Some(pid), Some(usage), Some(uptime_ms)) =
                (status.pid, status.usage, status.uptime_ms)
            else {
                continue;
            };
            let earlier = self.seen.get(&pid).copied();
            let is_fresh = |then_ms: u64| uptime_ms < then_ms + SHORTEST_MS;
            let kept = match earlier {
                Some(earlier) if is_fresh(earlier.1) => earlier,
                _ => (usage.cpu_ms, uptime_ms, self.load(status)),
            };
            seen.insert(pid, kept);
        }
        self.seen = seen;
    }
}

/// The kernel counts in hundredths of a second: a load over less than this would jump.
const SHORTEST_MS: u64 = 500;

#[cfg(test)]
mod tests {
    use afresh_core::control::{State, UsageStatus};

    use super::*;
    use crate::status_table::testing::service;

    fn at(pid: u32, uptime_ms: u64, cpu_ms: u64) -> Reached {
        let mut status = service("web", State::Running);
        status.pid = Some(pid);
        status.uptime_ms = Some(uptime_ms);
        status.usage = Some(UsageStatus { memory_bytes: 0, cpu_ms });
        Reached { socket: PathBuf::new(), status }
    }

    #[test]
    fn the_load_is_that_since_the_last_look() {
        let mut before = Before::default();
        let mut look = |reached: Reached| {
            let load = before.load(&reached.status);
            before.take(&[&reached]);
            load
        };
        assert_eq!(look(at(7, 10_000, 1_000)), Some(10.0), "at first the average");
        assert_eq!(look(at(7, 12_000, 2_000)), Some(50.0));
        assert_eq!(look(at(7, 12_100, 2_100)), Some(50.0), "too soon to tell");
        assert_eq!(look(at(7, 14_000, 2_000)), Some(0.0));
        assert_eq!(look(at(8, 1_000, 1_000)), Some(100.0), "another process");
    }
}
