//! A client on rmcp. Modes: `initialize` (its default), `auto`.
//!
//! `client --mode MODE SCENARIO -- COMMAND…|URL`. What is done and what has to hold is the same as in
//! `clients/scenarios.mjs`.

use std::collections::BTreeSet;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ContentBlock, ProtocolVersion,
    ResourceUpdatedNotificationParam, ServerNotification, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::{
    NotificationContext, Peer, RoleClient, RunningService, ServiceError, Subscription,
};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const URI: &str = "interop://counter";
/// What stands in front of the tools of the other server of a gateway.
const OTHER: &str = "other__";
const SCENARIOS: [&str; 12] = [
    "connect",
    "list",
    "call",
    "exit-42",
    "exit-1",
    "kill",
    "restart-tool",
    "subscription",
    "subscription-tool",
    "list-change",
    "both",
    "one-dies",
];

fn step() -> Duration {
    let seconds = std::env::var("INTEROP_STEP_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(15.0))
}

/// Says which server of a gateway is meant; without one there is nothing to say.
fn which(mut arguments: Value) -> Value {
    if let Ok(server) = std::env::var("INTEROP_SERVER") {
        arguments["server"] = server.into();
    }
    arguments
}

fn check(holds: bool, message: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(message().into()) }
}

/// What the server told so far, on the wire or on a subscription.
#[derive(Clone, Default)]
struct Told {
    events: BTreeSet<&'static str>,
    ended: Option<String>,
}

#[derive(Clone)]
struct Events(watch::Sender<Told>);

impl Events {
    fn push(&self, event: &'static str) {
        self.0.send_modify(|told| {
            told.events.insert(event);
        });
    }

    fn end(&self, how: String) {
        self.0.send_modify(|told| told.ended = Some(how));
    }

    fn ended(&self) -> Option<String> {
        self.0.borrow().ended.clone()
    }

    fn forget(&self) {
        self.0.send_modify(|told| told.events.clear());
    }

    /// Whether `event` arrives within the time.
    async fn has(&self, event: &str, within: Duration) -> bool {
        let mut receiver = self.0.subscribe();
        let arrived = |told: &Told| told.events.contains(event) || told.ended.is_some();
        let told = tokio::time::timeout(within, receiver.wait_for(arrived)).await;
        matches!(told, Ok(Ok(told)) if told.events.contains(event))
    }
}

impl ClientHandler for Events {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        context: NotificationContext<RoleClient>,
    ) {
        if params.uri == URI && !is_modern(&context.peer) {
            self.push("updated");
        }
    }

    async fn on_tool_list_changed(&self, context: NotificationContext<RoleClient>) {
        if !is_modern(&context.peer) {
            self.push("tools");
        }
    }
}

/// Whether what comes on no subscription counts for nothing.
fn is_modern(peer: &Peer<RoleClient>) -> bool {
    peer.peer_info().is_some_and(|info| info.protocol_version == ProtocolVersion::V_2026_07_28)
}

/// Hands on what arrives on a subscription, until it ends.
async fn follow(mut subscription: Subscription, events: Events) {
    loop {
        match subscription.next().await {
            Ok(Some(ServerNotification::ResourceUpdatedNotification(updated))) => {
                if updated.params.uri == URI {
                    events.push("updated");
                }
            }
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => events.push("tools"),
            Ok(Some(_)) => {}
            Ok(None) => return events.end(format!("{:?}", subscription.end())),
            Err(error) => return events.end(error.to_string()),
        }
    }
}

fn text(result: &CallToolResult) -> String {
    let texts = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.as_str(),
        _ => "",
    });
    texts.collect()
}

/// The object that a tool of afresh answers, however it is wrapped.
fn value(result: &CallToolResult) -> Value {
    let wrapped = || serde_json::from_str(&text(result)).unwrap_or_default();
    result.structured_content.clone().unwrap_or_else(wrapped)
}

fn request(name: &str, arguments: Value) -> CallToolRequestParams {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    CallToolRequestParams::new(name.to_owned()).with_arguments(arguments)
}

