"""Councils that outlive the shell: brought up, used, watched, interrupted, killed, taken down, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from council.runtime import known

ROOT = Path(__file__).parent.parent.parent
TIMEOUT_S = 150.0  # of one command; a Ray takes up to 30 s to start on a busy machine
GONE_S = 100.0
# Two of Ray's own helpers look only once a minute whether the Ray that they served was killed.
GONE_AFTER_KILL_S = 120.0
pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]

SLOW = """
[seats.codemind]
mind = "tests.ray.test_cli_ray:Slow"
"""


class Slow:
    """A mind that thinks for longer than any test lasts."""

    async def review(self, case: object) -> None:
        import asyncio

        await asyncio.sleep(600)


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: these tests start theirs by command, one at a time."""


class Shell:
    """A shell with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "XDG_STATE_HOME": str(folder), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE", "RAY_ADDRESS"):
            self.env.pop(name, None)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "council.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self.env,
            cwd=self.folder,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def told(self, *arguments: str) -> dict[str, Any]:
        found = json.loads(self.run(*arguments, "--json").stdout)
        assert isinstance(found, dict)
        return found


def until(what: Callable[[], object], limit_s: float = GONE_S) -> None:
    """Waits until ``what`` is true; processes of others are not ours to be told of."""
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.1)


def below(pid: int) -> set[int]:
    """All processes that a process started, and those that they did."""
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (each.split() for each in found.splitlines())}
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return family - {pid}


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if known.process_started(pid) is not None}


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[Shell]:
    try:
        yield Shell(folder)
    finally:
        for path in (folder / "council" / "councils").glob("*.json"):  # what a failed test left up
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["pid"] is not None and known.process_started(kept["pid"]) == kept["started"]:
                os.kill(kept["pid"], signal.SIGTERM)
                until(lambda pid=kept["pid"]: not alive({pid}))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with opened(tmp_path) as found:
        yield found


class Up:
    """A council that is up, in its shell."""

    def __init__(self, shell: Shell, name: str) -> None:
        self.shell = shell
        self.told = shell.told("up", "--name", name)["up"]
        self.pid: int = self.told["pid"]
        self.path = shell.folder / "council" / "councils" / f"{name}.json"
        self.look()

    def look(self) -> None:
        """Notes its host and all that this has started, with when each began."""
        found = {pid: known.process_started(pid) for pid in {self.pid, *below(self.pid)}}
        self._family = {pid: began for pid, began in found.items() if began is not None}
        assert len(self._family) > 3

    def kill(self) -> None:
        """Kills its host, unless a test before did, and waits for its end; not for that of what it has started."""
        if known.process_started(self.pid) == self._family[self.pid]:
            self.look()
            os.kill(self.pid, signal.SIGKILL)
        until(lambda: not alive({self.pid}))

    def gone(self) -> bool:
        """Whether all that was noted has ended."""
        return not any(known.process_started(pid) == began for pid, began in self._family.items())


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A council that decides nothing; its host is killed in the end."""
    with opened(tmp_path_factory.mktemp("slow")) as shell:
        settings = shell.folder / "council.toml"
        settings.write_text(SLOW, encoding="utf-8")
        found = Up(shell, "headless")
        settings.unlink()
        yield found


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A council that is taken down in the end."""
    with opened(tmp_path_factory.mktemp("first")) as shell:
        yield Up(shell, "first")


def test_an_interrupted_proposal_is_taken_back_and_a_watch_tells_it(slow: Up) -> None:
    shell, here = slow.shell, ("--name", "headless")
    proposing = shell.start("propose", "Wait for me", *here, "--wait-for", "all", "--timeout", "300")
    until(lambda: shell.told("status", *here)["open_count"] == 1)
    refused = shell.run("down", *here)
    assert refused.returncode == 2
    assert "1 proposal open" in refused.stderr
    proposing.send_signal(signal.SIGINT)
    _, err = proposing.communicate(timeout=TIMEOUT_S)
    assert proposing.returncode == 130
    assert "was taken back" in err
    assert "Traceback" not in err
    assert shell.told("status", *here)["decided"] == {"cancelled": 1}
    watched = shell.run("watch", "--since", "0", "--once", *here)
    assert (watched.returncode, "cancelled" in watched.stdout) == (0, True), watched


WAITS = """
import sys, time
from council import Council
from council.protocol.errors import CouncilDied
with Council.connect(name='headless') as council:
    print("connected", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    try:
        council.propose("Wait for me", wait_for="all", timeout_s=300)
    except CouncilDied as error:
        print("died", round(time.monotonic() - began), flush=True)
print("still here", flush=True)
"""


def test_a_dead_head_is_an_error_and_does_not_end_the_program_that_waits(slow: Up) -> None:
    """Mutation: Ray ends the process by itself, with exit code 1, which a gate takes for a rejection."""
    shell = slow.shell
    program = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.env,
        cwd=shell.folder,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "connected\n"
    program.stdin.write("\n")
    program.stdin.flush()
    waiting = shell.start(
        "propose", "Wait too", "--name", "headless", "--wait-for", "all", "--timeout", "300"
    )
    until(lambda: shell.told("status", "--name", "headless")["open_count"] == 2)
    slow.kill()
    killed = time.monotonic()
    _, err = waiting.communicate(timeout=TIMEOUT_S)
    out, program_err = program.communicate(timeout=TIMEOUT_S)
    assert (waiting.returncode, "has ended" in err, "Traceback" in err) == (4, True, False), err
    assert (program.returncode, out.splitlines()[-1]) == (0, "still here"), program_err
    assert out.startswith("died ")
    assert time.monotonic() - killed < 55  # Ray's own limit, which would end both, is 60


def test_a_council_whose_host_was_killed_is_noticed_as_gone(slow: Up) -> None:
    """What its host leaves is looked at last of all: the tests between pass the minute that this may take."""
    slow.kill()
    status = slow.shell.run("status", "--name", "headless")
    assert status.returncode == 4
    assert "is gone without having been taken down" in status.stderr
    again = slow.shell.told("up", "--name", "headless")["up"]  # the name is free again
    assert again["pid"] != slow.pid
    assert slow.shell.run("down", "--name", "headless", "--yes").returncode == 0


def test_a_council_goes_up_outlives_the_shell_and_decides(first: Up) -> None:
    shell = first.shell
    assert first.told["seats"] == ["prime", "lite", "codemind"]
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert "token" not in json.dumps(first.told)
    status = shell.told("status", "--name", "first")
    assert (status["exit_code"], status["name"], len(status["seats"])) == (0, "first", 3)
    decision = shell.told("propose", "Raise the cache limit", "--name", "first", "--wait-for", "all")
    assert (decision["outcome"], decision["council"], len(decision["ballots"])) == (
        "approved",
        "connected",
        3,
    )
    events = shell.run("watch", "--once", "--name", "first", "--json").stdout.splitlines()
    assert [json.loads(line)["kind"] for line in events].count("ballot") == 3
    again = shell.run("up", "--name", "first")
    assert again.returncode == 2
    assert "is up already" in again.stderr
    assert shell.run("status", "--name", "second").returncode == 4


def test_a_python_program_finds_the_council_by_its_name_alone(first: Up) -> None:
    code = (
        "from council import Council\n"
        "with Council.connect(name='first') as council:\n"
        "    print(council.propose('Raise the cache limit').outcome)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=first.shell.env,
        cwd=first.shell.folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.stdout.split() == ["approved"], done.stderr


def test_on_a_cluster_that_runs_a_council_is_detached_and_no_process_stays(first: Up, shell: Shell) -> None:
    kept = json.loads(first.path.read_text(encoding="utf-8"))  # its Ray serves as the cluster
    shell.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": kept["token"]}
    up = shell.told("up", "--name", "guest", "--address", kept["address"])["up"]
    assert up["pid"] is None
    guest = (shell.folder / "council" / "councils" / "guest.json").read_text(encoding="utf-8")
    assert kept["token"] not in guest
    again = shell.run("up", "--name", "guest", "--address", kept["address"])
    assert (again.returncode, "runs already" in again.stderr) == (2, True)
    assert shell.told("propose", "Raise the cache limit", "--name", "guest")["outcome"] == "approved"
    assert shell.run("down", "--name", "guest").returncode == 0
    assert shell.run("status", "--name", "guest", "--address", kept["address"]).returncode == 4


def test_it_comes_down_whole_and_who_watches_is_told(first: Up) -> None:
    shell = first.shell
    assert shell.told("propose", "Raise it again", "--name", "first")["outcome"] == "approved"
    watching = shell.start("watch", "--since", "0", "--name", "first")
    assert watching.stdout is not None
    until(lambda: "approved" in watching.stdout.readline())  # type: ignore[union-attr]
    down = shell.run("down", "--name", "first")
    assert down.returncode == 0, down.stderr
    assert not first.path.exists()
    assert not alive({first.pid})
    until(first.gone)
    assert shell.run("status", "--name", "first").returncode == 4
    _, err = watching.communicate(timeout=TIMEOUT_S)
    assert watching.returncode == 4
    assert "error:" in err
    assert "Traceback" not in err


def test_what_keeps_a_council_from_starting_is_said(shell: Shell) -> None:
    (shell.folder / "council.toml").write_text('[seats.lite]\nmind = "no.such:Mind"\n', encoding="utf-8")
    said = shell.run("up")
    assert said.returncode == 2
    assert "seat lite" in said.stderr
    assert "Traceback" not in said.stderr
    assert known.running("council") is None


def test_an_interrupted_start_leaves_nothing(shell: Shell) -> None:
    starting = shell.start("up")
    until(lambda: below(starting.pid))
    hosts = below(starting.pid)
    until(lambda: len(below(starting.pid)) > 2)
    family = below(starting.pid) | hosts
    starting.send_signal(signal.SIGINT)
    _, err = starting.communicate(timeout=TIMEOUT_S)
    assert starting.returncode == 130
    assert "nothing of it is left running" in err
    until(lambda: not alive(family))


def test_a_launched_review_gates_and_an_interrupt_ends_its_council(shell: Shell) -> None:
    (shell.folder / "x.patch").write_text("--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-a\n+b\n", encoding="utf-8")
    trap = f"open({str(shell.folder / 'sprung')!r}, 'w')"  # Ray would have its workers import from here first
    for name in ("msgpack", "pydantic", "structlog", "unidiff", "yaml", "sitecustomize"):
        (shell.folder / f"{name}.py").write_text(trap, encoding="utf-8")
    decision = shell.told("review", "x.patch", "--launch")
    assert (decision["exit_code"], decision["council"]) == (0, "launched")
    assert not (shell.folder / "sprung").exists()

    (shell.folder / "council.toml").write_text(SLOW, encoding="utf-8")
    waiting = shell.start("review", "x.patch", "--launch", "--timeout", "300", "--config", "council.toml")
    assert waiting.stderr is not None
    until(lambda: "lite" in waiting.stderr.readline(), TIMEOUT_S)  # type: ignore[union-attr]
    family = below(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=TIMEOUT_S)
    assert waiting.returncode == 130
    assert "is undecided" in err
    until(lambda: not alive(family))


def test_a_killed_host_leaves_nothing_running(slow: Up) -> None:
    slow.kill()
    until(slow.gone, GONE_AFTER_KILL_S)
