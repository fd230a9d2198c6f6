//! Owns the deliveries of hooks: a short queue for each, one delivery at a time, growing waits after a failure; what a
//! webhook's answer means; and the notices about a hook that begins to fail or works again.
//!
//! Driven by the daemon's hooks, which perform its effects. Never sends and reads no clock.
//!
//! ```text
//!   Happened ──▶ quiet? ──held, counted──▶ queue ──▶ out ──Delivered──▶ next
//!                  └────────first of its kind───▲     │ Failed
//!                                               └─ pausing ──tries or time used up──▶ lost, counted
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Delivery, Happening, HookDefinition, HookEvent, HookTarget};
use crate::audit::redact::excerpt;
use crate::audit::{EventType, Level, Record};
use crate::duration::show_duration;
use crate::exponential_wait::{ExponentialWait, spread};
use crate::limits::{
    HOOK_AGE_MAX, HOOK_COMMAND_TRIES_MAX, HOOK_QUEUE_LEN_MAX, HOOK_QUIET, HOOK_RETRY_AFTER_MAX,
    HOOK_RETRY_DELAY, HOOK_RETRY_DELAY_MAX, HOOK_TRIES_MAX,
};
use crate::random::Random;
use crate::time::Time;

/// One hook, in the order of the definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookId(pub usize);

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Something to tell.
    Happened(Happening),
    /// The hook was told what it was sent.
    Delivered(HookId),
    /// It was not.
    Failed(HookId, DeliveryFailure),
    /// The moment that `next_wakeup` gave has come.
    Wakeup,
    /// afresh ends: what waits for a better moment is tried now.
    Close,
}

/// Why a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// As a sentence, without the secrets of a URL.
    pub why: String,
    /// Whether trying again can help.
    pub again: bool,
    /// How long the receiver wants to be left alone.
    pub after: Option<Duration>,
}

/// Something that must be done, in the order given.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Tell a hook; answer with `Delivered` or `Failed`.
    Deliver(HookId, Delivery),
    /// Record that a hook begins to fail, has lost an event, or works again. The logger is the caller's.
    Tell(Record),
}

/// What a hook has not been told when afresh ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undelivered {
    /// Its name.
    pub hook: String,
    /// How many events.
    pub count: u64,
}

/// The deliveries of all hooks.
#[derive(Debug)]
pub struct Deliveries {
    pub(super) queues: Vec<HookQueue>,
    random: Random,
}

/// What waits for one hook.
#[derive(Debug)]
pub(super) struct HookQueue {
    definition: HookDefinition,
    /// The front is what is being told.
    pub(super) queue: VecDeque<QueuedDelivery>,
    pub(super) stage: DeliveryStage,
    /// What was told of late, by service and event.
    quiet: BTreeMap<(String, HookEvent), QuietPeriod>,
    /// What was never told, and is mentioned with the next delivery.
    pub(super) dropped: u64,
    /// Events that were lost since it began to fail; none while it works.
    failing: Option<u64>,
}

#[derive(Debug)]
pub(super) struct QueuedDelivery {
    pub(super) delivery: Delivery,
    since: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum DeliveryStage {
    Idle,
    Out { tries: u32 },
    Pausing { tries: u32, until: Time },
}

type Props = Vec<(&'static str, Value)>;

/// The same is told again only after this.
#[derive(Debug)]
struct QuietPeriod {
    until: Time,
    held: Option<Delivery>,
}

impl Deliveries {
    /// With nothing to tell yet. Equal seeds and equal inputs give equal histories.
    pub fn new(definitions: Vec<HookDefinition>, seed: u64) -> Self {
        let queue = |definition| HookQueue {
            definition,
            queue: VecDeque::new(),
            stage: DeliveryStage::Idle,
            quiet: BTreeMap::new(),
            dropped: 0,
            failing: None,
        };
        let queues = definitions.into_iter().map(queue).collect();
        Self { queues, random: Random::new(seed) }
    }

    /// Records one input, and returns what has to be done now.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Happened(happening) => {
                let wants = |queue: &&mut HookQueue| queue.definition.wants(&happening);
                for queue in self.queues.iter_mut().filter(wants) {
                    queue.take(now, happening.clone());
                }
            }
            Input::Delivered(HookId(at)) => {
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.delivered(&mut effects);
                }
            }
            Input::Failed(HookId(at), failure) => {
                let jitter = self.random.unit();
                if let Some(queue) = self.queues.get_mut(at) {
                    queue.failed(now, failure, jitter, &mut effects);
                }
            }
            Input::Wakeup => {}
            Input::Close => self.queues.iter_mut().for_each(|queue| queue.close(now)),
        }
        for (at, queue) in self.queues.iter_mut().enumerate() {
            queue.release(now);
            effects.extend(queue.next(now).map(|it| Effect::Deliver(HookId(at), it)));
        }
        effects
    }

    /// When `handle` wants to be called with `Wakeup`, if nothing else happens before.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.queues.iter().filter_map(HookQueue::next_wakeup).min()
    }

    /// Whether everything was told, or is lost.
    pub fn is_done(&self) -> bool {
        self.queues.iter().all(|queue| queue.untold() == 0)
    }

    /// What has not been told.
    pub fn left(&self) -> Vec<Undelivered> {
        let left = |queue: &HookQueue| Undelivered {
            hook: queue.definition.name.clone(),
            count: queue.untold(),
        };
        self.queues.iter().map(left).filter(|left| left.count > 0).collect()
    }

    /// The hook of an id.
    pub fn definition(&self, HookId(at): HookId) -> Option<&HookDefinition> {
        self.queues.get(at).map(|queue| &queue.definition)
    }
}

