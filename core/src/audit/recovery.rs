//! Owns what the trail says of earlier supervisors, so that the next one resumes from there. Driven record by record
//! when `afresh up` starts. Never reads a file.

use std::collections::BTreeMap;

use serde_json::Value;

use super::EventType;

/// What became of the services of earlier supervisors, told record by record, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrailSummary {
    services: BTreeMap<String, ServiceSummary>,
    /// The last supervisor did not get to say that it ends.
    pub was_killed: bool,
}

/// What became of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceSummary {
    /// The newest instance that ran.
    pub generation: u64,
    /// Restarts of every kind, since its supervisor was last started by a person.
    pub restarts: u64,
    /// What a person wants of it.
    pub wanted: UserIntent,
    /// Its stop is on record, and no start since. An instance that was on its way then changes nothing.
    is_stop_asked: bool,
    /// Its start is on record, and no instance since. The end of the one before, which a stop had begun, changes
    /// nothing.
    is_start_pending: bool,
    /// It is not in the configuration any more: no user requested its end.
    is_leaving: bool,
}

/// What a person wants of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserIntent {
    /// What its definition says.
    #[default]
    AsDefined,
    /// It was started, and has not finished.
    Up,
    /// It was stopped.
    Down,
}

impl TrailSummary {
    /// Takes the next record of `afresh up`; others are passed over.
    pub fn note(&mut self, record: &Value) {
        if record["logger"].as_str() != Some("afresh.up") {
            return;
        }
        let props = &record["props"];
        let Some(event_type) = props["event_type"].as_str().and_then(EventType::from_name) else {
            return;
        };
        match event_type {
            EventType::SupervisorStarted => {
                self.was_killed = true;
                for service in self.services.values_mut() {
                    (service.is_stop_asked, service.is_leaving) = (false, false);
                }
            }
            EventType::SupervisorStopped => {
                self.was_killed = false;
                // The next start by a user begins to count anew.
                for service in self.services.values_mut() {
                    *service =
                        ServiceSummary { generation: service.generation, ..Default::default() };
                }
            }
            EventType::ConfigurationReloaded => {
                for service in self.named_in(&props["removed"]) {
                    (service.wanted, service.is_leaving) = (UserIntent::AsDefined, true);
                }
                for service in self.named_in(&props["added"]) {
                    service.is_leaving = false;
                }
            }
            _ => {}
        }
        if let Some(name) = props["service"].as_str() {
            self.services.entry(name.to_owned()).or_default().note(event_type, props);
        }
    }

    fn named_in(&mut self, names: &Value) -> impl Iterator<Item = &mut ServiceSummary> {
        let names: Vec<String> = names
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect();
        let named = move |(name, service)| names.contains(name).then_some(service);
        self.services.iter_mut().filter_map(named)
    }

    /// The newest instance of each service that there ever was.
    pub fn generations(&self) -> impl Iterator<Item = (&str, u64)> {
        self.services.iter().map(|(name, service)| (name.as_str(), service.generation))
    }

    /// What became of a service.
    pub fn of(&self, name: &str) -> ServiceSummary {
        self.services.get(name).copied().unwrap_or_default()
    }
}

