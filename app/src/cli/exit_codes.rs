//! `afresh exit-codes`.

use crate::error::{CommandError, EXIT_CODES, Exit};
use crate::output;

pub(crate) fn run() -> Result<Exit, CommandError> {
    let lines: Vec<String> =
        EXIT_CODES.iter().map(|(code, meaning)| format!("{code:>6}  {meaning}\n")).collect();
    output::print(&lines.concat())?;
    Ok(Exit::Success)
}
