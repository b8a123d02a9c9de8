"""The mind of the seat Prime: weighs a proposal against the core rules and its stakes, and rules on escalations.

Uses no model. ``review`` sees no ballot (rules 1.14). ``rule`` sees all of them, and judges by their typed fields
alone: no text in a proposal or in a ballot's reason can approve anything.

| what it sees                                                       | vote    | risk | confidence |
|--------------------------------------------------------------------|---------|------|------------|
| a finding that stops, of any family                                | no      | high | 0.92       |
| a shell action without a word of why                               | no      | med  | 0.6        |
| "documentation only" over a change of source                       | no      | med  | 0.6        |
| irreversible, or weakens a guard, in production or for everybody   | no      | high | 0.6        |
| irreversible, its reach not said                                   | abstain | high | 0.5        |
| a finding that asks, of any family                                 | abstain | med  | 0.25       |
| a tool not known here that writes, pays, sends or deletes          | abstain | high | 0.5        |
| irreversible, of limited reach; sends or grants                    | yes     | med  | 0.55       |
| a damaged diff, source shown as binary, in no known encoding, or   | abstain | med  | 0.2        |
| in a language that no rule reads; an analyzer that failed          |         |      |            |
| nothing that can be read: only images, or empty                    | abstain | low  | 0.5        |
| a binary file, as an image, beside what it read                    | yes     | med  | 0.45       |
| a change of sensitive paths (auth, payments, CI, migrations, …)    | yes     | med  | 0.55       |
| a change with none of these                                        | yes     | low  | 0.75       |
| words or an action with none of these                              | yes     | low  | 0.65       |

If it can't see something, or is not certain, it neither passes nor blocks the proposal: two yes of seats that read
neither must not settle it. It abstains with a confidence below 0.3, which escalates. A human can replace its ruling.
An image only gets a note.

``Prime.rule`` has the order in which it rules. Example: "Delete the staging bucket", declared high, with a yes of
Lite, is irreversible but limited, and nothing is found: it is confirmed with moderate confidence. In production it
goes to a human.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Literal

from council.agents.mind import Case, Opinion, RiskLevel, Ruling, ShownBallot
from council.agents.scan.action import read_action
from council.agents.scan.change import short_quote
from council.agents.scan.finding import Family
from council.agents.scan.languages import is_a, is_docs, is_test
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.scan import Findings, scan
from council.agents.static import marks
from council.agents.static.stakes import Stakes, weigh
from council.agents.static.tools import effect_of
from council.agents.static.verdict import UNREAD, StaticMind, listed, says

CORE_RULES = (  # GCP 3.1
    "Never execute shell commands without reflection and approval",
    "Avoid hallucinated facts or code",
    "Protect private data at all costs",
)
LOW = 0.3  # rules 1.8: a confidence below this escalates
DOUBTED = 0.25  # there is a finding, but no check can say how much it weighs
SURE = 0.8  # a static finding that passed its validator has 0.85 or more
CONTRADICTED = 0.9  # two seats are this certain of opposites, so one of them is wrong
PATHS_SHOWN = 4  # in a reason; the others are only counted
# The core rule that a finding of a family breaks, by its place in CORE_RULES.
_RULE_OF: dict[Family, int] = {"command": 0, "destructive": 0, "secret": 2, "privacy": 2}
_SHELL_CWES = (77, 78, 88)  # code that runs a command of data

_DOCS_ONLY = re.compile(
    r"(?<!\bno )(?<!\bnot )(?<!\bnot a )"
    r"\b(?:(?:docs?|documentation|comments?|typos?|readme)[ -]only|only (?:docs?|documentation|comments?|typos?)\b)",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(
    r"\s{0,4}(?:ls|cat|pwd|echo|head|tail|grep|rg|wc|date|whoami|uname|df|du|ps|uptime|"
    r"git (?:status|log|diff|show))\b"
)

_says = partial(says, marks.CORE_RULES)


class Prime(StaticMind):
    """Core rules and stakes. ``core_rules`` are the identity's, by default GCP's three; a broken one is quoted.

    Another rule can't be checked without a model, and the reason says so. ``unknown_tools`` says what becomes of an
    action whose tool is not known here, and that writes, pays, sends or deletes by its name or arguments: "ask" sends
    it to a human, "allow" judges it by the other checks alone. ``own`` are the user's rules (the setting ``rules``).
    """

    def __init__(
        self,
        *,
        core_rules: Sequence[str] = CORE_RULES,
        unknown_tools: Literal["ask", "allow"] = "ask",
        own: Own = NOTHING,
    ) -> None:
        if isinstance(core_rules, str) or not all(isinstance(rule, str) for rule in core_rules):
            raise ValueError(f"core_rules is {core_rules!r}: give a list of texts")
        if unknown_tools not in ("ask", "allow"):
            raise ValueError(f"unknown_tools is {unknown_tools!r}: give 'ask' or 'allow'")
        super().__init__(own=own)
        self.core_rules = tuple(core_rules)
        self._asks = unknown_tools == "ask"

    def review(self, case: Case) -> Opinion:
        """Its own opinion, from the case alone. No text in a case makes it raise."""
        seen = scan(case, self.own)
        stakes = weigh(case, has_change=bool(seen.files))
        return (
            self._broken(seen)
            or self._claims(case, seen)
            or _at_stake(stakes)
            or _doubted(seen)
            or (_unknown(case) if self._asks else None)
            or _unread(seen)
            or self._rest(seen, stakes)
        )

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        """Its ruling on an escalated proposal. The first condition that applies decides (rules 1.8)."""
        own, worst = self.review(case), _worst(ballots)
        yes = [ballot for ballot in ballots if ballot.vote == "yes"]
        no = [ballot for ballot in ballots if ballot.vote == "no"]
        if own.vote == "no" and own.confidence >= SURE:
            return Ruling("reject", own.reason, own.confidence, own.risk_level)
        if grave := [b for b in no if b.risk_level == "high" and b.confidence >= SURE]:
            return Ruling("reject", f"sure of a grave fault: {_seats(grave)}", _top(grave), "high")
        if len(no) >= 2:
            return Ruling("reject", f"against it: {_seats(no)}", _top(no), _worst(no))
        if not (own.confidence >= LOW):  # it could not read everything, or has a finding that it can't weigh
            return Ruling("human", own.reason, 0.8, own.risk_level)
        if all(any(b.confidence >= CONTRADICTED for b in side) for side in (yes, no)):
            return Ruling("human", f"{_seats(yes)} and {_seats(no)} are sure of opposites", 0.8, worst)
        if own.risk_level == "high":  # irreversible, and its reach is wide or unknown
            return Ruling("human", own.reason, 0.8, "high")
        if any(b.risk_level == "high" for b in yes):
            return Ruling("human", "a seat agrees and calls the risk high", 0.7, "high")
        if not any(b.confidence >= LOW for b in yes):
            return Ruling("human", "no seat could judge it", 0.8, worst)
        unsure = not all(sure >= LOW for sure in (case.confidence, *(b.confidence for b in (*yes, *no))))
        if unsure and sum(b.confidence >= 0.5 for b in yes) < 2:
            return Ruling("human", "too little confidence, of the proposer or of a seat", 0.7, worst)
        if len(yes) > len(no) and own.vote == "yes":
            mean = sum(b.confidence for b in yes) / len(yes)
            reason = f"{_seats(yes)} in favour, {len(no)} against, and I find nothing graver: {own.reason}"
            return Ruling("confirm", reason, min(own.confidence, mean), own.risk_level)
        reason = f"{len(yes)} in favour, {len(no)} against, my own view: {own.vote}"
        return Ruling("human", reason, 0.7, worst)

    # The core rules

    def _quote(self, number: int) -> str:
        rule = CORE_RULES[number]
        return f"core rule {rule!r}" if rule in self.core_rules else "policy"

    def _broken(self, seen: Findings) -> Opinion | None:
        if faults := seen.of("stop"):
            fault = faults[0]
            number = 0 if fault.cwe in _SHELL_CWES else _RULE_OF.get(fault.family)
            quoted = f"{self._quote(number)}: " if number is not None else ""
            return _says("no", f"{quoted}{listed(faults)}", 0.92, "high")
        return None

    def _claims(self, case: Case, seen: Findings) -> Opinion | None:
        """Claims in the text that the change contradicts, and commands that are given no reason."""
        claim = case.summary[:500]
        if _DOCS_ONLY.search(claim) and seen.parts.sources:
            paths = _some(seen.parts.sources)
            reason = f"{self._quote(1)}: it says that only documentation changes, but source does ({paths})"
            return _says("no", reason, 0.6, "med")
        action = read_action(case.action)
        if action.runs_shell and not case.body.strip():
            commands = [argument.text for argument in action.args]
            bare = case.summary.strip().strip("`")
            if (len(bare.split()) < 3 or bare in commands) and not all(map(_READ_ONLY.match, commands)):
                return _says("no", f"{self._quote(0)}: a command is to run, and nothing says why", 0.6, "med")
        return None

    def _rest(self, seen: Findings, stakes: Stakes) -> Opinion:
        further = sum(rule not in CORE_RULES for rule in self.core_rules)
        tail = f"; {further} further core rules need a model to check" if further else ""
        paths = [change.path for change in seen.files if is_a("sensitive", change.path)]
        sensitive = [path for path in paths if not is_docs(path) and not is_test(path)]
        if seen.parts.binaries:
            unread = f"in what I could read; not read, binary: {_some(seen.parts.binaries)}"
            return _says("yes", f"no core rule broken {unread}{tail}", 0.45, "med")
        if sensitive:
            reason = f"no core rule broken; touches what is sensitive: {_some(sensitive)}"
        elif stakes.kind not in {"none", "change"}:
            how = "is of limited reach" if stakes.reach == "limited" else "goes to others and stays"
            reason = f"no core rule broken; {stakes.what!r} {how}"
        elif seen.files:
            return _says("yes", f"no core rule broken, nothing sensitive touched{tail}", 0.75)
        elif stakes.kind == "change" and stakes.reach == "wide":
            reason = (
                f"no core rule broken; {stakes.what!r} reaches production or everybody, and can be undone"
            )
        else:
            return _says("yes", f"no core rule broken, little at stake{tail}", 0.65)
        return _says("yes", reason + tail, 0.55, "med")


def _at_stake(stakes: Stakes) -> Opinion | None:
    if stakes.kind in {"none", "change"}:
        return None
    if (stakes.irreversible or stakes.kind == "weaken") and stakes.reach == "wide":
        how = "can't be undone" if stakes.irreversible else "takes a guard away"
        reason = f"{stakes.what!r} {how}, and reaches production or everybody: a human should look"
        return _says("no", reason, 0.6, "high")
    if stakes.kind in {"destroy", "money"} and stakes.reach == "unsaid":
        return _says(
            "abstain", f"{stakes.what!r} can't be undone, and what it reaches is not said", 0.5, "high"
        )
    return None


def _unknown(case: Case) -> Opinion | None:
    """An action of a tool that no check here knows."""
    if (found := effect_of(case)) is None:
        return None
    how = "{} by its name or arguments ({})".format(*found)
    return _says("abstain", f"the tool is not known here, and {how}: a human should look", 0.5, "high")


def _doubted(seen: Findings) -> Opinion | None:
    if asked := seen.of("ask"):
        reason = f"nothing is wrong for sure, but a human should look: {listed(asked)}"
        return _says("abstain", reason, DOUBTED, "med")
    return None


def _unread(seen: Findings) -> Opinion | None:
    if unread := (*seen.unread, *seen.unknown, *seen.failed):
        reason = f"no core rule broken in what I could read; not read: {_some(unread)}"
        return _says("abstain", reason, UNREAD, "med")
    return None if seen.is_readable else _says("abstain", "nothing here that I can read", 0.5)


# Words


def _seats(ballots: Sequence[ShownBallot]) -> str:
    return ", ".join(short_quote(ballot.seat) for ballot in ballots)


def _top(ballots: Sequence[ShownBallot]) -> float:
    return max(ballot.confidence for ballot in ballots)


def _worst(ballots: Sequence[ShownBallot]) -> RiskLevel:
    levels: tuple[RiskLevel, ...] = ("low", "med", "high")
    return max((ballot.risk_level for ballot in ballots), key=levels.index, default="low")


def _some(paths: Sequence[str]) -> str:
    return listed([short_quote(path) for path in paths], PATHS_SHOWN, ", ")
