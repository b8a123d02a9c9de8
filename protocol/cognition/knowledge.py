"""Chooses which turns of a history a packet's prompt needs, by the words that they share with it.

It uses no model: the same packet and history always give the same selection.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import RelevantHistorySnippet

# "It" and "that" refer to the newest turns, whatever these are about.
RECENT_TURNS = 6
SNIPPETS_MAX = 20
# A text of fewer words is weighed as if it had this many. Otherwise a heading that shares one word would be the
# closest.
WORDS_MIN = 8

_WORD = re.compile(r"\w+(?:['’]\w+)?")
# Scripts from here on put no spaces between words.
_UNSPACED = "⺀"
_COMMON_WORDS = (
    "the a an and or of to in on for with at by from is are was were be it this that these those i you we they "
    "he she my your our their what how why when where which who do does did can could should would will please "
    "not no yes if so as but about into than then there here have has had me us them its"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def add_knowledge(packet: CognitionPacket, history: Sequence[RelevantHistorySnippet]) -> CognitionPacket:
    """The packet with the relevant turns of ``history``: the newest, and older ones that share rare words with its
    prompt, at most ``SNIPPETS_MAX``. ``history`` is oldest first, and so is the selection.

    The packet's own turns stay, and come first. Of several turns with one id, the last counts. No turn is shortened.
    """
    own = packet.context.relevant_history_snippet
    own_ids = {turn.id for turn in own}
    last = {turn.id: turn for turn in history}
    turns = [turn for turn in history if turn.id not in own_ids and turn is last[turn.id]]
    older, newest = turns[:-RECENT_TURNS], turns[-RECENT_TURNS:]
    snippets = (*own, *_closest(packet.content.original_prompt, older), *newest)
    context = packet.context.model_copy(update={"relevant_history_snippet": snippets})
    return packet.model_copy(update={"context": context})


def _closest(prompt: str, turns: Sequence[RelevantHistorySnippet]) -> list[RelevantHistorySnippet]:
    """The turns that share words with ``prompt``, in order.

    The score is the rarity of the shared words for the length of the turn, because reading costs. Of equals the later
    comes first.
    """
    asked = _words(prompt)
    texts = [_words(turn.summary) for turn in turns]
    spread = Counter(word for words in texts for word in words)
    scores = []
    for at, words in enumerate(texts):
        shared = math.fsum(math.log(1 + len(texts) / spread[word]) for word in words & asked)
        scores.append((shared / max(len(words), WORDS_MIN), at))
    best = sorted((score for score in scores if score[0] > 0), reverse=True)
    return [turns[at] for at in sorted(at for _, at in best[: SNIPPETS_MAX - RECENT_TURNS])]


def _words(text: str) -> set[str]:
    """The distinctive words of a text; pairs of characters if its script has no spaces."""
    found: set[str] = set()
    for word in _WORD.findall(text.replace("_", " ").casefold()):
        if word > _UNSPACED and len(word) > 2:
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in _COMMON and len(word) > 1:
            found.add(word)
    return found
