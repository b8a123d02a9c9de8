"""The panel, served for real: what it shows with its token and without, to whom, and what it does in trouble."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from council import Case, Council, Opinion, Ruling, SeatConfig, ShownBallot
from council.config.settings import DEFAULT_SEATS, CouncilConfig
from council.gateway import grafana
from council.gateway import panel as app
from council.gateway.panel import FRESH_S, Server
from council.gateway.picture import picture
from council.protocol.envelope import Envelope
from council.protocol.errors import ConfigError, CouncilError, OperatorError, Unreachable
from council.runtime.status import ARGS_CHARS_MAX, WAITING_MAX
from council.telemetry.metrics import METRICS
from tests.browser import Browser, missing
from tests.patience import HANG_S, until

ROOT = Path(__file__).parent.parent
TOKEN = "a-token-of-this-test"
CANARY = "canary<script>document.title='pwned'</script>"


async def agree(case: Case) -> Opinion:
    return Opinion.yes(f"agreed: {CANARY}")


async def refuse(case: Case) -> Opinion:
    return Opinion.no(f"refused: {CANARY}", risk_level="high" if "risky" in case.summary else "low")


async def unsure(case: Case) -> Opinion:
    if "fails" in case.summary:
        raise RuntimeError(CANARY)
    if "slow" in case.summary:
        await asyncio.sleep(600)
    return Opinion.yes(CANARY)


SEATS = [
    SeatConfig(name="prime", mind=agree),
    SeatConfig(name="lite", mind=refuse),
    SeatConfig(name="codemind", mind=unsure),
]


def unanswered(council: Council, drafted: Envelope) -> None:
    with contextlib.suppress(CouncilError):  # it ends with the council
        council.propose(drafted)


@pytest.fixture
def council() -> Iterator[Council]:
    """One that has decided something, waits for a human, and has something open; the canary is in all of it."""
    # No beat comes meanwhile: it would take back the ages that a page is seen to count up.
    beats = {"heartbeat_s": 1_000.0, "inactivity_s": 3_000.0}
    with Council.inline(name="seen", seats=SEATS, store="memory", council_tokens_max=1_000, **beats) as found:
        found.propose(f"Raise the limit {CANARY}", CANARY, wait_for="all")
        found.propose(f"risky {CANARY}", CANARY)
        found.propose(f"It fails {CANARY}", CANARY, wait_for="all")
        drafted = found.draft(f"slow {CANARY}", CANARY, wait_for="all", timeout_s=300)
        threading.Thread(target=unanswered, args=(found, drafted), daemon=True).start()
        until(lambda: found.status()["open_count"] == 1)
        yield found


class HandClock:
    """The panel's monotonic clock, which the test moves."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    time = staticmethod(time.time)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    hand = HandClock()
    monkeypatch.setattr(app, "time", hand)
    return hand


@pytest.fixture
def asked() -> list[int]:
    return []


@pytest.fixture
def panel(council: Council, asked: list[int]) -> Iterator[Server]:
    async def ask() -> Mapping[str, Any]:
        asked.append(len(asked))
        return {**await asyncio.to_thread(council.status)}

    server = Server(ask, council.name, TOKEN, "127.0.0.1", 0)
    yield server
    server.close()


def get(url: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=HANG_S) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


def raw(panel: Server, request: str) -> int:
    """The status of the answer to a request, sent as it is."""
    place = urllib.parse.urlsplit(panel.url)
    with socket.create_connection((place.hostname, place.port), timeout=HANG_S) as connection:
        connection.sendall(request.encode("latin-1"))
        line = connection.makefile("rb").readline()
    return int(line.split()[1])


def figures(panel: Server, **headers: str) -> dict[str, Any]:
    code, text, _ = get(f"{panel.url}api/council", **headers)
    assert code == 200, text
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


# What it shows


