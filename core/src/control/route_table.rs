//! Owns the routes of the API, in one table: routing, the methods that a path allows, what is said about a
//! path that does not exist, and the OpenAPI document all come from here. Reads the names in paths;
//! `query_parameters.rs` has the words of queries. Never answers a request.

use super::Change;
use super::query_parameters::{OF_EVENTS, OF_LOGS, QueryParameter, WAIT, unescape};
use crate::limits::INPUT_BYTES_MAX;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// All services.
    Services,
    /// One service.
    Service,
    /// To start one, to stop it, or to give it a new instance.
    Change(Change),
    /// To give one and its dependents new instances.
    RestartAll,
    /// To write to the stdin of one.
    Input,
    /// The lines of one.
    Logs,
    /// What has happened.
    Events,
    /// Numbers for Prometheus.
    Metrics,
    /// To read the configuration again.
    Reload,
    /// To end afresh and all of its services.
    Shutdown,
    /// The OpenAPI document.
    OpenApi,
    /// What is asked here.
    Version,
}

/// One row of the table.
#[derive(Debug)]
pub struct Route {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// With `{name}` for the name of a service.
    pub path: &'static str,
    /// What it is for.
    pub operation: Operation,
    /// In a few words.
    pub summary: &'static str,
    /// In a sentence or two.
    pub about: &'static str,
    /// The words that its query may have.
    pub words: &'static [QueryParameter],
    /// What its body is.
    pub body: Body,
    /// What it answers where all is well.
    pub answers: &'static [RouteAnswer],
    /// What it refuses beyond what every route does.
    pub refusals: &'static [(u16, &'static str)],
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none.
    None,
    /// JSON with the schema of this name, or nothing.
    Json(&'static str),
    /// Any bytes, at most so many.
    Bytes(usize),
}

/// An answer that is no refusal.
#[derive(Debug)]
pub struct RouteAnswer {
    /// Its status.
    pub status: u16,
    /// The kind of its body.
    pub media: &'static str,
    /// The name of the schema of its body; none is any text.
    pub schema: Option<&'static str>,
    /// When it is given.
    pub about: &'static str,
}

const NO_SUCH_SERVICE: (u16, &str) = (404, "There is no service of this name.");

const CONFLICT: (u16, &str) = (409, "It cannot be done; the answer says why. Nothing was changed.");

const fn json(schema: &'static str, about: &'static str) -> RouteAnswer {
    RouteAnswer { status: 200, media: "application/json", schema: Some(schema), about }
}

const fn accepted(schema: &'static str, about: &'static str) -> RouteAnswer {
    RouteAnswer { status: 202, ..json(schema, about) }
}

const fn stream(schema: &'static str, about: &'static str) -> RouteAnswer {
    RouteAnswer { media: "text/event-stream", ..json(schema, about) }
}

/// What every change of a service answers.
const CHANGED: &[RouteAnswer] = &[
    json("ChangeAnswer", "With `wait=true`: what has become of it."),
    accepted("ChangeAnswer", "It is on record, and under way."),
];

const fn get(
    path: &'static str,
    operation: Operation,
    summary: &'static str,
    about: &'static str,
) -> Route {
    let (words, body, answers, refusals) = (&[], Body::None, &[], &[]);
    Route { method: "GET", path, operation, summary, about, words, body, answers, refusals }
}

const fn post(
    path: &'static str,
    operation: Operation,
    summary: &'static str,
    about: &'static str,
) -> Route {
    Route {
        method: "POST",
        body: Body::Json("ChangeRequest"),
        ..get(path, operation, summary, about)
    }
}

const fn change(
    path: &'static str,
    operation: Operation,
    summary: &'static str,
    about: &'static str,
) -> Route {
    let (words, refusals) = (&[WAIT], &[NO_SUCH_SERVICE, CONFLICT]);
    Route { words, answers: CHANGED, refusals, ..post(path, operation, summary, about) }
}

