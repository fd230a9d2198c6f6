"""A server on the Python SDK, named by its argument: the tool `where_NAME` says `NAME PID`."""

import os
import sys

from mcp.server.mcpserver import MCPServer

name = sys.argv[1]
server = MCPServer(name, log_level="WARNING")


@server.tool(name=f"where_{name}", description="Says which server and which process answers.", structured_output=False)
async def where() -> str:
    return f"{name} {os.getpid()}"


server.run("stdio")
