//! Pieces of what an agent says: they come by the hundred while its model speaks, and again whole when it has spoken.

use super::AgentKind;

impl AgentKind {
    /// Whether a line or an event is nothing but a piece. Looks only at its beginning: where an agent writes it in
    /// another way it is read like any other, which takes longer.
    pub fn is_piece(self, bytes: &[u8]) -> bool {
        match self {
            // Where a block begins and ends, too.
            Self::Claude => {
                let event = bytes.strip_prefix(br#"{"type":"stream_event","event":{"type":""#);
                event.is_some_and(|event| {
                    event.starts_with(b"content_block_") || event.starts_with(b"message_stop")
                })
            }
            // `item/agentMessage/delta`, `item/reasoning/textDelta`, `item/commandExecution/outputDelta`.
            Self::Codex => bytes.strip_prefix(br#"{"method":"item/"#).is_some_and(|rest| {
                let end = rest.iter().take(64).position(|byte| *byte == b'"');
                end.is_some_and(|end| rest[..end].ends_with(b"elta"))
            }),
            Self::Opencode => after_id(bytes).starts_with(br#""type":"message.part.delta""#),
            Self::Command => false,
        }
    }
}

/// What follows the id of an event, which some versions write first.
fn after_id(bytes: &[u8]) -> &[u8] {
    let inside = bytes.strip_prefix(b"{").unwrap_or_default();
    let Some(id) = inside.strip_prefix(br#""id":""#) else { return inside };
    let end = id.iter().take(64).position(|byte| *byte == b'"');
    end.and_then(|end| id[end..].strip_prefix(br#"","#)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_told_by_their_beginning() {
        let claude = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":0}}"#;
        let codex = r#"{"method":"item/commandExecution/outputDelta","params":{}}"#;
        let opencode = r#"{"type":"message.part.delta","properties":{}}"#;
        let whole = [
            r#"{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":77}}}"#,
            r#"{"type":"assistant","message":{"content_block_delta":1}}"#,
            r#"{"method":"item/completed","params":{"item":"delta"}}"#,
            r#"{"type":"message.part.updated","properties":{}}"#,
            r#"{"method":"item/delta"#,
            "",
        ];
        for kind in AgentKind::ALL {
            let is_piece = |line: &str| kind.is_piece(line.as_bytes());
            assert_eq!(is_piece(claude), kind == AgentKind::Claude);
            assert_eq!(is_piece(codex), kind == AgentKind::Codex);
            assert_eq!(is_piece(opencode), kind == AgentKind::Opencode);
            let with_id = opencode.replacen('{', r#"{"id":"evt_1","#, 1);
            assert_eq!(is_piece(&with_id), kind == AgentKind::Opencode);
            assert!(!whole.into_iter().any(is_piece), "{kind:?}");
        }
    }
}
