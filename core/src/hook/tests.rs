//! What hooks are told, in which words, and when.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::delivery::DeliveryStage;
use super::*;
use crate::audit::Actor;
use crate::id::Generation;
use crate::limits::{
    HOOK_AGE_MAX, HOOK_QUEUE_LEN_MAX, HOOK_QUIET, HOOK_RETRY_AFTER_MAX, HOOK_TRIES_MAX,
};
use crate::random::Random;
use crate::service::{Ending, Event, Exit, SpawnFailure};
use crate::time::{Stamp, Time};

fn hook(name: &str, events: &[HookEvent]) -> HookDefinition {
    let target = HookTarget::Webhook {
        url: "http://127.0.0.1/".to_owned(),
        shape: Shape::Json,
        headers: Vec::new(),
    };
    HookDefinition { name: name.to_owned(), events: events.to_vec(), services: Vec::new(), target }
}

fn happening(event: HookEvent, service: &str) -> Happening {
    Happening {
        event,
        service: service.to_owned(),
        time: Stamp::since_unix_epoch(Duration::from_secs(1)),
        pid: Some(7),
        exit: Some(Exit::Code(1)),
        reason: Some("crash".to_owned()),
        restarts: 2,
        message: format!("{service} exited with code 1"),
    }
}

fn at(millis: u64) -> Time {
    Time::after_start(Duration::from_millis(millis))
}

fn again(why: &str) -> DeliveryFailure {
    DeliveryFailure { why: why.to_owned(), again: true, after: None }
}

fn delivered(effects: &[Effect]) -> Vec<(usize, String, u64, u64)> {
    let one = |effect: &Effect| match effect {
        Effect::Deliver(HookId(at), it) => {
            Some((*at, it.happening.service.clone(), it.count, it.dropped))
        }
        Effect::Tell(_) => None,
    };
    effects.iter().filter_map(one).collect()
}

fn told(effects: &[Effect]) -> Vec<&'static str> {
    let one = |effect: &Effect| match effect {
        Effect::Tell(record) => Some(record.event_type.name()),
        Effect::Deliver(..) => None,
    };
    effects.iter().filter_map(one).collect()
}

fn failure(permanent: bool) -> SpawnFailure {
    SpawnFailure { message: "no such command".to_owned(), hint: None, permanent, code: 127 }
}

fn exited(ending: Ending) -> Event {
    Event::Exited { pid: Some(7), exit: Exit::Code(1), ending, uptime: Duration::from_secs(1) }
}

fn started(pid: u32) -> Event {
    Event::Started { pid, generation: Generation(1), restarts: 3 }
}

#[test]
fn every_way_to_end_badly_is_a_crash_and_no_other() {
    let bad = [
        Ending::Crash,
        Ending::Killed,
        Ending::HandshakeFailed("no answer".to_owned()),
        Ending::HealthFailed("503".to_owned()),
    ];
    let well = [
        Ending::Clean,
        Ending::RestartRequested,
        Ending::StoppedByUser,
        Ending::Retired,
        Ending::Dismissed,
        Ending::Shutdown,
        Ending::Replaced,
        Ending::Unused,
        Ending::DiedOfProbe,
    ];
    let mut stories = Stories::default();
    let mut hear = |event: Event| -> Vec<HookEvent> {
        let told = stories.hear(Stamp::default(), "web", "Web", &event);
        told.into_iter().map(|happening| happening.event).collect()
    };
    for ending in bad {
        assert_eq!(hear(exited(ending.clone())), [HookEvent::Crash], "{ending}");
    }
    for ending in well {
        assert_eq!(hear(exited(ending.clone())), [], "{ending}");
    }
    assert_eq!(hear(Event::SpawnFailed(failure(false))), [HookEvent::Crash]);
    let looping =
        Event::CrashLoop { crashes: 3, window: Duration::from_secs(60), delay: Duration::ZERO };
    assert_eq!(hear(looping), [HookEvent::CrashLoop]);
    assert_eq!(hear(Event::GaveUp { restarts: 5, last: Ending::Clean }), [HookEvent::GaveUp]);
    assert_eq!(hear(Event::Recovered { uptime: Duration::from_secs(60) }), [HookEvent::Recovered]);
    assert_eq!(hear(Event::Stopped(Ending::StoppedByUser)), []);
}

