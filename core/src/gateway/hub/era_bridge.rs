//! Translates responses of servers of the older protocol for clients of the newer. Used when a response is passed on.

use super::bytes::{edit, place};
use crate::mcp::json as raw;

/// The response of an older server, with the members that the newer protocol requires.
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
