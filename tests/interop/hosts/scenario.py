"""What every client is asked to do, whatever it calls its tools."""

import os
import re
import signal
from collections import Counter

OWN_TOOLS = ("restart_server", "verify_server_restarted", "server_status", "server_logs")


class Failed(Exception):
    """What a client saw was not right."""


def check_names(names, own_tools):
    """All tools are listed, and each once; gives the names of the tools of both servers. `own_tools` is how often
    each tool of afresh is there, under different names."""
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise Failed(f"listed twice: {', '.join(twice)}")
    found = {}
    for server in ("a", "b"):
        found[server] = [name for name in names if re.search(rf"where_{server}$", name)]
        if len(found[server]) != 1:
            raise Failed(f"`where_{server}` is not listed: {', '.join(names)}")
    for tool in OWN_TOOLS:
        times = sum(bool(re.search(rf"(^|[^a-z]){tool}$", name)) for name in names)
        if times != own_tools:
            raise Failed(f"`{tool}` is listed {times} times instead of {own_tools}: {', '.join(names)}")
    return {server: names[0] for server, names in found.items()}


class Steps:
    """Calls both servers, kills each, and calls again: `next` gives the server to call, `take` what was answered."""

    ORDER = ("a", "b", "a", "b", "a")

    def __init__(self):
        self.pids, self.done = {}, 0

    def next(self):
        return self.ORDER[self.done] if self.done < len(self.ORDER) else None

    def take(self, text):
        server = self.ORDER[self.done]
        # Some give it as JSON within JSON.
        found = re.search(rf"\b{server} (\d+)\b", re.sub(r"\\+n", " ", text))
        if not found:
            raise Failed(f"call {self.done + 1}, of server {server}, was answered by: {text[:300]}")
        pid = int(found[1])
        if pid == self.pids.get(server):
            raise Failed(f"server {server} was killed, and process {pid} answers all the same")
        self.pids[server] = pid
        self.done += 1
        # Each answer comes from a process that must not be there for the next one.
        if self.next():
            os.kill(pid, signal.SIGKILL)
