//! What the trail says of a supervisor that is gone, so that the next one goes on from there.

use std::collections::BTreeMap;

use serde_json::Value;

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
    /// A person had stopped it.
    pub is_stopped: bool,
}

impl Past {
    /// Takes the next record of `afresh up`; others are passed over.
    pub fn note(&mut self, record: &Value) {
        if record["logger"].as_str() != Some("afresh.up") {
            return;
        }
        let props = &record["props"];
        let event_type = props["event_type"].as_str().unwrap_or_default();
        match event_type {
            "supervisor_started" => self.was_killed = true,
            "supervisor_stopped" => {
                self.was_killed = false;
                // Whoever starts it again begins to count anew.
                for service in self.services.values_mut() {
                    *service = ServicePast { generation: service.generation, ..Default::default() };
                }
            }
            _ => {}
        }
        let Some(name) = props["service"].as_str() else { return };
        let number = |key: &str| props[key].as_u64();
        match event_type {
            "server_started" => {
                let service = self.services.entry(name.to_owned()).or_default();
                service.generation = service.generation.max(number("generation").unwrap_or(0));
                service.restarts = number("restarts").unwrap_or(service.restarts);
                service.is_stopped = false;
            }
            "server_stopped" => {
                let service = self.services.entry(name.to_owned()).or_default();
                service.is_stopped = props["reason"].as_str() == Some("stopped_by_user");
            }
            _ => {}
        }
    }

    /// Whether the last supervisor was killed.
    pub fn was_killed(&self) -> bool {
        self.was_killed
    }

    /// What became of a service.
    pub fn of(&self, name: &str) -> ServicePast {
        self.services.get(name).copied().unwrap_or_default()
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
        let wanted = ServicePast { generation: 2, restarts: 1, is_stopped: false };
        assert_eq!(past.of("a"), wanted);
        assert!(past.of("b").is_stopped);
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
        assert_eq!(past, Past::default());
    }
}
