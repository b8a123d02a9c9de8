"""Reads the code in a text: unified diffs and fenced code blocks.

``read_changes`` accepts any text. ``ScannedText.faults`` lists what it could not read, so that a seat that judges the
rest can say so.

The library unidiff reads each hunk. This module finds hunks between prose and fences, and reads git's headers. It
reports the damage that unidiff accepts: uncounted lines, unreadable headers, headers that contradict their hunks.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Literal, cast

from unidiff.errors import UnidiffParseError
from unidiff.patch import PatchSet

Kind = Literal["added", "deleted", "modified", "renamed"]
Tag = Literal[" ", "+", "-"]

# A proposal's body is far smaller, because its envelope has a limit. These limits bound the time of any call.
CHARS_MAX = 8_000_000
LINES_MAX = 200_000
FILES_MAX = 2_000
BLOCKS_MAX = 1_000
FAULTS_MAX = 200
HEADER_CHARS_MAX = 8_300  # two paths of 4,096, the longest that Linux opens, and the rest of the line
FENCE_INDENT_MAX = 12  # a fence in a list in a list; a deeper one is indented text
QUOTED_CHARS_MAX = 120  # of a foreign line in a fault
LONG_LINES = 1_200  # of a file that is shown whole; of a longer one, only what is near changed lines is read
NEAR_LINES, HEAD_LINES = 60, 60
WIDE_CONTEXT_LINES = 25  # a diff with so much context usually shows the whole file

_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_HEADER = re.compile(
    r"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to|"
    r"similarity index|dissimilarity index|index) (.*)"
)
_FACTS = {"old mode", "rename to", "new file mode", "deleted file mode"}
_INDEX = re.compile(r"[0-9a-f]{4,64}\.\.([0-9a-f]{4,64})(?: ([0-7]{6}))?$")
_GIT_NAMES = re.compile(r'diff --git "?[abciow12]/[^ ]+ "?[abciow12]/[^ ]+')
_PREFIX = re.compile(r"[abciow12]/")  # what git puts before a name; the digits are of --no-index
_BASE85 = re.compile(r"(?:literal|delta) [0-9]{1,15}|[A-Za-z](?:[!-~]{5}){1,13}")
_SUBMODULE = re.compile(r"Subproject commit [0-9a-f]{40,64}")
_SUBMODULE_LOG = re.compile(
    r"Submodule \S.{0,4096} [0-9a-f]{7,64}\.{2,3}[0-9a-f]{7,64}"
)  # diff.submodule=log
_LINK_MODE = "120000"
_SUBMODULE_MODE = "160000"
_DATA = re.compile(r"\.(?:json|toml|ya?ml|ipynb|pth)$", re.IGNORECASE)  # their syntax is checked as a whole
_NULL = "/dev/null"
_LONGER = "it is longer than its header says"
_NO_NEWLINE = "\\ No newline at end of file"
_ESCAPE = re.compile(rb"\\([0-7]{3}|[abtnvfr\"\\])")
_ESCAPED = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


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

    ``is_whole``: the hunks show the entire file, both sides. ``is_complete`` is False if a hunk of the file could not
    be read; ``ScannedText.faults`` says which. Paths are as the author wrote them. They may be absolute or climb with
    "..", and must only be shown, never opened. ``is_link``: the new file is a symbolic link, and its one line is the
    target.
    """

    path: str
    old_path: str | None
    kind: Kind
    is_binary: bool = False
    is_link: bool = False
    hunks: tuple[Hunk, ...] = ()
    is_whole: bool = False
    is_complete: bool = True
    line: int = 0

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
    """The code in a text, and the parts of it that could not be read.

    ``prose`` is the text with its diffs blanked out, line by line.
    """

    files: tuple[FileChange, ...] = ()
    blocks: tuple[CodeBlock, ...] = ()
    faults: tuple[str, ...] = ()
    prose: str = field(default="", compare=False)

    def with_more(self, other: ScannedText) -> ScannedText:
        """Both readings as one, with the prose of this one."""
        return replace(
            self,
            files=self.files + other.files,
            blocks=self.blocks + other.blocks,
            faults=self.faults + other.faults,
        )


