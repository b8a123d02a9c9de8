"""The files by which councils are found: whole, private, and never trusted to name a process wrongly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from council.cluster import known, reaper
from council.protocol.errors import CouncilDied, OperatorError

from .conftest import entry


def path_of(name: str) -> Path:
    return known.folder() / f"{name}.json"


def test_what_is_written_is_read_by_its_owner_alone() -> None:
    mine = entry("mine", pid=os.getpid())
    assert known.write(mine) == path_of("mine")
    assert path_of("mine").stat().st_mode & 0o777 == 0o600
    assert path_of("mine").parent.stat().st_mode & 0o077 == 0
    assert known.read("mine") == mine
    assert known.running("mine") == mine
    assert known.every() == [mine]
    assert (known.read("nobody"), known.running("nobody")) == (None, None)
    assert [path.name for path in known.folder().iterdir()] == ["mine.json"]


def test_a_process_that_ended_makes_its_file_stale() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known.write(entry("gone", pid=child.pid))
    assert known.running("gone") is not None
    child.communicate(b"\n")
    assert known.running("gone") is None
    known.write(entry("reused", pid=os.getpid(), started="some other start"))
    assert known.running("reused") is None
    # Of another machine's process nothing is known.
    known.write(replace(entry("far", pid=2**22 + 1, started="x"), machine="elsewhere"))
    assert known.running("far") is not None


def test_a_process_that_was_not_reaped_counts_as_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE)
    started = reaper.process_started(child.pid)
    assert started is not None
    assert child.stdout is not None
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert reaper.process_started(child.pid) is None
    child.wait()


def test_a_file_that_is_not_ours_is_refused() -> None:
    path = known.write(entry("bad", pid=os.getpid()))
    whole = json.loads(path.read_text(encoding="utf-8"))
    values: list[tuple[str, object]] = [("pid", 1), ("pid", -1), ("pid", True), ("address", 3), ("token", 3)]
    texts = ["", "[]", "{}", "no json", '{"name": "bad"}', "\xff"]
    for text in texts + [json.dumps({**whole, key: value}) for key, value in values]:
        path.write_text(text, encoding="latin-1")
        with pytest.raises(OperatorError, match=r"bad\.json can't be used"):
            known.read("bad")
        assert known.every() == []
    path.chmod(0o644)
    with pytest.raises(OperatorError, match="chmod 600"):
        known.read("bad")


def test_a_council_that_crashed_is_told_from_one_that_is_not_up() -> None:
    mine = entry("mine", pid=os.getpid())
    known.write(mine)
    assert known.located("mine") == mine
    assert known.located("other") is None
    known.write(entry("crashed", pid=os.getpid(), started="some other start"))
    for _ in range(2):  # it stays known, until it is brought up or taken down
        with pytest.raises(
            CouncilDied, match=r"council 'crashed' has crashed: .* bring it up again"
        ) as caught:
            known.located("crashed")
        assert caught.value.code == "council_died"
