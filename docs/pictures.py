"""Makes docs/escalation.svg and docs/panel.png: a real council, a guarded call that waits, and its answer.

Run it from the repository's root: python -m docs.pictures. It needs tmux and Chromium, and starts and ends a council.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
COLUMNS, ROWS = 80, 32
WAIT_S = 120.0
AGENT = """
from council import Council, NotApproved

WHO = {"agent": "deploy-bot", "user": "ada", "host": "build-7", "folder": "~/shop", "repository": "shop"}
with Council.connect() as council:
    council.propose("Rotate the staging key")

    @council.guard(risk="high", wait_for_human=True, requester=WHO)
    def drop_database(database: str, confirm: bool) -> None: ...

    try:
        drop_database(database="prod", confirm=True)
    except NotApproved as error:
        print(error)
"""


def until(ready: Callable[[], Any]) -> Any:
    """What ``ready`` returns once it is true. Raises TimeoutError."""
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s:
        if found := ready():
            return found
        time.sleep(0.2)
    raise TimeoutError("what the picture shows did not appear")


class Terminal:
    """A terminal in tmux."""

    def __init__(self, env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-L", f"pictures-{os.getpid()}"]
        # tmux's server takes the environment of the command that starts it.
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        subprocess.run([*self._tmux, "new-session", "-d", *size, "sh"], env=env, check=True)

    def type(self, text: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-l", text], check=True)
        subprocess.run([*self._tmux, "send-keys", "Enter"], check=True)

    def screen(self, *options: str) -> str:
        shown = [*self._tmux, "capture-pane", "-p", *options]
        return subprocess.run(shown, capture_output=True, text=True, check=True).stdout

    def shows(self, text: str) -> None:
        until(lambda: text in self.screen())

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False)


def council(env: dict[str, str], *arguments: str) -> Any:
    command = [sys.executable, "-m", "council.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def draw(ansi: str, path: Path) -> None:
    """Writes a terminal's screen as SVG."""
    lines = ansi.rstrip().splitlines()
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        for line in lines:
            console.print(Text.from_ansi(line), no_wrap=True, crop=True)
        path.write_text(console.export_svg(title="council answer", unique_id="escalation"), encoding="utf-8")


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if shutil.which("tmux") is None or chromium is None:
        sys.exit("tmux and Chromium are needed")
    with tempfile.TemporaryDirectory() as folder:
        scripts = Path(sys.executable).parent
        env = {**os.environ, "XDG_STATE_HOME": folder, "PATH": f"{scripts}:{os.environ['PATH']}"}
        env |= {"PYTHONPATH": str(DOCS.parent), "PS1": "$ ", "LC_ALL": "C.UTF-8"}
        council(env, "up")
        try:
            agent = subprocess.Popen([sys.executable, "-c", AGENT], env=env, cwd=folder)
            waiting = until(lambda: council(env, "escalations")["escalations"])[0]["escalation_id"]
            link = until(lambda: council(env, "dashboard", "--token")["dashboard"]["panel_link"])
            picture = [
                "--window-size=1280,900",
                "--virtual-time-budget=5000",
                f"--screenshot={DOCS / 'panel.png'}",
            ]
            subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--hide-scrollbars", *picture, link], check=True
            )
            terminal = Terminal(env)
            try:
                terminal.type(f"clear; council answer {waiting[4:12]}")
                terminal.shows("[a/r/L]")
                terminal.type("r")
                terminal.shows("reason (may be empty)")
                terminal.type("not during business hours")
                terminal.shows("rejected")
                draw(terminal.screen("-e"), DOCS / "escalation.svg")
            finally:
                terminal.close()
            agent.wait(WAIT_S)
        finally:
            council(env, "down", "--yes")


if __name__ == "__main__":
    main()
