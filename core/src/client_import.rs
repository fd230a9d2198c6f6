//! Owns the import of a client's configuration file: its entries become servers of the gateway. Driven by
//! `afresh gateway`. Never reads a file: the caller hands over the contents, and [`adopt`](crate::adopt) finds the
//! entries.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use crate::address::{is_header_name, url_host};
use crate::adopt::entry_fields::{EntryField, EntryStyle, EntryValue};
use crate::adopt::{ClientServer, File, SpannedText, Start, error_at, names_afresh};
use crate::audit::redact::redact_args;
use crate::gateway::OWN_NAME;
use crate::gateway::backend::{Backend, HttpServer, Prefix, Share, StdioServer, Transport};
use crate::gateway::variables::{Style, VariableScope};
use crate::limits::{
    CONFIG_DURATION_MAX, CONFIG_ERRORS_MAX, NAME_CHARS_MAX, SERVER_IN_FLIGHT_MAX, SERVERS_MAX,
};
use crate::report::{ConfigError, ErrorKind};
use crate::text::harmless;
use crate::trust::{Accepts, TrustRequest};

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
    /// Which of its servers the user has accepted; all of a file that the user has named.
    pub accepts: Accepts<'a>,
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
    /// Servers that the user has not accepted.
    pub untrusted: Vec<TrustRequest>,
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

/// The first of these files that gives a server, be it one that is not trusted, with its path; none where there is none. They are
/// [`import_candidates`](crate::client_file_paths::import_candidates) as far as they are there, with what is in them. One that cannot be read is an error.
pub fn find<'a>(
    files: &'a [(String, Vec<u8>)],
    context: &Context<'_>,
) -> Result<Option<(&'a str, Import)>, Vec<ConfigError>> {
    for (path, bytes) in files {
        let import = read_any(path, bytes, context)?;
        if !(import.servers.is_empty() && import.untrusted.is_empty()) {
            return Ok(Some((path, import)));
        }
    }
    Ok(None)
}

/// What the servers of a file ask for, for this workspace; nothing where the file cannot be read. Files of other programs
/// need not be right. Of a name that stands there several times, each one is a request: programs differ in which of
/// them counts.
pub fn requests(path: &str, bytes: &[u8], workspace: &str) -> Vec<TrustRequest> {
    let Ok(file) = File::read(path, bytes) else { return Vec::new() };
    let is_ours = |server: &&ClientServer| server.project.as_deref().is_none_or(|p| p == workspace);
    let (chosen, _) = chosen(&file, workspace);
    let is_one = |server: &&ClientServer| {
        let of_name = file.servers.iter().filter(is_ours).filter(|its| its.name == server.name);
        of_name.count() == 1
    };
    let mut found: Vec<TrustRequest> = Vec::new();
    for server in file.servers.iter().filter(is_ours) {
        let counts = chosen.iter().any(|its| std::ptr::eq(*its, server));
        if server.disabled && counts && is_one(&server) {
            continue;
        }
        let request = trust_request(path, file.text, server);
        found.extend(request.filter(|request| !found.contains(request)));
        // One that is not looked at could be another one of a name that is accepted: none of the file is.
        if found.len() > SERVERS_MAX {
            return Vec::new();
        }
    }
    found
}

/// Whether the user has accepted the server that a file calls this and that is started by these words: all requests of
/// its name, and one for this very command.
pub fn accepts_command(
    requests: &[TrustRequest],
    server: &str,
    words: &[String],
    accepts: Accepts<'_>,
) -> bool {
    let (name, command) = (request_name(server), format!("command = {}", json!(words)));
    let mut named = requests.iter().filter(|request| request.name == name).peekable();
    named.peek().is_some()
        && named.clone().any(|request| request.lines.contains(&command))
        && named.all(accepts)
}

