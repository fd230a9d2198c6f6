//! `afresh gateway`: many MCP servers behind one connection, or behind one port.
//!
//! One loop owns the hub, the restart machines of all servers and the pipes to them: a message goes from a
//! client to a server and back without leaving it. Clients over HTTP and servers over HTTP have tasks of
//! their own.

mod event_loop;
mod front;
mod http;
mod links;
mod remote;
mod spans;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::pin::pin;

use afresh_core::audit::{EventType, Level, Record};
use afresh_core::config::TrailSettings;
use afresh_core::control::Face;
use afresh_core::gateway::settings::Gateway as Wanted;
use afresh_core::gateway::span::Destination;
use afresh_core::gateway::{Hub, Settings};
use afresh_core::limits::GATEWAY_LAST_WAIT;
use tokio::time::{Instant, timeout};

use self::event_loop::Switchboard;
use self::front::GatewayFront;
use self::links::Links;
use self::spans::Spans;
use crate::control::{About, Control, RuntimeFolders};
use crate::definition::Surroundings;
use crate::startup::{self, SetupError, StdioStartup};
use crate::store::workspace::Workspace;
use crate::supervise::Supervisor;

/// Which servers stand behind the gateway, and how.
pub struct Gateway {
    /// What the configuration says: the servers, and who may use them.
    pub wanted: Wanted,
    /// Where state lives.
    pub workspace: Workspace,
    /// Where the trail is written.
    pub trail: TrailSettings,
    /// afresh's version.
    pub version: &'static str,
    /// Where the control socket may be.
    pub control: RuntimeFolders,
    /// What servers get besides their own variables.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder that their paths count from.
    pub base: PathBuf,
    /// Where all traffic with the servers is recorded.
    pub trace: Option<PathBuf>,
    /// The receiver of a span of each call.
    pub otlp: Option<Destination>,
    /// A file of root certificates for it, in place of the system's: `SSL_CERT_FILE`.
    pub certificates: Option<PathBuf>,
    /// Where the log goes besides stderr.
    pub log_file: Option<PathBuf>,
    /// Reads the configuration again.
    pub reload: ReloadGateway,
}

/// Reads the configuration again: all of it, and what people should know. What is wrong with it comes as text.
pub type ReloadGateway = Box<dyn FnMut() -> Result<(Wanted, Vec<String>), String> + Send>;

/// Serves until the client is gone or a signal ends it. Returns the exit code.
pub fn gateway(gateway: Gateway) -> Result<i32, SetupError> {
    startup::block_on(run(gateway))
}

async fn run(mut gateway: Gateway) -> Result<i32, SetupError> {
    let StdioStartup { signals, processes, stderr, stderr_thread, trace } =
        StdioStartup::new(gateway.log_file.take(), gateway.trace.take())?;
    let front = GatewayFront::open(&gateway.wanted, &stderr)?;
    let spans =
        Spans::start(gateway.otlp.take(), gateway.version, gateway.certificates.take(), &stderr);
    let around = Surroundings {
        has_talkers: true,
        logger: "afresh.gateway",
        ..Surroundings::new(&mut gateway.workspace, &gateway.trail, stderr.clone(), stderr)
    };
    let about = About::new(Face::Gateway, None, &gateway.workspace, gateway.version);
    let supervise = Supervisor::new(processes, around);
    supervise.recorder.note(started(&gateway));
    let control = Control::start(Some(gateway.control.clone()), None, about.clone(), &supervise);
    let hub = Hub::new(Settings {
        version: gateway.version.to_owned(),
        is_single: front.is_single(),
        expose: gateway.wanted.expose,
        admin_tools: gateway.wanted.admin_tools,
        is_traced: spans.is_on(),
    });
    let links = Links::start(&mut gateway, about.clone(), trace).map_err(SetupError::Runtime)?;
    let servers = std::mem::take(&mut gateway.wanted.servers);
    let mut switchboard = Switchboard {
        hub,
        start: Instant::now(),
        supervise,
        links,
        front,
        control,
        about,
        spans,
        backends: BTreeMap::new(),
        wanted: gateway.wanted,
        reload: gateway.reload,
        left_at: None,
    };
    switchboard.configure(servers).await;
    switchboard.drive(signals).await;

    let until = switchboard.left_by();
    let rest = || until.saturating_duration_since(Instant::now()).max(GATEWAY_LAST_WAIT);
    let (mut supervise, control, front, spans, trace) = switchboard.end();
    supervise.finish().await;
    supervise.recorder.note(stopped());
    let clients = async { tokio::join!(control.close(), front.close(), spans.finish()) };
    // A client that does not read is not waited for, and holds up no other.
    timeout(rest(), pin!(clients)).await.ok();
    let (recorder, _) = supervise.shutdown().await;
    recorder.close(rest());
    let written = async {
        if let Some(trace) = trace {
            trace.close().await;
        }
        stderr_thread.done.await.ok();
    };
    timeout(rest(), pin!(written)).await.ok();
    Ok(0)
}

fn started(gateway: &Gateway) -> Record {
    let names: Vec<&str> =
        gateway.wanted.servers.iter().map(|server| server.name.as_str()).collect();
    let count = names.len();
    Record {
        level: Level::Info,
        logger: "afresh.gateway".to_owned(),
        message: match count {
            1 => format!("afresh {} stands in front of 1 server", gateway.version),
            count => format!("afresh {} stands in front of {count} servers", gateway.version),
        },
        event_type: EventType::SupervisorStarted,
        props: vec![
            ("pid", std::process::id().into()),
            ("version", gateway.version.into()),
            ("servers", names.into()),
        ],
    }
}

fn stopped() -> Record {
    Record {
        level: Level::Info,
        logger: "afresh.gateway".to_owned(),
        message: "afresh has stopped".to_owned(),
        event_type: EventType::SupervisorStopped,
        props: vec![("pid", std::process::id().into())],
    }
}
