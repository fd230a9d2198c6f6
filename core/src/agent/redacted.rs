//! Removes secrets from the events of an agent before they are shown, stored or passed to the next session.

use super::{AgentEvent, TurnEnd};
use crate::audit::redact::KnownSecrets;

impl AgentEvent {
    /// The same, with a mark where a secret stood.
    #[must_use]
    pub fn without_secrets(mut self, secrets: &KnownSecrets) -> Self {
        let text = match &mut self {
            Self::Text(text) | Self::Strange(text) => text,
            Self::ToolBegan { detail, .. } => detail,
            Self::Retrying { why, .. } => why,
            Self::TurnEnded(TurnEnd::Done(text) | TurnEnd::Failed { why: text, .. }) => text,
            Self::Ready { .. }
            | Self::Deaf
            | Self::Context(_)
            | Self::Spent(_)
            | Self::ToolEnded { .. }
            | Self::Compacted
            | Self::TurnEnded(TurnEnd::Interrupted) => return self,
        };
        if let std::borrow::Cow::Owned(redacted) = secrets.redact(text) {
            *text = redacted;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::TurnFailure;

    #[test]
    fn whatever_an_agent_says_is_without_secrets() {
        let secrets = KnownSecrets::of([("API_KEY", "open sesame")]);
        let said = || "curl -H open sesame".to_owned();
        let (id, name) = ("1".to_owned(), "Bash".to_owned());
        for heard in [
            AgentEvent::Text(said()),
            AgentEvent::Strange(said()),
            AgentEvent::ToolBegan { id, name, detail: said() },
            AgentEvent::Retrying { attempt: 1, why: said(), at: None },
            AgentEvent::TurnEnded(TurnEnd::Done(said())),
            AgentEvent::TurnEnded(TurnEnd::Failed { failure: TurnFailure::Other, why: said() }),
        ] {
            let heard = format!("{:?}", heard.without_secrets(&secrets));
            assert!(!heard.contains("sesame") && heard.contains("[redacted]"), "{heard}");
        }
    }
}
