//! Owns the checks of an HTTP request's caller over TCP: `Host`, `Origin` and bearer token. A Unix socket belongs to its user by the
//! kernel's word; a port is open to every process of the machine and to every page in a browser. Driven by the
//! control API and the gateway. Never reads a body.

/// Hexadecimal digits of a token: 32 random bytes.
pub const TOKEN_DIGITS: usize = 64;

/// The headers of a request that identify its caller. A header that is there twice counts as missing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// `Host`.
    pub host: Option<&'a str>,
    /// `Origin`; `Some(None)` for one that is no text, or for several.
    pub origin: Option<Option<&'a str>>,
    /// `Authorization`.
    pub authorization: Option<&'a str>,
}

/// Why a caller is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessDenied {
    /// The request is for another host: a name rebound to this machine, as a page in a browser can do.
    Host,
    /// It is a page of another origin.
    Origin,
    /// It has no token.
    NoToken,
    /// It has another token.
    Token,
}

/// The hosts that requests may be for, and the pages that may make them; in lower case.
#[derive(Clone, Debug, Default)]
pub struct AllowedCallers {
    /// The values of `Host` that mean this machine and port.
    pub own_hosts: Vec<String>,
    /// Others, with a port or for every port.
    pub hosts: Vec<String>,
    /// Values of `Origin` besides the own pages.
    pub origins: Vec<String>,
}

impl AllowedCallers {
    /// Requests to a port of this machine.
    pub fn of_port(port: u16) -> Self {
        let own_hosts = ["127.0.0.1", "localhost", "[::1]"].map(|host| match port {
            // The default port is left out.
            80 => host.to_owned(),
            _ => format!("{host}:{port}"),
        });
        Self { own_hosts: own_hosts.to_vec(), ..Self::default() }
    }

    /// Whether a page of another origin may read the response.
    pub fn is_origin(&self, origin: &str) -> bool {
        self.origins.contains(&origin.to_ascii_lowercase())
    }

    /// Whether `Host` and `Origin` of a caller are allowed.
    pub fn admit(&self, caller: Caller<'_>) -> Result<(), AccessDenied> {
        let host = caller.host.map(str::to_ascii_lowercase).unwrap_or_default();
        // An address of IPv6 has colons in it, but ends with a bracket.
        let (name, _) =
            host.rsplit_once(':').filter(|_| !host.ends_with(']')).unwrap_or((&host, ""));
        let is_allowed = |host: &String, it: &str| !it.is_empty() && (*host == it || name == it);
        let is_own_host = self.own_hosts.contains(&host);
        if !is_own_host && !self.hosts.iter().any(|it| is_allowed(&host, it)) {
            return Err(AccessDenied::Host);
        }
        let Some(origin) = caller.origin else { return Ok(()) };
        let is_own = |origin: &str| {
            let (scheme, rest) = origin.split_once("://").unwrap_or_default();
            // Encryption is a proxy's; what this machine's own pages come over has none.
            let schemes: &[&str] = if is_own_host { &["http"] } else { &["http", "https"] };
            schemes.iter().any(|known| scheme.eq_ignore_ascii_case(known))
                && rest.eq_ignore_ascii_case(&host)
        };
        match origin.is_some_and(|origin| is_own(origin) || self.is_origin(origin)) {
            true => Ok(()),
            false => Err(AccessDenied::Origin),
        }
    }
}

/// The check of every caller of the control API over TCP.
#[derive(Clone)]
pub struct Guard {
    token: String,
    callers: AllowedCallers,
}

impl std::fmt::Debug for Guard {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("callers", &self.callers).finish_non_exhaustive()
    }
}

impl Guard {
    /// The guard of this port.
    pub fn new(port: u16, token: String) -> Self {
        Self { token, callers: AllowedCallers::of_port(port) }
    }

