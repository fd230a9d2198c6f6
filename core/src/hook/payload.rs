//! Owns the body of a delivery: the event as JSON, and the forms of chat and notification services.
//!
//! Names and reasons come from outside, some of them out of what a service printed: nothing in them may
//! call people, look like a link, or end a header.

use serde_json::{Value, json};

use super::{Happening, HookEvent, Shape};
use crate::audit::redact::redact_text;
use crate::limits::{
    HOOK_DISCORD_CHARS_MAX, HOOK_NAME_CHARS_MAX, HOOK_NTFY_BYTES_MAX, HOOK_TEXT_CHARS_MAX,
};
use crate::service::LastExit;
use crate::text::{cut, harmless};

/// Who tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The name of the machine.
    pub host: String,
    /// The folder that afresh works for.
    pub workspace: Option<String>,
    /// afresh's version.
    pub version: String,
}

/// One thing that a hook is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The newest that it stands for.
    pub happening: Happening,
    /// How many of the same it stands for.
    pub count: u64,
    /// Earlier ones that this hook was never told, because too many waited.
    pub dropped: u64,
}

/// What is posted to a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Headers that belong to the form.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Delivery {
    /// The event as JSON. Fields are only ever added.
    pub fn to_json(&self, about: &About) -> String {
        let Happening { event, service, time, pid, exit, reason, restarts, message } =
            &self.happening;
        let body = json!({
            "event": event.name(),
            "service": cut(service, HOOK_NAME_CHARS_MAX),
            "time": time.to_string(),
            "host": cut(&about.host, HOOK_NAME_CHARS_MAX),
            "workspace": about.workspace.as_deref().map(text),
            "pid": pid,
            "exit": exit.map(LastExit::from).map_or(Value::Null, |exit| json!(exit)),
            "reason": reason.as_deref().map(text),
            "restarts": restarts,
            "message": text(message),
            "count": self.count,
            "dropped": self.dropped,
            "version": about.version,
        });
        body.to_string()
    }

    /// What a webhook of this shape is sent.
    pub fn message(&self, shape: Shape, about: &About) -> Message {
        let json = || ("content-type", "application/json".to_owned());
        match shape {
            Shape::Json => Message { headers: vec![json()], body: self.to_json(about) },
            Shape::Slack => {
                // What Slack asks for: with these three escaped, nothing is a link or a mention.
                let text = self.sentence(about).replace('&', "&amp;");
                let text = text.replace('<', "&lt;").replace('>', "&gt;");
                let body = json!({ "text": text, "mrkdwn": false }).to_string();
                Message { headers: vec![json()], body }
            }
            Shape::Discord => {
                let content = escape_markdown(&self.sentence(about));
                let content = cut_units(&content, HOOK_DISCORD_CHARS_MAX);
                let body = json!({
                    "content": content,
                    // No mention in the text notifies a user.
                    "allowed_mentions": { "parse": [] },
                    // No previews of links.
                    "flags": 4,
                });
                Message { headers: vec![json()], body: body.to_string() }
            }
            Shape::Ntfy => self.to_ntfy(about),
        }
    }

    /// Two short lines for a desktop.
    pub fn notification(&self, about: &About) -> (String, String) {
        (self.title(), self.sentence(about))
    }

    fn to_ntfy(&self, about: &About) -> Message {
        let (priority, tag) = match self.happening.event {
            HookEvent::Crash => ("3", "warning"),
            HookEvent::CrashLoop => ("4", "rotating_light"),
            HookEvent::GaveUp => ("5", "rotating_light"),
            HookEvent::Recovered => ("3", "white_check_mark"),
            HookEvent::Restarted => ("2", "arrows_counterclockwise"),
        };
        let headers = vec![
            ("content-type", "text/plain; charset=utf-8".to_owned()),
            ("title", ascii(&self.title())),
            ("priority", priority.to_owned()),
            ("tags", tag.to_owned()),
        ];
        let mut body = self.sentence(about);
        body.truncate(body.floor_char_boundary(HOOK_NTFY_BYTES_MAX));
        Message { headers, body }
    }

    fn title(&self) -> String {
        let service = cut(&self.happening.service, HOOK_NAME_CHARS_MAX);
        format!("afresh: {} {}", harmless(&service), self.happening.event.name().replace('_', " "))
    }

    /// What happened, where, and how often.
    fn sentence(&self, about: &About) -> String {
        let mut sentence = harmless(&text(&self.happening.message).replace('\n', " "));
        if self.count > 1 {
            sentence.push_str(&format!(" [the last of {} alike]", self.count));
        }
        match self.dropped {
            0 => {}
            1 => sentence.push_str(" [one earlier message was dropped]"),
            dropped => sentence.push_str(&format!(" [{dropped} earlier messages were dropped]")),
        }
        let host = harmless(&cut(&about.host, HOOK_NAME_CHARS_MAX));
        if !host.is_empty() {
            sentence.push_str(&format!(" ({host})"));
        }
        sentence
    }
}

/// A text from outside, as long as a sentence may be, and without secrets.
fn text(text: &str) -> String {
    // A secret that is cut in half is not known any more.
    cut(&redact_text(&cut(text, 4 * HOOK_TEXT_CHARS_MAX)), HOOK_TEXT_CHARS_MAX)
}

/// As long as the service counts it, which is in units of UTF-16.
fn cut_units(text: &str, units_max: usize) -> &str {
    let mut units = 0;
    let end = text.char_indices().find(|(_, c)| {
        units += c.len_utf16();
        units > units_max
    });
    // A backslash at the end has lost what it was for.
    end.map_or(text, |(end, _)| text[..end].trim_end_matches('\\'))
}

/// A backslash before each character that has a meaning.
fn escape_markdown(text: &str) -> String {
    let escaped = |c: char| match c.is_ascii_punctuation() && !",.;!?'\"%&$".contains(c) {
        true => format!("\\{c}"),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// A text as the value of a header.
fn ascii(text: &str) -> String {
    text.chars().map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect()
}
