//! Owns the search for rings of dependencies. Used by configurations and plans. Never recurses: a chain may be long.

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
