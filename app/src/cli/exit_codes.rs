//! `afresh exit-codes`.

use clap::Args;
use serde_json::json;

use crate::error::CommandResult;
use crate::output;

/// Every documented code, with what it means.
const EXIT_CODES: [(&str, &str); 10] = [
    ("0", "success; also `afresh keep` after Ctrl+C, SIGTERM or a clean exit of the command"),
    (
        "1",
        "a check found something wrong, `adopt` has changes to make, a restart or the kept command failed",
    ),
    ("2", "the command line is wrong"),
    (
        "3",
        "the configuration or a plan is wrong; `afresh config check` or `afresh plan check` says where",
    ),
    ("4", "what was asked for does not exist"),
    ("5", "the system refuses what is needed; `afresh doctor` says what"),
    ("70", "afresh itself is broken: please report it"),
    ("126", "`afresh keep`: the command exists, but cannot be run (125: its folder is missing)"),
    ("127", "`afresh keep`: the command was not found"),
    ("128+N", "`afresh keep`: the command was ended by signal N and not restarted"),
];

/// Print what each exit code means
#[derive(Debug, Args)]
pub(crate) struct ExitCodesArgs {
    /// An array of objects
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ExitCodesArgs) -> CommandResult {
    let codes = EXIT_CODES.iter();
    if arguments.json {
        let row = |(code, meaning): &(_, _)| json!({"code": code, "meaning": meaning});
        return output::print_json(&codes.map(row).collect());
    }
    let line = |(code, meaning): &(_, _)| format!("{code:>6}  {meaning}\n");
    output::print(&codes.map(line).collect::<String>())
}
