"""A council in Ray's dashboard: its actors, its heartbeats as tasks, its log, and the panel in the Metrics tab.

One Ray with its dashboard, begun by ``council up --dashboard``, looked at through its HTTP and through a browser.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser, missing
from tests.patience import HANG_S, until
from tests.ray.shells import First, Up, opened

pytestmark = pytest.mark.ray
CANARY = "the-canary-of-this-test"
CARD = "document.querySelector('.seat[data-seat=\"{}\"]')"


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: the council has its own."""


class Shown:
    """A council that is up, with its dashboard."""

    def __init__(self, up: Up) -> None:
        self.name, self.panel, self.dashboard = (up.told[key] for key in ("name", "panel", "dashboard"))
        self.token = json.loads(up.path.read_text(encoding="utf-8"))["token"]

    def ask(self, path: str) -> Any:
        """What Ray's dashboard answers."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.dashboard}{path}", headers=headers), timeout=HANG_S
        ) as answer:
            return json.load(answer)

    def actors(self) -> dict[str, Mapping[str, Any]]:
        """The council's live actors, as Ray's dashboard has them, by their part of the council."""
        found = self.ask("logical/actors")["data"]["actors"].values()
        return {
            each["name"].rpartition("/")[2]: each
            for each in found
            if each["name"].startswith(f"{self.name}/") and each["state"] == "ALIVE"
        }

    def pids(self) -> dict[str, int]:
        return {part: int(each["address"].get("pid") or each["pid"]) for part, each in self.actors().items()}


@pytest.fixture(scope="module")
def shown(first: First) -> Shown:
    assert first.told["panel"], first.said("dashboard")
    return Shown(first)


@pytest.fixture(scope="module")
def proposal(first: First) -> str:
    """The id of a proposal whose words are to stand in no log, and are shown to who has the token."""
    told = first.shell.told("propose", f"Raise the limit {CANARY}", "--body", CANARY)
    return str(told["proposal_id"])


def test_where_it_is_to_be_seen_is_told_and_tokens_where_asked_for(
    first: First, shown: Shown, proposal: str
) -> None:
    assert shown.panel.startswith("http://127.0.0.1:")
    plain = first.shell.run("dashboard", "--name", "first").stdout
    assert f"panel:            {shown.panel}\n" in plain
    assert f"Ray's dashboard:  {shown.dashboard}\n" in plain
    assert "Metrics tab:  shows the panel" in plain
    opened = first.said("dashboard", "--token")["dashboard"]
    assert (opened["panel"], opened["dashboard"]) == (shown.panel, shown.dashboard)
    assert opened["grafana"]["host"] == shown.panel.rstrip("/")
    assert opened["ray_token"] == shown.token
    assert len(opened["panel_token"]) >= 32
    assert opened["panel_link"] == f"{shown.panel}?token={opened['panel_token']}"
    assert first.said("dashboard")["dashboard"]["panel_link"] is None
    assert not {shown.token, opened["panel_token"]} & set(re.split(r"[\s=]", plain))
    with urllib.request.urlopen(f"{shown.panel}api/council", timeout=HANG_S) as answer:
        assert CANARY.encode() not in answer.read()
    with urllib.request.urlopen(
        f"{shown.panel}api/council?token={opened['panel_token']}", timeout=HANG_S
    ) as answer:
        assert CANARY.encode() in answer.read()


def test_the_browser_is_handed_the_address_with_its_token(first: First, shown: Shown) -> None:
    assert first.said("dashboard", "open") == {"exit_code": 0, "opened": shown.panel}
    handed = first.opened.read_text(encoding="utf-8")
    assert re.fullmatch(re.escape(shown.panel) + r"\?token=[\w-]{32,}\n", handed)


def test_every_heartbeat_is_a_task_of_the_coordinator_with_its_times(shown: Shown) -> None:
    """Mutation: send a heartbeat without a name of its own."""
    actors = shown.actors()
    assert {"coordinator", "prime", "lite", "codemind", "panel"} == set(actors)
    assert actors["coordinator"]["reprName"].startswith("Coordinator of first.")
    assert actors["prime"]["reprName"].startswith("Seat prime of first.")
    assert actors["panel"]["reprName"].startswith("Panel of first.")
    coordinator = actors["coordinator"]["actorId"]

    one_actors = f"filter_keys=actor_id&filter_predicates=%3D&filter_values={coordinator}"

    def beats() -> dict[str, list[int]] | None:
        """The numbers of the heartbeats that are over, by seat, once there are some of each."""
        tasks = shown.ask(f"api/v0/tasks?detail=1&limit=10000&{one_actors}")["data"]["result"]["result"]
        found: dict[str, list[int]] = {"prime": [], "lite": [], "codemind": []}
        for each in tasks:
            match = re.fullmatch(r"heartbeat ([a-z]+) #(\d+) active(, busy)?", each["name"])
            if match and each["start_time_ms"] and each["end_time_ms"]:
                found[match[1]].append(int(match[2]))
        return found if all(len(numbers) > 3 for numbers in found.values()) else None

    for numbers in until(beats, "heartbeats among the coordinator's tasks").values():
        assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))  # each of them


def test_its_log_is_among_the_sessions_and_holds_no_content(shown: Shown, proposal: str) -> None:
    """Mutation: write a decision's summary, or nothing at all."""
    node = shown.ask("api/v0/nodes")["data"]["result"]["result"][0]["node_id"]
    headers = {"Authorization": f"Bearer {shown.token}"}
    url = f"{shown.dashboard}api/v0/logs/file?node_id={node}&filename=council/first.log&lines=1000"

    def listed() -> bool:
        try:
            found = shown.ask(f"api/v0/logs?node_id={node}&glob=council/*")["data"]["result"]
        except urllib.error.HTTPError:  # the dashboard has not heard of its node's agent yet
            return False
        return "council/first.log" in [name for names in found.values() for name in names]

    def decisions() -> list[dict[str, Any]]:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=HANG_S) as answer:
            text = answer.read().decode()
        assert CANARY not in text
        lines = [json.loads(line[line.index("{") :]) for line in text.splitlines() if "{" in line]
        return [each for each in lines if each.get("proposal") == proposal]

    until(listed, "the log is not among the session's")
    (decided,) = until(decisions, "the decision is not in the log")
    assert (decided["outcome"], decided["council"], decided["level"]) == ("approved", "first", "info")