impl HookDefinition {
    /// Whether it is to be told this.
    pub fn wants(&self, happening: &Happening) -> bool {
        let about = self.services.is_empty() || self.services.contains(&happening.service);
        about && self.events.contains(&happening.event)
    }

    const fn tries_max(&self) -> u32 {
        match self.target {
            HookTarget::Webhook { .. } => HOOK_TRIES_MAX,
            HookTarget::Command(_) => HOOK_COMMAND_TRIES_MAX,
            // A late notification is useless.
            HookTarget::Desktop => 1,
        }
    }
}

impl HookQueue {
    /// The first of its kind goes at once; what follows soon is told together.
    fn take(&mut self, now: Time, happening: Happening) {
        let key = (happening.service.clone(), happening.event);
        let mut delivery = Delivery { happening, count: 1, dropped: 0 };
        if let Some(quiet) = self.quiet.get_mut(&key).filter(|quiet| quiet.until > now) {
            delivery.count += quiet.held.as_ref().map_or(0, |held| held.count);
            quiet.held = Some(delivery);
            return;
        }
        // One that was due is not behind the new one.
        let before = self.quiet.insert(key, QuietPeriod { until: now + HOOK_QUIET, held: None });
        delivery.count += before.and_then(|quiet| quiet.held).map_or(0, |held| held.count);
        self.push(now, delivery);
    }

    /// Queues what was held for long enough.
    fn release(&mut self, now: Time) {
        if self.quiet.values().all(|quiet| quiet.until > now) {
            return;
        }
        let due = |_: &(String, HookEvent), quiet: &mut QuietPeriod| quiet.until <= now;
        for (key, quiet) in self.quiet.extract_if(.., due).collect::<Vec<_>>() {
            if let Some(held) = quiet.held {
                self.quiet.insert(key, QuietPeriod { until: now + HOOK_QUIET, held: None });
                self.push(now, held);
            }
        }
    }

    /// At the bound the oldest goes, but for the one that is being told.
    fn push(&mut self, now: Time, delivery: Delivery) {
        if self.queue.len() >= HOOK_QUEUE_LEN_MAX {
            let oldest = usize::from(!matches!(self.stage, DeliveryStage::Idle));
            if let Some(lost) = self.queue.remove(oldest) {
                self.dropped += lost.delivery.count + lost.delivery.dropped;
            }
        }
        self.queue.push_back(QueuedDelivery { delivery, since: now });
    }

    /// What is to be told now.
    fn next(&mut self, now: Time) -> Option<Delivery> {
        let tries = match self.stage {
            DeliveryStage::Idle => 1,
            DeliveryStage::Pausing { tries, until } if until <= now => tries + 1,
            DeliveryStage::Out { .. } | DeliveryStage::Pausing { .. } => return None,
        };
        let front = self.queue.front_mut()?;
        front.delivery.dropped += std::mem::take(&mut self.dropped);
        self.stage = DeliveryStage::Out { tries };
        Some(front.delivery.clone())
    }

    fn next_wakeup(&self) -> Option<Time> {
        let pause = match self.stage {
            DeliveryStage::Pausing { until, .. } => Some(until),
            DeliveryStage::Idle | DeliveryStage::Out { .. } => None,
        };
        self.quiet.values().map(|quiet| quiet.until).chain(pause).min()
    }