const fn metrics(path: &'static str) -> Route {
    let about = "Restarts by reason, uptime, state, times to recover and of health checks, and what the \
                 services and afresh itself use, in the text format of Prometheus.";
    let answers = &[RouteAnswer {
        status: 200,
        media: "text/plain",
        schema: None,
        about: "The text format of Prometheus, version 0.0.4.",
    }];
    Route { answers, ..get(path, Operation::Metrics, "Numbers for Prometheus", about) }
}

/// All routes.
pub static ROUTES: &[Route] = &[
    Route {
        answers: &[json("ServiceList", "All services of this afresh.")],
        ..get(
            "/v1/services",
            Operation::Services,
            "All services",
            "In the order of their definition.",
        )
    },
    Route {
        answers: &[json("ServiceStatus", "The service.")],
        refusals: &[NO_SUCH_SERVICE],
        ..get("/v1/services/{name}", Operation::Service, "One service", "All that is known of it.")
    },
    change(
        "/v1/services/{name}/start",
        Operation::Change(Change::Start),
        "Start a service",
        "One that was stopped, has finished or has failed is started anew. One that runs is left \
         alone.",
    ),
    change(
        "/v1/services/{name}/stop",
        Operation::Change(Change::Stop),
        "Stop a service",
        "It is stopped as by its user, and stays down until it is started again. `afresh mcp` refuses: \
         its client would lose the server.",
    ),
    change(
        "/v1/services/{name}/restart",
        Operation::Change(Change::Restart),
        "Restart a service",
        "The restart and its reason are in the trail before anything stops.",
    ),
    Route {
        answers: &[
            json("RestartAnswer", "With `wait=true`: what has become of each."),
            accepted("RestartAnswer", "All are on record, and under way."),
        ],
        ..change(
            "/v1/services/{name}/restart_all",
            Operation::RestartAll,
            "Restart a service and its dependents",
            "The services that run and depend on it, directly or not, are restarted after it, in the order \
             of their dependencies. One whose dependency did not come up again is left as it is.",
        )
    },
    Route {
        body: Body::Bytes(INPUT_BYTES_MAX),
        answers: &[json("InputAnswer", "All of it is in its stdin.")],
        refusals: &[NO_SUCH_SERVICE, CONFLICT],
        ..post(
            "/v1/services/{name}/input",
            Operation::Input,
            "Write to the stdin of a service",
            "The bytes of the body, as they are, all or none. For `afresh up`. Refused where the service \
             does not run or does not read, and by `afresh keep` and `afresh mcp`, where somebody else \
             has its stdin.",
        )
    },
    Route {
        words: &OF_LOGS,
        answers: &[
            json("LogPage", "The lines, oldest first."),
            stream(
                "SentLine",
                "With `follow=true`: each line is an event, `id` its number and `data` a `LogLine`.",
            ),
        ],
        refusals: &[NO_SUCH_SERVICE],
        ..get(
            "/v1/services/{name}/logs",
            Operation::Logs,
            "The last lines of a service",
            "What it wrote, and what afresh said about it. A gap in the numbers is lines that are \
             forgotten.",
        )
    },
    Route {
        words: &OF_EVENTS,
        answers: &[
            json("EventPage", "The events that are remembered, oldest first."),
            stream(
                "SentEvent",
                "With `follow=true`: each event has its `id`, and as `data` a `NumberedEvent`. Whoever \
                 connects again with `Last-Event-ID` goes on from there. Where events are missing, an \
                 event `gap` with a `Gap` as `data` comes first.",
            ),
        ],
        refusals: &[NO_SUCH_SERVICE],
        ..get(
            "/v1/events",
            Operation::Events,
            "What has happened",
            "The records of the trail, numbered from 1 in each afresh process. The last ones are \
             remembered; the trail has all of them.",
        )
    },
    metrics("/v1/metrics"),
    metrics("/metrics"),
    Route {
        words: &[WAIT],
        answers: &[json("ReloadAnswer", "What has changed.")],
        refusals: &[CONFLICT],
        ..post(
            "/v1/reload",
            Operation::Reload,
            "Read the configuration again",
            "For `afresh up`. Services that have changed are restarted, new ones started, others left \
             alone. A configuration with a mistake changes nothing.",
        )
    },
    Route {
        answers: &[accepted("ShutdownAnswer", "It is on record, and under way.")],
        refusals: &[CONFLICT],
        ..post(
            "/v1/shutdown",
            Operation::Shutdown,
            "End afresh and all of its services",
            "For `afresh up`. `afresh keep` and `afresh mcp` end with the process that started them, and refuse.",
        )
    },
    Route {
        answers: &[json("OpenApi", "The document.")],
        ..get("/v1/openapi.json", Operation::OpenApi, "This document", "OpenAPI 3.1.")
    },
    Route {
        answers: &[json("VersionAnswer", "Who answers.")],
        ..get(
            "/v1/version",
            Operation::Version,
            "Who answers here",
            "The version of afresh and of the API.",
        )
    },
];