def narrowed(change: FileChange) -> FileChange:
    """A change of a long file without the lines that are far from changed ones; its first lines stay, for imports."""
    lines = change.hunks[0].lines if len(change.hunks) == 1 else ()
    is_long = change.is_whole and len(lines) > LONG_LINES
    if not is_long or change.kind != "modified" or _DATA.search(change.path):
        return change
    kept = set(range(HEAD_LINES))
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
    reader = _Reader(text)
    reader.run()
    faults = reader.faults[:FAULTS_MAX]
    if len(reader.faults) > FAULTS_MAX:
        faults.append(f"and more than the {FAULTS_MAX} faults that are listed")
    return ScannedText(tuple(reader.files), tuple(reader.blocks), tuple(faults), "\n".join(reader.prose))


@dataclass(slots=True)
class _Section:
    """The diff of one file while it is read. ``headers`` are git's lines between the names and the hunks."""

    line: int
    git: str | None = None  # the names in git's first line
    headers: dict[str, str] = field(default_factory=dict)
    old: str | None = None
    new: str | None = None
    hunks: list[Hunk] = field(default_factory=list)
    is_binary: bool = False
    is_complete: bool = True
    is_longer: bool = False  # more of its lines follow than its last header announced


@dataclass(slots=True)
class _Fence:
    """A fenced block, while its lines are collected."""

    mark: str
    indent: int
    language: str
    line: int
    lines: list[str] = field(default_factory=list)
    has_diff: bool = False


