//! `afresh exit-codes`.

use clap::Args;
use serde_json::json;

use crate::error::{CommandResult, EXIT_CODES};
use crate::output;

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
