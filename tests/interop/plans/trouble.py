"""What goes wrong on the way: each time the plan is carried out all the same, or says why not."""

import os
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from common import marked
from model import NAP, Reply, hang, reset
from place import Scenario, causes_of, done, expect

FOLDER = Path(__file__).resolve().parent
FOREVER = "tail -f /dev/null"


def quick(asked):
    """Does each phase in one step."""
    if asked.wants_handoff:
        return Reply(86, "handoff: nothing much")
    name = "two" if "## Two" in asked.prompt else "one"
    step = f"echo {name} > {name}.txt; touch fixed.txt"
    return Reply(10, shell=step) if asked.results == 0 else Reply(11, "Done.")


class Once:
    """Says something else the first times, then does each phase in one step."""

    def __init__(self, *replies):
        self.left = list(replies)

    def __call__(self, asked):
        if "## Two" not in asked.prompt and self.left and not asked.wants_handoff:
            return self.left.pop(0)
        return quick(asked)


class Outage:
    """The model fails for some seconds from the first call on, then each phase is done in one step."""

    def __init__(self, failure, seconds):
        self.failure, self.seconds, self.until = failure, seconds, None

    def __call__(self, asked):
        self.until = self.until or time.monotonic() + self.seconds
        return self.failure() if time.monotonic() < self.until else quick(asked)


def once(*replies):
    return lambda _agent: Once(*replies)


def agent_killed(place):
    """The agent is killed while a tool runs."""
    with place.start() as running:
        place.wait(lambda: place.processes(FOREVER), "the tool runs")
        for pid in place.processes(place.program):
            os.kill(pid, signal.SIGKILL)
        ended = running.end()
    causes = causes_of(done(place, ended))
    expect(causes[0] in ("CRASHED", "FAILED"), "the first session ended otherwise", causes)


def refused(place):
    """The model takes no login: the run stops soon, with the agent's own words, and goes on after the login."""
    began = time.monotonic()
    ended = place.run()
    took = time.monotonic() - began
    expect(ended.returncode == 1, f"exit code {ended.returncode}", ended.stdout[-2000:])
    expect(took < REFUSED_SECONDS.get(place.name, 20), f"it stops after {took:.1f} s", ended.stdout[-2000:])
    expect(any(word in ended.stderr for word in ("401", "key", "auth")), "it does not say why", ended.stderr)
    records = place.records()
    restarts = [record for record in records if record["record"] == "attempt_began" and "restart" in record["kind"]]
    expect(not restarts, "another login is no restart", restarts)
    place.model.script = quick
    done(place, place.run("--resume"), "STOPPED")


def refused_once(place):
    """The login is refused once, as a token that is being renewed is."""
    records = done(place, place.run("--limit-wait", "1s"))
    restarts = [record for record in records if record["record"] == "attempt_began" and "restart" in record["kind"]]
    expect(not restarts, "another login is no restart", restarts)


def unreachable(place):
    """The model cannot be reached for a while: it is waited for, and no restart is used up."""
    records = done(place, place.run("--limit-wait", "1s", "--silence", "15s", "--max-restarts", "1"), "LIMITED")
    restarts = [record for record in records if record["record"] == "attempt_began" and "restart" in record["kind"]]
    expect(not restarts, "a wait is no restart", restarts)


def given_up(place):
    """The model cannot be reached for longer than it is waited for."""
    words = ("--limit-wait", "1s", "--silence", "10s", "--max-wait", "2s")
    ended = place.run(*words)
    expect(ended.returncode == 1, f"exit code {ended.returncode}", ended.stdout[-2000:])
    expect("--max-wait is 2 s" in ended.stderr, "it does not say why", ended.stderr)
    causes = causes_of(place.records())
    expect(set(causes) == {"LIMITED"}, "why sessions ended", causes)


class KilledTwice:
    """The first handoff never ends, and neither does what the session after the second one does."""

    def __init__(self):
        self.handoffs = 0

    def __call__(self, asked):
        if asked.wants_handoff:
            self.handoffs += 1
            return hang() if self.handoffs == 1 else Reply(86, "handoff: b is there")
        if "restart 1 of" in asked.prompt:
            return Reply(10, shell=FOREVER)
        if self.handoffs > 1:
            return quick(asked)
        name = "b" if "(resumed)" in asked.prompt else "a"
        steps = [Reply(30, shell=f"echo {name} >> one.txt"), Reply(82, shell=NAP)]
        return steps[asked.results] if asked.results < 2 else hang()


def afresh_killed(place):
    """afresh is killed in the handoff, and when the next session has begun, and resumed each time."""
    kill(place, lambda: any(asked.wants_handoff for asked in place.model.asked))
    has_begun = lambda: any("restart 1 of" in prompt for prompt in place.model.prompts())
    kill(place, lambda: has_begun() and place.processes(FOREVER), "--resume")
    records = done(place, place.run("--resume"), "CONTEXT_LIMIT_RESTART")
    began = [record["phase"] for record in records if record["record"] == "phase_began"]
    expect(began == ["One", "Two"], "phases that began", began)
    prompts = place.model.prompts()
    expect([prompt.count("(resumed)") for prompt in prompts] == [0, 1, 0, 1, 0], "prompts", prompts)
    for prompt in prompts[2:4]:
        expect("handoff: b is there" in prompt, "the handoff is lost", prompt)
    titles = place.git("log", "--reverse", "--format=%s").splitlines()
    unfinished = [f"afresh: One, unfinished ({cause})" for cause in ("LOST", "CONTEXT_LIMIT_RESTART")]
    expect(titles == ["the plan", *unfinished, "afresh: One", "afresh: Two"], "git log", titles)


