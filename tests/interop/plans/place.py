"""A repository, a home and an agent for one scenario, and what is asked of them."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections import namedtuple
from contextlib import closing
from pathlib import Path

from common import CACHE
from model import WINDOW

PACKAGES = [CACHE / "agents" / "node_modules", CACHE / "opencode" / "node_modules"]
SECONDS = 240

PLAN = """# The interop plan

Both phases are for a model that follows a script.

## Phase: One

Write one.txt.

- Gate: test -s one.txt
- Gate: test -f fixed.txt

## Phase: Two

Write two.txt.

- Depends on: One
- Gate: test -f two.txt
"""

# `check(place)` raises `Failed`; `script(agent)` gives what the model says, a function of what it was `Asked`;
# `without` has a reason for each agent that it is not for.
Scenario = namedtuple("Scenario", "name check script without", defaults=[{}])


class Failed(Exception):
    """Something is not as it should be."""


def expect(true, what, more=""):
    if not true:
        raise Failed(f"{what}: {more}" if more != "" else what)


def claude(model, environment):
    environment.update(ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="none", IS_SANDBOX="1")
    environment["CLAUDE_CODE_MAX_RETRIES"] = "1"
    return ["--model", "claude-sonnet-4-5"]


def codex(model, environment):
    home = Path(environment["CODEX_HOME"])
    home.mkdir(exist_ok=True)
    provider = f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model.url}/v1"\nwire_api = "responses"\n'
    provider += "request_max_retries = 1\nstream_max_retries = 1\n"
    settings = f'model = "scripted"\nmodel_provider = "scripted"\nmodel_context_window = {WINDOW}\n'
    (home / "config.toml").write_text(settings + provider)
    return []


def opencode(model, environment):
    options = {"baseURL": f"{model.url}/v1", "apiKey": "none"}
    models = {"scripted": {"name": "scripted", "tool_call": True, "limit": {"context": WINDOW, "output": 8000}}}
    provider = {"scripted": {"npm": "@ai-sdk/anthropic", "options": options, "models": models}}
    settings = Path(environment["HOME"], ".config/opencode")
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "opencode.json").write_text(json.dumps({"provider": provider}))
    return ["--model", "scripted/scripted"]


class Agent:
    """One of the agents: its name, its program in its package, and what it needs to use our model."""

    def __init__(self, name, title, pattern, prepare, nap="tail -f /dev/null"):
        self.name, self.title, self.pattern, self.prepare, self.nap = name, title, pattern, prepare, nap

    def program(self):
        """Its program for this machine; None where there is none."""
        found = (path for folder in PACKAGES for path in sorted(folder.glob(self.pattern)))
        return next((str(path) for path in found if os.access(path, os.X_OK)), None)


AGENTS = [
    Agent("claude", "Claude Code 2.1.325", "@anthropic-ai/claude-code-*/claude", claude),
    Agent("codex", "Codex 0.166.0", "@openai/codex-*/vendor/*/bin/codex", codex),
    # It tells what a call has used when the tools of that call have ended, and cannot be interrupted before for it.
    Agent("opencode", "opencode 1.18.33", "opencode-*/bin/opencode", opencode, nap="true"),
]


class Place:
    """Where one scenario happens."""

    def __init__(self, folder, agent, model, mark, afresh):
        self.work, home = Path(folder, "work"), Path(folder, "home")
        self.work.mkdir()
        home.mkdir()
        self.name, self.program, self.model, self.afresh = agent.name, agent.program(), model, afresh
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "CODEX_HOME": f"{home}/.codex",
            "XDG_RUNTIME_DIR": str(home),
            # Some unpack libraries there, and leave them.
            "TMPDIR": str(home),
            "INTEROP_MARK": mark,
            "DISABLE_AUTOUPDATER": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        (self.work / "PLAN.md").write_text(PLAN)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.email", "interop@localhost")
        self.git("config", "user.name", "interop")
        self.git("add", "-A")
        self.git("commit", "-qm", "the plan")
        more = agent.prepare(model, self.environment)
        self.command = ["--agent", agent.name, "--permission-mode", "bypass", *more]

    def git(self, *words):
        ended = subprocess.run(["git", *words], cwd=self.work, capture_output=True, text=True, check=True)
        return ended.stdout

    def wrap(self, text):
        """Puts a program of ours in front of the agent."""
        path = self.work.parent / "wrapper.py"
        path.write_text(f"AGENT = {self.program!r}\n{text}")
        self.program = f"{sys.executable} {path}"

    def words(self, *words):
        return [self.afresh, "run", "--trust", "PLAN.md", *self.command, "--agent-command", self.program, *words]

    def start(self, *words):
        return Running(self, *words)

    def run(self, *words):
        with self.start(*words) as running:
            return running.end()

    def wait(self, reached, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not reached():
            expect(time.monotonic() < deadline, f"not within {seconds} s: {what}")
            time.sleep(0.05)

    def processes(self, text):
        """Of this scenario, those whose command line begins so."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if line.startswith(text) and f"INTEROP_MARK={self.environment['INTEROP_MARK']}" in environment:
                found.append(int(pid))
        return found

    def records(self):
        """What `afresh runs show` has of the run."""
        command = [self.afresh, "runs", "show", "--json"]
        shown = subprocess.run(command, cwd=self.work, env=self.environment, capture_output=True, text=True, check=True)
        return [entry["record"] for entry in json.loads(shown.stdout)["records"]]

    def records_now(self):
        """The same while it runs, without a process for it."""
        try:
            with closing(sqlite3.connect(f"file:{self.work}/.afresh/runs.db?mode=ro", uri=True)) as file:
                return [json.loads(row[0]) for row in file.execute("SELECT record FROM records ORDER BY run, number")]
        except sqlite3.OperationalError:
            return []

    def told(self, session):
        """What afresh told the agent of a session, in order."""
        lines = (self.work / f".afresh/runs/1/session-{session}.jsonl").read_text().splitlines()
        return [line["told"] for line in map(json.loads, lines) if "told" in line]


class Running:
    """An `afresh run` that something can be done to."""

    def __init__(self, place, *words):
        self.process = subprocess.Popen(
            place.words(*words),
            cwd=place.work,
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self):
        try:
            stdout, stderr = self.process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"")[-3000:]
            raise Failed(f"not done after {SECONDS} s: {said.decode(errors='replace')}") from late
        return subprocess.CompletedProcess([], self.process.returncode, stdout, stderr)


def done(place, ended, *causes):
    """All phases are done, and each of these causes ended a session."""
    expect(ended.returncode == 0, f"exit code {ended.returncode}", ended.stdout[-3000:] + ended.stderr[-1500:])
    records = place.records()
    ends = [(record["phase"], record["end"]) for record in records if record["record"] == "phase_ended"]
    expect(ends == [("One", "done"), ("Two", "done")], "the phases", ends)
    had = causes_of(records)
    expect(set(causes) <= set(had), f"no session ended as {causes}", had)
    return records


def causes_of(records):
    """Why each session ended, in order."""
    return [record["cause"] for record in records if record["record"] == "attempt_ended"]
