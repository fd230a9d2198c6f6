//! Owns what the loop of every face waits on: the supervisor, the control API and the signals. Driven by
//! the loops of `keep`, `up` and `mcp`. Never decides what a signal or a request leads to.

use crate::control::{Control, LoopRequest};
use crate::os::{SignalRequest, Signals};
use crate::supervise::{Supervisor, Wakeup};

/// The common part of all loops.
pub(crate) struct Runtime {
    pub(crate) supervise: Supervisor,
    pub(crate) control: Control,
    pub(crate) signals: Signals,
}

/// What [`Runtime::wait`] waits for.
pub(crate) enum RuntimeInput {
    Supervise(Wakeup),
    Control(LoopRequest),
    Signal(SignalRequest),
}

impl Runtime {
    /// Waits for the next input. Cancel safe.
    pub(crate) async fn wait(&mut self) -> RuntimeInput {
        tokio::select! {
            biased;
            asked = self.signals.next() => RuntimeInput::Signal(asked),
            ask = self.control.next() => RuntimeInput::Control(ask),
            wakeup = self.supervise.wait() => RuntimeInput::Supervise(wakeup),
        }
    }

    /// Answers a request of the control API.
    pub(crate) async fn answer(&mut self, ask: LoopRequest) {
        self.control.answer(&mut self.supervise, ask).await;
    }
}