impl ServiceSummary {
    fn note(&mut self, event_type: EventType, props: &Value) {
        let number = |key: &str| props[key].as_u64();
        match event_type {
            // Its start may have been the last act of a killed supervisor, and is not on record then. A
            // takeover is no request of a user.
            EventType::ServerAdopted => {
                let generation = number("generation").unwrap_or(0);
                self.is_start_pending &= generation <= self.generation;
                self.generation = self.generation.max(generation);
                if self.wanted == UserIntent::AsDefined {
                    self.wanted = UserIntent::Up;
                }
            }
            EventType::ServerStarted => {
                self.generation = self.generation.max(number("generation").unwrap_or(0));
                self.restarts = number("restarts").unwrap_or(self.restarts);
                self.is_start_pending = false;
                if !self.is_stop_asked {
                    self.wanted = UserIntent::Up;
                }
            }
            EventType::ServerStartRequested | EventType::ServerRestartRequested => {
                (self.wanted, self.is_stop_asked) = (UserIntent::Up, false);
                self.is_start_pending = true;
            }
            EventType::ServerStopRequested => {
                (self.wanted, self.is_stop_asked) = (UserIntent::Down, true);
                self.is_start_pending = false;
            }
            EventType::ServerStopped if self.is_leaving || self.wanted == UserIntent::Down => {}
            EventType::ServerStopped if self.is_start_pending => {}
            EventType::ServerStopped => {
                self.wanted = match props["reason"].as_str() {
                    Some("stopped_by_user") => UserIntent::Down,
                    _ => UserIntent::AsDefined,
                };
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(event_type: &str, more: &Value) -> Value {
        let mut props = json!({ "event_type": event_type });
        for (key, value) in more.as_object().unwrap() {
            props[key] = value.clone();
        }
        json!({ "logger": "afresh.up", "props": props })
    }

    fn started(name: &str, generation: u64, restarts: u64) -> Value {
        let more = json!({ "service": name, "generation": generation, "restarts": restarts });
        record("server_started", &more)
    }

    #[test]
    fn a_killed_supervisor_leaves_its_counters() {
        let mut past = TrailSummary::default();
        past.note(&record("supervisor_started", &json!({})));
        past.note(&started("a", 1, 0));
        past.note(&started("b", 1, 0));
        past.note(&started("a", 2, 1));
        let stop = json!({ "service": "b", "reason": "stopped_by_user" });
        past.note(&record("server_stopped", &stop));
        assert!(past.was_killed);
        let a = past.of("a");
        assert_eq!((a.generation, a.restarts, a.wanted), (2, 1, UserIntent::Up));
        assert_eq!(past.of("b").wanted, UserIntent::Down);
        assert_eq!(past.of("c"), ServiceSummary::default());
    }

    #[test]
    fn one_that_ended_in_order_leaves_only_the_numbers_of_instances() {
        let mut past = TrailSummary::default();
        past.note(&record("supervisor_started", &json!({})));
        past.note(&started("a", 7, 6));
        past.note(&record("server_stopped", &json!({ "service": "a", "reason": "shutdown" })));
        past.note(&record("supervisor_stopped", &json!({})));
        assert!(!past.was_killed);
        assert_eq!(past.of("a"), ServiceSummary { generation: 7, ..Default::default() });
    }

    #[test]
    fn records_of_others_and_strange_ones_change_nothing() {
        let mut past = TrailSummary::default();
        let mut other = started("a", 3, 2);
        other["logger"] = json!("afresh.keep");
        for record in [other, json!(null), json!([]), json!({ "logger": "afresh.up" })] {
            past.note(&record);
        }
        past.note(&record("server_started", &json!({ "service": 7, "generation": "x" })));
        past.note(&record("configuration_reloaded", &json!({ "removed": [7, "a"], "added": 7 })));
        assert_eq!(past, TrailSummary::default());
    }

    /// What is wanted of `a` after these records.
    fn wanted(records: &[Value]) -> UserIntent {
        let mut past = TrailSummary::default();
        records.iter().for_each(|record| past.note(record));
        past.of("a").wanted
    }

    #[test]
    fn the_last_word_of_a_person_counts() {
        let of_a = |event_type: &str| record(event_type, &json!({ "service": "a" }));
        let ended =
            |reason: &str| record("server_stopped", &json!({ "service": "a", "reason": reason }));
        let [start, stop, restart] =
            ["start", "stop", "restart"].map(|verb| of_a(&format!("server_{verb}_requested")));
        let up = started("a", 1, 0);
        assert_eq!(wanted(&[]), UserIntent::AsDefined);
        assert_eq!(wanted(std::slice::from_ref(&up)), UserIntent::Up);
        // Killed before it was down, also where another instance was on its way.
        assert_eq!(wanted(&[up.clone(), stop.clone()]), UserIntent::Down);
        assert_eq!(wanted(&[stop.clone(), up.clone()]), UserIntent::Down);
        assert_eq!(wanted(&[up.clone(), stop.clone(), ended("stopped_by_user")]), UserIntent::Down);
        // It had just finished when the stop came.
        assert_eq!(wanted(&[up.clone(), stop.clone(), ended("clean")]), UserIntent::Down);
        // Killed before it was up.
        assert_eq!(wanted(&[up.clone(), stop.clone(), start.clone()]), UserIntent::Up);
        // The stop had begun when the start came, and its end is recorded after the request.
        let restarted = [up.clone(), stop.clone(), start, ended("stopped_by_user")];
        assert_eq!(wanted(&restarted), UserIntent::Up);
        let next = [started("a", 2, 0), ended("stopped_by_user")];
        assert_eq!(wanted(&[&restarted[..], &next].concat()), UserIntent::Down);
        // The next supervisor takes over the instance whose start is not on record.
        let adopted = record("server_adopted", &json!({ "service": "a", "generation": 2 }));
        let next = [adopted, ended("stopped_by_user")];
        assert_eq!(wanted(&[&restarted[..], &next].concat()), UserIntent::Down);
        assert_eq!(wanted(&[stop.clone(), restart]), UserIntent::Up);
        // Its work is done: whether it is done again is a matter of its definition.
        assert_eq!(wanted(&[up.clone(), ended("clean")]), UserIntent::AsDefined);
        // It was taken over before it had heard of its stop.
        let adopted = record("server_adopted", &json!({ "service": "a", "generation": 3 }));
        let supervisor = record("supervisor_started", &json!({}));
        assert_eq!(wanted(&[stop.clone(), supervisor, adopted]), UserIntent::Down);
        // A later `afresh up a`.
        let supervisor = record("supervisor_started", &json!({}));
        assert_eq!(wanted(&[stop, supervisor, up]), UserIntent::Up);
    }

    #[test]
    fn one_that_leaves_the_configuration_is_not_stopped_by_a_person() {
        let reloaded = |added: &[&str], removed: &[&str]| {
            record("configuration_reloaded", &json!({ "added": added, "removed": removed }))
        };
        let stopped =
            record("server_stopped", &json!({ "service": "a", "reason": "stopped_by_user" }));
        let gone = [started("a", 1, 0), reloaded(&[], &["a"]), stopped.clone()];
        assert_eq!(wanted(&gone), UserIntent::AsDefined);
        let back = [&gone[..], &[reloaded(&["a"], &[]), stopped]].concat();
        assert_eq!(wanted(&back), UserIntent::Down);
    }
}