/// The name of the request for a server that a file calls this.
pub fn request_name(server: &str) -> String {
    format!("server.{}", tool_prefix(server))
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
        accepts: context.accepts,
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
    accepts: Accepts<'a>,
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
        let is_empty = self.import.servers.is_empty() && self.import.untrusted.is_empty();
        match (self.errors.is_empty(), is_empty && !self.left.is_empty()) {
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
            if self.import.servers.len() + self.import.untrusted.len() >= SERVERS_MAX {
                let message = format!("there are more than {SERVERS_MAX} servers");
                return self.error(ErrorKind::TooMany, message, &server.at, "remove some");
            }
            if server.disabled {
                self.note(&server.name, "is turned off there and left out");
                continue;
            }
            // Before a variable is filled in.
            if let Some(request) = trust_request(self.path, self.text, server)
                && !(self.accepts)(&request)
            {
                self.import.untrusted.push(request);
                continue;
            }
            let given = server.given.iter().collect();
            let Some(backend) = (EntryReader { reader: self, server, given }).backend() else {
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

/// The reading of one server: what its entry says, key by key, checked and filled in.
struct EntryReader<'r, 'a> {
    reader: &'r mut ImportReader<'a>,
    server: &'r ClientServer,
    /// What was not looked at yet.
    given: Vec<&'r EntryField>,
}

/// Keys that change nothing here: they are about how a client shows or asks. A server has all variables of afresh, so
/// that `env_vars` adds nothing.
const SILENT: &[&str] = &[
    "type",
    "enabled",
    "disabled",
    "description",
    "version",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "required",
    "env_vars",
];

/// The keys of a URL, as clients call it.
const URL_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

impl<'r> EntryReader<'r, '_> {
    /// None where it is left out, or where something is wrong with it.
    fn backend(mut self) -> Option<Backend> {
        let errors = self.reader.errors.len();
        let transport = match self.server.start() {
            Start::Odd(why) => {
                let message = format!("server `{}` cannot be taken: {why}", self.shown());
                return self.error(ErrorKind::BadValue, message, "correct it, or turn it off");
            }
            Start::Command { words, .. } if is_gateway(&words) => {
                self.note("is `afresh gateway` itself and left out");
                return None;
            }
            Start::Command { words, flags } => {
                let flags = without_name(&flags);
                if !flags.is_empty() {
                    let flags = harmless(&redact_args(&flags).join(" "));
                    self.note(&format!(
                        "is behind `afresh mcp` there, whose `{flags}` is not taken over: say it in \
                         `[server.NAME]`"
                    ));
                }
                Transport::Stdio(Box::new(self.stdio(&words)))
            }
            Start::Remote => Transport::Http(self.http()?),
        };
        let mut allow = self.list(&["enabled_tools", "includeTools"]);
        // Copilot's list; elsewhere the key may be something else.
        let is_list = |given: &&EntryField| {
            given.key == "tools" && matches!(given.value, EntryValue::List(_))
        };
        if self.given.iter().any(is_list) {
            allow =
                [allow, self.list(&["tools"])].into_iter().flatten().reduce(|a, b| [a, b].concat());
        }
        let backend = Backend {
            name: self.name()?,
            pin: transport.usual_pin(),
            transport,
            prefix: Prefix::Name,
            allow,
            deny: self
                .list(&["disabled_tools", "disabledTools", "excludeTools"])
                .unwrap_or_default(),
            share: Share::All,
            hide_when_down: false,
            call_timeout: self.seconds("tool_timeout_sec"),
            in_flight_max: SERVER_IN_FLIGHT_MAX,
        };
        if errors != self.reader.errors.len() {
            return None;
        }
        let mut rest: Vec<&str> = self.given.iter().map(|given| given.key.as_str()).collect();
        rest.dedup();
        for key in rest.into_iter().filter(|key| !SILENT.contains(key)) {
            self.note(&format!("has `{}`, which is passed over", harmless(key)));
        }
        Some(backend)
    }

    /// A name that tools can begin with.
    fn name(&mut self) -> Option<String> {
        let given = &self.server.name;
        let name = tool_prefix(given);
        if !(1..=NAME_CHARS_MAX).contains(&name.len()) {
            let message = format!("`{}` is no name for a server", self.shown());
            let hint = format!("a name has at least one character, and at most {NAME_CHARS_MAX}");
            return self.error(ErrorKind::BadValue, message, &hint);
        }
        if name != *given {
            self.note(&format!("is called `{name}` here"));
        }
        Some(name)
    }

    fn stdio(&mut self, words: &[&SpannedText]) -> StdioServer {
        let has_args = !self.take("args").is_empty();
        let mut command = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let written = &self.reader.text[word.range.clone()];
            if word.text.is_empty() && !matches!(written, "\"\"" | "''") {
                let message = format!("an argument of server `{}` is no text", self.shown());
                let hint = "put it in quotes";
                self.reader.error(ErrorKind::WrongType, message, &word.range, hint);
                continue;
            }
            let key = if index > 0 && has_args { "args" } else { "command" };
            command.extend(self.fill(key, &word.text, &word.range));
        }
        self.take("command");
        StdioServer {
            command,
            env: [self.pairs("env"), self.pairs("environment")].concat(),
            cwd: self.one("cwd").map(PathBuf::from),
            env_file: self.one("envFile").map(PathBuf::from),
            ..self.reader.usual.clone()
        }
    }

    fn http(&mut self) -> Option<HttpServer> {
        let errors = self.reader.errors.len();
        let kind = self.one("type");
        let place = |key| self.given.iter().find(|given| given.key == key);
        let at = URL_KEYS.into_iter().find_map(place).map_or(&self.server.at, |given| &given.at);
        let url = URL_KEYS.into_iter().find_map(|key| self.one(key));
        let mut headers = [self.pairs("headers"), self.pairs("http_headers")].concat();
        for given in self.take("env_http_headers") {
            if let (Some(name), EntryValue::Text(variable)) = (given.name.clone(), &given.value) {
                let value = self.variable("env_http_headers", variable, &given.at);
                headers.extend(value.map(|value| (name, value)));
            }
        }
        for given in self.take("bearer_token_env_var") {
            if let EntryValue::Text(variable) = &given.value {
                let token = self.variable("bearer_token_env_var", variable, &given.at);
                let header = |token| ("Authorization".to_owned(), format!("Bearer {token}"));
                headers.extend(token.map(header));
            }
        }
        let is_bad = |(name, value): &(String, String)| {
            !is_header_name(name) || value.contains(char::is_control)
        };
        if headers.iter().any(is_bad) {
            let message = format!("server `{}` has a header that cannot be sent", self.shown());
            let hint = "look at its headers, and at the variables in them";
            self.error::<()>(ErrorKind::BadValue, message, hint);
        }
        let Some(url) = url.filter(|url| url_host(url).is_some()) else {
            // A variable that is missing was named.
            if errors == self.reader.errors.len() {
                let message = format!(
                    "server `{}` has no URL that begins with `http://` or `https://`",
                    self.shown()
                );
                let hint = "add `url`, without a name or password in it";
                self.reader.error(ErrorKind::BadValue, message, at, hint);
            }
            return None;
        };
        Some(HttpServer { url, headers, sse: (kind.as_deref() == Some("sse")).then_some(true) })
    }

    /// What stands under a key; it counts as looked at.
    fn take(&mut self, key: &str) -> Vec<&'r EntryField> {
        self.given.extract_if(.., |given| given.key == key).collect()
    }

    /// The one text of a key, filled in.
    fn one(&mut self, key: &'static str) -> Option<String> {
        let given = self.take(key).into_iter().next()?;
        match &given.value {
            EntryValue::Text(text) if given.name.is_none() => self.fill(key, text, &given.at),
            _ => self.misfit(key, "a text", &given.at),
        }
    }

    /// The texts below a key, filled in.
    fn pairs(&mut self, key: &'static str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for given in self.take(key) {
            let value = match (&given.name, &given.value) {
                (Some(name), EntryValue::Text(text)) => self
                    .fill(&format!("{key}.{name}"), text, &given.at)
                    .map(|value| (name.clone(), value)),
                _ => self.misfit(key, "an object of texts", &given.at),
            };
            pairs.extend(value);
        }
        pairs
    }

    /// What is in the lists of these keys; none where there is no list.
    fn list(&mut self, keys: &[&'static str]) -> Option<Vec<String>> {
        let mut all: Option<Vec<String>> = None;
        for key in keys {
            for given in self.take(key) {
                let items = match &given.value {
                    EntryValue::List(items) => Some(items),
                    _ => self.misfit(key, "a list of texts", &given.at),
                };
                if let Some(items) = items {
                    all.get_or_insert_default().extend(items.iter().cloned());
                }
            }
        }
        all
    }

    fn seconds(&mut self, key: &'static str) -> Option<Duration> {
        let given = self.take(key).into_iter().next()?;
        let number = match &given.value {
            EntryValue::Text(text) => text.parse::<f64>().ok(),
            _ => None,
        };
        let Some(time) = number.and_then(|number| Duration::try_from_secs_f64(number).ok()) else {
            return self.misfit(key, "a number of seconds", &given.at);
        };
        Some(time.min(CONFIG_DURATION_MAX)).filter(|time| !time.is_zero())
    }

    fn fill(&mut self, key: &str, text: &str, at: &Range<usize>) -> Option<String> {
        let style = match self.server.client {
            EntryStyle::Editor => Style::Braces,
            EntryStyle::Opencode => Style::Opencode,
            EntryStyle::Codex => Style::Never,
        };
        match self.reader.scope.expand(text, style) {
            Ok(text) if text.contains('\0') => {
                self.refuse(ErrorKind::BadValue, key, "has a NUL byte", at, "remove it")
            }
            Ok(text) => Some(text),
            Err(gap) => {
                let (what, hint) = (harmless(&gap.to_string()), harmless(&gap.hint()));
                self.refuse(ErrorKind::Missing, key, &what, at, &hint)
            }
        }
    }

    /// The value of a variable that a key names.
    fn variable(&mut self, key: &str, name: &str, at: &Range<usize>) -> Option<String> {
        if let Some(value) = self.reader.scope.variable(name) {
            return Some(value.to_owned());
        }
        let name = harmless(name);
        let what = format!("needs the variable `{name}`, which is not set");
        let hint = format!("set `{name}` where `afresh gateway` is started");
        self.refuse(ErrorKind::Missing, key, &what, at, &hint)
    }

    fn misfit<T>(&mut self, key: &str, wanted: &str, at: &Range<usize>) -> Option<T> {
        let (what, hint) = (format!("must be {wanted}"), "correct it, or remove it");
        self.refuse(ErrorKind::WrongType, key, &what, at, hint)
    }

    /// An error about a key of the server, in place of its value.
    fn refuse<T>(
        &mut self,
        kind: ErrorKind,
        key: &str,
        what: &str,
        at: &Range<usize>,
        hint: &str,
    ) -> Option<T> {
        let message = format!("`{}` of server `{}` {what}", harmless(key), self.shown());
        self.reader.error(kind, message, at, hint);
        None
    }

    /// An error about the server as a whole.
    fn error<T>(&mut self, kind: ErrorKind, message: String, hint: &str) -> Option<T> {
        self.reader.error(kind, message, &self.server.at, hint);
        None
    }

    fn note(&mut self, what: &str) {
        self.reader.note(&self.server.name, what);
    }

    fn shown(&self) -> String {
        harmless(&self.server.name)
    }
}

