//! Owns the loop of `afresh mcp`: one server, and everything else that it waits for. Driven by `mcp.rs`.

use afresh_core::mcp::Input;
use afresh_core::service::Input as ServiceInput;

use super::poll::{PipePoll, Polled};
use super::restart_triggers::Trigger;
use super::server::{Server, ServerDriver};
use crate::driver::Driver;
use crate::os::SignalRequest;
use crate::runtime::{Runtime, RuntimeInput};
use crate::store::trace::Trace;
use crate::stream::Completion;
use crate::wires::Wires;

/// Both machines, and what stands between them and the pipes.
pub(super) struct EventLoop {
    pub(super) server: Server,
    runtime: Runtime,
    poll: PipePoll,
}

impl EventLoop {
    pub(super) fn new(server: Server, runtime: Runtime, poll: PipePoll) -> Self {
        Self { server, runtime, poll }
    }

    /// The parts that have to be ended in order.
    pub(super) fn end(self) -> (Runtime, Wires, Option<Trace>) {
        (self.runtime, self.server.lane.wires, self.server.lane.trace)
    }

    fn driver(&mut self) -> ServerDriver<'_> {
        ServerDriver { server: &mut self.server, supervise: &mut self.runtime.supervise }
    }

    pub(super) async fn drive(&mut self, mut abandoned: Completion) {
        while !self.driver().is_over() {
            while let Some(event) = self.runtime.supervise.instances.next_event() {
                self.driver().follow(event).await;
            }
            let deadline = self.server.instances.deadline();
            let others = async {
                tokio::select! {
                    biased;
                    () = &mut abandoned, if !self.server.leaving => Other::Abandoned,
                    input = self.runtime.wait() => Other::Runtime(input),
                    trigger = self.server.triggers.next(), if !self.server.leaving => {
                        Other::Trigger(trigger)
                    }
                }
            };
            match self.poll.pass_until(&mut self.server.lane, deadline, others).await {
                Polled::Interruption(interruption) => self.driver().deal_with(interruption).await,
                Polled::Due => self.driver().wake().await,
                Polled::Other(other) => self.react(other).await,
            }
        }
        // A client that is still there is owed an answer.
        if !self.server.leaving {
            let why = self.driver().why_it_ended();
            self.driver().input(Input::Down { why }).await;
        }
    }

    async fn react(&mut self, other: Other) {
        match other {
            Other::Runtime(RuntimeInput::Signal(SignalRequest::Restart(reason))) => {
                let reason = reason.to_owned();
                self.driver().tell_service(ServiceInput::Restart { reason }).await;
            }
            Other::Runtime(RuntimeInput::Signal(_)) | Other::Abandoned => {
                self.driver().leave().await;
            }
            Other::Runtime(RuntimeInput::Control(ask)) => self.runtime.answer(ask).await,
            Other::Runtime(RuntimeInput::Supervise(wakeup)) => {
                self.runtime.supervise.react(wakeup).await;
            }
            Other::Trigger(trigger) => self.driver().react(trigger).await,
        }
    }
}

/// Inputs of the loop besides messages and deadlines.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack of the loop")]
enum Other {
    /// The client does not read our stdout any more.
    Abandoned,
    Runtime(RuntimeInput),
    Trigger(Trigger),
}
