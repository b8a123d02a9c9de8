"""Packets and episodes for these tests: templates with ids and a clock in hand, changed at a path."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from council.governance import machine
from council.governance.episode import Episode
from council.governance.results import Result
from council.governance.templates import DEFAULT, TEMPLATES, About, Writer
from council.protocol.omen import Packet, read_packet, to_dict

START = datetime(2026, 11, 26, 12, tzinfo=UTC)


def ids() -> Iterator[str]:
    return map(str, itertools.count(1))


def clock() -> Callable[[], datetime]:
    """A clock that goes on by a second with each packet."""
    seconds = itertools.count()
    return lambda: START + timedelta(seconds=next(seconds))


def built(template: str, **about: Any) -> list[Packet]:
    return TEMPLATES[template](ids(), clock(), About(**about))


def writer(begin: int = 1_000, about: About = DEFAULT) -> Writer:
    """A writer of packets that come after those of a template."""
    numbers = itertools.count(begin)
    return Writer(map(str, numbers), lambda: START + timedelta(seconds=60), about)


def played(packets: Iterable[Packet | dict[str, Any]]) -> tuple[Episode, list[Result]]:
    """The episode after these packets, and all results. A rejected packet changes nothing."""
    episode = Episode("corr_1")
    results: list[Result] = []
    for packet in packets:
        before = episode
        episode, is_accepted, found = machine.step(episode, packet)
        assert is_accepted == all(each.severity == "WARNING" for each in found)
        assert is_accepted or episode == before
        results += found
    return episode, results


def rules(results: Iterable[Result]) -> set[str]:
    """``INV-006``, or ``INV-006 WARNING``."""
    return {each.rule + (" WARNING" if each.severity == "WARNING" else "") for each in results}


def changed(packet: Packet, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The packet as JSON, with other values at dotted paths; ``...`` removes one."""
    document = to_dict(packet)
    for path, value in changes.items():
        *steps, last = (int(each) if each.isdigit() else each for each in path.split("."))
        inner: Any = document
        for each in steps:
            inner = inner.setdefault(each, {}) if isinstance(each, str) else inner[each]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return document


def reread(packet: Packet, changes: Mapping[str, Any]) -> Packet:
    return read_packet(changed(packet, changes))
