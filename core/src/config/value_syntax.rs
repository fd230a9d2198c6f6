//! Owns the kinds of values that keys take: which texts and items of files each accepts, and how it is described; and
//! the values, with the forms in which they are written; sizes are in `byte_size.rs`. Used by the readers. Never knows a key.

use core::net::SocketAddr;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml_edit::Item;

use super::byte_size::{SIZE_UNITS, parse_size};
use crate::address;
use crate::audit::redact::redact_text;
use crate::definition::{Dependency, Port, StopSignal, Until};
use crate::duration::{parse_duration, write_duration};
use crate::env_file::is_variable;
use crate::limits::{
    CONFIG_DURATION_MAX, CONFIG_LINE_CHARS_MAX, CONFIG_LIST_LEN_MAX, CONFIG_URL_BYTES_MAX,
    HEALTH_TIME_MIN, NAME_CHARS_MAX, TITLE_CHARS_MAX, TOKEN_CHARS_MIN,
};
use crate::report::ErrorKind;
use crate::suggest::nearest;
use crate::text::printable;

/// Which values a setting takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// `500ms`, `2s`, `1h30m`, at most [`CONFIG_DURATION_MAX`]; whole milliseconds count.
    Duration,
    /// The same, at least [`HEALTH_TIME_MIN`].
    Interval,
    /// A whole number in a range.
    Integer(RangeInclusive<i64>),
    /// A share from 0 up to so many percent, with or without the sign.
    Percent(u8),
    /// A number in a range.
    Float(RangeInclusive<f64>),
    /// `true` or `false`; outside of files also `1` or `0`.
    Bool,
    /// One of these words.
    Word(&'static [&'static str]),
    /// The path of a file.
    Path,
    /// A number of bytes with its unit, such as `16MiB`.
    Size(RangeInclusive<u64>),
    /// A few words on one line.
    Title,
    /// A URL that can be asked over HTTP.
    Url,
    /// `host:port`.
    Address,
    /// A name or an address of a host.
    Host,
    /// An address of this machine with its port, or nothing.
    Listen,
    /// The name of a signal, with or without its `SIG`.
    Signal,
    /// A URL that can be asked over HTTP, or one that is when its variables are filled in.
    UrlTemplate,
    /// An address with its port.
    Socket,
    /// The beginning of a name of a tool, or nothing.
    Prefix,
    /// The name of a variable.
    Variable,
    /// A text on one line, or nothing.
    Line,
    /// Texts that are not empty: names in which a `*` stands for any text, or paths. Outside of files with commas
    /// between them.
    Patterns,
    /// A program and its arguments.
    Command,
    /// Names of services.
    Names,
    /// Some of these words.
    Words(&'static [&'static str]),
    /// Any texts.
    Texts,
    /// Variables and their values.
    Variables,
    /// Headers of HTTP and their values.
    Headers,
    /// Names of services, or a table that says how far each has to be.
    Dependencies,
    /// A number, or `host:port`.
    Port,
    /// One field of a JSON answer and its value.
    JsonField,
    /// A secret, which no message quotes.
    Secret,
}

