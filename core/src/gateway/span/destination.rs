//! Resolves the receiver of spans from `--otlp`, `[gateway] otlp` and OpenTelemetry's variables. Driven by the command
//! line. Never asked for without one of the first two: the variables alone send nothing.

use std::fmt;

use crate::text::percent_decoded;

/// The receiver of spans, and the resource that they are of.
#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    /// The whole URL.
    pub url: String,
    /// Headers of each request; they can be secrets.
    pub headers: Vec<(String, String)>,
    /// The attributes of the resource: `service.name` and so on.
    pub resource: Vec<(String, String)>,
}

impl fmt::Debug for Destination {
    /// Without URL and headers, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("resource", &self.resource).finish_non_exhaustive()
    }
}

/// Why there is no receiver although one is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationError {
    /// The URL is invalid. It may be secret.
    Url,
    /// Neither the flag nor a variable has a URL.
    Missing,
    /// A variable has not the form `name=value,name=value`. Its value may be secret.
    List(&'static str),
    /// Another protocol is asked for.
    Protocol(&'static str, String),
}

impl fmt::Display for DestinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => write!(
                f,
                "spans can only be sent to a URL that begins with `http://` or `https://`, such as \
                 `http://127.0.0.1:4318`"
            ),
            Self::Missing => write!(
                f,
                "`--otlp` has no URL, and `{ENDPOINT}` is not set: write `--otlp http://127.0.0.1:4318`"
            ),
            Self::List(name) => write!(f, "`{name}` is not of the form `name=value,name=value`"),
            Self::Protocol(name, value) => write!(
                f,
                "`{name}` is `{value}`, but spans are sent over HTTP only, as JSON: set it to \
                 `http/json`, with the port of the receiver that takes HTTP (usually 4318)"
            ),
        }
    }
}

impl std::error::Error for DestinationError {}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const RESOURCE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// The path below the base URL, by the protocol.
const PATH: &str = "/v1/traces";

impl Destination {
    /// The receiver at a URL, or, where that is empty, the one that the variables name. None where the variables
    /// turn it off.
    pub fn of<'a>(
        given: &str,
        variable: impl Fn(&str) -> Option<&'a str>,
        version: &str,
    ) -> Result<Option<Self>, DestinationError> {
        // An empty one counts as none.
        let variable = |name: &str| variable(name).map(str::trim).filter(|text| !text.is_empty());
        let is_off = variable("OTEL_SDK_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER").is_some_and(|names| names == "none");
        let url = match given {
            "" if is_off => return Ok(None),
            "" => match (variable(TRACES_ENDPOINT), variable(ENDPOINT)) {
                // By the specification that one has the path already.
                (Some(whole), _) => whole.to_owned(),
                (None, Some(base)) => below(base),
                (None, None) => return Err(DestinationError::Missing),
            },
            base => below(base),
        };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(DestinationError::Url);
        }
        let first =
            |one, other| [one, other].into_iter().find_map(|name| Some((name, variable(name)?)));
        if let Some((name, value @ "grpc")) =
            first(TRACES_PROTOCOL, PROTOCOL).filter(|_| given.is_empty())
        {
            return Err(DestinationError::Protocol(name, value.to_owned()));
        }
        let headers = match first(TRACES_HEADERS, HEADERS) {
            Some((name, value)) => list(name, value)?,
            None => Vec::new(),
        };
        let mut resource = match variable(RESOURCE) {
            Some(value) => list(RESOURCE, value)?,
            None => Vec::new(),
        };
        let named = variable("OTEL_SERVICE_NAME");
        if named.is_some() {
            resource.retain(|(key, _)| key != "service.name");
        }
        for (key, value) in
            [("service.name", named.unwrap_or("afresh-gateway")), ("service.version", version)]
        {
            if !resource.iter().any(|(known, _)| known == key) {
                resource.push((key.to_owned(), value.to_owned()));
            }
        }
        Ok(Some(Self { url, headers, resource }))
    }
}

fn below(base: &str) -> String {
    let base = base.trim_end_matches('/');
    match base.ends_with(PATH) {
        true => base.to_owned(),
        false => format!("{base}{PATH}"),
    }
}

/// Reads `name=value,name=value`, in which `%20` stands for a blank.
fn list(name: &'static str, text: &str) -> Result<Vec<(String, String)>, DestinationError> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let key = key.trim();
        (!key.is_empty()).then(|| Some((key.to_owned(), percent_decoded(value.trim())?)))?
    };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| pair(part).ok_or(DestinationError::List(name))).collect()
}
