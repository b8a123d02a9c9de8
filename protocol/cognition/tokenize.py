"""The words of a text. Knows nothing of packets."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+(?:['’]\w+)?")
# Scripts from here on put no spaces between words.
_UNSPACED = "⺀"


def word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


COMMON = word_set(
    "the a an and or of to in on for with at by from is are was were be it this that these those i you we they "
    "he she my your our their what how why when where which who do does did can could should would will please "
    "not no yes if so as but about into than then there here have has had me us them its"
)


def telling_words(text: str) -> set[str]:
    """The distinctive words of a text; pairs of characters if a script has no spaces."""
    found: set[str] = set()
    for word in WORD.findall(text.replace("_", " ").casefold()):
        if word > _UNSPACED and len(word) > 2:
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in COMMON and len(word) > 1:
            found.add(word)
    return found
