"""Reviews of many changes by the real minds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pytest

from council import Council, Decision
from council.agents.codemind import CodeMind
from council.agents.mind import Case, Opinion
from council.agents.scan import code, constants, linters, shell_texts
from council.agents.scan.action import read_action
from council.agents.scan.compare import Match
from council.agents.scan.linters import Report
from council.agents.scan.pieces import Piece, pieces_of
from council.agents.scan.ruleset import Rule, code_rules
from council.agents.scan.spelling import spelled
from council.agents.scan.texts import texts_of
from tests.patience import ROUND_S

Name = TypeVar("Name", bound=Hashable)
TOGETHER_S = 300.0  # of one run over all cases


@contextmanager
def analyzed_together(cases: Iterable[Case]) -> Iterator[None]:
    """Runs each analyzer once for all cases. Reviews within the context get its results, and start no analyzer.

    Starting an analyzer takes most of a review's time. A text that is found in none of them, such as a script in a
    file of shell commands, is analyzed by a run of its own.
    """
    changes, codes = [], []
    for case in cases:
        action = read_action(case.action)
        texts = texts_of(case, action)
        changes += texts.changes
        codes += texts.code
        if case.action is not None:
            folded = constants.fold(texts.changes)
            codes += shell_texts.findings(case, texts.reading, texts.changes, action, folded)[2]
    shown = pieces_of(changes)
    pieces = {_key(piece): piece for piece in spelled([*shown, *codes])}
    names = sorted(code.languages(pieces.values()))
    rules = dict.fromkeys(rule for name in names for rule in code_rules(name))
    matched: dict[tuple[str, bool, str], list[Match]] = {key: [] for key in pieces}
    for match in code.matches(list(pieces.values()), rules, timeout_s=TOGETHER_S):
        matched[_key(match.piece)].append(match)
    alone, lint_alone = code.matches, linters.lint
    texts = list({piece.text: None for piece in shown if piece.path.endswith((".py", ".pyi"))})
    reports: dict[str, list[Report]] = {text: [] for text in texts}
    for report in linters.lint(texts, timeout_s=TOGETHER_S):
        reports[texts[report.text]].append(report)

    def matches(given: Sequence[Piece], rules: Iterable[Rule], *, timeout_s: float) -> list[Match]:
        if any(_key(piece) not in matched for piece in given):
            return alone(given, rules, timeout_s=timeout_s)
        wanted = {rule.id for rule in rules}
        found = [
            replace(match, piece=piece)
            for piece in given
            for match in matched[_key(piece)]
            if match.rule.id in wanted
        ]
        return sorted(found, key=lambda match: (match.piece.path, match.piece.hunk, match.first))

    def lint(given: Sequence[str], *, timeout_s: float) -> list[Report]:
        if any(text not in reports for text in given):
            return lint_alone(given, timeout_s=timeout_s)
        return [report._replace(text=at) for at, text in enumerate(given) for report in reports[text]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "matches", matches)
        patch.setattr(linters, "lint", lint)
        yield


def _key(piece: Piece) -> tuple[str, bool, str]:
    return piece.path, piece.is_new, piece.text


def review_all(cases: Mapping[Name, Case]) -> dict[Name, Opinion]:
    """What CodeMind says of each case."""
    with analyzed_together(cases.values()):
        return {name: CodeMind().review(case) for name, case in cases.items()}


def decide_all(cases: Mapping[str, Case]) -> dict[str, Decision]:
    """What the three built-in minds decide in process on each case."""
    with Council.inline(time_budget_s=ROUND_S) as council:
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
