//! Expands variables within values: `${TOKEN}` in a header, `$HOME` in an argument. Called while configuration is read.
//! Never reads the environment: the caller passes it.

use std::fmt;

use crate::env_file::is_variable;
use crate::limits::EXPANDED_BYTES_MAX;

/// The syntax of variables; each program has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `$VAR`, `${VAR}`, `${VAR:-default}` and `${env:VAR}`; `$$` is a `$`. A `$` before anything else is
    /// itself.
    Ours,
    /// The same in braces alone, with what editors have besides, such as `${workspaceFolder}`.
    Braces,
    /// `{env:VAR}`.
    Opencode,
    /// Not at all.
    Never,
}

/// The values of variables.
#[derive(Clone, Copy)]
pub(crate) struct VariableScope<'a> {
    pub(crate) env: &'a [(String, String)],
    /// The folder that is `${workspaceFolder}`.
    pub(crate) workspace: &'a str,
}

/// The reason that a value cannot be expanded. Its `Display` goes on after "`key`".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpansionError {
    /// A variable is not set.
    Unset(String),
    /// The editor would ask a person.
    Input {
        id: String,
        /// The variable that is read instead.
        variable: String,
    },
    /// `{file:…}`.
    File(String),
    /// The text in the braces is not a variable.
    Unknown(String),
    /// No `}` follows.
    Open,
    /// More than [`EXPANDED_BYTES_MAX`].
    TooLong,
}

impl VariableScope<'_> {
    /// The value of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let found = self.env.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a variable that must be set.
    fn required(&self, name: &str) -> Result<String, ExpansionError> {
        let value = self.variable(name).map(str::to_owned);
        value.ok_or_else(|| ExpansionError::Unset(name.to_owned()))
    }

    /// Expands a text.
    pub(crate) fn expand(&self, text: &str, style: Style) -> Result<String, ExpansionError> {
        let open = match style {
            Style::Ours | Style::Braces => "$",
            Style::Opencode => "{",
            Style::Never => return Ok(text.to_owned()),
        };
        let (mut full, mut rest) = (String::new(), text);
        while let Some(at) = rest.find(open) {
            full.push_str(&rest[..at]);
            let after = &rest[at + open.len()..];
            let (value, length) = match style {
                Style::Opencode => {
                    let inner = after.split_once('}').map_or("", |(inner, _)| inner);
                    match self.opencode(inner)? {
                        Some(value) => (value, inner.len() + 1),
                        None => (open.to_owned(), 0),
                    }
                }
                _ => match after.strip_prefix('{') {
                    Some(inner) => {
                        let (inner, _) = inner.split_once('}').ok_or(ExpansionError::Open)?;
                        (self.braced(inner, style)?, inner.len() + 2)
                    }
                    None if style == Style::Ours => self.bare(after)?,
                    None => (open.to_owned(), 0),
                },
            };
            full.push_str(&value);
            if full.len() > EXPANDED_BYTES_MAX {
                return Err(ExpansionError::TooLong);
            }
            rest = &after[length..];
        }
        full.push_str(rest);
        match full.len() > EXPANDED_BYTES_MAX {
            true => Err(ExpansionError::TooLong),
            false => Ok(full),
        }
    }

    /// The value of a variable without braces behind its `$`, and the length of its name.
    fn bare(&self, after: &str) -> Result<(String, usize), ExpansionError> {
        if after.starts_with('$') {
            return Ok(("$".to_owned(), 1));
        }
        let end = after.bytes().position(|byte| !byte.is_ascii_alphanumeric() && byte != b'_');
        let name = &after[..end.unwrap_or(after.len())];
        match is_variable(name) {
            true => Ok((self.required(name)?, name.len())),
            false => Ok(("$".to_owned(), 0)),
        }
    }

    fn braced(&self, inner: &str, style: Style) -> Result<String, ExpansionError> {
        if let (Style::Braces, Some(value)) = (style, self.of_editor(inner)) {
            return value;
        }
        let named = inner.strip_prefix("env:").unwrap_or(inner);
        let (name, default) = match named.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (named, None),
        };
        if !is_variable(name) {
            return Err(ExpansionError::Unknown(inner.to_owned()));
        }
        // As in a shell, a default also stands for an empty value.
        match (self.variable(name), default) {
            (Some("") | None, Some(default)) => Ok(default.to_owned()),
            _ => self.required(name),
        }
    }

    /// The predefined variables of VS Code and Cursor.
    fn of_editor(&self, inner: &str) -> Option<Result<String, ExpansionError>> {
        if let Some(id) = inner.strip_prefix("input:") {
            let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            let variable = format!("INPUT_{}", id.chars().map(fits).collect::<String>());
            let value = self.variable(&variable).map(str::to_owned);
            return Some(value.ok_or(ExpansionError::Input { id: id.to_owned(), variable }));
        }
        let home = || self.variable("HOME").or_else(|| self.variable("USERPROFILE"));
        let value = match inner {
            "workspaceFolder" => self.workspace,
            "workspaceFolderBasename" => self.workspace.rsplit(['/', '\\']).next()?,
            "userHome" => {
                return Some(home().map(str::to_owned).ok_or(ExpansionError::Unset("HOME".into())));
            }
            "pathSeparator" | "/" => std::path::MAIN_SEPARATOR_STR,
            _ => return None,
        };
        Some(Ok(value.to_owned()))
    }

    /// None where the braces are just braces.
    fn opencode(&self, inner: &str) -> Result<Option<String>, ExpansionError> {
        if let Some(path) = inner.strip_prefix("file:") {
            return Err(ExpansionError::File(path.to_owned()));
        }
        inner.strip_prefix("env:").map(|name| self.required(name)).transpose()
    }
}

