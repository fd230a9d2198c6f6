//! Adopts the instances that the supervisor before this one has left, with the output that they printed meanwhile.
//! Driven by `afresh up` before it starts anything. Never starts a process.

use afresh_core::audit::Actor;
use afresh_core::id::ServiceId;
use afresh_core::service::{AdoptedAs, Input};

use super::Supervisor;
use crate::definition::Definition;
use crate::os::PipeReader;
use crate::pipe::Flow;
use crate::process::{AdoptedInstance, InstanceStdio, SpoolReader};

impl Supervisor {
    /// Takes over instances, each as one of the service of its name. One whose service is not defined
    /// any more is stopped in order, as one of the service that `unknown` makes of its name; these are
    /// returned, and must not be started again.
    pub(crate) async fn adopt(
        &mut self,
        instances: Vec<AdoptedInstance>,
        unknown: impl Fn(&str) -> Definition,
    ) -> Vec<ServiceId> {
        let oldest =
            instances.iter().map(|instance| instance.retained.uptime).max().unwrap_or_default();
        // The machines' clock begins before all that these know of.
        self.start = self.start.checked_sub(oldest).unwrap_or(self.start);
        let mut leaving = Vec::new();
        for instance in instances {
            let name = &instance.retained.identity.service;
            let service = match self.services.named(name) {
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
            let title = self.services.title(*service);
            let text = format!("the configuration does not have {title} any more: stopping it");
            self.recorder.log_about(&self.services, *service, &text);
            self.services.note_stop(*service, &Actor::Afresh("configuration"));
            self.input_to(*service, Input::Retire).await;
        }
        leaving
    }

    async fn adopt_one(&mut self, service: ServiceId, instance: AdoptedInstance) {
        let retained = &instance.retained;
        let (generation, pid, lost) = (retained.generation, retained.pid, retained.lost);
        let since = self.time() - retained.uptime;
        let found = match (retained.identity.current, retained.stopping) {
            (true, false) => AdoptedAs::Current,
            (true, true) => AdoptedAs::Stopping,
            (false, _) => AdoptedAs::Beside,
        };
        if lost > 0 {
            let text = format!(
                "{} printed more than there was room for while afresh was away: {lost} bytes are lost",
                self.services.title(service)
            );
            self.recorder.log_about(&self.services, service, &text);
        }
        match self.processes.take(service, instance) {
            Ok((InstanceStdio { stdin, stdout, stderr }, [out_earlier, err_earlier])) => {
                let flow =
                    |pipe: PipeReader, earlier: SpoolReader| Flow { pipe, earlier: Some(earlier) };
                let flows = [flow(stdout, out_earlier), flow(stderr, err_earlier)];
                let definition = self.services.definition(service);
                let checked = definition.filter(|definition| definition.health.is_some());
                let command = checked.and_then(|definition| definition.command_of(generation).ok());
                let id = (service, generation);
                self.instances.attach(&mut self.services, id, stdin, flows, command).await;
                self.instances.set_pid(service, generation, pid);
            }
            // Its end will be reported.
            Err(error) => {
                let text = format!("its output is lost: {error}");
                self.recorder.log_about(&self.services, service, &text);
            }
        }
        self.input_to(service, Input::Adopted { generation, pid, since, found }).await;
    }
}
