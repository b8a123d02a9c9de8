"""Reads the code in a text: unified diffs and fenced code blocks.

``read_changes`` accepts any text. ``ScannedText.faults`` lists what it could not read, so that a seat that judges the
rest can say so. This module finds where the diff of a file begins, and reads git's headers. The library unidiff reads
the hunks. What contradicts a header, or goes on after the end of a hunk, is a fault.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Literal, cast

from unidiff.errors import UnidiffParseError
from unidiff.patch import Hunk as Found
from unidiff.patch import PatchSet

Kind = Literal["added", "deleted", "modified", "renamed"]
Tag = Literal[" ", "+", "-"]

# These bound the time of any call. A proposal is smaller, because its envelope has a limit.
LINES_MAX, FILES_MAX, BLOCKS_MAX, FAULTS_MAX = 200_000, 2_000, 1_000, 200
NAME_CHARS_MAX = 4_096  # the longest path that Linux opens
QUOTED_CHARS_MAX = 120  # of a foreign line in a fault
LONG_LINES = 1_200  # of a file that is shown whole; of a longer one, only what is near changed lines is read
NEAR_LINES = 60
WIDE_CONTEXT_LINES = 25  # a diff with so much context usually shows the whole file

_HUNK = r"@@ -[0-9]{1,9}(?:,[0-9]{1,9})? \+[0-9]{1,9}(?:,[0-9]{1,9})? @@.*\n"
_KEY = (
    r"(?:(?:old|new|deleted file|new file) mode|(?:copy|rename) (?:from|to)|(?:dis)?similarity index|index)"
)
# A file's diff up to its first hunk. A sentence may begin with "diff --git" too.
_HEAD = re.compile(
    r"^(?=diff --git |--- )"
    rf'(?:diff --git (?P<git>(?=.*\n(?:--- |Binary files |GIT binary patch|{_KEY} )|"?[abciow12]/\S+ \S+\r?\n).*)\n'
    rf"(?P<headers>(?:{_KEY} .*\n)*+))?"
    r"(?:--- (?P<old>.*)\n\+\+\+ (?P<new>.*)\n|(?(git)(?P<binary>Binary files .*\n|GIT binary patch\r?\n"
    r"(?:(?:(?:literal|delta) [0-9]{1,15}|[A-Za-z](?:[!-~]{5}){1,13})\r?\n|\r?\n(?=(?:literal|delta) ))*+)?|(?!)))",
    re.MULTILINE,
)
_HEADER = re.compile(rf"^({_KEY}) ([^\r\n]*)", re.MULTILINE)
_UNSHOWN = (  # what stands for a change and does not show it, and a sentence for it
    (r"(?:diff --cc |diff --combined |@@@ -).*\n", "a merge's combined diff can't be read; send one for one parent"),
    (r"\*\*\* .+\n--- .+\n\*{15}.*\n", "a context diff can't be read; send a unified diff"),
    (r"\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?\n(?=[<>] )", "a diff without file names can't be read; send a unified diff"),
    (_HUNK, "a hunk without a file header (--- and +++) before it"),
    (r"Submodule \S.{0,4096} [0-9a-f]{7,64}\.{2,3}[0-9a-f]{7,64}.*\n", "the content of a submodule is not shown"),
    (r"Binary files .* differ\r?\n", "a binary file without git's header is not shown"),
)  # fmt: skip
_START = re.compile("|".join((_HEAD.pattern, *(f"^(?:{pattern})" for pattern, _ in _UNSHOWN))), re.MULTILINE)
_IN_HUNK = re.compile(r"[ +-].*\n|\\ .*\n|\r?\n")
_AFTER_HUNK = re.compile(rf"{_HUNK}|\\ .*\n")  # or the end of the file's diff
# Lines that go on after a hunk, up to a mail's signature, a rule or the next file.
_REST = re.compile(r"(?:(?!---?[ \t\r]*\n|--- .*\n\+\+\+ )[ +\-\\].*\n)*+")
_FACTS = {"old mode", "rename to", "new file mode", "deleted file mode"}  # changes that need no hunk
_INDEX = re.compile(r"[0-9a-f]{4,64}\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
_PREFIX = re.compile(r"[abciow12]/")  # what git puts before a name; the digits are of --no-index
_SUBMODULE = re.compile(r"Subproject commit [0-9a-f]{40,64}")
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<mark>`{3,}(?=[^`\n]*$)|~{3,})(?P<info>[^\n]*)\n?"
    r"(?P<code>.*?)(?:^ *(?P=mark)[`~]*\s*?$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_LINK_MODE, _SUBMODULE_MODE = "120000", "160000"
_DATA = re.compile(r"\.(?:json|toml|ya?ml|ipynb|pth)$", re.IGNORECASE)  # their syntax is checked as a whole
_NULL = "/dev/null"
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPED = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def short_quote(text: str) -> str:
    """A foreign text, cut and without control characters, for a reason."""
    cut = text if len(text) <= QUOTED_CHARS_MAX else text[:QUOTED_CHARS_MAX] + "…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a hunk. ``old_no`` and ``new_no`` count from 1; None if the line is not on that side.

    ``text`` has no line ending. ``ending`` is "\\n", "\\r\\n", or "" for a last line without newline.
    """

    tag: Tag
    text: str
    old_no: int | None
    new_no: int | None
    ending: str = "\n"


