//! `afresh install`: makes `afresh up` start with the machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use afresh_core::install::{InstallStep, Installation, Standing, name_of, parse_name, standing};
use afresh_core::text::harmless;
use afresh_daemon::store::client_files::own_path;
use afresh_daemon::{
    HOME_VARIABLE, Home, read_installed, remove_installed, run_steps, write_installed,
};
use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, CommandResult, Exit, OrExit};
use crate::output;

/// Start `afresh up` with the machine
#[derive(Debug, Args)]
#[command(
    long_about = "Makes `afresh up` of this workspace start with the machine: by a unit of your own \
                  systemd, or on macOS by an agent of launchd.\n\nThe file is shown first, with the \
                  commands that follow. On a terminal you are asked; elsewhere nothing is done without \
                  `--yes`. Running it twice changes nothing, and `--undo` removes what it wrote. A file \
                  that was changed since, or that is not of afresh, is left alone unless `--force` \
                  says otherwise.\n\nThe PATH of your shell is written into the file, because that of \
                  systemd is short: after it has changed, run the command again.\n\nExits with 1 where \
                  something is due and was not done, or failed.",
    after_help = "Examples:\n  \
                  afresh install            shows, asks, and starts it now and with the machine\n  \
                  afresh install --print    only shows the file\n  \
                  afresh install --undo     takes it back"
)]
pub(crate) struct InstallArgs {
    /// Remove what was installed
    #[arg(long)]
    undo: bool,

    /// Print the file, and do nothing
    #[arg(long, conflicts_with_all = ["undo", "yes", "force"])]
    print: bool,

    /// Do it without asking
    #[arg(short, long)]
    yes: bool,

    /// Replace or remove the file even if it was changed by hand
    #[arg(long)]
    force: bool,

    /// What it is called [default: the name of the workspace's folder]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
}

/// What is wanted, and what is there.
struct InstallPlan {
    installation: Installation,
    text: String,
    file: PathBuf,
    user: u32,
    standing: Standing,
}

pub(crate) fn run(arguments: &InstallArgs, environment: &Environment) -> CommandResult {
    let plan = plan(arguments, environment)?;
    if arguments.print {
        return output::print(&plan.text);
    }
    match arguments.undo {
        true => plan.undo(arguments, environment),
        false => plan.install(arguments, environment),
    }
}

fn plan(arguments: &InstallArgs, environment: &Environment) -> CommandResult<InstallPlan> {
    let home = environment.folder(HOME_VARIABLE);
    let home = Home::find(home.as_deref(), &|name| environment.folder(name)).ok_or_else(|| {
        CommandError::new(Exit::Unavailable, "afresh knows no service manager on this system")
            .hint("it needs the systemd or launchd of a user with a home folder")
    })?;
    let workspace = environment.workspace();
    let root = workspace.root().ok_or_else(|| {
        CommandError::new(Exit::NotFound, "there is no workspace here")
            .hint("go to the folder that has your `afresh.toml`")
    })?;
    let folder_name = root.file_name().map(|name| name.to_string_lossy().into_owned());
    let path = environment.variable("PATH");
    let program = own_path(path.map(OsString::as_os_str)).or_exit(Exit::Unavailable)?;
    let installation = Installation {
        manager: home.manager,
        name: arguments.name.clone().unwrap_or_else(|| name_of(&folder_name.unwrap_or_default())),
        program: text_of(&program)?,
        workspace: text_of(root)?,
        path: path.and_then(|path| path.to_str()).map(str::to_owned),
    };
    let text = installation.text().or_exit(Exit::Unavailable)?;
    let file = home.folder.join(installation.file_name());
    let there = read_installed(&file).or_exit(Exit::Unavailable)?;
    let standing = standing(there.as_deref(), &text);
    Ok(InstallPlan { installation, text, file, user: home.user, standing })
}

