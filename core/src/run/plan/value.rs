//! Parses the values of keys: names, commands, patterns, limits. Driven by `validate.rs`. Never looks at other lines.

use std::time::Duration;

use super::keys::{KeyValue, ValueForm};
use super::markdown::{bare, codes, link};
use super::{Gate, PlanError};
use crate::duration::parse_duration;
use crate::limits::{
    CONFIG_DURATION_MAX, PLAN_COMMAND_BYTES_MAX, PLAN_DOLLARS_MAX, PLAN_NAME_CHARS_MAX,
    PLAN_TOKENS_MAX,
};
use crate::text::printable;

/// Whether a value says that there is nothing.
pub(super) fn is_none(text: &str) -> bool {
    let text = text[bare(text)].trim_end_matches('.');
    ["none", "nothing", "-", "–", "—"].iter().any(|none| text.eq_ignore_ascii_case(none))
}

/// The commands of a value.
pub(super) fn commands(value: &KeyValue) -> Result<Vec<Gate>, Box<PlanError>> {
    let text = value.text.trim();
    let mut gates = Vec::new();
    if let Some((name, command)) = named_item(value) {
        gates.push(Gate { name, command, time_max: None });
    } else if text.starts_with('`') && value.form != ValueForm::Script {
        let Some(codes) = codes(text) else {
            let hint = "write the command alone; what it is for can stand in the task";
            return Err(Box::new(value.place.error("there is text beside the command", hint)));
        };
        gates.extend(codes.into_iter().map(|code| unnamed(code.trim())));
    } else {
        gates.push(unnamed(text));
    }
    for gate in &gates {
        if gate.command.is_empty() {
            return Err(Box::new(value.place.error("the command is empty", "write a command")));
        }
        if gate.command.len() > PLAN_COMMAND_BYTES_MAX {
            let message = format!("the command is longer than {PLAN_COMMAND_BYTES_MAX} bytes");
            let hint = "put it into a script, and run that";
            return Err(Box::new(value.place.error(message, hint)));
        }
    }
    Ok(gates)
}

fn unnamed(command: &str) -> Gate {
    Gate { name: command.to_owned(), command: command.to_owned(), time_max: None }
}

/// An item such as ``lint: `cargo clippy` ``.
fn named_item(value: &KeyValue) -> Option<(String, String)> {
    if value.form != ValueForm::Item {
        return None;
    }
    let (name, rest) = value.text.split_once(':')?;
    let name = &name[bare(name)];
    if name.is_empty() || name.contains('`') || name.chars().count() > PLAN_NAME_CHARS_MAX {
        return None;
    }
    match codes(rest)?.as_slice() {
        [code] => Some((name.to_owned(), code.trim().to_owned())),
        _ => None,
    }
}

/// What stands in the parentheses of a gate: a name, how long it may take, or both.
pub(super) fn label(text: &str) -> Result<(Option<String>, Option<Duration>), String> {
    let (mut name, mut time_max) = (None, None);
    for part in text.split(',').map(|part| &part[bare(part)]) {
        if let Ok(duration) = duration(part) {
            if time_max.replace(duration).is_some() {
                return Err("there are two times in the parentheses".to_owned());
            }
        } else if part.is_empty() {
            return Err("a part of what is in the parentheses is empty".to_owned());
        } else if part.chars().count() > PLAN_NAME_CHARS_MAX {
            return Err(format!("the name is longer than {PLAN_NAME_CHARS_MAX} characters"));
        } else if name.replace(part.to_owned()).is_some() {
            return Err("there are two names in the parentheses".to_owned());
        }
    }
    Ok((name, time_max))
}

/// How long something may take: `30m`, `1h30m`, `2 hours`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let written = &text[bare(text)];
    let mut compact = String::new();
    let mut rest = written;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        compact.extend(rest[..end].chars().filter(|c| !c.is_whitespace()));
        let after = &rest[end..];
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let word = after[..end].to_ascii_lowercase();
        compact.push_str(match word.as_str() {
            "sec" | "secs" | "second" | "seconds" => "s",
            "min" | "mins" | "minute" | "minutes" => "m",
            "hr" | "hrs" | "hour" | "hours" => "h",
            "day" | "days" => "d",
            other => other,
        });
        rest = &after[end..];
    }
    let shown = printable(written);
    match parse_duration(&compact) {
        Ok(time) if time.is_zero() => Err(format!("`{shown}` is no time at all")),
        Ok(time) if time > CONFIG_DURATION_MAX => Err(format!("`{shown}` is more than 365d")),
        Ok(time) => Ok(time),
        Err(_) => Err(format!("`{shown}` is not a duration")),
    }
}

