//! Reads texts into a plan, or finds every mistake in them. Driven by the caller with the files. Never opens one.

use std::collections::BTreeMap;

use super::body::{self, SectionRules};
use super::check::{self, PhaseDraft};
use super::error::{PlanError, Severity};
use super::outline::{Heading, PhaseEntry, heading, outline};
use super::page::{LineKind, MarkdownPage, text_of};
use super::value::shown_name;
use super::{Phase, Plan};
use crate::limits::{PLAN_ERRORS_MAX, PLAN_PHASES_MAX, PLAN_TASK_BYTES_MAX};
use crate::report::Origin;
use crate::text::{harmless, printable};

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
    let entries = outline(&page, &mut Vec::new()).entries;
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
    let outline = outline(&page, errors);
    // Another error says why there is none, where a heading is almost right.
    let has_errors = errors.iter().any(|error| error.severity == Severity::Error);
    if outline.entries.is_empty() && !has_errors {
        let message = "the plan has no phase".to_owned();
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
            reader.errors.push(entry.place.error(message, "split it into several plans"));
            break;
        }
        drafts.extend(reader.phase(entry));
    }
    let phases: Vec<Phase> = check::phases(drafts, errors);
    let outside: Vec<usize> = outline.outside;
    let kept: Vec<usize> =
        outside.into_iter().filter(|at| page.rows[*at].kind != LineKind::Comment).collect();
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
        let mut draft = PhaseDraft::new(entry.name, entry.number, entry.place);
        draft.before = entry.before;
        let body = body::read(self.page, entry.rows, entry.manner, self.errors);
        draft.add(&body.prose, body.notes, self.errors);
        let Some((target, place)) = entry.link else { return Some(draft) };
        // Until its file is read, nothing can be said about what is missing.
        draft.is_unread = true;
        let path = match inside(&target) {
            Ok(path) => path,
            Err(refusal) => {
                let message = format!("`{}` {}", printable(&target), refusal.why());
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
            Some(Ok(bytes)) => self.file(&full, bytes, &mut draft),
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
                let message = "a phase begins within the file of a phase".to_owned();
                let hint = "each file that is linked is one phase: move it, and link both";
                self.errors.push(page.place(at, content).error(message, hint));
            }
        }
        draft.is_unread = false;
        let body = body::read(&page, from..page.rows.len(), SectionRules::FILE, self.errors);
        draft.add(&body.prose, body.notes, self.errors);
    }
}

/// Why a link leads to no phase.
enum LinkError {
    NoFile,
    Outside,
}

impl LinkError {
    const fn why(&self) -> &'static str {
        match self {
            Self::NoFile => "is no file",
            Self::Outside => "leads out of the folder of the plan",
        }
    }
}

/// The path that a link means, from the folder of the plan.
fn inside(target: &str) -> Result<String, LinkError> {
    let path = target.split(['#', '?']).next().unwrap_or_default();
    let path = unescaped(path).replace('\\', "/");
    let has_scheme = path.split('/').next().is_some_and(|first| first.contains(':'));
    if path.is_empty() || path.ends_with('/') || path.chars().any(char::is_control) {
        return Err(LinkError::NoFile);
    }
    if has_scheme {
        let is_drive = path.as_bytes().get(1) == Some(&b':');
        return Err(if is_drive { LinkError::Outside } else { LinkError::NoFile });
    }
    if path.starts_with('/') {
        return Err(LinkError::Outside);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop().ok_or(LinkError::Outside)?),
            part => parts.push(part),
        }
    }
    if parts.is_empty() { Err(LinkError::NoFile) } else { Ok(parts.join("/")) }
}

/// A path with `%20` and the like as what they stand for.
fn unescaped(path: &str) -> String {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (bytes, mut plain) = (path.as_bytes(), Vec::new());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let pair = bytes
            .get(at + 1)
            .copied()
            .and_then(digit)
            .zip(bytes.get(at + 2).copied().and_then(digit));
        match pair.filter(|_| *byte == b'%') {
            Some((high, low)) => {
                plain.push(high * 16 + low);
                at += 3;
            }
            None => {
                plain.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).unwrap_or_else(|_| path.to_owned())
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
