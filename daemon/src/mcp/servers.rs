//! Many servers in one loop, each with a conversation whose client is in the same loop.
//!
//! Only those are polled for whom there is something, each in its turn: what a message costs does not
//! depend on how many servers there are, and no server holds up another. Decides nothing: whoever drives it
//! deals with what comes, by a [`Seat`], and takes what waits in the outboxes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use afresh_core::id::ServiceId;
use afresh_core::limits::{LINES_IN_A_ROW_MAX, OUTBOX_BYTES_MAX};
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::fast_path::Odd;
use super::instances::Ended;
use super::ready_queue::{Aside, Bell, Rung};
use super::restart_triggers::Found;
use super::server::{Seat, Server};
use super::timer_thread::Alarm;
use crate::supervise::{Happened, Supervise, Turn};
use crate::wires::InstancePipes;

/// All servers of one loop.
pub(crate) struct Servers {
    members: BTreeMap<ServiceId, Member>,
    rung: Arc<Rung>,
    /// Who still has a turn in this round, in this order.
    round: VecDeque<ServiceId>,
    /// Somebody had one since everything else was looked at.
    is_round: bool,
    /// When members are to be polled if nothing comes before; one alarm for all.
    moments: BTreeSet<(Instant, ServiceId)>,
    alarm: Alarm,
    /// What the alarm wakes.
    time: Waker,
}

struct Member {
    server: Server,
    bell: Arc<Bell>,
    /// What its pipes wake.
    pipes: Waker,
    /// What everything else of its wakes.
    aside: Waker,
    /// Its moment among those of all. One that is needed no more comes once for nothing, and no message
    /// pays for it.
    moment: Option<Instant>,
}

/// What came of a server. Besides, something may wait in its outbox.
pub(crate) enum Came {
    /// Something over the wires that is more than a message on its way.
    Odd(Odd),
    /// A moment that was waited for.
    Due,
    /// What its guard has found.
    Found(Found),
    /// Nothing else than lines for the client, in the outbox. Those that are left there are not told of
    /// again before something new comes.
    Lines,
}

impl Came {
    /// Whether it is nothing more than messages on their way.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Self::Lines)
    }
}

impl Servers {
    pub(crate) fn start() -> io::Result<Self> {
        let rung = Rung::new();
        Ok(Self {
            members: BTreeMap::new(),
            time: Waker::from(Arc::clone(&rung)),
            rung,
            round: VecDeque::new(),
            is_round: false,
            moments: BTreeSet::new(),
            alarm: Alarm::start()?,
        })
    }

    pub(crate) fn insert(&mut self, server: Server) {
        let service = server.service;
        self.remove(service);
        let bell = Bell::new(service, &self.rung);
        bell.ring_aside();
        let (pipes, aside) = (Arc::clone(&bell).into(), Arc::new(Aside(Arc::clone(&bell))).into());
        self.members.insert(service, Member { server, bell, pipes, aside, moment: None });
    }

    pub(crate) fn remove(&mut self, service: ServiceId) -> Option<Server> {
        let member = self.members.remove(&service)?;
        if let Some(moment) = member.moment {
            self.moments.remove(&(moment, service));
        }
        Some(member.server)
    }

    /// A server to do something with. It is looked at as a whole after that; for a message there are
    /// [`Servers::say`] and [`Servers::take_outbox`].
    pub(crate) fn get_mut(&mut self, service: ServiceId) -> Option<&mut Server> {
        let member = self.members.get_mut(&service)?;
        member.bell.ring_aside();
        Some(&mut member.server)
    }