/// What a server asks for, with variables as they are written; none where it cannot be taken anyway.
fn trust_request(path: &str, text: &str, server: &ClientServer) -> Option<TrustRequest> {
    let mut request = TrustRequest::new(request_name(&server.name), path);
    if tool_prefix(&server.name) != server.name {
        request.push("name", &json!(server.name));
    }
    match server.start() {
        Start::Command { words, .. } if !is_gateway(&words) => {
            let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
            request.push("command", &json!(words));
        }
        Start::Remote => {}
        Start::Command { .. } | Start::Odd(_) => return None,
    }
    for EntryField { key, name, value, at } in &server.given {
        let value = match value {
            EntryValue::Text(text) => json!(text),
            EntryValue::List(items) => json!(items),
            EntryValue::Other => json!(text.get(at.clone())),
        };
        match name {
            _ if matches!(key.as_str(), "command" | "args") => {}
            Some(name) => request.push(&format!("{key}.{name}"), &value),
            None => request.push(key, &value),
        }
    }
    Some(request)
}

/// A server's name, of characters that names of tools can have.
fn tool_prefix(given: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let mut name: String = given.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if name.starts_with('-') {
        name.replace_range(..1, "_");
    }
    if name.eq_ignore_ascii_case(OWN_NAME) {
        name.push('_');
    }
    name
}

/// Whether a command is this very program in front of everything, be it by way of another: it would start
/// itself without end.
fn is_gateway(words: &[&SpannedText]) -> bool {
    let Some(at) = words.iter().position(|word| names_afresh(&word.text)) else { return false };
    let rest = words[at + 1..].iter().skip_while(|word| word.text == "--");
    let own = rest.take_while(|word| word.text != "--");
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
