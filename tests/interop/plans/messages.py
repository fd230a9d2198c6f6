"""The Messages API of Anthropic, as Claude Code and opencode use it."""

import json
import time

from tools import tool_of


def read(body):
    """The texts of the user, and how many tools have answered."""
    texts, results = [], 0
    for message in body.get("messages", []):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if message["role"] == "user" and block.get("type") == "text":
                texts.append(block["text"])
            results += block.get("type") == "tool_result"
    return texts, results


def write(body, reply):
    """The events of an answer."""
    if reply.shell or reply.helper:
        names = {tool["name"].lower(): tool["name"] for tool in body["tools"]}
        name = names["bash"] if reply.shell else names.get("task") or names["agent"]
        arguments = {"command": reply.shell, "description": "a step"}
        if reply.helper:
            kind = "general-purpose" if name[0].isupper() else "general"
            arguments = {"description": "a task", "prompt": reply.helper, "subagent_type": kind}
            arguments |= {"run_in_background": False} if name[0].isupper() else {}
        if reply.tool:
            name, arguments = tool_of(body["tools"], *reply.tool)["name"], {}
        block = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text}
    # What is read from a cache and what is written to one do not count as input here.
    written = reply.cached // 2
    usage = {"input_tokens": reply.input - reply.cached - written, "output_tokens": 1}
    usage |= {"cache_read_input_tokens": reply.cached, "cache_creation_input_tokens": written}
    empty = {"id": f"msg_{time.monotonic_ns()}", "type": "message", "role": "assistant", "model": body.get("model")}
    empty.update(content=[], stop_reason=None, stop_sequence=None, usage=usage)
    yield {"type": "message_start", "message": empty}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {**usage, "output_tokens": reply.output}}
    yield {"type": "message_stop"}