impl Kind {
    /// Reads the text of an environment variable, a flag or a string in a file.
    pub(super) fn parse(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Self::Duration => {
                let duration = parse_duration(text).ok()?;
                let millis = u64::try_from(duration.as_millis()).ok()?;
                (duration <= CONFIG_DURATION_MAX)
                    .then_some(Value::Duration(Duration::from_millis(millis)))
            }
            Self::Interval => Self::Duration
                .parse(text)
                .filter(|value| matches!(value, Value::Duration(time) if *time >= HEALTH_TIME_MIN)),
            Self::Integer(_) => self.integer(text.parse().ok()?),
            Self::Percent(_) => self.integer(text.strip_suffix('%').unwrap_or(text).parse().ok()?),
            Self::Float(_) => self.float(text.parse().ok()?),
            Self::Bool => match text {
                "true" | "1" => Some(Value::Bool(true)),
                "false" | "0" => Some(Value::Bool(false)),
                _ => None,
            },
            Self::Word(words) => {
                let word = words.iter().find(|word| **word == text)?;
                Some(Value::Word(word))
            }
            Self::Path => {
                let path = !text.is_empty() && !text.contains('\0');
                path.then(|| Value::Path(text.to_owned()))
            }
            Self::Size(range) => {
                parse_size(text).filter(|bytes| range.contains(bytes)).map(Value::Size)
            }
            Self::Patterns => {
                let all = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
                patterns(all.map(str::to_owned).collect())
            }
            Self::Signal => text.parse().ok().map(|signal: StopSignal| Value::Word(signal.name())),
            // Lists and tables come from files alone, and take no text.
            _ => self.takes_text(text).then(|| Value::Text(text.to_owned())),
        }
    }

    fn takes_text(&self, text: &str) -> bool {
        match self {
            Self::Title => {
                (1..=TITLE_CHARS_MAX).contains(&text.chars().count())
                    && !text.contains(char::is_control)
            }
            Self::Url => address::url_host(text).is_some(),
            Self::Address => address::host_and_port(text).is_some(),
            Self::Host => address::is_host(text),
            Self::Listen => text.is_empty() || address::loopback(text).is_some(),
            Self::UrlTemplate => {
                let is_open = text.contains('$') && !text.contains(char::is_control);
                is_open && text.len() <= CONFIG_URL_BYTES_MAX || Self::Url.takes_text(text)
            }
            Self::Socket => text.parse::<SocketAddr>().is_ok(),
            Self::Prefix => {
                let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
                text.len() <= NAME_CHARS_MAX && text.bytes().all(fits)
            }
            Self::Variable => is_variable(text),
            // It becomes an argument: one with a dash would be taken for a flag.
            Self::Line => {
                text.chars().count() <= CONFIG_LINE_CHARS_MAX
                    && !text.contains(char::is_control)
                    && !text.starts_with('-')
            }
            _ => false,
        }
    }

    /// The words that it takes, where it takes nothing else.
    pub(super) fn words(&self) -> Option<Vec<&'static str>> {
        match self {
            Self::Word(words) => Some(words.to_vec()),
            Self::Signal => Some(StopSignal::NAMES.to_vec()),
            _ => None,
        }
    }

    /// Why a text that may look good is not taken, and what to do instead.
    pub(super) fn refusal(&self, text: &str) -> Option<String> {
        let with_scheme = || address::url_host(&format!("http://{text}")).is_some();
        match self {
            Self::Socket => {
                Some("write an address with its port, such as `127.0.0.1:8808`".to_owned())
            }
            Self::UrlTemplate => Self::Url.refusal(text),
            Self::Listen if text.parse::<SocketAddr>().is_ok() => Some(
                "who reaches this address can stop and start your services, so it must be one that \
                 only this machine reaches: use `127.0.0.1:PORT`, and a tunnel from elsewhere"
                    .to_owned(),
            ),
            Self::Listen => Some("write an address, such as `127.0.0.1:7070`".to_owned()),
            Self::Url if text.contains('@') => {
                Some("a name and a password do not belong into a URL: send them in `headers`".to_owned())
            }
            Self::Url if !text.contains("://") && with_scheme() => {
                Some(format!("write `http://{}`", printable(text)))
            }
            _ => None,
        }
    }

    /// Reads an item of a file.
    pub(super) fn read_toml(&self, item: &Item) -> Result<Value, ErrorKind> {
        use toml_edit::Value as Toml;
        let value = match (self, item.as_value()) {
            (Self::Integer(_) | Self::Percent(_), Some(Toml::Integer(number))) => {
                self.integer(*number.value())
            }
            (Self::Float(_), Some(Toml::Integer(number))) => {
                i32::try_from(*number.value()).map_or(None, |number| self.float(number.into()))
            }
            (Self::Float(_), Some(Toml::Float(number))) => self.float(*number.value()),
            (Self::Patterns, Some(Toml::Array(items))) => {
                let all = items.iter().map(|item| item.as_str().map(str::to_owned));
                patterns(all.collect::<Option<_>>().ok_or(ErrorKind::WrongType)?)
            }
            (Self::Bool, Some(Toml::Boolean(value))) => Some(Value::Bool(*value.value())),
            (Self::Integer(_) | Self::Float(_) | Self::Bool | Self::Patterns, _) => {
                return Err(ErrorKind::WrongType);
            }
            (_, Some(Toml::String(text))) => self.parse(text.value()),
            _ => return Err(ErrorKind::WrongType),
        };
        value.ok_or(ErrorKind::BadValue)
    }

    fn integer(&self, number: i64) -> Option<Value> {
        match self {
            Self::Percent(max) => {
                u8::try_from(number).ok().filter(|number| number <= max).map(Value::Percent)
            }
            Self::Integer(range) => range.contains(&number).then_some(Value::Integer(number)),
            _ => None,
        }
    }

    /// Not a number and the infinities are outside every range.
    fn float(&self, number: f64) -> Option<Value> {
        let Self::Float(range) = self else { return None };
        range.contains(&number).then_some(Value::Float(number))
    }
}

