//! Owns the services of the configuration, as they are handed to the supervisor. Driven by `afresh up` at its
//! start and at each reload. Never touches a service that has not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use afresh_core::audit::Actor;
use afresh_core::audit::recovery::{ServiceSummary, TrailSummary, UserIntent};
use afresh_core::control::{Change, ReloadAnswer};
use afresh_core::definition::{Changes, Dependency, ServiceDefinition, Until, changes};
use afresh_core::fleet::Transition;
use afresh_core::id::{Generation, ServiceId};
use afresh_core::limits::SERVICES_REMEMBERED_MAX;
use afresh_core::policy::Policy;
use afresh_core::service::{Input, Rest, Want};
use afresh_core::text::harmless;

use super::{Lines, Up};
use crate::clock::seed;
use crate::control::{Reloading, StateBefore, reloaded};
use crate::definition::{Definition, Variables};
use crate::pipe::OutputForm;
use crate::process::{AdoptedInstance, Command};
use crate::store::service_log::{ServiceLogs, file_name};
use crate::supervise::Supervisor;
use crate::write_path::WritePath;

/// The colours of names, by turns: cyan, yellow, green, magenta, blue, and the same brightly.
const COLOURS: [u8; 10] = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94];

/// The services as they are defined now.
pub(super) struct ConfiguredServices {
    environment: Arc<[(OsString, OsString)]>,
    base: PathBuf,
    /// The rules for those that are not defined any more.
    defaults: Policy,
    colours: bool,
    /// No terminal or pipe shows their lines.
    is_silent: bool,
    /// They are read on a terminal.
    is_drawn: bool,
    logs: Arc<ServiceLogs>,
    log_folder: WritePath,
    members: BTreeMap<String, ConfiguredService>,
    /// Not defined any more, and forgotten when they are down.
    leaving: Vec<ServiceId>,
    /// The newest instances of services that are not there, for the time that they come back.
    generations: BTreeMap<String, Generation>,
    /// Services that were ever defined, for their colour.
    count: usize,
}

struct ConfiguredService {
    id: ServiceId,
    definition: ServiceDefinition,
    colour: u8,
}

impl ConfiguredServices {
    pub(super) fn new(up: &Up, logs: Arc<ServiceLogs>) -> Self {
        Self {
            logs,
            log_folder: up.workspace.writable_logs(),
            environment: up.environment.clone().into(),
            base: up.base.clone(),
            defaults: up.defaults.clone(),
            colours: up.colours,
            is_silent: matches!(up.lines, Lines::File),
            is_drawn: matches!(up.lines, Lines::Drawn(_)),
            members: BTreeMap::new(),
            leaving: Vec::new(),
            generations: BTreeMap::new(),
            count: 0,
        }
    }

    /// Takes the services in, with what is known of them from before.
    pub(super) fn begin(
        &mut self,
        supervise: &mut Supervisor,
        services: Vec<ServiceDefinition>,
        past: &TrailSummary,
    ) {
        let width = self.width(&services);
        let generations = past.generations().take(SERVICES_REMEMBERED_MAX);
        self.generations =
            generations.map(|(name, number)| (name.to_owned(), Generation(number))).collect();
        for definition in services {
            let ServiceSummary { generation, restarts, .. } = past.of(&definition.name);
            let restarts = past.was_killed.then_some(restarts);
            self.add(supervise, definition, width, (Generation(generation), restarts));
        }
        self.order(supervise);
    }

    /// Takes over what the supervisor before has left to run. What is not defined any more is stopped.
    pub(super) async fn adopt(
        &mut self,
        supervise: &mut Supervisor,
        instances: Vec<AdoptedInstance>,
    ) {
        let unknown = |name: &str| Definition {
            name: name.to_owned(),
            title: name.to_owned(),
            policy: self.defaults.clone(),
            form: if self.is_silent {
                OutputForm::Silent
            } else {
                OutputForm::Lines(format!("{name} | "))
            },
            ..Definition::default()
        };
        let names = instances.iter().map(|instance| instance.retained.identity.service.as_str());
        let gone: BTreeSet<&str> = names.filter(|name| !self.members.contains_key(*name)).collect();
        if !gone.is_empty() {
            let gone: Vec<String> = gone.into_iter().map(str::to_owned).collect();
            let by = Actor::Afresh("configuration");
            supervise.recorder.note(reloaded("afresh.up", &[], &[], &gone, &by));
        }
        let leaving = supervise.adopt(instances, unknown).await;
        self.leaving.extend(leaving);
    }