def test_without_the_token_nothing_that_a_proposal_or_a_mind_says_is_shown(panel: Server) -> None:
    """Mutation: hand on one field of ``summary``, ``reason``, ``next_step`` or a seat's whole ``why``."""
    code, text, _ = get(f"{panel.url}api/council")
    found = json.loads(text)
    assert (code, found["content"], found["trouble"]) == (200, False, None)
    assert "canary" not in text
    assert "client-" not in text
    assert [each["name"] for each in found["seats"]] == ["prime", "lite", "codemind"]
    assert [each["busy"] for each in found["seats"]] == [0, 0, 1]
    assert found["open"]["count"] == 1
    assert found["open"]["stages"]["deliberating"] == 1
    times = [each["at"] for each in found["decisions"]]
    assert len(times) == 2
    assert times == sorted(times, reverse=True)  # the newest first
    assert {"proposal_id", "outcome", "decided_by", "degraded", "seconds", "at"} == set(found["decisions"][0])
    assert found["escalations"]
    assert set(found["escalations"][0]) == {
        "escalation_id",
        "proposal_id",
        "asked_wall_s",
        "expires_wall_s",
    }
    assert found["budget"]["council"]["tokens"]["left"] == 1_000
    assert (found["epoch"], found["durable"], found["journal_lag"]) == (1, False, 0)


class Pensive:
    """Agrees at once, and takes its time to rule."""

    async def review(self, case: Case) -> Opinion:
        return Opinion.yes("agreed")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        await asyncio.sleep(600)
        raise AssertionError


def test_a_prime_that_is_to_rule_is_busy() -> None:
    seats = [
        SeatConfig(name="prime", mind=Pensive),
        *(SeatConfig(name=n, mind=agree) for n in ("lite", "codemind")),
    ]
    with Council.inline(seats=seats, store="memory") as council:
        drafted = council.draft("risky", risk="high")
        threading.Thread(target=unanswered, args=(council, drafted), daemon=True).start()
        until(lambda: council.status()["stages"].get("ruling"))
        assert [each["busy"] for each in council.status()["seats"]] == [1, 0, 0]


def test_a_seats_reason_is_cut_where_it_may_quote(council: Council) -> None:
    told = {**council.status(), "journal_lag": 0}
    told["seats"][0] |= {"active": False, "why": f"its actor died: RuntimeError: {CANARY}"}
    assert picture(told, 0.0, content=False)["seats"][0]["why"] == "its actor died"
    assert CANARY in picture(told, 0.0, content=True)["seats"][0]["why"]


def test_with_the_token_it_shows_what_the_proposals_say(panel: Server) -> None:
    for headers, query in (({"Authorization": f"Bearer {TOKEN}"}, ""), ({}, f"?token={TOKEN}")):
        code, text, _ = get(f"{panel.url}api/council{query}", **headers)
        found = json.loads(text)
        assert (code, found["content"]) == (200, True)
        assert all(
            CANARY in each["summary"]
            for each in (*found["open"]["rows"], *found["decisions"], *found["escalations"])
        )
        row = found["escalations"][0]
        assert row["command"] == f"council answer {row['escalation_id']}"
        assert (row["action"], "@" in row["requester"]) == (None, True)
        assert set(row["votes"]) <= {"prime", "lite", "codemind"}


def test_a_wrong_token_is_refused(panel: Server) -> None:
    """Not taken for none: whoever gives one wants to know that it is wrong."""
    for wrong in ("", "a", TOKEN[:-1], f"{TOKEN}x", "é", TOKEN.upper()):
        query = urllib.parse.urlencode({"token": wrong})
        assert get(f"{panel.url}api/council?{query}")[0] == 403, wrong


# To whom


def test_a_page_says_what_it_may_do_and_who_may_frame_it(council: Council) -> None:
    server = Server(council.aio.status, "x", TOKEN, "127.0.0.1", 0, framed_by=["http://dash.test:8265"])
    try:
        for path in ("", "d/council/?kiosk=1&theme=dark", "d-solo/rayDefaultDashboard/default-dashboard"):
            code, _, headers = get(f"{server.url}{path}")
            policy = headers["Content-Security-Policy"]
            assert code == 200
            assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'" in policy
            framers = policy.rpartition("frame-ancestors ")[2].split()
            assert framers == ["'self'", "http://127.0.0.1:*", "http://localhost:*", "http://dash.test:8265"]
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in headers
    finally:
        server.close()


