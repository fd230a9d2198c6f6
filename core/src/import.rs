//! Owns the import of a client's configuration file: its entries become servers of the gateway. Driven by
//! `afresh gateway`. Never reads a file: the caller hands over the contents, and [`adopt`](crate::adopt) finds the
//! entries.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use crate::address::{is_header_name, url_host};
use crate::adopt::client_entry::{EntryField, EntryStyle, EntryValue};
use crate::adopt::{ClientServer, File, SpannedText, Start, error_at, is_afresh};
use crate::audit::redact::redact_args;
use crate::gateway::OWN_NAME;
use crate::gateway::backend::{Backend, HttpServer, Prefix, Share, StdioServer, Transport};
use crate::gateway::variables::{Style, VariableScope};
use crate::limits::{
    CONFIG_DURATION_MAX, CONFIG_ERRORS_MAX, NAME_CHARS_MAX, SERVER_IN_FLIGHT_MAX, SERVERS_MAX,
};
use crate::report::{ConfigError, ErrorKind};
use crate::text::harmless;

/// What an import needs besides the file.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The environment.
    pub env: &'a [(String, String)],
    /// The workspace, which is `${workspaceFolder}`.
    pub workspace: &'a str,
    /// A server on stdio without anything of its own:
    /// `Config::stdio_server`.
    pub usual: &'a StdioServer,
}

/// What an import gives.
#[derive(Clone, Default, PartialEq)]
pub struct Import {
    /// The servers, in the order of the file. Each has its own name.
    pub servers: Vec<Backend>,
    /// What a person should know, one sentence each: what was left out or is called something else.
    pub notes: Vec<String>,
    /// Servers that cannot be taken, each with why. It is in `notes` too.
    pub left_out: Vec<(String, String)>,
}

impl fmt::Debug for Import {
    /// Servers by their names alone: variables, headers and arguments hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        f.debug_struct("Import").field("servers", &servers).field("notes", &self.notes).finish()
    }
}

/// Reads a file that was named. One without a server that can be taken is an error.
pub fn read(path: &str, bytes: &[u8], context: &Context<'_>) -> Result<Import, Vec<ConfigError>> {
    let import = read_any(path, bytes, context)?;
    if import.servers.is_empty() {
        let message = match import.notes.is_empty() {
            true => "there are no MCP servers in this file".to_owned(),
            false => format!("no server is left of this file: {}", import.notes.join("; ")),
        };
        let hint = "name a file with `mcpServers`, `servers`, `mcp` or `[mcp_servers.NAME]`";
        return Err(vec![error_at(path, ErrorKind::Missing, message, None, hint)]);
    }
    Ok(import)
}

/// The first of these files that gives a server, with its path; none where there is none. They are
/// [`import_candidates`](crate::client_files::import_candidates) as far as they are there, with what is in them. One that cannot be read is an error.
pub fn find<'a>(
    files: &'a [(String, Vec<u8>)],
    context: &Context<'_>,
) -> Result<Option<(&'a str, Import)>, Vec<ConfigError>> {
    for (path, bytes) in files {
        let import = read_any(path, bytes, context)?;
        if !import.servers.is_empty() {
            return Ok(Some((path, import)));
        }
    }
    Ok(None)
}

fn read_any(path: &str, bytes: &[u8], context: &Context<'_>) -> Result<Import, Vec<ConfigError>> {
    let file = File::read(path, bytes).map_err(|mut error| {
        error.hint = Some("correct it, or name another file with `--from`".to_owned());
        vec![*error]
    })?;
    let scope = VariableScope { env: context.env, workspace: context.workspace };
    let mut reader = ImportReader {
        path,
        text: file.text,
        scope,
        usual: context.usual,
        import: Import::default(),
        errors: Vec::new(),
        left: Vec::new(),
    };
    let (servers, twice) = chosen(&file, context.workspace);
    for name in twice {
        reader.note(name, "stands there twice: the last one counts");
    }
    reader.servers(&servers);
    reader.done()
}

/// The servers for everybody and those of this project, which win; those of other projects are theirs. And the names
/// that stand twice in one place.
fn chosen<'a>(file: &'a File<'_>, workspace: &str) -> (Vec<&'a ClientServer>, Vec<&'a str>) {
    let mut twice = Vec::new();
    let is_ours = |server: &&ClientServer| server.project.as_deref().is_none_or(|p| p == workspace);
    let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all: Vec<&ClientServer> = Vec::new();
    for server in file.servers.iter().filter(is_ours) {
        match by_name.get(server.name.as_str()) {
            Some(at) if all[*at].project.is_some() && server.project.is_none() => {}
            Some(at) => {
                if all[*at].project == server.project {
                    twice.push(server.name.as_str());
                }
                all[*at] = server;
            }
            None => {
                by_name.insert(&server.name, all.len());
                all.push(server);
            }
        }
    }
    (all, twice)
}

