"""The agents' own MCP servers, which stand behind afresh during a run: they die, are restarted, and leave nothing."""

import json
import os
import re
import signal
import stat
import sys
from pathlib import Path

from model import Reply
from place import Scenario, expect

SERVER = Path(__file__).resolve().parent / "server.py"
# Stands in the variables of a server, and in no command line.
SECRET = "a-secret-of-the-interop-plan"
PROGRAM = sys.executable


def configure(place):
    """One server of the user and one of the project, each in the file where the agent looks for it."""
    home, work = Path(place.environment["HOME"]), place.work
    # Otherwise Claude Code shows the model a tool only after the model has searched for it.
    place.environment["ENABLE_TOOL_SEARCH"] = "false"
    own = {"command": PROGRAM, "args": [str(SERVER), "own"], "env": {"LOOK_KEY": SECRET}}
    if place.name == "claude":
        (home / ".claude.json").write_text(json.dumps({"mcpServers": {"own": own}}))
        project = {**own, "args": [str(SERVER), "${LOOK_WORD:-project}"]}
        remote = {"type": "http", "url": "http://127.0.0.1:9/"}
        (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": project, "remote": remote}}))
        return [work / ".mcp.json"]
    if place.name == "codex":
        config = home / ".codex/config.toml"
        told = f'env = {{ LOOK_KEY = "{SECRET}" }}\nstartup_timeout_sec = 30\n'
        program, file = json.dumps(PROGRAM), json.dumps(str(SERVER))

        def entry(name, word):
            return f'[mcp_servers.{name}]\ncommand = {program}\nargs = [{file}, "{word}"]\n{told}'

        trust = f'[projects.{json.dumps(str(work))}]\ntrust_level = "trusted"\n'
        config.write_text(config.read_text() + entry("own", "own") + trust)
        (work / ".codex").mkdir()
        (work / ".codex/config.toml").write_text(entry("notes", "project"))
        return [config, work / ".codex/config.toml"]
    config = home / ".config/opencode/opencode.json"
    told = {"type": "local", "environment": {"LOOK_KEY": SECRET}, "timeout": 30_000}
    # It writes this into files that do not have it.
    schema = {"$schema": "https://opencode.ai/config.json"}
    settings = schema | json.loads(config.read_text())
    settings["mcp"] = {"own": {**told, "command": [PROGRAM, str(SERVER), "own"]}}
    config.write_text(json.dumps(settings))
    project = schema | {"mcp": {"notes": {**told, "command": [PROGRAM, str(SERVER), "project"]}}}
    (work / "opencode.jsonc").write_text(f"// ours\n{json.dumps(project)}")
    return [config, work / "opencode.jsonc"]


def command_lines():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            yield int(pid), line, os.readlink(f"/proc/{pid}/cwd")
        except OSError:
            continue


def servers_of(place):
    """Their processes, and those of afresh in front of them. Codex does not pass on our mark."""
    return [pid for pid, line, folder in command_lines() if str(SERVER) in line and folder == str(place.work.resolve())]


class Looks:
    """Uses the tools of the servers, with something between two looks, and then does the phase."""

    def __init__(self, *steps):
        self.steps, self.trouble = steps, []

    def __call__(self, asked):
        if "## Two" in asked.prompt:
            return Reply(10, shell="echo two > two.txt") if asked.results == 0 else Reply(11, text="Done.")
        if asked.results < len(self.steps):
            return self.take(self.steps[asked.results], asked)
        if asked.results == len(self.steps):
            return Reply(10, shell="echo one > one.txt; touch fixed.txt")
        return Reply(11, text="Done.")

    def take(self, step, asked):
        # Everybody can read command lines.
        self.trouble += [line for _, line, _ in command_lines() if SECRET in line]
        tool, kill = step
        if kill:
            os.kill(int(pids(asked.whole)[-1]), signal.SIGKILL)
        reply = Reply(10, shell="true")
        reply.tool = tool
        return reply


def pids(whole):
    return re.findall(r"saw pid=(\d+)", whole)


NOTES, OWN, RESTART = ("notes", "look"), ("own", "look"), ("notes", "notes_restart_server")


def looked(place):
    """What the servers have said, in order."""
    whole = max((asked.whole for asked in place.model.asked), key=lambda whole: len(pids(whole)))
    return re.findall(r"saw pid=(\d+) arguments=\['(\w+)'\] folder=(\S+) key=([\w-]+)", whole), whole


def carried_out(place, files, ended):
    expect(ended.returncode == 0, f"exit code {ended.returncode}", ended.stdout[-3000:] + ended.stderr[-1500:])
    said = "2 MCP servers of the agent are supervised: notes, own"
    expect(said in ended.stderr, f"no `{said}`", ended.stderr)
    expect({path: path.read_bytes() for path in files} == files, "a file of the agent has changed", files)
    if place.name == "claude":
        own = json.loads(Path(place.environment["HOME"], ".claude.json").read_text())["mcpServers"]["own"]
        expect(own["command"] == PROGRAM and own["args"] == [str(SERVER), "own"], "Claude's own file", own)
    expect(not place.model.script.trouble, "a secret is in a command line", place.model.script.trouble)
    expect(not (place.work / ".afresh/agent-servers.json").exists(), "the servers are still in a file")
    place.wait(lambda: not servers_of(place), "no server is left", seconds=10)


def dies(place):
    """A server is killed between two calls; the next one succeeds all the same."""
    files = {path: path.read_bytes() for path in configure(place)}
    shown = place.run("--dry-run")
    for name in ("notes", "own"):
        expect(f"MCP server behind afresh: {name} (from " in shown.stdout, f"`{name}` is not shown", shown.stdout)
    carried_out(place, files, place.run())
    found, whole = looked(place)
    expect([word for _, word, _, _ in found] == ["project", "own", "project", "own"], "the looks", whole[-3000:])
    expect(all(folder == str(place.work) and key == SECRET for _, _, folder, key in found), "what they know", found)
    expect(found[1][0] != found[3][0], "the server was not killed", found)
    expect(found[0][0] == found[2][0], "the other one was restarted", found)


def restarts(place):
    """The agent restarts a server by the tool that stands beside the server's own."""
    files = {path: path.read_bytes() for path in configure(place)}
    carried_out(place, files, place.run())
    found, whole = looked(place)
    expect(len(found) == 2 and found[0][0] != found[1][0], "it was not restarted", whole[-3000:])


def killed(place):
    """afresh itself is killed: its servers end with it, and the next run begins without the old one's file."""
    files = {path: path.read_bytes() for path in configure(place)}
    listed = place.work / ".afresh/agent-servers.json"
    with place.start() as running:
        place.wait(lambda: any(pids(asked.whole) for asked in place.model.asked), "a server was used")
        if place.name == "claude":
            mode = stat.S_IMODE(listed.stat().st_mode)
            expect(mode == 0o600, "others can read the file", oct(mode))
        expect(servers_of(place), "no server runs")
        running.process.kill()
        running.end()
    place.wait(lambda: not servers_of(place), "no server is left", seconds=20)
    place.model.script.steps = (NOTES_LOOK,)
    carried_out(place, files, place.run("--resume"))


NOTES_LOOK = (NOTES, False)
DIES = [NOTES_LOOK, (OWN, False), (NOTES, True), (OWN, False)]
SCENARIOS = [
    Scenario("server dies", dies, lambda _: Looks(*DIES)),
    Scenario("server restarts", restarts, lambda _: Looks(NOTES_LOOK, (RESTART, False), NOTES_LOOK)),
    Scenario("servers of a killed run", killed, lambda _: Looks(*[NOTES_LOOK] * 400)),
]
