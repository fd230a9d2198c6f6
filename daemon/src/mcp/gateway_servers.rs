//! Owns many servers in one loop, each with a conversation whose client is in the same loop. Driven by the
//! loop of the gateway, which deals with what comes by a [`ServerDriver`] and takes the outboxes.
//!
//! Only servers that were woken are polled, each in its turn: each has a waker of its own, and one that was woken stands
//! in a list once. So what a message costs does not depend on how many servers there are, and no server holds up
//! another. Decides nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use afresh_core::audit::Actor;
use afresh_core::id::ServiceId;
use afresh_core::limits::{LINES_IN_A_ROW_MAX, OUTBOX_BYTES_MAX};
use afresh_core::mcp::envelope::Id;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::fast_path::Interruption;
use super::poll::{MessagePath, TimerThread};
use super::ready_queue::{OtherReady, ReadyFlag, ReadyQueue};
use super::restart_triggers::Trigger;
use super::server::{Server, ServerDriver};
use crate::supervise::{InstanceEvent, Supervisor};

/// All servers of one loop.
pub(crate) struct Servers {
    servers: BTreeMap<ServiceId, PolledServer>,
    ready: Arc<ReadyQueue<ServiceId>>,
    /// The servers that are still to be polled in this round, in this order.
    round: VecDeque<ServiceId>,
    /// A server was polled since the rest of the loop was.
    is_round: bool,
    /// When servers are to be polled if nothing comes before; one timer for all.
    deadlines: BTreeSet<(Instant, ServiceId)>,
    timer: TimerThread,
    /// The waker of the timer.
    timer_waker: Waker,
}

struct PolledServer {
    server: Server,
    flag: Arc<ReadyFlag<ServiceId>>,
    /// The waker of its pipes.
    pipes: Waker,
    /// The waker of everything else of its.
    other: Waker,
    /// Its deadline among those of all. An obsolete one wakes the loop once for nothing, and no message
    /// pays for it.
    deadline: Option<Instant>,
}

/// The result of polling a server. Besides, lines may wait in its outbox.
pub(crate) enum ServerPoll {
    /// Something over the pipes that is more than a message on its way.
    Interruption(Interruption),
    /// A deadline has come.
    Due,
    /// A restart trigger.
    Trigger(Trigger),
    /// Nothing else than lines for the client, in the outbox. Those that are left there are not reported
    /// again before something new comes.
    Lines,
}

impl Servers {
    pub(crate) fn start() -> io::Result<Self> {
        let ready = ReadyQueue::new();
        Ok(Self {
            servers: BTreeMap::new(),
            timer_waker: Waker::from(Arc::clone(&ready)),
            ready,
            round: VecDeque::new(),
            is_round: false,
            deadlines: BTreeSet::new(),
            timer: TimerThread::start()?,
        })
    }

    pub(crate) fn insert(&mut self, server: Server) {
        let service = server.service;
        self.remove(service);
        let flag = ReadyFlag::new(service, &self.ready);
        flag.set_other();
        let pipes = Arc::clone(&flag).into();
        let other = Arc::new(OtherReady(Arc::clone(&flag))).into();
        self.servers.insert(service, PolledServer { server, flag, pipes, other, deadline: None });
    }

    pub(crate) fn remove(&mut self, service: ServiceId) -> Option<Server> {
        let polled = self.servers.remove(&service)?;
        if let Some(deadline) = polled.deadline {
            self.deadlines.remove(&(deadline, service));
        }
        Some(polled.server)
    }

