//! Parses URLs of servers: the origin, which may be shown, and references relative to it. Keeps no state.

/// Scheme, host and port. The rest can be a secret, as in the URLs of some services.
pub(super) fn origin(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    &url[..end]
}

/// Resolves a reference found at a URL; `None` where it is invalid or leads to another origin, which must not
/// get our headers.
pub(super) fn resolve(url: &str, reference: &str) -> Option<String> {
    let is_plain = reference.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    let reference = reference.split('#').next().filter(|text| is_plain && !text.is_empty())?;
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let scheme = reference.split("://").next().filter(|scheme| *scheme != reference);
    let has_scheme = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let whole = if scheme.is_some_and(has_scheme) {
        reference.to_owned()
    } else if reference.starts_with("//") {
        format!("{}:{reference}", url.split("://").next()?)
    } else if reference.starts_with('/') {
        format!("{}{reference}", origin(url))
    } else if reference.starts_with('?') {
        format!("{path}{reference}")
    } else {
        let folder = path.rfind('/').filter(|at| *at >= origin(url).len());
        format!("{}/{reference}", folder.map_or(origin(url), |at| &path[..at]))
    };
    origin(&whole).eq_ignore_ascii_case(origin(url)).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_origin_is_said_aloud() {
        for (url, shown) in [
            ("http://127.0.0.1:3000/s3cr3t/mcp?k=s3cr3t", "http://127.0.0.1:3000"),
            ("https://host", "https://host"),
            ("https://host?k=s3cr3t", "https://host"),
            ("nonsense/s3cr3t", "nonsense"),
        ] {
            assert_eq!(origin(url), shown);
        }
    }

    #[test]
    fn references_stay_with_their_origin() {
        let at = |reference| resolve("http://h:1/a/sse?x=1", reference);
        for (reference, whole) in [
            ("/messages?id=1", "http://h:1/messages?id=1"),
            ("messages?to=http://x", "http://h:1/a/messages?to=http://x"),
            ("?id=2", "http://h:1/a/sse?id=2"),
            ("http://H:1/m#top", "http://H:1/m"),
            ("//h:1/m", "http://h:1/m"),
        ] {
            assert_eq!(at(reference).as_deref(), Some(whole), "{reference}");
        }
        for elsewhere in
            ["http://other/m", "https://h:1/m", "//other/m", "http://h:1@other/m", "", "a b", "#x"]
        {
            assert_eq!(at(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(resolve("http://h", "m").as_deref(), Some("http://h/m"));
    }
}