#[test]
fn what_never_ran_and_cannot_run_is_given_up() {
    let hear = |stories: &mut Stories, event: &Event| -> Vec<HookEvent> {
        let told = stories.hear(Stamp::default(), "web", "Web", event);
        told.into_iter().map(|happening| happening.event).collect()
    };
    let mut stories = Stories::default();
    let both = [HookEvent::Crash, HookEvent::GaveUp];
    assert_eq!(hear(&mut stories, &Event::SpawnFailed(failure(true))), both);
    // One that has run is tried again: the program may be back soon.
    hear(&mut stories, &started(8));
    assert_eq!(hear(&mut stories, &Event::SpawnFailed(failure(true))), [HookEvent::Crash]);
}

#[test]
fn a_restart_that_was_asked_for_is_told_when_it_is_done() {
    let mut stories = Stories::default();
    let mut hear = |event: Event| stories.hear(Stamp::default(), "web", "Web", &event);
    assert_eq!(hear(started(7)), []);
    let (reason, by) = ("new code".to_owned(), Actor::Afresh("test"));
    let asked = Event::RestartRequested { pid: Some(7), reason, by };
    assert_eq!(hear(asked.clone()), []);
    assert_eq!(hear(exited(Ending::Replaced)), []);
    let told = hear(started(8));
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].event, told[0].pid), (HookEvent::Restarted, Some(8)));
    assert_eq!(told[0].reason.as_deref(), Some("new code"));
    assert_eq!(told[0].message, "Web was restarted (pid 8): new code");
    assert_eq!(hear(started(9)), [], "told once");
    // A swap that fails, or a stop, is no restart.
    hear(asked.clone());
    hear(Event::SwapFailed { pid: None, why: "it crashed".to_owned() });
    assert_eq!(hear(started(10)), []);
    hear(asked);
    hear(Event::Stopped(Ending::StoppedByUser));
    assert_eq!(hear(started(11)), []);
}

