//! Finds the sections of a plan: its title, its phases and their linked files. Driven by `read.rs`. Never reads a
//! phase's keys.

use std::ops::Range;

use super::body::SectionRules;
use super::error::{PlanError, SourcePosition};
use super::key::{KeyMatch, look};
use super::markup::{Link, bare, link};
use super::page::{LineKind, MarkdownPage, bullet, indent};
use super::value::shown_name;
use crate::suggest::nearest;
use crate::text::printable;

/// The parts of a plan.
pub(super) struct Outline {
    pub(super) title: Option<String>,
    /// The lines that are outside of all phases.
    pub(super) outside: Vec<usize>,
    pub(super) entries: Vec<PhaseEntry>,
}

/// A phase in the file of the plan.
pub(super) struct PhaseEntry {
    pub(super) name: String,
    pub(super) number: Option<String>,
    pub(super) place: SourcePosition,
    /// Where its file is, as it is written.
    pub(super) link: Option<(String, SourcePosition)>,
    /// The lines that belong to it.
    pub(super) rows: Range<usize>,
    pub(super) manner: SectionRules,
    /// The heading behind it, where that begins something for all phases.
    pub(super) before: Option<String>,
}

/// What a heading is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heading {
    Phase {
        number: Option<String>,
        /// What is written, links included; the word and the number where nothing else is.
        name: String,
    },
    /// A phase without a name.
    Nameless,
    /// Like a phase; with what was meant.
    Near(String),
    Other,
}

/// Finds the phases of a plan.
pub(super) fn outline(page: &MarkdownPage<'_>, errors: &mut Vec<PlanError>) -> Outline {
    let mut outline = Outline { title: None, outside: Vec::new(), entries: Vec::new() };
    let mut at = 0;
    while at < page.rows.len() {
        let Some((level, content)) = part_heading(page, at) else {
            warn_of_phases_within(page, at..at + 1, errors);
            outline.outside.push(at);
            at += 1;
            continue;
        };
        let end = (at + 1..page.rows.len())
            .find(|at| part_heading(page, *at).is_some())
            .unwrap_or(page.rows.len());
        let text = &page.rows[at].text[content.clone()];
        let rows = at + 1..end;
        match heading(text) {
            Heading::Phase { number, name } => {
                warn_of_phases_within(page, rows.clone(), errors);
                let place = page.place(at, &content);
                let link = file_link(page, at, &content);
                let name = shown_name(&name);
                let (manner, before) = (SectionRules::SECTION, heading_for_all(page, end));
                outline.entries.push(PhaseEntry {
                    name,
                    number,
                    place,
                    link,
                    rows,
                    manner,
                    before,
                });
            }
            Heading::Nameless => {
                let message = "the phase has no name".to_owned();
                let hint = "write `## Phase: NAME`";
                errors.push(page.place_of_row(at).error(message, hint));
            }
            Heading::Near(meant) => {
                let message = format!("the heading `{}` is not that of a phase", printable(text));
                let hint = format!("did you mean `## {meant}`? If not, give it other words");
                errors.push(page.place(at, &content).error(message, hint));
            }
            Heading::Other if level == 1 && outline.title.is_none() => {
                outline.title = Some(shown_name(text)).filter(|title| !title.is_empty());
                warn_of_phases_within(page, rows.clone(), errors);
                outline.outside.extend(rows);
            }
            Heading::Other if is_phases_heading(text) && has_file_links(page, rows.clone()) => {
                list(page, rows, &mut outline, errors);
            }
            Heading::Other => {
                warn_of_phases_within(page, rows, errors);
                outline.outside.extend(at..end);
            }
        }
        at = end;
    }
    warn_of_keys_outside(page, &outline.outside, errors);
    outline
}

/// A heading that can begin a part of a plan.
fn part_heading(page: &MarkdownPage<'_>, at: usize) -> Option<(usize, Range<usize>)> {
    match &page.rows.get(at)?.kind {
        LineKind::Heading { level, content } if *level <= 2 => Some((*level, content.clone())),
        _ => None,
    }
}