def test_it_answers_to_its_own_names_alone(panel: Server) -> None:
    """Mutation: without this a page whose name is made to lead here (DNS rebinding) reads all there is."""
    for host in ("127.0.0.1", "localhost:1", "LOCALHOST:", "[::1]:1"):
        assert get(f"{panel.url}api/council", Host=host)[0] == 200, host
    for host in ("evil.test", "evil.test:80", "127.1", "127.0.0.1.evil.test"):
        assert get(f"{panel.url}api/council", Host=host)[0] == 421, host


NO_HOSTS = (
    *("", "a b", "]:[", "[::1", "::1", "[127.0.0.1]", "[::1%25lo]", "[evil.test]", "127.0.0.1:x", ":80"),
    *("user@127.0.0.1", "127.0.0.1/", "127.0.0.1,evil.test", "127.0.0.1 evil.test", "localhost\xe9"),
)


def test_a_request_names_one_host(panel: Server) -> None:
    """RFC 9110, 7.2. Mutation: take what is left of a host that can't be read, which may be an address."""
    for host in NO_HOSTS:
        assert raw(panel, f"GET /api/council HTTP/1.1\r\nHost: {host}\r\n\r\n") == 400, host
    for hosts in ("", "Host: 127.0.0.1\r\nHost: evil.test\r\n", "Host: 127.0.0.1\r\nHost: 127.0.0.1\r\n"):
        for version in ("1.0", "1.1"):
            assert raw(panel, f"GET /api/council HTTP/{version}\r\n{hosts}\r\n") == 400


NO_PAGES = (
    *("__init__.py", "app.py", "..%2Fmetrics.py", "%2Fetc%2Fpasswd", "council.json", "x", "x" * 300 + ".js"),
    *("page.js%00", "%00.js", "%FF.js", "%F0%9F%98%80.js", "PAGE.HTML", ".js", "..", "%2e%2e"),
)


def test_no_other_file_is_served(panel: Server) -> None:
    for path in NO_PAGES:
        assert get(f"{panel.url}{path}")[0] == 404, path


def test_it_answers_ray_as_grafana_and_prometheus_would(panel: Server) -> None:
    assert json.loads(get(f"{panel.url}api/health")[1])["database"] == "ok"
    told = json.loads(get(f"{panel.url}api/v1/query?query=vector(1)")[1])
    assert (told["status"], len(told["data"]["result"])) == ("success", 1)
    assert json.loads(get(f"{panel.url}api/v1/query?query=up")[1])["data"]["result"] == []


def test_however_many_look_the_council_is_asked_seldom(
    clock: HandClock, panel: Server, asked: list[int]
) -> None:
    for _ in range(40):
        figures(panel)
        clock.now_s += FRESH_S / 16
    assert len(asked) == 3


# In trouble


def test_a_journal_that_keeps_nothing_is_told_beside_how_things_are(council: Council) -> None:
    """Mutation: a council that answers is well."""

    async def ask() -> Mapping[str, Any]:
        return {**await asyncio.to_thread(council.status), "journal_trouble": "no room is left"}

    server = Server(ask, "seen", TOKEN, "127.0.0.1", 0)
    try:
        found = figures(server)
        assert (found["trouble"], found["at"] is not None) == ("no room is left", True)
    finally:
        server.close()


def test_a_council_that_does_not_answer_is_told_and_the_last_picture_stays(
    clock: HandClock, council: Council
) -> None:
    trouble: list[Exception] = []

    async def ask() -> Mapping[str, Any]:
        if trouble:
            raise trouble[0]
        return {**await asyncio.to_thread(council.status)}

    server = Server(ask, "seen", TOKEN, "127.0.0.1", 0)
    try:
        before = figures(server)
        trouble.append(Unreachable("the coordinator of seen is away", name="seen"))
        clock.now_s += FRESH_S
        after = figures(server)
        assert after["trouble"] == "the coordinator of seen is away"
        assert (after["at"], after["seats"]) == (before["at"], before["seats"])
        assert after["now"] > before["now"]
        trouble[0] = RuntimeError(CANARY)
        clock.now_s += FRESH_S
        assert figures(server)["trouble"] == "the coordinator can't be asked: RuntimeError"
    finally:
        server.close()


