//! Owns the syntax of hosts, ports, URLs and header names of HTTP. Used by the readers of configurations and client
//! files. Never looks a name up.

use core::net::{Ipv6Addr, SocketAddr};

use crate::limits::CONFIG_URL_BYTES_MAX;

/// The host of a URL that can be asked over HTTP, without the brackets of IPv6.
///
/// A name and password in it are refused: they would be in every message about the URL.
pub(crate) fn url_host(url: &str) -> Option<&str> {
    let has_blank = url.contains(|c: char| c.is_whitespace() || c.is_control() || c == '\\');
    if url.len() > CONFIG_URL_BYTES_MAX || has_blank {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            return (host.parse::<Ipv6Addr>().is_ok() && is_port_suffix(port)).then_some(host);
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    (is_host(host) && is_port_suffix(port)).then_some(host)
}

/// Nothing, or a colon and a number.
fn is_port_suffix(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| parse_port(port).is_some())
}

/// The two parts of `host:port`, without the brackets of IPv6.
pub(crate) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = parse_port(port)?;
    match host.strip_prefix('[') {
        Some(host) => {
            let host = host.strip_suffix(']')?;
            host.parse::<Ipv6Addr>().is_ok().then_some((host, port))
        }
        None => (is_host(host) && !host.contains(':')).then_some((host, port)),
    }
}

/// A host and a port in one text.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A name or an address without brackets.
pub(crate) fn is_host(text: &str) -> bool {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().is_ok();
    }
    // A leading dash would be taken for a flag of the command.
    (1..=253).contains(&text.len())
        && !text.starts_with(['-', '.'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

/// An address with its port, where only programs on this machine can reach it.
pub(crate) fn loopback(text: &str) -> Option<SocketAddr> {
    text.parse::<SocketAddr>().ok().filter(|address| address.ip().is_loopback())
}

/// Port 0 is refused: it asks for any port, and clients could not know which.
fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?.filter(|port| *port > 0)
}

/// Whether a text can be the name of a header.
pub(crate) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_can_be_asked() {
        let good = [
            ("http://127.0.0.1:3000/health", "127.0.0.1"),
            ("HTTPS://example.com", "example.com"),
            ("http://[::1]:8080/x?y=[z]#w", "::1"),
            ("http://localhost?a@b", "localhost"),
            ("http://a_b-c.internal:65535", "a_b-c.internal"),
        ];
        for (url, host) in good {
            assert_eq!(url_host(url), Some(host), "{url}");
        }
        let long = format!("http://a/{}", "x".repeat(CONFIG_URL_BYTES_MAX));
        let bad = [
            "",
            "localhost:3000",
            "ftp://a/",
            "http:/a",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:65536/",
            "http://a:b/",
            "http://a:+1/",
            "http://user:secret@a/",
            "http://[::1/",
            "http://[::g]/",
            "http://[::1]x/",
            "http://a b/",
            "http://a/\r\nX: y",
            "http://a/\0",
            "http://a\\b/",
            "http://bücher.example/",
            "file:///etc/passwd",
            long.as_str(),
        ];
        for url in bad {
            assert_eq!(url_host(url), None, "{url}");
        }
    }

    #[test]
    fn hosts_with_ports_come_apart_and_together() {
        for text in ["localhost:80", "10.0.0.1:65535", "[::1]:4096", "a.b-c_d:1"] {
            let (host, port) = host_and_port(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(join(host, port), text);
        }
        for text in
            ["", ":1", "a", "a:", "a:0", "a:x", "::1:80", "[a]:1", "[::1:1", "-x:1", "a b:1"]
        {
            assert_eq!(host_and_port(text), None, "{text}");
        }
        assert!(is_host("::1") && !is_host("a:b") && !is_host("") && !is_host("--port"));
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for text in ["127.0.0.1:7070", "127.9.9.9:0", "[::1]:80"] {
            assert!(loopback(text).is_some(), "{text}");
        }
        for text in ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "localhost:80", "127.0.0.1", "80"] {
            assert!(loopback(text).is_none(), "{text}");
        }
    }
}
