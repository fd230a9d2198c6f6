//! Owns the file of `--trace FILE`: all traffic of a conversation as JSON lines, to find a fault in a client
//! or a server. A thread of its own writes them; the conversation never waits for it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use afresh_core::audit::redact::{redact_text, redact_value};
use afresh_core::id::Generation;
use afresh_core::limits::{
    TRACE_FILE_BYTES_MAX, TRACE_MESSAGE_BYTES_MAX, TRACE_QUEUE_BYTES_MAX, TRACE_QUEUE_LEN_MAX,
};
use afresh_core::time::Stamp;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::rotation::{OpenFileError, RotatingFile};
use crate::clock::now;
use crate::write_path::WritePath;

/// The peer of a message, and its direction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MessageDirection {
    FromClient,
    ToClient,
    FromServer(Generation),
    ToServer(Generation),
}

/// An open trace.
#[derive(Debug)]
pub(crate) struct Trace {
    sender: mpsc::SyncSender<TraceEntry>,
    queued: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    start: Instant,
    /// Which of several servers it is about.
    server: Option<Arc<str>>,
    /// When all is written, once nothing more comes.
    done: Option<oneshot::Receiver<()>>,
}

#[derive(Debug)]
struct TraceEntry {
    time: Stamp,
    /// Since the trace began, in microseconds.
    micros: u64,
    way: MessageDirection,
    server: Option<Arc<str>>,
    line: Vec<u8>,
    bytes: usize,
    /// Entries that were left out before this one.
    lost: u64,
}

impl Trace {
    pub(crate) fn open(
        path: &std::path::Path,
        complain: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, OpenFileError> {
        let file = RotatingFile::open(&WritePath::named(path), TRACE_FILE_BYTES_MAX)?;
        let (sender, entries) = mpsc::sync_channel(TRACE_QUEUE_LEN_MAX);
        let queued = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&queued);
        let (written, done) = oneshot::channel();
        // Without the thread nothing takes entries: they are counted as lost.
        std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                write(file, &entries, &taken, complain);
                // The receiver is gone where there was no time.
                written.send(()).ok();
            })
            .ok();
        Ok(Self {
            sender,
            queued,
            lost: Arc::default(),
            start: Instant::now(),
            server: None,
            done: Some(done),
        })
    }

    /// The same trace, for one of several servers.
    pub(crate) fn of(&self, server: &str) -> Self {
        Self {
            sender: self.sender.clone(),
            queued: Arc::clone(&self.queued),
            lost: Arc::clone(&self.lost),
            start: self.start,
            server: Some(server.into()),
            done: None,
        }
    }

    /// Waits until all is written.
    pub(crate) async fn close(self) {
        drop(self.sender);
        if let Some(done) = self.done {
            done.await.ok();
        }
    }

    /// Records a message. Never waits: what the disk does not take in time is left out, and counted.
    pub(crate) fn note(&self, way: MessageDirection, line: &[u8]) {
        let kept = &line[..line.len().min(TRACE_MESSAGE_BYTES_MAX)];
        if self.queued.load(Ordering::Relaxed) + kept.len() > TRACE_QUEUE_BYTES_MAX {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let entry = TraceEntry {
            time: now(),
            micros: u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX),
            way,
            server: self.server.clone(),
            line: kept.to_vec(),
            bytes: line.len(),
            lost: self.lost.swap(0, Ordering::Relaxed),
        };
        let lost = entry.lost;
        match self.sender.try_send(entry) {
            Ok(()) => drop(self.queued.fetch_add(kept.len(), Ordering::Relaxed)),
            Err(_) => drop(self.lost.fetch_add(lost + 1, Ordering::Relaxed)),
        }
    }
}

fn write(
    mut file: RotatingFile,
    entries: &mpsc::Receiver<TraceEntry>,
    queued: &AtomicUsize,
    complain: impl Fn(&str),
) {
    let mut is_said = false;
    while let Ok(entry) = entries.recv() {
        queued.fetch_sub(entry.line.len(), Ordering::AcqRel);
        let mut line = render(&entry).to_string();
        line.push('\n');
        // A trace on a full disk has a gap; the conversation goes on.
        let written = file.append(line.as_bytes());
        if let (Err(error), false) = (&written, is_said) {
            complain(&format!("the trace cannot be written, and has a gap: {error}"));
        }
        is_said = written.is_err();
    }
}

fn render(entry: &TraceEntry) -> Value {
    let (way, generation) = match entry.way {
        MessageDirection::FromClient => ("from client", None),
        MessageDirection::ToClient => ("to client", None),
        MessageDirection::FromServer(generation) => ("from server", Some(generation)),
        MessageDirection::ToServer(generation) => ("to server", Some(generation)),
    };
    let mut value = json!({"time": entry.time.to_string(), "micros": entry.micros, "way": way});
    if let Some(server) = &entry.server {
        value["server"] = (**server).into();
    }
    if let Some(generation) = generation {
        value["generation"] = generation.0.into();
    }
    value["bytes"] = entry.bytes.into();
    if entry.lost > 0 {
        value["lost_before"] = entry.lost.into();
    }
    match serde_json::from_slice::<Value>(&entry.line) {
        Ok(mut message) => {
            redact_value(&mut message);
            value["message"] = message;
        }
        Err(_) => value["text"] = redact_text(&String::from_utf8_lossy(&entry.line)).into(),
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{TempDir, wait_for};

    #[test]
    fn messages_are_recorded_without_secrets() {
        let folder = TempDir::new();
        let path = folder.join("trace.jsonl");
        let trace = Trace::open(&path, |_| {}).expect("it opens");
        trace.note(MessageDirection::FromClient, br#"{"id":1,"params":{"api_key":"hush"}}"#);
        trace.note(MessageDirection::FromServer(Generation(2)), b"password=hush and junk");
        trace.note(MessageDirection::ToClient, &vec![b'x'; TRACE_MESSAGE_BYTES_MAX + 1]);
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        wait_for("three lines", || read().matches('\n').count() == 3);
        let text = read();
        assert!(!text.contains("hush"), "{}", &text[..400]);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines[0]["way"], "from client");
        assert_eq!(lines[0]["message"]["id"], 1);
        assert_eq!(lines[1]["generation"], 2);
        assert_eq!(lines[2]["bytes"], TRACE_MESSAGE_BYTES_MAX + 1);
        assert!(lines[0]["micros"].as_u64() <= lines[2]["micros"].as_u64());
    }
}