#[test]
fn the_json_has_its_fields_and_no_secrets() {
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let mut happening = happening(HookEvent::Crash, "web");
    happening.reason = Some(format!("bad token {token}"));
    let about = About {
        host: "box".to_owned(),
        workspace: Some("/work".to_owned()),
        version: "0.1.0".to_owned(),
    };
    let delivery = Delivery { happening, count: 3, dropped: 1 };
    let text = delivery.to_json(&about);
    assert!(!text.contains(token), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({
        "event": "crash",
        "service": "web",
        "time": "1970-01-01T00:00:01.000Z",
        "host": "box",
        "workspace": "/work",
        "pid": 7,
        "exit": { "code": 1, "signal": null, "text": "exited with code 1" },
        "reason": "bad token [redacted]",
        "restarts": 2,
        "message": "web exited with code 1",
        "count": 3,
        "dropped": 1,
        "version": "0.1.0",
    });
    assert_eq!(value, expected);
}

#[test]
fn what_a_service_prints_calls_nobody() {
    let hostile = "<!channel> <@U123> @everyone & [x](http://evil) `*_~|>#\n\r\x1b[31m\0 \"}";
    let mut happening = happening(HookEvent::GaveUp, "wéb\r\nX-Evil: 1");
    happening.message = hostile.to_owned();
    let delivery = Delivery { happening, count: 1, dropped: 0 };
    let about = About::default();

    let slack = delivery.message(Shape::Slack, &about);
    let body: Value = serde_json::from_str(&slack.body).unwrap();
    let text = body["text"].as_str().unwrap();
    assert!(!text.contains(['<', '>', '\n', '\x1b', '\0']), "{text}");
    assert!(text.contains("&lt;!channel&gt;") && text.contains(" &amp; "), "{text}");

    let discord = delivery.message(Shape::Discord, &about);
    let body: Value = serde_json::from_str(&discord.body).unwrap();
    let text = body["content"].as_str().unwrap();
    assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
    assert!(text.contains(r"\<\@U123\>") && text.contains(r"\[x\]\(http\:\/\/evil\)"), "{text}");

    let ntfy = delivery.message(Shape::Ntfy, &about);
    let headers: BTreeMap<&str, String> = ntfy.headers.into_iter().collect();
    for value in headers.values() {
        assert!(value.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{value:?}");
    }
    assert_eq!(headers["priority"], "5");
    assert!(headers["title"].starts_with("afresh: w?b") && headers["title"].ends_with("gave up"));
    assert!(!ntfy.body.contains(['\n', '\r', '\x1b']), "{:?}", ntfy.body);
}

#[test]
fn every_message_ends_somewhere() {
    for filler in ["x", "*", "é", "🦀", "\\", "\n"] {
        let mut happening = happening(HookEvent::Crash, &filler.repeat(100_000));
        happening.message = filler.repeat(100_000);
        happening.reason = Some(filler.repeat(100_000));
        let delivery = Delivery { happening, count: 1, dropped: 0 };
        let about = About { host: filler.repeat(100_000), ..About::default() };
        assert!(delivery.to_json(&about).len() < 32_000);
        let discord: Value =
            serde_json::from_str(&delivery.message(Shape::Discord, &about).body).unwrap();
        let content = discord["content"].as_str().unwrap();
        assert!(content.encode_utf16().count() <= 2_000);
        assert!(!content.ends_with('\\'));
        assert!(delivery.message(Shape::Ntfy, &about).body.len() <= 4_000);
        assert!(delivery.message(Shape::Slack, &about).body.len() < 32_000);
    }
}

#[test]
fn a_hook_hears_only_what_it_asked_for() {
    let mut all = hook("all", &HookEvent::ALL);
    all.services = vec!["api".to_owned()];
    let crashes = hook("crashes", &[HookEvent::Crash]);
    let mut deliveries = Deliveries::new(vec![all, crashes], 1);
    let mut told = |event, service: &str| {
        let effects = deliveries.handle(at(0), Input::Happened(happening(event, service)));
        delivered(&effects).into_iter().map(|(hook, ..)| hook).collect::<Vec<_>>()
    };
    assert_eq!(told(HookEvent::GaveUp, "web"), [] as [usize; 0]);
    assert_eq!(told(HookEvent::Crash, "web"), [1]);
    assert_eq!(told(HookEvent::GaveUp, "api"), [0]);
}

#[test]
fn a_storm_is_two_messages() {
    let mut deliveries = Deliveries::new(vec![hook("h", &[HookEvent::Crash])], 1);
    let mut sent = Vec::new();
    for millis in 0..1_000 {
        let input = Input::Happened(happening(HookEvent::Crash, "web"));
        let effects = deliveries.handle(at(millis), input);
        if !delivered(&effects).is_empty() {
            sent.extend(delivered(&effects));
            deliveries.handle(at(millis), Input::Delivered(HookId(0)));
        }
    }
    assert_eq!(deliveries.next_wakeup(), Some(at(10_000)));
    let effects = deliveries.handle(at(10_000), Input::Wakeup);
    sent.extend(delivered(&effects));
    assert_eq!(sent, [(0, "web".to_owned(), 1, 0), (0, "web".to_owned(), 999, 0)]);
    deliveries.handle(at(10_000), Input::Delivered(HookId(0)));
    // After a quiet time nothing is left to wake up for.
    deliveries.handle(at(20_000), Input::Wakeup);
    assert_eq!(deliveries.next_wakeup(), None);
}

#[test]
fn failures_wait_longer_and_longer_and_are_said_once() {
    let mut deliveries = Deliveries::new(vec![hook("h", &[HookEvent::Crash])], 1);
    deliveries.handle(at(0), Input::Happened(happening(HookEvent::Crash, "web")));
    let (mut now, mut said, mut waits) = (at(0), Vec::new(), Vec::new());
    for _ in 1..HOOK_TRIES_MAX {
        said.extend(told(&deliveries.handle(now, Input::Failed(HookId(0), again("503")))));
        let next = deliveries.lines_pause().unwrap();
        waits.push(next.since(now).as_secs_f64());
        now = next;
        assert_eq!(delivered(&deliveries.handle(now, Input::Wakeup)).len(), 1);
    }
    for (n, wait) in waits.iter().enumerate() {
        let plain = f64::from(1 << n).min(60.0);
        assert!(*wait >= plain && *wait <= plain * 1.5, "{n}: {wait}");
    }
    assert_eq!(said, ["hook_failed"]);
    let effects = deliveries.handle(now, Input::Failed(HookId(0), again("503")));
    assert_eq!(told(&effects), ["hook_event_lost"]);
    // The next one says what is missing, and that it works is said too.
    let effects = deliveries.handle(now, Input::Happened(happening(HookEvent::Crash, "api")));
    assert_eq!(delivered(&effects), [(0, "api".to_owned(), 1, 1)]);
    let effects = deliveries.handle(now, Input::Delivered(HookId(0)));
    assert_eq!(told(&effects), ["hook_recovered"]);
}

#[test]
fn a_receiver_is_left_alone_as_long_as_it_asks_within_reason() {
    for (asked, least) in [(20, 20), (100_000, HOOK_RETRY_AFTER_MAX.as_secs())] {
        let mut deliveries = Deliveries::new(vec![hook("h", &[HookEvent::Crash])], 1);
        deliveries.handle(at(0), Input::Happened(happening(HookEvent::Crash, "web")));
        let after = Some(Duration::from_secs(asked));
        let failure = DeliveryFailure { after, ..again("429") };
        deliveries.handle(at(0), Input::Failed(HookId(0), failure));
        let pause = deliveries.lines_pause().unwrap();
        assert_eq!(pause.since_start().as_secs(), least);
    }
}

#[test]
fn what_cannot_help_is_not_tried_again() {
    let command = HookTarget::Command(vec!["true".to_owned()]);
    for (target, tries) in [(command, 3), (HookTarget::Desktop, 1)] {
        let definition = HookDefinition { target, ..hook("h", &[HookEvent::Crash]) };
        let mut deliveries = Deliveries::new(vec![definition], 1);
        deliveries.handle(at(0), Input::Happened(happening(HookEvent::Crash, "web")));
        let mut count = 1;
        let mut now = at(0);
        loop {
            deliveries.handle(now, Input::Failed(HookId(0), again("x")));
            let Some(pause) = deliveries.lines_pause() else { break };
            now = pause;
            count += 1;
            deliveries.handle(now, Input::Wakeup);
        }
        assert_eq!(count, tries);
    }
    let mut deliveries = Deliveries::new(vec![hook("h", &[HookEvent::Crash])], 1);
    deliveries.handle(at(0), Input::Happened(happening(HookEvent::Crash, "web")));
    let never = DeliveryFailure { again: false, ..again("404") };
    let effects = deliveries.handle(at(0), Input::Failed(HookId(0), never));
    assert_eq!(told(&effects), ["hook_failed", "hook_event_lost"]);
    assert!(deliveries.is_done());
}

#[test]
fn the_end_tries_what_waits() {
    let mut deliveries = Deliveries::new(vec![hook("h", &[HookEvent::Crash])], 1);
    for _ in 0..3 {
        deliveries.handle(at(0), Input::Happened(happening(HookEvent::Crash, "web")));
    }
    deliveries.handle(at(0), Input::Failed(HookId(0), again("503")));
    let effects = deliveries.handle(at(1), Input::Close);
    assert_eq!(delivered(&effects), [(0, "web".to_owned(), 1, 0)]);
    assert_eq!(deliveries.left(), [Undelivered { hook: "h".to_owned(), count: 3 }]);
    let effects = deliveries.handle(at(2), Input::Delivered(HookId(0)));
    assert_eq!(delivered(&effects), [(0, "web".to_owned(), 2, 0)]);
    deliveries.handle(at(3), Input::Delivered(HookId(0)));
    assert!(deliveries.is_done() && deliveries.left().is_empty());
}

#[test]
fn an_answer_says_whether_to_try_again() {
    for status in [200, 201, 204, 299] {
        assert_eq!(DeliveryFailure::of_answer(status, None, b""), Ok(()));
    }
    for (status, again) in [
        (301, false),
        (308, false),
        (400, false),
        (401, false),
        (404, false),
        (408, true),
        (410, false),
        (425, true),
        (429, true),
        (500, true),
        (503, true),
        (999, true),
    ] {
        let failure = DeliveryFailure::of_answer(status, Some("7"), b"no\nway\x1b[0m").unwrap_err();
        assert_eq!(failure.again, again, "{status}");
        assert_eq!(failure.after, Some(Duration::from_secs(7)));
        assert!(failure.why.ends_with("no way␛[0m"), "{}", failure.why);
    }
    for nonsense in ["soon", "-1", "", "1.5", "Wed, 21 Oct 2015 07:28:00 GMT"] {
        let failure = DeliveryFailure::of_answer(503, Some(nonsense), b"").unwrap_err();
        assert_eq!(failure.after, None, "{nonsense}");
    }
    let long = DeliveryFailure::of_answer(500, None, &[b'x'; 100_000]).unwrap_err();
    assert!(long.why.len() < 1_000);
}

/// Random histories: nothing is told twice, nothing goes without being counted, no queue grows.
#[test]
fn everything_is_told_or_counted() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mut deliveries = Deliveries::new(vec![hook("h", &HookEvent::ALL)], seed);
        let (mut now, mut happened, mut arrived, mut out) = (at(0), 0_u64, 0_u64, None);
        let (mut mentioned, mut last_try) = (0_u64, at(0));
        for _ in 0..400 {
            now = now + Duration::from_millis((random.unit() * 3_000.0) as u64);
            let input = match (random.unit() * 6.0) as u32 {
                0..=2 => {
                    happened += 1;
                    let event = HookEvent::ALL[(random.unit() * 5.0) as usize];
                    let service = format!("s{}", (random.unit() * 20.0) as u32);
                    Input::Happened(happening(event, &service))
                }
                3 if random.unit() < 0.5 => Input::Delivered(HookId(0)),
                4 => {
                    let again = random.unit() < 0.8;
                    let after = (random.unit() < 0.2).then_some(Duration::from_secs(9_000));
                    Input::Failed(HookId(0), DeliveryFailure { why: "x".to_owned(), again, after })
                }
                _ => Input::Wakeup,
            };
            if input == Input::Delivered(HookId(0))
                && let Some((count, dropped)) = out.take()
            {
                arrived += count;
                mentioned += dropped;
            }
            if matches!(input, Input::Failed(..)) {
                out = None;
            }
            for (_, _, count, dropped) in delivered(&deliveries.handle(now, input)) {
                assert!(out.is_none(), "one at a time");
                out = Some((count, dropped));
                last_try = now;
            }
            assert!(deliveries.queue_len() <= HOOK_QUEUE_LEN_MAX);
            let lag = deliveries.next_wakeup().map_or(Duration::ZERO, |next| next.since(now));
            assert!(lag <= HOOK_RETRY_AFTER_MAX.max(HOOK_QUIET), "{lag:?}");
            let pending: u64 = deliveries.left().iter().map(|left| left.count).sum();
            let missing = deliveries.dropped_so_far() + mentioned;
            assert_eq!(happened, arrived + pending + missing, "seed {seed}");
        }
        assert!(now.since(last_try) < HOOK_AGE_MAX * 2, "seed {seed}: it goes on");
    }
}

impl Deliveries {
    /// When the first hook is tried again.
    fn lines_pause(&self) -> Option<Time> {
        match self.queues[0].stage {
            DeliveryStage::Pausing { until, .. } => Some(until),
            DeliveryStage::Idle | DeliveryStage::Out { .. } => None,
        }
    }

    fn queue_len(&self) -> usize {
        self.queues[0].queue.len()
    }

    fn dropped_so_far(&self) -> u64 {
        let line = &self.queues[0];
        line.dropped + line.queue.iter().map(|waiting| waiting.delivery.dropped).sum::<u64>()
    }
}
