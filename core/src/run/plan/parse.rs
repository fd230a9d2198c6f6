//! Reads texts into a plan, or finds every mistake in them: first the sections of a file (title, phases, linked files),
//! then each phase. Driven by the caller with the files. Never opens one.

use std::collections::BTreeMap;
use std::ops::Range;

use super::keys::{KeyMatch, SectionRules, look, read_body};
use super::markdown::{LineKind, Link, MarkdownPage, bare, bullet, indent, link, text_of};
use super::validate::{PhaseDraft, phases};
use super::value::shown_name;
use super::{Plan, PlanError, Severity, SourcePosition};
use crate::limits::{PLAN_ERRORS_MAX, PLAN_PHASES_MAX, PLAN_TASK_BYTES_MAX};
use crate::report::Origin;
use crate::suggest::nearest;
use crate::text::{harmless, percent_decoded, printable};

/// The file of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanFile<'a> {
    /// Its path, as it is named in errors.
    pub path: &'a str,
    /// What is in it. Of a larger file, one byte more than
    /// [`PLAN_FILE_BYTES_MAX`](crate::limits::PLAN_FILE_BYTES_MAX) is enough.
    pub bytes: &'a [u8],
}

/// A file that a plan links.
#[derive(Clone, Debug)]
pub struct LinkedFile {
    /// Its path, as [`links`] gives it.
    pub path: String,
    /// What is in it, or why it cannot be read.
    pub content: Result<Vec<u8>, String>,
}

/// A plan that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedPlan {
    /// The plan.
    pub plan: Plan,
    /// What looks like a mistake, but stops nothing.
    pub warnings: Vec<PlanError>,
}

/// The files that a plan needs beside its own, as paths from the folder that it is in, and none outside of it.
pub fn links(source: &PlanFile<'_>) -> Vec<String> {
    let Ok(text) = text_of(source.path, source.bytes) else { return Vec::new() };
    let page = MarkdownPage::new(source.path, text);
    let entries = page.outline(&mut Vec::new()).entries;
    let mut paths: Vec<String> = Vec::new();
    for (target, _) in entries.into_iter().take(PLAN_PHASES_MAX).filter_map(|entry| entry.link) {
        if let Ok(path) = inside(&target)
            && !paths.contains(&path)
        {
            paths.push(path);
        }
    }
    paths
}

/// Reads a plan, given the files that it links.
///
/// On failure, all errors and warnings are returned, in the order of the files and lines.
pub fn read(source: &PlanFile<'_>, linked: &[LinkedFile]) -> Result<CheckedPlan, Vec<PlanError>> {
    let mut errors = Vec::new();
    let plan = make(source, linked, &mut errors);
    let mut paths = vec![harmless(source.path)];
    paths.extend(linked.iter().map(|file| harmless(&beside(source.path, &file.path))));
    errors.sort_by_cached_key(|error| match &error.origin {
        Origin::File { path, line, column } => {
            (paths.iter().position(|other| other == path), *line, *column)
        }
        _ => (None, 0, 0),
    });
    let is_error = |error: &PlanError| error.severity == Severity::Error;
    let is_wrong = errors.iter().any(is_error);
    cut(&mut errors);
    errors.iter_mut().for_each(PlanError::hide_secret);
    match plan {
        Some(plan) if !is_wrong => Ok(CheckedPlan { plan, warnings: errors }),
        _ => Err(errors),
    }
}

/// Cuts the list at its bound, errors before warnings.
fn cut(errors: &mut Vec<PlanError>) {
    if errors.len() <= PLAN_ERRORS_MAX {
        return;
    }
    errors.sort_by_key(|error| error.severity == Severity::Warning);
    let more = errors.len() - PLAN_ERRORS_MAX;
    errors.truncate(PLAN_ERRORS_MAX);
    if let Some(last) = errors.last().cloned() {
        let message = format!("there are {more} more");
        errors.push(PlanError { message, excerpt: None, hint: None, ..last });
    }
}