    /// Starts those that are chosen, or all that start by themselves.
    pub(super) async fn start(
        &mut self,
        supervise: &mut Supervisor,
        chosen: &[String],
        past: &TrailSummary,
    ) {
        let is_chosen = |member: &&ConfiguredService| match chosen {
            // What a person wanted holds on when only the supervisor was killed.
            [] => match past.of(&member.definition.name).wanted {
                UserIntent::AsDefined => member.definition.autostart,
                wanted => wanted == UserIntent::Up,
            },
            chosen => chosen.contains(&member.definition.name),
        };
        let ids: Vec<ServiceId> = self.members.values().filter(is_chosen).map(|m| m.id).collect();
        // One that was to be stopped may have been taken over before it had heard of it.
        let is_left = |member: &&ConfiguredService| {
            let service = supervise.fleet.service(member.id);
            chosen.is_empty()
                && past.of(&member.definition.name).wanted == UserIntent::Down
                && service.is_some_and(|its| its.rest().is_none() && its.want() == Want::Up)
        };
        let left: Vec<ServiceId> = self.members.values().filter(is_left).map(|m| m.id).collect();
        let by = Actor::Afresh("an earlier request");
        supervise.request(Transition::Stop, left, &by).await;
        supervise.request(Transition::Start, ids, &by).await;
    }

    /// Follows a changed configuration: only what changed is touched.
    pub(super) async fn apply(
        &mut self,
        supervise: &mut Supervisor,
        services: Vec<ServiceDefinition>,
        by: &Actor,
    ) -> Reloading {
        let old: Vec<ServiceDefinition> =
            self.members.values().map(|member| member.definition.clone()).collect();
        let Changes { added, removed, changed, unchanged } = changes(&old, &services);
        let width = self.width(&services);
        let mut started = Vec::new();
        for definition in services {
            let autostart = definition.autostart;
            match self.members.get_mut(&definition.name) {
                None => {
                    let known = self.generations.remove(&definition.name).unwrap_or_default();
                    let id = self.add(supervise, definition, width, (known, None));
                    started.extend(autostart.then_some(id));
                }
                Some(member) => member.definition = definition,
            }
        }
        for member in changed.iter().filter_map(|name| self.members.get(name)) {
            supervise.redefine(member.id, self.made(member, width));
        }
        self.order(supervise);
        supervise.recorder.note(reloaded("afresh.up", &added, &changed, &removed, by));
        let leaving: Vec<ServiceId> =
            removed.iter().filter_map(|name| self.members.remove(name)).map(|m| m.id).collect();
        self.leaving.extend(leaving.iter().copied());
        let mut begun: Vec<(String, Change, StateBefore)> = Vec::new();
        let mut note = |supervise: &Supervisor, id: ServiceId, what: Change| {
            let before = StateBefore::of(supervise, id);
            begun.extend(before.map(|before| (supervise.services.name(id), what, before)));
        };
        leaving.iter().for_each(|id| note(supervise, *id, Change::Stop));
        supervise.request(Transition::Retire, leaving, by).await;
        for id in changed.iter().filter_map(|name| Some(self.members.get(name)?.id)) {
            // One that is down by request stays down, or goes on to be stopped.
            let is_up = supervise.fleet.service(id).is_some_and(|service| match service.rest() {
                None => service.want() == Want::Up,
                Some(rest) => matches!(rest, Rest::Failed(_)),
            });
            if is_up {
                note(supervise, id, Change::Restart);
                let (reason, by) = ("its definition changed".to_owned(), by.clone());
                supervise.input_to(id, Input::Restart { reason, by }).await;
            }
        }
        started.iter().for_each(|id| note(supervise, *id, Change::Start));
        supervise.request(Transition::Start, started, by).await;
        let answer = ReloadAnswer { added, removed, changed, unchanged, ..ReloadAnswer::default() };
        Reloading { answer, begun }
    }