impl InstallArgs {
    fn is_allowed(&self, question: &str) -> bool {
        let is_allowed = self.yes || output::ask(question);
        if !is_allowed {
            output::remark("nothing was done; `--yes` does it without asking");
        }
        is_allowed
    }
}

impl InstallPlan {
    fn install(&self, arguments: &InstallArgs, environment: &Environment) -> CommandResult {
        let file = self.file.display().to_string();
        if self.standing == Standing::Same {
            output::remark(&format!("`{file}` is there already; nothing to do"));
            return Ok(Exit::Success);
        }
        self.check(arguments)?;
        let steps = self.installation.enable(self.user, &file);
        output::print(&format!("# {file}\n{}", self.text))?;
        announce("then", &steps);
        let question = match self.standing {
            Standing::Free => "write this file, and run these commands?",
            _ => "replace the file that is there, and run these commands?",
        };
        if !arguments.is_allowed(question) {
            return Ok(Exit::Failed);
        }
        write_installed(&self.file, &self.text).or_exit(Exit::Unavailable)?;
        output::remark(&format!("wrote `{file}`"));
        let failed = run_all(&steps, environment);
        if failed {
            output::remark("the file stays; run the commands above by hand where they can work");
        }
        Ok(if failed { Exit::Failed } else { Exit::Success })
    }

    fn undo(&self, arguments: &InstallArgs, environment: &Environment) -> CommandResult {
        let file = self.file.display().to_string();
        if self.standing == Standing::Free {
            output::remark(&format!("`{file}` is not there; nothing to do"));
            return Ok(Exit::Success);
        }
        self.check(arguments)?;
        let (before, after) = (self.installation.disable(self.user), self.installation.forget());
        announce("first", &before);
        output::remark(&format!("then `{file}` is removed"));
        if !arguments.is_allowed("do that?") {
            return Ok(Exit::Failed);
        }
        // Where there is no systemd that could forget it, the file has to go all the same.
        let mut failed = run_all(&before, environment);
        remove_installed(&self.file).or_exit(Exit::Unavailable)?;
        output::remark(&format!("removed `{file}`"));
        failed |= run_all(&after, environment);
        Ok(if failed { Exit::Failed } else { Exit::Success })
    }

    /// Whether the file that is there may be touched.
    fn check(&self, arguments: &InstallArgs) -> CommandResult<()> {
        let problem = match self.standing {
            Standing::Free | Standing::Same | Standing::Older => return Ok(()),
            _ if arguments.force => return Ok(()),
            Standing::Changed => "was changed since afresh wrote it",
            Standing::Foreign => "was not written by afresh",
            Standing::Elsewhere => "is for another workspace of the same name",
        };
        let error = CommandError::new(Exit::Failed, format!("`{}` {problem}", self.file.display()));
        Err(match self.standing {
            Standing::Elsewhere => error.hint("give this one another name with `--name`"),
            _ => error.hint("look at it, and say `--force` if it may go"),
        })
    }
}

fn announce(when: &str, steps: &[InstallStep]) {
    for step in steps {
        output::remark(&format!("{when}: {}", step.command.join(" ")));
    }
}

/// Runs the commands, and says what fails. Returns whether one did that must not.
fn run_all(steps: &[InstallStep], environment: &Environment) -> bool {
    let mut failed = false;
    run_steps(steps, &environment.variables, |step, outcome| {
        if let Err(why) = outcome {
            failed |= step.must;
            let word = if step.must { "error" } else { "warning" };
            let command = step.command.join(" ");
            output::warn(&format!("{word}: `{command}` failed: {}", harmless(&why)));
        }
    });
    failed
}

/// What goes into a file of systemd or launchd has to be text.
fn text_of(path: &Path) -> CommandResult<String> {
    let problem = || format!("the path `{}` is not UTF-8", path.display());
    path.to_str().map(str::to_owned).ok_or_else(problem).or_exit(Exit::Unavailable)
}