@dataclass(frozen=True, slots=True)
class Hunk:
    """Adjacent lines of a file, before and after the change."""

    old_start: int
    new_start: int
    lines: tuple[DiffLine, ...]

    @property
    def added(self) -> list[tuple[int, str]]:
        """(line number in the new file, text) of each added line."""
        return [(line.new_no or 0, line.text) for line in self.lines if line.tag == "+"]

    @property
    def removed(self) -> list[tuple[int, str]]:
        """(line number in the old file, text) of each removed line."""
        return [(line.old_no or 0, line.text) for line in self.lines if line.tag == "-"]

    def old_text(self) -> str:
        """The part of the old file that the hunk shows, with its line endings."""
        return "".join(line.text + line.ending for line in self.lines if line.tag != "+")

    def new_text(self) -> str:
        """The part of the new file that the hunk shows, with its line endings."""
        return "".join(line.text + line.ending for line in self.lines if line.tag != "-")


@dataclass(frozen=True, slots=True)
class FileChange:
    """The changes of a diff to one file. A copy counts as ``renamed``: its hunks are relative to ``old_path``.

    ``is_whole``: the hunks show the entire file, both sides. ``is_link``: the new file is a symbolic link, and its
    one line is the target. Paths are as the author wrote them, perhaps absolute or with "..": never open them.
    """

    path: str
    old_path: str | None
    kind: Kind
    is_binary: bool = False
    is_link: bool = False
    hunks: tuple[Hunk, ...] = ()
    is_whole: bool = False

    @property
    def added(self) -> list[tuple[int, str]]:
        """(line number in the new file, text) of each added line."""
        return [item for hunk in self.hunks for item in hunk.added]

    @property
    def removed(self) -> list[tuple[int, str]]:
        """(line number in the old file, text) of each removed line."""
        return [item for hunk in self.hunks for item in hunk.removed]


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block. ``language`` is in lower case, "" if none is named; ``line`` is the line of its opening fence.

    ``has_diff``: it holds a diff, which is also in ``ScannedText.files`` or in its faults.
    """

    language: str
    code: str
    line: int
    has_diff: bool = False


@dataclass(frozen=True, slots=True)
class ScannedText:
    """The code in a text, and the parts that could not be read. ``prose`` is the text with its diffs blanked."""

    files: tuple[FileChange, ...] = ()
    blocks: tuple[CodeBlock, ...] = ()
    faults: tuple[str, ...] = ()
    prose: str = field(default="", compare=False)


def narrowed(change: FileChange) -> FileChange:
    """A change of a long file without the lines that are far from changed ones; its first lines stay, for imports."""
    lines = change.hunks[0].lines if len(change.hunks) == 1 else ()
    is_long = change.is_whole and len(lines) > LONG_LINES
    if not is_long or change.kind != "modified" or _DATA.search(change.path):
        return change
    kept = set(range(NEAR_LINES))
    for at, line in enumerate(lines):
        if line.tag != " ":
            kept.update(range(max(0, at - NEAR_LINES), min(len(lines), at + NEAR_LINES + 1)))
    hunks = []
    for _, run in groupby(enumerate(sorted(kept)), key=lambda pair: pair[1] - pair[0]):  # adjacent lines
        part = tuple(lines[at] for _, at in run)
        old = next((line.old_no for line in part if line.old_no), 0)
        hunks.append(Hunk(old, next((line.new_no for line in part if line.new_no), 0), part))
    return replace(change, hunks=tuple(hunks), is_whole=False)


def read_changes(text: str) -> ScannedText:
    """The diffs and code blocks in ``text``. No text makes it raise; limits are reported as faults."""
    lines = text.removesuffix("\n").split("\n")  # not splitlines(): a form feed ends no line of a diff
    reader = _Reader(lines[:LINES_MAX])
    blocks = _read_blocks(reader)
    limits = (
        ("lines", lines, LINES_MAX),
        ("files", reader.files, FILES_MAX),
        ("code blocks", blocks, BLOCKS_MAX),
        ("faults", reader.faults, FAULTS_MAX),
    )
    faults = [
        f"only the first {most:,} {what} were read of {len(every):,}"
        for what, every, most in limits
        if len(every) > most
    ]
    return ScannedText(
        tuple(reader.files[:FILES_MAX]),
        tuple(blocks[:BLOCKS_MAX]),
        (*faults, *reader.faults[:FAULTS_MAX]),
        "\n".join(reader.prose),
    )


def _read_blocks(reader: _Reader) -> list[CodeBlock]:
    """The fenced blocks. What holds a diff is known, but for an indented block, whose lines are read here."""
    blocks: list[CodeBlock] = []
    text, at, line = "\n".join(reader.prose) + "\n", 0, 1
    for fence in _FENCE.finditer(text):
        line, at = line + text.count("\n", at, fence.start()), fence.start()
        language = (fence["info"].split() or [""])[0].lower()
        code = textwrap.dedent(fence["code"].replace("\r\n", "\n"))
        numbers = range(line, line + fence["code"].count("\n"))
        has_diff = not reader.taken.isdisjoint(numbers)
        if fence["indent"] and not has_diff:
            inner = _Reader(code.split("\n")[: len(numbers)])
            has_diff = bool(inner.taken)
            reader.files += inner.files
            reader.faults += [f"{fault} of the block at line {line}" for fault in inner.faults]
            reader.prose[numbers.start : numbers.stop] = inner.prose
        if language in ("diff", "patch", "udiff") and not has_diff:
            reader.faults.append(f"line {line}: a {language} block without a file header (--- and +++)")
        blocks.append(CodeBlock(language, code, line, has_diff))
    return blocks


@dataclass(frozen=True, slots=True)
class _Section:
    """The diff of one file. ``headers`` are git's lines between the names and the hunks, by their first words."""

    is_git: bool
    is_binary: bool
    old: str
    new: str
    headers: dict[str, str]
    hunks: tuple[Hunk, ...]


