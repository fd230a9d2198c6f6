//! Owns what a model is still to be told of its server: that an instance ended by itself and took its state along, or that
//! new code did not start and older code goes on. The next result of a tool says it, once. Driven by
//! [`Conversation`](super::Conversation). Never holds a result back.

use serde_json::{Value, json};

use super::conversation::TellRestarts;
use super::envelope;
use super::json;

/// Members of a result's `_meta`.
const RESTARTED: &str = "afresh/restarted";
const RESTART_FAILED: &str = "afresh/restart_failed";

/// What is still to be told.
#[derive(Debug, Default)]
pub(super) struct RestartNotices {
    told: TellRestarts,
    /// The name of the server.
    server: String,
    lost: Option<LostState>,
    failed: Option<FailedRestart>,
}

/// An instance ended by itself.
#[derive(Debug)]
struct LostState {
    how: String,
    /// It had answered a call: then a model may rely on what it kept.
    had_answered: bool,
}

/// New code did not start, while older code serves.
#[derive(Debug)]
struct FailedRestart {
    why: String,
    is_told: bool,
}

impl RestartNotices {
    pub(super) fn new(told: TellRestarts, server: &str) -> Self {
        Self { told, server: server.to_owned(), ..Self::default() }
    }

    /// Whether somebody else tells it.
    pub(super) fn hands_on(&self) -> bool {
        self.told == TellRestarts::HandedOn
    }

    /// An instance that served has ended by itself: how, with its last lines. Several ends are told as one.
    pub(super) fn note_end(&mut self, how: &str, had_answered: bool) {
        let earlier = self.lost.take().is_some_and(|lost| lost.had_answered);
        let had_answered = had_answered || earlier;
        let how = how.split(';').next().unwrap_or(how).to_owned();
        self.lost = Some(LostState { how, had_answered });
    }

    /// A new instance did not come up, and nobody waits for that to be told.
    pub(super) fn note_failure(&mut self, why: &str) {
        self.failed = Some(FailedRestart { why: why.to_owned(), is_told: false });
    }

    /// A new instance serves.
    pub(super) fn forget_failure(&mut self) {
        self.failed = None;
    }

    /// Why the last restart failed, while older code serves.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.as_ref().map(|failed| failed.why.as_str())
    }

    /// Whether the next result of a tool has to say something.
    pub(super) fn is_due(&self) -> bool {
        self.told == TellRestarts::InResults
            && (self.lost.is_some() || self.failed.as_ref().is_some_and(|failed| !failed.is_told))
    }

    /// The answer to a call of a tool, with what is due. The text is for the model, and stands only where `may_add_text`
    /// and all of the content is text: a program that reads the content would not expect it elsewhere.
    pub(super) fn add_to(&mut self, answer: Vec<u8>, may_add_text: bool) -> Vec<u8> {
        if json::get(&answer, &["result"]).and_then(json::members).is_none() {
            return answer;
        }
        let (mut meta, mut texts) = (Vec::new(), Vec::new());
        if let Some(LostState { how, had_answered }) = self.lost.take() {
            meta.push(member(RESTARTED, &json!({"server": self.server, "how": how})));
            if had_answered {
                texts.push(format!(
                    "[afresh] The server `{}` was restarted before this call: it {how}. What it kept in memory is lost.",
                    self.server
                ));
            }
        }
        if let Some(failed) = self.failed.as_mut().filter(|failed| !failed.is_told) {
            failed.is_told = true;
            meta.push(member(RESTART_FAILED, &json!({"server": self.server, "why": failed.why})));
            texts.push(format!(
                "[afresh] The server `{}` runs older code: {}",
                self.server, failed.why
            ));
        }
        let answer = with_meta(answer, &meta.join(","));
        match may_add_text && !texts.is_empty() && is_all_text(&answer) {
            true => with_texts(answer, &texts),
            false => answer,
        }
    }
}

fn member(name: &str, value: &Value) -> String {
    format!("{}:{value}", Value::from(name))
}

