//! What services need of each other: each need is a service that is there, and there is no ring.

use std::collections::BTreeMap;

use super::super::error::{ConfigError, ErrorKind};
use super::super::suggest::nearest;
use super::{Content, Errors, Table};
use crate::definition::Dependency;
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

fn needs_of(service: &Table) -> &[Dependency] {
    match service.entry("depends_on").map(|entry| &entry.content) {
        Some(Content::Dependencies(all)) => all,
        _ => &[],
    }
}

fn error(service: &Table, message: String, hint: String) -> ConfigError {
    let place = service.entry("depends_on").map_or(&service.place, |entry| &entry.place);
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

/// Rings of needs, each as the services in it, by their numbers; a service is in at most one that is found.
pub(crate) fn rings(needs: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut rings = Vec::new();
    let mut is_done = vec![false; needs.len()];
    // Where on the way a service stands, while it is on it.
    let mut on_way: Vec<Option<usize>> = vec![None; needs.len()];
    for start in 0..needs.len() {
        // The services on the way, each with how many of its needs were looked at.
        let mut way: Vec<(usize, usize)> = Vec::new();
        if !is_done[start] {
            way.push((start, 0));
            on_way[start] = Some(0);
        }
        while let Some((service, looked_at)) = way.last_mut() {
            let service = *service;
            let Some(need) = needs[service].get(*looked_at).copied() else {
                (is_done[service], on_way[service]) = (true, None);
                way.pop();
                continue;
            };
            *looked_at += 1;
            if let Some(from) = on_way[need] {
                let ring: Vec<usize> = way[from..].iter().map(|(service, _)| *service).collect();
                let is_new = |ring: &[usize]| {
                    let in_others =
                        |at: &usize| rings.iter().any(|other: &Vec<_>| other.contains(at));
                    !ring.iter().any(in_others)
                };
                if is_new(&ring) {
                    rings.push(ring);
                }
            } else if !is_done[need] {
                on_way[need] = Some(way.len());
                way.push((need, 0));
            }
        }
    }
    rings
}

/// The names with an arrow to what each needs; of a long ring, its beginning.
pub(crate) fn told(names: &[&str]) -> String {
    const NAMES_MAX: usize = 10;
    let mut shown: Vec<String> = names.iter().take(NAMES_MAX).map(|n| format!("`{n}`")).collect();
    if names.len() > NAMES_MAX {
        shown.push(format!("{} more", names.len() - NAMES_MAX));
    }
    shown.extend(names.first().map(|name| format!("`{name}`")));
    shown.join(" → ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_found_once() {
        type Lists = &'static [&'static [usize]];
        let cases: [(Lists, Lists); 7] = [
            (&[], &[]),
            (&[&[1], &[2], &[]], &[]),
            (&[&[1, 2], &[3], &[3], &[]], &[]),
            (&[&[1], &[0]], &[&[0, 1]]),
            (&[&[1], &[2], &[1]], &[&[1, 2]]),
            (&[&[1], &[0], &[3], &[2]], &[&[0, 1], &[2, 3]]),
            (&[&[1, 2], &[0], &[0]], &[&[0, 1]]),
        ];
        for (needs, wanted) in cases {
            let needs: Vec<Vec<usize>> = needs.iter().map(|need| need.to_vec()).collect();
            assert_eq!(rings(&needs), wanted, "{needs:?}");
        }
        // A long way takes no stack, and a dense net no time.
        let count = 1_000;
        let line: Vec<Vec<usize>> = (0..count).map(|at| vec![(at + 1) % count]).collect();
        assert_eq!(rings(&line)[0].len(), count);
        let dense: Vec<Vec<usize>> = (0..count).map(|at| (at + 1..count).collect()).collect();
        assert!(rings(&dense).is_empty());
    }

    #[test]
    fn a_long_ring_is_told_in_short() {
        assert_eq!(told(&["a", "b"]), "`a` → `b` → `a`");
        let many = vec!["x"; 1_000];
        assert!(told(&many).ends_with("→ 990 more → `x`"), "{}", told(&many));
    }
}