async fn call(
    peer: &Peer<RoleClient>,
    name: &str,
    arguments: Value,
) -> std::result::Result<CallToolResult, ServiceError> {
    let timeout = step();
    let late = |_| Err(ServiceError::Timeout { timeout });
    let called = async {
        match peer.call_tool_once(request(name, arguments)).await? {
            rmcp::model::CallToolResponse::Complete(result) => Ok(result),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    };
    tokio::time::timeout(timeout, called).await.unwrap_or_else(late)
}

/// How a call ended. `lost` and `hung` are what no supervisor may let happen.
async fn outcome(peer: Peer<RoleClient>, name: String, arguments: Value) -> String {
    match call(&peer, &name, arguments).await {
        Ok(result) if result.is_error == Some(true) => "tool error".to_owned(),
        Ok(_) => "result".to_owned(),
        Err(ServiceError::Timeout { .. }) => "hung".to_owned(),
        Err(ServiceError::McpError(error)) => match error.code.0 {
            -32000 => "lost".to_owned(),
            -32001 => "hung".to_owned(),
            code => format!("error {code}"),
        },
        Err(_) => "lost".to_owned(),
    }
}

struct Client {
    running: RunningService<RoleClient, Events>,
    events: Events,
    following: JoinSet<()>,
    tools: Vec<String>,
    report: Value,
}

impl Client {
    async fn connect(mode: &str, command: &[String]) -> Result<Self> {
        let lifecycle = match mode {
            "initialize" => ClientLifecycleMode::Initialize,
            _ => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: None,
            },
        };
        let events = Events(watch::Sender::default());
        let client = events.clone();
        let running = if command[0].starts_with("http:") {
            let transport = StreamableHttpClientTransport::from_uri(command[0].as_str());
            let serving = client.serve_with_lifecycle(transport, lifecycle);
            tokio::time::timeout(step(), serving).await??
        } else {
            let mut child = tokio::process::Command::new(&command[0]);
            child.args(&command[1..]);
            let serving = client.serve_with_lifecycle(TokioChildProcess::new(child)?, lifecycle);
            tokio::time::timeout(step(), serving).await??
        };
        let info = running.peer_info().ok_or("the server says nothing about itself")?;
        let server = info.server_info.as_ref().map(|server| server.name.clone());
        let report = json!({ "protocol": info.protocol_version.as_str(), "server": server });
        Ok(Self { running, events, following: JoinSet::new(), tools: Vec::new(), report })
    }

    fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|name| name == tool)
    }

    async fn list(&self) -> Result<Vec<String>> {
        let tools = tokio::time::timeout(step(), self.running.list_all_tools()).await??;
        Ok(tools.into_iter().map(|tool| tool.name.into_owned()).collect())
    }

    async fn succeed(&self, name: &str, arguments: Value) -> Result<CallToolResult> {
        let result = call(self.running.peer(), name, arguments).await?;
        check(result.is_error != Some(true), || {
            format!("`{name}` answered an error: {}", text(&result))
        })?;
        Ok(result)
    }

    async fn echo(&self) -> Result<()> {
        self.echo_of("").await
    }

    /// The same of one of a gateway's servers.
    async fn echo_of(&self, prefix: &str) -> Result<()> {
        let message = format!("hello {:?}", Instant::now());
        let name = format!("{prefix}echo");
        let answer = text(&self.succeed(&name, json!({ "message": message })).await?);
        check(answer.contains(&message), || format!("`{name}` answered {answer}"))
    }

    async fn pid(&self) -> Result<i32> {
        self.pid_of("").await
    }

    async fn pid_of(&self, prefix: &str) -> Result<i32> {
        let name = format!("{prefix}pid");
        let told: i32 = if self.has(&name) {
            text(&self.succeed(&name, json!({})).await?).parse()?
        } else {
            let all = text(&self.succeed(&format!("{prefix}get-env"), json!({})).await?);
            let all: Value = serde_json::from_str(&all)?;
            all["INTEROP_SERVER_PID"].as_str().ok_or("no pid in its environment")?.parse()?
        };
        // It may be killed next, and small numbers mean whole groups.
        check(told > 1, || format!("the server tells {told} as its process id"))?;
        Ok(told)
    }

    fn slow(&self, ms: u64) -> (String, Value) {
        self.slow_of("", ms)
    }

    fn slow_of(&self, prefix: &str, ms: u64) -> (String, Value) {
        let name = format!("{prefix}slow");
        if self.has(&name) {
            return (name, json!({ "ms": ms }));
        }
        let seconds = Duration::from_millis(ms).as_secs_f64();
        let name = format!("{prefix}trigger-long-running-operation");
        (name, json!({ "duration": seconds, "steps": 1 }))
    }

    async fn subscribe(&mut self, filter: SubscriptionFilter) -> Result<()> {
        if is_modern(self.running.peer()) {
            let subscription = tokio::time::timeout(step(), self.running.listen(filter)).await??;
            self.following.spawn(follow(subscription, self.events.clone()));
        } else if filter.resource_subscriptions.is_some() {
            #[allow(deprecated, reason = "the legacy era subscribes by this request")]
            let subscribed = self.running.subscribe(SubscribeRequestParams::new(URI));
            tokio::time::timeout(step(), subscribed).await??;
        }
        Ok(())
    }

    /// Starts the calls, kills the victim, and waits until all are answered.
    async fn settle(&mut self, calls: Vec<(String, Value)>, victim: Option<i32>) -> Result<()> {
        let mut started = JoinSet::new();
        for (index, (name, arguments)) in calls.into_iter().enumerate() {
            let call = outcome(self.running.peer().clone(), name, arguments);
            started.spawn(async move { (index, call.await) });
        }
        tokio::task::yield_now().await;
        if let Some(victim) = victim {
            // The server reads in order: when this is answered, it has the calls too.
            self.echo().await?;
            kill(Pid::from_raw(victim), Signal::SIGKILL)?;
            if self.has("other__echo") {
                self.echo_of(OTHER).await?;
            }
        }
        let mut outcomes = started.join_all().await;
        outcomes.sort();
        let outcomes: Vec<String> = outcomes.into_iter().map(|(_, how)| how).collect();
        let bad = outcomes.iter().filter(|how| ["lost", "hung"].contains(&how.as_str())).count();
        self.report["in_flight"] = json!(outcomes);
        check(bad == 0, || format!("of the calls in flight, {bad} were lost or hung"))
    }

    /// A new instance serves: the next call succeeds at once, and another process answers it.
    async fn served_anew(&mut self, before: i32) -> Result<()> {
        self.echo().await?;
        let now = self.pid().await?;
        self.report["pids"] = json!([before, now]);
        check(now != before, || format!("process {before} still answers"))
    }

    async fn exit(&mut self, code: i32) -> Result<()> {
        let before = self.pid().await?;
        let calls =
            vec![self.slow(3000), self.slow(4000), ("exit".to_owned(), json!({ "code": code }))];
        self.settle(calls, None).await?;
        self.served_anew(before).await
    }

    /// Kills the server in the middle of a call. When that call is answered, the death was noticed.
    async fn kill(&mut self) -> Result<()> {
        let before = self.pid().await?;
        self.settle(vec![self.slow(3000)], Some(before)).await?;
        self.served_anew(before).await
    }

    /// Both servers of a gateway are listed and answer.
    async fn both(&mut self) -> Result<()> {
        self.report["tools"] = json!(self.tools);
        for prefix in ["", OTHER] {
            let name = format!("{prefix}echo");
            check(self.has(&name), || format!("`{name}` is not in the list"))?;
            self.echo_of(prefix).await?;
        }
        let is_one = self.pid().await? == self.pid_of(OTHER).await?;
        check(!is_one, || "one process answers for both".to_owned())
    }

    /// Kills a server of a gateway in the middle of calls to both: nothing happens to the other.
    async fn one_dies(&mut self) -> Result<()> {
        let spared = self.pid_of(OTHER).await?;
        let before = self.pid().await?;
        let calls = vec![self.slow(1500), self.slow_of(OTHER, 1500)];
        self.settle(calls, Some(before)).await?;
        let how = self.report["in_flight"][1].clone();
        check(how == "result", || format!("the call of the other server ended with {how}"))?;
        self.served_anew(before).await?;
        let is_spared = self.pid_of(OTHER).await? == spared;
        check(is_spared, || "the other server was restarted too".to_owned())
    }

    /// Restarts the server by the tool, which a client sees among the server's own.
    async fn restart(&mut self) -> Result<()> {
        check(self.has("restart_server"), || "`restart_server` is not in the list".to_owned())?;
        let before = self.pid().await?;
        // In whole milliseconds: the marker has no more.
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as f64 / 1000.0;
        self.succeed("restart_server", which(json!({ "reason": "interop" }))).await?;
        // The answer may come before the old instance goes. No call may fail meanwhile.
        let started = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_millis(50));
        let mut now = before;
        while now == before && started.elapsed() < step() {
            ticks.tick().await;
            now = self.pid().await?;
        }
        self.report["pids"] = json!([before, now]);
        check(now != before, || format!("process {before} still answers"))?;
        self.echo().await?;
        if !self.has("verify_server_restarted") {
            return Ok(());
        }
        let since = which(json!({ "since_timestamp": since }));
        let verdict = value(&call(self.running.peer(), "verify_server_restarted", since).await?);
        self.report["verified"] = verdict["restarted"].clone();
        check(verdict["restarted"] == true, || {
            format!("`verify_server_restarted` denies it: {}", verdict["error"])
        })
    }

    /// Makes the server report a change until it arrives; the server of npm can only be asked once.
    async fn touched(&self) -> Result<bool> {
        self.events.forget();
        if !self.has("touch") {
            self.succeed("toggle-subscriber-updates", json!({})).await?;
            return Ok(self.events.has("updated", step()).await);
        }
        let started = Instant::now();
        while started.elapsed() < step() && self.events.ended().is_none() {
            self.succeed("touch", json!({})).await?;
            if self.events.has("updated", Duration::from_millis(500)).await {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn subscription(&mut self, by_tool: bool) -> Result<()> {
        self.subscribe(SubscriptionFilter::builder().resource_subscription(URI).build()).await?;
        check(self.touched().await?, || "no update arrives even before the restart".to_owned())?;
        self.report["before"] = json!(true);
        if by_tool {
            self.restart().await?;
        } else {
            self.kill().await?;
        }
        check(self.touched().await?, || {
            format!("no update arrives after the restart (ended: {:?})", self.events.ended())
        })?;
        self.report["after"] = json!(true);
        Ok(())
    }

    async fn list_change(&mut self) -> Result<()> {
        check(!self.has("new_tool"), || "`new_tool` is there before the change".to_owned())?;
        self.subscribe(SubscriptionFilter::builder().tools_list_changed().build()).await?;
        self.events.forget();
        std::fs::write(std::env::var("INTEROP_VERSION_FILE")?, "2\n")?;
        self.restart().await?;
        check(self.events.has("tools", step()).await, || {
            format!("no list_changed arrives (ended: {:?})", self.events.ended())
        })?;
        let tools = self.list().await?;
        self.report["tools"] = json!(tools);
        let is_there = tools.iter().any(|name| name == "new_tool");
        check(is_there, || "`new_tool` is not in the list".to_owned())?;
        self.succeed("new_tool", json!({})).await?;
        Ok(())
    }

    async fn run(&mut self, scenario: &str) -> Result<()> {
        if scenario == "connect" {
            return Ok(());
        }
        self.tools = self.list().await?;
        match scenario {
            "list" => {
                self.report["tools"] = json!(self.tools);
                check(self.has("echo"), || "`echo` is not in the list".to_owned())
            }
            "call" => self.echo().await,
            "exit-42" => self.exit(42).await,
            "exit-1" => self.exit(1).await,
            "kill" => self.kill().await,
            "restart-tool" => self.restart().await,
            "subscription" => self.subscription(false).await,
            "subscription-tool" => self.subscription(true).await,
            "both" => self.both().await,
            "one-dies" => self.one_dies().await,
            _ => self.list_change().await,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (mode, scenario, command) = match &words[..] {
        [flag, mode, scenario, dashes, command @ ..]
            if flag == "--mode"
                && dashes == "--"
                && !command.is_empty()
                && SCENARIOS.contains(&scenario.as_str()) =>
        {
            (mode, scenario, command)
        }
        _ => {
            eprintln!("usage: --mode initialize|auto {} -- COMMAND…|URL", SCENARIOS.join("|"));
            return ExitCode::from(2);
        }
    };
    let mut report = json!({ "scenario": scenario, "ok": false });
    let ended = match Client::connect(mode, command).await {
        Ok(mut client) => {
            let ended = client.run(scenario).await;
            if let (Some(report), Value::Object(more)) = (report.as_object_mut(), client.report) {
                report.extend(more);
            }
            let closed = client.running.cancel().await;
            ended.and_then(|()| closed.map(drop).map_err(Into::into))
        }
        Err(error) => Err(error),
    };
    match &ended {
        Ok(()) => report["ok"] = json!(true),
        Err(error) => report["error"] = json!(error.to_string()),
    }
    println!("{report}");
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
