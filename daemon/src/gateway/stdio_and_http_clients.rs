//! Owns the clients of the gateway: one on stdio, or many over HTTP. Driven by the loop. Never decides about a message.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use afresh_core::gateway::access_patterns::Access;
use afresh_core::gateway::settings::FrontSettings;
use afresh_core::gateway::{ClientId, Input};
use afresh_core::limits::{GATEWAY_UNREAD_BYTES_MAX, OUTBOX_BYTES_MAX};
use afresh_core::mcp::envelope::Id;
use afresh_core::mcp::frame::Frame;
use tokio::sync::oneshot;

use super::http::{BoundFront, Bounds, EndedSessions, HttpFront, bind};
use crate::mcp::{Stdout, own_stdin, stdout};
use crate::startup::SetupError;
use crate::store::user_state::UserState;
use crate::stream::Completion;
use crate::supervise::Recorder;
use crate::wires::{WireEvent, WireInput, Wires};

/// The client at our stdin.
const ONLY: ClientId = ClientId(1);

/// What clients do.
pub(super) enum FrontEvent {
    /// The hub is to be told this.
    Hub(Input),
    /// There is room again for what it is told.
    Read,
    /// The only one there will ever be is gone.
    Over,
}

/// Where clients are.
pub(super) enum GatewayFront {
    Stdio(Box<StdioFront>),
    Http(Box<HttpFront>),
}

/// A client at our stdin and stdout.
pub(super) struct StdioFront {
    wires: Wires,
    heard: VecDeque<WireInput>,
    /// Ready when the reader of stdout has gone.
    abandoned: Completion,
    done: oneshot::Receiver<()>,
    has_joined: bool,
    /// So much waited for it that servers had to wait.
    was_full: bool,
    is_over: bool,
}

impl GatewayFront {
    /// Takes the address that the configuration names; none for stdio.
    pub(super) fn bind(settings: &FrontSettings) -> Result<Option<BoundFront>, SetupError> {
        let address = settings.http.as_ref();
        address.map(|address| bind(settings, address)).transpose().map_err(SetupError::Front)
    }

    /// As the configuration says.
    pub(super) fn open(
        bound: Option<BoundFront>,
        settings: &FrontSettings,
        recorder: &Recorder,
        state: Option<UserState>,
    ) -> Result<Self, SetupError> {
        let stderr = &recorder.stderr;
        let Some(bound) = bound else {
            // The client is who started us.
            let Stdout { writer, abandoned, done } = stdout(stderr)?;
            let wires = Wires::new(own_stdin()?, writer).bounded(GATEWAY_UNREAD_BYTES_MAX);
            return Ok(Self::Stdio(Box::new(StdioFront::new(wires, abandoned, done))));
        };
        stderr.log(&bound.told());
        stderr.log(&match (&bound, &settings.token_file) {
            (_, Some(file)) => {
                let file = file.display();
                format!("clients send the token in `{file}` as a bearer token")
            }
            _ if !settings.tokens.is_empty() => {
                "clients send a configured token as a bearer token".to_owned()
            }
            (BoundFront::Socket(..), None) => "only programs of this user are served".to_owned(),
            (BoundFront::Port(..), None) => {
                "no token is needed: every program of every user of this machine can call all tools"
                    .to_owned()
            }
        });
        let log = (stderr.clone(), recorder.refusals.clone());
        let (ended, problem) = EndedSessions::open(state, Some(stderr.clone()));
        if let Some(why) = problem {
            stderr.log(&format!("sessions end with this gateway: {why}"));
        }
        let front = HttpFront::start(bound, settings, Bounds::default(), log, ended);
        Ok(Self::Http(Box::new(front.map_err(SetupError::Runtime)?)))
    }

