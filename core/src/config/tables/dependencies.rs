//! Owns the check of `depends_on`: each dependency is defined, and there is no ring. Driven by `tables::make`. Never
//! orders services.

use std::collections::BTreeMap;

use super::{Errors, Table};
use crate::config::keys::service::DEPENDS_ON;
use crate::definition::Dependency;
use crate::report::{ConfigError, ErrorKind};
use crate::rings::{rings, told};
use crate::suggest::nearest;
use crate::text::printable;

/// Checks the needs of all services.
pub(super) fn check(services: &[Table], opencode_is_off: bool, errors: &mut Errors<'_>) {
    let index: BTreeMap<&str, usize> =
        services.iter().enumerate().map(|(at, service)| (service.name.as_str(), at)).collect();
    let mut needs: Vec<Vec<usize>> = Vec::new();
    for service in services {
        let mut own = Vec::new();
        for need in needs_of(service) {
            match index.get(need.name.as_str()) {
                Some(at) if services[*at].name == service.name => {
                    let message = format!("service `{}` needs itself", service.name);
                    errors.push(error(service, message, "remove it from `depends_on`".to_owned()));
                }
                Some(at) => own.push(*at),
                None => errors.push(unknown(service, &need.name, &index, opencode_is_off)),
            }
        }
        needs.push(own);
    }
    for ring in rings(&needs) {
        let names: Vec<&str> = ring.iter().map(|at| services[*at].name.as_str()).collect();
        let message = format!("services need each other in a ring: {}", told(&names));
        let hint = "take one of them out of a `depends_on`".to_owned();
        errors.push(error(&services[ring[0]], message, hint));
    }
}

fn needs_of(service: &Table) -> Vec<Dependency> {
    DEPENDS_ON.find(service).unwrap_or_default()
}

fn error(service: &Table, message: String, hint: String) -> ConfigError {
    let place = service.entry(DEPENDS_ON.field()).map_or(&service.place, |entry| &entry.place);
    place.error(ErrorKind::Conflict, message, hint)
}

fn unknown(
    service: &Table,
    name: &str,
    index: &BTreeMap<&str, usize>,
    opencode_is_off: bool,
) -> ConfigError {
    let shown = printable(name);
    let message = format!("service `{}` needs `{shown}`, which is no service", service.name);
    let hint = match nearest(name, index.keys().copied()) {
        _ if opencode_is_off && name == "opencode" => {
            "`enabled = false` in `[opencode]` turns it off".to_owned()
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("define `[service.{shown}]`, or remove it from `depends_on`"),
    };
    error(service, message, hint)
}