fn make(source: &PlanFile<'_>, linked: &[LinkedFile], errors: &mut Vec<PlanError>) -> Option<Plan> {
    let text = text_of(source.path, source.bytes).map_err(|error| errors.push(*error)).ok()?;
    let page = MarkdownPage::new(source.path, text);
    errors.extend(page.check());
    let outline = page.outline(errors);
    // Another error says why there is none, where a heading is almost right.
    let has_errors = errors.iter().any(|error| error.severity == Severity::Error);
    if outline.entries.is_empty() && !has_errors {
        let message = "the plan has no phase";
        let hint = "write `## Phase: NAME` and below it what is to be done; `afresh plan new` writes an example";
        errors.push(page.place_of_row(0).error(message, hint));
    }
    let files = linked.iter().map(|file| (file.path.as_str(), &file.content)).collect();
    let mut reader =
        PlanReader { page: &page, plan_path: source.path, files, seen: BTreeMap::new(), errors };
    let mut drafts = Vec::new();
    for entry in outline.entries {
        if drafts.len() == PLAN_PHASES_MAX {
            let message = format!("the plan has more than {PLAN_PHASES_MAX} phases");
            reader.errors.push(entry.draft.place.error(message, "split it into several plans"));
            break;
        }
        drafts.extend(reader.phase(entry));
    }
    let phases = phases(drafts, errors);
    let mut kept = outline.outside;
    kept.retain(|at| page.rows[*at].kind != LineKind::Comment);
    let preface = page.prose(&kept);
    if preface.len() > PLAN_TASK_BYTES_MAX {
        let kib = PLAN_TASK_BYTES_MAX / 1024;
        let message = format!("what is for all phases is longer than {kib}KiB");
        let hint = "shorten it, or name a file that agents can read";
        errors.push(page.place_of_row(0).error(message, hint));
    }
    Some(Plan { title: outline.title.unwrap_or_else(|| stem(source.path)), preface, phases })
}

struct PlanReader<'a> {
    page: &'a MarkdownPage<'a>,
    plan_path: &'a str,
    files: BTreeMap<&'a str, &'a Result<Vec<u8>, String>>,
    /// The files that were linked, and where.
    seen: BTreeMap<String, String>,
    errors: &'a mut Vec<PlanError>,
}

