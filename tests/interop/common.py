"""What the runners of this suite have in common: where things are, the end of processes, tables."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("INTEROP_CACHE", HERE.parent.parent / "target" / "interop")).resolve()
NODE = str(CACHE / "bin" / "node")

START_SECONDS = 20  # until a gateway says where it listens; it does within milliseconds
STOP_SECONDS = 5  # an SDK gives its server 2 s, then SIGTERM, 2 s more, then SIGKILL


def marked(mark):
    """The ids of all processes whose mark, in their environment, begins so."""
    wanted = f"INTEROP_MARK={mark}"
    if not Path("/proc/self/environ").exists():
        listed = subprocess.run(["ps", "-Aww", "-E", "-o", "pid=,command="], capture_output=True, text=True)
        lines = [line for line in listed.stdout.splitlines() if any(word.startswith(wanted) for word in line.split())]
        return [int(line.split()[0]) for line in lines]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(wanted.encode()) for variable in variables):
                found.append(int(entry.name))
        except OSError:
            pass  # it ended meanwhile, or is another user's
    return found


def end_marked(mark, seconds=STOP_SECONDS):
    """Waits for the marked processes to end; kills and names those that don't."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return left


class Front:
    """Whatever serves MCP over HTTP, started and ended."""

    def __init__(self, command, folder, mark, variables=None, stdout=subprocess.DEVNULL):
        # All paths of this run are its own: nobody else's settings or sockets count.
        own = {"HOME": folder, "XDG_RUNTIME_DIR": folder, "XDG_CONFIG_HOME": folder, **(variables or {})}
        self.mark, self.stderr = mark, Path(folder, "front.stderr")
        with open(self.stderr, "w") as stderr:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **own, "INTEROP_CACHE": str(CACHE), "INTEROP_MARK": mark},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                text=True,
            )

    def end(self):
        """Ends it and gives what it left alive and what it and its servers said."""
        self.process.terminate()
        left = end_marked(self.mark)
        self.process.communicate()
        return left, self.stderr.read_text()


class Gateway(Front):
    """A gateway over HTTP, with the servers that the folder's `afresh.toml` names."""

    def __init__(self, command, folder, mark, variables=None):
        super().__init__([*command, "--http", "127.0.0.1:0", "--no-token"], folder, mark, variables)
        self.url = "http://127.0.0.1:9/mcp"  # where nobody is
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", self.stderr.read_text()):
                self.url = found[0]
                break
            time.sleep(0.05)


def write_servers(folder, servers, settings=""):
    """Writes the `afresh.toml` of a gateway. A server's name of its tools begins with its own, or with none."""
    for name, (command, prefix) in servers.items():
        words = ", ".join(json.dumps(word) for word in command)
        settings += f"[server.{name}]\ncommand = [{words}]\n" + (f'prefix = "{prefix}"\n' if prefix else "")
    Path(folder, "afresh.toml").write_text(settings)


def words_of(through, parser):
    """The words of a command to put in front, with paths that hold in every folder."""
    words = shlex.split(through)
    if not words:
        return []
    program = shutil.which(words[0])
    if program is None:
        parser.error(f"`{words[0]}` is not a program")
    return [
        str(Path(program).absolute()),
        *(str(Path(word).absolute()) if Path(word).is_file() else word for word in words[1:]),
    ]


def as_text(lines):
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def as_markdown(lines):
    head, *rows = lines
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])


def write_table(file, name, table):
    """Writes a table to a file, or, where the file has marks for it, only between them."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    before, found, rest = (file.read_text() if file.exists() else "").partition(begin)
    if found and end in rest:
        after = rest.partition(end)[2]
        table = f"{before}{begin}\n{table}\n{end}{after}"
    file.write_text(table)
