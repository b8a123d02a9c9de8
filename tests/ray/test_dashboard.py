"""A council in Ray's dashboard: its actors, its heartbeats as tasks, its log, and the panel in the Metrics tab.

One Ray with its dashboard, begun by ``council up --dashboard``, looked at through its HTTP and through a browser.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.browser import Browser, missing
from tests.ray.test_cli_ray import Shell

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]
NAME = "shown"
CANARY = "the-canary-of-this-test"
SETTINGS = f"""
name = "{NAME}"
heartbeat_s = 0.5
inactivity_s = 6.0

[seats.lite]
mind = "tests.ray.minds:SlowToBuild"
options = {{ seconds = 2.0 }}
"""
WITHIN_S = 40.0
CARD = "document.querySelector('.seat[data-seat=\"{}\"]')"


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: the council has its own."""


class Shown(NamedTuple):
    """A council that is up, with its dashboard."""

    shell: Shell
    panel: str
    dashboard: str
    token: str

    def told(self, *arguments: str) -> dict[str, Any]:
        return self.shell.told(*arguments, "--name", NAME)

    def ask(self, path: str) -> Any:
        """What Ray's dashboard answers."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.dashboard}{path}", headers=headers), timeout=30
        ) as answer:
            return json.load(answer)

    def actors(self) -> dict[str, Mapping[str, Any]]:
        """The council's live actors, as Ray's dashboard has them, by their part of the council."""
        found = self.ask("logical/actors")["data"]["actors"].values()
        return {
            each["name"].rpartition("/")[2]: each
            for each in found
            if each["name"].startswith(f"{NAME}/") and each["state"] == "ALIVE"
        }


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    shell = Shell(tmp_path_factory.mktemp("shown"))
    config = shell.folder / "council.toml"
    config.write_text(SETTINGS, encoding="utf-8")
    up = shell.told("up", "--dashboard", "--config", str(config))["up"]
    try:
        assert up["panel"], shell.told("dashboard", "--name", NAME)
        kept = json.loads((shell.folder / "council/councils" / f"{NAME}.json").read_text(encoding="utf-8"))
        shell.told("propose", f"Raise the limit {CANARY}", "--body", CANARY, "--name", NAME)
        yield Shown(shell, up["panel"], up["dashboard"], kept["token"])
    finally:
        done = shell.run("down", "--name", NAME, "--yes")
        assert done.returncode == 0, done.stderr


def until(what: Any, said: str) -> Any:
    ends = time.monotonic() + WITHIN_S
    while not (found := what()):
        assert time.monotonic() < ends, said
        time.sleep(0.2)
    return found


def test_where_it_is_to_be_seen_is_told_and_tokens_where_asked_for(shown: Shown) -> None:
    assert shown.panel.startswith("http://127.0.0.1:")
    plain = shown.shell.run("dashboard", "--name", NAME).stdout
    assert f"panel:            {shown.panel}\n" in plain
    assert f"Ray's dashboard:  {shown.dashboard}\n" in plain
    assert "Metrics tab:  shows the panel" in plain
    opened = shown.told("dashboard", "--token")["dashboard"]
    assert (opened["panel"], opened["dashboard"]) == (shown.panel, shown.dashboard)
    assert opened["grafana"]["host"] == shown.panel.rstrip("/")
    assert opened["ray_token"] == shown.token
    assert len(opened["panel_token"]) >= 32
    assert not {shown.token, opened["panel_token"]} & set(re.split(r"[\s=]", plain))
    with urllib.request.urlopen(f"{shown.panel}api/council", timeout=10) as answer:
        assert CANARY.encode() not in answer.read()
    with urllib.request.urlopen(
        f"{shown.panel}api/council?token={opened['panel_token']}", timeout=10
    ) as answer:
        assert CANARY.encode() in answer.read()


def test_the_browser_is_handed_the_address_with_its_token(shown: Shown, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o700)
    shown.shell.env["BROWSER"] = f"{browser} %s"
    done = shown.shell.run("dashboard", "open", "--name", NAME)
    assert (done.returncode, done.stdout) == (0, f"opened {shown.panel}\n")
    assert re.fullmatch(re.escape(shown.panel) + r"\?token=[\w-]{32,}\n", opened.read_text())


def test_every_heartbeat_is_a_task_of_the_coordinator_with_its_times(shown: Shown) -> None:
    """Mutation: send a heartbeat without a name of its own."""
    actors = shown.actors()
    assert {"coordinator", "prime", "lite", "codemind", "panel"} == set(actors)
    assert actors["coordinator"]["reprName"].startswith(f"Coordinator of {NAME}.")
    assert actors["prime"]["reprName"].startswith(f"Seat prime of {NAME}.")
    assert actors["panel"]["reprName"].startswith(f"Panel of {NAME}.")
    coordinator = actors["coordinator"]["actorId"]

    one_actors = f"filter_keys=actor_id&filter_predicates=%3D&filter_values={coordinator}"

    def beats() -> dict[str, list[int]] | None:
        """The numbers of the heartbeats that are over, by seat, once there are some of each."""
        tasks = shown.ask(f"api/v0/tasks?detail=1&limit=1000&{one_actors}")["data"]["result"]["result"]
        found: dict[str, list[int]] = {"prime": [], "lite": [], "codemind": []}
        for each in tasks:
            match = re.fullmatch(r"heartbeat ([a-z]+) #(\d+) active(, busy)?", each["name"])
            if match and each["start_time_ms"] and each["end_time_ms"]:
                found[match[1]].append(int(match[2]))
        return found if all(len(numbers) > 3 for numbers in found.values()) else None

    for numbers in until(beats, "heartbeats among the coordinator's tasks").values():
        assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))  # each of them


def test_its_log_is_among_the_sessions_and_holds_no_content(shown: Shown) -> None:
    """Mutation: write a decision's summary, or nothing at all."""
    node = shown.ask("api/v0/nodes")["data"]["result"]["result"][0]["node_id"]
    headers = {"Authorization": f"Bearer {shown.token}"}
    url = f"{shown.dashboard}api/v0/logs/file?node_id={node}&filename=council/{NAME}.log&lines=1000"

    def listed() -> bool:
        try:
            found = shown.ask(f"api/v0/logs?node_id={node}&glob=council/*")["data"]["result"]
        except urllib.error.HTTPError:  # the dashboard has not heard of its node's agent yet
            return False
        return f"council/{NAME}.log" in [name for names in found.values() for name in names]

    def decisions() -> list[dict[str, Any]]:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
            text = answer.read().decode()
        assert CANARY not in text
        lines = [json.loads(line[line.index("{") :]) for line in text.splitlines() if "{" in line]
        return [each for each in lines if each["event"] == "decision"]

    until(listed, "the log is not among the session's")
    (decided,) = until(decisions, "no decision is in the log")
    assert (decided["outcome"], decided["council"], decided["level"]) == ("approved", NAME, "info")


