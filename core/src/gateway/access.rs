//! What a client may see and use.

/// What a client may see and use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A name for the log; of the token, where there is one.
    pub name: String,
    /// Its servers; all where there is no list, none where that is empty. A `*` stands for any text.
    pub servers: Option<Vec<String>>,
    /// Its tools, by the names in the list; the same holds for them.
    pub tools: Option<Vec<String>>,
}

/// Whether a name fits one of the patterns, in which a `*` stands for any text: any does where there is no list,
/// none where that is empty.
pub fn fits(patterns: Option<&[String]>, name: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| fits_one(pattern, name)))
}

/// Whether a name fits a pattern, in which a `*` stands for any text.
pub fn fits_one(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        if let Some(middle) = last.replace(part) {
            match rest.find(middle) {
                Some(at) => rest = &rest[at + middle.len()..],
                None => return false,
            }
        }
    }
    match last {
        Some(last) => rest.ends_with(last),
        None => rest.is_empty(),
    }
}

impl Access {
    /// Whether it may use a server.
    pub fn has_server(&self, name: &str) -> bool {
        fits(self.servers.as_deref(), name)
    }

    /// Whether it may use a tool, by its name in the list.
    pub fn has_tool(&self, name: &str) -> bool {
        fits(self.tools.as_deref(), name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let fit =
            [("a", "a"), ("*", ""), ("git*", "github"), ("*__get_*", "x__get_y"), ("a*a", "aa")];
        for (pattern, name) in fit {
            assert!(fits_one(pattern, name), "{pattern} {name}");
        }
        let others = [("a", "ab"), ("", "a"), ("a*a", "a"), ("*b*c", "acb"), ("git*", "gi")];
        for (pattern, name) in others {
            assert!(!fits_one(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn an_empty_list_opens_nothing() {
        let [all, none, some] = [None, Some(Vec::new()), Some(vec!["a*".to_owned()])];
        let access = |list: &Option<Vec<String>>| Access {
            servers: list.clone(),
            tools: list.clone(),
            ..Access::default()
        };
        for (list, opens) in [(all, [true, true]), (none, [false, false]), (some, [true, false])] {
            let access = access(&list);
            assert_eq!(["ab", "b"].map(|name| access.has_server(name)), opens, "{list:?}");
            assert_eq!(["ab", "b"].map(|name| access.has_tool(name)), opens, "{list:?}");
        }
    }
}
