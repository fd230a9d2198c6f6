"""The twelve servers of the questions: how each is started. None is called, so the tokens are made up."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from common import CACHE, NODE  # noqa: E402


def npm(package, *arguments):
    """A server of an npm package, by the program that the package names."""
    folder = CACHE / "find_tools" / "node_modules" / package
    programs = json.loads((folder / "package.json").read_text())["bin"]
    program = programs if isinstance(programs, str) else next(iter(programs.values()))
    return [NODE, str(folder / program), *arguments]


def module(name, *arguments):
    return [str(CACHE / "find_tools-python" / "bin" / "python"), "-m", name, *arguments]


def servers(place):
    """Each server by its name: its command and its variables."""
    return {
        "chrome-devtools": (npm("chrome-devtools-mcp", "--no-usage-statistics"), {}),
        "fetch": (module("mcp_server_fetch"), {}),
        "filesystem": (npm("@modelcontextprotocol/server-filesystem", place), {}),
        "git": (module("mcp_server_git"), {}),
        "github": (
            npm("@modelcontextprotocol/server-github"),
            {"GITHUB_PERSONAL_ACCESS_TOKEN": "none"},
        ),
        "google-maps": (npm("@modelcontextprotocol/server-google-maps"), {"GOOGLE_MAPS_API_KEY": "none"}),
        "memory": (npm("@modelcontextprotocol/server-memory"), {"MEMORY_FILE_PATH": f"{place}/memory.jsonl"}),
        "notion": (npm("@notionhq/notion-mcp-server"), {"NOTION_TOKEN": "none"}),
        "playwright": (npm("@playwright/mcp"), {}),
        "slack": (
            npm("@modelcontextprotocol/server-slack"),
            {"SLACK_BOT_TOKEN": "none", "SLACK_TEAM_ID": "none"},
        ),
        "sqlite": (
            [str(CACHE / "find_tools-python-1" / "bin" / "mcp-server-sqlite"), "--db-path", f"{place}/test.db"],
            {},
        ),
        "time": (module("mcp_server_time", "--local-timezone", "UTC"), {}),
    }

