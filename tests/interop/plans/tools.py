"""The tools that an agent shows to the model."""


def tool_of(tools, server, name):
    """How a tool of an MCP server is called: each agent has its own way, some in a group of the server's."""
    for tool in tools:
        for inner in tool.get("tools", []):
            if server in tool["name"] and inner["name"].endswith(name):
                return {"name": inner["name"], "namespace": tool["name"]}
        if server in tool.get("name", "") and tool["name"].endswith(name):
            return {"name": tool["name"]}
    raise LookupError(f"the model sees no tool `{name}` of `{server}`")
