//! Owns the keys of `[hook.NAME]`.

use crate::config::key::*;
use crate::config::value_syntax::Kind;
use crate::hook::{HookEvent, Shape};

words! {
    Shape { "json" => Json, "slack" => Slack, "discord" => Discord, "ntfy" => Ntfy, }
}

keys! {
    HOOK of "hook";

    /// What it wants to hear.
    ON: Key<Vec<String>> = key("on", Kind::Words(&HookEvent::NAMES))
        .example(r#"["crash", "gave_up"]"#).or("all of them");
    /// The services that it is about.
    SERVICES: Key<Vec<String>> = key("services", Kind::Names).example(r#"["api"]"#)
        .or("all of them");
    /// A command that is run, with the event as JSON on its stdin.
    COMMAND: Key<Vec<String>> = key("command", Kind::Command).example(r#"["./tell.sh"]"#);
    /// A URL that the event is sent to by `POST`.
    WEBHOOK: Key<String> = key("webhook", Kind::Url).example(r#""https://ntfy.sh/my-topic""#);
    /// A notification of the desktop; `true` or nothing.
    DESKTOP: Key<bool> = key("desktop", Kind::Bool).example("true");
    /// The form of what is sent; for `webhook`.
    SHAPE: Key<Shape> = key("shape", word::<Shape>()).example(r#""json""#)
        .or(r#"by the host of `webhook`, else `"json"`"#);
    /// Headers that are sent; for `webhook`.
    HEADERS: Key<Pairs> = key("headers", Kind::Headers)
        .example(r#"{ Authorization = "Bearer …" }"#);
}