class _Patch(PatchSet):
    """The hunks that unidiff reads from ``at`` on, up to a damaged one.

    Afterwards ``at`` is where it stopped, ``last`` where its last hunk begins, and ``why`` what is damaged, or "".
    """

    def __init__(self, text: str, at: int) -> None:
        self.at, self.last, self.why = at, at, ""
        try:
            super().__init__(self._lines(text))
        except UnidiffParseError as error:
            self.why = str(error)

    def _lines(self, text: str) -> Iterator[str]:
        """The lines that unidiff asks for. While it reads a hunk, ``self[0]`` does not hold that one yet."""
        yield from ("--- a\n", "+++ b\n")
        begun = 0
        while found := (_IN_HUNK if begun > len(self[0]) else _AFTER_HUNK).match(text, self.at):
            if found[0].startswith("@"):
                begun, self.last = begun + 1, self.at
            self.at = found.end()
            is_marker = found[0].startswith("\\")  # in git's language setting
            yield "\\ No newline at end of file\n" if is_marker else found[0]


class _Reader:
    """Reads the diffs in the lines.

    They are blanked in ``prose``, and ``taken`` are their numbers from 0. A line that only looks like a diff, or adds
    what no hunk holds, stays.
    """

    def __init__(self, lines: list[str]) -> None:
        self.files: list[FileChange] = []
        self.faults: list[str] = []
        self.taken: set[int] = set()
        self.prose = lines.copy()
        self._text = "\n".join(lines) + "\n"
        self._starts = [0, *(end.end() for end in re.finditer("\n", self._text))]
        self._at = 0
        while start := _START.search(self._text, self._at):
            self._at = start.end()
            self._take(start.start(), self._at, is_shown=False)
            if head := _HEAD.match(self._text, start.start()):
                self._read(head)
            else:
                place = start.start()
                why = next(why for pattern, why in _UNSHOWN if re.compile(pattern).match(self._text, place))
                self._fault(start.start(), why)

    def _line(self, at: int) -> int:
        """The number of the line at a place of the text, from 0."""
        return bisect_right(self._starts, at) - 1

    def _fault(self, at: int, message: str) -> None:
        self.faults.append(f"line {self._line(at) + 1}: {message}")

    def _take(self, start: int, end: int, *, is_shown: bool, is_read: bool = True) -> None:
        numbers = range(self._line(start), self._line(end))
        self.taken.update(numbers)
        for number in numbers if is_shown else ():
            if is_read or not self.prose[number].startswith("+"):
                self.prose[number] = ""

    def _read(self, head: re.Match[str]) -> None:
        """Reads the diff of a file."""
        at, known = head.start(), len(self.faults)
        headers: dict[str, str] = {}
        for key, value in _HEADER.findall(head["headers"] or ""):
            if (
                headers.setdefault(key.replace("copy", "rename"), value) != value
            ):  # a copy is read as a rename
                self._fault(at, f"git's header {key!r} contradicts one above it")
        if head["old"] is None:
            old, new = _split(head["git"])
        else:
            old, new = _plain_name(head["old"]), _plain_name(head["new"])
        hunks = self._hunks(short_quote(old if new == _NULL else new))
        section = _Section(head["git"] is not None, head["binary"] is not None, old, new, headers, hunks)
        change = _build(section)
        name = short_quote(change.path)
        needs_hunk = head["old"] is not None or not _FACTS.intersection(headers)
        is_shown = any(hunk.lines for hunk in hunks) or section.is_binary or not needs_hunk
        if not (is_shown or len(self.faults) > known):
            self._fault(at, f"{name} names a file, but no readable change follows")
            return
        self._take(at, head.end(), is_shown=True)
        for doubt in _doubts(section, change):
            self._fault(at, f"{name} {doubt}")
        is_whole = len(self.faults) == known and _is_whole(change, headers.get("index", ""))
        self.files.append(replace(change, is_whole=is_whole))

    def _hunks(self, name: str) -> tuple[Hunk, ...]:
        """The hunks of a file. After a damaged one, it goes on at the next header."""
        hunks: list[Hunk] = []
        while re.compile(_HUNK).match(self._text, self._at):
            patch = _Patch(self._text, self._at)
            hunks += map(_hunk, patch[0])
            rest = _REST.match(self._text, patch.at)
            is_longer = rest is not None and re.search("^[+-]", rest[0], re.MULTILINE)
            end = rest.end() if rest and (patch.why or is_longer) else patch.at
            read_to = patch.last if patch.why else patch.at
            self._take(self._at, read_to, is_shown=True)
            self._take(read_to, end, is_shown=True, is_read=False)
            if patch.why or is_longer:
                why = patch.why or "Hunk is longer than expected"
                self._fault(patch.last, f"the diff of {name} can't be read from here: {why}")
            self._at = end
        return tuple(hunks)