impl fmt::Display for Kind {
    /// What a value must be, with its article.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration => {
                let days = CONFIG_DURATION_MAX.as_secs() / 86_400;
                write!(f, "a duration of at most {days}d")
            }
            Self::Integer(range) => {
                write!(f, "an integer from {} to {}", range.start(), range.end())
            }
            Self::Percent(max) => write!(f, "a percentage from 0 to {max}"),
            Self::Float(range) => {
                write!(f, "a number from {:?} to {:?}", range.start(), range.end())
            }
            Self::Bool => f.write_str("`true` or `false`"),
            Self::Word(_) | Self::Signal => {
                let words = self.words().unwrap_or_default();
                for (index, word) in words.iter().enumerate() {
                    let before = match index {
                        0 => "",
                        _ if index + 1 == words.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{before}`{word}`")?;
                }
                Ok(())
            }
            Self::Interval => {
                let (min, max) = (HEALTH_TIME_MIN.as_millis(), CONFIG_DURATION_MAX.as_secs());
                write!(f, "a duration from {min}ms to {}d", max / 86_400)
            }
            Self::Title => write!(f, "a text of one line, at most {TITLE_CHARS_MAX} characters"),
            Self::Url | Self::UrlTemplate => {
                f.write_str("a URL that begins with `http://` or `https://`")
            }
            Self::Address => f.write_str("an address such as `127.0.0.1:3000`"),
            Self::Host => f.write_str("the name or address of a host"),
            Self::Listen => {
                f.write_str("an address of this machine such as `127.0.0.1:7070`, or \"\"")
            }
            Self::Socket => f.write_str("an address such as `127.0.0.1:8808`"),
            Self::Prefix => write!(
                f,
                "a text of letters, digits, `_`, `-` and `.`, at most {NAME_CHARS_MAX}, or \"\""
            ),
            Self::Variable => f.write_str("the name of a variable"),
            Self::Line => {
                write!(
                    f,
                    "a text of one line, at most {CONFIG_LINE_CHARS_MAX} characters, without a `-` in front, or \"\""
                )
            }
            Self::Command | Self::Texts | Self::Patterns => f.write_str("a list of strings"),
            Self::Secret => write!(f, "a string of at least {TOKEN_CHARS_MIN} characters"),
            Self::Names => f.write_str("a list of names"),
            Self::Words(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                write!(f, "a list of {}", words.join(", "))
            }
            Self::Variables | Self::Headers => f.write_str("a table of strings"),
            Self::Dependencies => f.write_str("a list of names, or a table"),
            Self::Port => f.write_str("a port from 1 to 65535, or `\"host:port\"`"),
            Self::JsonField => f.write_str("a table with one field"),
            Self::Path => f.write_str("a path"),
            Self::Size(range) => {
                let (min, max) = (Value::Size(*range.start()), Value::Size(*range.end()));
                write!(f, "a size from {min} to {max}")
            }
        }
    }
}

