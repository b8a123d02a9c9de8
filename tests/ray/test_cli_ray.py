"""Councils that outlive the shell: brought up, used, watched, interrupted, killed, taken down, as processes."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import HANG_S, until
from tests.ray.shells import ROOT, SLOW, Ended, First, Killed, Shell, Up, alive, below, opened

pytestmark = pytest.mark.ray


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: these tests start theirs by command, one at a time."""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with opened(tmp_path) as found:
        yield found


def test_an_interrupted_proposal_is_taken_back_and_a_watch_tells_it(slow: Up) -> None:
    shell, here = slow.shell, ("--name", "headless")
    proposing = shell.start("propose", "Wait for me", *here, "--wait-for", "all", "--timeout", "3600")
    until(lambda: shell.told("status", *here)["open_count"] == 1)
    refused = shell.run("down", *here)
    assert refused.returncode == 2
    assert "1 proposal open" in refused.stderr
    proposing.send_signal(signal.SIGINT)
    _, err = proposing.communicate(timeout=HANG_S)
    assert proposing.returncode == 130
    assert "was cancelled" in err
    assert "Traceback" not in err
    assert shell.told("status", *here)["decided"] == {"cancelled": 1}
    watched = shell.run("watch", "--since", "0", "--once", *here)
    assert (watched.returncode, "cancelled" in watched.stdout) == (0, True), watched


def test_a_council_whose_host_was_killed_is_noticed_as_gone(killed: Killed) -> None:
    status = killed.up.shell.run("status", "--name", "headless")
    assert status.returncode == 4
    assert "ended without council down" in " ".join(status.stderr.split())


@pytest.mark.usefixtures("at_last")
def test_a_dead_head_is_an_error_and_does_not_end_the_program_that_waits(killed: Killed) -> None:
    """Mutation: Ray ends the process by itself, with exit code 1, which a gate takes for a rejection."""
    _, err = killed.command.communicate(timeout=HANG_S)
    out, program_err = killed.program.communicate(timeout=HANG_S)
    says = "ended without council down" in err
    assert (killed.command.returncode, says, "Traceback" in err) == (4, True, False), err
    # After a minute Ray itself would end both.
    assert (killed.program.returncode, out.splitlines()) == (0, ["died", "still here"]), program_err


@pytest.mark.usefixtures("at_last")
def test_a_killed_host_leaves_nothing_running(killed: Killed) -> None:
    until(killed.up.gone)


def test_a_council_goes_up_outlives_the_shell_and_decides(first: First) -> None:
    shell = first.shell
    assert first.told["seats"] == ["prime", "lite", "codemind"]
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert "token" not in json.dumps(first.told)
    status = first.said("status")
    assert (status["exit_code"], status["name"], len(status["seats"])) == (0, "first", 3)
    decision = first.said("propose", "Rotate the staging key", "--wait-for", "all")
    assert (decision["outcome"], decision["council"], decision["mode"]) == ("approved", "first", "connected")
    assert len(decision["ballots"]) == 3
    lines = shell.run("watch", "--since", "0", "--once", "--name", "first", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines if decision["proposal_id"] in line]
    assert [event["kind"] for event in events].count("ballot") == 3
    again = first.said("up")
    assert again["exit_code"] == 2
    assert "is up already" in again["error"]["message"]
    assert shell.run("status", "--name", "second").returncode == 4


USES = """
import sys
from council import Council
with Council.connect(name='NAME') as council:
    for line in sys.stdin:
        print(council.propose(line).outcome, flush=True)
"""


def test_a_python_program_finds_the_council_by_its_name_alone(first: First) -> None:
    program = first.shell.program(USES.replace("NAME", "first"))
    out, err = program.communicate("Raise the cache limit\n", timeout=HANG_S)
    assert out.split() == ["approved"], err


