"""A model on loopback that follows a script, in the words of two APIs, and keeps all that it was asked and said."""

import json
import socket
import struct
import threading
from copy import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import messages
import responses

WINDOW = 200_000

# Stands for a command that does not end by itself, where the agent can be interrupted in it.
NAP = "a nap"

# What stands in the prompts of afresh, of helpers and in the summary of a conversation, and nowhere else.
OF_AFRESH = "## How this is judged"
OF_HELPER = "You are a helper in the interop plan."
OF_SUMMARY = "This sums up the interop plan."

# How each agent asks for a summary of its conversation.
ASKS_SUMMARY = ["create a detailed summary of", "CONTEXT CHECKPOINT COMPACTION", "Create a new anchored summary"]


class Reply:
    """One answer: a text, a shell command, a task for a helper or a failure; and how full the conversation is then."""

    def __init__(self, percent, text=None, shell=None, helper=None, wait=False, cached=0, status=None, headers=None):
        self.input, self.cached, self.output = int(WINDOW * percent / 100), int(WINDOW * cached / 100), 0
        self.text, self.shell, self.helper, self.wait = text, shell, helper, wait
        self.status, self.headers, self.hang, self.reset = status, headers or {}, False, False
        # A server and a tool of it, instead of the shell.
        self.tool = None


def hang():
    """No answer at all."""
    reply = Reply(0)
    reply.hang = True
    return reply


def reset():
    """The connection ends before there is an answer."""
    reply = Reply(0)
    reply.reset = True
    return reply


class Asked:
    """What a conversation has in it: the texts of the user, and how many tools have answered."""

    def __init__(self, body, texts, results):
        self.body, self.texts, self.results = body, texts, results
        self.whole = json.dumps(body)
        self.prompt = next((text for text in texts if OF_AFRESH in text), "")
        self.last = texts[-1] if texts else ""
        self.wants_handoff = "Write the handoff" in self.last
        self.wants_summary = any(words in self.last for words in ASKS_SUMMARY)
        # Some have it as their own words.
        self.is_summed_up = OF_SUMMARY in self.whole
        self.is_of_helper = not self.prompt and any(OF_HELPER in text for text in texts)

    @property
    def kind(self):
        """Whose call this is: of the agent itself, of a helper, or made on the side, for a title or a summary."""
        if self.wants_summary:
            return "summary"
        if self.is_of_helper:
            return "helper"
        return "agent" if self.prompt or self.is_summed_up else "other"


class Call:
    """A call of the model. What was used is known once it is answered."""

    def __init__(self, asked):
        self.asked, self.kind, self.reply, self.broken_off = asked, asked.kind, None, False

    @property
    def is_answered(self):
        return self.reply is not None and not (self.reply.hang or self.reply.reset or self.reply.status)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Agents that are killed or interrupted break their connections off."""


class Model:
    """Serves until it is closed. `script(asked)` gives a `Reply`; `before(model, call)` can hold it back."""

    def __init__(self, script, nap):
        self.script, self.nap, self.before = script, nap, None
        self.calls, self.lock = [], threading.Lock()
        self.server = Server(("127.0.0.1", 0), type("Handler", (Handler,), {"model": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def call(self, asked):
        """Takes a call, and says what to answer. No two answers have the same size."""
        call = Call(asked)
        if self.before:
            self.before(self, call)
        with self.lock:
            reply = copy(self.script(asked) if call.kind != "other" else Reply(1, "a title"))
            reply.is_nap = reply.shell == NAP
            reply.shell = self.nap if reply.is_nap else reply.shell
            reply.output = 11 + 2 * len(self.calls)
            call.reply = reply
            self.calls.append(call)
        return call

    @property
    def asked(self):
        return [call.asked for call in list(self.calls)]

    def prompts(self):
        """The first words of each session, in order."""
        prompts = (asked.prompt for asked in self.asked if asked.kind == "agent" and asked.prompt)
        return list(dict.fromkeys(prompts))

    def used(self):
        """Tokens in, from a cache, and out, in all answers."""
        replies = [call.reply for call in list(self.calls) if call.is_answered]
        return tuple(sum(getattr(reply, what) for reply in replies) for what in ("input", "cached", "output"))


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
        speak = responses if path.endswith("/responses") else messages
        call = self.model.call(Asked(body, *speak.read(body)))
        reply = call.reply
        if reply.hang:
            call.broken_off = self.is_broken_off()
            self.close_connection = True
            return None
        if reply.reset:
            # With a reset instead of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            self.close_connection = True
            return None
        if reply.status:
            kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error", 400: "invalid_request_error"}
            code = "context_length_exceeded" if reply.status == 400 else None
            error = {"type": kinds.get(reply.status, "api_error"), "message": reply.text, "code": code}
            text = json.dumps({"type": "error", "error": error})
            return self.answer(reply.status, "application/json", text, reply.headers)
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in speak.write(body, reply))
        return self.answer(200, "text/event-stream", text)

    def is_broken_off(self, seconds=600):
        """Waits until whoever asked has enough of it."""
        self.connection.settimeout(seconds)
        try:
            return self.connection.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

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