def _hunk(found: Found) -> Hunk:
    read: list[DiffLine] = []
    for line in found:
        if line.line_type == "\\":
            read[-1:] = [replace(last, ending="") for last in read[-1:]]
            continue
        ending = "\r\n" if line.value.endswith("\r\n") else "\n"
        text, tag = line.value.removesuffix(ending), cast(Tag, line.line_type)
        read.append(DiffLine(tag, text, line.source_line_no, line.target_line_no, ending))
    return Hunk(found.source_start, found.target_start, tuple(read))


def _build(section: _Section) -> FileChange:
    headers, hunks = section.headers, section.hunks
    old, new = _sides(section)
    tags = {line.tag for hunk in hunks for line in hunk.lines}
    is_created = not section.is_git and len(hunks) == 1 and hunks[0].old_start == 0 and tags == {"+"}
    kind: Kind = "modified"
    if old is None or "new file mode" in headers or is_created:
        kind = "added"
    elif new is None or "deleted file mode" in headers:
        kind = "deleted"
    elif old != new:
        kind = "renamed"
    index = _INDEX.match(headers.get("index", ""))
    said = {headers.get("new file mode"), headers.get("new mode"), index[2] if index else None} - {None}
    modes = said or {headers.get("deleted file mode")}
    return FileChange(
        path=(old if kind == "deleted" else new) or old or "",
        old_path=None if kind == "added" else old,
        kind=kind,
        is_binary=section.is_binary,
        is_link=modes == {_LINK_MODE} and sum(len(hunk.added) for hunk in hunks) <= 1,
        hunks=hunks,
    )