fn patterns(all: Vec<String>) -> Option<Value> {
    let fits = |pattern: &String| !pattern.is_empty() && !pattern.contains(char::is_control);
    (all.len() <= CONFIG_LIST_LEN_MAX && all.iter().all(fits)).then_some(Value::List(all))
}

/// What to write instead of a value of the wrong kind.
///
/// `written` is the value as text, `form` writes a good one with the name before it, `example` is
/// one that always fits.
pub(super) fn value_hint(
    kind: &Kind,
    written: &str,
    form: impl Fn(&Value) -> String,
    example: &str,
) -> String {
    if let Some(reason) = kind.refusal(written) {
        return reason;
    }
    if let Some(words) = kind.words()
        && let Some(word) = nearest(written, words)
    {
        return format!("did you mean `{word}`?");
    }
    // The usual mistakes: quotes that are too many or missing, and a missing unit.
    let meant = (["", "s", "B"].iter())
        .find_map(|unit| kind.parse(&format!("{written}{unit}")))
        .filter(|_| !written.is_empty());
    match meant {
        Some(value) => format!("write `{}`", printable(&form(&value))),
        None => format!("for example `{example}`"),
    }
}

/// A value of a setting. Its `Display` is the form of environment variables and flags.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of `Kind::Duration` and `Kind::Interval`.
    Duration(Duration),
    /// Of `Kind::Integer`.
    Integer(i64),
    /// Of `Kind::Percent`.
    Percent(u8),
    /// Of `Kind::Float`.
    Float(f64),
    /// Of `Kind::Bool`.
    Bool(bool),
    /// Of `Kind::Word` and `Kind::Signal`.
    Word(&'static str),
    /// Of `Kind::Path`.
    Path(String),
    /// Of `Kind::Size`.
    Size(u64),
    /// Of `Kind::Patterns`, `Kind::Command`, `Kind::Names`, `Kind::Words` and `Kind::Texts`.
    List(Vec<String>),
    /// Of `Kind::Dependencies`.
    Dependencies(Vec<Dependency>),
    /// Of `Kind::Port`.
    Port(Port),
    /// Of `Kind::JsonField`: a path with dots, and the value there.
    JsonField((String, Json)),
    /// Of all others.
    Text(String),
}

impl Value {
    /// As it may be shown: a command can have a key in it.
    pub(super) fn without_secrets(&self) -> Self {
        match self {
            Self::Text(text) => Self::Text(redact_text(text).into_owned()),
            other => other.clone(),
        }
    }

    /// The value as JSON: a number, a boolean, a list, a table, or the text of the other forms.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Integer(number) => (*number).into(),
            Self::Percent(number) => (*number).into(),
            Self::Float(number) => (*number).into(),
            Self::Bool(value) => (*value).into(),
            Self::List(items) => items.clone().into(),
            Self::Dependencies(all) if all.iter().all(|one| one.until == Until::Ready) => {
                all.iter().map(|one| json!(one.name)).collect()
            }
            Self::Dependencies(all) => {
                let pair = |one: &Dependency| (one.name.clone(), json!(one.until.name()));
                Json::Object(all.iter().map(pair).collect())
            }
            Self::Port(Port { host, port }) => json!(address::join(host, *port)),
            Self::JsonField((path, value)) => json!({ path: value }),
            Self::Duration(_) | Self::Word(_) | Self::Path(_) | Self::Size(_) | Self::Text(_) => {
                self.to_string().into()
            }
        }
    }

    /// The value as it is written in a file.
    pub fn to_toml(&self) -> String {
        json_to_toml(&self.to_json())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duration(duration) => f.write_str(&write_duration(*duration)),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Percent(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Word(word) => f.write_str(word),
            Self::Path(text) | Self::Text(text) => f.write_str(text),
            Self::Dependencies(_) | Self::Port(_) | Self::JsonField(_) => {
                f.write_str(&self.to_toml())
            }
            Self::List(items) => f.write_str(&items.join(",")),
            Self::Size(0) => f.write_str("0B"),
            Self::Size(bytes) => {
                let unit = SIZE_UNITS.iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
                let (name, unit) = unit.unwrap_or(&("B", 1));
                write!(f, "{}{name}", bytes / unit)
            }
        }
    }
}

