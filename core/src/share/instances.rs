//! Owns the servers of a hub: which sessions share one, when one is started, when one ends because nobody uses it, and when
//! the hub has nothing left to do. Driven by the hub's loop. Never starts a process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Identity, Roots, SessionRequest};
use crate::limits::{
    SHARE_HUB_IDLE, SHARE_IDLE_TIMEOUT, SHARE_IDLE_TIMEOUT_MAX, SHARE_INSTANCES_MAX,
    SHARE_SESSIONS_MAX,
};
use crate::time::Time;

/// A connected shim: 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// A server of the hub: 1, 2, 3…
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceId(pub u64);

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// End a server that nobody uses.
    Stop(InstanceId),
    /// End the hub: it has no servers and no sessions.
    End,
}

/// The servers of a hub.
#[derive(Debug)]
pub struct Instances {
    all: BTreeMap<InstanceId, Instance>,
    last: u64,
    /// Since when there are none.
    empty_since: Option<Time>,
    /// No session is taken any more.
    is_leaving: bool,
}

#[derive(Debug)]
struct Instance {
    name: String,
    identity: Identity,
    /// The roots of its clients; none before the first of them has told its own.
    roots: Option<Roots>,
    sessions: BTreeSet<SessionId>,
    idle_timeout: Duration,
    /// Since when it has no sessions.
    idle_since: Option<Time>,
}

impl Instances {
    /// None yet.
    pub fn new(now: Time) -> Self {
        Self { all: BTreeMap::new(), last: 0, empty_since: Some(now), is_leaving: false }
    }

    /// Gives a session its server: one that is there, or a new one. Says why it gets none.
    pub fn attach(
        &mut self,
        session: SessionId,
        request: &SessionRequest,
    ) -> Result<Attached, String> {
        if self.is_leaving {
            return Err("the hub is ending".to_owned());
        }
        if self.session_count() >= SHARE_SESSIONS_MAX {
            return Err(format!("the hub has {SHARE_SESSIONS_MAX} sessions already"));
        }
        let identity = request.identity();
        let idle_timeout =
            request.idle_timeout_ms.map_or(SHARE_IDLE_TIMEOUT, Duration::from_millis);
        let idle_timeout = idle_timeout.min(SHARE_IDLE_TIMEOUT_MAX);
        // The roots are known when the session is open: until then any will do.
        let fits = |its: &Instance| {
            let both = (&its.roots, &request.roots);
            its.identity == identity && !matches!(both, (Some(its), Some(own)) if its != own)
        };
        if let Some((id, instance)) = self.all.iter_mut().find(|(_, its)| fits(its)) {
            instance.sessions.insert(session);
            (instance.idle_since, instance.idle_timeout) = (None, idle_timeout);
            instance.roots = instance.roots.take().or_else(|| request.roots.clone());
            return Ok(Attached { instance: *id, name: instance.name.clone(), is_new: false });
        }
        if self.all.len() >= SHARE_INSTANCES_MAX {
            return Err(format!("the hub has {SHARE_INSTANCES_MAX} servers already"));
        }
        self.last += 1;
        self.empty_since = None;
        let (instance, name) = (InstanceId(self.last), self.free_name(identity.name()));
        let sessions = BTreeSet::from([session]);
        let (named, roots, idle_since) = (name.clone(), request.roots.clone(), None);
        let its = Instance { name: named, identity, roots, sessions, idle_timeout, idle_since };
        self.all.insert(instance, its);
        Ok(Attached { instance, name, is_new: true })
    }

    /// A session is over.
    pub fn detach(&mut self, now: Time, session: SessionId) {
        for instance in self.all.values_mut() {
            if instance.sessions.remove(&session) && instance.sessions.is_empty() {
                instance.idle_since = Some(now);
            }
        }
    }

    /// A session's client has told its roots. Returns whether the session can stay with its server: the others there have
    /// the same, or there are none.
    pub fn set_roots(&mut self, session: SessionId, roots: Roots) -> bool {
        let mut all = self.all.values_mut();
        let Some(instance) = all.find(|its| its.sessions.contains(&session)) else { return true };
        if instance.roots.is_none() || instance.sessions.len() == 1 {
            instance.roots = Some(roots.clone());
        }
        instance.roots == Some(roots)
    }

    /// A server could not be used after all: it is forgotten.
    pub fn forget(&mut self, now: Time, instance: InstanceId) {
        self.all.remove(&instance);
        self.note_empty(now);
    }

    /// Takes no more sessions.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Does what is due.
    pub fn wake(&mut self, now: Time) -> Vec<Effect> {
        let is_due = |its: &Instance| its.idle_at().is_some_and(|at| at <= now);
        let due = self.all.iter().filter(|(_, its)| is_due(its)).map(|(id, _)| *id);
        let mut effects: Vec<Effect> = due.map(Effect::Stop).collect();
        self.all.retain(|_, its| !is_due(its));
        self.note_empty(now);
        if !self.is_leaving && self.empty_since.is_some_and(|since| since + SHARE_HUB_IDLE <= now) {
            self.is_leaving = true;
            effects.push(Effect::End);
        }
        effects
    }

    /// When `wake` wants to be called.
    pub fn next_wakeup(&self) -> Option<Time> {
        let empty = self.empty_since.filter(|_| !self.is_leaving);
        let empty = empty.map(|since| since + SHARE_HUB_IDLE);
        self.all.values().filter_map(Instance::idle_at).chain(empty).min()
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        self.all.values().map(|its| its.sessions.len()).sum()
    }

