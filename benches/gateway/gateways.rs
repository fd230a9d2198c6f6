//! The gateways that are compared: how each is told its servers, started and ended.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use afresh_tests::mcp::{Peer, Server};
use afresh_tests::measure::Memory;
use afresh_tests::{TestEnv, afresh_binary, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::client::{ARGUMENTS, Client, Form, Session};

/// Which one, and how it is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No gateway: the server itself.
    Direct,
    AfreshStdio,
    AfreshHttp,
    FastmcpStdio,
    FastmcpHttp,
    NpmProxy,
    PypiProxy,
    Supergateway,
    McpHub,
    Mcpo,
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Direct,
        Self::AfreshStdio,
        Self::AfreshHttp,
        Self::FastmcpStdio,
        Self::FastmcpHttp,
        Self::NpmProxy,
        Self::PypiProxy,
        Self::Supergateway,
        Self::McpHub,
        Self::Mcpo,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "no gateway, stdio",
            Self::AfreshStdio => "afresh gateway, stdio",
            Self::AfreshHttp => "afresh gateway, HTTP",
            Self::FastmcpStdio => "FastMCP proxy 4.1.2, stdio",
            Self::FastmcpHttp => "FastMCP proxy 4.1.2, HTTP",
            Self::NpmProxy => "npm mcp-proxy 6.7.19, HTTP",
            Self::PypiProxy => "PyPI mcp-proxy 0.13.0, HTTP",
            Self::Supergateway => "supergateway 4.0.0, HTTP",
            Self::McpHub => "mcp-hub 4.2.1, its REST",
            Self::Mcpo => "mcpo 0.0.20, its REST",
        }
    }

    /// Which of ours it is measured by; none where it is one of ours, or nobody's.
    pub(crate) fn measured_by(self) -> Option<Self> {
        match self {
            Self::Direct | Self::AfreshStdio | Self::AfreshHttp => None,
            Self::FastmcpStdio => Some(Self::AfreshStdio),
            _ => Some(Self::AfreshHttp),
        }
    }

    /// Whether `benches/gateway/install` was run, and found it.
    pub(crate) fn is_installed(self) -> bool {
        self.measured_by().is_none() || self.program().exists()
    }

    fn program(self) -> PathBuf {
        let default = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/gateways"));
        let cache = std::env::var_os("GATEWAYS_CACHE").map_or(default.to_owned(), PathBuf::from);
        cache.join(match self {
            Self::Direct | Self::AfreshStdio | Self::AfreshHttp => return afresh_binary().into(),
            Self::FastmcpStdio | Self::FastmcpHttp => "fastmcp/bin/fastmcp",
            Self::NpmProxy => "npm/node_modules/.bin/mcp-proxy",
            Self::PypiProxy => "mcp-proxy/bin/mcp-proxy",
            Self::Supergateway => "npm/node_modules/.bin/supergateway",
            Self::McpHub => "npm/node_modules/.bin/mcp-hub",
            Self::Mcpo => "mcpo/bin/mcpo",
        })
    }
}

/// A gateway that runs, with a client that has a session.
pub(crate) struct Gateway {
    pub(crate) kind: Kind,
    pub(crate) client: Client,
    pub(crate) port: u16,
    env: TestEnv,
    /// None where the client has started it.
    child: Option<Child>,
}