impl PlanReader<'_> {
    /// Reads a phase; none where its file is that of another one.
    fn phase(&mut self, entry: PhaseEntry) -> Option<PhaseDraft> {
        let mut draft = entry.draft;
        let body = read_body(self.page, entry.rows, entry.manner, self.errors);
        draft.add(&body.prose, body.notes, self.errors);
        let Some((target, place)) = entry.link else { return Some(draft) };
        // Until its file is read, nothing can be said about what is missing.
        draft.is_unread = true;
        let path = match inside(&target) {
            Ok(path) => path,
            Err(why) => {
                let message = format!("`{}` {}", printable(&target), why);
                let hint = "link a file in the folder of the plan, such as `phases/one.md`";
                self.errors.push(place.error(message, hint));
                return Some(draft);
            }
        };
        if let Some(first) = self.seen.insert(path.clone(), place.to_string()) {
            let message = format!("`{}` is linked twice", printable(&path));
            let hint = format!("the first link is at {first}: each file is one phase");
            self.errors.push(place.error(message, hint));
            return None;
        }
        let full = beside(self.plan_path, &path);
        match self.files.get(path.as_str()) {
            Some(Ok(bytes)) => {
                self.file(&full, bytes, &mut draft);
                if draft.name.is_empty() {
                    let hint = "write `[NAME](FILE.md)`, or begin the file with `# NAME`";
                    self.errors.push(draft.place.error("the phase has no name", hint));
                }
            }
            unread => {
                let why = match unread {
                    Some(Err(why)) => harmless(why),
                    _ => "it was not looked at".to_owned(),
                };
                let message = format!("cannot read `{}`: {why}", printable(&full));
                self.errors.push(place.error(message, "write the file, or correct the link"));
            }
        }
        Some(draft)
    }

    /// Reads a phase that is a file of its own: a title, and all else.
    fn file(&mut self, path: &str, bytes: &[u8], draft: &mut PhaseDraft) {
        let text = match text_of(path, bytes) {
            Ok(text) => text,
            Err(error) => return self.errors.push(*error),
        };
        let page = MarkdownPage::new(path, text);
        self.errors.extend(page.check());
        let is_said =
            |at: &usize| !matches!(page.rows[*at].kind, LineKind::Blank | LineKind::Comment);
        let mut from = (0..page.rows.len()).find(is_said).unwrap_or(0);
        let first = page.rows.get(from).map(|row| (&row.kind, row.text));
        if let Some((LineKind::Heading { level: 1, content }, text)) = first {
            let (name, number) = match heading(&text[content.clone()]) {
                Heading::Phase { number, name } => (name, number),
                _ => (text[content.clone()].to_owned(), None),
            };
            let name = shown_name(&name);
            if !name.is_empty() {
                draft.alias = Some(std::mem::replace(&mut draft.name, name));
                draft.place = page.place(from, content);
            }
            draft.number = draft.number.take().or(number);
            from += 1;
        }
        for at in from..page.rows.len() {
            let row = &page.rows[at];
            if let LineKind::Heading { level: 1 | 2, content } = &row.kind
                && let Heading::Phase { .. } = heading(&row.text[content.clone()])
            {
                let message = "a phase begins within the file of a phase";
                let hint = "each file that is linked is one phase: move it, and link both";
                self.errors.push(page.place(at, content).error(message, hint));
            }
        }
        draft.is_unread = false;
        let body = read_body(&page, from..page.rows.len(), SectionRules::FILE, self.errors);
        draft.add(&body.prose, body.notes, self.errors);
    }
}

/// The path that a link means, from the folder of the plan.
fn inside(target: &str) -> Result<String, &'static str> {
    const NO_FILE: &str = "is no file";
    const OUTSIDE: &str = "leads out of the folder of the plan";
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let path = percent_decoded(path).unwrap_or_else(|| path.to_owned()).replace('\\', "/");
    let has_scheme = path.split('/').next().is_some_and(|first| first.contains(':'));
    if path.is_empty() || path.ends_with('/') || path.chars().any(char::is_control) {
        return Err(NO_FILE);
    }
    if has_scheme {
        let is_drive = path.as_bytes().get(1) == Some(&b':');
        return Err(if is_drive { OUTSIDE } else { NO_FILE });
    }
    if path.starts_with('/') {
        return Err(OUTSIDE);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop().ok_or(OUTSIDE)?),
            part => parts.push(part),
        }
    }
    if parts.is_empty() { Err(NO_FILE) } else { Ok(parts.join("/")) }
}

/// The path of a file in the folder that another one is in.
fn beside(plan: &str, path: &str) -> String {
    match plan.rfind(['/', '\\']) {
        Some(at) => format!("{}{path}", &plan[..=at]),
        None => path.to_owned(),
    }
}

/// The name of a file without folder and ending.
fn stem(path: &str) -> String {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    harmless(stem)
}

/// The parts of a plan.
#[derive(Default)]
struct Outline {
    title: Option<String>,
    /// The lines that are outside of all phases.
    outside: Vec<usize>,
    entries: Vec<PhaseEntry>,
}

