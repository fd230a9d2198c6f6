//! Prints the lines of services, as text or as JSON. Driven by `afresh logs`. Never reads a log.

use std::io;

use afresh_core::control::{LogLine, LogStream};
use afresh_core::text::{harmless, harmless_but_colours};
use afresh_daemon::store::service_log::read::{LoggedLine, Query};
use serde_json::json;

use crate::output::{self, Lines, Paint};

/// A line, wherever it was.
pub(super) struct Shown {
    pub(super) time: String,
    source: LogSource,
    number: Option<u64>,
    generation: u64,
    stream: LogStream,
    /// It goes on in the next one.
    continues: bool,
    text: String,
}

/// A service: a place among those on disk, or among the others.
#[derive(Clone, Copy)]
enum LogSource {
    OnDisk(usize),
    Remembered(usize),
}

impl Shown {
    pub(super) fn remembered(at: usize, line: LogLine) -> Self {
        let LogLine { number, time, generation, stream, text } = line;
        let (source, number, continues) = (LogSource::Remembered(at), Some(number), false);
        Self { time, source, number, generation, stream, continues, text }
    }

    pub(super) fn is_wanted(&self, query: &Query) -> bool {
        query.grep.as_ref().is_none_or(|text| self.text.contains(text))
            && query.stream.is_none_or(|stream| self.stream == stream)
            && query.since.is_none_or(|since| self.time >= since.to_string())
    }
}

impl From<LoggedLine> for Shown {
    fn from(line: LoggedLine) -> Self {
        let text = line.text.strip_suffix(b"\r").unwrap_or(&line.text);
        Self {
            time: line.head.time.to_string(),
            source: LogSource::OnDisk(line.service),
            number: None,
            generation: line.head.generation,
            stream: line.head.stream,
            continues: line.head.continues,
            text: String::from_utf8_lossy(text).into_owned(),
        }
    }
}

/// Writes lines to stdout.
pub(super) struct LogPrinter {
    lines: Lines,
    paint: Paint,
    json: bool,
    on_disk: Vec<String>,
    remembered: Vec<String>,
    /// The widest name, where there are several services.
    width: usize,
}

impl LogPrinter {
    pub(super) fn new((on_disk, remembered): (Vec<String>, Vec<String>), json: bool) -> Self {
        let mut printer = Self {
            lines: Lines::new(),
            paint: Paint::stdout(),
            json,
            on_disk,
            remembered,
            width: 0,
        };
        printer.measure();
        printer
    }

    fn measure(&mut self) {
        let names = self.on_disk.iter().chain(&self.remembered);
        let widest = names.map(|name| name.chars().count()).max().unwrap_or(0);
        let several = self.on_disk.len() + self.remembered.len() > 1;
        self.width = if several { widest } else { 0 };
    }

    /// A service that came later has a name too.
    pub(super) fn learn(&mut self, service: usize, name: Option<String>) {
        if service >= self.on_disk.len() {
            self.on_disk.resize(service, String::new());
            self.on_disk.push(harmless(&name.unwrap_or_default()));
            self.measure();
        }
    }

    pub(super) fn print(&mut self, line: &Shown) -> io::Result<()> {
        let (at, name) = match line.source {
            LogSource::OnDisk(at) => (at, self.on_disk.get(at)),
            LogSource::Remembered(at) => (self.on_disk.len() + at, self.remembered.get(at)),
        };
        let name = name.map_or("", String::as_str);
        if self.json {
            let mut object = json!({
                "time": line.time, "generation": line.generation, "stream": line.stream.name(),
                "text": line.text, "service": name,
            });
            if let Some(number) = line.number {
                object["number"] = number.into();
            }
            if line.continues {
                object["continues"] = true.into();
            }
            return self.lines.write(&object.to_string());
        }
        let time = line.time.replace('T', " ").replace('Z', "");
        let label = match self.width {
            0 => String::new(),
            width => self.paint.name(at, &format!("{name:<width$} ")),
        };
        let stream = format!("{}{}", line.stream.name(), if line.continues { "+" } else { "" });
        let text = harmless_but_colours(&line.text, false);
        let text = match line.stream {
            LogStream::Afresh => self.paint.bold(&text),
            LogStream::Stdout | LogStream::Stderr => text,
        };
        let time = self.paint.dim(&format!("{time} "));
        let stream = self.paint.dim(&format!("{stream:<6} "));
        self.lines.write(&format!("{time}{label}{stream}{text}"))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()
    }

    /// Says where lines were forgotten before we could take them.
    pub(super) fn note_missed_lines(&self, missing: u64) {
        if missing > 0 {
            output::remark(&format!("[{missing} lines are missing: they came too fast]"));
        }
    }

    /// Says where files were removed before we could read them.
    pub(super) fn note_missed_files(&self, missing: u64) {
        if missing > 0 {
            output::remark(&format!(
                "[lines are missing: they came too fast, and {missing} files of them are gone]"
            ));
        }
    }
}
