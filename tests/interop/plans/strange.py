#!/usr/bin/env python3
"""Stands in front of an agent, and puts things between its words that nobody understands, or one large one.

    strange.py [--large] AGENT ARGUMENT...

Claude Code and Codex speak in lines; for opencode, which serves, its stream of events is passed on over HTTP.
"""

import http.client
import json
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ODD = [b"no JSON", b'{"half": ', b"\xff\xfe", b'{"type":"of tomorrow","id":99,"method":"x"}', b"[1]", b'{"type":7}']


def between(is_large):
    """What comes before each word: the same odd ones, or, once, a result of 5 MB."""
    if not is_large:
        while True:
            yield ODD
    text = "x" * 5_000_000
    result = {"type": "tool_result", "tool_use_id": "none", "content": text}
    item = {"type": "commandExecution", "id": "none", "status": "completed", "aggregatedOutput": text}
    part = {"id": "prt_none", "type": "tool", "tool": "bash", "state": {"status": "completed", "output": text}}
    # Each agent knows one of the three.
    yield [json.dumps({"type": "user", "message": {"role": "user", "content": [result]}}).encode()]
    yield [json.dumps({"method": "item/completed", "params": {"item": item}}).encode()]
    yield [json.dumps({"type": "message.part.updated", "properties": {"part": part}}).encode()]
    while True:
        yield []


def speak_lines(command, odd):
    agent = subprocess.Popen(command, stdout=subprocess.PIPE)
    for line in agent.stdout:
        for bytes in (*next(odd), line.rstrip(b"\n")):
            sys.stdout.buffer.write(bytes + b"\n")
        sys.stdout.buffer.flush()
    return agent.wait()


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on, and events with something between them."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream)
        try:
            upstream.request(self.command, self.path, body, {**self.headers, "host": f"127.0.0.1:{self.server.upstream}"})
            answer = upstream.getresponse()
        except OSError:
            # It is not there yet.
            return self.reply(503, "text/plain", b"")
        kind = answer.getheader("content-type", "")
        if kind.startswith("text/event-stream"):
            return self.events(answer)
        return self.reply(answer.status, kind, answer.read())

    do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = handle_any

    def reply(self, status, kind, data):
        self.send_response(status)
        self.send_header("content-type", kind)
        if status != 204:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def events(self, answer):
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        while line := answer.readline():
            if line.startswith(b"data:"):
                for bytes in next(self.server.odd):
                    self.wfile.write(b": a comment\nevent: odd\ndata: " + bytes + b"\n\n")
            self.wfile.write(line)
            self.wfile.flush()


def serve(command, odd):
    at = command.index("--port") + 1
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        upstream = free.getsockname()[1]
    proxy = ThreadingHTTPServer(("127.0.0.1", int(command[at])), Proxy)
    proxy.daemon_threads, proxy.upstream, proxy.odd = True, upstream, odd
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    return subprocess.call([*command[:at], str(upstream), *command[at + 1 :]])


def main():
    words = sys.argv[1:]
    is_large = words[0] == "--large"
    command, odd = words[is_large:], between(is_large)
    return serve(command, odd) if "serve" in command else speak_lines(command, odd)


if __name__ == "__main__":
    sys.exit(main())