class _Reader:
    """Reads the lines once; ``_at`` is the next. Diffs win over fences, because they state their length."""

    def __init__(self, text: str) -> None:
        self.files: list[FileChange] = []
        self.blocks: list[CodeBlock] = []
        self.faults: list[str] = []
        self._fence: _Fence | None = None
        self._at = 0
        # Not splitlines(): a form feed or U+2028 does not end a line of a diff.
        self._lines = text[:CHARS_MAX].split("\n")
        if not self._lines[-1]:
            self._lines.pop()  # the text ended with a line feed
        if len(text) > CHARS_MAX or len(self._lines) > LINES_MAX:
            self.faults.append(
                f"only the first {LINES_MAX:,} lines or {CHARS_MAX:,} characters were read "
                f"of {text.count(chr(10)) + 1:,} lines and {len(text):,} characters"
            )
            del self._lines[LINES_MAX:]
        self.prose = self._lines.copy()

    def run(self) -> None:
        """Fills ``files``, ``blocks`` and ``faults``, and blanks the diffs out of ``prose``.

        Lines that only look like a diff, or name no file, stay in the prose: nothing else reads them.
        """
        runs_on = False
        while (start := self._at) < len(self._lines):
            known = len(self.files)
            section = self._take_section()
            if section or self._take_odd_diff():
                is_taken = len(self.files) > known
                runs_on = is_taken and section is not None and section.is_longer
                if is_taken or known >= FILES_MAX:
                    self.prose[start : self._at] = [""] * (self._at - start)
            elif self._take_fence():
                runs_on = False
            else:  # lines beyond its header's count belong to the diff; what they add is read all the same
                line = self._consume()
                runs_on &= line.startswith((" ", "+", "-", "\\"))
                if runs_on and line[0] != "+":
                    self.prose[start] = ""
        self._close_fence()

    def _fault(self, line: int, message: str) -> None:
        self.faults.append(f"line {line}: {message}")

    def _peek(self, ahead: int = 0) -> str | None:
        """The line, without the indent of the fence around it; None past the end."""
        at = self._at + ahead
        if at >= len(self._lines):
            return None
        line, indent = self._lines[at], self._fence.indent if self._fence else 0
        return line[:indent].lstrip(" ") + line[indent:]

    def _peek_header(self, ahead: int = 0) -> str:
        """The line as a header, without a CR; "" past the end, or if it is too long for a header."""
        line = (self._peek(ahead) or "").removesuffix("\r")
        return line if len(line) <= HEADER_CHARS_MAX else ""

    def _consume(self) -> str:
        line = self._peek() or ""
        if self._fence:
            self._fence.lines.append(line)
        self._at += 1
        return line

    # Fences

    def _take_fence(self) -> bool:
        raw = self._lines[self._at].removesuffix("\r")
        stripped = raw.lstrip(" ")
        indent = len(raw) - len(stripped)
        mark = stripped[:1]
        if mark not in ("`", "~") or not stripped.startswith(mark * 3) or indent > FENCE_INDENT_MAX:
            return False
        info = stripped.lstrip(mark)
        mark *= len(stripped) - len(info)
        if self._fence:
            is_end = mark.startswith(self._fence.mark) and not info.strip()
            if is_end:
                self._at += 1
                self._close_fence()
            return is_end
        if "`" in info and mark[0] == "`":  # CommonMark: that is inline code
            return False
        self._at += 1
        self._fence = _Fence(mark, indent, (info.split() or [""])[0].lower(), self._at)
        return True

    def _close_fence(self) -> None:
        fence, self._fence = self._fence, None
        if fence is None:
            return
        if fence.language in ("diff", "patch", "udiff") and not fence.has_diff:
            self._fault(fence.line, f"a {fence.language} block without a file header (--- and +++)")
        if len(self.blocks) < BLOCKS_MAX:
            code = "".join(line.removesuffix("\r") + "\n" for line in fence.lines)
            self.blocks.append(CodeBlock(fence.language, code, fence.line, fence.has_diff))
        elif len(self.blocks) == BLOCKS_MAX:
            self._fault(fence.line, f"only the first {BLOCKS_MAX:,} code blocks were read")

    # Diffs

    def _take_odd_diff(self) -> bool:
        """Takes a line that stands for a change and shows none: of a merge, a submodule, a binary, a lost hunk."""
        line, at, binary = self._peek_header(), self._at + 1, None
        old, middle, new = line.removeprefix("Binary files ").removesuffix(" differ").partition(" and ")
        if line.startswith(("diff --cc ", "diff --combined ", "@@@ -")):
            self._fault(at, "a merge's combined diff can't be read; send one for one parent")
        elif _HUNK.match(line):
            self._fault(at, "a hunk without a file header (--- and +++) before it")
        elif _SUBMODULE_LOG.match(line):
            self._fault(at, "the content of a submodule is not shown; review it on its own")
        elif middle and line.startswith("Binary files ") and line.endswith(" differ"):
            binary = _Section(at, old=old, new=new, is_binary=True)
        else:
            return False
        if self._fence:
            self._fence.has_diff = True
        self._consume()
        if binary:
            self._finish(binary)
        return True

    def _take_section(self) -> _Section | None:
        section = _Section(self._at + 1)
        if self._looks_like_git():
            section.git = self._peek_header().removeprefix("diff --git ")
            self._consume()
            while found := _HEADER.match(self._peek_header()):
                key = found[1].replace("copy", "rename")  # a copy is read as a rename
                if section.headers.setdefault(key, found[2]) != found[2]:
                    section.is_complete = False
                    self._fault(self._at + 1, f"git's header {found[1]!r} contradicts one above it")
                self._consume()
        elif not self._names_two_files():
            return None
        if self._names_two_files():
            section.old = self._consume().removesuffix("\r").removeprefix("--- ")
            section.new = self._consume().removesuffix("\r").removeprefix("+++ ")
            while self._take_hunk(section):
                pass
            if not section.hunks and self._runs_on():
                self._distrust(section, self._at + 1, "its header is missing")
        else:
            self._take_binary(section)
        if self._fence:
            self._fence.has_diff = True
        self._finish(section)
        return section

    def _looks_like_git(self) -> bool:
        """Whether a line is git's, and not a sentence that begins with these words."""
        line, following = self._peek_header(), self._peek_header(1)
        starts = ("--- ", "Binary files ", "GIT binary patch")
        is_followed = following.startswith(starts) or _HEADER.match(following) is not None
        return line.startswith("diff --git ") and (is_followed or _GIT_NAMES.fullmatch(line) is not None)

    def _names_two_files(self, ahead: int = 0) -> bool:
        return self._peek_header(ahead).startswith("--- ") and self._peek_header(ahead + 1).startswith("+++ ")

    def _take_hunk(self, section: _Section) -> bool:
        """Takes one hunk if it has as many lines as its header promises. Otherwise it is a fault."""
        header, at = self._peek_header(), self._at + 1
        if not header.startswith("@@"):
            return False
        self._consume()
        counts = _HUNK.match(header)
        if counts is None:
            return self._distrust(section, at, "its header can't be read: " + short_quote(header))
        old, new = int(counts[2] or 1), int(counts[4] or 1)
        if not old and not new:
            return self._distrust(section, at, "its header promises no lines")
        lines = [counts[0]]
        while (old or new) and (line := self._peek()) is not None:
            is_blank = not line.strip("\r")  # editors that trim blank lines trim their leading space
            tag = " " if is_blank else line[0]
            if tag not in " +-\\":
                break
            old, new = old - (tag in " -"), new - (tag in " +")
            lines.append(" " + line if is_blank else line)
            if min(old, new) < 0:
                break
            self._consume()
        while not (old or new) and (self._peek() or "").startswith("\\ "):  # in git's language setting
            lines.append(_NO_NEWLINE)
            self._consume()
        try:
            section.hunks.append(_hunk(lines))
        except UnidiffParseError:
            return self._distrust(section, at, _LONGER if min(old, new) < 0 else "it ends early")
        return not self._runs_on() or self._distrust(section, at, _LONGER)

    def _runs_on(self) -> bool:
        """Whether more changed lines follow after the hunk has reached its announced length."""
        ahead = 0
        while (line := self._peek(ahead)) and line[0] in " +-" and not self._names_two_files(ahead):
            if line.rstrip() == "--":  # a mail's signature follows
                return False
            if line[0] != " " and line != "---":
                return True
            ahead += 1
        return False

    def _distrust(self, section: _Section, at: int, what: str) -> bool:
        """Records why a hunk can't be trusted. Always True: its lines were taken."""
        section.is_complete = False
        section.is_longer = what == _LONGER
        name = (section.new if section.new != _NULL else section.old) or "?"
        self._fault(at, f"a hunk of {short_quote(_plain_name(name))} can't be trusted, {what}")
        return True

    def _take_binary(self, section: _Section) -> None:
        line = self._peek_header()
        if line.startswith("Binary files ") or line == "GIT binary patch":
            section.is_binary = True
            self._consume()
        while line == "GIT binary patch":  # its two parts are separated by a blank line
            data, following = self._peek_header(), self._peek_header(1)
            if not (_BASE85.fullmatch(data) or (not data and following.startswith(("literal ", "delta ")))):
                break
            self._consume()

    def _finish(self, section: _Section) -> None:
        if len(self.files) >= FILES_MAX:
            self._fault(section.line, f"only the first {FILES_MAX:,} files were read")
            self._at = len(self._lines)  # the rest is unread, as the fault says
            return
        says = section.hunks or section.is_binary or not section.is_complete
        if not (says or _FACTS.intersection(section.headers)):
            name = short_quote(section.new or section.git or "")
            self._fault(section.line, f"{name} names a file, but no readable change follows")
            return
        try:
            change = _build(section)
        except ValueError as error:
            self._fault(section.line, f"this diff can't be read: {error}")
            return
        for doubt in _doubts(section, change):
            self._fault(section.line, f"{short_quote(change.path)} {doubt}")
            change = replace(change, is_complete=False, is_whole=False)
        self.files.append(change)