    /// Whether a caller is admitted.
    pub fn admits(&self, caller: Caller<'_>) -> Result<(), AccessDenied> {
        self.callers.admit(caller)?;
        let token = bearer(caller.authorization).ok_or(AccessDenied::NoToken)?;
        match is_same(token.as_bytes(), self.token.as_bytes()) {
            true => Ok(()),
            false => Err(AccessDenied::Token),
        }
    }
}

/// The token in an `Authorization`.
pub(crate) fn bearer(authorization: Option<&str>) -> Option<&str> {
    let (scheme, token) = authorization?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a text has the form of a token.
pub fn is_token(text: &str) -> bool {
    text.len() == TOKEN_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Random bytes as a token.
pub fn token_of(bytes: &[u8; TOKEN_DIGITS / 2]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares in constant time. The length of a token is no secret.
pub(crate) fn is_same(given: &[u8], wanted: &[u8]) -> bool {
    let differs = given.iter().zip(wanted).fold(0, |sum, (one, other)| sum | (one ^ other));
    given.len() == wanted.len() && std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Guard::new(8900, token_of(&[0xab; 32]))
    }

    #[test]
    fn only_who_knows_the_token_and_asks_for_us_is_answered() {
        let guard = guard();
        let token = format!("Bearer {}", "ab".repeat(32));
        let good =
            Caller { host: Some("localhost:8900"), origin: None, authorization: Some(&token) };
        for host in ["127.0.0.1:8900", "localhost:8900", "LocalHost:8900", "[::1]:8900"] {
            assert_eq!(guard.admits(Caller { host: Some(host), ..good }), Ok(()), "{host}");
        }
        for host in [
            "",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:8901",
            "127.0.0.2:8900",
            "evil.example:8900",
            "localhost.evil.example:8900",
            "localhost:8900.evil.example",
            "localhost:8900 ",
            "0.0.0.0:8900",
            "me@localhost:8900",
        ] {
            assert_eq!(
                guard.admits(Caller { host: Some(host), ..good }),
                Err(AccessDenied::Host),
                "{host}"
            );
        }
        assert_eq!(guard.admits(Caller { host: None, ..good }), Err(AccessDenied::Host));
        let own = Some(Some("http://localhost:8900"));
        assert_eq!(guard.admits(Caller { origin: own, ..good }), Ok(()));
        for origin in [
            "null",
            "",
            "https://localhost:8900",
            "http://localhost",
            "http://localhost:3000",
            "http://127.0.0.1:8900",
            "http://localhost:8900.evil.example",
            "http://evil.example",
            "file://",
        ] {
            let origin = Some(Some(origin));
            assert_eq!(
                guard.admits(Caller { origin, ..good }),
                Err(AccessDenied::Origin),
                "{origin:?}"
            );
        }
        assert_eq!(guard.admits(Caller { origin: Some(None), ..good }), Err(AccessDenied::Origin));
    }

    #[test]
    fn another_token_is_none() {
        let (guard, token) = (guard(), "ab".repeat(32));
        let with = |authorization: Option<&str>| {
            guard.admits(Caller { host: Some("localhost:8900"), origin: None, authorization })
        };
        assert_eq!(with(Some(&format!("bearer {token}"))), Ok(()));
        for (said, turned) in [
            (None, AccessDenied::NoToken),
            (Some(String::new()), AccessDenied::NoToken),
            (Some("Bearer".to_owned()), AccessDenied::NoToken),
            (Some(format!("Basic {token}")), AccessDenied::NoToken),
            (Some(token.clone()), AccessDenied::NoToken),
            (Some("Bearer ".to_owned()), AccessDenied::Token),
            (Some(format!("Bearer {}", &token[1..])), AccessDenied::Token),
            (Some(format!("Bearer {token}a")), AccessDenied::Token),
            (Some(format!("Bearer {}", token.replacen('a', "b", 1))), AccessDenied::Token),
        ] {
            assert_eq!(with(said.as_deref()), Err(turned), "{said:?}");
        }
        assert!(is_token(&token) && !is_token(&token[1..]) && !is_token(&"x".repeat(64)));
        assert!(!format!("{guard:?}").contains(&token));
    }
}