def test_a_council_that_is_frozen_is_asked_once_and_shown_again_once_it_answers(
    monkeypatch: pytest.MonkeyPatch, clock: HandClock, council: Council
) -> None:
    """Mutations: asked anew by each look, all of which wait there; its old answer shown as one of now."""
    monkeypatch.setattr(app, "ANSWER_S", 0.3)
    asked, answered, thawed = list[int](), list[int](), threading.Event()

    async def ask() -> Mapping[str, Any]:
        asked.append(len(asked))
        await asyncio.to_thread(thawed.wait, HANG_S)
        status = {**await asyncio.to_thread(council.status)}
        answered.append(len(answered))
        return status

    def look() -> dict[str, Any]:
        clock.now_s += FRESH_S
        return figures(server)

    server = Server(ask, "seen", TOKEN, "127.0.0.1", 0)
    try:
        for _ in range(4):
            assert look()["trouble"] == "the coordinator has not answered within 0.3 s"
        assert len(asked) == 1
        monkeypatch.setattr(app, "ANSWER_S", 2 * HANG_S)
        look()  # who looks later waits no more
        thawed.set()
        until(lambda: answered)
        thawed_s = time.time()
        after = until(lambda: (found := look())["trouble"] is None and found)
        assert (after["at"] >= thawed_s, len(asked)) == (True, 2)
    finally:
        thawed.set()
        server.close()


def test_a_port_in_use_is_told_with_what_to_do() -> None:
    async def ask() -> Mapping[str, Any]:
        return {}

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OperatorError, match=f"127.0.0.1 port {port}: .*in use; .*panel_port"):
            Server(ask, "x", TOKEN, "127.0.0.1", port)
    with pytest.raises(OperatorError, match=r"no\.such\.host\.invalid port 0: .*panel_host"):
        Server(ask, "x", TOKEN, "no.such.host.invalid", 0)


# In a browser


@missing
def test_the_page_draws_it_all_and_no_text_becomes_code(panel: Server, tmp_path: Path) -> None:
    async def look() -> None:
        async with Browser(tmp_path) as page:
            await page.open(f"{panel.url}?token={TOKEN}")
            assert await page.see("document.querySelectorAll('.seat').length") == 3
            said = await page.run("document.body.innerText")
            assert said.count(CANARY) >= 4  # open, waiting, decided: as text
            waiting = len(figures(panel)["escalations"])
            assert await page.run("document.title") == f"({waiting}) seen · council"
            assert await page.run("document.querySelectorAll('main script').length") == 0
            pills = "[...document.querySelectorAll('.seat .pill')].map((each) => each.textContent)"
            assert await page.run(pills) == ["active", "active", "busy with 1"]
            ages = "[...document.querySelectorAll('.bar')].map((each) => +each.getAttribute('aria-valuenow'))"
            first = await page.run(ages)
            assert all(0 <= age <= 90 for age in first)
            await page.see(f"({ages}).every((age, index) => age > {json.dumps(first)}[index] + 0.5)")
            # Not by answers alone, which come once a second.
            await page.see("document.getElementById('pulse').dataset.state === 'live'")
            steps = "new Promise(done => setTimeout(done, 120))"
            seen = [await page.run(f"{steps}.then(() => ({ages})[0])") for _ in range(8)]
            assert len(set(seen)) > 3
            await page.open(f"{panel.url}?token=wrong")
            assert "not this panel's" in await page.see("document.getElementById('token').innerText")
            assert "canary" not in await page.run("document.body.innerText")
            light = "getComputedStyle(document.body).backgroundColor"
            await page.open(f"{panel.url}d/council/?theme=light")
            first = await page.run(light)
            await page.open(f"{panel.url}d/council/?theme=dark")
            assert await page.run(light) != first

    asyncio.run(look())


