//! Reads the files of a plan, and lets the core make a plan of them.

use std::path::Path;

use afresh_core::limits::PLAN_FILE_BYTES_MAX;
use afresh_core::run::plan::{self, CheckedPlan, LinkedFile, PlanError, PlanFile};

use crate::environment::{Environment, read_bounded, read_error};
use crate::error::{CommandError, Exit};

/// A plan as it was read.
#[derive(Debug)]
pub(crate) struct ReadPlan {
    /// The files that it is written in, as people would write them here; its own is the first.
    pub(crate) files: Vec<String>,
    /// The plan, or what is wrong with it.
    pub(crate) result: Result<CheckedPlan, Vec<PlanError>>,
}

/// Reads a plan with all that it links. That a linked file cannot be read is an error of the plan.
pub(crate) fn read(file: &Path, environment: &Environment) -> Result<ReadPlan, CommandError> {
    let path = environment.cwd.join(file);
    let shown = environment.shown(&path);
    let read = read_bounded(&path, PLAN_FILE_BYTES_MAX);
    let Some(bytes) = read.map_err(|error| read_error(&path, &error))? else {
        return Err(CommandError::new(Exit::NotFound, format!("there is no file `{shown}`"))
            .hint("run `afresh plan new` to write an example, or name the plan"));
    };
    let source = PlanFile { path: &shown, bytes: &bytes };
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    let read = |link: String| {
        let path = folder.join(&link);
        let content = match read_bounded(&path, PLAN_FILE_BYTES_MAX) {
            Ok(Some(_)) if !is_inside(&path, &folder) => {
                Err("it is a link to a file outside of the plan's folder".to_owned())
            }
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => Err("there is no such file".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        LinkedFile { path: link, content }
    };
    let linked: Vec<LinkedFile> = plan::links(&source).into_iter().map(read).collect();
    let result = plan::read(&source, &linked);
    let beside = linked.iter().map(|file| environment.shown(&folder.join(&file.path)));
    let files = std::iter::once(shown.clone()).chain(beside).collect();
    Ok(ReadPlan { files, result })
}

/// Whether a file is in a folder, wherever links lead.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(path).zip(real(folder)).is_some_and(|(path, folder)| path.starts_with(folder))
}