    /// How many sessions a server has, and what keeps it apart from the others of the same program.
    pub fn report(&self, name: &str) -> Option<(usize, Vec<String>)> {
        let own = self.all.values().find(|its| its.name == name)?;
        let others = self
            .all
            .values()
            .filter(|its| its.name != own.name && its.identity.is_same_program(&own.identity));
        let apart = others.map(|its| {
            let mut differences = own.identity.differences(&its.identity);
            differences.extend((own.roots != its.roots).then(|| "roots".to_owned()));
            format!("apart from `{}`: {}", its.name, differences.join(", "))
        });
        Some((own.sessions.len(), apart.collect()))
    }

    fn note_empty(&mut self, now: Time) {
        match self.all.is_empty() {
            true => self.empty_since = self.empty_since.or(Some(now)),
            false => self.empty_since = None,
        }
    }

    /// The name, with a number where another server has it.
    fn free_name(&self, name: &str) -> String {
        let is_free = |name: &String| self.all.values().all(|its| its.name != *name);
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
    }
}

impl Instance {
    fn idle_at(&self) -> Option<Time> {
        self.idle_since.map(|since| since + self.idle_timeout)
    }
}

/// The server of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Which.
    pub instance: InstanceId,
    /// What it is called.
    pub name: String,
    /// It is to be started.
    pub is_new: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn request(cwd: &str) -> SessionRequest {
        SessionRequest {
            name: "docs".to_owned(),
            cwd: cwd.to_owned(),
            idle_timeout_ms: Some(5_000),
            ..SessionRequest::default()
        }
    }

    fn attach(instances: &mut Instances, session: u64, cwd: &str) -> (u64, String, bool) {
        let attached = instances.attach(SessionId(session), &request(cwd)).expect("there is room");
        (attached.instance.0, attached.name, attached.is_new)
    }

    #[test]
    fn equal_sessions_share_and_others_do_not() {
        let mut instances = Instances::new(at(0));
        assert_eq!(attach(&mut instances, 1, "a"), (1, "docs".to_owned(), true));
        assert_eq!(attach(&mut instances, 2, "a"), (1, "docs".to_owned(), false));
        assert_eq!(attach(&mut instances, 3, "b"), (2, "docs-2".to_owned(), true));
        let apart = vec!["apart from `docs-2`: folder".to_owned()];
        assert_eq!(instances.report("docs"), Some((2, apart)));
        assert_eq!(instances.report("other"), None);
    }

    #[test]
    fn a_server_ends_a_while_after_its_last_session_and_the_hub_after_its_last_server() {
        let mut instances = Instances::new(at(0));
        attach(&mut instances, 1, "a");
        attach(&mut instances, 2, "a");
        instances.detach(at(1), SessionId(1));
        assert_eq!(instances.next_wakeup(), None);
        instances.detach(at(2), SessionId(2));
        assert_eq!(instances.next_wakeup(), Some(at(7)));
        // A client comes back in time.
        attach(&mut instances, 3, "a");
        assert_eq!((instances.next_wakeup(), instances.wake(at(7))), (None, Vec::new()));
        instances.detach(at(8), SessionId(3));
        assert_eq!(instances.wake(at(13)), [Effect::Stop(InstanceId(1))]);
        assert_eq!(instances.next_wakeup(), Some(at(13) + SHARE_HUB_IDLE));
        assert_eq!(instances.wake(at(13) + SHARE_HUB_IDLE), [Effect::End]);
        assert!(instances.attach(SessionId(4), &request("a")).is_err());
        assert_eq!((instances.next_wakeup(), instances.wake(at(99))), (None, Vec::new()));
    }

    #[test]
    fn clients_with_other_roots_are_kept_apart() {
        let roots = |uri: &str| Roots::Uris(vec![uri.to_owned()]);
        let mut instances = Instances::new(at(0));
        for session in 1..=3 {
            assert_eq!(attach(&mut instances, session, "a").0, 1);
        }
        assert!(instances.set_roots(SessionId(1), roots("file:///a")));
        assert!(instances.set_roots(SessionId(2), roots("file:///a")));
        assert!(!instances.set_roots(SessionId(3), roots("file:///b")));
        instances.detach(at(0), SessionId(3));
        let other = SessionRequest { roots: Some(roots("file:///b")), ..request("a") };
        let attached = instances.attach(SessionId(4), &other).expect("there is room");
        assert_eq!((attached.instance.0, attached.is_new), (2, true));
        let apart = vec!["apart from `docs-2`: roots".to_owned()];
        assert_eq!(instances.report("docs"), Some((2, apart)));
        // One that is alone takes its server along.
        assert!(instances.set_roots(SessionId(4), Roots::Unsupported));
        assert!(!instances.set_roots(SessionId(1), Roots::Unsupported));
    }

    #[test]
    fn a_hub_that_no_shim_uses_ends() {
        let mut instances = Instances::new(at(1));
        assert_eq!(instances.wake(at(1)), []);
        assert_eq!(instances.wake(at(1) + SHARE_HUB_IDLE), [Effect::End]);
    }

    #[test]
    fn sessions_and_servers_are_bounded() {
        let mut instances = Instances::new(at(0));
        for number in 0..SHARE_INSTANCES_MAX as u64 {
            attach(&mut instances, number, &number.to_string());
        }
        let refused = instances.attach(SessionId(1_000), &request("more"));
        assert!(refused.is_err_and(|why| why.contains("servers")));
        for number in SHARE_INSTANCES_MAX as u64..SHARE_SESSIONS_MAX as u64 {
            attach(&mut instances, number, "1");
        }
        let refused = instances.attach(SessionId(1_000), &request("1"));
        assert!(refused.is_err_and(|why| why.contains("sessions")));
        instances.forget(at(0), InstanceId(1));
        assert_eq!(instances.session_count(), SHARE_SESSIONS_MAX - 1);
    }
}