DIFF = "diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,1 @@\n-limit(user)\n done()\n"
HIDDEN = "prod\u202etxt"


class Chair:
    """Sees high risk, and has a human decide."""

    async def review(self, case: Case) -> Opinion:
        return Opinion.no("there is no backup", risk_level="high")

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return Ruling("human", "somebody must look for a backup", confidence=0.8)


def ask_a_human(council: Council, number: int) -> None:
    action = {"tool": f"drop_{number}", "args": {"database": HIDDEN, "sure": True}}
    council.propose(f"Drop database {number}", DIFF, action=action, wait_for="all")


@pytest.fixture
def asking() -> Iterator[tuple[Council, Server]]:
    """A council named council with a case for a human, and its panel."""
    seats = [
        SeatConfig(name="prime", mind=Chair),
        *(SeatConfig(name=n, mind=agree) for n in ("lite", "codemind")),
    ]
    with Council.inline(seats=seats, store="memory") as found:
        ask_a_human(found, 1)

        async def ask() -> Mapping[str, Any]:
            return {**await asyncio.to_thread(found.status)}

        server = Server(ask, found.name, TOKEN, "127.0.0.1", 0)
        yield found, server
        server.close()


async def resized(page: Browser, width: int, height: int, theme: str = "light") -> None:
    await page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=width < 500,
    )
    wanted = [{"name": "prefers-color-scheme", "value": theme}]
    await page.call("Emulation.setEmulatedMedia", features=wanted)


async def tab(page: Browser) -> str:
    """Presses the key, and says what has the focus."""
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    return str(await page.run("document.activeElement.className || document.activeElement.localName"))


async def drawn_again(page: Browser) -> None:
    """Waits until newer figures were drawn."""
    before = await page.run("seen.now")
    await page.see(f"seen.now > {before}")


@missing
def test_what_waits_for_a_human_is_first_and_whole(asking: tuple[Council, Server], tmp_path: Path) -> None:
    """Mutations: without the arguments, a reason, the ruling or the command; with a hidden character as it is."""
    council, server = asking
    (case,) = council.escalations()

    async def look() -> None:
        async with Browser(tmp_path) as page:
            for width, height in ((1280, 900), (390, 844)):
                await resized(page, width, height)
                await page.open(f"{server.url}?token={TOKEN}")
                await page.see("document.querySelectorAll('.case[open]').length === 1")
                said = await page.run("document.querySelector('.case').innerText")
                for text in (
                    *("high risk", "drop_1", 'database = "prod\\u202etxt"', "sure = true", "Drop database 1"),
                    *("asked by ", "-limit(user)", "there is no backup", "agreed: canary", "prime's ruling"),
                    *("somebody must look for a backup", f"council answer {case.escalation_id}", "23 h left"),
                ):
                    assert text in said, text
                assert await page.run("document.title") == "(1) council"
                assert await page.run("document.querySelector('.removed').textContent") == "-limit(user)\n"
                parts = "[...document.querySelectorAll('main section')].map((each) => each.id)"
                assert (await page.run(parts))[0] == "waiting"
                place = "document.querySelector('.case .command').getBoundingClientRect()"
                assert await page.run(f"{place}.bottom") < height  # on the first screen
                assert await page.run("document.documentElement.scrollWidth <= innerWidth")

    asyncio.run(look())


