//! Owns the keys of `[gateway.token.NAME]`.

use std::path::PathBuf;

use crate::config::key::*;
use crate::config::value_syntax::Kind;

keys! {
    TOKENS of "gateway.token";

    /// The token itself, at least 16 characters; for tries only, since files get around.
    TOKEN: Key<String> = key("token", Kind::Secret).example(r#""0123456789abcdef""#);
    /// The variable that holds the token.
    TOKEN_ENV: Key<String> = key("token_env", Kind::Variable).example(r#""GATEWAY_TOKEN""#);
    /// The file that holds the token; a relative path counts from the workspace.
    TOKEN_FILE: Key<PathBuf> = key("token_file", Kind::Path).example(r#""gateway.token""#);
    /// The servers that it opens, with their resources and prompts; a `*` stands for any text, and `[]` is none.
    SERVERS: Key<Vec<String>> = key("servers", Kind::Patterns).example(r#"["git*"]"#)
        .or("all of them, or with `tools` those that have one of these");
    /// The tools that it opens, by their names in the list; a `*` stands for any text, and `[]` is none.
    TOOLS: Key<Vec<String>> = key("tools", Kind::Patterns).example(r#"["*__get_*"]"#)
        .or("all of them");
}
