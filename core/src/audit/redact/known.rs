//! Secrets that are known by their values, since they stand in variables of the environment.

use std::borrow::Cow;
use std::fmt;

use super::{MARK, holds_secret, redact_text};
use crate::limits::SECRET_VALUE_BYTES_MIN;

/// Values that are secrets wherever they stand.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownSecrets(Vec<String>);

impl KnownSecrets {
    /// Those of the variables whose names say that they hold one.
    pub fn of<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let secret = |(name, value): (&str, &'a str)| {
            let is_secret = value.len() >= SECRET_VALUE_BYTES_MIN && holds_secret(name, value);
            is_secret.then_some(value)
        };
        let mut values: Vec<String> = Vec::new();
        for value in variables.into_iter().filter_map(secret) {
            // As it stands in JSON, where that is not the same.
            let escaped = serde_json::Value::from(value).to_string();
            let escaped = escaped[1..escaped.len() - 1].to_owned();
            values.extend([value.to_owned(), escaped]);
        }
        // One that is a part of another must not spoil that.
        values.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        Self(values)
    }

    /// Takes them, and all that looks like a secret, out of a text.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut known = Cow::Borrowed(text);
        for value in &self.0 {
            if memchr::memmem::find(known.as_bytes(), value.as_bytes()).is_some() {
                known = Cow::Owned(known.replace(value, MARK));
            }
        }
        match known {
            Cow::Borrowed(text) => redact_text(text),
            Cow::Owned(text) => Cow::Owned(redact_text(&text).into_owned()),
        }
    }
}

/// How many there are, and no more.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownSecrets({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_variables_are_found_wherever_they_stand() {
        let known = KnownSecrets::of([
            ("MY_API_KEY", "correct horse"),
            ("LONG_TOKEN", "correct horse battery"),
            ("DB_PASSWORD", "a\"b\\c-long"),
            ("HOME", "/home/somebody"),
            ("SHORT_TOKEN", "abc"),
            ("PWD", "/home/somebody"),
        ]);
        let redact = |text: &str| known.redact(text).into_owned();
        assert_eq!(redact("it says correct horse battery!"), "it says [redacted]!");
        assert_eq!(redact("it says correct horse!"), "it says [redacted]!");
        assert_eq!(redact(r#"{"x":"a\"b\\c-long"}"#), r#"{"x":"[redacted]"}"#);
        assert_eq!(redact("abc in /home/somebody"), "abc in /home/somebody");
        assert_eq!(redact("--token hunter2hunter2"), "--token [redacted]", "as elsewhere");
        assert!(matches!(known.redact("plain"), Cow::Borrowed("plain")));
        assert_eq!(format!("{known:?}"), "KnownSecrets(4)");
    }
}
