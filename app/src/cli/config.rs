//! `afresh config`.

use clap::Args;

use crate::environment::Environment;
use crate::error::{CommandError, Exit};

#[derive(Debug, Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments, _: &Environment) -> Result<Exit, CommandError> {
    todo!()
}