struct ImportReader<'a> {
    path: &'a str,
    text: &'a str,
    scope: VariableScope<'a>,
    usual: &'a StdioServer,
    import: Import,
    /// Of the server that is being read, or of all of them together.
    errors: Vec<ConfigError>,
    /// Of servers that are left out.
    left: Vec<ConfigError>,
}

impl ImportReader<'_> {
    /// What came of it. One bad server does not take the others with it: this file is for another program, which
    /// may well be able to use it.
    fn done(self) -> Result<Import, Vec<ConfigError>> {
        match (self.errors.is_empty(), self.import.servers.is_empty() && !self.left.is_empty()) {
            (false, _) => Err(self.errors),
            (true, true) => Err(self.left),
            (true, false) => Ok(self.import),
        }
    }

    /// Leaves a server out for what is wrong with it.
    fn leave_out(&mut self, server: &ClientServer) {
        let errors = std::mem::take(&mut self.errors);
        let Some(first) = errors.first() else { return };
        let hint = first.hint.as_deref().unwrap_or("correct it");
        let why = format!("{}; {hint}", first.message);
        self.note(&server.name, &format!("is left out: {why}"));
        self.import.left_out.push((harmless(&server.name), why));
        let room = CONFIG_ERRORS_MAX.saturating_sub(self.left.len());
        self.left.extend(errors.into_iter().take(room));
    }

    fn servers(&mut self, servers: &[&ClientServer]) {
        let mut names: BTreeMap<String, &str> = BTreeMap::new();
        for server in servers {
            if self.import.servers.len() >= SERVERS_MAX {
                let message = format!("there are more than {SERVERS_MAX} servers");
                return self.error(ErrorKind::TooMany, message, &server.at, "remove some");
            }
            if server.disabled {
                self.note(&server.name, "is turned off there and left out");
                continue;
            }
            let Some(backend) = self.server(server) else {
                self.leave_out(server);
                continue;
            };
            if let Some(other) = names.insert(backend.name.to_ascii_lowercase(), &server.name) {
                let (one, two) = (harmless(other), harmless(&server.name));
                let message = format!("`{one}` and `{two}` are both `{}` here", backend.name);
                self.error(ErrorKind::Conflict, message, &server.at, "give one another name");
                self.leave_out(server);
                continue;
            }
            self.import.servers.push(backend);
        }
    }

    /// None where it is left out, or where something is wrong with it.
    fn server(&mut self, server: &ClientServer) -> Option<Backend> {
        let errors = self.errors.len();
        let mut entry = ImportEntry::new(server);
        let transport = match server.start() {
            Start::Odd(why) => {
                let message = format!("server `{}` cannot be taken: {why}", harmless(&server.name));
                self.error(ErrorKind::BadValue, message, &server.at, "correct it, or turn it off");
                return None;
            }
            Start::Command { words, .. } if is_gateway(&words) => {
                self.note(&server.name, "is `afresh gateway` itself and left out");
                return None;
            }
            Start::Command { words, flags } => {
                let flags = without_name(&flags);
                if !flags.is_empty() {
                    let flags = harmless(&redact_args(&flags).join(" "));
                    let what = format!(
                        "is behind `afresh mcp` there, whose `{flags}` is not taken over: say it in \
                         `[server.NAME]`"
                    );
                    self.note(&server.name, &what);
                }
                Transport::Stdio(Box::new(self.stdio(&mut entry, &words)))
            }
            Start::Remote => Transport::Http(self.http(&mut entry)?),
        };
        let name = self.name(server)?;
        let backend = Backend {
            name,
            transport,
            prefix: Prefix::Name,
            allow: self.list(&mut entry, &["enabled_tools", "includeTools"]),
            deny: (self.list(&mut entry, &["disabled_tools", "disabledTools", "excludeTools"]))
                .unwrap_or_default(),
            share: Share::All,
            hide_when_down: false,
            call_timeout: self.seconds(&mut entry, "tool_timeout_sec"),
            in_flight_max: SERVER_IN_FLIGHT_MAX,
        };
        if errors != self.errors.len() {
            return None;
        }
        for key in entry.rest() {
            let what = format!("has `{}`, which is passed over", harmless(&key));
            self.note(&server.name, &what);
        }
        Some(backend)
    }

    /// A name that tools can begin with.
    fn name(&mut self, server: &ClientServer) -> Option<String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let mut name: String = server.name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
        if name.starts_with('-') {
            name.replace_range(..1, "_");
        }
        if name.eq_ignore_ascii_case(OWN_NAME) {
            name.push('_');
        }
        if !(1..=NAME_CHARS_MAX).contains(&name.len()) {
            let message = format!("`{}` is no name for a server", harmless(&server.name));
            let hint = format!("a name has at least one character, and at most {NAME_CHARS_MAX}");
            self.error(ErrorKind::BadValue, message, &server.at, &hint);
            return None;
        }
        if name != server.name {
            self.note(&server.name, &format!("is called `{name}` here"));
        }
        Some(name)
    }

    fn stdio(&mut self, entry: &mut ImportEntry<'_>, words: &[&SpannedText]) -> StdioServer {
        let has_args = !entry.take("args").is_empty();
        let mut command = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let written = &self.text[word.range.clone()];
            if word.text.is_empty() && !matches!(written, "\"\"" | "''") {
                let message = format!("an argument of server `{}` is no text", entry.shown());
                self.error(ErrorKind::WrongType, message, &word.range, "put it in quotes");
                continue;
            }
            let key = if index > 0 && has_args { "args" } else { "command" };
            command.extend(self.fill(entry, key, &word.text, &word.range));
        }
        entry.take("command");
        let mut env = self.pairs(entry, "env");
        env.extend(self.pairs(entry, "environment"));
        StdioServer {
            command,
            env,
            cwd: self.one(entry, "cwd").map(PathBuf::from),
            env_file: self.one(entry, "envFile").map(PathBuf::from),
            ..self.usual.clone()
        }
    }

    fn http(&mut self, entry: &mut ImportEntry<'_>) -> Option<HttpServer> {
        let errors = self.errors.len();
        let kind = self.one(entry, "type");
        let at = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|key| entry.place(key));
        let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|key| self.one(entry, key));
        let mut headers = self.pairs(entry, "headers");
        headers.extend(self.pairs(entry, "http_headers"));
        for given in entry.take("env_http_headers") {
            if let (Some(name), EntryValue::Text(variable)) = (given.name.clone(), &given.value) {
                let value = self.variable(entry, "env_http_headers", variable, &given.at);
                headers.extend(value.map(|value| (name, value)));
            }
        }
        for given in entry.take("bearer_token_env_var") {
            if let EntryValue::Text(variable) = &given.value {
                let token = self.variable(entry, "bearer_token_env_var", variable, &given.at);
                let header = |token| ("Authorization".to_owned(), format!("Bearer {token}"));
                headers.extend(token.map(header));
            }
        }
        if headers
            .iter()
            .any(|(name, value)| !is_header_name(name) || value.contains(char::is_control))
        {
            let message = format!("server `{}` has a header that cannot be sent", entry.shown());
            let hint = "look at its headers, and at the variables in them";
            self.error(ErrorKind::BadValue, message, &entry.server.at, hint);
        }
        let Some(url) = url.filter(|url| url_host(url).is_some()) else {
            // A variable that is missing was named.
            if errors == self.errors.len() {
                let message = format!(
                    "server `{}` has no URL that begins with `http://` or `https://`",
                    entry.shown()
                );
                let hint = "add `url`, without a name or password in it";
                self.error(
                    ErrorKind::BadValue,
                    message,
                    &at.unwrap_or(entry.server.at.clone()),
                    hint,
                );
            }
            return None;
        };
        Some(HttpServer { url, headers, sse: (kind.as_deref() == Some("sse")).then_some(true) })
    }

    fn note(&mut self, name: &str, what: &str) {
        self.import.notes.push(format!("server `{}` {what}", harmless(name)));
    }

    fn error(&mut self, kind: ErrorKind, message: String, at: &Range<usize>, hint: &str) {
        if self.errors.len() < CONFIG_ERRORS_MAX {
            let excerpt_of = Some((self.text, at.clone()));
            self.errors.push(error_at(self.path, kind, message, excerpt_of, hint));
        }
    }
}

