"""The Responses API of OpenAI, as Codex uses it."""

import json
import re
import time

from tools import tool_of


def read(body):
    """The texts of the user, and how many tools have answered."""
    texts, results = [], 0
    for item in body.get("input", []):
        if item.get("type") == "message" and item.get("role") == "user":
            texts.extend(part.get("text", "") for part in item.get("content", []))
        results += item.get("type") == "function_call_output"
    return texts, results


def write(body, reply):
    """The events of an answer."""
    if reply.shell or reply.helper or reply.wait:
        name, arguments = tool(body, reply)
        call = f"call_{time.monotonic_ns()}"
        item = {"type": "function_call", "id": call, "call_id": call, "name": name, "arguments": json.dumps(arguments)}
        # Some tools are in a group, and only called with its name.
        groups = [group["name"] for group in body["tools"] if name in [tool.get("name") for tool in group.get("tools", [])]]
        item |= {"namespace": groups[0]} if groups else {}
        if reply.tool:
            item.update(tool_of(body["tools"], *reply.tool), arguments="{}")
    else:
        content = [{"type": "output_text", "text": reply.text}]
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    total = reply.input + reply.output
    usage = {"input_tokens": reply.input, "output_tokens": reply.output, "total_tokens": total}
    usage["input_tokens_details"] = {"cached_tokens": reply.cached}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}}


def tool(body, reply):
    if reply.helper:
        return "spawn_agent", {"message": reply.helper}
    if reply.wait:
        outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
        agent = re.search(r'agent_id\W+([0-9a-f-]+)', json.dumps(outputs[-1]))
        return "wait_agent", {"targets": [agent[1]], "timeout_ms": 60_000}
    names = [tool.get("name") for tool in body["tools"]]
    name = next(name for name in ("exec_command", "shell_command", "shell") if name in names)
    if name == "shell":
        return name, {"command": ["bash", "-c", reply.shell]}
    if name == "shell_command":
        return name, {"command": reply.shell}
    # Codex tells what a call has used when its commands have ended, or are left to themselves after this time.
    return name, {"cmd": reply.shell, **({"yield_time_ms": 500} if reply.is_nap else {})}