def _hunk(lines: list[str]) -> Hunk:
    """A hunk of its header and its lines. Raises UnidiffParseError if these do not agree."""
    (found,) = PatchSet(["--- a\n", "+++ b\n", *(line + "\n" for line in lines)])[0]
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
    """Raises ValueError if the section's header can't be read."""
    headers, hunks = section.headers, tuple(section.hunks)
    old, new = _names(section)
    kind: Kind = "modified"
    if old is None or "new file mode" in headers or _is_plain_creation(section):
        kind = "added"
    elif new is None or "deleted file mode" in headers:
        kind = "deleted"
    elif old != new:
        kind = "renamed"
    index = _INDEX.match(headers.get("index", ""))
    said = {headers.get("new file mode"), headers.get("new mode"), index[2] if index else None} - {None}
    modes = said or {headers.get("deleted file mode")}
    change = FileChange(
        path=(old if kind == "deleted" else new) or old or "?",
        old_path=None if kind == "added" else old,
        kind=kind,
        is_binary=section.is_binary,
        is_link=modes == {_LINK_MODE} and sum(len(hunk.added) for hunk in hunks) <= 1,
        hunks=hunks,
        is_complete=section.is_complete,
        line=section.line,
    )
    return replace(change, is_whole=_is_whole(change, index[1] if index else None))


def _is_plain_creation(section: _Section) -> bool:
    """Whether a diff that is not git's, and so has no mode, creates the file."""
    if section.git is not None or len(section.hunks) != 1:
        return False
    (hunk,) = section.hunks
    return (hunk.old_start, hunk.new_start) == (0, 1) and all(line.tag == "+" for line in hunk.lines)


