//! The same functions as `ports.rs`, where the kernel does not name the listener: a connection tells
//! whether there is one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use super::PortHolder;

/// Whether holders of ports are told by process.
#[cfg(test)]
pub(crate) const TELLS_HOLDERS: bool = false;

/// A connection on the same machine is there at once, or not at all.
const CONNECT_WAIT: Duration = Duration::from_millis(200);

/// The process that listens where a service wants to; none where the port is free.
pub(crate) fn holder_of(wanted: SocketAddr) -> Option<PortHolder> {
    // "Any address" cannot be connected to.
    let reached = match wanted.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let address = SocketAddr::new(reached, wanted.port());
    let is_taken = TcpStream::connect_timeout(&address, CONNECT_WAIT).is_ok();
    is_taken.then_some(PortHolder { process: None })
}
