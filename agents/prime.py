"""The seat Prime: weighs a proposal against the core rules and its stakes; rules on what is escalated.

Uses no model. In ``review`` it sees no ballot (rules 1.14); in ``rule`` it is shown all of them and judges
by their typed fields alone: no text, in a proposal or in a ballot's reason, can approve anything.

| what it sees                                                       | vote    | risk | confidence |
|--------------------------------------------------------------------|---------|------|------------|
| a core rule broken for sure: destructive command, secret, private data | no  | high | 0.92       |
| Python that runs a shell command built from data                   | no      | high | 0.85       |
| Python that loads objects from outside, by pickle or unsafe yaml   | no      | high | 0.85       |
| the same, where the bytes come from not said                       | abstain | high | 0.5        |
| a new Python file that is no Python                                | no      | med  | 0.8        |
| eval or exec of data                                               | no      | med  | 0.7        |
| a shell action without a word of why                               | no      | med  | 0.6        |
| "documentation only" over a change of source                       | no      | med  | 0.6        |
| irreversible, or weakens a guard, in production or for everybody   | no      | high | 0.6        |
| irreversible, its reach not said                                   | abstain | high | 0.5        |
| irreversible, of limited reach; sends or grants; a concern           | yes     | med  | 0.55       |
| a damaged diff, source shown as binary or in no known encoding     | abstain | med  | 0.2        |
| nothing that can be read: only images, or empty                    | abstain | low  | 0.5        |
| a binary file, as an image, beside what it read                    | yes     | med  | 0.45       |
| a change of sensitive paths (auth, payments, CI, migrations, …)    | yes     | med  | 0.55       |
| a change with none of these                                        | yes     | low  | 0.75       |
| words or an action with none of these                              | yes     | low  | 0.65       |

What it could not see it neither passes nor blocks: a maintainer asks for the patch again. So it abstains
below 0.3, which escalates, and its ruling is a human's to replace. An image is a note and no more.

The rulings, first match first (rules 1.8):

| what is on the table                                                        | ruling  |
|-----------------------------------------------------------------------------|---------|
| Prime itself is sure of a fault (no, 0.8 or more)                           | reject  |
| a seat is sure of a grave fault (no, high risk, 0.8 or more)                | reject  |
| two or more noes                                                            | reject  |
| Prime itself could not read all of it                                       | human   |
| a yes and a no, both at 0.9 or more                                         | human   |
| high stakes by Prime's own judgement (irreversible and wide, or not said)   | human   |
| a seat says yes but calls the risk high; or no yes, or none above 0.3       | human   |
| a ballot, or the proposer, below 0.3 and fewer than two yes at 0.5          | human   |
| more yes than no, and Prime's own judgement is yes                          | confirm |
| anything else                                                               | human   |

So "Delete the staging bucket", declared high, with a yes of Lite: irreversible but limited, nothing found:
confirmed with moderate confidence. The same in production goes to a human.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from council.agents.changes import shown
from council.agents.dangers import fresh_dangers
from council.agents.fragments import Piece, sides_of
from council.agents.mind import Case, Opinion, RiskLevel, Ruling, RulingWord, ShownBallot
from council.agents.policy import (
    UNREAD,
    Sight,
    action_texts,
    is_docs,
    is_shell_tool,
    is_test,
    look,
    readable,
)
from council.agents.stakes import Stakes, weigh

CORE_RULES = (  # GCP 3.1
    "Never execute shell commands without reflection and approval",
    "Avoid hallucinated facts or code",
    "Protect private data at all costs",
)
LOW = 0.3  # rules 1.8: below it nobody has judged
SURE = 0.8  # a static finding that passed its validator says 0.85 or more
CONTRADICTED = 0.9  # two seats this sure of opposites: one of them is broken
PATHS_SHOWN = 4  # in a reason; the rest are counted
_SAYS = "static checks of the core rules, no model"

_SENSITIVE = re.compile(
    r"(?:^|[/_.-])(?:auth\w{0,8}|login|session|oauth|sso|password\w{0,2}|permissions?|rbac|acl|crypto\w{0,6}|payments?|"
    r"billing|checkout|invoic\w{0,4}|migrations?|alembic|workflows|Dockerfile|k8s|kubernetes|helm|terraform|sudoers|"
    r"security|secrets?|deploy\w{0,5}|iam)(?:$|[/_.-])|\.tf$|\.gitlab-ci\.yml$|\.sql$",
    re.IGNORECASE,
)
_DOCS_ONLY = re.compile(
    r"\b(?:(?:docs?|documentation|comments?|typos?|readme)[ -]only|only (?:docs?|documentation|comments?|typos?)\b)",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(
    r"\s{0,4}(?:ls|cat|pwd|echo|head|tail|grep|rg|wc|date|whoami|uname|df|du|ps|uptime|"
    r"git (?:status|log|diff|show))\b"
)


class Prime:
    """Core rules and stakes. ``core_rules``: the identity's, by default GCP's three, quoted where broken.

    A rule that is none of the three can't be checked without a model, and the reason says so.
    """

    def __init__(self, *, core_rules: Sequence[str] = CORE_RULES) -> None:
        if isinstance(core_rules, str) or not all(isinstance(rule, str) for rule in core_rules):
            raise ValueError(f"core_rules is {core_rules!r}: give a list of texts")
        self.core_rules = tuple(core_rules)

    def review(self, case: Case) -> Opinion:
        """Its own opinion, from the case alone. Never raises for what a case says."""
        sight = look(case)
        stakes = weigh(case, has_change=bool(sight.reading.files))
        return (
            self._broken(sight)
            or self._in_python(sight)
            or self._claims(case, sight)
            or self._stakes(stakes)
            or self._unread(case, sight)
            or self._rest(sight, stakes)
        )

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        """Its ruling on an escalated proposal; the module's second table says how it comes about."""
        own = self.review(case)
        yes = [ballot for ballot in ballots if ballot.vote == "yes"]
        no = [ballot for ballot in ballots if ballot.vote == "no"]
        grave = [b for b in no if b.risk_level == "high" and b.confidence >= SURE]
        if own.vote == "no" and own.confidence >= SURE:
            return _ruling("reject", own.reason, own.confidence, own.risk_level)
        if grave:
            return _ruling(
                "reject", f"{_seats(grave)} sure of a grave fault", max(b.confidence for b in grave), "high"
            )
        if len(no) >= 2:
            return _ruling("reject", f"{_seats(no)} against it", _top(no), _worst(no))
        if not (own.confidence >= LOW):
            return _ruling("human", own.reason, 0.8, own.risk_level)
        if any(b.confidence >= CONTRADICTED for b in yes) and any(b.confidence >= CONTRADICTED for b in no):
            return _ruling(
                "human", f"{_seats(yes)} and {_seats(no)} are sure of opposites", 0.8, _worst(ballots)
            )
        if own.risk_level == "high":
            return _ruling("human", own.reason, 0.8, "high")
        if any(ballot.risk_level == "high" for ballot in yes):
            return _ruling("human", "a seat agrees and calls the risk high", 0.7, "high")
        if not any(ballot.confidence >= LOW for ballot in yes):
            return _ruling("human", "no seat could judge it", 0.8, _worst(ballots))
        unsure = [b for b in (*yes, *no) if not (b.confidence >= LOW)]
        firm = [ballot for ballot in yes if ballot.confidence >= 0.5]
        if (unsure or not (case.confidence >= LOW)) and len(firm) < 2:
            return _ruling(
                "human", "too little confidence, of the proposer or of a seat", 0.7, _worst(ballots)
            )
        if len(yes) > len(no) and own.vote == "yes":
            mean = sum(ballot.confidence for ballot in yes) / len(yes)
            reason = f"{_seats(yes)} in favour, {len(no)} against, and I find nothing graver: {own.reason}"
            return _ruling("confirm", reason, min(own.confidence, mean), own.risk_level)
        return _ruling(
            "human", f"{len(yes)} in favour, {len(no)} against, my own view: {own.vote}", 0.7, _worst(ballots)
        )

    # The core rules

    def _quote(self, number: int) -> str:
        rule = CORE_RULES[number]
        return f"core rule {rule!r}" if rule in self.core_rules else "policy"

    def _broken(self, sight: Sight) -> Opinion | None:
        faults = sight.of("fault")
        if not faults:
            return None
        number = 0 if faults[0].family == "shell" else 2
        return Opinion.no(f"{_SAYS}: {self._quote(number)}: {faults[0]}", confidence=0.92, risk_level="high")

    def _in_python(self, sight: Sight) -> Opinion | None:
        """Shell commands and code built from data; a whole new file that does not parse."""
        changes = [c for c in sight.reading.files if c.path.endswith(".py") and not is_test(c.path)]
        old: list[Piece] = []
        new: list[Piece] = []
        broken: list[str] = []
        for change, _, sides in sides_of(changes):
            old += [sides.old] if sides.old else []
            new += [sides.new] if sides.new else []
            broken += [shown(change.path)] if sides.error and change.kind == "added" else []
        code: Opinion | None = None
        unsaid: Opinion | None = None
        for piece, line, danger in fresh_dangers(old, new, is_test=is_test):
            place = f"({shown(piece.path)}:{line})"
            if danger.rule == "shell" and danger.sure:
                reason = f"{self._quote(0)}: a shell command built from data {place}"
                return Opinion.no(f"{_SAYS}: {reason}", confidence=0.85, risk_level="high")
            if danger.rule in ("pickle", "yaml") and danger.risk == "high":
                reason = f"{_SAYS}: {danger.message} {place}"
                if danger.sure:
                    return Opinion.no(reason, confidence=0.85, risk_level="high")
                unsaid = unsaid or Opinion.abstain(reason, confidence=0.5, risk_level="high")
            if danger.rule == "eval":
                reason = f"{self._quote(0)}: evaluates data as code {place}"
                code = code or Opinion.no(f"{_SAYS}: {reason}", confidence=0.7, risk_level="med")
        if code is None and broken:
            reason = f"{self._quote(1)}: {broken[0]} is no Python: it does not parse"
            return Opinion.no(f"{_SAYS}: {reason}", confidence=0.8, risk_level="med")
        return code or unsaid

    def _claims(self, case: Case, sight: Sight) -> Opinion | None:
        """What the text claims against what is there; and a command for which no reason is given."""
        if (
            _DOCS_ONLY.search(case.summary[:500])
            and sight.sources
            and "no " not in case.summary[:500].lower()
        ):
            paths = _some(sight.sources)
            reason = f"{self._quote(1)}: it says that only documentation changes, but source does ({paths})"
            return Opinion.no(f"{_SAYS}: {reason}", confidence=0.6, risk_level="med")
        if is_shell_tool(case.action) and not case.body.strip():
            commands = [text for _, text in action_texts(case.action)]
            bare = case.summary.strip().strip("`")
            if (len(bare.split()) < 3 or bare in commands) and not all(map(_READ_ONLY.match, commands)):
                reason = f"{self._quote(0)}: a command is to run, and nothing says why"
                return Opinion.no(f"{_SAYS}: {reason}", confidence=0.6, risk_level="med")
        return None

    # Stakes

    @staticmethod
    def _stakes(stakes: Stakes) -> Opinion | None:
        if stakes.kind in {"none", "change"}:
            return None
        grave = stakes.irreversible or stakes.kind == "weaken"
        if grave and stakes.reach == "wide":
            how = "can't be undone" if stakes.irreversible else "takes a guard away"
            reason = (
                f"{_SAYS}: {stakes.what!r} {how}, and reaches production or everybody: a human should look"
            )
            return Opinion.no(reason, confidence=0.6, risk_level="high")
        if stakes.kind in {"destroy", "money"} and stakes.reach == "unsaid":
            reason = f"{_SAYS}: {stakes.what!r} can't be undone, and what it reaches is not said"
            return Opinion.abstain(reason, confidence=0.5, risk_level="high")
        return None

    @staticmethod
    def _unread(case: Case, sight: Sight) -> Opinion | None:
        if sight.unread:
            reason = f"{_SAYS}: no core rule broken in what I could read; not read: {_some(sight.unread)}"
            return Opinion.abstain(reason, confidence=UNREAD, risk_level="med")
        if not readable(case, sight):
            return Opinion.abstain(f"{_SAYS}: nothing here that I can read", confidence=0.5)
        return None

    def _rest(self, sight: Sight, stakes: Stakes) -> Opinion:
        unchecked = [rule for rule in self.core_rules if rule not in CORE_RULES]
        tail = f"; {len(unchecked)} further core rules need a model to check" if unchecked else ""
        touched = [
            c.path
            for c in sight.reading.files
            if _SENSITIVE.search(c.path) and not is_docs(c.path) and not is_test(c.path)
        ]
        if sight.binaries:
            binaries = _some(sight.binaries)
            reason = f"{_SAYS}: no core rule broken in what I could read; not read, binary: {binaries}{tail}"
            return Opinion.yes(reason, confidence=0.45, risk_level="med")
        if concerns := sight.of("concern"):
            reason = f"no core rule is broken for sure, but {concerns[0]} wants a look"
        elif touched:
            reason = f"no core rule broken; touches what is sensitive: {_some(touched)}"
        elif stakes.kind not in {"none", "change"}:
            reason = (
                f"no core rule broken; {stakes.what!r} is of limited reach"
                if stakes.reach == "limited"
                else (f"no core rule broken; {stakes.what!r} goes to others and stays")
            )
        elif sight.reading.files:
            return Opinion.yes(
                f"{_SAYS}: no core rule broken, nothing sensitive touched{tail}", confidence=0.75
            )
        elif stakes.kind == "change" and stakes.reach == "wide":
            reason = (
                f"no core rule broken; {stakes.what!r} reaches production or everybody, and can be undone"
            )
        else:
            return Opinion.yes(f"{_SAYS}: no core rule broken, little at stake{tail}", confidence=0.65)
        return Opinion.yes(f"{_SAYS}: {reason}{tail}", confidence=0.55, risk_level="med")


# Words


def _ruling(word: RulingWord, reason: str, confidence: float, risk: RiskLevel) -> Ruling:
    return Ruling(word, reason, confidence, risk)


def _seats(ballots: Sequence[ShownBallot]) -> str:
    return ", ".join(shown(ballot.seat) for ballot in ballots)


def _top(ballots: Sequence[ShownBallot]) -> float:
    return max(ballot.confidence for ballot in ballots)


def _worst(ballots: Sequence[ShownBallot]) -> RiskLevel:
    levels = {ballot.risk_level for ballot in ballots}
    return "high" if "high" in levels else "med" if "med" in levels else "low"


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - PATHS_SHOWN} more" if len(paths) > PATHS_SHOWN else ""
    return ", ".join(shown(path) for path in paths[:PATHS_SHOWN]) + more