/// Whether a command is this very program in front of everything, be it by way of another: it would start
/// itself without end.
fn is_gateway(words: &[&SpannedText]) -> bool {
    let Some(at) = words.iter().position(|word| is_afresh(&word.text)) else { return false };
    let own = words[at + 1..].iter().take_while(|word| word.text != "--");
    own.map(|word| word.text.as_str()).any(|word| word == "gateway")
}

/// The flags of `afresh mcp` without the name, which the server has anyway.
fn without_name(flags: &[&SpannedText]) -> Vec<String> {
    let mut rest = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match flag.text.as_str() {
            "--name" => {
                flags.next();
            }
            text if text.starts_with("--name=") => {}
            text => rest.push(text.to_owned()),
        }
    }
    rest
}

#[cfg(test)]
mod tests;

/// What an entry says, and what of that was looked at.
struct ImportEntry<'a> {
    server: &'a ClientServer,
    given: Vec<&'a EntryField>,
}

/// Keys that change nothing here: they are about how a client shows or asks.
const SILENT: [&str; 10] = [
    "type",
    "enabled",
    "disabled",
    "description",
    "version",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "required",
    // A server has all variables of afresh.
    "env_vars",
];

impl<'a> ImportEntry<'a> {
    fn new(server: &'a ClientServer) -> Self {
        Self { server, given: server.given.iter().collect() }
    }