def test_worker_processes_share_the_council_that_is_up(first: First) -> None:
    """The program of examples/workers.py."""
    first.shell.env["COUNCIL_NAME"] = "first"
    try:
        program = first.shell.popen(str(ROOT / "examples/workers.py"), stdin=subprocess.DEVNULL)
    finally:
        del first.shell.env["COUNCIL_NAME"]
    out, err = program.communicate(timeout=HANG_S)
    assert out.count("approved") == 3, err


# A process that has imported Ray says so, and exits with 99.
WITHOUT_RAY = """
import atexit, os, sys

def look():
    if "ray" in sys.modules:
        print("ray is imported", file=sys.stderr, flush=True)
        os._exit(99)

atexit.register(look)
"""


def jobs(first: First) -> int:
    """How many jobs Ray's dashboard lists."""
    kept = json.loads(first.path.read_text(encoding="utf-8"))
    token = {"Authorization": f"Bearer {kept['token']}"}
    asked = urllib.request.Request(f"{kept['dashboard'].rstrip('/')}/api/jobs/", headers=token)
    with urllib.request.urlopen(asked, timeout=HANG_S) as listed:
        return len(json.load(listed))


@pytest.mark.long
def test_on_a_cluster_that_runs_a_council_is_detached_and_no_process_stays(
    first: First, shell: Shell
) -> None:
    """A program that uses it finds it again after it was taken down and brought up."""
    kept = json.loads(first.path.read_text(encoding="utf-8"))  # its Ray serves as the cluster
    shell.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": kept["token"]}
    path = shell.folder / "council" / "councils" / "guest.json"
    up = shell.told("up", "--name", "guest", "--address", kept["address"])["up"]
    assert up["pid"] is None
    assert kept["token"] not in path.read_text(encoding="utf-8")
    again = shell.run("up", "--name", "guest", "--address", kept["address"])
    assert (again.returncode, "runs already" in again.stderr) == (2, True)
    program = shell.program(USES.replace("NAME", "guest"))

    def proposed() -> str:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write("Raise the cache limit\n")
        program.stdin.flush()
        return program.stdout.readline()

    try:
        assert proposed() == "approved\n"
        assert shell.run("down", "--name", "guest").returncode == 0
        assert shell.told("up", "--name", "guest", "--address", kept["address"])["exit_code"] == 0
        assert proposed() == "approved\n"
        program.communicate(timeout=HANG_S)
    finally:
        program.kill()
    assert shell.run("down", "--name", "guest").returncode == 0
    assert not path.exists()
    assert shell.run("status", "--name", "guest", "--address", kept["address"]).returncode == 4


NOWHERE = '[seats.lite]\nmind = "no.such:Mind"\n'


def kept_from_starting(shell: Shell, *address: str) -> None:
    (shell.folder / "council.toml").write_text(NOWHERE, encoding="utf-8")
    said = shell.run("up", *address)
    assert said.returncode == 2
    assert "seat lite" in said.stderr
    assert "Traceback" not in said.stderr
    assert not list((shell.folder / "council" / "councils").glob("*.json"))


def test_what_keeps_a_council_from_starting_is_said(first: First, shell: Shell) -> None:
    kept = json.loads(first.path.read_text(encoding="utf-8"))
    shell.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": kept["token"]}
    kept_from_starting(shell, "--address", kept["address"])


@pytest.mark.long
def test_what_keeps_a_council_on_a_ray_of_its_own_from_starting_is_said(shell: Shell) -> None:
    kept_from_starting(shell)


def test_a_ray_that_does_not_start_is_said(shell: Shell) -> None:
    shell.env |= {"RAY_TMPDIR": "/dev/null"}
    found = shell.run("up")
    assert found.returncode == 4, found.stderr
    assert "Ray did not start on this machine: " in found.stderr
    assert "internal error" not in found.stderr


