"""Finds what a change adds and a reader does not see: characters, programs, links out of the repository.

The characters are controls of the writing direction (CVE-2021-42574), invisible ones, tags and runs of variation
selectors, which carry hidden text, and letters of other scripts that look Latin (UTS 39).
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_a

LINE_CHARS_MAX = 2_000  # of a line that is read
_DIRECTION = re.compile("[\u202a-\u202e\u2066-\u2069]")
_MARK = re.compile("[\u061c\u200e\u200f]")
# Flags of Scotland and others are an emoji and tags.
_TAGS = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]{1,200}")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3,200}")
# A joiner within a word of another script, or between emoji, is part of how it is written.
_UNSEEN = re.compile(
    "[\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u3164\uffa0]|(?<!^)\ufeff|(?<=[!-~])[\u200c\u200d](?=[!-~])"
)
_LOOKS_LATIN = "аеорсухіјѕһԁԛԝАВЕКМНОРСТУХІЈЅԌ" + "οιυνρΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "ｏ" + "ɑɡıոսօԚ"
_FULL_WIDTH = "\uff21-\uff3a\uff41-\uff5a"
_WORD = re.compile(rf"(?=\w{{0,80}}[{_LOOKS_LATIN}{_FULL_WIDTH}])\b\w{{1,80}}")
_ALIKE = re.compile(f"[{_LOOKS_LATIN}{_FULL_WIDTH}]")
_OTHER_WORD = re.compile(r"(?<![A-Za-z0-9_])(?:(?![A-Za-z0-9_])\w){3,40}(?![A-Za-z0-9_])")
_NAMED = re.compile(
    r"://[^\s/\"'<>]{1,200}|^\s*(?:import|from|use|using|require|include|package|source)\b[^\n]{1,300}|"
    r"\b(?:import|require|install|add|FROM|image)\b[ (:]{1,3}[\"'@\w][^\n]{0,200}"
)


def findings(changes: Iterable[FileChange]) -> list[Finding]:
    """The hidden characters, binary programs and links out of the repository that a change adds.

    A kind of hidden character counts only as often as the file has more of it than before.
    """
    return [each for change in changes for find in (_characters, _programs, _links) for each in find(change)]


def _programs(change: FileChange) -> Iterator[Finding]:
    if change.is_binary and change.kind == "added" and is_a("programs", change.path):
        message = "A program that nobody can read comes in. Build it from source, or check where it is from."
        yield Finding("binary-program", "supply", "ask", short_quote(change.path), 0, message, 506)


def _links(change: FileChange) -> Iterator[Finding]:
    for line, target in change.added if change.is_link else ():
        place = posixpath.normpath(posixpath.join(posixpath.dirname(change.path), target))
        if place.startswith("/") or place.split("/")[0] == "..":
            message = "A symbolic link leads out of the repository. Link within it, or copy the file."
            yield Finding("link-outside", "path", "ask", short_quote(change.path), line, message, 59)


def _characters(change: FileChange) -> list[Finding]:
    if change.kind == "deleted" or change.is_binary:
        return []
    prose = is_a("prose", change.path)
    gone = Counter(rule for _, text in change.removed for rule, *_ in _on_line(text[:LINE_CHARS_MAX], prose))
    found = []
    for number, text in change.added:
        for rule, weight, message in _on_line(text[:LINE_CHARS_MAX], prose):
            gone[rule] -= 1
            if gone[rule] < 0:
                found.append(Finding(rule, "supply", weight, change.path, number, message, 1007))
    return list(dict.fromkeys(found))


def _on_line(line: str, prose: bool) -> Iterator[tuple[str, Weight, str]]:
    """Rule, weight and message. ``prose`` is documentation or a translation, where other scripts are at home."""
    if line.isascii():
        return
    for hidden in (*_TAGS.finditer(line), *_SELECTORS.finditer(line)):
        message = f"{len(hidden.group())} characters that nobody sees can carry hidden text. Remove them."
        yield "text-invisible", "ask" if prose else "stop", message
    if prose:
        return
    if found := _DIRECTION.search(line):
        message = "changes the direction of writing: code reads otherwise than it runs. Remove it."
        yield "text-bidi", "stop", f"{_code(found)} {message}"
    elif found := _MARK.search(line):
        message = "marks a direction of writing. Remove it, or write it as an escape."
        yield "text-bidi", "ask", f"{_code(found)} {message}"
    if found := _UNSEEN.search(line):
        message = "is a character that nobody sees. Write it as an escape."
        yield "text-invisible", "ask", f"{_code(found)} {message}"
    names = [range(*found.span()) for found in _NAMED.finditer(line)]
    other = _OTHER_WORD.search(line)
    for found in _WORD.finditer(line):
        in_name = any(found.start() in span for span in names)
        mixed = in_name or (re.search("[A-Za-z]", found.group()) and not other)
        alike = _ALIKE.search(found.group())
        if mixed and alike:
            what = "a name of a package or host" if in_name else "a name"
            message = f"{_code(alike)} looks like a Latin letter in {what}. Write the name in one script."
            yield "text-mixed-script", "stop" if in_name else "ask", message


def _code(found: re.Match[str]) -> str:
    return f"U+{ord(found.group()):04X}"
