"""The mind of the seat Lite: checks a proposal against policy. Uses no model, and does not judge correctness.

Its findings and opinions:

| finding                                                            | vote    | risk | confidence |
|--------------------------------------------------------------------|---------|------|------------|
| a finding of a policy's family that stops                          | no      | high | 0.95       |
| one that asks                                                      | no      | med  | 0.65       |
| more changed lines than ``max_changed_lines``                      | yes     | med  | 0.5        |
| removes a file of tests, and no source with it                     | yes     | med  | 0.5        |
| a binary file, as an image, beside what it read                    | yes     | med  | 0.45       |
| something worth a mention (sudo, an address in a document)         | yes     | med  | 0.55       |
| source changed without a test                                      | yes     | low  | 0.7        |
| a change with none of these                                        | yes     | low  | 0.85       |
| words without a change, none of these                              | yes     | low  | 0.6        |
| a damaged diff, source shown as binary or in no known encoding     | abstain | med  | 0.2        |
| nothing that can be read: only images, or empty                    | abstain | low  | 0.5        |

The families are those of ``scan.finding.POLICY``: secrets, privacy, commands, supply, cloud, containers, licences.
The confidence is below 0.3 only if part of the change was not seen: that goes to Prime (rules 1.8). A mere concern
does not. A reason shows at most four characters of a secret. Names of persons are not found: that takes a model or
a directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from council.agents.mind import Case, Opinion, RiskLevel
from council.agents.scan.change import short_quote
from council.agents.scan.finding import POLICY
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.scan import Findings, scan
from council.agents.static import marks
from council.agents.static.verdict import UNREAD, StaticMind, asks, count, listed, says, stops

_says = partial(says, marks.POLICY)


class Lite(StaticMind):
    """Checks policy on what a proposal adds. A change above ``max_changed_lines`` (800) counts as hard to review.

    ``own`` are the user's rules (the setting ``rules``).
    """

    def __init__(self, *, max_changed_lines: int = 800, own: Own = NOTHING) -> None:
        if max_changed_lines < 1:
            raise ValueError(f"max_changed_lines is {max_changed_lines}: give 1 or more")
        super().__init__(own=own)
        self.max_changed_lines = max_changed_lines

    def review(self, case: Case) -> Opinion:
        """Its opinion, by the module's table. No text in a case makes it raise."""
        seen = scan(case, self.own)
        if opinion := stops(seen, POLICY, marks.POLICY) or asks(seen, POLICY, marks.POLICY):
            return opinion
        if seen.unread:  # the unseen part may hold a fault: no yes, and Prime looks (rules 1.8)
            return says(
                marks.POLICY, "abstain", f"I could not read all of it: {listed(seen.unread)}", UNREAD, "med"
            )
        if not seen.is_readable:
            why = _listed_paths("binary", seen.parts.binaries) if seen.parts.binaries else "it is empty"
            return _says("abstain", f"nothing here that I can read: {why}", 0.5)
        return self._weigh(seen)

    def _weigh(self, seen: Findings) -> Opinion:
        """A yes. Its confidence depends on the smaller findings."""
        files, lines, most = seen.files, seen.parts.added + seen.parts.removed, self.max_changed_lines
        looked = (
            f"{count(len(files), 'file')}, {count(lines, 'line')}" if files else "its words and its action"
        )
        told = [f"no secret, personal data or dangerous command in {looked}"]
        confidence = 0.85 if files else 0.6
        risk: RiskLevel = "low"
        parts, mentions = seen.parts, seen.of("note", POLICY)
        silent = [f"{found.rule} at {found.place} ({why})" for found, why in seen.silenced]
        remarks: tuple[tuple[bool, str, float, RiskLevel], ...] = (
            (bool(parts.sources and not parts.tests), "source changed without a test", 0.7, "low"),
            (bool(mentions), f"worth a look: {listed(mentions)}", 0.55, "med"),
            (bool(parts.gone_tests), _listed_paths("removes tests", parts.gone_tests), 0.5, "med"),
            (lines > most, f"{lines:,} changed lines, more than {most:,}: split it", 0.5, "med"),
            (bool(parts.binaries), f"not read, {_listed_paths('binary', parts.binaries)}", 0.45, "med"),
            (bool(silent), f"silenced: {listed(silent)}", 1.0, "low"),
            (bool(parts.generated), _listed_paths("generated", parts.generated), 1.0, "low"),
        )
        for applies, remark, sure_max, how_grave in remarks:
            if applies:
                told.append(remark)
                confidence = min(confidence, sure_max)
                risk = "med" if how_grave == "med" else risk
        return _says("yes", "; ".join(told), confidence, risk)


def _listed_paths(what: str, paths: Sequence[str]) -> str:
    return f"{what}: {listed([short_quote(path) for path in paths], between=', ')}"