/// The answer with more members in the `_meta` of its result.
fn with_meta(answer: Vec<u8>, members: &str) -> Vec<u8> {
    let path = ["result", "_meta"];
    match json::get(&answer, &path) {
        Some(meta) if meta.first() == Some(&b'{') => envelope::add_members(answer, &path, members),
        Some(other) => {
            let place = json::place(&answer, other);
            envelope::splice(&answer, place, format!("{{{members}}}").as_bytes())
        }
        None => envelope::add_members(answer, &["result"], &format!(r#""_meta":{{{members}}}"#)),
    }
}

/// Whether a result has content, all of it text, and nothing for programs.
fn is_all_text(answer: &[u8]) -> bool {
    let content = json::get(answer, &["result", "content"]);
    let Some(elements) = content.and_then(json::elements) else { return false };
    let is_text = |element: &std::ops::Range<usize>| {
        let element = &content.unwrap_or_default()[element.clone()];
        json::get(element, &["type"]) == Some(br#""text""#)
    };
    let data = json::get(answer, &["result", "structuredContent"]);
    data.is_none_or(|data| data == b"null") && elements.iter().all(is_text)
}

/// The answer with more text at the end of its content.
fn with_texts(answer: Vec<u8>, texts: &[String]) -> Vec<u8> {
    let Some(content) = json::get(&answer, &["result", "content"]) else { return answer };
    let Some(elements) = json::elements(content) else { return answer };
    let end = json::place(&answer, content).end - 1;
    let items: Vec<String> =
        texts.iter().map(|text| json!({"type": "text", "text": text}).to_string()).collect();
    let comma = if elements.is_empty() { "" } else { "," };
    envelope::splice(&answer, end..end, format!("{comma}{}", items.join(",")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str =
        r#"{"id":1,"result":{"content":[{"type":"text","text":"a"}] ,"isError":false}}"#;

    fn told(notices: &mut RestartNotices, answer: &str, may_add_text: bool) -> Value {
        let line = notices.add_to(answer.as_bytes().to_vec(), may_add_text);
        serde_json::from_slice(&line).expect("it is JSON")
    }

    fn on() -> RestartNotices {
        RestartNotices::new(TellRestarts::InResults, "docs")
    }

    #[test]
    fn an_end_is_told_once_to_programs_and_to_a_model_that_relied_on_it() {
        let mut notices = on();
        assert!(!notices.is_due());
        notices.note_end("exited with code 3; the last lines of its stderr:\nx", false);
        // The server died again before it was told.
        notices.note_end("was killed; it wrote nothing to stderr", true);
        notices.note_end("exited with code 4; it wrote nothing to stderr", false);
        assert!(notices.is_due());
        let answer = told(&mut notices, ANSWER, true);
        let restarted = json!({"server": "docs", "how": "exited with code 4"});
        assert_eq!(answer["result"]["_meta"], json!({RESTARTED: restarted}));
        let text = "[afresh] The server `docs` was restarted before this call: it exited with code 4. \
                    What it kept in memory is lost.";
        assert_eq!(answer["result"]["content"][1], json!({"type": "text", "text": text}));
        assert_eq!(answer["result"]["content"][0]["text"], "a");
        assert!(!notices.is_due());
        // Nothing was answered, so nothing was relied on.
        notices.note_end("was killed", false);
        let answer = told(&mut notices, ANSWER, true);
        assert_eq!(answer["result"]["content"].as_array().map(Vec::len), Some(1));
        assert_eq!(answer["result"]["_meta"][RESTARTED]["how"], "was killed");
    }

    #[test]
    fn text_stands_only_where_all_is_text() {
        let image = r#"{"id":1,"result":{"content":[{"type":"image"}],"_meta":{"a":1}}}"#;
        let data = r#"{"id":1,"result":{"content":[],"structuredContent":{}}}"#;
        let task = r#"{"id":1,"result":{"task":{"taskId":"t"},"_meta":{}}}"#;
        let null = r#"{"id":1,"result":{"_meta":null,"task":{}}}"#;
        for (answer, may_add_text) in
            [(image, true), (data, true), (task, true), (null, true), (ANSWER, false)]
        {
            let mut notices = on();
            notices.note_end("was killed", true);
            let before: Value = serde_json::from_str(answer).expect("it is JSON");
            let after = told(&mut notices, answer, may_add_text);
            assert_eq!(after["result"]["content"], before["result"]["content"]);
            assert_eq!(after["result"]["_meta"][RESTARTED]["server"], "docs", "{after}");
            assert_eq!(after["result"]["_meta"]["a"], before["result"]["_meta"]["a"]);
        }
        // An error has no place for it, and the next result has.
        let mut notices = on();
        notices.note_end("was killed", true);
        let error = r#"{"id":1,"error":{"code":1,"message":"x"}}"#;
        assert_eq!(notices.add_to(error.into(), true), error.as_bytes());
        assert!(notices.is_due());
    }

    #[test]
    fn a_restart_that_failed_is_told_once_and_known_until_another_succeeds() {
        let mut notices = on();
        notices.note_failure("the new instance exited with code 1\nNameError");
        assert!(notices.is_due());
        let answer = told(&mut notices, ANSWER, true);
        let text = answer["result"]["content"][1]["text"].as_str().expect("a text");
        assert!(text.starts_with("[afresh] The server `docs` runs older code: the new instance"));
        assert!(
            text.ends_with("NameError") && answer["result"]["_meta"][RESTART_FAILED].is_object()
        );
        assert!(!notices.is_due() && notices.failure().is_some());
        notices.forget_failure();
        assert_eq!(notices.failure(), None);
        let mut off = RestartNotices::new(TellRestarts::Off, "docs");
        off.note_end("was killed", true);
        assert!(!off.is_due());
    }
}
