"""Reviews of many changes by the real minds, with one run of ruff over all of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pytest

from council import Council, Decision
from council.agents import codemind
from council.agents.codemind import CodeMind
from council.agents.mind import Case, Opinion
from council.agents.scan import linters
from council.agents.scan.linters import Linted, lint
from tests.patience import ROUND_S

Name = TypeVar("Name", bound=Hashable)


@contextmanager
def linted_once(cases: Iterable[Case]) -> Iterator[None]:
    """Runs ruff once over the Python of all cases, and gives each review by CodeMind its reports.

    Outside of it a review runs ruff itself, which takes much of its time. Within it, a case that is not
    among these fails.
    """
    texts: dict[str, str] = {}

    def collect(given: Mapping[str, str], *, timeout_s: float) -> Linted:
        texts.update((text, text) for text in given.values())
        return Linted((), ())

    def look_up(given: Mapping[str, str], *, timeout_s: float) -> Linted:
        assert texts.keys() >= set(given.values()), "this case was not linted"
        reports = [
            replace(report, name=name)
            for name, text in given.items()
            for report in found.reports
            if report.name == text
        ]
        return Linted(tuple(reports), ())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codemind, "lint", collect)
        patch.setattr(linters, "CPU_SECONDS_MAX", int(ROUND_S))  # of all cases at once, on any machine
        for case in cases:
            CodeMind().review(case)
        found = lint(texts, timeout_s=ROUND_S)
        assert found.faults == ()
        patch.setattr(codemind, "lint", look_up)
        yield


def review_all(cases: Mapping[Name, Case]) -> dict[Name, Opinion]:
    """What CodeMind says of each case."""
    with linted_once(cases.values()):
        return {name: CodeMind().review(case) for name, case in cases.items()}


def decide_all(cases: Mapping[str, Case]) -> dict[str, Decision]:
    """What the three built-in minds decide in process on each case."""
    with linted_once(cases.values()), Council.inline(time_budget_s=150.0) as council:
        drafts = [
            council.draft(case.summary, case.body, action=case.action, wait_for="all")
            for case in cases.values()
        ]
        found = dict(zip(cases, council.propose_many(drafts), strict=True))
    assert {name: one for name, one in found.items() if not isinstance(one, Decision)} == {}
    return {name: one for name, one in found.items() if isinstance(one, Decision)}


def told(decision: Decision) -> str:
    """A decision with its ballots, as a failed test shows it."""
    lines = [f"{decision.outcome or decision.standing}: {decision.reason}"]
    lines += [f"  {b.seat} {b.vote} {b.confidence} {b.risk_level}: {b.reason}" for b in decision.ballots]
    return "\n".join(lines)
