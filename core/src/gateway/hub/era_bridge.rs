//! What differs between the eras, where a client is of the newer one and its server of the older.

use super::super::{ClientId, LinkId};
use super::client_notifications::LEVELS;
use super::{Flight, Hub, What, edit, place, raw};
use crate::mcp::Era;
use crate::mcp::envelope::{Id, param};

impl Hub {
    /// Whether a client and the server behind a link are of different eras.
    pub(super) fn is_between(&self, client: ClientId, link: LinkId) -> bool {
        self.clients.get(&client).is_some_and(|client| client.is_modern())
            && self.links.get(&link).is_some_and(|link| link.era == Era::Legacy)
    }

    /// Whether a server's log is wanted for a request that asks for it by itself, from this level on. A
    /// server of the newer era knows that of its own.
    pub(super) fn wants_log(&self, client: ClientId, id: &Id, level: Option<usize>) -> bool {
        let flight = self.clients.get(&client).and_then(|its| its.flights.get(id));
        match flight.and_then(|number| self.flights.get(number)) {
            Some(Flight { link, what: What::Client { level: least, .. }, .. }) => {
                !self.is_between(client, *link)
                    || least.is_some_and(|least| level.is_none_or(|level| level >= least))
            }
            _ => false,
        }
    }
}

/// The least of the log that a request asks for.
pub(super) fn log_level(line: &[u8]) -> Option<usize> {
    let level = param(line, &["_meta", "io.modelcontextprotocol/logLevel"]).and_then(raw::text)?;
    LEVELS.iter().position(|name| *name == level)
}

/// The answer of an older server, with what a client of the newer protocol must find in it.
pub(super) fn modern_answer(line: Vec<u8>, method: &str) -> Vec<u8> {
    // That a resource is not there has another code now.
    if let Some(code) = raw::get(&line, &["error", "code"]) {
        return match method == "resources/read" && code == b"-32002" {
            true => edit(&line, vec![(place(&line, code), b"-32602".to_vec())]),
            false => line,
        };
    }
    let Some(result) = raw::get(&line, &["result"]) else { return line };
    let Some(members) = raw::members(result) else { return line };
    let cached: &[(&str, &str)] = match method {
        "resources/read" => &[("ttlMs", "0"), ("cacheScope", r#""private""#)],
        _ => &[],
    };
    let mut more = String::new();
    for (key, value) in [("resultType", r#""complete""#)].iter().chain(cached) {
        if raw::get(result, &[key]).is_none() {
            more.push_str(&format!(r#""{key}":{value},"#));
        }
    }
    if members.is_empty() {
        more.pop();
    }
    let start = place(&line, result).start + 1;
    edit(&line, vec![(start..start, more.into_bytes())])
}
