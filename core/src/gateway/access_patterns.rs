//! Owns the rights of a client: the servers and tools that it may see and use, by patterns. Read by the hub for each
//! request and list. Never checks a token: `http/admission.rs` does.

/// The rights of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// A name for the log; of the token, where there is one.
    pub name: String,
    /// Its servers, none where the list is empty; where there is no list all, or those that can have one of
    /// its tools. A `*` stands for any text.
    pub servers: Option<Vec<String>>,
    /// Its tools, by the names in the list; all where there is no list, none where that is empty.
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

/// Whether a name with this in front can fit a pattern.
fn fits_behind(pattern: &str, prefix: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, _)) => head.starts_with(prefix) || prefix.starts_with(head),
        None => pattern.len() > prefix.len() && pattern.starts_with(prefix),
    }
}

impl Access {
    /// Whether it may use a server, whose tools have names with this in front: one that is named, or, where
    /// there is no list of servers, one that can have a tool that is.
    pub fn has_server(&self, name: &str, prefix: &str) -> bool {
        match (&self.servers, &self.tools) {
            (None, Some(tools)) => tools.iter().any(|pattern| fits_behind(pattern, prefix)),
            (servers, _) => fits(servers.as_deref(), name),
        }
    }

    /// Whether only its tools say which servers it may use.
    pub const fn is_by_tools(&self) -> bool {
        self.servers.is_none() && self.tools.is_some()
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
            assert_eq!(["ab", "b"].map(|name| access.has_server(name, "")), opens, "{list:?}");
            assert_eq!(["ab", "b"].map(|name| access.has_tool(name)), opens, "{list:?}");
        }
        let no_tool = Access { tools: Some(Vec::new()), ..Access::default() };
        assert!(!no_tool.has_server("a", "a__"));
    }

    #[test]
    fn tools_alone_say_which_servers() {
        let access = |servers: &[&str], tools: &[&str]| {
            let of = |all: &[&str]| {
                let all: Vec<String> = all.iter().map(|name| (*name).to_owned()).collect();
                (!all.is_empty()).then_some(all)
            };
            Access { name: String::new(), servers: of(servers), tools: of(tools) }
        };
        let has = |access: &Access, name: &str| access.has_server(name, &format!("{name}__"));
        assert!(has(&access(&[], &[]), "a"));
        for tools in [["a__get"], ["a__*"], ["a*"], ["*"], ["*__get"]] {
            assert!(has(&access(&[], &tools), "a"), "{tools:?}");
            assert!(!has(&access(&["b"], &tools), "a"), "{tools:?}");
        }
        for tools in [["b__get"], ["a__"], ["ab*"], ["server_status"], ["a"]] {
            assert!(!has(&access(&[], &tools), "a"), "{tools:?}");
            assert!(has(&access(&["a"], &tools), "a"), "{tools:?}");
        }
        assert!(access(&[], &["get"]).has_server("a", ""));
    }
}