/// A phase in the file of the plan.
struct PhaseEntry {
    /// What its heading says.
    draft: PhaseDraft,
    /// Where its file is, as it is written.
    link: Option<(String, SourcePosition)>,
    /// The lines that belong to it.
    rows: Range<usize>,
    manner: SectionRules,
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

impl MarkdownPage<'_> {
    /// Finds the phases of a plan.
    fn outline(&self, errors: &mut Vec<PlanError>) -> Outline {
        let mut outline = Outline::default();
        let mut at = 0;
        while at < self.rows.len() {
            let Some((level, content)) = self.part_heading(at) else {
                self.warn_of_phases_within(at..at + 1, errors);
                outline.outside.push(at);
                at += 1;
                continue;
            };
            let end = (at + 1..self.rows.len())
                .find(|at| self.part_heading(*at).is_some())
                .unwrap_or(self.rows.len());
            let text = &self.rows[at].text[content.clone()];
            let rows = at + 1..end;
            match heading(text) {
                Heading::Phase { number, name } => {
                    self.warn_of_phases_within(rows.clone(), errors);
                    let (name, place) = (shown_name(&name), self.place(at, &content));
                    let before = self.heading_for_all(end);
                    let draft = PhaseDraft { name, number, place, before, ..PhaseDraft::default() };
                    let link = self.file_link(at, &content);
                    outline.entries.push(PhaseEntry {
                        draft,
                        link,
                        rows,
                        manner: SectionRules::SECTION,
                    });
                }
                Heading::Nameless => {
                    let place = self.place_of_row(at);
                    errors.push(place.error("the phase has no name", "write `## Phase: NAME`"));
                }
                Heading::Near(meant) => {
                    let message =
                        format!("the heading `{}` is not that of a phase", printable(text));
                    let hint = format!("did you mean `## {meant}`? If not, give it other words");
                    errors.push(self.place(at, &content).error(message, hint));
                }
                Heading::Other if level == 1 && outline.title.is_none() => {
                    outline.title = Some(shown_name(text)).filter(|title| !title.is_empty());
                    self.warn_of_phases_within(rows.clone(), errors);
                    outline.outside.extend(rows);
                }
                Heading::Other if is_phases_heading(text) && self.has_file_links(rows.clone()) => {
                    self.list(rows, &mut outline, errors);
                }
                Heading::Other => {
                    self.warn_of_phases_within(rows, errors);
                    outline.outside.extend(at..end);
                }
            }
            at = end;
        }
        self.warn_of_keys_outside(&outline.outside, errors);
        outline
    }

    /// A heading that can begin a part of a plan.
    fn part_heading(&self, at: usize) -> Option<(usize, Range<usize>)> {
        match &self.rows.get(at)?.kind {
            LineKind::Heading { level, content } if *level <= 2 => Some((*level, content.clone())),
            _ => None,
        }
    }

    /// What a heading says that is not about a phase.
    fn heading_for_all(&self, at: usize) -> Option<String> {
        let (_, content) = self.part_heading(at)?;
        let text = &self.rows[at].text[content];
        let is_for_all = heading(text) == Heading::Other && !is_phases_heading(text);
        is_for_all.then(|| text.to_owned())
    }

    /// A link to a file in a part of a line.
    fn file_link(&self, at: usize, part: &Range<usize>) -> Option<(String, SourcePosition)> {
        let text = &self.rows[at].text[part.clone()];
        let found = link(text)?;
        let target = part.start + found.target.start..part.start + found.target.end;
        Some((text[found.target].to_owned(), self.place(at, &target)))
    }

    /// The part of a line that can be an entry of a list of phases.
    fn entry_part(&self, at: usize) -> Option<Range<usize>> {
        let row = &self.rows[at];
        match &row.kind {
            LineKind::Heading { content, .. } => Some(content.clone()),
            LineKind::Text => bullet(row.text).map(|bullet| bullet.content..row.text.len()),
            _ => None,
        }
    }

    fn link_of(&self, at: usize) -> Option<Link> {
        self.entry_part(at).and_then(|part| link(&self.rows[at].text[part]))
    }

