//! A server that hangs, and servers that only look like it.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A legacy session with a call in flight.
fn bench() -> Bench {
    bench_with(TIMEOUT)
}

fn bench_with(timeout: Duration) -> Bench {
    let mut bench = Bench::new();
    let settings = Settings { wedge_timeout: Some(timeout), ..settings(WhichTools::None) };
    bench.conversation = Conversation::new(&settings);
    bench.start(1);
    bench.client(INITIALIZE);
    bench.server(1, INITIALIZED_RESULT);
    bench.client(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    bench.client(CALL);
    bench
}

impl Bench {
    /// Wakes whenever it is wanted, for so long; the processes have worked so much each time.
    fn wait(&mut self, long: Duration, works: bool) -> Vec<Done> {
        let until = self.now + long;
        let (mut all, mut worked) = (Vec::new(), Duration::ZERO);
        while let Some(at) = self.conversation.next_wakeup().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let mut done = self.handle(Input::Wakeup);
            if done.iter().any(|done| matches!(done, Done::Other(Effect::Sample(_)))) {
                if works {
                    worked += self.now.since_start();
                }
                let generation = Generation(1);
                done.extend(self.handle(Input::Worked { generation, time: Some(worked) }));
            }
            all.extend(done);
        }
        self.now = until;
        all
    }
}

fn probes(done: &[Done]) -> usize {
    done.iter().filter(|d| matches!(d, Done::Server(1, line) if line.contains("ping"))).count()
}

fn wedged(done: &[Done]) -> bool {
    done.iter().any(|done| matches!(done, Done::Other(Effect::Wedged { .. })))
}

#[test]
fn one_that_is_silent_and_idle_and_ignores_the_probe_is_wedged() {
    let mut bench = bench();
    let done = bench.wait(TIMEOUT + Duration::from_secs(2), false);
    assert_eq!((probes(&done), wedged(&done)), (1, false), "{done:?}");
    let done = bench.wait(TIMEOUT * 2, false);
    assert!(wedged(&done), "{done:?}");
}

