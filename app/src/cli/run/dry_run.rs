//! Prints what a run would do, and with which settings. Never starts anything.

use afresh_core::adopt::agent_servers::{AgentServers, SupervisedServer};
use afresh_core::agent::AgentKind;
use afresh_core::audit::redact::redact_args;
use afresh_core::config::{Config, ShownSetting};
use afresh_core::run::plan::{Phase, Plan};
use afresh_core::text::harmless;
use serde_json::{Map, Value, json};

use crate::cli::config::print_tables;
use crate::error::{CommandError, Exit};
use crate::output;

/// Shows the phases in their order, and the settings with where they come from.
pub(super) fn show(
    plan: &Plan,
    kind: AgentKind,
    program: &[String],
    config: &Config,
    found: &AgentServers,
    json: bool,
) -> Result<Exit, CommandError> {
    let settings: Vec<ShownSetting> =
        config.shown().filter(|shown| shown.section == "run").collect();
    let program = redact_args(program);
    if json {
        let settings: Map<String, Value> =
            settings.iter().map(|shown| (shown.key.to_owned(), shown.value.to_json())).collect();
        let phase = |phase: &Phase| {
            let gates: Vec<&str> = phase.gates.iter().map(|gate| gate.command.as_str()).collect();
            json!({"name": phase.name, "gates": gates})
        };
        let server = |it: &SupervisedServer| json!({"name": it.server.name, "from": it.from});
        let all = json!({
            "title": plan.title,
            "agent": kind.name(),
            "program": program,
            "phases": plan.phases.iter().map(phase).collect::<Vec<_>>(),
            "supervised_servers": found.servers.iter().map(server).collect::<Vec<_>>(),
            "settings": settings,
        });
        return output::print_json(&all);
    }
    let (title, program) = (harmless(&plan.title), harmless(&program.join(" ")));
    let mut text = format!("{title}\nagent: {} ({program})\n", kind.name());
    for server in &found.servers {
        let (name, from) = (harmless(&server.server.name), harmless(&server.from));
        text.push_str(&format!("MCP server behind afresh: {name} (from {from})\n"));
    }
    for (at, phase) in plan.phases.iter().enumerate() {
        text.push_str(&format!("{}. {}\n", at + 1, harmless(&phase.name)));
        for gate in &phase.gates {
            text.push_str(&format!("   gate: {}\n", harmless(&gate.command)));
        }
    }
    text.push('\n');
    output::print(&text)?;
    print_tables(&settings, &[])?;
    Ok(Exit::Success)
}
