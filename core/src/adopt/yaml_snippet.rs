//! Writes what a person puts into a client's YAML file. Used by `afresh adopt`, which changes no YAML: its comments and
//! its many ways of writing a list would not survive.

use super::wrapper::{Wrapper, quote};
use crate::client_file_paths::GOOSE;

/// Whether a file is YAML, by its name.
pub fn is_yaml(path: &str) -> bool {
    let path = path.to_ascii_lowercase();
    path.ends_with(".yaml") || path.ends_with(".yml")
}

/// The entry of a server in the file of this client, with words in capitals for what stands there now.
pub fn yaml_snippet(client: &str, wrapper: &Wrapper<'_>) -> String {
    let with = wrapper.with.iter().map(String::as_str);
    let words = ["mcp", "--name", "NAME"].into_iter().chain(with);
    let words = words.chain(["--", "OLD_COMMAND", "OLD_ARGUMENTS"]);
    let words: Vec<String> = words.map(quote).collect();
    let (program, args) = (quote(wrapper.program), words.join(", "));
    match client {
        GOOSE => format!("extensions:\n  NAME:\n    cmd: {program}\n    args: [{args}]\n"),
        _ => format!("mcpServers:\n  - name: NAME\n    command: {program}\n    args: [{args}]\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_keys() {
        let with = ["--spare".to_owned()];
        let wrapper = Wrapper { program: "afresh", with: &with };
        let args = r#"["mcp", "--name", "NAME", "--spare", "--", "OLD_COMMAND", "OLD_ARGUMENTS"]"#;
        let goose = format!("extensions:\n  NAME:\n    cmd: \"afresh\"\n    args: {args}\n");
        assert_eq!(yaml_snippet(GOOSE, &wrapper), goose);
        let other =
            format!("mcpServers:\n  - name: NAME\n    command: \"afresh\"\n    args: {args}\n");
        assert_eq!(yaml_snippet("", &wrapper), other);
        assert!(is_yaml("a/B.YML") && is_yaml("c.yaml") && !is_yaml("yaml.json"));
    }
}
