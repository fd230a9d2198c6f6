//! Finds the process that listens on a port, in Linux's `/proc`. Called before a start and by the doctor.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpSocket;

use super::PortHolder;

/// Whether holders of ports are told by process.
#[cfg(test)]
pub(crate) const TELLS_HOLDERS: bool = true;

/// The process that listens where a service wants to; none where the port is free.
pub(crate) fn holder_of(wanted: SocketAddr) -> Option<PortHolder> {
    if can_bind(wanted) {
        return None;
    }
    // What cannot be had may be refused for another reason: only one that listens counts.
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        let mut listeners = text.lines().skip(1).filter_map(listener);
        listeners.find(|(local, _)| hinders(*local, wanted)).map(|(_, inode)| inode.to_owned())
    })?;
    Some(PortHolder { process: process_with(&format!("socket:[{inode}]")) })
}

/// Whether the address can be had as a server would have it, which does not mind what is left of
/// earlier connections. Much faster than to read what all sockets do.
fn can_bind(wanted: SocketAddr) -> bool {
    let made = match wanted {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    made.and_then(|made| made.set_reuseaddr(true).and_then(|()| made.bind(wanted))).is_ok()
}

/// The address and the inode in a line of the kernel's table, if it is of one that listens.
fn listener(line: &str) -> Option<(SocketAddr, &str)> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    if fields.nth(1)? != LISTENS {
        return None;
    }
    let inode = fields.nth(5)?;
    let words: Vec<[u8; 4]> = (0..address.len() / 8)
        .map(|at| u32::from_str_radix(&address[at * 8..at * 8 + 8], 16).map(u32::to_ne_bytes))
        .collect::<Result<_, _>>()
        .ok()?;
    let ip = match words[..] {
        [word] => IpAddr::V4(Ipv4Addr::from(word)),
        [..] => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?)),
    };
    Some((SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?), inode))
}

/// Whether one that listens there keeps another from listening here.
fn hinders(local: SocketAddr, wanted: SocketAddr) -> bool {
    let is_any = |address: SocketAddr| address.ip().is_unspecified();
    let covers =
        |wide: SocketAddr, narrow: SocketAddr| is_any(wide) && (wide.is_ipv6() || narrow.is_ipv4());
    let is_same = local.ip() == wanted.ip() || covers(local, wanted) || covers(wanted, local);
    local.port() == wanted.port() && is_same
}

/// A process of ours that has something open; others do not show theirs.
fn process_with(open: &str) -> Option<(u32, Vec<String>)> {
    let all = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| link.as_os_str() == open)
    })?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    Some((pid, words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 0100007F:1000 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0";
        assert_eq!(listener(line), Some(("127.0.0.1:4096".parse().unwrap(), "4711")));
        let line = "   1: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 12 1";
        assert_eq!(listener(line), Some(("[::1]:8080".parse().unwrap(), "12")));
        let time_wait = "   2: 0100007F:1000 0100007F:D431 06 0:0 03:00000F3C 0 0 0 0 3";
        for other in [time_wait, "", "x", "0: zz:zz", "0: 0100007F:1000 0:0 0A"] {
            assert_eq!(listener(other), None, "{other}");
        }
    }

    #[test]
    fn some_addresses_cover_others() {
        let cases = [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "10.0.0.1:80", false),
            ("0.0.0.0:80", "10.0.0.1:80", true),
            ("10.0.0.1:80", "0.0.0.0:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
        ];
        for (local, wanted, hinders_it) in cases {
            let found = hinders(local.parse().unwrap(), wanted.parse().unwrap());
            assert_eq!(found, hinders_it, "{local} {wanted}");
        }
    }
}