impl ExpansionError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::Unset(name) => format!("set `{name}` where `afresh gateway` is started"),
            Self::Input { variable, .. } => {
                format!(
                    "afresh cannot prompt for it: set `{variable}` where `afresh gateway` is started"
                )
            }
            Self::File(_) => "put the value into a variable, and write `{env:NAME}`".to_owned(),
            Self::Unknown(_) => "write `${NAME}` or `${NAME:-default}`".to_owned(),
            Self::Open => "write `${NAME}`".to_owned(),
            Self::TooLong => "put it into a file, and name that".to_owned(),
        }
    }
}

impl fmt::Display for ExpansionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset(name) => write!(f, "needs the variable `{name}`, which is not set"),
            Self::Input { id, .. } => write!(f, "needs `${{input:{id}}}`, which is not known"),
            Self::File(_) => f.write_str("needs a file, by `{file:…}`, which is not read here"),
            Self::Unknown(inner) => write!(f, "has `${{{inner}}}`, which means nothing"),
            Self::Open => f.write_str("has `${` without `}`"),
            Self::TooLong => write!(f, "is longer than {}KiB", EXPANDED_BYTES_MAX / 1024),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, style: Style) -> Result<String, ExpansionError> {
        let pairs = [("A", "1"), ("EMPTY", ""), ("HOME", "/home/ada"), ("INPUT_my_key", "k")];
        let env: Vec<(String, String)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        VariableScope { env: &env, workspace: "/work/shop" }.expand(text, style)
    }

    #[test]
    fn each_way_of_writing_variables_is_filled_in() {
        let cases = [
            (Style::Ours, "$A ${A} ${env:A} x$A.y", "1 1 1 x1.y"),
            (Style::Ours, "${B:-b c}${EMPTY:-e}${A:-a}${env:B:-}", "b ce1"),
            (Style::Ours, "a$$A $ $1 ^x$ $EMPTY| é$", "a$A $ $1 ^x$ | é$"),
            (Style::Braces, "$A $$ ${A} ${env:A}", "$A $$ 1 1"),
            (Style::Braces, "${workspaceFolder}|${workspaceFolderBasename}", "/work/shop|shop"),
            (Style::Braces, "${userHome} ${input:my-key}", "/home/ada k"),
            (Style::Opencode, "{env:A} ${A} {a} {", "1 ${A} {a} {"),
            (Style::Never, "$A ${A} {env:A}", "$A ${A} {env:A}"),
        ];
        for (style, text, wanted) in cases {
            assert_eq!(expand(text, style).as_deref(), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_named() {
        let cases = [
            (Style::Ours, "x $B", "needs the variable `B`, which is not set"),
            (Style::Ours, "${env:B}", "needs the variable `B`, which is not set"),
            (Style::Ours, "${input:x}", "has `${input:x}`, which means nothing"),
            (Style::Ours, "${A", "has `${` without `}`"),
            (Style::Ours, "${}", "has `${}`, which means nothing"),
            (Style::Braces, "${input:x}", "needs `${input:x}`, which is not known"),
            (Style::Braces, "${command:x}", "has `${command:x}`, which means nothing"),
            (Style::Opencode, "{env:B}", "needs the variable `B`, which is not set"),
            (Style::Opencode, "{file:a}", "needs a file, by `{file:…}`, which is not read here"),
        ];
        for (style, text, wanted) in cases {
            assert_eq!(expand(text, style).unwrap_err().to_string(), wanted, "{text}");
        }
        let long = "x".repeat(EXPANDED_BYTES_MAX + 1);
        assert_eq!(expand(&long, Style::Ours), Err(ExpansionError::TooLong));
        assert_eq!(ExpansionError::TooLong.to_string(), "is longer than 128KiB");
        assert_eq!(
            expand(&"$A".repeat(EXPANDED_BYTES_MAX + 1), Style::Ours),
            Err(ExpansionError::TooLong)
        );
    }
}