/// What something may cost: `$5`, `0.50 USD`, `20`.
pub(super) fn dollars(text: &str) -> Result<f64, String> {
    let written = text[bare(text)].trim();
    let shown = printable(written);
    let mut number = written;
    for sign in ["US$", "$", "USD"] {
        number = number.strip_prefix(sign).unwrap_or(number).trim();
    }
    for sign in ["US dollars", "dollars", "USD", "US$", "$"] {
        number = number.strip_suffix(sign).unwrap_or(number).trim();
    }
    match decimal(number) {
        None => Err(format!("`{shown}` is not an amount of US dollars")),
        Some(amount) if amount <= 0.0 => Err(format!("`{shown}` is no money at all")),
        Some(amount) if amount > PLAN_DOLLARS_MAX => {
            Err(format!("`{shown}` is more than ${PLAN_DOLLARS_MAX}"))
        }
        Some(amount) => Ok(amount),
    }
}

/// How many tokens: `2M`, `500k`, `200,000 tokens`.
pub(super) fn tokens(text: &str) -> Result<u64, String> {
    let written = text[bare(text)].trim();
    let shown = printable(written);
    let lower = written.to_ascii_lowercase();
    let number = lower.strip_suffix("tokens").unwrap_or(&lower).trim();
    let units = [
        ("thousand", 1e3),
        ("million", 1e6),
        ("billion", 1e9),
        ("k", 1e3),
        ("m", 1e6),
        ("b", 1e9),
        ("g", 1e9),
    ];
    let unit = units.iter().find_map(|(unit, size)| Some((number.strip_suffix(unit)?, *size)));
    let (number, size) = unit.unwrap_or((number, 1.0));
    let Some(amount) = decimal(number.trim()) else {
        return Err(format!("`{shown}` is not a number of tokens"));
    };
    let count = (amount * size).round();
    if count < 1.0 {
        return Err(format!("`{shown}` is less than one token"));
    }
    if count > PLAN_TOKENS_MAX as f64 {
        return Err(format!("`{shown}` is more than {PLAN_TOKENS_MAX} tokens"));
    }
    Ok(count as u64)
}

/// A number such as `5`, `0.5`, `200,000` or `200_000`.
fn decimal(text: &str) -> Option<f64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let mut groups = whole.split([',', '_']);
    let first = groups.next()?;
    let is_grouped = whole.len() > first.len();
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // `1,5` is one and a half to many: a comma separates thousands only.
    let is_right = digits(first)
        && digits(fraction)
        && (!is_grouped || first.len() <= 3)
        && groups.all(|group| digits(group) && group.len() == 3);
    if !is_right {
        return None;
    }
    let plain: String = whole.chars().filter(char::is_ascii_digit).collect();
    format!("{plain}.{fraction}").parse().ok().filter(|number: &f64| number.is_finite())
}

/// The patterns of a value.
pub(super) fn patterns(value: &KeyValue) -> Result<Vec<String>, Box<PlanError>> {
    let all_codes = codes(&value.text);
    let are_codes = all_codes.is_some();
    let mut patterns = Vec::new();
    for part in all_codes.unwrap_or_else(|| outside_braces(&value.text)) {
        let (pattern, is_code) = match codes(part).as_deref() {
            Some([code]) if !are_codes => (code.trim(), true),
            _ => (part.trim(), are_codes),
        };
        let shown = printable(pattern);
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let is_outside = pattern.starts_with(['/', '\\', '~'])
            || pattern.split(['/', '\\']).any(|part| part == "..")
            || pattern.as_bytes().get(1) == Some(&b':');
        let wrong = if pattern.is_empty() {
            Some(("a pattern is empty".to_owned(), "for example `- Files: src/**, docs/`"))
        } else if is_outside {
            let message = format!("`{shown}` leads out of the folder of the run");
            Some((message, "patterns count from the folder of the run, for example `src/**`"))
        } else if !is_code && pattern.contains(char::is_whitespace) {
            let message = format!("the pattern `{shown}` has a space in it");
            Some((message, "put commas between patterns, and backticks around one with a space"))
        } else {
            None
        };
        if let Some((message, hint)) = wrong {
            return Err(Box::new(value.place.error(message, hint)));
        }
        patterns.push(pattern.to_owned());
    }
    Ok(patterns)
}

/// The parts between commas that are in no braces.
fn outside_braces(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_usize, 0);
    let text = text.trim().trim_end_matches(',');
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// A name as it is compared: without marks, links and letter case, with single spaces.
pub(super) fn folded(text: &str) -> String {
    shown_name(text).to_lowercase()
}

/// A name without marks around it, with single spaces; of a link, what is shown.
pub(super) fn shown_name(text: &str) -> String {
    let text = &text[bare(text)];
    let text = match link(text) {
        Some(link) if link.span == (0..text.len()) => &text[link.text],
        _ => text,
    };
    let text = &text[bare(text)];
    text.trim_matches(['"', '“', '”']).split_whitespace().collect::<Vec<_>>().join(" ")
}
