//! The demo's server: a small MCP server whose behaviour is in a file, so that it can be given new
//! code, and code that does not start.

use std::io::{BufRead, Write};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::error::{CommandError, Exit};

/// What the server is started with.
#[derive(Debug, Args)]
pub(crate) struct DemoServerArgs {
    /// The file with its code: `v1`, `v2` or anything else
    code: PathBuf,
}

/// Speaks MCP on stdin and stdout until the client is gone.
pub(crate) fn serve(arguments: &DemoServerArgs) -> Result<Exit, CommandError> {
    let failed = |error: std::io::Error| CommandError::new(Exit::Failed, error);
    let code = std::fs::read_to_string(&arguments.code).unwrap_or_else(|_| "v1".to_owned());
    let names: &[&str] = match code.as_str() {
        "v1" => &["hello", "crash"],
        "v2" => &["hello", "goodbye", "crash"],
        other => {
            let text = format!("the server's code, line 1: expected `v1` or `v2`, found `{other}`");
            return Err(CommandError::new(Exit::Failed, text));
        }
    };
    let mut stdout = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line.map_err(failed)?) else { continue };
        let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
            continue;
        };
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        let result = match (method, tool) {
            ("initialize", _) => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "afresh-demo", "version": code},
            }),
            ("tools/list", _) => {
                let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
                json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})
            }
            ("tools/call", "crash") => return Ok(Exit::Failed),
            ("tools/call", _) => {
                let text = format!("{code} {}", std::process::id());
                json!({"content": [{"type": "text", "text": text}], "isError": false})
            }
            _ => json!({}),
        };
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": result});
        writeln!(stdout, "{answer}").and_then(|()| stdout.flush()).map_err(failed)?;
    }
    Ok(Exit::Success)
}
