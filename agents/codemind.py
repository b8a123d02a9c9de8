"""CodeMind's built-in mind: static checks of the code in a case. It never runs the code, and uses no network.

It reads the unified diffs and code blocks in a case's body and in its action's arguments. It judges only what the
*change* adds: the proposer does not answer for older code. How it votes:

| what was found                                                     | vote    | risk | confidence |
|--------------------------------------------------------------------|---------|------|------------|
| a finding of a code family that stops                              | no      | high | 0.95       |
| one that asks                                                      | no      | med  | 0.65       |
| none, or small matters that it names                               | yes     | low  | 0.9 (0.7)  |
| none, and of some files only the lines or the syntax were read     | yes     | low  | 0.5        |
| no code, an unreadable diff, a language that no rule reads, or an  | abstain | low  | 0.5        |
| analyzer that did not do its work                                  |         |      |            |

The families are those of ``scan.finding.CODE``. No confidence is below 0.3: a lower one would send every change that
has a README to Prime (rules 1.8).
"""

from __future__ import annotations

from council.agents.mind import Case, Observation, Opinion, Stream
from council.agents.scan.finding import CODE
from council.agents.scan.own import NOTHING, Own
from council.agents.scan.scan import scan
from council.agents.static import marks
from council.agents.static.verdict import REASON_CHARS_MAX, asks, count, listed, observed, stops

NAMED_MAX = 20  # files in a reason; the others are only counted


class CodeMind:
    """The mind of the seat ``codemind``. The module's docstring says how it votes.

    ``own`` are the user's rules (the setting ``rules``).
    """

    def __init__(self, *, own: Own = NOTHING) -> None:
        self._own = own

    def observe(self, case: Case, stream: Stream) -> Observation:
        """Interrupts a stream that breaks policy, as Lite does (rules 3.1). No text in the stream makes it raise."""
        return observed(case, stream, self._own)

    def review(self, case: Case) -> Opinion:
        """What static checks find in the case's code. Blocks for less than a second if there is code."""
        seen = scan(case, self._own)
        if opinion := stops(seen, CODE, marks.CODE) or asks(seen, CODE, marks.CODE):
            return opinion
        if not seen.has_code:
            why = "there is no code to judge: no diff, no code block"
            if seen.only_lines:
                why = f"only their lines were read: {listed(seen.only_lines, NAMED_MAX, ', ')}"
            return Opinion.abstain(_cut(why), confidence=0.5)
        if unread := (*seen.unread, *seen.unknown, *seen.failed):
            return Opinion.abstain(_cut(f"not read: {listed(unread, NAMED_MAX, ', ')}"), confidence=0.5)
        where = count(len(seen.files), "file") if seen.files else "its code"
        says, confidence = [f"no fault found in {where}"], 0.9
        if notes := seen.of("note", CODE):
            says.append(f"worth a look: {listed(notes)}")
            confidence = 0.7
        if seen.only_lines:
            says.append(f"only their lines were read: {listed(seen.only_lines, NAMED_MAX, ', ')}")
            confidence = 0.5
        return Opinion.yes(_cut("; ".join(says)), confidence=confidence)


def _cut(reason: str) -> str:
    return (marks.CODE + reason)[:REASON_CHARS_MAX]
