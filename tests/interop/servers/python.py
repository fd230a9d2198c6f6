"""The common server on the Python SDK: both eras."""

import os
from pathlib import Path

import anyio
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer

URI = "interop://counter"
VERSION = Path(os.environ["INTEROP_VERSION_FILE"]).read_text().strip()

server = MCPServer("interop-python", version=VERSION, log_level="WARNING")
subscribed: set[str] = set()
counter = 0


@server.tool()
async def echo(message: str) -> str:
    return f"echo: {message}"


@server.tool()
async def pid() -> str:
    return str(os.getpid())


@server.tool(name="exit")
async def leave(code: int) -> str:
    os._exit(code)


@server.tool()
async def slow(ms: int) -> str:
    await anyio.sleep(ms / 1000)
    return f"slow: {ms}"


@server.tool()
async def version() -> str:
    return VERSION


@server.tool()
async def touch(ctx: Context) -> str:
    """Reports a change, to whoever subscribed in this instance."""
    global counter
    counter += 1
    await ctx.notify_resource_updated(URI)
    if URI in subscribed:
        await ctx.session.send_resource_updated(URI)
    return str(counter)


if VERSION == "2":

    @server.tool()
    async def new_tool() -> str:
        return "new"


@server.resource(URI)
async def value() -> str:
    return str(counter)


# The comfortable class knows only the modern `subscriptions/listen`.
async def subscribe(_context, params: types.SubscribeRequestParams) -> types.EmptyResult:
    subscribed.add(str(params.uri))
    return types.EmptyResult()


async def unsubscribe(_context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
    subscribed.discard(str(params.uri))
    return types.EmptyResult()


low = server._lowlevel_server
low.add_request_handler("resources/subscribe", types.SubscribeRequestParams, subscribe)
low.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, unsubscribe)

server.run("stdio")
