"""What afresh says that was used is what the model said, never more than one call late."""

import re
import subprocess
import time

from model import OF_HELPER, OF_SUMMARY, Reply, hang
from place import Scenario, causes_of, done, expect
from trouble import quick

LATE_SECONDS = 10


def with_helper(agent):
    """A helper that uses more than the agent itself."""
    steps = [Reply(10, shell="echo one > one.txt"), Reply(20, shell="touch fixed.txt", cached=6)]
    steps.append(Reply(25, helper=f"{OF_HELPER} Look around.", cached=12))
    # Elsewhere the tool that asks a helper waits for its answer.
    steps += [Reply(26, wait=True, cached=14)] if agent == "codex" else []
    steps.append(Reply(30, "Done.", cached=16))
    helps = [Reply(40, shell="echo helped > helped.txt", cached=4), Reply(45, "I have helped.", cached=8)]

    def script(asked):
        if asked.kind == "helper":
            return helps[asked.results]
        return quick(asked) if "## Two" in asked.prompt else steps[asked.results]

    return script


def compacts(agent):
    """A conversation that the agent sums up by itself. Then it would go on, if it got an answer."""
    full = {"claude": 60, "codex": 92, "opencode": 97}[agent]
    steps = [Reply(10, shell="echo one > one.txt"), Reply(full, shell="touch fixed.txt", cached=6)]

    def script(asked):
        if asked.wants_handoff:
            return Reply(12, "handoff: nothing is left", cached=2)
        if asked.kind == "summary":
            return Reply(full, f"<summary>{OF_SUMMARY} One is done.</summary>", cached=20)
        if asked.is_summed_up:
            return hang()
        is_first = "Checkpoint" not in asked.prompt and "## Two" not in asked.prompt
        return steps[asked.results] if is_first and asked.results < 2 else quick(asked)

    return script


def recorded(records):
    """Tokens in, from a cache, and out, of all sessions."""
    last = {record["attempt"]: record for record in records if record["record"] == "spent"}
    return tuple(sum(record[what] for record in last.values()) for what in ("input", "cached", "output"))


def is_less(has, wanted):
    return any(one < other for one, other in zip(has, wanted))


class Watch:
    """Holds each answer of the model back until afresh knows of the ones before it, and notes where it does not."""

    def __init__(self, place):
        self.place, self.late = place, []
        place.model.before = self

    def __call__(self, model, call):
        wanted = self.known(model, call)
        deadline = time.monotonic() + LATE_SECONDS
        while is_less(has := recorded(self.place.records_now()), wanted):
            if time.monotonic() > deadline:
                self.late.append((len(model.calls), call.kind, has, wanted))
                return
            time.sleep(0.02)

    def known(self, model, call):
        """All that was said before, but for the last words of a conversation that stands still meanwhile: opencode
        tells what a call has used when its tools have ended, and a helper is one."""
        calls = [other for other in list(model.calls) if other.is_answered]
        last = {other.kind: other for other in calls}
        calls = [other for other in calls if other.kind == call.kind or other is not last[other.kind]]
        replies = [other.reply for other in calls]
        # What came out of helpers Claude Code tells only at the end of the turn.
        out = [other.reply for other in calls if self.place.name != "claude" or other.kind != "helper"]
        return (
            sum(reply.input for reply in replies),
            sum(reply.cached for reply in replies),
            sum(reply.output for reply in out),
        )


def equals(place, records, watch):
    """The meter has every number of the model and no other; helpers count, and fill no context."""
    expect(not watch.late, "afresh did not know what was used", watch.late)
    has, wanted = recorded(records), place.model.used()
    calls = [(call.kind, call.reply.input, call.reply.cached, call.reply.output) for call in place.model.calls]
    expect(has == wanted, f"it has {has}, the model said {wanted}", calls)
    command = [place.afresh, "runs", "show"]
    shown = subprocess.run(command, cwd=place.work, env=place.environment, capture_output=True, text=True, check=True)
    line = re.search(r"(\d+) tokens in \((\d+) from the cache\), (\d+) out", shown.stdout)
    expect(line and tuple(map(int, line.groups())) == wanted, "`afresh runs show` says otherwise", shown.stdout)


def gauge(place, records):
    """The context of the first session is what its own calls say, one after another, and nothing else."""
    samples = [record for record in records if record["record"] == "sampled" and record["attempt"] == 1]
    expect(all(sample["exact"] for sample in samples), "a guess", samples)
    first = place.model.prompts()[0]
    own = [call.reply for call in place.model.calls if call.kind == "agent" and call.asked.prompt == first]
    # Claude Code says what went in when a call begins. It can also be asked before the first one.
    wanted = [size for reply in own for size in (reply.input, reply.input + reply.output)]
    used = list(dict.fromkeys(sample["used"] for sample in samples))
    used = used[1:] if place.name == "claude" else used
    wanted = wanted if place.name == "claude" else wanted[1::2]
    expect(used == wanted, f"the context is {used}, the model said {wanted}")


def counts_helpers(place):
    """A helper is counted, and fills no context."""
    watch = Watch(place)
    records = done(place, place.run())
    causes = causes_of(records)
    expect(causes == ["DONE", "DONE"], "a session ended otherwise", causes)
    kinds = [call.kind for call in place.model.calls]
    expect(kinds.count("helper") == 2, "the calls", kinds)
    expect((place.work / "helped.txt").exists(), "the helper did nothing")
    equals(place, records, watch)
    gauge(place, records)


ENABLE = {
    "claude": 'del os.environ["DISABLE_AUTO_COMPACT"]; os.environ["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] = "100000"',
    # At nine tenths of its window it compacts whatever its settings are.
    "codex": "pass",
    "opencode": """settings = json.loads(os.environ["OPENCODE_CONFIG_CONTENT"])
settings["compaction"] = {"auto": True}
os.environ["OPENCODE_CONFIG_CONTENT"] = json.dumps(settings)""",
}


def counts_compaction(place):
    """The agent compacts by itself: a restart, and what it took is counted."""
    watch = Watch(place)
    place.wrap(f"import json, os, sys\n{ENABLE[place.name]}\nos.execv(AGENT, [AGENT, *sys.argv[1:]])\n")
    # Nobody looks at the window, or it would not come to that.
    records = done(place, place.run("--context-threshold", "100"))
    causes = causes_of(records)
    expect(causes == ["COMPACTED_RESTART", "DONE", "DONE"], "why sessions ended", causes)
    kinds = [call.kind for call in place.model.calls]
    expect(kinds.count("summary") == 1, "the calls", kinds)
    equals(place, records, watch)
    prompt = place.model.prompts()[1]
    for text in ("restart 1 of 3", "compacted its context by itself", "handoff: nothing is left", "- one.txt"):
        expect(text in prompt, f"no `{text}` in the checkpoint", prompt)


SCENARIOS = [
    Scenario("helpers are metered", counts_helpers, with_helper),
    Scenario("compaction is metered", counts_compaction, compacts),
]