def test_ours_is_put_beside_rays_own_dashboards_and_anothers_is_left(shown: Shown) -> None:
    done = shown.told("dashboard", "install")["installed"]
    path = Path(done["path"])
    try:
        assert (done["how"], done["grafana"]) == ("written", None)  # the panel in its place is none
        assert (path.parent / "default_grafana_dashboard.json").exists()
        assert json.loads(path.read_text(encoding="utf-8"))["uid"] == "council"
        assert Path(done["settings"]).exists()
        path.write_text('{"uid": "another"}', encoding="utf-8")
        refused = shown.shell.run("dashboard", "install", "--name", NAME)
        assert refused.returncode == 4, refused
        assert "is another's dashboard, and stays as it is" in refused.stderr
    finally:
        path.unlink(missing_ok=True)


@missing
def test_in_a_browser_a_seat_dies_freezes_and_comes_back_and_the_tab_shows_the_panel(
    shown: Shown, tmp_path: Path
) -> None:
    """Mutations: leave the panel out of ``frame-ancestors``; tell no seat inactive whose actor died."""
    pids = {part: int(each["address"].get("pid") or each["pid"]) for part, each in shown.actors().items()}

    def state(seat: str) -> str:
        return f"{CARD.format(seat)}?.dataset.state"

    async def die_and_come_back(page: Browser) -> None:
        await page.open(shown.panel)
        await page.see(f"{state('lite')} === 'active'")
        os.kill(pids["lite"], signal.SIGKILL)
        await page.see(f"{state('lite')} === 'inactive'", WITHIN_S)
        assert "died" in await page.run(f"{CARD.format('lite')}.querySelector('.why').textContent")
        assert await page.run(f"{state('prime')} === 'active'")
        await page.see(f"{state('lite')} === 'active'", WITHIN_S)
        assert "1 restart" in await page.run(f"{CARD.format('lite')}.querySelector('.rest').textContent")

    async def freeze_and_thaw(page: Browser) -> None:
        age = f"+{CARD.format('codemind')}.querySelector('.bar').getAttribute('aria-valuenow')"
        os.kill(pids["codemind"], signal.SIGSTOP)
        try:
            seen = [await page.see(f"{age} > {least} && ({age})") for least in (1, 2)]
            assert seen[0] < seen[1]
            await page.see(f"{state('codemind')} === 'inactive'", WITHIN_S)
            why = await page.run(f"{CARD.format('codemind')}.querySelector('.why').textContent")
            assert why == "no heartbeat for more than 6 s"
        finally:
            os.kill(pids["codemind"], signal.SIGCONT)
        await page.see(f"{state('codemind')} === 'active'", WITHIN_S)

    async def coordinator_restarts(page: Browser) -> None:
        os.kill(pids["coordinator"], signal.SIGKILL)
        await page.see("!document.getElementById('trouble').hidden", WITHIN_S)
        await page.see("document.getElementById('pulse').dataset.state === 'live'", WITHIN_S)
        await page.see("document.getElementById('facts').textContent.includes('epoch 2')", WITHIN_S)

    async def tab_and_actors(page: Browser) -> None:
        await page.call(
            "Network.setCookie", name="ray-authentication-token", value=shown.token, url=shown.dashboard
        )
        await page.open(f"{shown.dashboard}#/metrics")
        frame = await page.see("document.querySelector('iframe')?.src", WITHIN_S)
        assert frame.startswith(f"{shown.panel}d/council/?")
        await page.see_in_frame(frame, "document.querySelectorAll('.seat').length === 3", WITHIN_S)
        await page.open(f"{shown.dashboard}#/actors")
        for part in ("Coordinator of", "Seat prime of", "Panel of"):
            await page.see(f"document.body.innerText.includes('{part} {NAME}.')", WITHIN_S)

    async def look() -> None:
        async with Browser(tmp_path) as page:
            await die_and_come_back(page)
            await freeze_and_thaw(page)
            await coordinator_restarts(page)
            await tab_and_actors(page)

    asyncio.run(look())
