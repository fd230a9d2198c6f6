"""A client on the Python SDK. Modes: `auto` (its default), `legacy`.

`python.py --mode MODE SCENARIO -- COMMAND…|URL`. What is done and what has to hold is the same as in
scenarios.mjs.
"""

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import anyio
import anyio.lowlevel
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated, SubscriptionLost, ToolsListChanged
from mcp.shared.exceptions import MCPError

URI = "interop://counter"
# Which server of a gateway is meant; without one there is nothing to say.
WHICH = {"server": os.environ["INTEROP_SERVER"]} if os.environ.get("INTEROP_SERVER") else {}
STEP = float(os.environ.get("INTEROP_STEP_SECONDS", "15"))
MODERN = "2026-07-28"


class Failed(Exception):
    """What has to hold doesn't."""


def check(holds: bool, message: str) -> None:
    if not holds:
        raise Failed(message)


def text(result) -> str:
    return "".join(getattr(block, "text", "") for block in result.content)


def value(result) -> dict:
    """The object that a tool of afresh answers, however it is wrapped."""
    if result.structured_content:
        return result.structured_content
    try:
        return json.loads(text(result))
    except ValueError:
        return {}


class Events:
    """The events of one subscription, in the order of their arrival."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.ended: str | None = None
        self.changed = anyio.Event()

    def push(self, event: str) -> None:
        self.arrived.append(event)
        self.wake()

    def end(self, how: str) -> None:
        self.ended = self.ended or how
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def has(self, event: str, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            while event not in self.arrived and self.ended is None:
                await self.changed.wait()
        return event in self.arrived


class Connection:
    """The client with what the scenarios need; `events` is what it was told so far."""

    def __init__(self, client: Client, events: Events, tasks) -> None:
        self.client, self.events, self.tasks = client, events, tasks
        self.tools: list[str] = []

    async def list(self) -> list[str]:
        with anyio.fail_after(STEP):
            return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name: str, arguments: dict | None = None):
        with anyio.fail_after(STEP):
            return await self.client.call_tool(name, arguments or {})

    async def succeed(self, name: str, arguments: dict | None = None):
        result = await self.call(name, arguments)
        check(not result.is_error, f"`{name}` answered an error: {text(result)}")
        return result

    async def outcome(self, name: str, arguments: dict) -> str:
        """How a call ended. `lost` and `hung` are what no supervisor may let happen."""
        try:
            result = await self.call(name, arguments)
            return "tool error" if result.is_error else "result"
        except TimeoutError:
            return "hung"
        except MCPError as error:
            return {-32000: "lost", -32001: "hung"}.get(error.code, f"error {error.code}")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return "lost"

    async def echo(self) -> None:
        message = f"hello {random.random()}"
        answer = text(await self.succeed("echo", {"message": message}))
        check(message in answer, f"`echo` answered {answer}")

    async def pid(self) -> int:
        if "pid" in self.tools:
            told = int(text(await self.succeed("pid")))
        else:
            told = int(json.loads(text(await self.succeed("get-env")))["INTEROP_SERVER_PID"])
        # It may be killed next, and small numbers mean whole groups.
        check(told > 1, f"the server tells {told} as its process id")
        return told

    def slow(self, ms: int) -> tuple[str, dict]:
        if "slow" in self.tools:
            return "slow", {"ms": ms}
        return "trigger-long-running-operation", {"duration": ms / 1000, "steps": 1}

    async def subscribe(self, *, resource: bool = False, tools: bool = False) -> Events:
        if self.client.protocol_version == MODERN:
            await self.tasks.start(self.listen, resource, tools)
        elif resource:
            with anyio.fail_after(STEP):
                await self.client.subscribe_resource(URI)
        return self.events

    async def listen(self, resource: bool, tools: bool, *, task_status) -> None:
        uris = [URI] if resource else []
        try:
            async with self.client.listen(tools_list_changed=tools, resource_subscriptions=uris) as stream:
                task_status.started()
                async for event in stream:
                    if isinstance(event, ResourceUpdated) and event.uri == URI:
                        self.events.push("updated")
                    elif isinstance(event, ToolsListChanged):
                        self.events.push("tools")
            self.events.end("graceful")
        except SubscriptionLost:
            self.events.end("lost")


async def settle(
    connection: Connection, calls: list[tuple[str, dict]], report: dict, victim: int | None = None, meanwhile=None
) -> None:
    """Starts the calls, kills the victim, and waits until all are answered."""
    outcomes: list[str] = [""] * len(calls)

    async def run(index: int, name: str, arguments: dict) -> None:
        outcomes[index] = await connection.outcome(name, arguments)

    async with anyio.create_task_group() as group:
        for index, (name, arguments) in enumerate(calls):
            group.start_soon(run, index, name, arguments)
        if victim:
            await anyio.lowlevel.checkpoint()
            # The server reads in order: when this is answered, it has the calls too.
            await connection.echo()
            os.kill(victim, signal.SIGKILL)
            if meanwhile:
                await meanwhile()
    report["in_flight"] = outcomes
    bad = [how for how in outcomes if how in ("lost", "hung")]
    check(not bad, f"of the calls in flight, {len(bad)} were {', '.join(bad)}")


async def served_anew(connection: Connection, before: int, report: dict) -> None:
    """A new instance serves: the next call succeeds at once, and another process answers it."""
    await connection.echo()
    report["pids"] = [before, await connection.pid()]
    check(report["pids"][1] != before, f"process {before} still answers")


async def leave(connection: Connection, report: dict, code: int) -> None:
    before = await connection.pid()
    calls = [connection.slow(3000), connection.slow(4000), ("exit", {"code": code})]
    await settle(connection, calls, report)
    await served_anew(connection, before, report)


async def kill(connection: Connection, report: dict) -> None:
    """Kills the server in the middle of a call. When that call is answered, the death was noticed."""
    before = await connection.pid()
    await settle(connection, [connection.slow(3000)], report, victim=before)
    await served_anew(connection, before, report)


class Other(Connection):
    """The other server of a gateway, whose name stands in front of its tools."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.client, connection.events, connection.tasks)
        names = (name for name in connection.tools if name.startswith("other__"))
        self.tools = [name.removeprefix("other__") for name in names]

    async def call(self, name: str, arguments: dict | None = None):
        return await super().call(f"other__{name}", arguments)