    /// What stands under a key; it counts as looked at.
    fn take(&mut self, key: &str) -> Vec<&'a EntryField> {
        let (taken, rest) = self.given.drain(..).partition(|given| given.key == key);
        self.given = rest;
        taken
    }

    fn place(&self, key: &str) -> Option<Range<usize>> {
        self.given.iter().find(|given| given.key == key).map(|given| given.at.clone())
    }

    /// The keys that were not read.
    fn rest(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.given.iter().map(|given| given.key.clone()).collect();
        keys.dedup();
        keys.retain(|key| !SILENT.contains(&key.as_str()));
        keys
    }

    fn shown(&self) -> String {
        harmless(&self.server.name)
    }
}

impl ImportReader<'_> {
    /// The one text of a key, filled in.
    fn one(&mut self, entry: &mut ImportEntry<'_>, key: &'static str) -> Option<String> {
        let given = entry.take(key).into_iter().next()?;
        match &given.value {
            EntryValue::Text(text) if given.name.is_none() => {
                self.fill(entry, key, text, &given.at)
            }
            _ => {
                self.misfit(entry, key, "a text", &given.at);
                None
            }
        }
    }

    /// The texts below a key, filled in.
    fn pairs(&mut self, entry: &mut ImportEntry<'_>, key: &'static str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for given in entry.take(key) {
            let (Some(name), EntryValue::Text(text)) = (&given.name, &given.value) else {
                self.misfit(entry, key, "an object of texts", &given.at);
                continue;
            };
            let shown = format!("{key}.{name}");
            let value = self.fill(entry, &shown, text, &given.at);
            pairs.extend(value.map(|value| (name.clone(), value)));
        }
        pairs
    }

    /// What is in the lists of these keys; none where there is no list.
    fn list(&mut self, entry: &mut ImportEntry<'_>, keys: &[&'static str]) -> Option<Vec<String>> {
        let mut all: Option<Vec<String>> = None;
        for key in keys {
            for given in entry.take(key) {
                match &given.value {
                    EntryValue::List(items) => {
                        all.get_or_insert_default().extend(items.iter().cloned());
                    }
                    _ => self.misfit(entry, key, "a list of texts", &given.at),
                }
            }
        }
        all
    }

    fn seconds(&mut self, entry: &mut ImportEntry<'_>, key: &'static str) -> Option<Duration> {
        let given = entry.take(key).into_iter().next()?;
        let number = match &given.value {
            EntryValue::Text(text) => text.parse::<f64>().ok(),
            _ => None,
        };
        let time = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
        if time.is_none() {
            self.misfit(entry, key, "a number of seconds", &given.at);
        }
        time.map(|time| time.min(CONFIG_DURATION_MAX)).filter(|time| !time.is_zero())
    }

    fn fill(
        &mut self,
        entry: &ImportEntry<'_>,
        key: &str,
        text: &str,
        at: &Range<usize>,
    ) -> Option<String> {
        let style = match entry.server.client {
            EntryStyle::Editor => Style::Braces,
            EntryStyle::Opencode => Style::Opencode,
            EntryStyle::Codex => Style::Never,
        };
        match self.scope.expand(text, style) {
            Ok(text) if text.contains('\0') => {
                let message =
                    format!("`{}` of server `{}` has a NUL byte", harmless(key), entry.shown());
                self.error(ErrorKind::BadValue, message, at, "remove it");
                None
            }
            Ok(text) => Some(text),
            Err(gap) => {
                let gap_text = harmless(&gap.to_string());
                let message =
                    format!("`{}` of server `{}` {gap_text}", harmless(key), entry.shown());
                self.error(ErrorKind::Missing, message, at, &harmless(&gap.hint()));
                None
            }
        }
    }

    /// The value of a variable that a key names.
    fn variable(
        &mut self,
        entry: &ImportEntry<'_>,
        key: &str,
        name: &str,
        at: &Range<usize>,
    ) -> Option<String> {
        let value = self.scope.variable(name).map(str::to_owned);
        if value.is_none() {
            let name = harmless(name);
            let message = format!(
                "`{key}` of server `{}` needs the variable `{name}`, which is not set",
                entry.shown()
            );
            let hint = format!("set `{name}` where `afresh gateway` is started");
            self.error(ErrorKind::Missing, message, at, &hint);
        }
        value
    }

    fn misfit(&mut self, entry: &ImportEntry<'_>, key: &str, wanted: &str, at: &Range<usize>) {
        let message = format!("`{key}` of server `{}` must be {wanted}", entry.shown());
        self.error(ErrorKind::WrongType, message, at, "correct it, or remove it");
    }
}
