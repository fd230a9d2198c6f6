//! The common server on rmcp: both eras.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    Implementation, ListResourcesResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::schemars::JsonSchema;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler, ServiceExt, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;
use tokio::sync::{Mutex, watch};

const URI: &str = "interop://counter";

#[derive(Deserialize, JsonSchema)]
struct Echo {
    message: String,
}

#[derive(Deserialize, JsonSchema)]
struct Exit {
    code: i32,
}

#[derive(Deserialize, JsonSchema)]
struct Slow {
    ms: u64,
}

#[derive(Clone)]
struct Server {
    version: String,
    tool_router: ToolRouter<Self>,
    counter: watch::Sender<u64>,
    subscribed: Arc<Mutex<BTreeSet<String>>>,
}

#[tool_router]
impl Server {
    fn new(version: String) -> Self {
        let mut tool_router = Self::tool_router();
        if version != "2" {
            tool_router.remove_route("new_tool");
        }
        let counter = watch::Sender::new(0);
        Self { version, tool_router, counter, subscribed: Arc::default() }
    }

    #[tool]
    async fn echo(&self, Parameters(Echo { message }): Parameters<Echo>) -> String {
        format!("echo: {message}")
    }

    #[tool]
    async fn pid(&self) -> String {
        std::process::id().to_string()
    }

    #[tool]
    async fn exit(&self, Parameters(Exit { code }): Parameters<Exit>) -> String {
        std::process::exit(code)
    }

    #[tool]
    async fn slow(&self, Parameters(Slow { ms }): Parameters<Slow>) -> String {
        let forever = std::future::pending::<()>();
        let _ = tokio::time::timeout(Duration::from_millis(ms), forever).await;
        format!("slow: {ms}")
    }

    #[tool]
    async fn version(&self) -> String {
        self.version.clone()
    }

    /// Reports a change, to whoever subscribed in this instance.
    #[tool]
    async fn touch(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        self.counter.send_modify(|counter| *counter += 1);
        if self.subscribed.lock().await.contains(URI) {
            let updated = ResourceUpdatedNotificationParam::new(URI);
            context.peer.notify_resource_updated(updated).await.map_err(internal)?;
        }
        Ok(self.counter.borrow().to_string())
    }

    #[tool]
    async fn new_tool(&self) -> String {
        "new".to_owned()
    }
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("interop-rmcp", self.version.clone()))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(URI, "counter")]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = self.counter.borrow().to_string();
        let contents = vec![ResourceContents::text(text, request.uri)];
        Ok(ReadResourceResult::new(contents).into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let wanted = &context.accepted().resource_subscriptions;
        let listens = wanted.as_ref().is_some_and(|all| all.iter().any(|uri| uri == URI));
        let mut counter = self.counter.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = counter.changed() => {
                    changed.map_err(internal)?;
                    if listens {
                        context.sink().notify_resource_updated(URI).await.map_err(internal)?;
                    }
                }
            }
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().await.insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribed.lock().await.remove(&request.uri);
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::var("INTEROP_VERSION_FILE")?;
    let version = std::fs::read_to_string(file)?.trim().to_owned();
    Server::new(version).serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}
