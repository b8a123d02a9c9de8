"""Ids are of the form that the rules ask for, and nobody gets one that another has."""

from __future__ import annotations

import os
import re
import threading

import pytest

from council.agents.messaging.ids import new_id


def test_form() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{16}", new_id()) for _ in range(500))


def test_ids_of_one_moment_begin_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: pure chance, which costs a journal three times the time."""
    now_ns = 1_800_000_000 * 10**9
    found = []
    for after_ns in (0, 0, 2**24, 2**24, 2**25, 2**40, 2**40 + 2**24):
        monkeypatch.setattr(
            "council.agents.messaging.ids.time.time_ns", lambda after_ns=after_ns: now_ns + after_ns
        )
        found.append(new_id())
    first = int(found[0][:4], 16)
    assert [(int(each[:4], 16) - first) % 2**16 for each in found] == [0, 0, 1, 1, 2, 0, 1]
    assert len({each[4:] for each in found}) == len(found)


def test_threads_share_none() -> None:
    found: list[list[str]] = [[] for _ in range(4)]

    def draw(into: list[str]) -> None:
        into.extend(new_id() for _ in range(2_000))

    threads = [threading.Thread(target=draw, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [each for into in found for each in into]
    assert len(set(everything)) == len(everything) == 8_000


def test_a_forked_child_draws_its_own() -> None:
    new_id()  # so that some are left over
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "".join(new_id() for _ in range(200)).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    theirs = {text[at + 4 : at + 16] for at in range(0, len(text), 16)}  # the chance, whatever the moment
    assert len(theirs) == 200
    assert not theirs & {new_id()[4:] for _ in range(200)}
