"""Python frameworks, each with its own MCP support: `frameworks.py NAME SETTINGS`, a file of JSON with `servers`, what
each is started by or where it is, and `own_tools`. Prints one line of JSON.

No model is asked: the tools that the framework made for one are called as it would call them, and where that takes
an agent, a function stands in for the model.
"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from scenario import Failed, Steps, check_names

START_SECONDS = 30
TOOL_SECONDS = 30


async def run_steps(names, call, own_tools):
    """`call` takes a name of `names`, and gives the text of the answer."""
    tools, steps = check_names(names, own_tools), Steps()
    while server := steps.next():
        steps.take(await call(tools[server]))


async def openai_agents(servers, own_tools):
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp, MCPUtil
    from agents.tool_context import ToolContext

    async with AsyncExitStack() as stack:
        opened = []
        for name, server in servers.items():
            kind = MCPServerStreamableHttp if "url" in server else MCPServerStdio
            made = kind(params=server, name=name, client_session_timeout_seconds=START_SECONDS)
            opened.append(await stack.enter_async_context(made))
        agent = Agent(name="interop", mcp_servers=opened)
        # This refuses names that come twice.
        tools = await MCPUtil.get_all_function_tools(opened, False, RunContextWrapper(None), agent)
        by_name = {tool.name: tool for tool in tools}

        async def call(name):
            context = ToolContext(context=None, tool_name=name, tool_call_id="1", tool_arguments="{}")
            return str(await by_name[name].on_invoke_tool(context, "{}"))

        await run_steps([tool.name for tool in tools], call, own_tools)


async def pydantic_ai(servers, own_tools):
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import FunctionModel

    steps, failures = Steps(), []

    def model(messages, info):
        returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        try:
            tools = check_names([tool.name for tool in info.function_tools], own_tools)
            if returns:
                steps.take(str(returns[-1].content))
        except Failed as failed:
            failures.append(failed)
            return ModelResponse(parts=[TextPart("failed")])
        server = steps.next()
        return ModelResponse(parts=[ToolCallPart(tools[server], {}) if server else TextPart("done")])

    def transport(server):
        if "url" in server:
            return StreamableHttpTransport(server["url"], headers=server["headers"])
        return StdioTransport(server["command"], server["args"], env=server["env"])

    toolsets = [MCPToolset(transport(server), init_timeout=START_SECONDS) for server in servers.values()]
    agent = Agent(FunctionModel(model), toolsets=toolsets)
    async with agent:
        await agent.run("go")
    if failures:
        raise failures[0]
    if steps.next():
        raise Failed(f"it ended after {steps.done} calls")


async def langchain(servers, own_tools):
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    def connection(server):
        return {**server, "transport": "streamable_http" if "url" in server else "stdio"}

    client = MultiServerMCPClient({name: connection(server) for name, server in servers.items()})
    async with AsyncExitStack() as stack:
        tools = []
        for name in servers:
            # Without a session of one's own each call starts the server anew.
            session = await stack.enter_async_context(client.session(name))
            tools += await load_mcp_tools(session)
        by_name = {tool.name: tool for tool in tools}

        async def call(name):
            return json.dumps(await by_name[name].ainvoke({}), default=str)

        await run_steps([tool.name for tool in tools], call, own_tools)


async def strands(servers, own_tools):
    from mcp import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamablehttp_client
    from strands import Agent
    from strands.models import Model
    from strands.tools.mcp import MCPClient

    class NoModel(Model):
        """It is never asked."""

        def get_config(self):
            return {}

        update_config = structured_output = stream = lambda self, *_, **__: None

    def client(server):
        if "url" in server:
            return MCPClient(lambda: streamablehttp_client(server["url"], headers=server["headers"]))
        return MCPClient(lambda: stdio_client(StdioServerParameters(**server)))

    def work():
        clients = [client(server) for server in servers.values()]
        # This refuses names that come twice.
        agent = Agent(model=NoModel(), tools=clients, callback_handler=None)
        tools, steps = check_names(agent.tool_names, own_tools), Steps()
        try:
            while server := steps.next():
                answer = getattr(agent.tool, tools[server])(record_direct_tool_call=False)
                steps.take(json.dumps(answer, default=str))
        finally:
            for each in clients:
                each.stop(None, None, None)

    await asyncio.to_thread(work)


async def google_adk(servers, own_tools):
    from google.adk.agents import LlmAgent
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.models import BaseLlm
    from google.adk.sessions import InMemorySessionService
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
    from google.adk.tools.tool_context import ToolContext
    from mcp import StdioServerParameters

    class NoModel(BaseLlm):
        async def generate_content_async(self, *_, **__):
            raise AssertionError("it is never asked")
            yield

    def parameters(server):
        if "url" in server:
            return StreamableHTTPConnectionParams(**server, timeout=START_SECONDS)
        return StdioConnectionParams(server_params=StdioServerParameters(**server), timeout=START_SECONDS)

    sets = [McpToolset(connection_params=parameters(server)) for server in servers.values()]
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="interop", user_id="interop")
    agent = LlmAgent(name="interop", model=NoModel(model="none"), tools=sets)
    context = InvocationContext(session_service=sessions, invocation_id="1", agent=agent, session=session)
    try:
        tools = await agent.canonical_tools()
        by_name = {tool.name: tool for tool in tools}

        async def call(name):
            answer = await by_name[name].run_async(args={}, tool_context=ToolContext(context))
            return json.dumps(answer, default=str)

        await run_steps([tool.name for tool in tools], call, own_tools)
    finally:
        for each in sets:
            await each.close()


async def smolagents(servers, own_tools):
    from mcp import StdioServerParameters
    from smolagents import MCPClient, Model, ToolCallingAgent

    def parameters(server):
        return {**server, "transport": "streamable-http"} if "url" in server else StdioServerParameters(**server)

    def work():
        with MCPClient([parameters(server) for server in servers.values()], structured_output=False) as tools:
            # This refuses names that come twice.
            ToolCallingAgent(tools=tools, model=Model())
            by_name = {tool.name: tool for tool in tools}
            names, steps = check_names([tool.name for tool in tools], own_tools), Steps()
            while server := steps.next():
                steps.take(str(by_name[names[server]]()))

    await asyncio.to_thread(work)


async def fastmcp(servers, own_tools):
    from fastmcp import Client

    async with Client({"mcpServers": servers}, init_timeout=START_SECONDS, timeout=TOOL_SECONDS) as client:
        tools = await client.list_tools()

        async def call(name):
            answer = await client.call_tool(name, {})
            return "".join(getattr(part, "text", "") for part in answer.content)

        await run_steps([tool.name for tool in tools], call, own_tools)


FRAMEWORKS = {
    "openai-agents": openai_agents,
    "pydantic-ai": pydantic_ai,
    "langchain-mcp-adapters": langchain,
    "strands": strands,
    "google-adk": google_adk,
    "smolagents": smolagents,
    "fastmcp": fastmcp,
}


def main():
    settings = json.loads(Path(sys.argv[2]).read_text())
    began = time.monotonic()
    try:
        asyncio.run(FRAMEWORKS[sys.argv[1]](settings["servers"], settings["own_tools"]))
        said = {"ok": True}
    except Failed as failed:
        said = {"ok": False, "error": str(failed)}
    print(json.dumps({**said, "seconds": time.monotonic() - began}), flush=True)
    return 0 if said["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