async def both(connection: Connection, report: dict) -> None:
    """Both servers of a gateway are listed and answer."""
    report["tools"] = connection.tools
    for server in (connection, Other(connection)):
        check("echo" in server.tools, "`echo` is not in the list")
        await server.echo()
    check(await connection.pid() != await Other(connection).pid(), "one process answers for both")


async def one_dies(connection: Connection, report: dict) -> None:
    """Kills a server of a gateway in the middle of calls to both: nothing happens to the other."""
    other = Other(connection)
    spared, before = await other.pid(), await connection.pid()
    name, arguments = other.slow(1500)
    calls = [connection.slow(1500), (f"other__{name}", arguments)]
    await settle(connection, calls, report, victim=before, meanwhile=other.echo)
    how = report["in_flight"][1]
    check(how == "result", f"the call of the other server ended with {how}")
    await served_anew(connection, before, report)
    check(await other.pid() == spared, "the other server was restarted too")


async def restart(connection: Connection, report: dict) -> None:
    """Restarts the server by the tool, which a client sees among the server's own."""
    check("restart_server" in connection.tools, "`restart_server` is not in the list")
    # In whole milliseconds: the marker has no more.
    before, since = await connection.pid(), int(time.time() * 1000) / 1000
    await connection.succeed("restart_server", {"reason": "interop", **WHICH})
    # The answer may come before the old instance goes. No call may fail meanwhile.
    deadline, now = time.monotonic() + STEP, before
    while now == before and time.monotonic() < deadline:
        await anyio.sleep(0.05)
        now = await connection.pid()
    report["pids"] = [before, now]
    check(now != before, f"process {before} still answers")
    await connection.echo()
    if "verify_server_restarted" not in connection.tools:
        return
    verdict = value(await connection.call("verify_server_restarted", {"since_timestamp": since, **WHICH}))
    report["verified"] = verdict.get("restarted")
    check(report["verified"] is True, f"`verify_server_restarted` denies it: {verdict.get('error')}")


