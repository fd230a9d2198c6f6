//! Owns the connections of health checks, by the name or address of the check. Has no timeout of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use afresh_core::health::Verdict;
use afresh_core::limits::HEALTH_ADDRESSES_MAX;
use tokio::net::{TcpStream, lookup_host};

/// Connects to the first address of a host that takes the connection. As long as the system takes:
/// the caller has a timeout.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, Verdict> {
    let ill = |why: String| Verdict::Ill { why };
    let addresses = addresses(host, port)
        .await
        .map_err(|error| ill(format!("the address of `{host}` is not found: {error}")))?;
    let mut why = format!("`{host}` has no address");
    let mut is_refused = false;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => is_refused = true,
            Err(error) => why = format!("cannot connect to {host}:{port}: {error}"),
        }
    }
    // A machine may have only one of the addresses: what is refused says more.
    Err(ill(if is_refused { format!("nobody listens on {host}:{port}") } else { why }))
}

/// The addresses of a host. `localhost` is both of its addresses, for all that the system's files say:
/// services listen on one of them or on both.
pub(super) async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare.eq_ignore_ascii_case("localhost") {
        let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        return Ok(both.map(|address| SocketAddr::new(address, port)).to_vec());
    }
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    Ok(lookup_host((bare, port)).await?.take(HEALTH_ADDRESSES_MAX).collect())
}

/// The host and the port of `host:port`.
pub(super) fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read() {
        assert_eq!(host_and_port("localhost:4096"), Some(("localhost", 4096)));
        assert_eq!(host_and_port("[::1]:80"), Some(("[::1]", 80)));
        for wrong in ["localhost", ":80", "localhost:", "localhost:70000", "localhost:http", ""] {
            assert_eq!(host_and_port(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn localhost_is_both_of_its_addresses() {
        let shown = async |host: &str| {
            let found = addresses(host, 80).await.unwrap();
            found.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown("localhost").await, "127.0.0.1:80 [::1]:80");
        assert_eq!(shown("LocalHost").await, "127.0.0.1:80 [::1]:80");
        assert_eq!(shown("[::1]").await, "[::1]:80");
        assert_eq!(shown("10.0.0.1").await, "10.0.0.1:80");
    }
}
