//! Owns the arguments of tools that servers of the modern era want in headers too (`x-mcp-header`). Driven by
//! `traffic.rs`. Never changes a request's body.

use std::collections::BTreeMap;

use serde_json::Value;

use super::headers::{Header, encoded};
use crate::limits::{HEADER_VALUE_BYTES_MAX, MARKED_TOOLS_MAX, PARAM_HEADERS_MAX};
use crate::mcp::json::get;

/// Which arguments of which tools are marked with `x-mcp-header`.
#[derive(Debug, Default)]
pub(super) struct HeaderParams(BTreeMap<String, Vec<HeaderParam>>);

#[derive(Debug)]
struct HeaderParam {
    /// The keys that lead to the argument.
    path: Vec<String>,
    header: String,
}

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
        let header = |mark: &HeaderParam| {
            let value = mark.path.iter().try_fold(&params["arguments"], |at, key| at.get(key))?;
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) => value.to_string(),
                Value::Number(number) if number.is_i64() => value.to_string(),
                _ => return None,
            };
            Some((format!("mcp-param-{}", mark.header).into(), encoded(&text)))
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
            marks.push(HeaderParam { path: path.clone(), header: header.to_owned() });
        }
        find(property, path, marks);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
