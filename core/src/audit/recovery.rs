//! What the trail says of a supervisor that is gone, so that the next one goes on from there.

use std::collections::BTreeMap;

use serde_json::Value;

use super::EventType;

/// What became of the services of earlier supervisors, told record by record, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    services: BTreeMap<String, ServicePast>,
    /// The last supervisor did not get to say that it ends.
    was_killed: bool,
}

/// What became of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServicePast {
    /// The newest instance that ran.
    pub generation: u64,
    /// Restarts of every kind, since its supervisor was last started by a person.
    pub restarts: u64,
    /// What a person wants of it.
    pub wanted: Wanted,
    /// Its stop is on record, and no start since. An instance that was on its way then changes nothing.
    is_stop_asked: bool,
    /// It is not in the configuration any more: its end is nobody's wish.
    is_leaving: bool,
}

/// What a person wants of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// What its definition says.
    #[default]
    AsDefined,
    /// It was started, and has not finished.
    Up,
    /// It was stopped.
    Down,
}

impl Past {
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
                // Whoever starts it again begins to count anew.
                for service in self.services.values_mut() {
                    *service = ServicePast { generation: service.generation, ..Default::default() };
                }
            }
            EventType::ConfigurationReloaded => {
                for service in self.named_in(&props["removed"]) {
                    (service.wanted, service.is_leaving) = (Wanted::AsDefined, true);
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

    fn named_in(&mut self, names: &Value) -> impl Iterator<Item = &mut ServicePast> {
        let names: Vec<String> = names
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|name| Some(name.as_str()?.to_owned()))
            .collect();
        let named = move |(name, service)| names.contains(name).then_some(service);
        self.services.iter_mut().filter_map(named)
    }

    /// Whether the last supervisor was killed.
    pub fn was_killed(&self) -> bool {
        self.was_killed
    }

    /// The newest instance of each service that there ever was.
    pub fn generations(&self) -> impl Iterator<Item = (&str, u64)> {
        self.services.iter().map(|(name, service)| (name.as_str(), service.generation))
    }

    /// What became of a service.
    pub fn of(&self, name: &str) -> ServicePast {
        self.services.get(name).copied().unwrap_or_default()
    }
}

impl ServicePast {
    fn note(&mut self, event_type: EventType, props: &Value) {
        let number = |key: &str| props[key].as_u64();
        match event_type {
            // Its start may have been the last deed of a killed supervisor, and is not on record then. That
            // it is taken over is nobody's wish.
            EventType::ServerAdopted => {
                self.generation = self.generation.max(number("generation").unwrap_or(0));
                if self.wanted == Wanted::AsDefined {
                    self.wanted = Wanted::Up;
                }
            }
            EventType::ServerStarted => {
                self.generation = self.generation.max(number("generation").unwrap_or(0));
                self.restarts = number("restarts").unwrap_or(self.restarts);
                if !self.is_stop_asked {
                    self.wanted = Wanted::Up;
                }
            }
            EventType::ServerStartRequested | EventType::ServerRestartRequested => {
                (self.wanted, self.is_stop_asked) = (Wanted::Up, false);
            }
            EventType::ServerStopRequested => {
                (self.wanted, self.is_stop_asked) = (Wanted::Down, true)
            }
            EventType::ServerStopped if self.is_leaving || self.wanted == Wanted::Down => {}
            EventType::ServerStopped => {
                self.wanted = match props["reason"].as_str() {
                    Some("stopped_by_user") => Wanted::Down,
                    _ => Wanted::AsDefined,
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
        let mut past = Past::default();
        past.note(&record("supervisor_started", &json!({})));
        past.note(&started("a", 1, 0));
        past.note(&started("b", 1, 0));
        past.note(&started("a", 2, 1));
        let stop = json!({ "service": "b", "reason": "stopped_by_user" });
        past.note(&record("server_stopped", &stop));
        assert!(past.was_killed());
        let a = past.of("a");
        assert_eq!((a.generation, a.restarts, a.wanted), (2, 1, Wanted::Up));
        assert_eq!(past.of("b").wanted, Wanted::Down);
        assert_eq!(past.of("c"), ServicePast::default());
    }

    #[test]
    fn one_that_ended_in_order_leaves_only_the_numbers_of_instances() {
        let mut past = Past::default();
        past.note(&record("supervisor_started", &json!({})));
        past.note(&started("a", 7, 6));
        past.note(&record("server_stopped", &json!({ "service": "a", "reason": "shutdown" })));
        past.note(&record("supervisor_stopped", &json!({})));
        assert!(!past.was_killed());
        assert_eq!(past.of("a"), ServicePast { generation: 7, ..Default::default() });
    }

    #[test]
    fn records_of_others_and_strange_ones_change_nothing() {
        let mut past = Past::default();
        let mut other = started("a", 3, 2);
        other["logger"] = json!("afresh.keep");
        for record in [other, json!(null), json!([]), json!({ "logger": "afresh.up" })] {
            past.note(&record);
        }
        past.note(&record("server_started", &json!({ "service": 7, "generation": "x" })));
        past.note(&record("configuration_reloaded", &json!({ "removed": [7, "a"], "added": 7 })));
        assert_eq!(past, Past::default());
    }

    /// What is wanted of `a` after these records.
    fn wanted(records: &[Value]) -> Wanted {
        let mut past = Past::default();
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
        assert_eq!(wanted(&[]), Wanted::AsDefined);
        assert_eq!(wanted(std::slice::from_ref(&up)), Wanted::Up);
        // Killed before it was down, also where another instance was on its way.
        assert_eq!(wanted(&[up.clone(), stop.clone()]), Wanted::Down);
        assert_eq!(wanted(&[stop.clone(), up.clone()]), Wanted::Down);
        assert_eq!(wanted(&[up.clone(), stop.clone(), ended("stopped_by_user")]), Wanted::Down);
        // It had just finished when the stop came.
        assert_eq!(wanted(&[up.clone(), stop.clone(), ended("clean")]), Wanted::Down);
        // Killed before it was up.
        assert_eq!(wanted(&[up.clone(), stop.clone(), start]), Wanted::Up);
        assert_eq!(wanted(&[stop.clone(), restart]), Wanted::Up);
        // Its work is done: whether it is done again is a matter of its definition.
        assert_eq!(wanted(&[up.clone(), ended("clean")]), Wanted::AsDefined);
        // It was taken over before it had heard of its stop.
        let adopted = record("server_adopted", &json!({ "service": "a", "generation": 3 }));
        let supervisor = record("supervisor_started", &json!({}));
        assert_eq!(wanted(&[stop.clone(), supervisor, adopted]), Wanted::Down);
        // A later `afresh up a`.
        let supervisor = record("supervisor_started", &json!({}));
        assert_eq!(wanted(&[stop, supervisor, up]), Wanted::Up);
    }

    #[test]
    fn one_that_leaves_the_configuration_is_not_stopped_by_a_person() {
        let reloaded = |added: &[&str], removed: &[&str]| {
            record("configuration_reloaded", &json!({ "added": added, "removed": removed }))
        };
        let stopped =
            record("server_stopped", &json!({ "service": "a", "reason": "stopped_by_user" }));
        let gone = [started("a", 1, 0), reloaded(&[], &["a"]), stopped.clone()];
        assert_eq!(wanted(&gone), Wanted::AsDefined);
        let back = [&gone[..], &[reloaded(&["a"], &[]), stopped]].concat();
        assert_eq!(wanted(&back), Wanted::Down);
    }
}
