//! Takes the terminal, and gives it back as it was, also after a panic. Driven by the screen. Never draws.

use std::io;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;

use afresh_core::limits::OUTPUT_FLUSH_MAX;
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::crossterm::{cursor, execute};

/// Whether the terminal is ours: its modes are changed once, and given back once.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Whether there is anything that can be drawn on.
pub(super) fn has_size() -> bool {
    size().is_ok_and(|(columns, rows)| columns > 0 && rows > 0)
}

/// Whether the terminal is taken.
pub(super) fn is_ours() -> bool {
    IS_OURS.load(Ordering::SeqCst)
}

/// Takes the terminal. From now on, a panic gives it back before it is told.
pub(super) fn take() -> io::Result<()> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back_soon();
            tell(panic);
        }));
    });
    enable_raw_mode()?;
    IS_OURS.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)
        .inspect_err(|_| give_back().unwrap_or_default())
}

/// Gives the terminal back, where it is ours. Waits for one that does not read.
pub(super) fn give_back() -> io::Result<()> {
    if !IS_OURS.swap(false, Ordering::SeqCst) {
        return Ok(());
    }
    // The modes first: they do not depend on a reader.
    let modes = disable_raw_mode();
    execute!(io::stdout(), DisableBracketedPaste, LeaveAlternateScreen, cursor::Show)?;
    modes
}

/// The same, and waits for a moment at most. Returns whether it is done.
pub(super) fn give_back_soon() -> bool {
    let (done, ended) = sync_channel(1);
    let give_back = move || {
        give_back().ok();
        done.send(()).ok();
    };
    match std::thread::Builder::new().spawn(give_back) {
        Ok(_) => ended.recv_timeout(OUTPUT_FLUSH_MAX).is_ok(),
        Err(_) => false,
    }
}
