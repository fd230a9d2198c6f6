//! Owns the dependencies between services that run, read from their statuses. Used by the CLI. Never leads from one
//! supervisor to another.

use std::collections::{BTreeMap, BTreeSet};

use super::ServiceStatus;

/// Services, and what each of them depends on.
#[derive(Debug)]
pub struct Dependence<'a> {
    by_key: BTreeMap<Key<'a>, &'a ServiceStatus>,
}

/// Its supervisor, and its name there.
type Key<'a> = (u32, &'a str);

impl<'a> Dependence<'a> {
    /// Of all services that are known.
    pub fn of(all: impl IntoIterator<Item = &'a ServiceStatus>) -> Self {
        Self { by_key: all.into_iter().map(|status| (key(status), status)).collect() }
    }

    /// Whether one service depends on another, directly or not.
    pub fn depends(&self, one: &'a ServiceStatus, other: &ServiceStatus) -> bool {
        self.needs(one).contains(&key(other))
    }

    /// Parts services into steps: each comes after all that it depends on. Within a step they have
    /// the order that they had.
    pub fn steps(&self, chosen: &[&'a ServiceStatus]) -> Vec<Vec<usize>> {
        let needs: Vec<BTreeSet<Key<'_>>> = chosen.iter().map(|one| self.needs(one)).collect();
        let mut left: Vec<usize> = (0..chosen.len()).collect();
        let mut steps = Vec::new();
        while !left.is_empty() {
            let keys: BTreeSet<Key<'_>> = left.iter().map(|at| key(chosen[*at])).collect();
            let is_next = |at: &usize| needs[*at].is_disjoint(&keys);
            let (mut next, mut later): (Vec<usize>, Vec<usize>) =
                left.into_iter().partition(is_next);
            if next.is_empty() {
                // A configuration with a circle is refused; a status that has one gets no order.
                std::mem::swap(&mut next, &mut later);
            }
            steps.push(next);
            left = later;
        }
        steps
    }

    /// The services that run and depend on one of these, without being one of them.
    pub fn running_dependents(&self, chosen: &[&ServiceStatus]) -> Vec<&'a ServiceStatus> {
        let keys: BTreeSet<Key<'_>> = chosen.iter().map(|one| key(one)).collect();
        let is_one = |status: &&&ServiceStatus| {
            status.pid.is_some()
                && !keys.contains(&key(status))
                && !self.needs(status).is_disjoint(&keys)
        };
        self.by_key.values().filter(is_one).copied().collect()
    }

    /// All that a service waits for, and what those wait for, the nearest first.
    pub fn waits_of(&self, service: &ServiceStatus) -> Vec<&'a ServiceStatus> {
        let mut found: Vec<&ServiceStatus> = Vec::new();
        let mut next = self.waited_for(service);
        while !next.is_empty() {
            next.retain(|one| !found.iter().any(|known| key(known) == key(one)));
            found.extend(&next);
            next = next.iter().flat_map(|one| self.waited_for(one)).collect();
        }
        found
    }

    fn waited_for(&self, service: &ServiceStatus) -> Vec<&'a ServiceStatus> {
        let supervisor = service.supervisor_pid;
        let names = service.waits_for.iter();
        names.filter_map(|name| self.by_key.get(&(supervisor, name.as_str())).copied()).collect()
    }

    /// All that a service depends on.
    fn needs<'b>(&'b self, service: &'b ServiceStatus) -> BTreeSet<Key<'b>> {
        let mut found = BTreeSet::new();
        let mut left = vec![service];
        while let Some(status) = left.pop() {
            for name in &status.depends_on {
                let needed = (status.supervisor_pid, name.as_str());
                if found.insert(needed) {
                    left.extend(self.by_key.get(&needed).copied());
                }
            }
        }
        found
    }
}

fn key(status: &ServiceStatus) -> Key<'_> {
    (status.supervisor_pid, &status.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(supervisor: u32, name: &str, depends_on: &[&str], runs: bool) -> ServiceStatus {
        let status = json!({
            "name": name, "face": "up", "state": "ready", "supervisor_pid": supervisor,
            "pid": runs.then_some(7), "generation": 1, "restarts": { "total": 0, "last": [] },
            "command": "", "mechanism": "", "version": "", "depends_on": depends_on,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn what_is_needed_comes_first_also_by_way_of_one_that_is_not_chosen() {
        let all = [
            service(1, "web", &["api"], true),
            service(1, "api", &["db"], true),
            service(1, "db", &[], true),
            service(1, "job", &["db"], false),
            service(1, "alone", &[], true),
            service(2, "api", &["db"], true),
        ];
        let known = Dependence::of(&all);
        let [web, api, db, _, alone, other] = &all;
        assert_eq!(known.steps(&[web, db, alone]), [vec![1, 2], vec![0]]);
        assert_eq!(known.steps(&[web, api, db]), [[2], [1], [0]]);
        assert_eq!(known.steps(&[other, db]), [[0, 1]], "another supervisor has its own");
        assert!(known.depends(web, db) && !known.depends(db, web) && !known.depends(other, db));
        let names = |chosen: &[&ServiceStatus]| {
            let found = known.running_dependents(chosen);
            found.iter().map(|status| status.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[db]), ["api", "web"]);
        assert_eq!(names(&[db, web]), ["api"]);
        assert_eq!(names(&[alone]), [""; 0]);
    }

    #[test]
    fn a_circle_has_no_order_and_an_end() {
        let all = [service(1, "a", &["b"], true), service(1, "b", &["a"], true)];
        assert_eq!(Dependence::of(&all).steps(&[&all[0], &all[1]]), [[0, 1]]);
    }
}