    /// A server with the supervisor. All of it is polled after that; for a message there are
    /// [`Servers::say`] and [`Servers::take_outbox`].
    pub(crate) fn driver<'a>(
        &'a mut self,
        service: ServiceId,
        supervise: &'a mut Supervisor,
    ) -> Option<ServerDriver<'a>> {
        let PolledServer { server, flag, .. } = self.servers.get_mut(&service)?;
        flag.set_other();
        Some(ServerDriver { server, supervise })
    }

    /// A client has called a restart by this request, which is among the lines that were taken.
    pub(crate) fn note_caller(&mut self, service: ServiceId, id: Id, by: Actor) {
        if let Some(polled) = self.servers.get_mut(&service) {
            polled.server.note_caller(id, by);
        }
    }

    /// Takes a line of the client's. It is passed on in the next poll, before the loop waits.
    pub(crate) fn say(&mut self, service: ServiceId, line: Vec<u8>) {
        if let Some(PolledServer { server, flag, .. }) = self.servers.get_mut(&service) {
            server.lane.say(line);
            flag.set_by_task();
        }
    }

    /// Whether a server takes more lines now: else it does not read them, or its answers are not taken.
    pub(crate) fn has_room(&self, service: ServiceId) -> bool {
        self.servers.get(&service).is_some_and(|polled| polled.server.lane.wires.have_room())
    }

    /// The lines for the client since the last time. Of a flood it is only the beginning: other servers are
    /// polled before the next part.
    pub(crate) fn take_outbox(&mut self, service: ServiceId) -> VecDeque<Vec<u8>> {
        let Some(PolledServer { server, flag, .. }) = self.servers.get_mut(&service) else {
            return VecDeque::new();
        };
        let wires = &mut server.lane.wires;
        let was_full = wires.client_waiting() >= OUTBOX_BYTES_MAX;
        let lines = wires.take_outbox(LINES_IN_A_ROW_MAX);
        if was_full || wires.client_waiting() > 0 {
            // Its instances were not read from, or there is more.
            flag.set();
        }
        lines
    }

    /// Follows a step in the life of an instance.
    pub(crate) async fn follow(&mut self, supervise: &mut Supervisor, event: InstanceEvent) {
        if let Some(mut driver) = self.driver(event.service, supervise) {
            driver.follow(event).await;
        }
    }

    /// Deals with what [`Servers::next`] brought.
    pub(crate) async fn deal_with(
        &mut self,
        supervise: &mut Supervisor,
        service: ServiceId,
        polled: ServerPoll,
    ) {
        if let ServerPoll::Lines = polled {
            return;
        }
        let Some(mut driver) = self.driver(service, supervise) else { return };
        match polled {
            ServerPoll::Interruption(interruption) => driver.deal_with(interruption).await,
            ServerPoll::Due => driver.wake().await,
            ServerPoll::Trigger(trigger) => driver.react(trigger).await,
            ServerPoll::Lines => {}
        }
    }

    /// Passes messages on until something comes that is to be dealt with, or taken. Cancel safe.
    pub(crate) async fn next(&mut self) -> (ServiceId, ServerPoll) {
        // Without tokio's budget: each poll ends after one turn of each server.
        unconstrained(poll_fn(|context| self.poll_next(context))).await
    }

    /// See [`Servers::next`]. In a round, each server that was woken is polled once, for a bounded time;
    /// between two rounds the rest of the loop is polled.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(ServiceId, ServerPoll)> {
        loop {
            while let Some(service) = self.round.pop_front() {
                let Some(server) = self.servers.get_mut(&service) else { continue };
                let polled = server.poll();
                if let Some(deadline) = server.earlier_deadline() {
                    let before = server.deadline.replace(deadline);
                    before.map(|before| self.deadlines.remove(&(before, service)));
                    self.deadlines.insert((deadline, service));
                }
                if let Poll::Ready(polled) = polled {
                    return Poll::Ready((service, polled));
                }
            }
            self.wake_late();
            self.ready.take(context.waker(), &mut self.round);
            let was_round = std::mem::replace(&mut self.is_round, !self.round.is_empty());
            if self.round.is_empty() {
                break;
            }
            if was_round {
                // The reactor has to run for the pipes of the others.
                self.is_round = false;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        if let Some((deadline, _)) = self.deadlines.first() {
            self.timer.set(*deadline, &self.timer_waker);
        }
        Poll::Pending
    }

    /// Wakes the servers whose deadline has come.
    fn wake_late(&mut self) {
        if !self.ready.take_timer() {
            return;
        }
        let now = Instant::now();
        self.timer.note(now);
        while let Some((deadline, service)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.deadlines.pop_first();
            if let Some(server) = self.servers.get_mut(&service) {
                server.deadline = None;
                server.flag.set_other();
            }
        }
    }
}

impl PolledServer {
    fn poll(&mut self) -> Poll<ServerPoll> {
        let is_other_ready = self.flag.clear();
        let Server { lane, triggers, leaving, .. } = &mut self.server;
        let other = &mut Context::from_waker(&self.other);
        if is_other_ready {
            lane.wires.look_for_ends(other);
        }
        let polled = 'polled: {
            if let Some(interruption) = lane.poll_wires(&mut Context::from_waker(&self.pipes)) {
                break 'polled Some(ServerPoll::Interruption(interruption));
            }
            if !is_other_ready {
                break 'polled None;
            }
            if !*leaving && let Poll::Ready(trigger) = triggers.poll_trigger(other) {
                break 'polled Some(ServerPoll::Trigger(trigger));
            }
            let is_due = self.next_wakeup().is_some_and(|deadline| deadline <= Instant::now());
            is_due.then_some(ServerPoll::Due)
        };
        if polled.is_some() {
            // The rest is polled after that.
            self.flag.set_other();
        }
        let has_lines = self.server.lane.wires.client_waiting() > 0;
        polled.or_else(|| has_lines.then_some(ServerPoll::Lines)).map_or(Poll::Pending, Poll::Ready)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let Server { lane, triggers, leaving, instances, .. } = &self.server;
        let trigger = triggers.next_wakeup().filter(|_| !*leaving);
        lane.next_wakeup().into_iter().chain(instances.deadline()).chain(trigger).min()
    }

    /// Its next deadline, where that is before the one that is waited for.
    fn earlier_deadline(&self) -> Option<Instant> {
        let next = self.next_wakeup()?;
        self.deadline.is_none_or(|deadline| next < deadline).then_some(next)
    }
}

#[cfg(test)]
mod tests;
