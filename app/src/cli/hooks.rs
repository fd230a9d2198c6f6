//! `afresh hooks`.

use afresh_core::hook::{HookDefinition, HookTarget, Shape};
use afresh_core::text::harmless;
use afresh_daemon::try_hook;
use clap::{Args, Subcommand};

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output;

/// Shows the hooks of the configuration: who is told when a service crashes, crashes again and again, is
/// given up, is well again, or was restarted.
///
/// `afresh hooks test NAME` tells one of them an event that did not happen, to see whether it works.
#[derive(Debug, Args)]
#[command(
    about = "Show who is told when a service crashes, and try it",
    after_help = "Examples:\n  \
                  afresh hooks\n  \
                  afresh hooks test team\n\n\
                  afresh.toml:\n  \
                  [hook.team]\n  \
                  webhook = \"https://hooks.slack.com/services/…\"\n  \
                  on = [\"crash_loop\", \"gave_up\", \"recovered\"]"
)]
pub(crate) struct HooksArgs {
    /// Accept all that the project's files ask for, for this process alone: for CI; see `afresh trust`
    #[arg(long, global = true)]
    trust: bool,

    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Tell a hook an event that did not happen
    Test {
        /// The hook
        #[arg(value_name = "NAME")]
        name: String,
    },
}

pub(crate) fn run(arguments: &HooksArgs, environment: &Environment) -> CommandResult {
    let environment = &environment.with_trust(arguments.trust);
    let config = environment.config_for(&environment.workspace(), &[], &["hook."])?;
    let hooks = config.hooks;
    let Some(What::Test { name }) = &arguments.what else {
        if hooks.is_empty() {
            output::remark("there are no hooks; `[hook.NAME]` in `afresh.toml` makes one");
        }
        return output::print(&hooks.iter().map(line).collect::<String>());
    };
    let known = || hooks.iter().map(|hook| hook.name.as_str());
    if !known().any(|known| known == name) {
        if config.untrusted.iter().any(|request| request.name == format!("hook.{name}")) {
            let text = format!("hook `{}` of this project is not trusted", harmless(name));
            return Err(CommandError::new(Exit::Failed, text).hint(format!(
                "look at it and accept it with `afresh trust hook.{}`",
                harmless(name)
            )));
        }
        let text = format!("there is no hook `{}`", harmless(name));
        let error = CommandError::new(Exit::NotFound, text);
        return Err(error.did_you_mean(name, known(), "`afresh hooks` shows those there are"));
    }
    try_hook(environment.hook_setup(hooks), name).or_exit(Exit::Failed)?;
    output::print(&format!("hook `{name}` was told\n"))
}

/// A hook in a line. A webhook's path is often its secret.
fn line(hook: &HookDefinition) -> String {
    let events: Vec<&str> = hook.events.iter().map(|event| event.name()).collect();
    let target = match &hook.target {
        HookTarget::Command(argv) => format!("runs {}", argv.first().map_or("", String::as_str)),
        HookTarget::Webhook { url, shape, .. } => {
            let host = url.split('/').nth(2).unwrap_or_default();
            let shape = match shape {
                Shape::Json => "",
                Shape::Slack => " (Slack)",
                Shape::Discord => " (Discord)",
                Shape::Ntfy => " (ntfy)",
            };
            format!("posts to {host}{shape}")
        }
        HookTarget::Desktop => "notifies the desktop".to_owned(),
    };
    let services = match hook.services.is_empty() {
        true => "all services".to_owned(),
        false => hook.services.join(", "),
    };
    harmless(&format!("{}: {target} on {}, of {services}", hook.name, events.join(", "))) + "\n"
}
