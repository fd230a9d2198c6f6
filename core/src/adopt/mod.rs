//! Puts `afresh mcp --` in front of the servers in the configuration of an MCP client, and takes it
//! away again: a text in, the changes to it out.
//!
//! Knows no file and no client by name. [`File::read`] finds the servers wherever one of the known
//! clients keeps them, as ranges of the text; a change is a splice, so that comments, order, spelling
//! and line ends stay. Nothing is remembered anywhere: the text after adopting says all that undoing
//! needs, and undoing gives the same bytes again.

pub mod agent_mcp_servers;
mod client_json;
mod client_toml;
mod diff;
pub(crate) mod entry_fields;
mod invocation;
mod jsonc;
mod undo;
mod wrapper;
mod yaml_snippet;

use std::ops::Range;

pub use self::diff::{DiffLine, DiffMark};
pub(crate) use self::invocation::names_afresh;
pub use self::invocation::{Audience, Invocation, OwnProgram, PackageRunner, is_afresh, is_older};
pub use self::wrapper::{
    ClientServer, EntryChange, MCP_FLAGS_ALONE, MCP_FLAGS_SEVERAL, State, Wrapper,
};
pub(crate) use self::wrapper::{SpannedText, Start};
pub use self::yaml_snippet::{is_yaml, yaml_snippet};

use crate::audit::redact::redact_text;
use crate::error_excerpt::LineIndex;
use crate::limits::ADOPT_FILE_BYTES_MAX;
use crate::report::{ConfigError, ErrorKind, Origin};
use crate::text::harmless;

/// A configuration of an MCP client, with the servers in it.
#[derive(Debug)]
pub struct File<'a> {
    /// The text.
    pub(crate) text: &'a str,
    /// The servers, in the order of the text.
    pub servers: Vec<ClientServer>,
}

/// One change to a text: what stands in the range gives way to the new text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// In bytes.
    pub range: Range<usize>,
    /// What comes there.
    pub text: String,
}

impl<'a> File<'a> {
    /// Finds the servers in a configuration. Of a larger file than [`ADOPT_FILE_BYTES_MAX`], one byte
    /// more is enough.
    ///
    /// The path is named in the error. All that does not end in `.toml` is JSON, with comments and trailing commas.
    pub fn read(path: &str, bytes: &'a [u8]) -> Result<Self, Box<ConfigError>> {
        let hint = "correct it, or name the other files; this one is as it was";
        let source = SourceText::check(path, bytes, hint)?;
        let servers = match path.to_ascii_lowercase().ends_with(".toml") {
            true => client_toml::servers(source.text).map_err(|wrong| source.toml_error(&wrong))?,
            false => client_json::servers(source.text).map_err(|wrong| source.json_error(wrong))?,
        };
        Ok(Self { text: source.text, servers })
    }

    /// The changes that put the wrapper in front of those servers that have none, and that bring the wrappers that
    /// are there up to date, where they are wanted.
    pub fn adopt(
        &self,
        wrapper: &Wrapper<'_>,
        wanted: &dyn Fn(&ClientServer) -> bool,
    ) -> Vec<Edit> {
        let all = self.servers.iter().filter(|server| wanted(server));
        self.sorted(all.flat_map(|server| server.wrap(self.text, wrapper)))
    }

    /// The changes that take the wrapper away from those servers that have one and are wanted.
    pub fn undo(&self, wanted: &dyn Fn(&ClientServer) -> bool) -> Vec<Edit> {
        let all = self.servers.iter().filter(|server| wanted(server) && !server.debugged);
        self.sorted(all.flat_map(|server| server.unwrap(self.text)))
    }

    /// The text with the changes made.
    pub fn with(&self, edits: &[Edit]) -> String {
        apply(self.text, edits)
    }

    /// The changes as people read them, line by line: safe to print, and without the secrets that
    /// stand in and around the changed lines.
    pub fn diff(&self, edits: &[Edit]) -> Vec<DiffLine> {
        let (text, edits) = diff::without_secrets(self.text, &self.servers, edits);
        diff::lines(&text, &edits)
    }

    /// Splices in the order of the text. Where the same server is found twice, once counts.
    fn sorted(&self, edits: impl Iterator<Item = Edit>) -> Vec<Edit> {
        let mut edits: Vec<Edit> = edits.collect();
        edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
        edits.dedup();
        debug_assert!(edits.is_sorted_by(|a, b| a.range.end <= b.range.start), "{edits:?}");
        edits
    }
}

/// The text of a file that is neither too large nor something else, and what its errors say.
struct SourceText<'p, 'a> {
    path: &'p str,
    text: &'a str,
    hint: &'p str,
}

impl<'p, 'a> SourceText<'p, 'a> {
    fn check(path: &'p str, bytes: &'a [u8], hint: &'p str) -> Result<Self, Box<ConfigError>> {
        if bytes.len() > ADOPT_FILE_BYTES_MAX {
            let mib = ADOPT_FILE_BYTES_MAX / 1024 / 1024;
            let message = format!("the file is larger than {mib}MiB");
            return Err(Box::new(error_at(path, ErrorKind::TooLarge, message, None, hint)));
        }
        let text = std::str::from_utf8(bytes).map_err(|wrong| {
            let known = String::from_utf8_lossy(&bytes[..wrong.valid_up_to()]);
            let excerpt_of = Some((&*known, known.len()..known.len()));
            let message = "the file is not UTF-8 text from here on".to_owned();
            Box::new(error_at(path, ErrorKind::Encoding, message, excerpt_of, hint))
        })?;
        Ok(Self { path, text, hint })
    }

    fn error(&self, message: String, span: Range<usize>) -> Box<ConfigError> {
        let excerpt_of = Some((self.text, span));
        Box::new(error_at(self.path, ErrorKind::Syntax, message, excerpt_of, self.hint))
    }

    fn json_error(&self, wrong: jsonc::SyntaxError) -> Box<ConfigError> {
        self.error(wrong.message.to_owned(), wrong.at..wrong.at + 1)
    }

    fn toml_error(&self, wrong: &toml_edit::TomlError) -> Box<ConfigError> {
        let message = harmless(wrong.message()).replace('\n', "; ");
        self.error(message, wrong.span().unwrap_or(0..0))
    }
}

/// An error in a file, with its line where that is no secret.
pub(crate) fn error_at(
    path: &str,
    kind: ErrorKind,
    message: String,
    excerpt_of: Option<(&str, Range<usize>)>,
    hint: &str,
) -> ConfigError {
    let (line, column, excerpt) = match excerpt_of {
        Some((text, span)) => {
            let (line, column, excerpt) = LineIndex::new(text).locate(&span);
            // The line of a mistake can be that of a password.
            let is_safe = redact_text(&excerpt.text) == excerpt.text;
            (line, column, is_safe.then_some(excerpt))
        }
        None => (1, 1, None),
    };
    let origin = Origin::File { path: harmless(path), line, column };
    ConfigError { kind, message, origin, excerpt, hint: Some(hint.to_owned()) }
}

fn apply(text: &str, edits: &[Edit]) -> String {
    let mut changed = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        changed.push_str(&text[done..edit.range.start]);
        changed.push_str(&edit.text);
        done = edit.range.end;
    }
    changed.push_str(&text[done..]);
    changed
}

#[cfg(test)]
mod tests;
