//! The agent of a user's launchd, as a property list.

use super::mark::marked;
use super::{InstallError, Installation, refused};
use crate::limits::INSTALL_STOP_WAIT;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                    <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
                    \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n";

pub(super) fn text(it: &Installation) -> Result<String, InstallError> {
    let program = escaped("the program", &it.program)?;
    let workspace = escaped("the folder", &it.workspace)?;
    let label = escaped("the name", &it.label())?;
    let path = match &it.path {
        Some(path) => format!(
            "  <key>EnvironmentVariables</key>\n  <dict>\n    <key>PATH</key>\n    \
             <string>{}</string>\n  </dict>\n",
            escaped("PATH", path)?
        ),
        None => String::new(),
    };
    let body = format!(
        "<plist version=\"1.0\">\n\
         <dict>\n  \
           <key>Label</key>\n  <string>{label}</string>\n  \
           <key>ProgramArguments</key>\n  <array>\n    <string>{program}</string>\n    \
           <string>up</string>\n  </array>\n  \
           <key>WorkingDirectory</key>\n  <string>{workspace}</string>\n\
         {path}  \
           <key>RunAtLoad</key>\n  <true/>\n  \
           <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  \
           <key>ExitTimeOut</key>\n  <integer>{stop}</integer>\n\
         </dict>\n\
         </plist>\n",
        stop = INSTALL_STOP_WAIT.as_secs(),
    );
    Ok(marked(&format!("{HEAD}<!-- "), &format!(" -->\n{body}")))
}

/// A text between tags.
fn escaped(what: &'static str, text: &str) -> Result<String, InstallError> {
    if text.chars().any(char::is_control) {
        return Err(refused(what, text, "has characters that a property list does not take"));
    }
    Ok(text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}
