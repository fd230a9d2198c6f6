"""An MCP server on stdio with one tool, `look`: it says which process this is, where it works and what it was told."""

import json
import os
import sys


def answer(method, params):
    if method == "initialize":
        about = {"name": "look", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        takes = {"type": "object", "properties": {}}
        return {"tools": [{"name": "look", "description": "Looks.", "inputSchema": takes}]}
    if method == "tools/call":
        told = {"pid": os.getpid(), "arguments": sys.argv[1:], "folder": os.getcwd(), "key": os.environ.get("LOOK_KEY")}
        return {"content": [{"type": "text", "text": "saw " + " ".join(f"{key}={told[key]}" for key in told)}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params"))
    outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
