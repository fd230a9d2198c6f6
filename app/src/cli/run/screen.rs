//! The live view of `afresh run`: one thread draws, one hears keys, and the run waits for neither.
//!
//! What is to be seen is one value behind a lock that is not held while a terminal is written to: the drawing thread
//! takes the newest, at most ten times a second, and once a second while a clock is to be seen that goes.

mod draw;
mod key_decoder;
mod keys;
mod state;
mod terminal;

use std::io::{self, BufWriter, Stdout};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use afresh_core::limits::{OUTPUT_FLUSH_MAX, SCREEN_DRAW_GAP};
use afresh_core::run::{RunEvent, View};
use afresh_daemon::{Job, Keys, Stopped, UserRequestSender};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};

use self::key_decoder::KeyDecoder;
use self::keys::Action;
pub(super) use self::state::Facts;
use self::state::State;
use super::now;
use super::progress_lines::Tone;
use crate::output::{self, Paint};
use crate::up_screen::locked;

type Drawing = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// How long a clock is seen before it is drawn again.
const CLOCK: Duration = Duration::from_secs(1);

/// The view, as the command has it.
pub(super) struct RunScreen {
    shared: Arc<Shared>,
    drawer: JoinHandle<()>,
    /// Says when the terminal was given back.
    gone: Receiver<()>,
}

struct Shared {
    state: Mutex<State>,
    order: Mutex<Option<Order>>,
    wake: SyncSender<()>,
}

/// An order to the drawing thread; the last one wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Redraw,
    /// Another program may have had the terminal.
    TakeAgain,
    Suspend(Stopped),
    End,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    fn order(&self, order: Order) {
        let mut next = locked(&self.order);
        *next = (*next).max(Some(order));
        drop(next);
        self.wake();
    }

    fn wake(&self) {
        // Where it was woken already, it takes the newest.
        self.wake.try_send(()).ok();
    }
}

/// Whether a view can be drawn, and keys be pressed.
pub(super) fn is_possible() -> bool {
    output::can_draw() && afresh_daemon::is_in_front() && terminal::has_size()
}

impl RunScreen {
    /// Takes the terminal, and begins to draw and to hear keys.
    pub(super) fn start(facts: Facts, requests: UserRequestSender) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let (done, gone) = sync_channel(1);
        let state = Mutex::new(State::new(facts));
        let shared = Arc::new(Shared { state, order: Mutex::new(None), wake });
        terminal::take()?;
        let begin = || {
            let own = Arc::clone(&shared);
            let draw = move || {
                // A terminal that is gone is nothing to draw on; the run goes on without.
                draw_until_end(&own, &woken).ok();
                terminal::give_back().ok();
                done.send(()).ok();
            };
            let drawer = Builder::new().name("screen".to_owned()).spawn(draw)?;
            let own = Arc::clone(&shared);
            Builder::new().name("keys".to_owned()).spawn(move || hear_keys(&own, &requests))?;
            io::Result::Ok(drawer)
        };
        let drawer = begin().inspect_err(|_| drop(terminal::give_back()))?;
        Ok(Self { shared, drawer, gone })
    }

    /// Shows what is said, and how the run is now. Returns whether it is drawn.
    pub(super) fn show(&self, says: &[RunEvent], view: &View) -> bool {
        let mut state = self.shared.state();
        says.iter().for_each(|say| state.tell(say, view));
        drop(state);
        self.shared.wake();
        !self.drawer.is_finished()
    }

    /// What job control does to us.
    pub(super) fn hear_job(&self, job: Job) {
        match job {
            Job::Suspend => self.shared.order(Order::Suspend(Stopped::We)),
            Job::Continued => self.shared.order(Order::TakeAgain),
            Job::Resized => self.shared.wake(),
        }
    }

    /// Gives the terminal back, and says what stays on it; nothing where it does not read.
    pub(super) fn end(&self) -> Option<Vec<(Tone, String)>> {
        self.shared.order(Order::End);
        let was_drawn =
            self.gone.recv_timeout(OUTPUT_FLUSH_MAX).is_ok() || self.drawer.is_finished();
        // Its modes can be given back also where it does not read.
        let is_given = terminal::give_back_soon();
        (was_drawn && is_given).then(|| self.shared.state().summary(now()))
    }
}

impl Drop for RunScreen {
    fn drop(&mut self) {
        // Where it has ended in order, there is nothing left to do.
        self.shared.order(Order::End);
        terminal::give_back_soon();
    }
}

fn draw_until_end(shared: &Shared, woken: &Receiver<()>) -> io::Result<()> {
    let paint = Paint::stdout();
    let mut terminal = Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))?;
    clear(&mut terminal)?;
    loop {
        let order = locked(&shared.order).take();
        match order {
            None => {}
            Some(Order::End) => return Ok(()),
            Some(Order::Redraw) => clear(&mut terminal)?,
            Some(Order::TakeAgain) => take_again(&mut terminal)?,
            Some(Order::Suspend(stopped)) => {
                terminal::give_back()?;
                afresh_daemon::suspend(stopped)?;
                take_again(&mut terminal)?;
            }
        }
        if !terminal::is_ours() {
            // A panic has given it back.
            return Ok(());
        }
        terminal.draw(|frame| {
            // Given up before anything is written.
            let mut state = shared.state();
            let drawn = draw::draw(&state, now(), paint, frame.area(), frame.buffer_mut());
            state.page = drawn.page;
            if let Some(cursor) = drawn.cursor {
                frame.set_cursor_position(cursor);
            }
        })?;
        std::thread::sleep(SCREEN_DRAW_GAP);
        let counts = shared.state().counts();
        let is_over = match counts {
            true => {
                woken.recv_timeout(CLOCK - SCREEN_DRAW_GAP)
                    == Err(std::sync::mpsc::RecvTimeoutError::Disconnected)
            }
            false => woken.recv().is_err(),
        };
        if is_over {
            return Ok(());
        }
    }
}

/// Takes the terminal back from another program.
fn take_again(terminal: &mut Drawing) -> io::Result<()> {
    terminal::give_back()?;
    terminal::take()?;
    clear(terminal)
}

/// Lets everything be drawn anew. ratatui's own way would ask the terminal where its cursor is, and the thread that
/// reads keys would get the answer.
fn clear(terminal: &mut Drawing) -> io::Result<()> {
    let size = terminal.size()?;
    terminal.resize(size.into())
}

/// Ends with the terminal or the process: nothing else can end a read.
fn hear_keys(shared: &Shared, requests: &UserRequestSender) {
    let mut typed = KeyDecoder::default();
    loop {
        let events: Vec<Event> = match afresh_daemon::next_keys(typed.patience()) {
            Keys::Bytes(bytes) => typed.take(&bytes),
            Keys::None => typed.decide().into_iter().collect(),
            Keys::Console => match event::read() {
                Ok(event) => vec![event],
                Err(_) => return,
            },
            Keys::Gone => return,
        };
        events.iter().for_each(|event| hear(shared, requests, event));
    }
}

fn hear(shared: &Shared, requests: &UserRequestSender, event: &Event) {
    let action = keys::press(&mut shared.state(), event);
    match action {
        Some(Action::Ask(asked)) => drop(requests.try_send(asked)),
        Some(Action::Suspend) => shared.order(Order::Suspend(Stopped::Everyone)),
        Some(Action::Redraw) => shared.order(Order::Redraw),
        None => {}
    }
    shared.wake();
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