    /// Whether a list has files; one of links within the page is a table of contents.
    fn has_file_links(&self, mut rows: Range<usize>) -> bool {
        rows.any(|at| {
            self.entry_part(at).is_some_and(|part| {
                let text = &self.rows[at].text[part];
                link(text).is_some_and(|link| !text[link.target].starts_with('#'))
            })
        })
    }

    /// Reads a list of phases that stand in files of their own: items, or headings with something below them.
    fn list(&self, rows: Range<usize>, outline: &mut Outline, errors: &mut Vec<PlanError>) {
        let is_heading = |at: &usize| matches!(self.rows[*at].kind, LineKind::Heading { .. });
        let has_headings = rows.clone().any(|at| is_heading(&at) && self.link_of(at).is_some());
        let item_indent = |at: usize| match self.rows[at].kind {
            LineKind::Text => bullet(self.rows[at].text).map(|bullet| bullet.indent),
            _ => None,
        };
        let top = rows.clone().find_map(item_indent).unwrap_or(0);
        let is_entry = |at: usize| match has_headings {
            true => is_heading(&at) && self.link_of(at).is_some(),
            false => item_indent(at).is_some_and(|indent| indent <= top),
        };
        // Behind an item, a paragraph that is not further in belongs to all.
        let ends = |at: usize| {
            let row = &self.rows[at];
            let is_apart = row.kind == LineKind::Text
                && self.rows[at - 1].kind == LineKind::Blank
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
            match self.listed(at, at + 1..end, manner) {
                Some(entry) => outline.entries.push(entry),
                None => {
                    let message = "this item of the list of phases has no link";
                    let hint =
                        "write `[NAME](FILE.md)`, or describe the phase below `## Phase: NAME`";
                    errors.push(self.place_of_row(at).error(message, hint));
                }
            }
            at = end;
        }
    }

    fn listed(&self, at: usize, rows: Range<usize>, manner: SectionRules) -> Option<PhaseEntry> {
        let part = self.entry_part(at)?;
        let text = &self.rows[at].text[part.clone()];
        let found = link(text)?;
        let shown = &text[found.text.clone()];
        let (name, number) = match heading(shown) {
            Heading::Phase { number, name } => (shown_name(&name), number),
            _ => (shown_name(shown), None),
        };
        let place = self.place(at, &(part.start + found.span.start..part.start + found.span.end));
        let draft = PhaseDraft { name, number, place, ..PhaseDraft::default() };
        Some(PhaseEntry { draft, link: self.file_link(at, &part), rows, manner })
    }

    /// A heading of a lower level is part of a task, though it may have been meant as a phase.
    fn warn_of_phases_within(&self, rows: Range<usize>, errors: &mut Vec<PlanError>) {
        for at in rows {
            let LineKind::Heading { level, content } = &self.rows[at].kind else { continue };
            let text = &self.rows[at].text[content.clone()];
            if text.contains(':') && matches!(heading(text), Heading::Phase { .. }) {
                let sign = "#".repeat(*level);
                let shown = printable(text);
                let message = format!("`{sign} {shown}` begins no phase: it is of a lower level");
                let hint = format!("write `## {shown}` if it is one");
                errors.push(self.place_of_row(at).warning(message, hint));
            }
        }
    }

    /// A key that is outside of all phases says nothing.
    fn warn_of_keys_outside(&self, rows: &[usize], errors: &mut Vec<PlanError>) {
        for &at in rows {
            let row = &self.rows[at];
            let is_fresh = at == 0 || self.rows[at - 1].kind != LineKind::Text;
            if row.kind != LineKind::Text || !(is_fresh || bullet(row.text).is_some()) {
                continue;
            }
            if let Some(KeyMatch::Key(line)) = look(row.text, SectionRules::SECTION.indent_max) {
                let message = format!("`{}` stands outside of all phases", line.key.name());
                let hint = "write it below each phase that it is for";
                errors.push(self.place(at, &line.word).warning(message, hint));
            }
        }
    }
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