    /// A server at work.
    pub(crate) fn seat<'a>(
        &'a mut self,
        service: ServiceId,
        supervise: &'a mut Supervise,
    ) -> Option<Seat<'a>> {
        self.get_mut(service).map(|server| Seat { server, supervise })
    }

    /// Takes a line of the client's. Returns whether there is such a server.
    pub(crate) fn say(&mut self, service: ServiceId, line: Vec<u8>) -> bool {
        let member = self.members.get_mut(&service);
        if let Some(Member { server, bell, .. }) = member {
            server.lane.say(line);
            bell.ring();
            return true;
        }
        false
    }

    /// Whether a server takes more lines now: else it does not read them, or its answers are not taken.
    pub(crate) fn has_room(&self, service: ServiceId) -> bool {
        self.members.get(&service).is_some_and(|member| member.server.lane.wires.have_room())
    }

    /// What the client was told since the last time. Of a flood it is only the beginning: others have their
    /// turn before the next part.
    pub(crate) fn take_outbox(&mut self, service: ServiceId) -> VecDeque<Vec<u8>> {
        let Some(Member { server, bell, .. }) = self.members.get_mut(&service) else {
            return VecDeque::new();
        };
        let wires = &mut server.lane.wires;
        let was_full = wires.client_waiting() >= OUTBOX_BYTES_MAX;
        let lines = wires.take_outbox(LINES_IN_A_ROW_MAX);
        if was_full || wires.client_waiting() > 0 {
            // Its instances were not read from, or there is more.
            bell.ring();
        }
        lines
    }

    /// The pipes of a new instance.
    pub(crate) fn welcome(&mut self, talker: InstancePipes) {
        if let Some(server) = self.get_mut(talker.service) {
            server.lane.wires.welcome(talker);
        }
    }

    /// See [`Seat::take_turn`].
    pub(crate) async fn take_turn(&mut self, supervise: &mut Supervise, turn: Turn) {
        if let Some(mut seat) = self.seat(turn.service, supervise) {
            seat.take_turn(turn).await;
        }
    }

    /// Acts on what `Supervise::wait` brought, to whichever service.
    pub(crate) async fn react(&mut self, supervise: &mut Supervise, happened: Happened) {
        let ended = Ended::of(&happened, supervise);
        supervise.react(happened).await;
        if let Some(ended) = ended
            && let Some(mut seat) = self.seat(ended.service, supervise)
        {
            seat.ended(ended).await;
        }
    }

    /// Deals with what came.
    pub(crate) async fn deal_with(
        &mut self,
        supervise: &mut Supervise,
        service: ServiceId,
        came: Came,
    ) {
        if let Came::Lines = came {
            return;
        }
        let Some(mut seat) = self.seat(service, supervise) else { return };
        match came {
            Came::Odd(odd) => seat.deal_with(odd).await,
            Came::Due => seat.wake().await,
            Came::Found(found) => seat.found(found).await,
            Came::Lines => {}
        }
    }

    /// Passes messages on until something comes that is to be dealt with, or taken. Cancel safe.
    pub(crate) async fn next(&mut self) -> (ServiceId, Came) {
        // It is not held back in favour of other tasks: each poll ends after one turn of each server.
        unconstrained(poll_fn(|context| self.poll_next(context))).await
    }

    /// See [`Servers::next`]. In a round, whoever was rung for has one turn, of a bounded length; between
    /// two rounds everything else in the loop is looked at.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<(ServiceId, Came)> {
        loop {
            while let Some(service) = self.round.pop_front() {
                let Some(member) = self.members.get_mut(&service) else { continue };
                let came = member.poll();
                if let Some(moment) = member.earlier_moment() {
                    let before = member.moment.replace(moment);
                    before.map(|before| self.moments.remove(&(before, service)));
                    self.moments.insert((moment, service));
                }
                if let Poll::Ready(came) = came {
                    return Poll::Ready((service, came));
                }
            }
            self.ring_for_moments();
            self.rung.take(context.waker(), &mut self.round);
            let was_round = std::mem::replace(&mut self.is_round, !self.round.is_empty());
            if self.round.is_empty() {
                break;
            }
            if was_round {
                // What stirs in the pipes of the others is noticed only when we wait.
                self.is_round = false;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        if let Some((moment, _)) = self.moments.first() {
            self.alarm.set(*moment, &self.time);
        }
        Poll::Pending
    }

    /// Rings for those whose moment has come.
    fn ring_for_moments(&mut self) {
        if !self.rung.is_time() {
            return;
        }
        let now = Instant::now();
        self.alarm.note(now);
        while let Some((moment, service)) = self.moments.first().copied()
            && moment <= now
        {
            self.moments.pop_first();
            if let Some(member) = self.members.get_mut(&service) {
                member.moment = None;
                member.bell.ring_aside();
            }
        }
    }
}

impl Member {
    /// Gives it a turn.
    fn poll(&mut self) -> Poll<Came> {
        let is_rung_aside = self.bell.answer();
        let Server { lane, guard, leaving, .. } = &mut self.server;
        let aside = &mut Context::from_waker(&self.aside);
        if is_rung_aside {
            lane.wires.look_for_ends(aside);
        }
        let came = 'came: {
            if let Some(odd) = lane.poll_wires(&mut Context::from_waker(&self.pipes)) {
                break 'came Some(Came::Odd(odd));
            }
            if !is_rung_aside {
                break 'came None;
            }
            if !*leaving && let Poll::Ready(found) = guard.poll_found(aside) {
                break 'came Some(Came::Found(found));
            }
            let is_due = self.next_wakeup().is_some_and(|moment| moment <= Instant::now());
            is_due.then_some(Came::Due)
        };
        if came.is_some() {
            // The rest is looked at after that.
            self.bell.ring_aside();
        }
        let has_lines = self.server.lane.wires.client_waiting() > 0;
        came.or_else(|| has_lines.then_some(Came::Lines)).map_or(Poll::Pending, Poll::Ready)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let Server { lane, guard, leaving, .. } = &self.server;
        let guard = guard.next_wakeup().filter(|_| !*leaving);
        lane.next_wakeup().into_iter().chain(self.server.deadline()).chain(guard).min()
    }

    /// Its next moment, where that is before the one that is waited for.
    fn earlier_moment(&self) -> Option<Instant> {
        let next = self.next_wakeup()?;
        self.moment.is_none_or(|moment| next < moment).then_some(next)
    }
}

#[cfg(test)]
mod tests;