    fn delivered(&mut self, effects: &mut Vec<Effect>) {
        if !matches!(self.stage, DeliveryStage::Out { .. }) {
            return;
        }
        self.stage = DeliveryStage::Idle;
        self.queue.pop_front();
        if let Some(lost) = self.failing.take() {
            let lost_events = match lost {
                0 => String::new(),
                1 => "; one event was lost".to_owned(),
                lost => format!("; {lost} events were lost"),
            };
            let said = format!("works again{lost_events}");
            let props = vec![("lost", lost.into())];
            effects.push(self.tell(Level::Info, EventType::HookRecovered, &said, props));
        }
    }

    fn failed(
        &mut self,
        now: Time,
        failure: DeliveryFailure,
        jitter: f64,
        effects: &mut Vec<Effect>,
    ) {
        let DeliveryStage::Out { tries } = self.stage else { return };
        let Some(front) = self.queue.front() else { return };
        let wait = pause_after(tries, failure.after, jitter);
        let in_time = now.since(front.since) + wait <= HOOK_AGE_MAX;
        let again = failure.again && tries < self.definition.tries_max() && in_time;
        let why = failure.why;
        let Happening { event, service, .. } = &front.delivery.happening;
        let (about, event) =
            (format!("told of `{}` of {service}: {why}", event.name()), event.name());
        let mut props: Props =
            vec![("service", json!(service)), ("event", json!(event)), ("error", json!(why))];
        if self.failing.is_none() {
            self.failing = Some(0);
            let then = match again {
                true => format!("trying again in {}", show_duration(wait)),
                false => "not trying again".to_owned(),
            };
            let said = format!("was not {about}; {then}");
            effects.push(self.tell(Level::Warning, EventType::HookFailed, &said, props.clone()));
        }
        if again {
            self.stage = DeliveryStage::Pausing { tries, until: now + wait };
            return;
        }
        self.stage = DeliveryStage::Idle;
        if let Some(QueuedDelivery { delivery, .. }) = self.queue.pop_front() {
            let Delivery { count, dropped, .. } = delivery;
            self.dropped += count + dropped;
            self.failing = self.failing.map(|lost| lost + count);
            props.push(("count", count.into()));
            let said = format!("is never {about}");
            effects.push(self.tell(Level::Error, EventType::HookEventLost, &said, props));
        }
    }

    /// Says something about the hook itself.
    fn tell(&self, level: Level, event_type: EventType, said: &str, props: Props) -> Effect {
        let hook = &self.definition.name;
        let props = [("hook", json!(hook))].into_iter().chain(props).collect();
        let message = format!("hook `{hook}` {said}");
        Effect::Tell(Record { level, logger: String::new(), message, event_type, props })
    }

    /// Nothing is held back any more.
    fn close(&mut self, now: Time) {
        for quiet in std::mem::take(&mut self.quiet).into_values() {
            if let Some(held) = quiet.held {
                self.push(now, held);
            }
        }
        if let DeliveryStage::Pausing { until, .. } = &mut self.stage {
            *until = now;
        }
    }

    fn untold(&self) -> u64 {
        let queued = self.queue.iter().map(|waiting| waiting.delivery.count);
        let held = self.quiet.values().filter_map(|quiet| quiet.held.as_ref());
        queued.chain(held.map(|held| held.count)).sum()
    }
}

/// The wait after so many tries: doubled each time, with up to half on top, and at least what the
/// receiver asks for.
fn pause_after(tries: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let waits = ExponentialWait::doubling(HOOK_RETRY_DELAY, HOOK_RETRY_DELAY_MAX);
    let wait = waits.after(tries.saturating_sub(1));
    spread(wait, 0.5, jitter).max(asked.unwrap_or_default().min(HOOK_RETRY_AFTER_MAX))
}

impl DeliveryFailure {
    /// Whether a webhook took what it was sent. `retry_after` is the header of that name.
    pub fn of_answer(status: u16, retry_after: Option<&str>, body: &[u8]) -> Result<(), Self> {
        let again = match status {
            200..=299 => return Ok(()),
            // Too early, too much, or a server in trouble: later it may be another answer.
            408 | 425 | 429 | 500.. => true,
            _ => false,
        };
        let advice = match status {
            300..=399 => "; redirects are not followed, so give the URL that it leads to",
            401 | 403 => "; the URL or its headers lack what it asks for",
            404 | 410 => "; there is no such webhook",
            _ => "",
        };
        let said = excerpt(body);
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let seconds = retry_after.and_then(|text| text.trim().parse::<u64>().ok());
        let after = seconds.map(Duration::from_secs);
        Err(Self { why: format!("it answered with {status}{advice}{said}"), again, after })
    }
}