def test_ours_is_put_beside_rays_own_dashboards_and_anothers_is_left(first: First) -> None:
    done = first.said("dashboard", "install")["installed"]
    path = Path(done["path"])
    try:
        assert (done["how"], done["grafana"]) == ("written", None)  # the panel in its place is none
        assert (path.parent / "default_grafana_dashboard.json").exists()
        assert json.loads(path.read_text(encoding="utf-8"))["uid"] == "council"
        assert Path(done["settings"]).exists()
        path.write_text('{"uid": "another"}', encoding="utf-8")
        refused = first.shell.run("dashboard", "install")
        assert refused.returncode == 4, refused
        assert "is another dashboard, and is not replaced" in refused.stderr
    finally:
        path.unlink(missing_ok=True)


def state(seat: str) -> str:
    return f"{CARD.format(seat)}?.dataset.state"


def age(seat: str) -> str:
    """How long ago the seat's last heartbeat was, as the page has it."""
    return f"+{CARD.format(seat)}.querySelector('.bar').getAttribute('aria-valuenow')"


def in_a_browser(folder: Path, *looks: Callable[[Browser], Awaitable[None]]) -> None:
    async def look() -> None:
        async with Browser(folder) as page:
            for each in looks:
                await each(page)

    asyncio.run(look())