/// What a heading says that is not about a phase.
fn heading_for_all(page: &MarkdownPage<'_>, at: usize) -> Option<String> {
    let (_, content) = part_heading(page, at)?;
    let text = &page.rows[at].text[content];
    let is_for_all = heading(text) == Heading::Other && !is_phases_heading(text);
    is_for_all.then(|| text.to_owned())
}

/// What a heading without its signs is: `Phase: NAME`, `Phase 2: NAME`, `[Phase 2: NAME](FILE.md)`.
pub(super) fn heading(text: &str) -> Heading {
    let text = &text[bare(text)];
    let text = match link(text).filter(|link| link.span == (0..text.len())) {
        Some(link) => &text[link.text],
        None => text,
    };
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    if !word.eq_ignore_ascii_case("phase") {
        let rest = after.trim_start().trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_near = nearest(word, ["phase"]).is_some() && word.len() > 3;
        return match rest.trim_start().strip_prefix(':').map(str::trim) {
            Some(name) if is_near && !name.is_empty() => {
                Heading::Near(format!("Phase: {}", printable(name)))
            }
            _ => Heading::Other,
        };
    }
    let after = after.trim_start();
    let end = after.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(after.len());
    let number = after[..end].trim_end_matches('.');
    let is_number = !number.is_empty() && !number.starts_with('.');
    let (number, rest) = match is_number {
        true => (Some(number.to_owned()), after[number.len()..].trim_start_matches('.').trim()),
        false => (None, after),
    };
    let separated = rest.strip_prefix([':', '-', '–', '—', ')']).map(str::trim);
    match (number, separated.unwrap_or(rest)) {
        (Some(number), "") => {
            Heading::Phase { name: format!("Phase {number}"), number: Some(number) }
        }
        (None, "") => Heading::Nameless,
        (None, name) if separated.is_none() => Heading::Near(format!("Phase: {}", printable(name))),
        (number, name) => Heading::Phase { number, name: name.to_owned() },
    }
}

fn is_phases_heading(text: &str) -> bool {
    let text = text[bare(text)].trim_end_matches(':');
    text.eq_ignore_ascii_case("phases")
}

/// A link to a file in a part of a line.
fn file_link(
    page: &MarkdownPage<'_>,
    at: usize,
    part: &Range<usize>,
) -> Option<(String, SourcePosition)> {
    let text = &page.rows[at].text[part.clone()];
    let found = link(text)?;
    let target = part.start + found.target.start..part.start + found.target.end;
    Some((text[found.target].to_owned(), page.place(at, &target)))
}

/// The part of a line that can be an entry of a list of phases.
fn entry_part(page: &MarkdownPage<'_>, at: usize) -> Option<Range<usize>> {
    let row = &page.rows[at];
    match &row.kind {
        LineKind::Heading { content, .. } => Some(content.clone()),
        LineKind::Text => bullet(row.text).map(|bullet| bullet.content..row.text.len()),
        _ => None,
    }
}

fn link_of(page: &MarkdownPage<'_>, at: usize) -> Option<Link> {
    entry_part(page, at).and_then(|part| link(&page.rows[at].text[part]))
}

/// Whether a list has files; one of links within the page is a table of contents.
fn has_file_links(page: &MarkdownPage<'_>, mut rows: Range<usize>) -> bool {
    rows.any(|at| {
        entry_part(page, at).is_some_and(|part| {
            let text = &page.rows[at].text[part];
            link(text).is_some_and(|link| !text[link.target].starts_with('#'))
        })
    })
}

