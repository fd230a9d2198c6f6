//! The keys of `[hook.NAME]`.

use super::super::kind::Kind;
use super::{Field, Form, field};
use crate::hook::HookEvent;

pub(super) static HOOK: [Field; 7] = [
    field(
        "on",
        Form::Words(&HOOK_EVENTS),
        "all of them",
        r#"["crash", "gave_up"]"#,
        "What it wants to hear.",
    ),
    field("services", Form::Names, "all of them", r#"["api"]"#, "The services that it is about."),
    field(
        "command",
        Form::Command,
        "",
        r#"["./tell.sh"]"#,
        "A command that is run, with the event as JSON on its stdin.",
    ),
    field(
        "webhook",
        Form::One(Kind::Url),
        "",
        r#""https://ntfy.sh/my-topic""#,
        "A URL that the event is sent to by `POST`.",
    ),
    field(
        "desktop",
        Form::One(Kind::Bool),
        "",
        "true",
        "A notification of the desktop; `true` or nothing.",
    ),
    field(
        "shape",
        Form::One(Kind::Word(&SHAPES)),
        "by the host of `webhook`, else `\"json\"`",
        r#""json""#,
        "The form of what is sent; for `webhook`.",
    ),
    field(
        "headers",
        Form::Headers,
        "",
        r#"{ Authorization = "Bearer …" }"#,
        "Headers that are sent; for `webhook`.",
    ),
];

/// The names of [`HookEvent::ALL`], in the same order.
static HOOK_EVENTS: [&str; HookEvent::ALL.len()] = {
    let mut names = [""; HookEvent::ALL.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = HookEvent::ALL[index].name();
        index += 1;
    }
    names
};

/// The words for each [`Shape`](crate::hook::Shape).
pub(in super::super) static SHAPES: [&str; 4] = ["json", "slack", "discord", "ntfy"];
