"""A model on loopback that follows a script, in the words of two APIs.

It asks for the process id of the first server, kills that server, calls the other one and then the first again.
What the agent tells of the calls is all it knows: whether both succeeded is seen in `results`.
"""

import json
import os
import re
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model:
    """Serves until it is closed."""

    def __init__(self):
        self.results, self.killed = [], None
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"model": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def next_call(self, tools, results):
        """The tool to call next, by the results so far; None at the end, and for questions without tools."""
        def named(pattern):
            return next((tool for tool in tools if re.search(pattern, tool)), None)

        other, first, environment = named("other__echo$"), named("(?<!other__)echo$"), named("(?<!other__)get[-_]env$")
        if not (other and first and environment):
            return None
        self.results = results
        if not results:
            return environment, {}
        if len(results) == 1:
            if self.killed is None:
                self.killed = int(re.search(r"INTEROP_SERVER_PID\D+(\d+)", results[0])[1])
                os.kill(self.killed, signal.SIGKILL)
            return other, {"message": "still there"}
        return (first, {"message": "there again"}) if len(results) == 2 else None

    def succeeded(self):
        return len(self.results) == 3 and "still there" in self.results[1] and "there again" in self.results[2]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer("application/json", json.dumps({"data": []}))

    do_HEAD = do_GET

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path.split("?")[0].endswith("/responses"):
            events = responses(self.model, body)
        else:
            events = messages(self.model, body)
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.answer("text/event-stream", text)

    def answer(self, kind, text):
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def messages(model, body):
    """The Messages API of Anthropic."""
    contents = [message["content"] for message in body.get("messages", [])]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    results = [json.dumps(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
    call = model.next_call([tool["name"] for tool in body.get("tools", [])], results)
    if call:
        block = {"type": "tool_use", "id": f"toolu_{len(results)}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "done"}
    usage = {"input_tokens": 1, "output_tokens": 1}
    empty = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model"), "content": []}
    yield {"type": "message_start", "message": {**empty, "stop_reason": None, "stop_sequence": None, "usage": usage}}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def responses(model, body):
    """The Responses API of OpenAI."""
    spaces = {}  # Codex puts the tools of a server into a namespace
    for tool in body.get("tools", []):
        inner = tool.get("tools", [])
        spaces.update({each["name"]: tool["name"] for each in inner} if inner else {tool.get("name", ""): None})
    outputs = [item for item in body.get("input", []) if item.get("type") == "function_call_output"]
    results = [json.dumps(item.get("output")) for item in outputs]
    call = model.next_call(list(spaces), results)
    if call:
        item = {"type": "function_call", "id": f"fc_{len(results)}", "call_id": f"call_{len(results)}"}
        item.update(name=call[0], arguments=json.dumps(call[1]))
        if spaces[call[0]]:
            item["namespace"] = spaces[call[0]]
    else:
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": "done"}]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}}