/// A JSON value as TOML on one line.
pub(super) fn json_to_toml(json: &Json) -> String {
    let text = |text: &str| toml_edit::Value::from(text).to_string();
    match json {
        Json::String(value) => text(value),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(json_to_toml).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| {
                format!("{} = {}", toml_edit::Key::new(name), json_to_toml(value))
            };
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        // TOML has no null, and nothing here gives one.
        Json::Null | Json::Bool(_) | Json::Number(_) => json.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEGER: Kind = Kind::Integer(1..=255);
    const FLOAT: Kind = Kind::Float(1.0..=10.0);
    const WORD: Kind = Kind::Word(&["always", "on-crash", "never"]);
    const SIZE: Kind = Kind::Size(4096..=1 << 40);

    #[test]
    fn texts_of_every_kind_are_read() {
        let duration = |millis| Value::Duration(Duration::from_millis(millis));
        let cases = [
            (Kind::Duration, "1.5s", duration(1_500)),
            (Kind::Duration, "0", duration(0)),
            (Kind::Duration, "0.0014s", duration(1)),
            (Kind::Duration, "365d", duration(31_536_000_000)),
            (INTEGER, "1", Value::Integer(1)),
            (INTEGER, " 255 ", Value::Integer(255)),
            (Kind::Percent(50), "50", Value::Percent(50)),
            (Kind::Percent(50), "0%", Value::Percent(0)),
            (FLOAT, "1", Value::Float(1.0)),
            (FLOAT, "10.0", Value::Float(10.0)),
            (Kind::Bool, "true", Value::Bool(true)),
            (Kind::Bool, "0", Value::Bool(false)),
            (WORD, "on-crash", Value::Word("on-crash")),
            (Kind::Path, "/a b", Value::Path("/a b".into())),
            (Kind::Interval, "10ms", duration(10)),
            (Kind::Signal, "int", Value::Word("SIGINT")),
            (Kind::Title, " My API ", Value::Text("My API".into())),
            (Kind::Url, "http://[::1]:80/", Value::Text("http://[::1]:80/".into())),
            (Kind::Address, "localhost:80", Value::Text("localhost:80".into())),
            (Kind::Host, "::1", Value::Text("::1".into())),
            (Kind::Listen, "", Value::Text("".into())),
            (Kind::Listen, "[::1]:80", Value::Text("[::1]:80".into())),
            (Kind::UrlTemplate, "$BASE/mcp", Value::Text("$BASE/mcp".into())),
            (Kind::UrlTemplate, "http://a/", Value::Text("http://a/".into())),
            (Kind::Socket, "0.0.0.0:80", Value::Text("0.0.0.0:80".into())),
            (Kind::Prefix, "", Value::Text("".into())),
            (Kind::Prefix, "gh_", Value::Text("gh_".into())),
            (Kind::Variable, "_A1", Value::Text("_A1".into())),
            (Kind::Line, "", Value::Text("".into())),
            (Kind::Line, "npx  x", Value::Text("npx  x".into())),
            (Kind::Patterns, "", Value::List(Vec::new())),
            (Kind::Patterns, "a/**, b,", Value::List(vec!["a/**".to_owned(), "b".to_owned()])),
            (SIZE, "4096B", Value::Size(4096)),
            (SIZE, "16MiB", Value::Size(16 << 20)),
            (SIZE, "1024GiB", Value::Size(1 << 40)),
        ];
        for (kind, text, value) in cases {
            assert_eq!(kind.parse(text), Some(value), "{text}");
        }
    }

    #[test]
    fn what_a_kind_does_not_take_is_refused() {
        let cases: [(Kind, &[&str]); 21] = [
            (Kind::Line, &["a\nb", "\0", "--yes", &"x".repeat(5_000)]),
            (Kind::Patterns, &["a\nb"]),
            (Kind::UrlTemplate, &["", "a", "http://a:b@c/", "$A\0"]),
            (Kind::Socket, &["", "80", "localhost:80", ":80"]),
            (Kind::Prefix, &["a b", "é", "a/", &"x".repeat(65)]),
            (Kind::Variable, &["", "1A", "A-B", "$A", "A B"]),
            (Kind::Interval, &["", "0", "9ms", "366d"]),
            (Kind::Signal, &["", "9", "SIGKILL", "SIG"]),
            (Kind::Title, &["", "a\nb", "a\0", &"x".repeat(65)]),
            (Kind::Url, &["", "localhost", "http://a:b@c/"]),
            (Kind::Address, &["", "80", "a:0"]),
            (Kind::Host, &["", "-a", "a b", "a:1"]),
            (Kind::Listen, &["80", "0.0.0.0:80", "localhost:80"]),
            (Kind::Duration, &["", "5", "366d", "365d1ms", "-1s", "1 s"]),
            (INTEGER, &["", "0", "256", "1.0", "99999999999999999999"]),
            (Kind::Percent(50), &["51", "-1", "%", "5%%", "300"]),
            (FLOAT, &["0.99", "10.1", "NaN", "inf", "-inf", "x"]),
            (Kind::Bool, &["", "yes", "True", "2"]),
            (WORD, &["", "Always", "on_crash", "on-crash,never"]),
            (Kind::Path, &["", " ", "a\0b"]),
            (
                SIZE,
                &[
                    "",
                    "4096",
                    "1KiB",
                    "MiB",
                    "+16MiB",
                    "1.5MiB",
                    "16MB",
                    "1025GiB",
                    "99999999999GiB",
                ],
            ),
        ];
        for (kind, texts) in cases {
            for text in texts {
                assert_eq!(kind.parse(text), None, "{kind}: {text:?}");
            }
        }
    }

    #[test]
    fn values_of_a_file_need_the_right_type() {
        let document = toml_edit::Document::parse(concat!(
            "text = \"1s\"\nnumber = 5\nhuge = 9223372036854775807\nfloat = 2.5\nnan = nan\n",
            "flag = true\nlist = [1]\ndate = 2026-01-01\n[table]\n[[tables]]\n"
        ))
        .unwrap();
        let keys =
            ["text", "number", "huge", "float", "nan", "flag", "list", "date", "table", "tables"];
        // `+` is taken, `-` is a bad value, a space a wrong type.
        let cases = [
            (Kind::Duration, "+         "),
            (Kind::Interval, "+         "),
            (Kind::Signal, "-         "),
            (Kind::Title, "+         "),
            (Kind::Url, "-         "),
            (Kind::Listen, "-         "),
            (Kind::Line, "+         "),
            (Kind::Patterns, "          "),
            (INTEGER, " +-       "),
            (Kind::Percent(50), "-+-       "),
            (FLOAT, " +-+-     "),
            (Kind::Bool, "     +    "),
            (WORD, "-         "),
            (Kind::Path, "+         "),
            (SIZE, "-         "),
        ];
        for (kind, wanted) in cases {
            let found: String = keys
                .iter()
                .map(|key| match kind.read_toml(&document[key]) {
                    Ok(_) => '+',
                    Err(ErrorKind::BadValue) => '-',
                    Err(_) => ' ',
                })
                .collect();
            assert_eq!(found, wanted, "{kind}");
        }
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        let cases = [
            (Value::Duration(Duration::from_secs(90)), "90s", "\"90s\""),
            (Value::Float(2.0), "2.0", "2.0"),
            (Value::Size(0), "0B", "\"0B\""),
            (Value::Size(5000), "5000B", "\"5000B\""),
            (Value::Size(16 << 20), "16MiB", "\"16MiB\""),
            (Value::Path("a\"b".into()), "a\"b", "'a\"b'"),
            (Value::List(vec!["a".to_owned(), "b c".to_owned()]), "a,b c", "[\"a\", \"b c\"]"),
            (Value::List(Vec::new()), "", "[]"),
        ];
        for (value, text, toml) in cases {
            assert_eq!(value.to_string(), text);
            assert_eq!(value.to_toml(), toml);
        }
    }
}
