//! A command on a terminal of its own, and what a person would see there.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, ttyname};

use crate::grid::Grid;
use crate::wait_for;

/// A command that runs on a terminal.
#[derive(Debug)]
pub struct OnTerminal {
    child: Child,
    keyboard: File,
    output: Arc<Mutex<Vec<u8>>>,
    name: PathBuf,
}

impl OnTerminal {
    /// Starts a command on a terminal of this size.
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).expect("a terminal can be made");
        let stream = || File::from(terminal.slave.try_clone().expect("a descriptor is left"));
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let name = ttyname(&terminal.slave).expect("it has a name");
        let child = command.spawn().expect("the command starts");
        // Only those who run on it hold it now, the command itself included.
        drop(command);
        drop(terminal.slave);
        let keyboard = File::from(terminal.master);
        let output = collect(keyboard.try_clone().expect("a descriptor is left"));
        Self { child, keyboard, output, name }
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        // It may be gone already: then there is nothing to do.
        nix::sys::signal::kill(Pid::from_raw(self.pid()), signal).ok();
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("somebody reads");
    }

    /// Its modes: how it treats what is typed and written.
    pub fn modes(&self) -> Termios {
        tcgetattr(&self.keyboard).expect("it is a terminal")
    }

    /// Makes it larger or smaller, and tells who is on it.
    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let words = ["cols", columns.as_str(), "rows", rows.as_str()];
        let terminal = File::open(&self.name).expect("somebody is on it");
        let status = Command::new("stty").args(words).stdin(terminal).status();
        assert!(status.expect("stty is there").success());
        self.signal(nix::sys::signal::Signal::SIGWINCH);
    }

    /// What a program that draws a whole screen has made of it.
    pub fn grid(&self) -> Grid {
        Grid::of(&self.raw())
    }

    /// Waits until a row of that screen has this in it.
    #[track_caller]
    pub fn wait_drawn(&self, text: &str) {
        let is_there = || {
            let grid = self.grid();
            grid.is_drawn() && grid.rows().iter().any(|row| row.contains(text))
        };
        assert!(crate::reaches(is_there), "no `{text}`:\n{}", self.grid().rows().join("\n"));
    }

    /// Waits until it has stopped, as by Ctrl+Z.
    #[track_caller]
    pub fn wait_stopped(&self) {
        let flags = WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG;
        wait_for("it stops", || {
            let status = waitpid(Pid::from_raw(self.pid()), Some(flags)).expect("our child");
            matches!(status, WaitStatus::Stopped(..))
        });
    }

    /// All that was written to the terminal.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().expect("no reader panics")).into_owned()
    }

    /// The lines that are to be seen, those that have scrolled away included.
    pub fn seen(&self) -> Vec<String> {
        seen(&self.raw())
    }

    /// Waits until a line is to be seen that has this in it.
    #[track_caller]
    pub fn wait_seen(&self, text: &str) {
        let found = crate::reaches(|| self.seen().iter().any(|line| line.contains(text)));
        assert!(found, "no `{text}` on the terminal:\n{}", self.seen().join("\n"));
    }

    /// Waits for its end, and for that of its output.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the command ends", || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        // Whoever collects has the other one.
        wait_for("all output is collected", || Arc::strong_count(&self.output) == 1);
        status.expect("just seen")
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn collect(mut terminal: File) -> Arc<Mutex<Vec<u8>>> {
    let output = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&output);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        // When nobody is on the terminal any more, reading fails.
        while let Ok(length @ 1..) = terminal.read(&mut buffer) {
            sink.lock().expect("no reader panics").extend_from_slice(&buffer[..length]);
        }
    });
    output
}

/// The lines that a terminal shows: those that stand above the cursor can be gone back to, and erased.
fn seen(raw: &str) -> Vec<String> {
    let (mut lines, mut at) = (vec![String::new()], 0);
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => {
                at += 1;
                if at == lines.len() {
                    lines.push(String::new());
                }
            }
            '\r' => {}
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                let mut number = String::new();
                while let Some(digit) = chars.next_if(|c| c.is_ascii_digit() || *c == ';') {
                    number.push(digit);
                }
                match chars.next() {
                    Some('F') => at = at.saturating_sub(number.parse().unwrap_or(1)),
                    Some('J') => {
                        lines.truncate(at);
                        lines.push(String::new());
                    }
                    Some('m') => {}
                    // The rest of it is not read yet.
                    None => break,
                    other => panic!("the terminal is told to do `{number}{other:?}`: {raw:?}"),
                }
            }
            '\u{1b}' if chars.peek().is_none() => break,
            '\u{1b}' => panic!("the terminal is told something strange: {raw:?}"),
            c => lines[at].push(c),
        }
    }
    lines
}
