//! Owns the credentials of a health check, where only the environment of a start has them.

use super::{HealthCheck, Probe};
use crate::base64;

/// A name and a password in the environment of the service, sent as HTTP basic authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login {
    /// The variable with the name.
    pub name_variable: &'static str,
    /// The name where that is not set.
    pub name: &'static str,
    /// The variable with the password; where it is not set, nothing is sent.
    pub password_variable: &'static str,
}

impl Login {
    /// What `opencode serve` asks for.
    pub const OPENCODE: Self = Self {
        name_variable: "OPENCODE_SERVER_USERNAME",
        name: "opencode",
        password_variable: "OPENCODE_SERVER_PASSWORD",
    };
}

impl HealthCheck {
    /// The check for one start of the service: `variable` looks into the environment that it gets,
    /// which is afresh's own, its `env_file` and its `env` together.
    pub fn for_start(&self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut check = self.clone();
        let set = |name| variable(name).filter(|value| !value.is_empty());
        if let Some(login) = check.login.take()
            && let Some(password) = set(login.password_variable)
            && let Probe::Http { headers, .. } = &mut check.probe
            // A configured header of this name takes precedence.
            && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
        {
            let name = set(login.name_variable).unwrap_or_else(|| login.name.to_owned());
            let value =
                format!("Basic {}", base64::encode(format!("{name}:{password}").as_bytes()));
            headers.push(("Authorization".to_owned(), value));
        }
        check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check() -> HealthCheck {
        let url = "http://localhost:4096/global/health".to_owned();
        let probe = Probe::Http { url, status: None, json: None, headers: Vec::new() };
        HealthCheck { login: Some(Login::OPENCODE), ..HealthCheck::new(probe) }
    }

    fn headers(check: &HealthCheck, variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let check = check.for_start(|name| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        assert_eq!(check.login, None);
        match check.probe {
            Probe::Http { headers, .. } => headers,
            _ => Vec::new(),
        }
    }

    #[test]
    fn a_password_in_the_environment_is_sent() {
        let password = ("OPENCODE_SERVER_PASSWORD", "sesame");
        let basic = |value: &str| vec![("Authorization".to_owned(), format!("Basic {value}"))];
        assert_eq!(headers(&check(), &[]), []);
        assert_eq!(headers(&check(), &[("OPENCODE_SERVER_PASSWORD", "")]), []);
        assert_eq!(headers(&check(), &[password]), basic("b3BlbmNvZGU6c2VzYW1l"));
        let name = ("OPENCODE_SERVER_USERNAME", "ada");
        assert_eq!(headers(&check(), &[password, name]), basic("YWRhOnNlc2FtZQ=="));
        let mut own = check();
        if let Probe::Http { headers, .. } = &mut own.probe {
            headers.push(("authorization".to_owned(), "Bearer x".to_owned()));
        }
        assert_eq!(headers(&own, &[password]).len(), 1);
        let plain = HealthCheck { login: None, ..check() };
        assert_eq!(headers(&plain, &[password]), []);
    }
}