def _doubts(section: _Section, change: FileChange) -> Iterator[str]:
    """Why a change that was read does not show what it does."""
    modes = {mode for value in section.headers.values() for mode in value.split(" ")}
    lines = [line for hunk in change.hunks for line in hunk.lines]
    if _SUBMODULE_MODE in modes or any(_SUBMODULE.fullmatch(line.text) for line in lines):
        yield "is a submodule, whose content is not shown; review it on its own"
    others = {"added": {" ", "-"}, "deleted": {" ", "+"}}.get(change.kind, set())
    if any(line.tag in others for line in lines):
        yield f"is {change.kind} by its header, and its hunks show otherwise"
    for key, name in (("rename from", section.old), ("rename to", section.new)):
        if name and _unquote(section.headers.get(key, name)) not in (name, _PREFIX.sub("", name, count=1)):
            yield f"has a second name, {short_quote(name)}"
    if not 0 < len(change.path) <= NAME_CHARS_MAX:
        yield f"has no name of 1 to {NAME_CHARS_MAX:,} characters"
    for hunk in change.hunks:
        sides = ([line for line in hunk.lines if line.tag != other] for other in "+-")
        if any(not line.ending for side in sides for line in side[:-1]):
            yield f"has a hunk that goes on after the end of the file, at its line {hunk.new_start}"
    for before, after in pairwise(change.hunks):
        old = [line.old_no for line in before.lines if line.old_no is not None]
        if old and old[-1] >= after.old_start + all(line.tag == "+" for line in after.lines):
            yield f"has hunks that overlap or are out of order, at its line {after.old_start}"
            return


def _sides(section: _Section) -> tuple[str | None, str | None]:
    """(old, new) paths; None for a side that does not exist."""
    headers, names = section.headers, (section.old, section.new)
    if "rename from" in headers and "rename to" in headers:
        return _unquote(headers["rename from"]), _unquote(headers["rename to"])
    has_prefixes = all(name == _NULL or _PREFIX.match(name) for name in names)
    if _NULL not in names and section.old[:2] == section.new[:2]:
        has_prefixes = False  # git --no-prefix on a folder named "a"
    old, new = (None if name == _NULL else name[2:] if has_prefixes else name for name in names)
    return None if "new file mode" in headers else old, None if "deleted file mode" in headers else new


def _split(names: str) -> tuple[str, str]:
    """Both names in git's first line, which are equal but for their prefixes; ("", "") for those of a rename."""
    names = names.removesuffix("\r")
    half = len(names) // 2
    old, new = _unquote(names[:half]), _unquote(names[half + 1 :])
    return (old, new) if old[2:] == new[2:] else ("", "")


def _plain_name(name: str) -> str:
    """A name from a --- or +++ line, without its time stamp."""
    return _unquote(name.split("\t", 1)[0].removesuffix("\r"))


def _unquote(name: str) -> str:
    """Undoes git's C-style quoting: "caf\\303\\251.py" is UTF-8 in octal."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    raw = name[1:-1].encode("utf-8", "replace")
    return _ESCAPE.sub(_unescaped, raw).decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPED.get(code, code)


def _is_whole(change: FileChange, index: str) -> bool:
    """Whether the one hunk starts at the top of the file and reaches its end.

    git's hash of the new content in ``index`` proves or disproves the end. Without it the context tells: a diff with
    n lines of context shows fewer after the last change only if the file ends. Between two changes are at most 2n.
    """
    if len(change.hunks) != 1 or change.is_binary:
        return False
    (hunk,) = change.hunks
    if hunk.old_start > 1 or hunk.new_start > 1:
        return False
    if change.kind in ("added", "deleted") or any(not line.ending for line in hunk.lines):
        return True
    if blob := _INDEX.match(index):
        return _is_blob(hunk.new_text(), blob[1])
    runs = [len(run) for run in re.split("[-+]", "".join(line.tag for line in hunk.lines))]
    context = max(runs[0], runs[-1], *((run + 1) // 2 for run in runs[1:-1]), 0)
    return runs[-1] < context or context >= WIDE_CONTEXT_LINES


def _is_blob(text: str, name: str) -> bool:
    """Whether ``text`` is the content that git calls ``name`` (SHA-1, or SHA-256 if it is longer)."""
    content = text.encode("utf-8", "replace")
    digest = hashlib.new(
        "sha256" if len(name) > 40 else "sha1", b"blob %d\0" % len(content), usedforsecurity=False
    )
    digest.update(content)
    return digest.hexdigest().startswith(name)
