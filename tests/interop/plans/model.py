"""A model on loopback that carries out a plan by a script, in the words of two APIs, and keeps all it was asked."""

import json
import threading
import time
from copy import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WINDOW = 200_000


# Stands for a command that takes its time.
NAP = "a nap"


class Reply:
    """One answer: a shell command to run or a text, with the tokens that the conversation has then."""

    def __init__(self, percent, shell=None, text=None, status=None, headers=None, hang=False):
        self.input, self.output = int(WINDOW * percent / 100), 10
        self.shell, self.text, self.status, self.headers, self.hang = shell, text, status, headers or {}, hang


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Agents that are killed or interrupted break their connections off."""


class Model:
    """Serves until it is closed. `script(asked)` gives a `Reply` for each `Asked`."""

    def __init__(self, script, nap):
        self.script, self.nap, self.asked, self.reported, self.lock = script, nap, [], [], threading.Lock()
        self.server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"model": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def reply(self, asked):
        with self.lock:
            reply = copy(self.script(asked))
            reply.shell = self.nap if reply.shell == NAP else reply.shell
            self.asked.append(asked)
            if reply.status is None:
                self.reported.append(reply.input + reply.output)
            return reply

    def prompts(self):
        """The first words of each conversation, in order."""
        seen = []
        for asked in self.asked:
            if asked.prompt not in seen:
                seen.append(asked.prompt)
        return seen


class Asked:
    """What a conversation has in it: the texts of the user, and how many tools have answered since the last."""

    def __init__(self, texts, results):
        self.texts, self.results = texts, results
        self.prompt = next((text for text in texts if "## How this is judged" in text), "")
        self.last = texts[-1] if texts else ""
        self.whole = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(200, "application/json", json.dumps({"data": []}))

    do_HEAD = do_GET

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            return self.answer(200, "application/json", json.dumps({"input_tokens": 1000}))
        asked, speak = (asked_responses, responses) if path.endswith("/responses") else (asked_messages, messages)
        asked = asked(body)
        asked.whole = json.dumps(body)
        # Titles, summaries and the like are no part of the plan.
        reply = self.model.reply(asked) if body.get("tools") and asked.prompt else Reply(0, text="a title")
        if reply.hang:
            time.sleep(600)
        if reply.status:
            kinds = {429: "rate_limit_error", 529: "overloaded_error", 400: "invalid_request_error"}
            code = "context_length_exceeded" if reply.status == 400 else None
            error = {"type": kinds.get(reply.status, "api_error"), "message": reply.text, "code": code}
            text = json.dumps({"type": "error", "error": error})
            return self.answer(reply.status, "application/json", text, reply.headers)
        events = speak(body, reply)
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.answer(200, "text/event-stream", text)

    def answer(self, status, kind, text, headers=None):
        data = text.encode()
        try:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            # Whoever asked was interrupted.
            self.close_connection = True


def asked_messages(body):
    texts, results = [], 0
    for message in body.get("messages", []):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if message["role"] == "user" and block.get("type") == "text":
                texts.append(block["text"])
            results += block.get("type") == "tool_result"
    return Asked(texts, results)


def messages(body, reply):
    """The Messages API of Anthropic."""
    if reply.shell:
        tool = next(tool for tool in body["tools"] if tool["name"].lower() == "bash")
        arguments = {"command": reply.shell, "description": "a step"}
        block = {"type": "tool_use", "id": f"toolu_{time.monotonic_ns()}", "name": tool["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply.text}
    usage = {"input_tokens": reply.input, "output_tokens": 1}
    empty = {"id": f"msg_{time.monotonic_ns()}", "type": "message", "role": "assistant", "model": body.get("model")}
    empty.update(content=[], stop_reason=None, stop_sequence=None, usage=usage)
    yield {"type": "message_start", "message": empty}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    stop = {"stop_reason": "tool_use" if reply.shell else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {**usage, "output_tokens": reply.output}}
    yield {"type": "message_stop"}


def asked_responses(body):
    texts, results = [], 0
    for item in body.get("input", []):
        if item.get("type") == "message" and item.get("role") == "user":
            texts.extend(part.get("text", "") for part in item.get("content", []))
        results += item.get("type") == "function_call_output"
    return Asked(texts, results)


def responses(body, reply):
    """The Responses API of OpenAI."""
    if reply.shell:
        names = [tool.get("name") for tool in body["tools"]]
        name = next(name for name in ("exec_command", "shell_command", "shell") if name in names)
        arguments = {"cmd": reply.shell} if name == "exec_command" else {"command": reply.shell}
        if name == "shell":
            arguments = {"command": ["bash", "-c", reply.shell]}
        call = f"call_{time.monotonic_ns()}"
        item = {"type": "function_call", "id": call, "call_id": call, "name": name, "arguments": json.dumps(arguments)}
    else:
        content = [{"type": "output_text", "text": reply.text}]
        item = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    total = reply.input + reply.output
    usage = {"input_tokens": reply.input, "output_tokens": reply.output, "total_tokens": total}
    yield {"type": "response.created", "response": {"id": "resp_1"}}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}}
