"""What the runners of this suite have in common: where things are, the end of processes, tables."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("INTEROP_CACHE", HERE.parent.parent / "target" / "interop")).resolve()
NODE = str(CACHE / "bin" / "node")

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
