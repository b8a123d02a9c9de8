"""Councils that are killed while eight executors race for their tokens.

``python -m tests.runtime.racing --kills 500``

Each life of the council is a process of its own on the same store. It approves actions, and eight executors of one
name try to run each of them, as often as they can. A run appends a line to a file, which a kill does not take back.
A life ends by SIGKILL at a step of chance: before or after a message is received, records are taken to be written,
they are kept, or an action runs. At the end, no action may have run more often than its token was counted, nor been
counted more often than its token allows.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from council import Council
from council.action.tool import OUTSIDE, Operation, Safety, ToolResult
from council.api.client import handle_of
from council.api.handle import Handle
from council.protocol.errors import CouncilError
from council.runtime.driver import Driver
from council.runtime.executor import Executor
from council.runtime.questions import AskTokens

EXECUTORS, PROPOSALS_AT_ONCE = 8, 3
CREW = "crew"
STEPS_MAX = 400  # of a life, once its executors have joined


def key_of(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


class Mark:
    """Appends the name that it is given to a file."""

    name = "mark"
    safety: Safety = "WRITE"
    operations: tuple[Operation, ...] = ("write",)

    def __init__(self, log: Path) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def check(self, args: Mapping[str, Any]) -> None:
        assert isinstance(args["name"], str)

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        return (f"mark:{args['name']}",)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        os.write(self._log, f"{args['name']}\n".encode())
        return ToolResult(True, args["name"], "", None, OUTSIDE, 0.0, False)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        return ""


class Doom:
    """Kills this process at one of its steps."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def step(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def on(self, owner: Any, *names: str) -> None:
        """Makes a step of the beginning and of the end of each of these methods."""
        for name in names:
            setattr(owner, name, self._stepping(getattr(owner, name)))

    def _stepping(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            found = method(*args, **kwargs)
            self.step()
            return found

        return stepping


def opened(store: Path) -> Council:
    return Council.inline(store=str(store), name="racing", sender="bob", key=key_of("bob"))


async def propose(handle: Handle, council: Council, name: str, uses: int) -> tuple[str, str]:
    terms = {"executor": CREW, "operations": ["write"], "resources": [f"mark:{name}"], "uses": uses}
    action = {"tool": "mark", "args": {"name": name}, "authorization": terms}
    decision = await council.aio.propose(f"Mark {name}", action=action, wait_for="decisive")
    assert decision, decision
    return decision.proposal_id, name


async def run_all(executor: Executor, wanted: list[tuple[str, str]]) -> None:
    for proposal_id, name in wanted:
        with suppress(CouncilError):
            await executor.perform(proposal_id, "mark", {"name": name}, 30.0)


async def race(council: Council, log: Path, life: int) -> None:
    """Approves actions and runs them until the process is killed."""
    handle = handle_of(council)
    tools = {"mark": Mark(log)}
    crew = [Executor(handle.port, CREW, key_of(CREW), 30.0, tools) for _ in range(EXECUTORS)]
    await asyncio.gather(*(each.open() for each in crew))
    dice = random.Random(life)
    doom = Doom(dice.randint(1, STEPS_MAX))
    doom.on(Driver, "receive", "drain", "saved")
    doom.on(Mark, "run")
    # What an earlier life left.
    known = [
        (each.proposal_id, each.resources[0].removeprefix("mark:"))
        for each in await handle.session.ask(AskTokens())
    ]
    wanted = known[-2 * PROPOSALS_AT_ONCE :]
    for number in range(1_000_000):
        names = [f"{life}.{number}.{each}" for each in range(PROPOSALS_AT_ONCE)]
        wanted += await asyncio.gather(
            *(propose(handle, council, name, dice.randint(1, 3)) for name in names)
        )
        await asyncio.gather(
            *(run_all(each, dice.sample(wanted, len(wanted))) for each in crew for _ in "12")
        )
        wanted = []


def live(store: Path, log: Path, life: int, ready: int) -> None:
    """One life, in a process of its own, which only a kill ends."""
    try:
        council = opened(store)
        os.write(ready, b".")
        handle_of(council).wait(race(council, log, life))
    except BaseException as error:
        os.write(ready, repr(error).encode()[:500])
    os._exit(1)


class Found(NamedTuple):
    """What the lives came to: over-uses are runs or counts above what a token allows, each in words."""

    tokens: int
    runs: int
    counted: int
    unknown: int
    over: list[str]


def kill_many(folder: Path, kills: int, seed: int) -> Found:
    """Lives and kills, then what the journal and the file say."""
    store, log = folder / "racing.db", folder / "marks"
    log.touch()
    for life in range(seed, seed + kills):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            live(store, log, life, writer)
        os.close(writer)
        said = os.read(reader, 1_000)
        assert said == b".", f"life {life} did not begin: {said!r}"
        assert not (said := os.read(reader, 1_000)), f"life {life} ended by itself: {said!r}"
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        os.close(reader)
    return look(store, log)


def look(store: Path, log: Path) -> Found:
    """Compares the file with the journal's records of tokens and uses."""
    runs = Counter(log.read_text().split())
    allowed: dict[str, int] = {}
    proposals: dict[str, str] = {}
    counted: Counter[str] = Counter()
    with opened(store) as council:
        crew = Executor(handle_of(council).port, CREW, key_of(CREW), 30.0, {})
        handle_of(council).wait(crew.open())  # whatever was under way has an unknown outcome now
        left = [each for each in council.tokens() if each.standing == "under way"]
        cursor: int | None = None
        while True:
            page = council.history(
                types=["proposal", "use"], newest_first=False, limit=1_000, envelopes=True, cursor=cursor
            )
            for entry in page:
                told = json.loads(entry.envelope.to_json())["content"]
                if entry.kind == "proposal":
                    name = told["action"]["args"]["name"]
                    allowed[name] = told["action"]["authorization"]["uses"]
                    proposals[entry.proposal_id] = name
                else:
                    counted[proposals[entry.proposal_id]] += 1
            if (cursor := page.cursor) is None:
                break
        alerts = sum(len(council.history(types=[each], limit=1_000)) for each in ("executor",))
        assert alerts > 0
        unknown = sum(each.standing == "unknown" for each in council.tokens())
    over = [f"{name} ran {runs[name]} times, and {counted[name]} were counted" for name in runs]
    over = [text for text, name in zip(over, runs, strict=True) if runs[name] > counted[name]]
    over += [
        f"{name} was counted {n} times of {allowed[name]}" for name, n in counted.items() if n > allowed[name]
    ]
    over += [f"{each.token_id} is still under way" for each in left]
    return Found(len(allowed), runs.total(), counted.total(), unknown, over)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.runtime.racing", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = kill_many(Path(folder), given.kills, given.seed)
    print(json.dumps(found._asdict()))
    return 1 if found.over else 0


if __name__ == "__main__":
    sys.exit(main())
