"""A server that reads its stdin with blocking reads, as Python servers do, and needs nothing but Python.

Its tool `run` writes its number down in the file that `INTEROP_DONE` names before it answers.
"""

import json
import os
import sys

TOOL = {"name": "run", "description": "run", "inputSchema": {"type": "object", "properties": {"number": {"type": "integer"}}}}
done = os.open(os.environ["INTEROP_DONE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def run(number):
    os.write(done, f"{number:09}\n".encode())
    return {"content": [{"type": "text", "text": f"{number} {os.getpid()}"}]}


for line in sys.stdin.buffer:
    message = json.loads(line)
    params = message.get("params", {})
    match message.get("method"):
        case "initialize":
            server = {"name": "blocking", "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = run(params["arguments"]["number"])
        case "ping":
            result = {}
        case _:
            continue
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
    sys.stdout.flush()
