//! `afresh completions`: what clap makes of the commands, and the names of the services that run.

use std::collections::BTreeSet;

use afresh_daemon::control;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::environment::Environment;
use crate::error::CommandResult;
use crate::output;

/// Print the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    afresh completions bash > ~/.local/share/bash-completion/completions/afresh\n  \
    afresh completions zsh > ~/.zfunc/_afresh\n  \
    afresh completions fish > ~/.config/fish/completions/afresh.fish\n\n\
    In bash, zsh and fish also the names of the services that run are completed.")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// The commands that take names of services.
const COMMANDS: [&str; 7] = ["status", "start", "stop", "restart", "logs", "attach", "events"];

pub(crate) fn run(arguments: &CompletionsArgs) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "afresh", &mut script);
    output::print(&with_names(arguments.shell, &String::from_utf8_lossy(&script)))
}

/// Prints the names of the services here. Errors are dropped: a shell that completes has no use for them.
pub(crate) fn services(environment: &Environment) -> CommandResult {
    let found = control::find(&environment.runtime_folders()).unwrap_or_default();
    let names: BTreeSet<String> = found
        .services
        .into_iter()
        .flat_map(|reached| [Some(reached.status.name), reached.status.group])
        .flatten()
        .filter(|name| is_plain(name))
        .collect();
    output::print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())
}

/// Whether a name means nothing but itself to every shell.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._@+-".contains(c);
    !name.starts_with('-') && name.chars().all(plain)
}

/// The script, with the names of services where a command takes one.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{}", bash()),
        Shell::Zsh => zsh(script),
        Shell::Fish => format!("{script}{}", fish()),
        _ => script.to_owned(),
    }
}

/// Adds the names to what clap's function finds.
fn bash() -> String {
    format!(
        r#"
_afresh_services() {{
    _afresh "$@"
    local word="${{COMP_WORDS[COMP_CWORD]}}"
    case "${{COMP_WORDS[1]}}" in
        {})
            if [[ ${{COMP_CWORD}} -gt 1 && "$word" != -* ]]; then
                COMPREPLY+=( $(compgen -W "$("${{COMP_WORDS[0]}}" __services 2>/dev/null)" -- "$word") )
            fi
            ;;
    esac
}}
complete -F _afresh_services -o bashdefault -o default afresh
"#,
        COMMANDS.join("|")
    )
}

/// Takes the names for the default of each positional argument of these commands.
fn zsh(script: &str) -> String {
    let mut takes_names = false;
    let mut lines = Vec::new();
    for line in script.lines() {
        if let Some(word) = line.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            takes_names = COMMANDS.contains(&word);
        }
        let is_positional =
            line.starts_with("'*::") || line.starts_with("'::") || line.starts_with("':");
        match line.strip_suffix(":_default' \\").filter(|_| takes_names && is_positional) {
            Some(argument) => lines.push(format!("{argument}:_afresh_services' \\")),
            None => lines.push(line.to_owned()),
        }
        // After the first line, which has to stay the first.
        if line.starts_with("#compdef") {
            let function = "_afresh_services() {\n    \
                            local -a names\n    \
                            names=(${(f)\"$(afresh __services 2>/dev/null)\"})\n    \
                            compadd -a names\n}";
            lines.push(format!("\n{function}"));
        }
    }
    lines.join("\n") + "\n"
}

fn fish() -> String {
    let all = COMMANDS.join(" ");
    format!(
        "complete -c afresh -n \"__fish_seen_subcommand_from {all}\" -f -a \"(afresh __services 2>/dev/null)\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "afresh", &mut script);
        with_names(shell, &String::from_utf8_lossy(&script))
    }

    #[test]
    fn every_command_that_takes_names_completes_them() {
        let zsh = script(Shell::Zsh);
        assert_eq!(zsh.matches(":_afresh_services' \\").count(), COMMANDS.len(), "{zsh}");
        assert!(zsh.starts_with("#compdef afresh\n\n_afresh_services() {"), "{}", &zsh[..200]);
        assert!(script(Shell::Bash).contains("status|start|stop|restart|logs|attach|events)"));
        assert!(script(Shell::Fish).ends_with("-a \"(afresh __services 2>/dev/null)\"\n"));
    }

    #[test]
    fn a_name_that_a_shell_would_obey_is_not_offered() {
        for (name, plain) in [
            ("web", true),
            ("a.b-c_2", true),
            ("$(id)", false),
            ("a b", false),
            ("-x", false),
            ("`x`", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name}");
        }
    }
}
