//! Makes requests to the server: their headers, from a message of the modern era and from the arguments that tools want
//! in headers too (`x-mcp-header`), and their URLs. Driven by `traffic.rs`. Never changes a request's body.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::base64;
use crate::limits::{HEADER_VALUE_BYTES_MAX, MARKED_TOOLS_MAX, PARAM_HEADERS_MAX};
use crate::mcp::envelope::{Params, param};
use crate::mcp::json::{self, get};
use crate::sse::is_header_value;

/// One request over HTTP. The headers of the configuration and those of the body's kind come on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// The method.
    pub method: Method,
    /// The whole URL.
    pub url: String,
    /// The headers of MCP.
    pub headers: Vec<Header>,
    /// One message, or nothing.
    pub body: Vec<u8>,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Hands over a message.
    Post,
    /// Opens a stream.
    Get,
    /// Ends the session.
    Delete,
}

/// A name and a value.
pub type Header = (Cow<'static, str>, String);

/// The headers of a request of the modern era, which carries its version itself.
pub(super) fn modern_headers(method: &str, params: &Params, line: &[u8]) -> Vec<Header> {
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
        "tasks/get" | "tasks/update" | "tasks/cancel" => text(param(line, &["taskId"])),
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

/// Which arguments of which tools are marked with `x-mcp-header`.
#[derive(Debug, Default)]
pub(super) struct HeaderParams(BTreeMap<String, Vec<HeaderParam>>);

/// The keys that lead to an argument, and its header.
type HeaderParam = (Vec<String>, String);

impl HeaderParams {
    /// Learns from a page of the list of tools.
    pub(super) fn learn(&mut self, answer: &[u8]) {
        if self.0.is_empty() && memchr::memmem::find(answer, b"\"x-mcp-header\"").is_none() {
            return;
        }
        let tools = get(answer, &["result", "tools"]).unwrap_or(b"[]");
        let tools: Vec<Value> = serde_json::from_slice(tools).unwrap_or_default();
        for tool in tools {
            let name = tool["name"].as_str();
            let Some(name) = name.filter(|name| name.len() <= HEADER_VALUE_BYTES_MAX) else {
                continue;
            };
            let mut marks = Vec::new();
            find(&tool["inputSchema"], &mut Vec::new(), &mut marks);
            self.0.remove(name);
            if !marks.is_empty() && self.0.len() < MARKED_TOOLS_MAX {
                self.0.insert(name.to_owned(), marks);
            }
        }
    }

    /// The headers of a call.
    pub(super) fn headers(&self, line: &[u8]) -> Vec<Header> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let params: Value = get(line, &["params"])
            .and_then(|raw| serde_json::from_slice(raw).ok())
            .unwrap_or_default();
        let marks = params["name"].as_str().and_then(|name| self.0.get(name));
        let header = |(path, header): &HeaderParam| {
            let value = path.iter().try_fold(&params["arguments"], |at, key| at.get(key))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) => value.to_string(),
                Value::Number(number) if number.is_i64() => value.to_string(),
                _ => return None,
            };
            Some((format!("mcp-param-{header}").into(), encoded(&text)))
        };
        marks.into_iter().flatten().filter_map(header).collect()
    }
}

/// Finds the marks that can be reached by keys alone; those elsewhere mean nothing.
fn find(schema: &Value, path: &mut Vec<String>, marks: &mut Vec<HeaderParam>) {
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(key.clone());
        if let Some(header) = property["x-mcp-header"].as_str()
            && marks.len() < PARAM_HEADERS_MAX
            && path.iter().map(String::len).sum::<usize>() <= HEADER_VALUE_BYTES_MAX
            && header.len() <= HEADER_VALUE_BYTES_MAX
            && !header.is_empty()
            && header
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
        {
            marks.push((path.clone(), header.to_owned()));
        }
        find(property, path, marks);
        path.pop();
    }
}

/// Scheme, host and port. The rest can be a secret, as in the URLs of some services.
pub(super) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    &url[..end]
}

