//! The metrics of several afresh processes as one page.

use std::collections::BTreeMap;

/// Joins what `GET /metrics` of several processes gave, each with its pid. In the text format all samples of a
/// metric stand together and no two are alike, so each says in a label whose it is; a single page stays as it
/// is.
pub fn joined(pages: &[(u32, String)]) -> String {
    if let [(_, page)] = pages {
        return page.clone();
    }
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut families: Vec<(String, String)> = Vec::new();
    for (pid, page) in pages {
        let mut at = None;
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let name = rest.split(' ').nth(1).unwrap_or_default();
                let place = *places.entry(name).or_insert_with(|| {
                    families.push(Default::default());
                    families.len() - 1
                });
                let (head, samples) = &mut families[place];
                // What it is was said by the first.
                if samples.is_empty() {
                    head.push_str(line);
                    head.push('\n');
                }
                at = Some(place);
            } else if let Some((_, samples)) = at.and_then(|at| families.get_mut(at)) {
                samples.push_str(&labelled(line, *pid));
                samples.push('\n');
            }
        }
    }
    families.into_iter().map(|(head, samples)| head + &samples).collect()
}

/// A sample that says whose it is.
fn labelled(sample: &str, pid: u32) -> String {
    let end = sample.find(['{', ' ']).unwrap_or(sample.len());
    let (name, rest) = sample.split_at(end);
    match rest.strip_prefix('{') {
        Some(rest) => format!("{name}{{supervisor_pid=\"{pid}\",{rest}"),
        None => format!("{name}{{supervisor_pid=\"{pid}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_several_are_one_page() {
        let page = |events: u32, more: &str| {
            format!(
                "# HELP events Told.\n# TYPE events counter\nevents {events}\n\
                 # HELP state Is.\n# TYPE state gauge\nstate{{name=\"a b{{\"}} 1\n{more}"
            )
        };
        let more = "# HELP other Else.\n# TYPE other gauge\nother 7\n";
        assert_eq!(joined(&[(5, page(1, ""))]), page(1, ""));
        assert_eq!(joined(&[]), "");
        assert_eq!(
            joined(&[(5, page(1, "")), (6, page(2, more))]),
            "# HELP events Told.\n# TYPE events counter\n\
             events{supervisor_pid=\"5\"} 1\nevents{supervisor_pid=\"6\"} 2\n\
             # HELP state Is.\n# TYPE state gauge\n\
             state{supervisor_pid=\"5\",name=\"a b{\"} 1\nstate{supervisor_pid=\"6\",name=\"a b{\"} 1\n\
             # HELP other Else.\n# TYPE other gauge\nother{supervisor_pid=\"6\"} 7\n"
        );
    }
}
