"""Programs from npm that use MCP servers: `programs.py NAME SETTINGS`, as with `frameworks.py`.

Each has a home of its own and a model on loopback that follows a script; mcp-remote, which has no model, is spoken to
as a server.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from common import CACHE, NODE  # noqa: E402

from model import Model  # noqa: E402
from scenario import Failed, Steps, check_names  # noqa: E402

PROGRAM_SECONDS = 50
# Cline shows its model only servers that have answered by its first turn, and waits for none.
TRIES = {"cline": 3}

PATHS = {
    "gemini": "@google/gemini-cli/bundle/gemini.js",
    "qwen": "@qwen-code/qwen-code/cli.js",
    "copilot": "@github/copilot-linux-x64/copilot",
    "cline": "cline/bin/cline",
    "continue": "@continuedev/cli/dist/cn.js",
    "mcp-remote": "mcp-remote/dist/proxy.js",
}

# Name, title, whether it is heavy, and the ways that can't be.
ONLY_HTTP = "it connects a client on stdio to a server over HTTP"
LIST = [
    ("gemini", "Gemini CLI 0.61.0", True, ()),
    ("qwen", "Qwen Code 0.24.4", True, ()),
    ("copilot", "GitHub Copilot CLI 1.0.102", True, ()),
    ("cline", "Cline 3.0.65", True, ()),
    ("continue", "Continue CLI 1.5.47", True, ()),
    ("mcp-remote", "mcp-remote 0.15.1", False, (("mcp", ONLY_HTTP), ("gateway", ONLY_HTTP))),
]


def path_of(name):
    is_heavy = next(heavy for other, _, heavy, _ in LIST if other == name)
    return CACHE / ("hosts-heavy" if is_heavy else "hosts-npm") / "node_modules" / PATHS[name]


def program(name):
    path = str(path_of(name))
    return [NODE, path] if path.endswith(".js") or name == "cline" else [path]


def say(command, home, more):
    environment = {"PATH": f"{CACHE}/bin:{os.environ['PATH']}", "HOME": str(home), "CI": "1", "NO_COLOR": "1"}
    environment |= {name: os.environ[name] for name in ("INTEROP_MARK", "INTEROP_CACHE") if name in os.environ}
    try:
        ended = subprocess.run(
            command,
            cwd=home,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"")[-600:] + (late.stderr or b"")[-600:]
        raise Failed(f"it took more than {PROGRAM_SECONDS} s: {said.decode(errors='replace')}") from late
    return ended.stdout[-600:] + ended.stderr[-900:]


def write(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def gemini(servers, model, home):
    def entry(server):
        return {"httpUrl": server["url"], "headers": server["headers"]} if "url" in server else server

    settings = {
        "mcpServers": {name: {**entry(server), "trust": True} for name, server in servers.items()},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    }
    write(home / ".gemini" / "settings.json", settings)
    more = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return say([*program("gemini"), "--yolo", "--model", "gemini-2.5-flash", "--prompt", "go"], home, more)


def qwen(servers, model, home):
    def entry(server):
        return {"httpUrl": server["url"], "headers": server["headers"]} if "url" in server else server

    settings = {
        "mcpServers": {name: {**entry(server), "trust": True} for name, server in servers.items()},
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        # Else it shows tools of servers only to a model that searches for them.
        "tools": {"toolSearch": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    write(home / ".qwen" / "settings.json", settings)
    more = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_MODEL": "scripted"}
    return say([*program("qwen"), "--yolo", "--auth-type", "openai", "--prompt", "go"], home, more)


def copilot(servers, model, home):
    def entry(server):
        return {"type": "http" if "url" in server else "local", "tools": ["*"], **server}

    write(home / "mcp.json", {"mcpServers": {name: entry(server) for name, server in servers.items()}})
    more = {
        "COPILOT_PROVIDER_BASE_URL": f"{model.url}/v1",
        "COPILOT_PROVIDER_API_KEY": "none",
        "COPILOT_MODEL": "scripted",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }
    flags = ["--allow-all-tools", "--disable-builtin-mcps", "--additional-mcp-config", f"@{home}/mcp.json"]
    return say([*program("copilot"), *flags, "--prompt", "go"], home, more)


def cline(servers, model, home):
    def entry(server):
        return {"transport": {"type": "streamableHttp" if "url" in server else "stdio", **server}}

    folder = home / ".cline" / "data" / "settings"
    provider = {"provider": "openai-compatible", "apiKey": "none", "model": "scripted", "baseUrl": f"{model.url}/v1"}
    entries = {"openai-compatible": {"settings": provider, "updatedAt": "2026-01-01T00:00:00Z", "tokenSource": "manual"}}
    saved = {"version": 1, "lastUsedProvider": "openai-compatible", "modes": {}, "providers": entries}
    write(folder / "providers.json", saved)
    write(folder / "cline_mcp_settings.json", {"mcpServers": {name: entry(server) for name, server in servers.items()}})
    return say([*program("cline"), "--json", "--auto-approve", "true", "go on with it"], home, {"CLINE_NO_INTERACTIVE": "1"})


def continue_(servers, model, home):
    def entry(name, server):
        if "url" in server:
            options = {"requestOptions": {"headers": server["headers"]}}
            return {"name": name, "type": "streamable-http", "url": server["url"], **options}
        return {"name": name, "type": "stdio", **server}

    scripted = {"name": "scripted", "provider": "openai", "model": "scripted", "apiBase": f"{model.url}/v1", "apiKey": "none"}
    scripted |= {"capabilities": ["tool_use"], "roles": ["chat"]}
    config = {"name": "interop", "version": "1.0.0", "schema": "v1", "models": [scripted]}
    # JSON is YAML.
    write(home / "config.yaml", {**config, "mcpServers": [entry(name, server) for name, server in servers.items()]})
    more = {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_ALLOW_ANONYMOUS_TELEMETRY": "0", "FORCE_NO_TTY": "true"}
    return say([*program("continue"), "--auto", "--config", f"{home}/config.yaml", "--print", "go"], home, more)


def mcp_remote(server, own_tools):
    headers = [word for name, value in server["headers"].items() for word in ("--header", f"{name}: {value}")]
    command = [*program("mcp-remote"), server["url"], "--transport", "http-only", *headers]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    number = 0

    def request(method, params):
        nonlocal number
        number += 1
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        answers = map(json.loads, process.stdout)
        return next(answer for answer in answers if answer.get("id") == number and "method" not in answer)

    try:
        information = {"name": "interop", "version": "1"}
        request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": information})
        process.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        names = [tool["name"] for tool in request("tools/list", {})["result"]["tools"]]
        tools, steps = check_names(names, own_tools), Steps()
        while called := steps.next():
            steps.take(json.dumps(request("tools/call", {"name": tools[called], "arguments": {}})))
    finally:
        process.stdin.close()
        process.terminate()
        process.wait()


PROGRAMS = {"gemini": gemini, "qwen": qwen, "copilot": copilot, "cline": cline, "continue": continue_}


def main():
    settings = json.loads(Path(sys.argv[2]).read_text())
    servers, own_tools = settings["servers"], settings["own_tools"]
    try:
        if sys.argv[1] == "mcp-remote":
            mcp_remote(servers["both"], own_tools)
        else:
            for _ in range(TRIES.get(sys.argv[1], 1)):
                model = Model(own_tools)
                said = PROGRAMS[sys.argv[1]](servers, model, Path(sys.argv[2]).parent)
                if model.steps.done:
                    break
            try:
                model.check()
            except Failed as failed:
                raise Failed(f"{failed} | it said: {said}") from failed
        print(json.dumps({"ok": True}))
        return 0
    except Failed as failed:
        print(json.dumps({"ok": False, "error": str(failed)}))
        return 1


if __name__ == "__main__":
    sys.exit(main())