@missing
@pytest.mark.long
def test_in_a_browser_a_seat_dies_freezes_and_comes_back_and_the_tab_shows_the_panel(
    first: First, shown: Shown, tmp_path: Path
) -> None:
    """Mutations: leave the panel out of ``frame-ancestors``; tell no seat inactive whose actor died."""
    pids = shown.pids()

    async def die_and_come_back(page: Browser) -> None:
        await page.open(shown.panel)
        await page.see(f"{state('lite')} === 'active'")
        first.gate.unlink()  # or it may be back before anybody looks
        os.kill(pids["lite"], signal.SIGKILL)
        try:
            await page.see(f"{state('lite')} === 'inactive'")
            assert "died" in await page.run(f"{CARD.format('lite')}.querySelector('.why').textContent")
            assert await page.run(f"{state('prime')} === 'active'")
        finally:
            first.gate.touch()
        await page.see(f"{state('lite')} === 'active'")
        assert "1 restart" in await page.run(f"{CARD.format('lite')}.querySelector('.rest').textContent")

    async def freeze_and_thaw(page: Browser) -> None:
        found = age("codemind")
        os.kill(pids["codemind"], signal.SIGSTOP)
        try:
            seen = [await page.see(f"{found} > {least} && ({found})") for least in (1, 2)]
            assert seen[0] < seen[1]
        finally:
            os.kill(pids["codemind"], signal.SIGCONT)
        await page.see(f"{found} < {seen[1]}")

    async def coordinator_restarts(page: Browser) -> None:
        # One that dies may be back before anybody asks it; one that is frozen can't answer until it is killed.
        os.kill(pids["coordinator"], signal.SIGSTOP)
        try:
            await page.see("document.getElementById('trouble').textContent.includes('has not answered')")
        finally:
            os.kill(pids["coordinator"], signal.SIGKILL)
        await page.see("document.getElementById('pulse').dataset.state === 'live'")
        await page.see("document.getElementById('facts').textContent.includes('epoch 2')")

    async def tab_and_actors(page: Browser) -> None:
        await page.call(
            "Network.setCookie", name="ray-authentication-token", value=shown.token, url=shown.dashboard
        )
        await page.open(f"{shown.dashboard}#/metrics")
        frame = await page.see("document.querySelector('iframe')?.src")
        assert frame.startswith(f"{shown.panel}d/council/?")
        await page.see_in_frame(frame, "document.querySelectorAll('.seat').length === 3")
        await page.open(f"{shown.dashboard}#/actors")
        for part in ("Coordinator of", "Seat prime of", "Panel of"):
            await page.see(f"document.body.innerText.includes('{part} first.')")

    in_a_browser(tmp_path, die_and_come_back, freeze_and_thaw, coordinator_restarts, tab_and_actors)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Shown]:
    """A council whose seats are inactive once they are silent for six seconds."""
    settings = 'name = "silent"\nheartbeat_s = 0.5\ninactivity_s = 6.0\n'
    (tmp_path / "council.toml").write_text(settings, encoding="utf-8")
    with opened(tmp_path) as shell:
        yield Shown(Up(shell, shell.told("up", "--dashboard")["up"]))
        done = shell.run("down", "--yes")
        assert done.returncode == 0, done.stderr


@missing
@pytest.mark.long
def test_in_a_browser_a_frozen_seat_is_inactive_until_it_thaws(silent: Shown, tmp_path: Path) -> None:
    frozen = silent.pids()["codemind"]

    async def freeze_and_thaw(page: Browser) -> None:
        await page.open(silent.panel)
        await page.see(f"{state('codemind')} === 'active'")
        os.kill(frozen, signal.SIGSTOP)
        try:
            await page.see(f"{state('codemind')} === 'inactive'")
            why = await page.run(f"{CARD.format('codemind')}.querySelector('.why').textContent")
            assert why == "no heartbeat for more than 6 s"
        finally:
            os.kill(frozen, signal.SIGCONT)
        await page.see(f"{state('codemind')} === 'active'")

    in_a_browser(tmp_path, freeze_and_thaw)