def _doubts(section: _Section, change: FileChange) -> Iterator[str]:
    """Why a change that was read does not show what it does."""
    modes = {mode for value in section.headers.values() for mode in value.split(" ")}
    lines = [line for hunk in change.hunks for line in hunk.lines]
    if _SUBMODULE_MODE in modes or any(_SUBMODULE.fullmatch(line.text) for line in lines):
        yield "is a submodule, whose content is not shown; review it on its own"
    others = {"added": {" ", "-"}, "deleted": {" ", "+"}}.get(change.kind, set())
    if any(line.tag in others for line in lines):
        yield f"is {change.kind} by its header, and its hunks show otherwise"
    for key, said in (("rename from", section.old), ("rename to", section.new)):
        name = _plain_name(said or "")
        if name and _unquote(section.headers.get(key, name)) not in (name, _PREFIX.sub("", name, count=1)):
            yield f"has a second name, {short_quote(name)}"
    for hunk in change.hunks:
        sides = ([line for line in hunk.lines if line.tag != other] for other in "+-")
        if any(not line.ending for side in sides for line in side[:-1]):
            yield f"has a hunk that goes on after the end of the file, at its line {hunk.new_start}"
    for before, after in pairwise(change.hunks):
        old = [line.old_no for line in before.lines if line.old_no is not None]
        if old and old[-1] >= after.old_start + all(line.tag == "+" for line in after.lines):
            yield f"has hunks that overlap or are out of order, at its line {after.old_start}"
            return


# Names


def _names(section: _Section) -> tuple[str | None, str | None]:
    """(old, new) paths; None for a side that does not exist. Raises ValueError if there is only one name."""
    headers = section.headers
    if "rename from" in headers and "rename to" in headers:
        return _unquote(headers["rename from"]), _unquote(headers["rename to"])
    if section.old is not None and section.new is not None:
        old, new = _plain_name(section.old), _plain_name(section.new)
    else:
        old, new = _split_git_names(section.git or "")
    has_prefixes = all(name == _NULL or _PREFIX.match(name) for name in (old, new))
    if _NULL not in (old, new) and old[:2] == new[:2]:
        has_prefixes = False  # git --no-prefix on a folder named "a"
    sides = [None if name == _NULL else name[2:] if has_prefixes else name for name in (old, new)]
    old_side = None if "new file mode" in headers else sides[0]
    return old_side, None if "deleted file mode" in headers else sides[1]


def _split_git_names(names: str) -> tuple[str, str]:
    """Both names. Without their prefixes they are usually equal; otherwise the last space separates them."""
    half = len(names) // 2
    old, new = _unquote(names[:half]), _unquote(names[half + 1 :])
    if names[half : half + 1] == " " and old[2:] == new[2:]:
        return old, new
    old, blank, new = names.rpartition(" ")
    if not blank:
        raise ValueError(f"expected two names, found {short_quote(names)}")
    return _unquote(old), _unquote(new)


def _plain_name(name: str) -> str:
    """A name from a --- or +++ line, without its time stamp."""
    return _unquote(name.split("\t", 1)[0])


def _unquote(name: str) -> str:
    """Undoes git's C-style quoting: "caf\\303\\251.py" is UTF-8 in octal."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    return _ESCAPE.sub(_unescaped, name[1:-1].encode("utf-8", "replace")).decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes([_ESCAPED[code[0]] if len(code) == 1 else int(code, 8) & 255])


# Whether a hunk shows the whole file


def _is_whole(change: FileChange, new_blob: str | None) -> bool:
    """Whether the one hunk starts at the top of the file and reaches its end.

    ``new_blob`` is git's hash of the new content. If it is given, it proves or disproves the end. Otherwise the
    context tells: a diff with n lines of it shows n lines after the last change unless the file ends. The other runs
    give a lower bound of n: the first is no longer than n, and none between two changes is longer than 2n.
    """
    if len(change.hunks) != 1 or not change.is_complete or change.is_binary:
        return False
    (hunk,) = change.hunks
    if hunk.old_start > 1 or hunk.new_start > 1:
        return False
    if change.kind in ("added", "deleted") or any(not line.ending for line in hunk.lines):
        return True
    if new_blob is not None:
        return _is_blob(hunk.new_text(), new_blob)
    runs = [len(run) for run in re.split("[-+]", "".join(line.tag for line in hunk.lines))]
    context = max(runs[0], runs[-1], *((run + 1) // 2 for run in runs[1:-1]), 0)
    return runs[-1] < context or context >= WIDE_CONTEXT_LINES


def _is_blob(text: str, name: str) -> bool:
    """Whether ``text`` is the content that git calls ``name`` (SHA-1, or SHA-256 if it is longer)."""
    for version in {text, text.replace("\r\n", "\n")}:  # a diff sent with CRLF
        content = version.encode("utf-8", "replace")
        content = b"blob %d\0" % len(content) + content
        is_long = len(name) > 40
        digest = hashlib.sha256(content) if is_long else hashlib.sha1(content, usedforsecurity=False)
        if digest.hexdigest().startswith(name):
            return True
    return False
