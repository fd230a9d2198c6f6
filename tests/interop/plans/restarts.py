"""Phases that need restarts: one that is interrupted twice and remedied, and one whose agent stops as it is asked."""

import json

from model import NAP, Reply, hang
from place import Scenario, causes_of, done, expect

FIRST_HANDOFF, SECOND_HANDOFF = "handoff: one.txt is half written", "handoff: one.txt wants a last line"
# Something that outlives its command, its session and its group: it has to be gone all the same.
STRAY = "setsid tail -f /dev/null > /dev/null 2>&1 < /dev/null &"


def script(asked):
    """What the model says."""
    prompt, done = asked.prompt, asked.results
    if asked.wants_handoff:
        return Reply(86, SECOND_HANDOFF if "restart 1 of" in prompt else FIRST_HANDOFF)
    if "## Two" in prompt:
        return Reply(10, shell="echo two > two.txt") if done == 0 else Reply(11, "Phase two is done.")
    if "remediation 1" in prompt:
        return Reply(10, shell="touch fixed.txt") if done == 0 else Reply(11, "Mended.")
    if "restart 2 of" in prompt:
        return Reply(20, shell="echo 3 >> one.txt") if done == 0 else Reply(21, "Phase one is done.")
    if "restart 1 of" in prompt:
        steps = [Reply(50, shell="echo 2 >> one.txt"), Reply(82, shell=NAP)]
    else:
        steps = [Reply(30, shell=f"{STRAY} echo 1 > one.txt"), Reply(70, shell="echo more >> one.txt")]
        steps += [Reply(75, shell="true"), Reply(85, shell=NAP)]
    # After that only an interrupt helps.
    return steps[done] if done < len(steps) else hang()


def two_restarts(place):
    """Steer, interrupt, handoff, commit, checkpoint, red gates, green gates, all phases."""
    ended = place.run()
    records = done(place, ended)
    restarts = ["CONTEXT_LIMIT_RESTART"] * 2
    expect(causes_of(records) == [*restarts, "DONE", "DONE", "DONE"], "why sessions ended", causes_of(records))
    prompts = place.model.prompts()
    expect(len(prompts) == 5, f"{len(prompts)} sessions", [prompt[:200] for prompt in prompts])
    is_steered_once(place, prompts)
    is_interrupted(place, prompts)
    has_commits(place, records)
    has_checkpoints(place, prompts)
    gates = [(record["phase"], record["passed"]) for record in records if record["record"] == "gate_ended"]
    wanted = [("One", True), ("One", False), ("One", True), ("One", True), ("Two", True)]
    expect(gates == wanted, "the gates", gates)


def of_session(place, prompt):
    return [asked for asked in place.model.asked if asked.prompt == prompt]


def is_steered_once(place, prompts):
    """The model hears it in the first session, after the call that was beyond the soft threshold, and nowhere else."""
    word = "context window is filling up"
    for number, prompt in enumerate(prompts):
        calls = of_session(place, prompt)
        # An agent may put it into the result of a tool.
        heard = [at for at, asked in enumerate(calls) if word in json.dumps(asked.body)]
        if number > 0:
            expect(not heard, f"session {number + 1} was steered", heard)
            continue
        # The third call is the first after it; an agent may take the word in one call later.
        expect(heard and heard[0] in (2, 3), "when the model heard that it is to come to an end", heard)
        count = json.dumps(calls[-1].body).count(word)
        expect(count == 1, f"it was said {count} times")
    told = [place.told(session).count("steer") for session in range(1, 6)]
    expect(told == [1, 0, 0, 0, 0], "who was steered", told)


def is_interrupted(place, prompts):
    """The first two are, with a tool or a call that never ends by itself; then they write in the same session."""
    for number, prompt in enumerate(prompts):
        calls, told = of_session(place, prompt), place.told(number + 1)
        handoffs = [at for at, asked in enumerate(calls) if asked.wants_handoff]
        if number > 1:
            expect("interrupt" not in told and not handoffs, f"session {number + 1} was interrupted", told)
            continue
        expect(told.count("interrupt") == 1 and told.count("prompt") == 2, f"told to session {number + 1}", told)
        expect(told.index("interrupt") < len(told) - 1 - told[::-1].index("prompt"), "a handoff before", told)
        expect(handoffs == [len(calls) - 1], "the handoff is not the last call of its session", handoffs)
        last = calls[-1]
        expect(last.results >= (4, 2)[number], f"the handoff comes after {last.results} tools: another session?")
        for call in place.model.calls:
            if call.asked.prompt == prompt and call.reply.hang:
                expect(call.broken_off, "a call was not broken off by the interrupt")