    /// Forgets those that are not defined any more and are down.
    pub(super) fn tidy(&mut self, supervise: &mut Supervisor) {
        self.leaving.retain(|id| {
            let service = supervise.fleet.service(*id);
            let generation = service.map(|service| service.generation()).unwrap_or_default();
            let name = supervise.services.name(*id);
            let is_gone = supervise.forget(*id);
            if is_gone && self.generations.len() < SERVICES_REMEMBERED_MAX {
                self.generations.insert(name, generation);
            }
            !is_gone
        });
    }

    /// Takes a service in, which goes on from the generation and the restarts that it had before.
    fn add(
        &mut self,
        supervise: &mut Supervisor,
        definition: ServiceDefinition,
        width: usize,
        (generation, restarts): (Generation, Option<u64>),
    ) -> ServiceId {
        let colour = COLOURS[self.count % COLOURS.len()];
        self.count += 1;
        let name = definition.name.clone();
        let member = ConfiguredService { id: ServiceId(0), definition, colour };
        let made = self.made(&member, width);
        // One that was taken out a moment ago may still be on its way down.
        let back = self.leaving.iter().position(|id| supervise.services.name(*id) == name);
        let id = match back.map(|at| self.leaving.remove(at)) {
            Some(id) => {
                supervise.redefine(id, made);
                id
            }
            None => supervise.add(made, seed().wrapping_add(self.count as u64)),
        };
        if let Some(machine) = supervise.fleet.service_mut(id) {
            machine.resume(generation, restarts);
        }
        self.members.insert(name, ConfiguredService { id, ..member });
        id
    }

    /// Says what each service needs.
    fn order(&self, supervise: &mut Supervisor) {
        for member in self.members.values() {
            let needed =
                |needed: &Dependency| Some((self.members.get(&needed.name)?.id, needed.until));
            let needs: Vec<(ServiceId, Until)> =
                member.definition.depends_on.iter().filter_map(needed).collect();
            supervise.fleet.set_needs(member.id, needs);
        }
    }

    /// The definition as the loop takes it.
    fn made(&self, member: &ConfiguredService, width: usize) -> Definition {
        let given = &member.definition;
        let padded = format!("{:<width$}", harmless(&given.name));
        let prefix = match self.colours {
            true => format!("\u{1b}[{}m{padded}\u{1b}[0m | ", member.colour),
            false => format!("{padded} | "),
        };
        Definition {
            name: given.name.clone(),
            title: given.title.clone(),
            command: Command {
                argv: given.command.iter().map(OsString::from).collect(),
                cwd: Some(
                    given.cwd.as_ref().map_or_else(|| self.base.clone(), |cwd| self.base.join(cwd)),
                ),
                env: Vec::new(),
            },
            variables: Variables {
                base: Arc::clone(&self.environment),
                file: given.env_file.as_ref().map(|path| self.base.join(path)),
                given: given.env.clone(),
            },
            policy: given.policy.clone(),
            stop_signal: given.stop_signal,
            memory_bytes_max: given.memory_bytes_max,
            form: if self.is_silent { OutputForm::Silent } else { OutputForm::Offered(prefix) },
            health: given.health.clone(),
            ready_at_start: given.health.is_none(),
            port: given.port.clone(),
            log: Some(self.logs.open(self.log_folder.join(file_name(&given.name)), given.log)),
        }
    }

    /// How wide names are in front of lines; on a terminal all lines begin in one column.
    fn width(&self, services: &[ServiceDefinition]) -> usize {
        let widths = services.iter().map(|service| service.name.chars().count());
        if self.is_drawn { widths.max().unwrap_or(0) } else { 0 }
    }
}