@missing
def test_what_is_to_be_approved_is_shown_exactly_or_as_cut(
    asking: tuple[Council, Server], tmp_path: Path
) -> None:
    """Mutations: numbers as JavaScript has them, letters without ink, runs of spaces in one, a silent end."""
    council, server = asking
    args = {"cents": 12345678901234567890, "dir": "a   b\u3164", "": 1, "x = 1, y": 2, "to\u202e": "\u2003"}
    council.propose("Pay", "x" * 5_000, action={"tool": "pay", "args": args}, wait_for="all")
    council.propose("Move", action={"tool": "move", "args": {"dir": "c   d\u3164"}}, wait_for="all")

    async def look() -> None:
        async with Browser(tmp_path) as page:
            await page.open(f"{server.url}?token={TOKEN}")
            await page.see("document.querySelectorAll('.case[open]').length === 3")
            said = await page.run("document.querySelector('#waiting').innerText")
            lines = ['"" = 1', '"x = 1, y" = 2', 'dir = "a   b\\u3164"', 'to\\u202e = "\\u2003"']
            assert "\n".join([*lines, "cents = 12345678901234567890"]) in said
            assert 'dir = "c   d\\u3164"' in said
            assert "… 1,000 characters more: council show " in said

    asyncio.run(look())


def waiting_in(council: Council, number: int) -> list[str]:
    """Has that many more proposals wait for a human; gives the summaries, the newest first."""
    summaries = [f"Case {n}" for n in range(number)]
    for summary in summaries:
        council.propose(summary, wait_for="all")
    return summaries[::-1]


def test_the_newest_that_wait_are_listed_and_the_counts_are_of_all(asking: tuple[Council, Server]) -> None:
    """Mutation: those that waited longest, so that the newest case is not in the list."""
    council, server = asking
    summaries = waiting_in(council, WAITING_MAX)
    status = council.status()
    assert [each["summary"] for each in status["waiting"]] == summaries
    assert status["with_human"] == WAITING_MAX + 1
    listed = [each["summary"] for each in figures(server, Authorization=f"Bearer {TOKEN}")["escalations"]]
    assert listed == summaries


@missing
def test_the_page_says_how_many_older_ones_wait_and_what_lists_them(
    asking: tuple[Council, Server], tmp_path: Path
) -> None:
    council, server = asking
    waiting_in(council, WAITING_MAX)

    async def look() -> None:
        async with Browser(tmp_path) as page:
            await page.open(f"{server.url}?token={TOKEN}")
            await page.see(f"document.querySelectorAll('.case').length === {WAITING_MAX}")
            said = await page.run("document.querySelector('#waiting').innerText")
            assert f"Case {WAITING_MAX - 1}" in said
            assert "1 older: council escalations --all" in said

    asyncio.run(look())


def test_arguments_are_the_short_ones_first_and_what_is_cut_is_counted(
    asking: tuple[Council, Server],
) -> None:
    council, _ = asking
    args = {"long": "x" * 3_000, "longer": "x" * 4_000, "n": 1}
    council.propose("Write", action={"tool": "write", "args": args}, wait_for="all")
    action = council.status()["waiting"][0]["action"]
    (first, (name, value)) = action["arguments"]
    assert (tuple(first), name, action["arguments_cut"]) == (("n", "1"), "long", 2)
    assert value.endswith("x…")
    assert sum(map(len, (*first, name, value))) == ARGS_CHARS_MAX


@missing
def test_without_the_right_token_a_case_has_its_command_alone(
    asking: tuple[Council, Server], tmp_path: Path
) -> None:
    council, server = asking
    (case,) = council.escalations()

    async def look() -> None:
        async with Browser(tmp_path) as page:
            for query, told in (("", False), ("?token=wrong", True)):
                await page.open(f"{server.url}{query}")
                await page.see("document.querySelectorAll('.case').length === 1")
                said = await page.run("document.body.innerText")
                assert f"council answer {case.escalation_id}" in said
                assert ("The token in this address is not this panel's" in said) == told
                for text in ("drop_1", "Drop database", "backup", "canary", "asked by"):
                    assert text not in said, text

    asyncio.run(look())


