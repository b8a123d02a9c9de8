"""Judges the stakes of an action: whether it can be undone, and whom it affects.

It reads the verbs of the summary, the tool's name and the arguments. Claims in the text ("approved", "has a
backup") have no weight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from council.agents.mind import Case
from council.agents.scan.action import WORDS, read_action
from council.agents.scan.rows import reach, word_list

Kind = Literal["none", "destroy", "outward", "money", "weaken", "grant", "change"]
CLAUSES_MAX = 20  # of a summary; more is a story
TEXT_CHARS_MAX = 20_000  # of arguments and body that are searched for their reach

_GRAVITY: tuple[Kind, ...] = ("destroy", "money", "weaken", "outward", "grant", "change", "none")
_VERBS: dict[str, Kind] = {verb: kind for kind in _GRAVITY[:-1] for verb in WORDS[f"order_{kind}"]}
_DATA, _CODE, _GUARDS = (
    re.compile(rf"\b(?:{'|'.join(sorted(word_list(name)))})\b") for name in ("data", "code", "guards")
)
_SPLIT = re.compile(r"[.;:!?\n]|,? (?:and|then) |, ")


@dataclass(frozen=True, slots=True)
class Stakes:
    """``irreversible``: it can't be undone. ``reach``: whom it affects. ``what``: the verb that says so."""

    kind: Kind = "none"
    reach: Literal["limited", "wide", "unsaid"] = "unsaid"
    what: str = ""

    @property
    def irreversible(self) -> bool:
        return self.kind in {"destroy", "outward", "money"}


def weigh(case: Case, *, has_change: bool) -> Stakes:
    """The stakes of a case. If its body holds a change, the summary's verbs describe code, and do not count."""
    found: list[Stakes] = []
    action = read_action(case.action)
    args = "\n".join(f"{key} {text}" for key, text, _ in action.args)[:TEXT_CHARS_MAX]
    around = case.summary[:TEXT_CHARS_MAX] + "\n" + args
    how_far = reach(around)
    if how_far == "unsaid" and not has_change and reach(case.body[:TEXT_CHARS_MAX]) == "wide":
        how_far = "wide"
    if not has_change:
        found += [Stakes(kind, how_far, what) for kind, what in _clauses(case.summary)]
    tokens = re.findall(r"[a-z]{1,200}", action.tool)
    if not WORDS["order_reads"].intersection(tokens):
        found += [Stakes(_VERBS[token], how_far, token) for token in tokens if token in _VERBS]
    return min(found, key=lambda stakes: _GRAVITY.index(stakes.kind), default=Stakes(reach=how_far))


def _clauses(summary: str) -> list[tuple[Kind, str]]:
    """The verbs of orders in a summary's clauses, each with its kind of stakes."""
    out: list[tuple[Kind, str]] = []
    for clause in _SPLIT.split(summary[:TEXT_CHARS_MAX])[:CLAUSES_MAX]:
        parts = clause.lower().split()[:60]
        while parts and parts[0] in WORDS["polite"]:
            parts.pop(0)
        if not parts:
            continue
        verb, rest = parts[0].strip("`\"'()[]*"), " ".join(parts[1:])
        kind = _VERBS.get(verb)
        if verb == "turn" and parts[1:2] == ["off"]:
            kind = "weaken"
        if kind == "destroy" and (not _DATA.search(rest) or _CODE.search(rest)):
            continue
        if kind == "weaken" and not _GUARDS.search(rest):
            kind = "change"
        if kind is not None:
            out.append((kind, verb))
    return out
