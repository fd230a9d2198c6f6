//! The loop of `afresh mcp`: one server, and what else it waits for.

use afresh_core::mcp::Input;
use afresh_core::service::Input as ServiceInput;

use super::poll::{Came, Vigil};
use super::restart_triggers::Found;
use super::server::{Seat, Server};
use crate::control::{Ask, Control};
use crate::os::{Asked, Signals};
use crate::store::trace::Trace;
use crate::stream::Completion;
use crate::supervise::{Happened, Supervise};
use crate::wires::Wires;

/// Both machines, and what stands between them and the pipes.
pub(super) struct Front {
    pub(super) server: Server,
    pub(super) supervise: Supervise,
    vigil: Vigil,
}

impl Front {
    pub(super) fn new(server: Server, supervise: Supervise, vigil: Vigil) -> Self {
        Self { server, supervise, vigil }
    }

    /// What has to be ended in order.
    pub(super) fn end(self) -> (Supervise, Wires, Option<Trace>) {
        (self.supervise, self.server.lane.wires, self.server.lane.trace)
    }

    fn seat(&mut self) -> Seat<'_> {
        Seat { server: &mut self.server, supervise: &mut self.supervise }
    }

    pub(super) async fn drive(
        &mut self,
        mut signals: Signals,
        control: &mut Control,
        mut abandoned: Completion,
    ) {
        while !self.seat().is_over() {
            // Who comes is welcomed before it is given anything.
            while let Some(talker) = self.supervise.next_talker() {
                self.server.lane.wires.welcome(talker);
            }
            while let Some(turn) = self.supervise.next_turn() {
                self.seat().take_turn(turn).await;
            }
            let deadline = self.server.deadline();
            let others = async {
                tokio::select! {
                    biased;
                    asked = signals.next() => Other::Asked(asked),
                    () = &mut abandoned, if !self.server.leaving => Other::Abandoned,
                    ask = control.next() => Other::Ask(ask),
                    happened = self.supervise.wait() => Other::Happened(happened),
                    found = self.server.guard.next(), if !self.server.leaving => Other::Found(found),
                }
            };
            match self.vigil.pass_until(&mut self.server.lane, deadline, others).await {
                Came::Odd(odd) => self.seat().deal_with(odd).await,
                Came::Due => self.seat().wake().await,
                Came::Other(Other::Asked(Asked::Restart(reason))) => {
                    self.seat()
                        .tell_service(ServiceInput::Restart { reason: reason.to_owned() })
                        .await;
                }
                Came::Other(Other::Asked(_) | Other::Abandoned) => self.seat().leave().await,
                Came::Other(Other::Ask(ask)) => control.answer(&mut self.supervise, ask).await,
                Came::Other(Other::Happened(happened)) => self.seat().react(happened).await,
                Came::Other(Other::Found(found)) => self.seat().found(found).await,
            }
        }
        // Who still listens is owed an answer.
        if !self.server.leaving {
            let why = self.seat().why_it_ended();
            self.seat().converse(Input::Down { why }).await;
        }
    }
}

/// What the loop waits for besides messages and moments.
enum Other {
    Asked(Asked),
    /// Nobody reads our stdout any more.
    Abandoned,
    Ask(Ask),
    Happened(Happened),
    Found(Found),
}
