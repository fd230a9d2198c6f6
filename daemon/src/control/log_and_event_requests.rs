//! Serves the requests for the lines of a service and for events: which of them a query selects, as a page or as a stream.
//! Driven by `request_handlers.rs`. Never waits for new ones: `event_streams.rs` does.

use afresh_core::control::{LogLine, LogPage, LogStream, Position, Words};
use afresh_core::limits::LOGS_LINES_MAX;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Response, StatusCode};

use super::connections::Host;
use super::event_streams::{FollowedEvents, FollowedLines, LineFilter};
use super::loop_requests::LoopRequest;
use super::request_handlers::{Refusing, bad, no_service, reply, respond, status};
use crate::http::{MessageBody, single_header};
use crate::recent_lines::Logs;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(super) async fn logs(
    host: &Host,
    name: &str,
    words: &Words,
) -> Refusing<Response<MessageBody>> {
    let lines_max = words.number("lines").map_err(bad)?.unwrap_or(LOGS_LINES_MAX as u64);
    let lines_max = usize::try_from(lines_max).unwrap_or(usize::MAX);
    let since = words.number("since").map_err(bad)?;
    let follows = words.flag("follow").map_err(bad)?;
    let wanted = wanted(words)?;
    let asked = name.to_owned();
    let found = host.ask(|answer| LoopRequest::Logs { name: asked, answer }).await?;
    let logs: Logs = found.ok_or_else(|| no_service(name))?;
    if follows {
        let at = since.unwrap_or_else(|| {
            let newest = *logs.follow().borrow();
            let last = last(logs.tail(usize::MAX), &wanted, lines_max);
            last.first().map_or(newest, |line| line.number - 1)
        });
        return host.follow(FollowedLines { logs, at, wanted });
    }
    let newest = *logs.follow().borrow();
    let page = match since {
        None => LogPage { lines: last(logs.tail(usize::MAX), &wanted, lines_max), newest },
        Some(since) => {
            let mut lines = logs.since(since, usize::MAX);
            lines.retain(|line| wanted.has(line));
            let is_cut = lines.len() > lines_max;
            lines.truncate(lines_max);
            let last = lines.last().map_or(0, |line| line.number);
            LogPage { lines, newest: if is_cut { last.max(since) } else { newest.max(last) } }
        }
    };
    Ok(reply(StatusCode::OK, &page))
}

fn wanted(words: &Words) -> Refusing<LineFilter> {
    let stream = words.text("stream").map(|word| {
        let all = LogStream::ALL.map(LogStream::name).join("`, `");
        let found = LogStream::ALL.into_iter().find(|stream| stream.name() == word);
        found.ok_or_else(|| bad(format!("`stream` has to be one of `{all}`")))
    });
    Ok(LineFilter { stream: stream.transpose()?, text: words.text("grep").map(str::to_owned) })
}

fn last(mut lines: Vec<LogLine>, wanted: &LineFilter, lines_max: usize) -> Vec<LogLine> {
    lines.retain(|line| wanted.has(line));
    lines.split_off(lines.len().saturating_sub(lines_max))
}

pub(super) async fn events(
    host: &Host,
    words: &Words,
    headers: &HeaderMap,
) -> Refusing<Response<MessageBody>> {
    let position = |name: &str, text: &str| {
        let wanted = "has to be a number, or the `id` of an event";
        Position::parse(text).ok_or_else(|| bad(format!("`{name}` {wanted}")))
    };
    // Who connects again asks for the same `since`, and knows more by now.
    let known = headers.contains_key(LAST_EVENT_ID).then(|| single_header(headers, &LAST_EVENT_ID));
    let known =
        known.map(|text| position("Last-Event-ID", text.unwrap_or_default())).transpose()?;
    let since = words.text("since").map(|text| position("since", text)).transpose()?;
    let at = known.or(since).unwrap_or_default();
    let service = words.text("service").map(str::to_owned);
    let follows = words.flag("follow").map_err(bad)?;
    if let Some(service) = &service {
        status(host, service).await?;
    }
    if follows {
        return host.follow(FollowedEvents { events: host.events.clone(), at, service });
    }
    let page = host.events.ring().page(&at, service.as_deref());
    Ok(respond(StatusCode::OK, "application/json", MessageBody::from(page)))
}
