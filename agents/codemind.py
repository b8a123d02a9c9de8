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

from functools import partial

from council.agents.mind import Case, Opinion
from council.agents.scan.finding import CODE
from council.agents.scan.scan import scan
from council.agents.static import marks
from council.agents.static.verdict import StaticMind, asks, count, listed, says, stops

NAMED_MAX = 20  # files in a reason; the others are only counted
_says = partial(says, marks.CODE)


class CodeMind(StaticMind):
    """The mind of the seat ``codemind``. The module's docstring says how it votes.

    ``own`` are the user's rules (the setting ``rules``).
    """

    def review(self, case: Case) -> Opinion:
        """What static checks find in the case's code. Blocks for less than a second if there is code."""
        seen = scan(case, self.own)
        if opinion := stops(seen, CODE, marks.CODE) or asks(seen, CODE, marks.CODE):
            return opinion
        only_lines = f"only their lines were read: {listed(seen.only_lines, NAMED_MAX, ', ')}"
        if not seen.has_code:
            why = only_lines if seen.only_lines else "there is no code to judge: no diff, no code block"
            return _says("abstain", why, 0.5)
        if unread := (*seen.unread, *seen.unknown, *seen.failed):
            return _says("abstain", f"not read: {listed(unread, NAMED_MAX, ', ')}", 0.5)
        where = count(len(seen.files), "file") if seen.files else "its code"
        told, confidence = [f"no fault found in {where}"], 0.9
        if notes := seen.of("note", CODE):
            told.append(f"worth a look: {listed(notes)}")
            confidence = 0.7
        if seen.only_lines:
            told.append(only_lines)
            confidence = 0.5
        return _says("yes", "; ".join(told), confidence)