/// Reads a list of phases that stand in files of their own: items, or headings with something below them.
fn list(
    page: &MarkdownPage<'_>,
    rows: Range<usize>,
    outline: &mut Outline,
    errors: &mut Vec<PlanError>,
) {
    let is_heading = |at: &usize| matches!(page.rows[*at].kind, LineKind::Heading { .. });
    let has_headings = rows.clone().any(|at| is_heading(&at) && link_of(page, at).is_some());
    let item_indent = |at: usize| match page.rows[at].kind {
        LineKind::Text => bullet(page.rows[at].text).map(|bullet| bullet.indent),
        _ => None,
    };
    let top = rows.clone().find_map(item_indent).unwrap_or(0);
    let is_entry = |at: usize| match has_headings {
        true => is_heading(&at) && link_of(page, at).is_some(),
        false => item_indent(at).is_some_and(|indent| indent <= top),
    };
    // Behind an item, a paragraph that is not further in belongs to all.
    let ends = |at: usize| {
        let row = &page.rows[at];
        let is_apart = row.kind == LineKind::Text
            && page.rows[at - 1].kind == LineKind::Blank
            && item_indent(at).is_none()
            && indent(row.text) <= top;
        !has_headings && (is_heading(&at) || is_apart)
    };
    let mut at = rows.start;
    while at < rows.end {
        if !is_entry(at) {
            outline.outside.push(at);
            at += 1;
            continue;
        }
        let next = |at: &usize| is_entry(*at) || ends(*at);
        let end = (at + 1..rows.end).find(next).unwrap_or(rows.end);
        let manner = if has_headings { SectionRules::SECTION } else { SectionRules::ITEM };
        match listed(page, at, at + 1..end, manner) {
            Some(entry) => outline.entries.push(entry),
            None => {
                let message = "this item of the list of phases has no link".to_owned();
                let hint = "write `[NAME](FILE.md)`, or describe the phase below `## Phase: NAME`";
                errors.push(page.place_of_row(at).error(message, hint));
            }
        }
        at = end;
    }
}

fn listed(
    page: &MarkdownPage<'_>,
    at: usize,
    rows: Range<usize>,
    manner: SectionRules,
) -> Option<PhaseEntry> {
    let part = entry_part(page, at)?;
    let text = &page.rows[at].text[part.clone()];
    let found = link(text)?;
    let shown = &text[found.text.clone()];
    let (name, number) = match heading(shown) {
        Heading::Phase { number, name } => (shown_name(&name), number),
        _ => (shown_name(shown), None),
    };
    let place = page.place(at, &(part.start + found.span.start..part.start + found.span.end));
    Some(PhaseEntry {
        name,
        number,
        place,
        link: file_link(page, at, &part),
        rows,
        manner,
        before: None,
    })
}

/// A heading of a lower level is part of a task, though it may have been meant as a phase.
fn warn_of_phases_within(page: &MarkdownPage<'_>, rows: Range<usize>, errors: &mut Vec<PlanError>) {
    for at in rows {
        let LineKind::Heading { level, content } = &page.rows[at].kind else { continue };
        let text = &page.rows[at].text[content.clone()];
        if text.contains(':') && matches!(heading(text), Heading::Phase { .. }) {
            let sign = "#".repeat(*level);
            let shown = printable(text);
            let message = format!("`{sign} {shown}` begins no phase: it is of a lower level");
            let hint = format!("write `## {shown}` if it is one");
            errors.push(page.place_of_row(at).warning(message, hint));
        }
    }
}

/// A key that is outside of all phases says nothing.
fn warn_of_keys_outside(page: &MarkdownPage<'_>, rows: &[usize], errors: &mut Vec<PlanError>) {
    for &at in rows {
        let row = &page.rows[at];
        let is_fresh = at == 0 || page.rows[at - 1].kind != LineKind::Text;
        if row.kind != LineKind::Text || !(is_fresh || bullet(row.text).is_some()) {
            continue;
        }
        if let Some(KeyMatch::Key(line)) = look(row.text, SectionRules::SECTION.indent_max) {
            let message = format!("`{}` stands outside of all phases", line.key.name());
            let hint = "write it below each phase that it is for";
            errors.push(page.place(at, &line.word).warning(message, hint));
        }
    }
}
