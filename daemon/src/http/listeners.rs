//! Owns the places where HTTP connections come in: a port, or a Unix socket of this user alone. Driven by the servers of
//! the control API and of the gateway. Never reads a request.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use afresh_core::audit::Actor;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::WriteTimeout;
use crate::os::{SocketListener, SocketStream, is_kept_back, is_own_peer, peer_of};

/// Where connections come in.
#[derive(Debug)]
pub(crate) enum Door {
    Socket(SocketListener),
    Port(Port),
}

/// A port, at one address or at both that `localhost` can mean.
#[derive(Debug)]
pub(crate) struct Port {
    listener: TcpListener,
    other: Option<TcpListener>,
}

impl Port {
    /// As connections are accepted from listeners that are bound.
    pub(crate) fn of(
        listener: std::net::TcpListener,
        other: Option<std::net::TcpListener>,
    ) -> io::Result<Self> {
        let other = other.map(TcpListener::from_std).transpose()?;
        Ok(Self { listener: TcpListener::from_std(listener)?, other })
    }

    /// The next connection. Cancel safe.
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match &self.other {
            None => self.listener.accept().await,
            Some(other) => tokio::select! {
                accepted = self.listener.accept() => accepted,
                accepted = other.accept() => accepted,
            },
        }
    }
}

/// A connection that has come in.
pub(crate) struct Entered {
    stream: EnteredStream,
    /// What is known of the other end.
    pub(crate) peer: Actor,
}

enum EnteredStream {
    Socket(SocketStream),
    Port(TcpStream),
}

/// The process of another user at a socket: its connection is closed.
pub(crate) struct Foreign(pub(crate) Actor);

impl Entered {
    /// The address of the other end; over a socket it is this machine.
    pub(crate) fn address(&self) -> IpAddr {
        match &self.peer {
            Actor::Address(address) => address.ip(),
            _ => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// Whether it has one of the last descriptors, of which so many are kept back.
    pub(crate) fn is_kept_back(&self, kept: u64) -> bool {
        match &self.stream {
            EnteredStream::Socket(stream) => is_kept_back(stream, kept),
            EnteredStream::Port(stream) => is_kept_back(stream, kept),
        }
    }

    /// Takes the lowest descriptor that is free now, so that the last ones stay free.
    pub(crate) fn with_lower_descriptor(self) -> io::Result<Self> {
        let stream = match self.stream {
            EnteredStream::Port(stream) => {
                EnteredStream::Port(TcpStream::from_std(stream.into_std()?.try_clone()?)?)
            }
            socket => socket,
        };
        Ok(Self { stream, ..self })
    }

    /// The bytes, for hyper.
    pub(crate) fn wire(self) -> TokioIo<WriteTimeout> {
        match self.stream {
            EnteredStream::Socket(stream) => WriteTimeout::served(stream),
            EnteredStream::Port(stream) => WriteTimeout::served(stream),
        }
    }
}

impl Door {
    /// The next connection. Cancel safe.
    pub(crate) async fn accept(&self) -> io::Result<Result<Entered, Foreign>> {
        match self {
            Self::Socket(socket) => {
                let stream = socket.accept().await?;
                let known = peer_of(&stream);
                let peer = known.map_or(Actor::Afresh("unknown peer"), |(uid, pid)| {
                    Actor::Process { uid, pid }
                });
                Ok(match is_own_peer(&stream) {
                    true => Ok(Entered { stream: EnteredStream::Socket(stream), peer }),
                    false => Err(Foreign(peer)),
                })
            }
            Self::Port(port) => {
                let (stream, address) = port.accept().await?;
                // Answers and events are short, and a client waits for each.
                stream.set_nodelay(true).ok();
                let peer = Actor::Address(address);
                Ok(Ok(Entered { stream: EnteredStream::Port(stream), peer }))
            }
        }
    }
}
