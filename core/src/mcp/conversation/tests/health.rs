//! A server that hangs, and servers that only look like it.

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A legacy session with a call in flight.
fn bench() -> Bench {
    let mut bench = Bench::new();
    let settings = Settings { wedge_timeout: Some(TIMEOUT), ..settings(WhichTools::None) };
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
    let ping = done.iter().find_map(|done| match done {
        Done::Server(1, line) if line.contains("ping") => Some(line.clone()),
        _ => None,
    });
    let ping = ping.expect("it is asked");
    let id =
        String::from_utf8_lossy(json::get(ping.as_bytes(), &["id"]).expect("an id")).into_owned();
    let done = polite.server(1, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    assert_eq!(done, [], "the answer is ours");
    assert!(!wedged(&polite.wait(TIMEOUT, false)));
    let mut idle = bench();
    idle.server(1, &result(7));
    idle.wait(TIMEOUT, false);
    assert_eq!(idle.conversation.next_wakeup(), None, "nothing is looked at");
    assert_eq!(idle.wait(TIMEOUT * 20, false), []);
}

#[test]
fn a_call_that_the_client_gave_up_is_not_waited_for() {
    let mut bench = bench();
    bench
        .client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    assert!(!wedged(&bench.wait(TIMEOUT * 20, false)));
}