def kill(place, reached, *words):
    with place.start(*words) as running:
        place.wait(reached, "the moment to kill it")
        running.process.kill()
        running.end()
    place.wait(lambda: not marked(place.environment["INTEROP_MARK"]), "the agent has gone with it", 15)


def waits(place):
    """The model is limited or has too much to do; the run waits, and goes on."""
    records = done(place, place.run("--limit-wait", "1s", "--silence", "15s"), "LIMITED")
    expect(any(record["record"] == "waiting" for record in records), "it did not wait")
    restarts = [record for record in records if record["record"] == "attempt_began" and "restart" in record["kind"]]
    expect(not restarts, "a wait is no restart", restarts)


def limited(place):
    """The same, with a time at which it ends. Only opencode passes that on: then it is waited for."""
    if place.name != "opencode":
        return waits(place)
    with place.start() as running:
        line = next((line for line in running.process.stdout if "waiting until" in line), "")
        expect(line, "it does not say until when it waits", running.process.poll())
        until = datetime.fromisoformat(line.split("until ")[1].split("Z")[0]).replace(tzinfo=timezone.utc)
        left = until.timestamp() - time.time()
        expect(3500 < left < 3700, f"it waits for {left} s", line)
        running.process.send_signal(signal.SIGINT)
        ended = running.end()
    expect(ended.returncode == 1, f"exit code {ended.returncode}", ended.stderr)
    place.model.script.left.clear()
    done(place, place.run("--resume"), "LIMITED")


def stalls(place):
    """The model never answers."""
    done(place, place.run("--silence", "8s"), "STALLED")
    expect(any(call.reply.hang and call.broken_off for call in place.model.calls), "the call was not broken off")


def overflow(place):
    """What is asked does not fit."""
    done(place, place.run(), "OVERFLOW")


def strange(place):
    """There is much between the words of the agent that nobody understands."""
    place.program = f"{sys.executable} {FOLDER}/strange.py {place.program}"
    ended = place.run()
    causes = causes_of(done(place, ended))
    expect(causes == ["DONE", "DONE"], "a session ended otherwise", causes)
    expect("something strange" in ended.stdout, "nothing strange was heard", ended.stdout[-2000:])


def large(place):
    """A tool says 5 MB; the agent says so in one line, whatever it keeps of it by itself."""
    place.program = f"{sys.executable} {FOLDER}/strange.py --large {place.program}"
    causes = causes_of(done(place, place.run()))
    expect(causes == ["DONE", "DONE"], "a session ended otherwise", causes)
    lines = (place.work / ".afresh/runs/1/session-1.jsonl").read_bytes().splitlines()
    longest = max(map(len, lines))
    expect(longest > 5_000_000, f"the longest line that was heard has {longest} bytes")


def stubborn(place):
    """The agent ignores SIGTERM, and the end of its stdin."""
    place.wrap("""import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.call([AGENT, *sys.argv[1:]])
time.sleep(600)
""")
    causes = causes_of(done(place, place.run()))
    expect(causes == ["DONE", "DONE"], "a session ended otherwise", causes)


def enough(place):
    """It needs more restarts than it may have."""
    ended = place.run("--max-restarts", "1")
    expect(ended.returncode == 1, f"exit code {ended.returncode}", ended.stdout[-2000:])
    expect("restarted 1 times" in ended.stderr, "it does not say why", ended.stderr)
    causes = causes_of(place.records())
    expect(causes == ["CONTEXT_LIMIT_RESTART"] * 2, "why sessions ended", causes)


def never_done(asked):
    if asked.wants_handoff:
        return Reply(86, "handoff: never done")
    return Reply(82, shell=NAP) if asked.results == 0 else hang()


LARGE = "head -c 5000000 /dev/zero | tr '\\0' x; echo one > one.txt; touch fixed.txt"
LIMITED = Reply(1, "usage limit reached", status=429, headers={"retry-after": "3600"})
TOO_LONG = Reply(1, "prompt is too long: 210000 tokens > 200000 maximum", status=400)
REFUSED = Reply(1, "invalid x-api-key", status=401)
# From the start of afresh to its end. opencode tells of a failure at the end of its turn: it is started twice.
REFUSED_SECONDS = {"opencode": 90}
SCENARIOS = [
    Scenario("login refused", refused, lambda _: lambda asked: REFUSED),
    Scenario("login refused once", refused_once, once(REFUSED)),
    Scenario("unreachable", unreachable, lambda _: Outage(reset, 25)),
    Scenario("server error", unreachable, lambda _: Outage(lambda: Reply(1, "internal error", status=500), 25)),
    Scenario("never reachable", given_up, lambda _: lambda asked: reset()),
    Scenario("agent killed", agent_killed, once(Reply(20, shell=FOREVER))),
    Scenario("afresh killed", afresh_killed, lambda _: KilledTwice()),
    Scenario("limited", limited, once(LIMITED, LIMITED)),
    Scenario("overloaded", waits, once(*[Reply(1, "Overloaded", status=529)] * 4)),
    Scenario("hang", stalls, once(hang())),
    Scenario("overflow", overflow, once(TOO_LONG, TOO_LONG)),
    Scenario("strange lines", strange, lambda _: quick),
    Scenario("large result", large, once(Reply(20, shell=LARGE))),
    Scenario("ignores SIGTERM", stubborn, lambda _: quick),
    Scenario("restarts used up", enough, lambda _: never_done),
]