async def touched(connection: Connection, events: Events) -> bool:
    """Makes the server report a change until it arrives; the server of npm can only be asked once."""
    events.arrived.clear()
    if "touch" not in connection.tools:
        await connection.succeed("toggle-subscriber-updates")
        return await events.has("updated", STEP)
    deadline = time.monotonic() + STEP
    while time.monotonic() < deadline and events.ended is None:
        await connection.succeed("touch")
        if await events.has("updated", 0.5):
            return True
    return False


async def subscription(connection: Connection, report: dict, restart_by) -> None:
    events = await connection.subscribe(resource=True)
    check(await touched(connection, events), "no update arrives even before the restart")
    report["before"] = True
    await restart_by(connection, report)
    check(await touched(connection, events), f"no update arrives after the restart (ended: {events.ended})")
    report["after"] = True


async def list_change(connection: Connection, report: dict) -> None:
    check("new_tool" not in connection.tools, "`new_tool` is there before the change")
    events = await connection.subscribe(tools=True)
    events.arrived.clear()
    Path(os.environ["INTEROP_VERSION_FILE"]).write_text("2\n")
    await restart(connection, report)
    check(await events.has("tools", STEP), f"no list_changed arrives (ended: {events.ended})")
    report["tools"] = await connection.list()
    check("new_tool" in report["tools"], "`new_tool` is not in the list")
    await connection.succeed("new_tool")


async def connected(_connection: Connection, _report: dict) -> None:
    pass


async def listed(connection: Connection, report: dict) -> None:
    report["tools"] = connection.tools
    check("echo" in connection.tools, "`echo` is not in the list")


SCENARIOS = {
    "connect": connected,
    "list": listed,
    "call": lambda connection, _report: connection.echo(),
    "exit-42": lambda connection, report: leave(connection, report, 42),
    "exit-1": lambda connection, report: leave(connection, report, 1),
    "kill": kill,
    "restart-tool": restart,
    "subscription": lambda connection, report: subscription(connection, report, kill),
    "subscription-tool": lambda connection, report: subscription(connection, report, restart),
    "list-change": list_change,
    "both": both,
    "one-dies": one_dies,
}


async def converse(mode: str, name: str, command: list[str], report: dict) -> None:
    events = Events()

    async def told(message) -> None:
        if report.get("protocol") == MODERN:
            return  # it was sent on no subscription of ours
        if isinstance(message, types.ResourceUpdatedNotification) and str(message.params.uri) == URI:
            events.push("updated")
        elif isinstance(message, types.ToolListChangedNotification):
            events.push("tools")

    env = {key: value for key, value in os.environ.items() if key.startswith(("INTEROP_", "AFRESH_"))}
    is_url = command[0].startswith("http:")
    server = command[0] if is_url else StdioServerParameters(command=command[0], args=command[1:], env=env)
    async with Client(server, mode=mode, message_handler=told) as client:
        async with anyio.create_task_group() as tasks:
            report["protocol"] = client.protocol_version
            report["server"] = client.server_info.name if client.server_info else None
            connection = Connection(client, events, tasks)
            if name != "connect":
                connection.tools = await connection.list()
            await SCENARIOS[name](connection, report)
            report["ok"] = True
            tasks.cancel_scope.cancel()


def reason(error: BaseException) -> str:
    """The first cause, out of however many groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"


def main() -> int:
    words = sys.argv[1:]
    if len(words) < 5 or words[0] != "--mode" or words[2] not in SCENARIOS or words[3] != "--":
        print(f"usage: --mode auto|legacy {'|'.join(SCENARIOS)} -- COMMAND…|URL", file=sys.stderr)
        return 2
    mode, name, command = words[1], words[2], words[4:]
    warnings.simplefilter("ignore")
    report = {"scenario": name, "ok": False}
    try:
        anyio.run(converse, mode, name, command, report)
    except Exception as error:
        report["ok"] = False
        report["error"] = reason(error)
    print(json.dumps(report))
    return 0 if report["ok"] else 1


sys.exit(main())