@missing
def test_all_that_can_be_done_can_be_done_with_the_keyboard(
    asking: tuple[Council, Server], tmp_path: Path
) -> None:
    """Mutations: no ring of focus; draw all anew each second, which loses the focus and unfolds a folded case."""
    council, server = asking

    async def look() -> None:
        async with Browser(tmp_path) as page:
            await page.open(f"{server.url}?token={TOKEN}")
            await page.see("document.querySelectorAll('.case').length === 1")
            order = [await tab(page) for _ in range(12)]
            ring = "getComputedStyle(document.activeElement).outlineStyle"
            assert await page.run(ring) != "none"
            assert order[:5] == ["skip", *["explained"] * 3, "summary"], order
            assert {"body", "copy"} < set(order)
            await page.run("document.querySelector('.copy').focus()")
            await drawn_again(page)
            assert await page.run("document.activeElement.className") == "copy"
            await page.run("document.querySelector('.case').open = false")
            ask_a_human(council, 2)
            await page.see("document.querySelectorAll('.case').length === 2")
            about = "(each) => [each.innerText.includes('drop_2'), each.open]"
            folded = f"Array.from(document.querySelectorAll('.case'), {about})"
            assert await page.run(folded) == [[True, True], [False, False]]
            # A screen reader is told of the new one, and of that alone.
            assert await page.run("document.getElementById('told').textContent") == (
                "1 new case for a human: Drop database 2"
            )
            tips = """[...document.querySelectorAll('.explained')].map((each) => {
                each.focus();
                const tip = document.getElementById(each.getAttribute('aria-describedby'));
                return [each.firstChild.data, tip.checkVisibility() && tip.innerText.length > 20];
            })"""
            explained = dict(await page.run(tips))
            assert {"epoch 1", "quorum 2", "deferred", "refused messages", "last heartbeat"} <= set(explained)
            assert any(each.startswith("journal at ") for each in explained)
            assert all(explained.values()), explained

    asyncio.run(look())


@missing
def test_the_command_can_be_copied(asking: tuple[Council, Server], tmp_path: Path) -> None:
    council, server = asking
    (case,) = council.escalations()
    command = f"council answer {case.escalation_id}"

    async def look() -> None:
        async with Browser(tmp_path) as page:
            await page.open(f"{server.url}?token={TOKEN}")
            await page.see("document.querySelectorAll('.copy').length === 1")
            # Where the browser has a clipboard for the page, and where it has none, as within another page's frame.
            for clipboard in ("{ writeText: async (text) => { window.kept = text; } }", "undefined"):
                script = f"Object.defineProperty(navigator, 'clipboard', {{value: {clipboard}, configurable: true}})"
                await page.run(f"{script}, window.kept = null, 0")
                await page.run(
                    "document.execCommand = () => false, document.querySelector('.copy').click(), 0"
                )
                told = await page.see("document.getElementById('told').textContent")
                if clipboard != "undefined":
                    assert (await page.run("window.kept"), told) == (command, "Copied")
                    await page.run("document.getElementById('told').textContent = ''")
                else:
                    selected = await page.run("getSelection().toString()")
                    assert (selected, told) == (command, "Selected: press Ctrl+C")

    asyncio.run(look())


CONTRASTS = """(() => {
    const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const mixed = (colors) => {
        for (const each of colors) { context.fillStyle = each; context.fillRect(0, 0, 1, 1); }
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((each) => each / 255);
    };
    const light = (color) => {
        const [r, g, b] = color.map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = {};
    for (const each of document.body.querySelectorAll("*")) {
        const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !each.checkVisibility() || each.className === "skip") continue;
        const behind = [];
        for (let at = each; at; at = at.parentElement) behind.unshift(getComputedStyle(at).backgroundColor);
        const [back, front] = [light(mixed(behind)), light(mixed([...behind, getComputedStyle(each).color]))];
        const ratio = (Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05);
        const name = `${each.localName}.${each.className} ${each.dataset.state ?? ""}`;
        found[name] = Math.min(found[name] ?? 99, ratio);
    }
    return found;
})()"""


