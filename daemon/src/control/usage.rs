//! Owns the measurement of memory and processor time for answers of the control API. Driven by connections; the
//! loop never waits for it.

use afresh_core::control::metrics::Metrics;
use afresh_core::control::{ServiceStatus, UsageStatus};
use tokio::task::spawn_blocking;

use super::loop_request::LoopRequest;
use super::route::Refusing;
use super::server::Host;
use crate::process::{own_usage, usage_of_trees};

/// The services with what they use: one look for all of them.
pub(super) async fn measured(mut services: Vec<ServiceStatus>) -> Vec<ServiceStatus> {
    let pids = services.iter().map(|service| service.pid).collect();
    for (service, usage) in services.iter_mut().zip(usages(pids).await) {
        service.usage = usage;
    }
    services
}

/// All numbers of this afresh.
pub(super) async fn metrics(host: &Host) -> Refusing<Metrics> {
    let mut services = host.ask(|answer| LoopRequest::Metrics { answer }).await?;
    let pids = services.iter().map(|service| service.pid).collect();
    for (service, usage) in services.iter_mut().zip(usages(pids).await) {
        service.usage = usage;
    }
    let usage = own_usage();
    Ok(Metrics {
        version: host.version.version.clone(),
        face: host.version.face,
        events: *host.events.newest().borrow(),
        memory_bytes: usage.map(|usage| usage.memory_bytes),
        cpu_time: usage.map(|usage| usage.cpu_time),
        services,
    })
}

/// What each of these processes uses, where there is one.
async fn usages(pids: Vec<Option<u32>>) -> Vec<Option<UsageStatus>> {
    let running: Vec<u32> = pids.iter().copied().flatten().collect();
    if running.is_empty() {
        return vec![None; pids.len()];
    }
    // A look that has failed has found nothing.
    let found = spawn_blocking(move || usage_of_trees(&running)).await.unwrap_or_default();
    let mut found = found.into_iter();
    let status = |pid: Option<u32>| {
        let usage = pid.and_then(|_| found.next().flatten())?;
        let cpu_ms = u64::try_from(usage.cpu_time.as_millis()).unwrap_or(u64::MAX);
        Some(UsageStatus { memory_bytes: usage.memory_bytes, cpu_ms })
    };
    pids.into_iter().map(status).collect()
}
