//! What an entry of a table holds, and how that is written.

use serde_json::{Map, Value as Json, json};

use super::super::kind::Value;
use crate::address;
use crate::definition::{Dependency, Port, Until};

/// What an entry holds.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Content {
    /// One value; also of each variable and header.
    One(Value),
    /// A command, names or words.
    List(Vec<String>),
    /// What has to be there first.
    Dependencies(Vec<Dependency>),
    /// A place in the network.
    Port(Port),
    /// A field of a JSON answer, as a path with dots, and its value.
    JsonField(String, Json),
}

impl Content {
    /// As JSON. Its TOML has the same shape.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::One(value) => value.to_json(),
            Self::List(items) => json!(items),
            Self::Dependencies(all) if all.iter().all(|one| one.until == Until::Ready) => {
                all.iter().map(|one| json!(one.name)).collect()
            }
            Self::Dependencies(all) => {
                let pair = |one: &Dependency| (one.name.clone(), json!(one.until.name()));
                Json::Object(all.iter().map(pair).collect())
            }
            Self::Port(Port { host, port }) => json!(address::join(host, *port)),
            Self::JsonField(path, value) => {
                Json::Object(Map::from_iter([(path.clone(), value.clone())]))
            }
        }
    }
}

/// A JSON value as TOML on one line.
pub(super) fn to_toml(json: &Json) -> String {
    let text = |text: &str| toml_edit::Value::from(text).to_string();
    match json {
        Json::String(value) => text(value),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(to_toml).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| {
                format!("{} = {}", toml_edit::Key::new(name), to_toml(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        // TOML has no null, and nothing here gives one.
        Json::Null | Json::Bool(_) | Json::Number(_) => json.to_string(),
    }
}