@missing
def test_every_text_has_the_contrast_of_wcag_aa_in_both_themes(panel: Server, tmp_path: Path) -> None:
    """4.5 to 1. Mutation: the lighter green of before in the pill of an active seat, with 4.2 to 1."""

    async def look() -> None:
        async with Browser(tmp_path) as page:
            for theme in ("light", "dark"):
                await resized(page, 1280, 900, theme)
                await page.open(f"{panel.url}?token={TOKEN}")
                await page.see("document.querySelectorAll('.case').length")
                await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
                await page.run("document.querySelector('.explained').focus()")
                found = await page.run(CONTRASTS)
                for name in (
                    "span.pill active",
                    "span.pill busy",
                    "span.pill risk-high",
                    "span.badge ",
                    "span.tip ",
                ):
                    assert name in found, (name, sorted(found))
                assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}, theme

    asyncio.run(look())


# Grafana


def dashboard() -> dict[str, Any]:
    found = json.loads((ROOT / "council/gateway/council.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def expressions() -> list[str]:
    return [target["expr"] for each in dashboard()["panels"] for target in each.get("targets", ())]


def test_the_dashboard_shows_every_metric_there_is_and_no_other() -> None:
    """Mutation: rename a metric, or add one, and leave the dashboard as it was."""
    named = {name for each in expressions() for name in re.findall(r"\$\{prefix\}_([a-z_]+)", each)}
    endings = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
    known = {
        f"{name.removeprefix('council_')}{ending}": name
        for name, metric in METRICS.items()
        for ending in endings[metric.kind]
    }
    assert named <= set(known)
    assert {known[name] for name in named} == set(METRICS)


def test_the_dashboard_has_its_own_uid_and_ids_and_no_overlap() -> None:
    found = dashboard()
    assert found["uid"] == "council"
    ids = [each["id"] for each in found["panels"]]
    assert len(ids) == len(set(ids))
    cells: set[tuple[int, int]] = set()
    for each in found["panels"]:
        place = each["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, each["title"]
        assert max(x for x, _ in own) < 24
        cells |= own
    assert (ROOT / "deploy/grafana/council.json").resolve() == ROOT / "council/gateway/council.json"


def test_it_is_put_where_none_is_and_in_place_of_an_earlier_one_and_never_of_anothers(tmp_path: Path) -> None:
    path, how = grafana.put("{}", tmp_path / "new")
    assert (path, how, path.read_text()) == (tmp_path / "new" / "council.json", "written", "{}")
    text = grafana.FILE.read_text(encoding="utf-8")
    for before in ('{"uid": "council", "version": 0}', text):
        path.write_text(before, encoding="utf-8")
        how = "is there already" if before == text else "replaced an earlier version"
        assert grafana.put(text, path.parent) == (path, how)
        assert path.read_text(encoding="utf-8") == text
    for anothers in ('{"uid": "other"}', "{}", "[]", "not JSON", "", '{"uid": ["council"]}'):
        path.write_text(anothers, encoding="utf-8")
        with pytest.raises(OperatorError, match="another dashboard, and is not replaced"):
            grafana.put(text, path.parent)
        assert path.read_text(encoding="utf-8") == anothers
    assert [each.name for each in path.parent.iterdir()] == ["council.json"]
    with pytest.raises(OperatorError, match="can't be written"):
        grafana.put(text, path / "below-a-file")


@pytest.mark.skipif(
    shutil.which("promtool") is None and not os.environ.get("CI"),
    reason="no promtool here: apt-get install prometheus",
)
def test_prometheus_understands_every_expression(tmp_path: Path) -> None:
    rules = [
        {
            "record": f"panel:{number}",
            "expr": each.replace("${prefix}", "council").replace("$__rate_interval", "1m"),
        }
        for number, each in enumerate(expressions())
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


# Settings


@pytest.mark.parametrize("name", ["panel", "coordinator"])
def test_no_seat_takes_the_name_of_another_actor(name: str) -> None:
    """Mutation: let it, and ``<council>/panel`` is two actors' name."""
    seats = (*DEFAULT_SEATS, SeatConfig(name=name, mind=agree))
    with pytest.raises(ConfigError, match=f"seats: {name}: a name of an actor that is no seat"):
        CouncilConfig(seats=seats)