/// Resolves a reference found at a URL; `None` where it is invalid or leads to another origin, which must not
/// get our headers.
pub(super) fn resolve(url: &str, reference: &str) -> Option<String> {
    let is_plain = reference.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    let reference = reference.split('#').next().filter(|text| is_plain && !text.is_empty())?;
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let scheme = reference.split("://").next().filter(|scheme| *scheme != reference);
    let has_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let whole = if scheme.is_some_and(has_scheme) {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{}:{reference}", url.split("://").next()?)
    } else if reference.starts_with('/') {
        format!("{}{reference}", origin(url))
    } else if reference.starts_with('?') {
        format!("{path}{reference}")
    } else {
        let folder = path.rfind('/').filter(|at| *at >= origin(url).len());
        format!("{}/{reference}", folder.map_or(origin(url), |at| &path[..at]))
    };
    origin(&whole).eq_ignore_ascii_case(origin(url)).then_some(whole)
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

    #[test]
    fn marked_arguments_become_headers() {
        let mut marked = HeaderParams::default();
        let call =
            br#"{"params":{"name":"t","arguments":{"r":"w 1","o":{"n":7},"b":null,"x":1.5}}}"#;
        assert_eq!(marked.headers(call), []);
        let list = br#"{"result":{"tools":[{"name":"u"},{"name":"t","inputSchema":{"properties":{
            "r":{"x-mcp-header":"Region"},"o":{"properties":{"n":{"x-mcp-header":"N"}}},
            "b":{"x-mcp-header":"B"},"x":{"x-mcp-header":"X"},"g":{"x-mcp-header":"G"},
            "bad":{"x-mcp-header":"a: b"}}}}]}}"#;
        marked.learn(list);
        let headers = marked.headers(call);
        let header = |name: &str, value: &str| (name.to_owned().into(), value.to_owned());
        assert_eq!(headers, [header("mcp-param-Region", "w 1"), header("mcp-param-N", "7")]);
        assert_eq!(marked.headers(&call.map(|byte| if byte == b't' { b'u' } else { byte })), []);
        // Another list forgets them.
        marked.learn(br#"{"result":{"tools":[{"name":"t"}]}}"#);
        assert_eq!(marked.headers(call), []);
    }
    /// A list with one tool, of which the first so many arguments are marked.
    fn list(name: &str, count: usize) -> Vec<u8> {
        let one = |n: usize| format!(r#""a{n}":{{"x-mcp-header":"A{n}"}}"#);
        let all: Vec<String> = (0..count).map(one).collect();
        let schema = format!(r#"{{"properties":{{{}}}}}"#, all.join(","));
        let tools = format!(r#"[{{"name":"{name}","inputSchema":{schema}}}]"#);
        format!(r#"{{"result":{{"tools":{tools}}}}}"#).into_bytes()
    }

    #[test]
    fn there_is_a_bound_on_marks() {
        let all: Vec<String> = (0..PARAM_HEADERS_MAX + 1).map(|n| format!(r#""a{n}":7"#)).collect();
        let call = |name: &str| {
            let arguments = all.join(",");
            format!(r#"{{"params":{{"name":"{name}","arguments":{{{arguments}}}}}}}"#).into_bytes()
        };
        let mut marked = HeaderParams::default();
        marked.learn(&list("t", PARAM_HEADERS_MAX));
        assert_eq!(marked.headers(&call("t")).len(), PARAM_HEADERS_MAX);
        marked.learn(&list("t", PARAM_HEADERS_MAX + 1));
        assert_eq!(
            marked.headers(&call("t")).len(),
            PARAM_HEADERS_MAX,
            "the others are no headers"
        );
        for n in 1..MARKED_TOOLS_MAX {
            marked.learn(&list(&format!("t{n}"), 1));
        }
        marked.learn(&list("more", 1));
        assert_eq!(marked.headers(&call("more")), []);
        let last = format!("t{}", MARKED_TOOLS_MAX - 1);
        assert_eq!(marked.headers(&call(&last)).len(), 1);
        // One of those that are known may change.
        marked.learn(&list(&last, 2));
        assert_eq!(marked.headers(&call(&last)).len(), 2);
        let mut marked = HeaderParams::default();
        marked.learn(&list(&"t".repeat(HEADER_VALUE_BYTES_MAX + 1), 1));
        let long = "h".repeat(HEADER_VALUE_BYTES_MAX + 1);
        for key in ["a0", &long] {
            let header = if key == "a0" { &long } else { "A" };
            let schema = format!(r#"{{"properties":{{"{key}":{{"x-mcp-header":"{header}"}}}}}}"#);
            let tools = format!(r#"[{{"name":"t","inputSchema":{schema}}}]"#);
            marked.learn(format!(r#"{{"result":{{"tools":{tools}}}}}"#).as_bytes());
        }
        assert!(marked.0.is_empty());
    }

    #[test]
    fn only_the_origin_is_said_aloud() {
        for (url, shown) in [
            ("http://127.0.0.1:3000/s3cr3t/mcp?k=s3cr3t", "http://127.0.0.1:3000"),
            ("https://host", "https://host"),
            ("https://host?k=s3cr3t", "https://host"),
            ("nonsense/s3cr3t", "nonsense"),
        ] {
            assert_eq!(origin(url), shown);
        }
    }

    #[test]
    fn references_stay_with_their_origin() {
        let at = |reference| resolve("http://h:1/a/sse?x=1", reference);
        for (reference, whole) in [
            ("/messages?id=1", "http://h:1/messages?id=1"),
            ("messages?to=http://x", "http://h:1/a/messages?to=http://x"),
            ("?id=2", "http://h:1/a/sse?id=2"),
            ("http://H:1/m#top", "http://H:1/m"),
            ("//h:1/m", "http://h:1/m"),
        ] {
            assert_eq!(at(reference).as_deref(), Some(whole), "{reference}");
        }
        for elsewhere in
            ["http://other/m", "https://h:1/m", "//other/m", "http://h:1@other/m", "", "a b", "#x"]
        {
            assert_eq!(at(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(resolve("http://h", "m").as_deref(), Some("http://h/m"));
    }
}
