"""A model on loopback that follows the script of `scenario.py`, in the words of two APIs: Chat Completions of OpenAI
and `generateContent` of Gemini."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from scenario import Failed, Steps, check_names


class Model:
    """Serves until it is closed."""

    def __init__(self, own_tools):
        self.own_tools, self.steps, self.failure, self.seen = own_tools, Steps(), None, 0
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"model": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def next_call(self, tools, results):
        """The tool to call next, by the results so far; None at the end, and for questions without tools."""
        with self.lock:
            if not any("where_" in tool for tool in tools) and not results:
                self.failure = self.failure or Failed(f"no tools of the servers: {', '.join(tools) or 'none at all'}")
                return None
            try:
                names = check_names([tool for tool in tools if "where_" in tool or "server" in tool], self.own_tools)
                # A program may ask the same again.
                if len(results) == self.steps.done + 1:
                    self.steps.take(results[-1])
                self.failure = None
            except Failed as failed:
                self.failure = failed
                return None
            server = self.steps.next()
            return names[server] if server else None

    def check(self):
        """Raises where the script was not followed to its end."""
        if self.failure:
            raise self.failure
        if self.steps.next():
            raise Failed(f"it ended after {self.steps.done} calls")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer("application/json", json.dumps({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))

    do_HEAD = do_GET

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.split("?")[0]
        if path.endswith("/chat/completions"):
            answer, is_stream = completion(self.model, body), body.get("stream")
        elif "enerateContent" in path:
            answer, is_stream = content(self.model, body), "stream" in path
        else:
            answer, is_stream = {"totalTokens": 1}, False
        if not is_stream:
            return self.answer("application/json", json.dumps(answer))
        end = "data: [DONE]\n\n" if path.endswith("/chat/completions") else ""
        self.answer("text/event-stream", "".join(f"data: {json.dumps(each)}\n\n" for each in chunks(answer)) + end)

    def answer(self, kind, text):
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def chunks(answer):
    """The parts of an answer, as they are streamed."""
    if "choices" not in answer:
        return [answer]
    [choice] = answer["choices"]
    message = choice["message"]
    for index, call in enumerate(message.get("tool_calls", [])):
        call["index"] = index
    rest = {**answer, "object": "chat.completion.chunk", "usage": None}
    return [
        {**rest, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {**rest, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}], "usage": answer["usage"]},
    ]


def completion(model, body):
    """Chat Completions of OpenAI."""
    tools = [tool["function"]["name"] for tool in body.get("tools", []) if "function" in tool]
    results = [json.dumps(each["content"]) for each in body.get("messages", []) if each["role"] == "tool"]
    name = model.next_call(tools, results) if tools else None
    message, reason = {"role": "assistant", "content": "done"}, "stop"
    if name:
        call = {"id": f"call_{len(results)}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    answer = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body.get("model", "")}
    return {**answer, "choices": [choice], "usage": usage}


def content(model, body):
    """`generateContent` of Gemini."""
    tools = [each["name"] for tool in body.get("tools", []) for each in tool.get("functionDeclarations", [])]
    parts = [part for each in body.get("contents", []) for part in each.get("parts", [])]
    results = [json.dumps(part["functionResponse"]) for part in parts if "functionResponse" in part]
    name = model.next_call(tools, results) if tools else None
    part = {"functionCall": {"name": name, "args": {}}} if name else {"text": "done"}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 2}}
