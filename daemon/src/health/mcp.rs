//! Asks an MCP server behind streamable HTTP whether it is there.

use afresh_core::health::mcp::{
    Manner, Question, ServerReply, discover, initialize, initialized, read,
};
use afresh_core::health::{Verdict, judge_http};
use afresh_core::limits::HEALTH_BODY_BYTES_MAX;
use afresh_core::sse::SseParser;

use super::http::{Target, body, broken, too_long};
use crate::http::{MessageBody, Response};

/// What came back.
struct Reply {
    status: u16,
    session: Option<String>,
    /// None where nothing of it was an answer to the question.
    said: Option<ServerReply>,
}

/// Asks an instance; `manner` is how it wants to be asked, where that is known, and is learned
/// otherwise.
pub(super) async fn probe(url: &str, manner: &mut Option<Manner>) -> Result<(), Verdict> {
    let target = Target::of(url)?;
    let was_known = manner.is_some();
    let mut asked = match manner.clone() {
        Some(known) => known,
        None => open(&target).await?,
    };
    let mut reply = ask(&target, &asked.question()).await?;
    if was_known && reply.status == 404 {
        // It has forgotten the session, as it may.
        asked = open(&target).await?;
        reply = ask(&target, &asked.question()).await?;
    }
    let is_answered = match (&asked, &reply.said) {
        // It need not know `ping` to be alive.
        (Manner::Ping { .. }, Some(_)) => reply.status < 500,
        (Manner::Discover, said) => matches!(said, Some(ServerReply::Result(_))),
        (Manner::Ping { .. }, None) => false,
    };
    *manner = is_answered.then_some(asked);
    if is_answered { Ok(()) } else { Err(failure(&reply)) }
}

/// Finds out how a server wants to be asked.
async fn open(target: &Target) -> Result<Manner, Verdict> {
    let opened = ask(target, &initialize(env!("CARGO_PKG_VERSION"))).await?;
    if let Some(ServerReply::Result(result)) = &opened.said
        && let Some(manner) = Manner::after_initialize(result, opened.session.clone())
    {
        if let Manner::Ping { version, session } = &manner {
            ask(target, &initialized(version, session.clone())).await?;
        }
        return Ok(manner);
    }
    // It knows no `initialize`, perhaps: in any case, the next request tells.
    match ask(target, &discover()).await?.said {
        Some(ServerReply::Result(_)) => Ok(Manner::Discover),
        _ => Err(failure(&opened)),
    }
}

fn failure(reply: &Reply) -> Verdict {
    match (judge_http(None, None, reply.status, &[]), &reply.said) {
        (Err(verdict), _) => verdict,
        (Ok(()), Some(ServerReply::Error(why))) => Verdict::Ill { why: why.clone() },
        (Ok(()), _) => {
            let why = format!("it answered with status {}, but not as MCP", reply.status);
            Verdict::Ill { why }
        }
    }
}

async fn ask(target: &Target, question: &Question) -> Result<Reply, Verdict> {
    let mut request = target
        .request("POST")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    for (name, value) in [
        ("mcp-protocol-version", question.version.as_deref()),
        ("mcp-session-id", question.session.as_deref()),
        ("mcp-method", question.method_header()),
    ] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let request = request
        .body(MessageBody::from(question.body.clone()))
        .map_err(|error| Verdict::Ill { why: error.to_string() })?;
    answer(target.send(request).await?, question.id).await
}

async fn answer(mut response: Response, id: Option<&str>) -> Result<Reply, Verdict> {
    let status = response.status;
    let session = response.header("mcp-session-id").map(str::to_owned);
    let kind = response.header("content-type");
    let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
    let said = match id {
        None => None,
        Some(id) if is_stream => first_said(response, id).await?,
        Some(id) => read(&body(&mut response).await?, id),
    };
    Ok(Reply { status, session, said })
}

/// The answer in an event stream, which may go on after it.
async fn first_said(mut response: Response, id: &str) -> Result<Option<ServerReply>, Verdict> {
    let mut stream = SseParser::new(HEALTH_BODY_BYTES_MAX);
    let mut length = 0;
    while let Some(bytes) = response.next().await {
        let bytes = bytes.map_err(|error| broken(&error))?;
        length += bytes.len();
        if length > HEALTH_BODY_BYTES_MAX {
            return Err(too_long());
        }
        if let Some(said) = stream.push(&bytes).iter().find_map(|event| read(&event.data, id)) {
            return Ok(Some(said));
        }
    }
    Ok(None)
}
