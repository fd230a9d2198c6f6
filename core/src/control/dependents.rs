//! Owns the view of which services wait for which, by their statuses. Read by the control API. Only services of
//! one supervisor depend on each other.

use std::collections::BTreeMap;

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
}

fn key(status: &ServiceStatus) -> Key<'_> {
    (status.supervisor_pid, &status.name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(supervisor: u32, name: &str, waits_for: &[&str]) -> ServiceStatus {
        let status = json!({
            "name": name, "face": "up", "state": "waiting", "supervisor_pid": supervisor,
            "pid": null, "generation": 1, "restarts": { "total": 0, "last": [] },
            "command": "", "mechanism": "", "version": "", "waits_for": waits_for,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn waits_are_followed_within_a_supervisor_and_through_a_circle() {
        let all = [
            service(1, "web", &["api"]),
            service(1, "api", &["db"]),
            service(1, "db", &["api"]),
            service(2, "db", &[]),
        ];
        let known = Dependence::of(&all);
        let names = |service: &ServiceStatus| {
            let found = known.waits_of(service);
            found.iter().map(|one| (one.supervisor_pid, one.name.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(names(&all[0]), [(1, "api"), (1, "db")]);
        assert_eq!(names(&all[3]), []);
    }
}
