//! Writes what a person puts into a client's YAML file. Used by `afresh adopt`, which changes no YAML: its comments and
//! its many ways of writing a list would not survive.

use super::wrapper::{Wrapper, quote};
use crate::client_file_paths::GOOSE;

/// Whether a file is YAML, by its name.
pub fn is_yaml(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.ends_with(".yaml") || path.ends_with(".yml")
}

/// The entry of a server in the file of this client, with words in capitals for what stands there now. The text says
/// whose file it is where its place does not.
pub fn yaml_snippet(client: &str, text: &str, wrapper: &Wrapper<'_>) -> String {
    let with = wrapper.with.iter().map(String::as_str);
    let (program, rest) = wrapper.invocation.split_first().unwrap_or((&"afresh", &[]));
    let words = rest.iter().copied().chain(["mcp", "--name", "NAME"]).chain(with);
    let words = words.chain(["--", "OLD_COMMAND", "OLD_ARGUMENTS"]);
    let words: Vec<String> = words.map(quote).collect();
    let (program, args) = (quote(program), words.join(", "));
    let is_goose = client == GOOSE || text.lines().any(|line| line.starts_with("extensions:"));
    match is_goose {
        true => format!("extensions:\n  NAME:\n    cmd: {program}\n    args: [{args}]\n"),
        false => {
            format!("mcpServers:\n  - name: NAME\n    command: {program}\n    args: [{args}]\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_keys() {
        let with = ["--spare".to_owned()];
        let wrapper = Wrapper { invocation: &["afresh"], with: &with, version: None, gone: &[] };
        let args = r#"["mcp", "--name", "NAME", "--spare", "--", "OLD_COMMAND", "OLD_ARGUMENTS"]"#;
        let goose = format!("extensions:\n  NAME:\n    cmd: \"afresh\"\n    args: {args}\n");
        assert_eq!(yaml_snippet(GOOSE, "", &wrapper), goose);
        assert_eq!(yaml_snippet("", "a: 1\nextensions:\n  x:\n", &wrapper), goose);
        let other =
            format!("mcpServers:\n  - name: NAME\n    command: \"afresh\"\n    args: {args}\n");
        assert_eq!(yaml_snippet("", "models:\n  - extensions: 1\n", &wrapper), other);
        assert!(is_yaml("a/B.YML") && is_yaml("c.yaml") && !is_yaml("yaml.json"));
    }
}
