//! How the loop takes over what the supervisor before it has left.

use afresh_core::id::ServiceId;
use afresh_core::service::{AdoptedAs, Input};

use super::Supervise;
use crate::definition::Definition;
use crate::os::PipeReader;
use crate::pipe::Flow;
use crate::process::{AdoptedInstance, AdoptedStdio, Earlier, Stdio};

impl Supervise {
    /// Takes over instances, each as one of the service of its name. One whose service is not defined
    /// any more is stopped in order, as one of the service that `unknown` makes of its name; these are
    /// returned.
    ///
    /// To be called before any service is started. Of those that it stops, none must be started after.
    pub(crate) async fn adopt(
        &mut self,
        instances: Vec<AdoptedInstance>,
        unknown: impl Fn(&str) -> Definition,
    ) -> Vec<ServiceId> {
        // The clock of the machines begins before all that they know of.
        let oldest = instances.iter().map(AdoptedInstance::uptime).max().unwrap_or_default();
        self.start = self.start.checked_sub(oldest).unwrap_or(self.start);
        let mut leaving = Vec::new();
        for instance in instances {
            let name = instance.service();
            let service = match self.named(name) {
                Some(service) => service,
                None => {
                    let service = self.add(unknown(name), 0);
                    leaving.push(service);
                    service
                }
            };
            self.adopt_one(service, instance).await;
        }
        for service in &leaving {
            let title = self.title(*service);
            let text = format!("the configuration does not have {title} any more: stopping it");
            self.log_about(*service, &text);
            self.input_to(*service, Input::Retire).await;
        }
        leaving
    }

    async fn adopt_one(&mut self, service: ServiceId, instance: AdoptedInstance) {
        let (generation, pid) = (instance.generation(), instance.pid());
        let since = self.now() - instance.uptime();
        let found = match (instance.is_current(), instance.is_stopping()) {
            (true, false) => AdoptedAs::Current,
            (true, true) => AdoptedAs::Stopping,
            (false, _) => AdoptedAs::Beside,
        };
        let lost = instance.lost_bytes();
        if lost > 0 {
            let text = format!(
                "{} printed more than there was room for while afresh was away: {lost} bytes are lost",
                self.title(service)
            );
            self.log_about(service, &text);
        }
        match self.processes.take(service, instance) {
            Ok(AdoptedStdio { stdio: Stdio { stdin, stdout, stderr }, earlier }) => {
                let flow =
                    |pipe: PipeReader, earlier: Earlier| Flow { pipe, earlier: Some(earlier) };
                let [out_earlier, err_earlier] = earlier;
                let flows = [flow(stdout, out_earlier), flow(stderr, err_earlier)];
                let kept = self.services.get(&service);
                let checked = kept.filter(|kept| kept.definition.health.is_some());
                let command = checked.and_then(|kept| kept.definition.command_of(generation).ok());
                self.attach(service, generation, stdin, flows, command).await;
                let kept = self.services.get_mut(&service);
                if let Some(kept) = kept.and_then(|kept| kept.instances.get_mut(&generation)) {
                    kept.pid = pid;
                }
            }
            // Its end will be told.
            Err(error) => self.log_about(service, &format!("its output is lost: {error}")),
        }
        self.input_to(service, Input::Adopted { generation, pid, since, found }).await;
    }

    /// The next supervisor has to know which instance is the current one.
    pub(super) fn mark_current(&mut self, service: ServiceId) {
        let current = self.core.service(service).and_then(|service| service.current());
        self.processes.mark(service, current);
    }
}
