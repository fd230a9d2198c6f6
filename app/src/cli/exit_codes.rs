//! `afresh exit-codes`.

use clap::Args;
use serde_json::json;

use crate::error::{CommandError, EXIT_CODES, Exit};
use crate::output;

/// Print what each exit code means
#[derive(Debug, Args)]
pub(crate) struct ExitCodesArgs {
    /// An array of objects
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ExitCodesArgs) -> Result<Exit, CommandError> {
    if arguments.json {
        let rows: Vec<serde_json::Value> = EXIT_CODES
            .iter()
            .map(|(code, meaning)| json!({"code": code, "meaning": meaning}))
            .collect();
        output::print(&format!("{:#}\n", serde_json::Value::from(rows)))?;
        return Ok(Exit::Success);
    }
    let lines: Vec<String> =
        EXIT_CODES.iter().map(|(code, meaning)| format!("{code:>6}  {meaning}\n")).collect();
    output::print(&lines.concat())?;
    Ok(Exit::Success)
}