def has_commits(place, records):
    """`git log` is as the guide says, and each commit has what was done up to it."""
    commits = place.git("log", "--reverse", "--format=%H %s").splitlines()
    unfinished = "afresh: One, unfinished (CONTEXT_LIMIT_RESTART)"
    titles = [line.split(" ", 1)[1] for line in commits]
    wanted = ["the plan", unfinished, unfinished, "afresh: One", "afresh: One, remediation 1", "afresh: Two"]
    expect(titles == wanted, "git log", titles)
    recorded = [(record["commit"], record["message"]) for record in records if record["record"] == "committed"]
    expect(recorded == [tuple(line.split(" ", 1)) for line in commits[1:]], "commits in the records", recorded)
    first, second, third, *_ = [line.split()[0] for line in commits[1:]]
    for commit, text in [(first, "1\nmore\n"), (second, "1\nmore\n2\n"), (third, "1\nmore\n2\n3\n")]:
        expect(place.git("show", f"{commit}:one.txt") == text, f"one.txt in {commit} is not", text)
    expect(place.git("status", "--porcelain") == "", "something is not committed")


def has_checkpoints(place, prompts):
    """As the model got them, in front of the task."""
    commit = place.git("log", "--reverse", "--format=%h").splitlines()[1]
    for prompt, wanted in [
        (prompts[1], ["fresh session", "restart 1 of 3", "context was full", FIRST_HANDOFF, "- one.txt", commit]),
        (prompts[2], ["fresh session", "restart 2 of 3", "context was full", SECOND_HANDOFF, "- one.txt"]),
        (prompts[3], ["fresh session", "remediation 1", "test -f fixed.txt"]),
    ]:
        checkpoint, _, task = prompt.partition("\n---\n")
        expect("Write one.txt." in task, "no task below the checkpoint", prompt[:3000])
        for text in wanted:
            expect(text in checkpoint, f"no `{text}` in a checkpoint", checkpoint[:3000])
    expect("- fixed.txt" not in prompts[2] and FIRST_HANDOFF not in prompts[2], "something old", prompts[2][:3000])
    for prompt in (prompts[0], prompts[4]):
        expect("Checkpoint" not in prompt and "fresh session" not in prompt, "a first session has a checkpoint", prompt)


LEFT = "I have stopped as asked.\n\n**Handoff**\n\none.txt wants a second line."


def stops_script(asked):
    """Stops when it hears that it is to, in the dress that models like; no gate of phase one sees what is missing."""
    if "## Two" in asked.prompt:
        return Reply(10, shell="echo two > two.txt") if asked.results == 0 else Reply(11, "HANDOFF.md is not needed.")
    if "restart 1 of" in asked.prompt:
        return Reply(10, shell="echo 2 >> one.txt") if asked.results == 0 else Reply(11, "Both lines are there.")
    if "context window is filling up" in asked.whole:
        return Reply(72, LEFT)
    steps = [Reply(30, shell="touch fixed.txt; echo 1 > one.txt"), Reply(70, shell="true")]
    return steps[asked.results] if asked.results < len(steps) else Reply(71, shell="true")


def stops_in_time(place):
    """A session that was steered ends with a handoff, one that was not never does."""
    records = done(place, place.run())
    expect(causes_of(records) == ["CONTEXT_LIMIT_RESTART", "DONE", "DONE"], "why sessions ended", causes_of(records))
    expect("interrupt" not in place.told(1), "it was interrupted", place.told(1))
    prompt = place.model.prompts()[1]
    expect("one.txt wants a second line." in prompt, "the handoff is lost", prompt[:3000])


SCENARIOS = [
    Scenario("two restarts", two_restarts, lambda _: script),
    Scenario("stops in time", stops_in_time, lambda _: stops_script),
]
