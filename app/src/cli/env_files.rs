//! The files of variables that a project names for its servers: their content needs trust too. Driven by `afresh gateway`
//! and `afresh trust`. Never shows a value.

use std::path::{Path, PathBuf};

use afresh_core::env_file;
use afresh_core::gateway::backend::Transport;
use afresh_core::gateway::settings::Gateway as Wanted;
use afresh_core::limits::ENV_FILE_BYTES_MAX;
use afresh_core::trust::TrustRequest;
use afresh_daemon::leads_out;
use afresh_daemon::store::digest::sha256;

use crate::environment::read_bounded;
use crate::trust::Trust;

/// Fills in the variables of files that the project names for its servers: the very content that is accepted,
/// not what is there at a later start. Servers whose file is not accepted are taken out. Returns notes for people.
pub(super) fn settle(
    trust: &Trust,
    wanted: &mut Wanted,
    files: &[(String, PathBuf)],
    root: &Path,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, path) in files {
        let Some(at) = wanted.servers.iter().position(|server| server.name == *name) else {
            continue;
        };
        // With all accepted, its content counts as it is at each start.
        if trust.is_all && leads_out(root, &root.join(path)).is_none() {
            continue;
        }
        let Transport::Stdio(stdio) = &mut wanted.servers[at].transport else { continue };
        match request(name, path, root) {
            Ok((request, pairs)) if trust.accepts(&request) => {
                stdio.env.splice(0..0, pairs);
                stdio.env_file = None;
            }
            Ok((request, _)) => {
                wanted.untrusted.push(request.name);
                wanted.servers.remove(at);
            }
            Err(why) => {
                notes.push(format!("server `{name}` is left out: {why}"));
                wanted.untrusted.push(request_name(name));
                wanted.servers.remove(at);
            }
        }
    }
    notes
}

/// The request to give the variables of a file to a server, and these variables.
pub(super) fn request(
    server: &str,
    path: &Path,
    root: &Path,
) -> Result<(TrustRequest, Vec<(String, String)>), String> {
    let shown = path.display();
    let failed = |why: String| format!("cannot read its variables from `{shown}`: {why}");
    if leads_out(root, &root.join(path)).is_some() {
        return Err(failed("it leads out of the project; name it in your own file".to_owned()));
    }
    let bytes = read_bounded(&root.join(path), ENV_FILE_BYTES_MAX);
    let bytes = bytes.map_err(|error| failed(error.to_string()))?;
    let bytes = bytes.ok_or_else(|| failed("there is no such file".to_owned()))?;
    let variables = env_file::parse(&bytes).map_err(|error| failed(error.to_string()))?;
    let names: Vec<&str> = variables.keys().map(String::as_str).collect();
    let lines = vec![
        format!("env_file = {:?}", shown.to_string()),
        format!("variables = {}", names.join(" ")),
        format!("sha256 = {}", sha256(&bytes)),
    ];
    let request = TrustRequest {
        name: request_name(server),
        file: root.join(path).display().to_string(),
        lines,
    };
    Ok((request, variables.into_iter().collect()))
}

fn request_name(server: &str) -> String {
    format!("server.{server}.env_file")
}
