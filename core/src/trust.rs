//! Owns the requests of a project's files that count only after the user has accepted them: what is started, listened
//! on, opened or sent out. Made by `config` and `client_import`, kept by the daemon, shown by `afresh trust`. Never
//! accepts a request: the caller says which are.

use serde_json::Value;

use crate::limits::{UNTRUSTED_NAME_CHARS, UNTRUSTED_NAMES_MAX};
use crate::text::cut;

/// A part of a project's files that needs trust. Its exact content is what is accepted: one that has changed in any
/// way is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustRequest {
    /// What stands in the file, with dots: `server.files`, `hook.team`, `run.agent_command`.
    pub name: String,
    /// The file that it stands in.
    pub file: String,
    /// All that it says, a key and its value in each line; variables are not filled in.
    pub lines: Vec<String>,
}

impl TrustRequest {
    /// One without lines.
    pub(crate) fn new(name: String, file: &str) -> Self {
        Self { name, file: file.to_owned(), lines: Vec::new() }
    }

    /// Takes a key and its value: as JSON, which is always one line. A key that could end before its end is JSON, too.
    pub(crate) fn push(&mut self, key: &str, value: &Value) {
        let is_plain = !key.contains(|c: char| c.is_control() || matches!(c, '"' | '='));
        self.lines.push(match is_plain {
            true => format!("{key} = {value}"),
            false => format!("{} = {value}", Value::from(key)),
        });
    }

    /// The whole of it, as it is hashed and kept.
    pub fn text(&self) -> String {
        let Self { name, file, lines } = self;
        format!("[{name}] of {file}\n{}", lines.join("\n"))
    }

    /// Whether a user who names this means a request: by its whole name, or without what stands before the first dot.
    /// The file of a server's variables goes with the server.
    pub fn is_called(known: &str, name: &str) -> bool {
        let known = known.strip_suffix(".env_file").unwrap_or(known);
        known == name || known.split_once('.').is_some_and(|(_, own)| own == name)
    }
}

/// Decides whether the user has accepted a request.
pub type Accepts<'a> = &'a dyn Fn(&TrustRequest) -> bool;

/// What a user or an agent is told about requests that do not count; none where there are none.
pub fn untrusted_note(names: &[String]) -> Option<String> {
    let short = |name: &String| format!("`{}`", cut(name, UNTRUSTED_NAME_CHARS));
    let shown: Vec<String> = names.iter().take(UNTRUSTED_NAMES_MAX).map(short).collect();
    let more = match names.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (is, it) = if names.len() == 1 { ("is", "it") } else { ("are", "them") };
    (!names.is_empty()).then(|| {
        format!(
            "{}{more} of this project {is} not trusted and {is} not used; the user looks at {it} and accepts {it} with \
             `afresh trust`",
            shown.join(", ")
        )
    })
}

/// The lines that have changed between two texts: `-` before those that are gone, `+` before those that are new.
pub fn changed_lines(old: &str, new: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
    let added = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
    gone.chain(added).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_key_says_what_another_one_does() {
        let of = |pairs: &[(&str, &str)]| {
            let mut request = TrustRequest::new("server.a".to_owned(), ".mcp.json");
            pairs.iter().for_each(|(key, value)| request.push(key, &Value::from(*value)));
            request.text()
        };
        let two = of(&[("env.A", "1"), ("cwd", "/safe")]);
        assert!(two.ends_with("env.A = \"1\"\ncwd = \"/safe\""), "{two}");
        assert_ne!(of(&[("env.A = \"1\"\ncwd", "/safe")]), two);
        assert_ne!(of(&[("\"a", "x")]), of(&[("a", "x")]));
    }

    fn request(name: &str, command: &[&str]) -> TrustRequest {
        let mut request = TrustRequest::new(name.to_owned(), "afresh.toml");
        request.push("command", &json!(command));
        request
    }

    #[test]
    fn a_request_is_known_by_all_that_it_says() {
        let files = request("server.files", &["npx", "files"]);
        assert_eq!(files.text(), "[server.files] of afresh.toml\ncommand = [\"npx\",\"files\"]");
        let others = [
            request("server.other", &["npx", "files"]),
            request("server.files", &["npx", "files", ""]),
            request("server.files", &["npx files"]),
            TrustRequest { file: ".mcp.json".to_owned(), ..files.clone() },
        ];
        assert!(others.iter().all(|other| other.text() != files.text()));
        for (known, name, wanted) in [
            ("server.files", "files", true),
            ("server.files", "server.files", true),
            ("server.files.env_file", "files", true),
            ("server.files", "file", false),
            ("server.files", "server", false),
        ] {
            assert_eq!(TrustRequest::is_called(known, name), wanted, "{known} {name}");
        }
    }

    #[test]
    fn a_change_shows_what_is_gone_and_what_is_new() {
        let (old, new) = (request("server.a", &["x"]), request("server.a", &["x", "-rf"]));
        assert_eq!(
            changed_lines(&old.text(), &new.text()),
            ["- command = [\"x\"]", "+ command = [\"x\",\"-rf\"]"]
        );
        assert!(changed_lines(&old.text(), &old.text()).is_empty());
    }

    #[test]
    fn a_note_names_what_is_left_out_and_the_command() {
        assert_eq!(untrusted_note(&[]), None);
        let note = untrusted_note(&["server.a".to_owned()]).unwrap();
        assert!(note.contains("`server.a` of this project is") && note.contains("`afresh trust`"));
        let many: Vec<String> = (0..UNTRUSTED_NAMES_MAX + 3).map(|n| n.to_string()).collect();
        assert!(untrusted_note(&many).unwrap().contains(" and 3 more of this project are"));
    }
}
