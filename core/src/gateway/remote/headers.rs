//! Makes the headers of a request of the modern era from its body. Driven by `traffic.rs`. Keeps no state.

use std::borrow::Cow;

use crate::base64;
use crate::mcp::envelope::{Params, param};
use crate::mcp::json;
use crate::sse::is_header_value;

/// A name and a value.
pub type Header = (Cow<'static, str>, String);

/// The headers of a request of the modern era, which carries its version itself.
pub(super) fn of_modern(method: &str, params: &Params, line: &[u8]) -> Vec<Header> {
    let text = |raw: Option<&[u8]>| raw.and_then(json::text);
    let mut headers = Vec::new();
    let version = text(params.version.clone().map(|at| &line[at]));
    headers.extend(version.map(|version| ("mcp-protocol-version".into(), encoded(&version))));
    if is_header_value(method.as_bytes()) {
        headers.push(("mcp-method".into(), method.to_owned()));
    }
    let name = match method {
        "tools/call" | "prompts/get" => text(params.name.clone().map(|at| &line[at])),
        "resources/read" => text(param(line, &["uri"])),
        _ => None,
    };
    headers.extend(name.map(|name| ("mcp-name".into(), encoded(&name))));
    headers
}

/// A text as the value of a header: unchanged, or in base64 where it is no valid value.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte) || byte == b'\t');
    let is_padded = text.trim_matches([' ', '\t']) != text;
    let looks_encoded = text.starts_with("=?base64?") && text.ends_with("?=");
    match is_plain && !is_padded && !looks_encoded {
        true => text.to_owned(),
        false => format!("=?base64?{}?=", base64::encode(text.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_encoded_as_the_specification_has_it() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("", ""),
        ] {
            assert_eq!(encoded(text), value);
        }
    }
}
