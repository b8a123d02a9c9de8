"""Finds guards, checks of input and locks that a change takes off, line by line, in any language.

Code rules whose ``when`` is "vanishes" know the guards of one language, and Python's tree says more about its checks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import Block, Pair, bare, difference, is_code, is_remark, patterns, tokens

LINES_MAX = 12  # of a block that takes off a guard; a longer one takes its subject too
CONDITION_LINES_MAX = 6  # of a condition and its block
REFUSAL_LINES_MAX = 3
_DEFINES = re.compile(r"^\s*(?:export\s+)?(?:abstract\s+)?(?:class|def|function|const)\s+(\w+)")


def findings(
    changes: Sequence[FileChange], blocks: Sequence[Block], pairs: Sequence[Pair]
) -> Iterator[Finding]:
    """What becomes of the guards of a whole change, tests left out."""
    judged = {change.path: change for change in changes if change.kind != "deleted" and is_code(change)}
    blocks = [block for block in blocks if block.removed and block.path in judged and not is_test(block.path)]
    if not blocks:
        return
    put = {token for change in changes for _, text in change.added for token in tokens(text)}
    defined = {name for change in changes for _, text in change.added for name in _DEFINES.findall(text)}
    puts = {path: _Put(put, defined, judged[path]) for path in {block.path for block in blocks}}
    of_block: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        of_block[id(pair.block)].append(pair)
    for block in blocks:
        put_instead = puts[block.path]
        cut = [_cut(pair, put_instead) for pair in of_block[id(block)] if not is_remark(pair.new)]
        found = [each for each in cut if each]
        taken_off = None if found else _taken_off(block, of_block[id(block)], put_instead)
        if not (found or taken_off):
            taken_off = _unscoped(block, put_instead) or _refusal(block, put_instead)
        yield from [*found, taken_off] if taken_off else found


@dataclass(frozen=True)
class _Put:
    """What is added: the tokens of the whole change, the names that it defines, and the change of one file."""

    tokens: set[str]
    defined: set[str]
    change: FileChange

    @cached_property
    def has_guard(self) -> bool:
        """Whether the file gets a guard, and not only those that it loses."""
        return _gets_other_guard(self.change)

    @cached_property
    def lines(self) -> list[str]:
        """The lines that the file gets."""
        return [text for _, text in self.change.added]

    @cached_property
    def shown(self) -> set[str]:
        """The tokens of all lines of the file that are shown after the change."""
        lines = (line for hunk in self.change.hunks for line in hunk.lines if line.tag != "-")
        return {token for line in lines for token in tokens(line.text)}

    def guard_gone(self, words: Sequence[str]) -> str:
        """A guard among the words that nothing replaces, or ""."""
        gone = [] if self.has_guard else [word for word in words if _is_guard(word)]
        return gone[0] if gone and self.tokens.isdisjoint(gone) else ""

    def keeps_guard(self, block: Block) -> bool:
        """Whether a guard of a block still stands in what is shown of the file, or another guard is added."""
        gone = {word for _, text in block.removed for word in tokens(text) if _is_guard(word)}
        return any(map(_is_guard, self.tokens)) or not gone.isdisjoint(self.shown)

    def asks_again(self, condition: str) -> bool:
        """Whether the file gets all the words of a condition, so that it moved or has another form."""
        words = {word for text in self.lines for word in tokens(text)}
        return {word for word in tokens(condition) if word[0].isalpha() or word[0] in "'\""} <= words

    def denies(self) -> bool:
        """Whether the file gets a line that keeps people out."""
        return any(patterns("guards")["denies"].search(text) for text in self.lines)


def _is_guard(word: str) -> bool:
    known = patterns("guards")
    return known["access"].search(word) is not None and not known["exempt"].search(word)


def _gets_other_guard(change: FileChange) -> bool:
    """Whether a file loses a guard, and gets one that is not among those it loses."""
    old, new = (
        {word.lower() for _, text in lines for word in tokens(text) if _is_guard(word)}
        for lines in (change.removed, change.added)
    )
    return bool(old) and not new <= old


def _finding(rule: str, weight: Weight, path: str, line: int, message: str, cwe: int) -> Finding:
    return Finding(rule, "auth" if cwe in (862, 639) else "guard", weight, path, line, message, cwe)


def _taken_off(block: Block, pairs: Sequence[Pair], put: _Put) -> Finding | None:
    """A line that is a guard, and is taken out, while the lines around it stay."""
    kept = {bare(text) for _, text in block.added} | {bare(pair.old) for pair in pairs}
    old = {bare(text) for _, text in block.removed} | {bare(pair.new) for pair in pairs}
    adds = [text for _, text in block.added if text.strip() and bare(text) not in old]
    known = patterns("guards")
    if not all(is_remark(text) or known["tells"].search(text) for text in adds) or not (
        block.after.strip() or block.added
    ):
        return None
    gone = [(number, text) for number, text in block.removed if text.strip() and bare(text) not in kept]
    gone = [(number, text) for number, text in gone if not is_remark(text)]
    if not gone or len(gone) > LINES_MAX:
        return None
    if any(word in put.defined for pair in pairs for word in pair.put) and put.keeps_guard(block):
        return None  # a base, a wrapper or a helper that the change defines has a guard
    if known["condition"].search(gone[0][1]) and ":=" not in gone[0][1]:
        # A line beside it that now has a word of the condition may judge by it.
        asked = {word for word in tokens(gone[0][1]) if word[0].isalpha()}
        told = {word for pair in pairs for word in set(pair.put).difference(pair.cut)}
        return (
            _condition(block.path, gone)
            if asked.isdisjoint(told) and not put.asks_again(gone[0][1])
            else None
        )
    for number, text in () if put.has_guard else gone:
        if found := _line(block, number, text, put, is_short=len(gone) <= 3):
            return found
    return None


def _unscoped(block: Block, put: _Put) -> Finding | None:
    """A query for what is the caller's own, in place of which stands one for everybody's."""
    known = patterns("guards")
    queries = [
        (number, text)
        for number, text in block.removed
        if known["query"].search(text)
        and (known["scoped"].search(text) or known["through_caller"].search(text))
        and not is_remark(text)
    ]
    asks = any(known["query"].search(text) for _, text in block.added)
    if not queries or not asks or any(known["owner"].search(text) for text in put.lines):
        return None
    number, text = queries[0]
    message = (
        f"Takes the owner off the query {short_quote(text.strip())}. Keep it: else rows of others are found."
    )
    return _finding("filter-cut", "stop", block.path, number, message, 639)


def _refusal(block: Block, put: _Put) -> Finding | None:
    """A line that keeps people out of what stays, and in its place nothing, or a line for the log."""
    known = patterns("guards")
    gone = [(number, text) for number, text in block.removed if text.strip()]
    tells = all(is_remark(text) or known["tells"].search(text) for _, text in block.added if text.strip())
    if not 0 < len(gone) <= REFUSAL_LINES_MAX or not tells or put.denies():
        return None
    number, text = gone[0]
    if not known["denies"].search(text):
        return None
    message = f"Takes off the refusal {short_quote(text.strip())}, but what it guards stays. Keep it."
    return _finding("refusal-removed", "stop", block.path, number, message, 862)


def _condition(path: str, gone: Sequence[tuple[int, str]]) -> Finding | None:
    known, (number, first) = patterns("guards"), gone[0]
    is_access = known["authority"].search(first) is not None
    stops = known["refuses" if is_access else "throws"].search(" ".join(text for _, text in gone))
    if path.endswith(".py") or len(gone) > CONDITION_LINES_MAX or not stops:
        return None
    shown = short_quote(first.strip())
    message = f"Takes off the check {shown}, but what it guards stays. Keep it, or move it."
    weight: Weight = "stop" if is_access else "ask"
    return _finding("guard-removed", weight, path, number, message, 862 if is_access else 754)


def _line(block: Block, number: int, text: str, put: _Put, *, is_short: bool) -> Finding | None:
    known, shown = patterns("guards"), short_quote(text.strip())
    if known["names"].search(text):
        return None
    is_item = known["item"].search(text) is not None
    is_guard = is_item or (is_short and (not block.path.endswith(".py") or known["python"].search(text)))
    words = [word for word in tokens(text) if is_item or word[0] not in "'\""]
    if is_guard and put.guard_gone(words):
        rule = "middleware-removed" if is_item else "guard-removed"
        message = (
            f"Takes off the guard {shown}, but what it guards stays. Keep it, or put another in its place."
        )
        return _finding(rule, "stop", block.path, number, message, 862)
    if known["lock"].search(text) and not any(known["atomic"].search(added) for _, added in block.added):
        message = (
            f"Takes off {shown}, but what it protects stays. Keep it, or say why no two can run it at once."
        )
        return _finding("lock-removed", "stop", block.path, number, message, 362)
    return None


def _cut(pair: Pair, put: _Put) -> Finding | None:
    """A guard that is cut out of a line which is otherwise the same."""
    known = patterns("guards")
    is_named = known["names"].search(pair.old) and not (known["python"].search(pair.old) or "@" in pair.cut)
    if not pair.cut or is_named:
        return None
    shown = short_quote(pair.new.strip())
    cuts, puts = pair.cut, pair.put
    if len(cuts) == len(puts) == 1 and cuts[0][0] in "'\"" and puts[0][0] in "'\"":
        cuts, puts = difference(tokens(cuts[0][1:-1]), tokens(puts[0][1:-1]))
    weight: Weight
    name = put.guard_gone(cuts)
    is_denied = re.search(r"!|\bnot\b", pair.new) is not None
    if name and known["implied"].search(name) and known["stronger"].search(pair.new) and not is_denied:
        return None
    if name and all(known["exempt"].search(word) for word in puts if word[0].isalpha()):
        message = f"Takes {short_quote(name)} off {shown}. Keep it, or put another guard in its place."
        return _finding("guard-cut", "stop", pair.path, pair.line, message, 862)
    cut, whole = " ".join(cuts), " ".join(text for _, text in pair.block.added)
    owner = known["owner"].compiled
    is_query = known["query"].search(pair.old) and known["query"].search(pair.new)
    is_owners = not known["caller"].search(whole) and set(owner.findall(cut)) - set(owner.findall(whole))
    if is_query and is_owners and re.search("[=:]|AND", cut):
        is_own = known["scoped"].search(pair.old) and not any(
            known["owner"].search(text) for text in put.lines
        )
        weight = "stop" if is_own or not puts else "ask"
        shown = short_quote(cut)
        message = f"Takes the filter {shown} off a query. Keep it: else rows of others are found."
        return _finding("filter-cut", weight, pair.path, pair.line, message, 639)
    is_less = set(puts) <= set(cuts) and len(pair.block.removed) == len(pair.block.added) == 1
    if is_less and known["input"].search(cut) and not known["input"].search(whole):
        message = f"Takes a check of input off {shown}. Keep it, or say where it is checked now."
        weight = "stop" if known["cleans"].search(cut) else "ask"
        return _finding("validation-cut", weight, pair.path, pair.line, message, 20)
    if is_less and known["lock"].search(cut) and not known["atomic"].search(whole):
        message = f"Takes {short_quote(cut)} off {shown}. Keep it, or say why no two can run it at once."
        return _finding("lock-removed", "stop", pair.path, pair.line, message, 362)
    return None
