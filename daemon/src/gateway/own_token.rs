//! Owns the token that the gateway makes for its port on this machine where none is configured, in a file of the user's.
//! Called before the loop. Never makes a second one while the file is there.

use afresh_core::gateway::access_patterns::Access;
use afresh_core::gateway::settings::{FrontAddress, FrontSettings, Token};

use crate::control::{ListenError, token};
use crate::store::user_state::{UserState, UserStateError};

/// The name of the token that is made where none is configured, and of its file in the user's private folder.
const OWN_TOKEN: (&str, &str) = ("default", "gateway.token");

/// Why there is no token of the gateway's own.
#[derive(Debug, thiserror::Error)]
pub enum OwnTokenError {
    /// The folder of the user's state cannot be used.
    #[error("there is no place for the token of the gateway")]
    Folder(#[source] UserStateError),
    /// The file in it cannot be used.
    #[error("there is no token of the gateway")]
    File(#[source] ListenError),
}

/// Makes clients send a token where they reach the gateway over a port of this machine and none is configured: any user
/// of the machine could call tools. It is made once for all gateways of the user, and stays.
pub fn guard_front(
    front: &mut FrontSettings,
    state: Result<UserState, UserStateError>,
) -> Result<(), OwnTokenError> {
    let needs_token = front.http.as_ref().is_some_and(FrontAddress::needs_own_token);
    if !needs_token || !front.tokens.is_empty() {
        return Ok(());
    }
    let (name, file) = OWN_TOKEN;
    let state = state.and_then(|state| state.prepare().map(|()| state));
    let path = state.map_err(OwnTokenError::Folder)?.path(file);
    let secret = token(&path).map_err(OwnTokenError::File)?;
    let access = Access { name: name.to_owned(), ..Access::default() };
    front.tokens.push(Token { secret, access });
    front.token_file = Some(path);
    Ok(())
}