/// Why no route serves a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRoute {
    /// There is nothing at this path.
    Path,
    /// The name in it is none.
    Name,
    /// The path is for other methods: these.
    Method(String),
}

/// The route that serves a request, and the name in its path.
pub fn find(method: &str, path: &str) -> Result<(&'static Route, Option<String>), NoRoute> {
    let mut allowed = Vec::new();
    for route in ROUTES {
        let Some(part) = fits(route.path, path) else { continue };
        if route.method != method {
            allowed.push(route.method);
            continue;
        }
        let name = match part {
            None => None,
            Some(part) => Some(unescape(part).ok_or(NoRoute::Name)?),
        };
        // No service can be asked for by a name that means another folder to so many programs.
        if name.as_deref().is_some_and(|name| matches!(name, "" | "." | "..")) {
            return Err(NoRoute::Path);
        }
        return Ok((route, name));
    }
    if allowed.is_empty() { Err(NoRoute::Path) } else { Err(NoRoute::Method(allowed.join(", "))) }
}

/// What stands in a path at the place of `{name}`, where the path fits at all.
fn fits<'a>(pattern: &str, path: &'a str) -> Option<Option<&'a str>> {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut name = None;
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(name),
            (Some("{name}"), Some(part)) => name = Some(part),
            (Some(word), Some(part)) if word == part => {}
            _ => return None,
        }
    }
}

/// All paths, for the answer to an unknown one.
pub fn paths() -> String {
    let mut all: Vec<String> =
        ROUTES.iter().map(|route| route.path.replace("{name}", "NAME")).collect();
    all.dedup();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for route in ROUTES {
            let path = route.path.replace("{name}", "a%2Fb");
            let (found, name) = find(route.method, &path).unwrap();
            assert_eq!((found.path, found.operation), (route.path, route.operation));
            assert_eq!(name.is_some(), route.path.contains("{name}"));
            assert!(name.is_none_or(|name| name == "a/b"));
            let other = if route.method == "GET" { "POST" } else { "GET" };
            assert_eq!(find(other, &path).unwrap_err(), NoRoute::Method(route.method.to_owned()));
            assert!(!route.answers.is_empty(), "{}", route.path);
        }
        assert!(paths().contains("/v1/services/NAME/restart, "), "{}", paths());
    }

    #[test]
    fn tricks_with_paths_lead_nowhere() {
        for path in [
            "",
            "/",
            "*",
            "v1/services",
            "//v1/services",
            "/v1//services",
            "/v1/services/",
            "/V1/services",
            "/v1/services/..",
            "/v1/services/%2e%2E",
            "/v1/services/.",
            "/v1/services/../version",
            "/v1/services/web/../../version",
            "/v1/%73ervices",
            "/v1/services/web/logs/",
            "/v1/services//logs",
            "/v1/services/web//logs",
            "/v1/services/web\\logs/x",
            "/v2/services",
            "/v1/services;x/web",
        ] {
            assert_eq!(find("GET", path).unwrap_err(), NoRoute::Path, "{path}");
        }
        for path in
            ["/v1/services/%", "/v1/services/%00", "/v1/services/web%00", "/v1/services/%c0%ae"]
        {
            assert_eq!(find("GET", path).unwrap_err(), NoRoute::Name, "{path}");
        }
    }
}