    /// Whether there is one client at most.
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Self::Stdio(_))
    }

    /// What a client does next. Cancel safe.
    pub(super) async fn next(&mut self) -> FrontEvent {
        match self {
            Self::Stdio(stdio) => stdio.next().await,
            Self::Http(front) => FrontEvent::Hub(front.next().await),
        }
    }

    /// Tells a client something; never waits.
    pub(super) fn tell(&mut self, client: ClientId, line: Vec<u8>, about: Option<Id>) {
        match self {
            Self::Stdio(stdio) => stdio.wires.tell_client(line),
            Self::Http(front) => front.tell(client, line, about),
        }
    }

    /// Whether more can be told now. Else it is left with the servers, which then wait.
    pub(super) fn has_room(&self) -> bool {
        match self {
            Self::Stdio(stdio) => stdio.has_room(),
            // A client that does not read is dropped, and holds up no other.
            Self::Http(_) => true,
        }
    }

    /// Whether clients were told so much that they should have a turn to read it.
    pub(super) fn gives_way(&mut self) -> bool {
        match self {
            // What it does not read holds up its servers.
            Self::Stdio(_) => false,
            Self::Http(front) => front.gives_way(),
        }
    }

    /// Takes no more messages of clients.
    pub(super) fn leave(&mut self) {
        match self {
            Self::Stdio(stdio) => {
                stdio.is_over = true;
                stdio.wires.leave();
            }
            // What they still wait for is answered when it is closed, at the latest.
            Self::Http(front) => front.leave(),
        }
    }

    /// Waits until all was taken.
    pub(super) async fn close(self) {
        match self {
            Self::Stdio(mut stdio) => {
                stdio.wires.flush().await;
                let StdioFront { wires, done, .. } = *stdio;
                drop(wires);
                done.await.ok();
            }
            Self::Http(front) => front.close().await,
        }
    }
}

impl StdioFront {
    fn new(wires: Wires, abandoned: Completion, done: oneshot::Receiver<()>) -> Self {
        let heard = VecDeque::new();
        let (has_joined, was_full, is_over) = (false, false, false);
        Self { wires, heard, abandoned, done, has_joined, was_full, is_over }
    }

    fn has_room(&self) -> bool {
        self.wires.client_waiting() < OUTBOX_BYTES_MAX
    }

    /// Whether what it has said is passed on: it reads, or is gone. A client that asks and does not read is not answered
    /// without end.
    fn takes_more(&self) -> bool {
        let is_end = |heard: &WireInput| matches!(heard, WireInput::Event(WireEvent::ClientGone));
        self.wires.have_room() || self.heard.back().is_some_and(is_end)
    }

    async fn next(&mut self) -> FrontEvent {
        if !self.has_joined {
            self.has_joined = true;
            return FrontEvent::Hub(Input::Joined { client: ONLY, access: Access::default() });
        }
        poll_fn(|context| {
            loop {
                while self.takes_more()
                    && let Some(heard) = self.heard.pop_front()
                {
                    let word = match heard {
                        _ if self.is_over => continue,
                        WireInput::Client(Frame::Line(line)) => {
                            FrontEvent::Hub(Input::Client { client: ONLY, line })
                        }
                        WireInput::Client(Frame::TooLong { beginning, ending, .. }) => {
                            let client = ONLY;
                            FrontEvent::Hub(Input::ClientTooLong { client, beginning, ending })
                        }
                        WireInput::Event(WireEvent::ClientGone) => FrontEvent::Over,
                        // There are no instances on these wires.
                        WireInput::Instance(..) | WireInput::Event(_) => continue,
                    };
                    return Poll::Ready(word);
                }
                if !self.is_over && self.abandoned.as_mut().poll(context).is_ready() {
                    self.is_over = true;
                    return Poll::Ready(FrontEvent::Over);
                }
                self.was_full |= !self.has_room();
                let polled = self.wires.poll_heard(context, &mut self.heard);
                // The caller of `next` listens to waiting servers again.
                if self.was_full && self.has_room() {
                    self.was_full = false;
                    return Poll::Ready(FrontEvent::Read);
                }
                // Where nothing is taken, the writer wakes us.
                if polled.is_pending() || !self.takes_more() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;
    use tokio::net::unix::pipe;
    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_reads_again_is_told_more() {
        let (_theirs, stdin) = pipe::pipe().expect("there is room for a pipe");
        let (stdout, mut theirs) = pipe::pipe().expect("there is room for a pipe");
        let wires = Wires::new(Box::new(stdin), Box::new(stdout));
        let (_writes, done) = oneshot::channel();
        let mut stdio = StdioFront::new(wires, Box::pin(std::future::pending()), done);
        assert!(matches!(stdio.next().await, FrontEvent::Hub(Input::Joined { .. })));
        let line = vec![b'x'; 1_000];
        let mut told = 0;
        while stdio.has_room() {
            stdio.wires.tell_client(line.clone());
            told += line.len() + 1;
        }
        let mut buffer = vec![0; told];
        let read = async {
            theirs.read_exact(&mut buffer).await.expect("all of it comes");
            std::future::pending::<()>().await;
        };
        let word = timeout(DEADLINE, async {
            tokio::select! {
                word = stdio.next() => word,
                () = read => unreachable!("it never ends"),
            }
        });
        // The caller can now listen to the servers again.
        assert!(matches!(word.await.expect("in time"), FrontEvent::Read));
        assert!(stdio.has_room());
    }
}