COMMANDS = (
    ["status"],
    ["escalations"],
    ["log"],
    ["budget"],
    ["watch", "--since", "0", "--once"],
    ["propose", "Raise the cache limit"],
    ["doctor", "--offline"],
    ["escalations", "--all"],
    ["dashboard", "--token"],
    ["dashboard", "install"],
    ["top"],
)


RUNS = """
import json, sys
from council.cli.app import run
for command in json.load(sys.stdin):
    code = run(command)
    print("done:", *command, code, "ray" in sys.modules, flush=True)
"""


def test_commands_do_not_import_ray_and_leave_no_job(first: First, tmp_path: Path) -> None:
    """Mutation: to connect over Ray, also where that works as well."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_RAY, encoding="utf-8")
    shell = Shell(first.shell.folder)
    shell.env["PYTHONPATH"] = f"{tmp_path}:{shell.env['PYTHONPATH']}"
    before = jobs(first)
    commands = [[*command, "--name", "first"] for command in COMMANDS]
    out, err = shell.program(RUNS).communicate(json.dumps(commands), timeout=HANG_S)
    done = [line for line in out.splitlines() if line.startswith("done: ")]
    assert done == [f"done: {' '.join(command)} 0 False" for command in commands], err
    assert "Traceback" not in err
    program = shell.program(USES.replace("NAME", "first"))
    assert program.communicate("Raise it\n", timeout=HANG_S)[0].split() == ["approved"]
    assert jobs(first) == before
    assert "ray is imported" in shell.run("status", "--address", "192.0.2.1:6379").stderr


def test_it_comes_down_whole(ended: Ended) -> None:
    assert [each.exit_code for each in ended.documents[-2:]] == [0, 4]
    assert not ended.first.path.exists()
    assert not alive({ended.first.pid})
    until(ended.first.gone)
    assert ended.first.shell.run("status").returncode == 4


@pytest.mark.usefixtures("at_last")
def test_who_watches_is_told_that_it_came_down(ended: Ended) -> None:
    _, err = ended.watching.communicate(timeout=HANG_S)
    assert ended.watching.returncode == 4
    assert "error:" in err
    assert "Traceback" not in err


@pytest.mark.long
def test_an_interrupted_start_leaves_nothing(shell: Shell) -> None:
    starting = shell.start("up")
    until(lambda: below(starting.pid))
    hosts = below(starting.pid)
    until(lambda: len(below(starting.pid)) > 2)
    family = below(starting.pid) | hosts
    starting.send_signal(signal.SIGINT)
    _, err = starting.communicate(timeout=HANG_S)
    assert starting.returncode == 130
    assert "nothing of it is left running" in err
    until(lambda: not alive(family))


PATCH = "--- a/x.md\n+++ b/x.md\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.long
def test_a_launched_review_gates(shell: Shell) -> None:
    (shell.folder / "x.patch").write_text(PATCH, encoding="utf-8")
    trap = f"open({str(shell.folder / 'sprung')!r}, 'w')"  # Ray would have its workers import from here first
    for name in ("msgpack", "pydantic", "unidiff", "yaml", "sitecustomize"):
        (shell.folder / f"{name}.py").write_text(trap, encoding="utf-8")
    decision = shell.told("review", "x.patch", "--launch")
    assert (decision["exit_code"], decision["mode"]) == (0, "launched")
    assert not (shell.folder / "sprung").exists()


@pytest.mark.long
def test_an_interrupted_review_ends_its_council(shell: Shell) -> None:
    (shell.folder / "x.patch").write_text(PATCH, encoding="utf-8")
    (shell.folder / "council.toml").write_text(SLOW, encoding="utf-8")
    waiting = shell.start("review", "x.patch", "--launch", "--timeout", "3600", "--config", "council.toml")
    assert waiting.stderr is not None
    assert any("lite" in line for line in waiting.stderr), "the review ended before its first ballot"
    family = below(waiting.pid)
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=HANG_S)
    assert waiting.returncode == 130
    assert "is undecided" in err
    until(lambda: not alive(family))