impl Gateway {
    /// Starts one in front of so many of a server, and opens a session over so many connections.
    pub(crate) fn start(kind: Kind, server: &Server, servers: usize, connections: usize) -> Self {
        let env = TestEnv::new();
        let port = free_port();
        let command = command(kind, &env, server, servers, port);
        let form = match kind {
            Kind::Direct if servers > 1 => {
                let words = server.words();
                let peer = |_| {
                    let mut command = Command::new(words[0]);
                    command.args(&words[1..]);
                    Peer::spawn(&env, command)
                };
                let client = Client::each((0..servers).map(peer).collect());
                return Self { kind, client, port, env, child: None };
            }
            Kind::Direct | Kind::AfreshStdio | Kind::FastmcpStdio => {
                let client = Client::stdio(Peer::spawn(&env, command));
                return Self { kind, client, port, env, child: None };
            }
            Kind::McpHub => Form::Plain {
                path: "/api/servers/tools",
                body: format!(r#"{{"server_name":"s0","tool":"echo","arguments":{ARGUMENTS}}}"#),
            },
            Kind::Mcpo => Form::Plain { path: "/echo", body: ARGUMENTS.to_owned() },
            _ => Form::Mcp("/mcp"),
        };
        let mut command = command;
        env.furnish(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Some(command.spawn().expect("it starts"));
        let client = Client::Http(Session::open(port, form, connections));
        Self { kind, client, port, env, child }
    }

    /// The process that was started; the client itself where there are only servers.
    pub(crate) fn pid(&self) -> i32 {
        match (&self.child, &self.client) {
            _ if self.kind == Kind::Direct => std::process::id().cast_signed(),
            (Some(child), _) => child.id().cast_signed(),
            (None, Client::Stdio { peer, .. }) => peer.pid(),
            (None, Client::Each { .. } | Client::Http(_)) => {
                unreachable!("somebody has started it")
            }
        }
    }

    /// Its own processes, where the server is the least one.
    pub(crate) fn own(&self) -> Vec<i32> {
        let alive = self.env.alive();
        alive.iter().filter(|process| process.name != "mcp-echo").map(|own| own.pid).collect()
    }

    /// The largest of its own processes, and what all of them have to themselves.
    pub(crate) fn memory(&self) -> Memory {
        let all: Vec<Memory> = self.own().into_iter().map(Memory::of).collect();
        Memory {
            rss: all.iter().map(|memory| memory.rss).max().unwrap_or(0),
            pss: all.iter().map(|memory| memory.pss).sum(),
            anonymous: all.iter().map(|memory| memory.anonymous).sum(),
            private: all.iter().map(|memory| memory.private).sum(),
        }
    }

    /// Ends it with its servers.
    pub(crate) fn end(self) {
        let Self { client, env, child, .. } = self;
        drop(client);
        if let Some(mut child) = child {
            let process = nix::unistd::Pid::from_raw(child.id().cast_signed());
            nix::sys::signal::kill(process, Signal::SIGTERM).expect("it runs");
            let mut looks = 0;
            wait_for("it ends", || {
                looks += 1;
                // Some do not, while a client is connected.
                if looks == 1_000 {
                    child.kill().ok();
                }
                child.try_wait().expect("our child").is_some()
            });
        }
        env.alive().iter().for_each(|process| process.signal(Signal::SIGKILL));
        env.assert_nothing_left();
    }
}

fn command(kind: Kind, env: &TestEnv, server: &Server, servers: usize, port: u16) -> Command {
    let words = server.words();
    let port = port.to_string();
    let entry = json!({"command": words[0], "args": &words[1..]});
    let entries: serde_json::Map<String, serde_json::Value> =
        (0..servers).map(|number| (format!("s{number}"), entry.clone())).collect();
    let file = env.write("servers.json", &json!({"mcpServers": entries}).to_string());
    let mut command = Command::new(kind.program());
    match kind {
        Kind::Direct => {
            command = Command::new(words[0]);
            command.args(&words[1..])
        }
        Kind::AfreshStdio => command.args(["gateway", "--from"]).arg(file),
        Kind::AfreshHttp => {
            command.args(["gateway", "--http", &port, "--no-token", "--from"]).arg(file)
        }
        Kind::FastmcpStdio => command.arg("run").arg(file).arg("--no-banner"),
        Kind::FastmcpHttp => {
            command.arg("run").arg(file).args(["--no-banner", "--transport", "http"]);
            command.args(["--host", "127.0.0.1", "--port", &port])
        }
        Kind::NpmProxy => {
            command.args(["--host", "127.0.0.1", "--port", &port, "--server", "stream", "--"]);
            command.args(words)
        }
        Kind::PypiProxy => command.args(["--port", &port, "--"]).args(words),
        Kind::Supergateway => {
            command.args(["--outputTransport", "streamableHttp", "--stateful"]);
            command.args(["--logLevel", "none", "--port", &port, "--stdio", &words.join(" ")])
        }
        Kind::McpHub => command.args(["--port", &port, "--config"]).arg(file),
        Kind::Mcpo => command.args(["--host", "127.0.0.1", "--port", &port, "--"]).args(words),
    };
    command
}

/// One that nobody has, and that hopefully nobody takes before it is used.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("there are ports");
    listener.local_addr().expect("it is bound").port()
}