#[test]
fn one_that_works_or_speaks_or_owes_nothing_is_not() {
    let mut busy = bench();
    assert!(!wedged(&busy.wait(TIMEOUT * 20, true)));
    let mut talkative = bench();
    for _ in 0..20 {
        let done = talkative.wait(TIMEOUT / 2, false);
        assert!(!wedged(&done) && probes(&done) == 0, "{done:?}");
        talkative.server(1, r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#);
    }
    let mut polite = bench();
    let done = polite.wait(TIMEOUT + Duration::from_secs(2), false);
    assert_eq!(polite.answer_probe(&done), [], "the answer is ours");
    assert!(!wedged(&polite.wait(TIMEOUT, false)));
    let mut idle = bench();
    idle.server(1, &result(7));
    idle.wait(TIMEOUT, false);
    assert_eq!(idle.conversation.next_wakeup(), None, "nothing is looked at");
    assert_eq!(idle.wait(TIMEOUT * 20, false), []);
}

const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;

impl Bench {
    /// The server answers the probe that is among this.
    fn answer_probe(&mut self, done: &[Done]) -> Vec<Done> {
        let ping = done.iter().find_map(|done| match done {
            Done::Server(1, line) if line.contains("ping") => Some(line.clone()),
            _ => None,
        });
        let ping = ping.expect("it is asked");
        let id = json::get(ping.as_bytes(), &["id"]).expect("an id");
        let id = String::from_utf8_lossy(id).into_owned();
        self.server(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#))
    }
}

fn silences(done: &[Done]) -> Vec<bool> {
    let silences = done.iter().filter_map(|done| match done {
        Done::Other(Effect::Silent { silence, .. }) => Some(silence.is_some()),
        _ => None,
    });
    silences.collect()
}

#[test]
fn who_answers_a_probe_may_leave_a_call_that_was_given_up_unanswered() {
    let mut polite = bench();
    polite.client(CANCEL);
    let done = polite.wait(TIMEOUT + Duration::from_secs(2), false);
    assert_eq!(polite.answer_probe(&done), []);
    assert_eq!(polite.wait(TIMEOUT * 20, false), [], "it is asked once");
    let mut hung = bench();
    hung.now = hung.now + Duration::from_secs(1);
    hung.client(CANCEL);
    let done = hung.wait(TIMEOUT * 3, false);
    assert!(wedged(&done), "{done:?}");
    assert_eq!(silences(&done), [true]);
}

#[test]
fn the_lists_of_a_silent_server_come_from_memory() {
    let mut bench = bench_with(TIMEOUT * 30);
    let list = |id: u8, more: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{{more}}}}}"#)
    };
    bench.client(&list(8, ""));
    bench.server(1, r#"{"jsonrpc":"2.0","id":8,"result":{"tools":[{"name":"get"}],"x":1}}"#);
    bench.client(r#"{"jsonrpc":"2.0","id":9,"method":"prompts/list"}"#);
    bench.server(1, r#"{"jsonrpc":"2.0","id":9,"result":{"prompts":[],"nextCursor":"2"}}"#);
    let is_sent = |done: Vec<Done>| matches!(&done[..], [Done::Server(1, _)]);
    assert!(is_sent(bench.client(&list(10, ""))), "it is asked while it answers");
    bench.server(1, r#"{"jsonrpc":"2.0","id":10,"result":{"tools":[{"name":"get"}],"x":2}}"#);
    // What was asked before is answered as soon as the silence is noticed; a late answer is dropped.
    assert!(is_sent(bench.client(&list(16, ""))));
    assert!(is_sent(bench.client(&list(17, r#""cursor":"2""#))));
    let done = bench.wait(Duration::from_secs(51), false);
    assert_eq!((silences(&done), wedged(&done)), (vec![true], false), "{done:?}");
    let told: Vec<&Done> = done.iter().filter(|done| matches!(done, Done::Client(_))).collect();
    let answer = r#"{"jsonrpc":"2.0","id":16,"result":{"tools":[{"name":"get"}],"x":2}}"#;
    assert_eq!(told, [&Done::Client(answer.to_owned())]);
    let answer = r#"{"jsonrpc":"2.0","id":11,"result":{"tools":[{"name":"get"}],"x":2}}"#;
    assert_eq!(bench.client(&list(11, "")), [Done::Client(answer.to_owned())]);
    // Another page, a list of several, and one that is not known are the server's to answer.
    assert!(is_sent(bench.client(&list(12, r#""cursor":"2""#))));
    assert!(is_sent(bench.client(r#"{"jsonrpc":"2.0","id":13,"method":"prompts/list"}"#)));
    assert!(is_sent(bench.client(r#"{"jsonrpc":"2.0","id":14,"method":"resources/list"}"#)));
    // It was only slow.
    assert_eq!(silences(&bench.server(1, &result(7))), [false]);
    let late = r#"{"jsonrpc":"2.0","id":16,"result":{"tools":[{"name":"get"}],"x":3}}"#;
    assert_eq!(bench.server(1, late), []);
    assert!(is_sent(bench.client(&list(15, ""))));
}

#[test]
fn the_calls_of_a_server_that_hangs_are_answered_when_it_is_to_be_replaced() {
    let mut bench = bench();
    bench.client(r#"{"jsonrpc":"2.0","id":8,"method":"resources/read","params":{"uri":"x"}}"#);
    let replace = |bench: &mut Bench, generation: u64, is_stopped: bool| {
        bench.handle(Input::Replacing { generation: Generation(generation), is_stopped })
    };
    assert_eq!(replace(&mut bench, 2, true), [], "another one");
    assert_eq!(replace(&mut bench, 1, false), [], "it may answer");
    // One that works may answer, though it is silent; one that does nothing will not.
    for (works, answers) in [(true, 0), (false, 1)] {
        let mut silent = bench_with(TIMEOUT * 30);
        assert_eq!(silences(&silent.wait(Duration::from_secs(75), works)), [true]);
        assert_eq!(replace(&mut silent, 1, false).len(), answers, "{works}");
    }
    let done = replace(&mut bench, 1, true);
    let [Done::Client(answer)] = &done[..] else { panic!("{done:?}") };
    assert!(answer.contains(r#""id":7"#) && answer.contains("outcome is unknown"), "{answer}");
    assert!(answer.contains("The server hung, and is ended for a restart"), "{answer}");
    assert_eq!(bench.server(1, &result(7)), [], "too late");
}

#[test]
fn who_waits_for_a_server_that_does_not_start_hears_why_after_the_second_time() {
    let mut bench = Bench::new();
    let fail = |bench: &mut Bench, generation: u64| {
        bench.start(generation);
        let how =
            format!("exited with code 1; the last lines of its stderr:\nno key ({generation})");
        let (generation, cause) = (Generation(generation), EndCause::ByItself);
        bench.handle(Input::Ended { generation, read: None, how, cause })
    };
    bench.client(INITIALIZE);
    assert_eq!(fail(&mut bench, 1), []);
    assert_eq!(fail(&mut bench, 2), []);
    let done = bench.wait(Duration::from_secs(3), false);
    let [Done::Client(answer)] = &done[..] else { panic!("{done:?}") };
    assert!(answer.contains("2 instances in a row") && answer.contains("no key (2)"), "{answer}");
    // It is tried again: who asks meanwhile waits for that one alone.
    bench.start(3);
    bench.client(INITIALIZE);
    let how = "exited with code 1".to_owned();
    let (generation, cause) = (Generation(3), EndCause::ByItself);
    let done = bench.handle(Input::Ended { generation, read: None, how, cause });
    assert!(
        matches!(&done[..], [Done::Client(answer)] if answer.contains("server_down")),
        "{done:?}"
    );
    bench.start(4);
    bench.client(INITIALIZE);
    assert!(matches!(&bench.server(4, INITIALIZED_RESULT)[..], [Done::Client(_)]));
}

#[test]
fn a_failure_to_start_is_forgotten_when_an_instance_answers() {
    let mut bench = Bench::new();
    let end = |bench: &mut Bench, generation: u64, how: &str| {
        let (generation, cause) = (Generation(generation), EndCause::ByItself);
        bench.handle(Input::Ended { generation, read: None, how: how.to_owned(), cause })
    };
    bench.client(INITIALIZE);
    for generation in [1, 2] {
        bench.start(generation);
        assert_eq!(end(&mut bench, generation, "exited with code 1"), []);
    }
    // The third one starts slowly, and the failures are reported meanwhile.
    bench.start(3);
    bench.wait(Duration::from_secs(3), false);
    assert!(matches!(&bench.server(3, INITIALIZED_RESULT)[..], [Done::Client(_)]));
    end(&mut bench, 3, "was killed");
    assert_eq!(bench.client(r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#), [], "it waits");
    let opened = bench.start(4);
    let Some(Done::Server(4, opening)) = opened.first() else { panic!("{opened:?}") };
    let id = json::get(opening.as_bytes(), &["id"]).expect("an id");
    let id = String::from_utf8_lossy(id).into_owned();
    let served =
        bench.server(4, &INITIALIZED_RESULT.replace(r#""id":0"#, &format!(r#""id":{id}"#)));
    let is_it = |done: &Done| matches!(done, Done::Server(4, line) if line.contains("tools/list"));
    assert!(served.iter().any(is_it), "{served:?}");
}

const TOOLS_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn list_tools(id: u8) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#)
}

fn tools(id: u8, names: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{names}]}}}}"#)
}

#[test]
fn a_list_that_has_changed_does_not_come_from_memory() {
    let mut bench = bench_with(TIMEOUT * 30);
    bench.client(&list_tools(8));
    bench.server(1, &tools(8, r#"{"name":"old"}"#));
    bench.client(r#"{"jsonrpc":"2.0","id":9,"method":"prompts/list"}"#);
    bench.server(1, r#"{"jsonrpc":"2.0","id":9,"result":{"prompts":[]}}"#);
    assert_eq!(bench.server(1, TOOLS_CHANGED), [Done::Client(TOOLS_CHANGED.to_owned())]);
    // The client reads both again, and the server hangs over that.
    bench.client(&list_tools(10));
    bench.client(r#"{"jsonrpc":"2.0","id":11,"method":"prompts/list"}"#);
    let done = bench.wait(Duration::from_secs(60), false);
    assert_eq!(silences(&done), [true]);
    let told: Vec<&Done> = done.iter().filter(|done| matches!(done, Done::Client(_))).collect();
    let prompts = r#"{"jsonrpc":"2.0","id":11,"result":{"prompts":[]}}"#;
    assert_eq!(told, [&Done::Client(prompts.to_owned())], "the prompts are the same");
    assert!(matches!(&bench.client(&list_tools(12))[..], [Done::Server(1, _)]));
    let answer = tools(10, r#"{"name":"new"}"#);
    assert!(bench.server(1, &answer).contains(&Done::Client(answer)));
}

#[test]
fn a_late_list_that_differs_from_the_one_in_memory_is_told() {
    for (late, is_told) in [
        (tools(9, r#"{"name":"get"}"#), false),
        (tools(9, r#"{"name":"put"}"#), true),
        (
            r#"{"jsonrpc":"2.0","id":9,"result":{"tools":[{"name":"get"}],"nextCursor":"2"}}"#
                .to_owned(),
            true,
        ),
        (r#"{"jsonrpc":"2.0","id":9,"error":{"code":-32603,"message":"x"}}"#.to_owned(), false),
    ] {
        let mut bench = bench_with(TIMEOUT * 30);
        bench.client(&list_tools(8));
        bench.server(1, &tools(8, r#"{"name":"get"}"#));
        bench.client(&list_tools(9));
        let done = bench.wait(Duration::from_secs(60), false);
        assert!(done.contains(&Done::Client(tools(9, r#"{"name":"get"}"#))), "{done:?}");
        let done = bench.server(1, &late);
        let told: Vec<&Done> = done.iter().filter(|done| matches!(done, Done::Client(_))).collect();
        let changed = Done::Client(TOOLS_CHANGED.to_owned());
        assert_eq!(told, if is_told { vec![&changed] } else { Vec::new() }, "{late}");
        // One that the client has given up is not looked at.
        bench.client(&list_tools(10));
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":10}}"#;
        bench.client(cancel);
        assert_eq!(bench.server(1, &tools(10, r#"{"name":"other"}"#)), []);
    }
}
