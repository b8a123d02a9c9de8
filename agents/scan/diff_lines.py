"""Finds where diffs and code fences start and end in a text, by lines.

It counts the lines that hunk headers promise. So it recognises a diff of a diff, and a diff of a Markdown file with
fences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# A proposal's body is far smaller, because its envelope has a limit. These limits bound the time of any call.
CHARS_MAX = 8_000_000
LINES_MAX = 200_000
FILES_MAX = 2_000
BLOCKS_MAX = 1_000
FAULTS_MAX = 200
HEADER_CHARS_MAX = 8_300  # two paths of 4,096, the longest that Linux opens, and the rest of the line
FENCE_INDENT_MAX = 12  # a fence in a list in a list; a deeper one is indented text
QUOTED_CHARS_MAX = 120  # of a foreign line in a fault

PREFIX = re.compile(r"[abciow12]/")  # what git puts before a name; the digits are of --no-index
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_EXTENDED = (
    "old mode ", "new mode ", "deleted file mode ", "new file mode ", "copy from ", "copy to ", "rename from ",
    "rename to ", "similarity index ", "dissimilarity index ", "index ",
)  # fmt: skip
_FACTS = {"old mode", "rename to", "copy to", "new file mode", "deleted file mode"}
NULL = "/dev/null"
_LONGER = "it is longer than its header says"
_ESCAPE = re.compile(rb"\\([0-7]{3}|[abtnvfr\"\\])")
_ESCAPED = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


def short_quote(text: str) -> str:
    """A foreign text, cut and without control characters, for a reason."""
    cut = text if len(text) <= QUOTED_CHARS_MAX else text[:QUOTED_CHARS_MAX] + "…"
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in cut)


@dataclass(slots=True)
class FileDiff:
    """The lines of one file's diff while they are collected. A hunk is its two starts and its lines."""

    line: int
    git_header: str | None = None
    extended: dict[str, str] = field(default_factory=dict)
    old_name: str | None = None
    new_name: str | None = None
    hunks: list[tuple[int, int, list[str]]] = field(default_factory=list)
    is_binary: bool = False
    is_complete: bool = True
    is_longer: bool = False  # more of its lines follow than its last header announced


@dataclass(slots=True)
class Fence:
    """A fenced block, while its lines are collected."""

    mark: str
    indent: int
    language: str
    line: int
    lines: list[str] = field(default_factory=list)
    has_diff: bool = False

    def code(self) -> str:
        """The lines inside, with "\\n" as line ends."""
        return "".join(line.removesuffix("\r") + "\n" for line in self.lines)


class Scanner:
    """Reads the lines once; ``_at`` is the next. Diffs win over fences, because they state their length."""

    def __init__(self, text: str) -> None:
        self.sections: list[FileDiff] = []
        self.fences: list[Fence] = []
        self.faults: list[str] = []
        self._fence: Fence | None = None
        self._at = 0
        # Not splitlines(): a form feed or U+2028 does not end a line of a diff.
        self._lines = text[:CHARS_MAX].split("\n")
        if not self._lines[-1]:
            self._lines.pop()  # the text ended with a line feed
        if len(text) > CHARS_MAX or len(self._lines) > LINES_MAX:
            self.fault(
                f"only the first {LINES_MAX:,} lines or {CHARS_MAX:,} characters were read "
                f"of {text.count(chr(10)) + 1:,} lines and {len(text):,} characters"
            )
            del self._lines[LINES_MAX:]
        self.prose = self._lines.copy()

    def run(self) -> None:
        """Fills ``sections``, ``fences`` and ``faults``, and blanks the diffs out of ``prose``.

        Lines that only look like a diff, or name no file, stay in the prose: nothing else reads them.
        """
        runs_on = False
        while (start := self._at) < len(self._lines):
            known = len(self.sections)
            if self._take_section() or self._take_odd_diff():
                is_taken = len(self.sections) > known
                runs_on = is_taken and self.sections[-1].is_longer
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

    def fault(self, message: str) -> None:
        """Records a part that could not be read."""
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(message)
        elif len(self.faults) == FAULTS_MAX:
            self.faults.append(f"and more than the {FAULTS_MAX} faults that are listed")

    # Lines

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
        language = (info.split() or [""])[0].lower()
        self._fence = Fence(mark, indent, language, self._at + 1)
        self._at += 1
        return True

    def _close_fence(self) -> None:
        fence, self._fence = self._fence, None
        if fence is None:
            return
        if fence.language in ("diff", "patch", "udiff") and not fence.has_diff:
            self.fault(f"line {fence.line}: a {fence.language} block without a file header (--- and +++)")
        if len(self.fences) < BLOCKS_MAX:
            self.fences.append(fence)
        elif len(self.fences) == BLOCKS_MAX:
            self.fault(f"line {fence.line}: only the first {BLOCKS_MAX:,} code blocks were read")

    # Diffs

    def _take_odd_diff(self) -> bool:
        """Takes an unreadable diff: a combined diff, or a hunk without a file."""
        line = self._peek_header()
        if line.startswith(("diff --cc ", "diff --combined ")):
            self.fault(f"line {self._at + 1}: a merge's combined diff can't be read; send one for one parent")
        elif line.startswith("@@ -") and _HUNK.match(line):
            self.fault(f"line {self._at + 1}: a hunk without a file header (--- and +++) before it")
        elif line.startswith("Binary files ") and line.endswith(" differ"):
            return self._take_plain_binary(line)
        else:
            return False
        if self._fence:
            self._fence.has_diff = True
        self._consume()
        return True

    def _take_plain_binary(self, line: str) -> bool:
        old, middle, new = line.removeprefix("Binary files ").removesuffix(" differ").partition(" and ")
        if not middle:
            return False
        section = FileDiff(self._at + 1, old_name=old, new_name=new, is_binary=True)
        self._consume()
        self._finish(section)
        return True

    def _take_section(self) -> bool:
        line = self._peek_header()
        if line.startswith("diff --git "):
            if not self._looks_like_git():
                return False
            section = FileDiff(self._at + 1, git_header=line)
            self._consume()
            while (extended := self._peek_header()).startswith(_EXTENDED):
                key = next(name for name in _EXTENDED if extended.startswith(name))
                section.extended[key.strip()] = extended if key == "index " else extended.removeprefix(key)
                self._consume()
        elif self._names_two_files():
            section = FileDiff(self._at + 1)
        else:
            return False
        if self._names_two_files():
            section.old_name = self._consume().removesuffix("\r").removeprefix("--- ")
            section.new_name = self._consume().removesuffix("\r").removeprefix("+++ ")
            while self._take_hunk(section):
                pass
            if not section.hunks and self._runs_on():
                self._hunk_fault(section, self._at + 1, "its header is missing")
        else:
            self._take_binary(section)
        if self._fence:
            self._fence.has_diff = True
        self._finish(section)
        return True

    def _looks_like_git(self) -> bool:
        """Whether a line is git's, and not a sentence that begins with these words."""
        following = self._peek_header(1)
        if following.startswith((*_EXTENDED, "--- ", "Binary files ", "GIT binary patch")):
            return True
        words = self._peek_header().removeprefix("diff --git ").split(" ")
        return len(words) == 2 and all(PREFIX.match(word.lstrip('"')) for word in words)

    def _names_two_files(self) -> bool:
        return self._peek_header().startswith("--- ") and self._peek_header(1).startswith("+++ ")

    def _take_hunk(self, section: FileDiff) -> bool:
        """Takes one hunk if it has as many lines as its header promises. Otherwise it is a fault."""
        header = self._peek_header()
        if not header.startswith("@@"):
            return False
        at = self._at + 1
        counts = _HUNK.match(header)
        self._consume()
        if counts is None:
            return self._hunk_fault(section, at, "its header can't be read: " + short_quote(header))
        old_left, new_left = (int(counts[group] or 1) for group in (2, 4))
        lines: list[str] = []
        if not old_left and not new_left:
            return self._hunk_fault(section, at, "its header promises no lines")
        while old_left or new_left:
            line = self._peek()
            tag = (line or "")[:1].replace("\r", "") or " "
            if line is None or tag not in " +-\\":
                missing = f"{old_left} old and {new_left} new lines are missing"
                return self._hunk_fault(section, at, f"it ends early: {missing}")
            if (tag in " -" and not old_left) or (tag in " +" and not new_left):
                return self._hunk_fault(section, at, _LONGER)
            old_left -= tag in " -"
            new_left -= tag in " +"
            self._consume()
            is_trimmed = not line.strip("\r")  # editors that trim blank lines trim their leading space
            lines.append(" " + line if is_trimmed else line)
        while (line := self._peek() or "").startswith("\\ "):
            lines.append(line)
            self._consume()
        if self._runs_on():
            self._hunk_fault(section, at, _LONGER)
        section.hunks.append((int(counts[1]), int(counts[3]), lines))
        return True

    def _runs_on(self) -> bool:
        """Whether more changed lines follow after the hunk has reached its announced length."""
        ahead = 0
        while (line := self._peek(ahead)) and line[0] in " +-" and not line.startswith(("--- ", "-- ")):
            if line[0] != " " and line not in ("--", "---"):
                return True
            ahead += 1
        return False

    def _hunk_fault(self, section: FileDiff, at: int, what: str) -> bool:
        """Records the fault. The hunk is taken all the same."""
        section.is_complete = False
        section.is_longer = what == _LONGER
        name = (section.new_name if section.new_name != NULL else section.old_name) or "?"
        self.fault(f"line {at}: a hunk of {short_quote(plain_name(name))} can't be trusted, {what}")
        return True

    def _take_binary(self, section: FileDiff) -> None:
        line = self._peek_header()
        if line.startswith("Binary files ") or line == "GIT binary patch":
            section.is_binary = True
            self._consume()
        if line != "GIT binary patch":
            return
        while (data := self._peek_header()) or self._peek() in ("", "\r"):
            # base85 has no spaces and at most 66 characters a line
            if data and not data.startswith(("literal ", "delta ")) and (" " in data or len(data) > 66):
                break
            self._consume()

    def _finish(self, section: FileDiff) -> None:
        if len(self.sections) >= FILES_MAX:
            self.fault(f"line {section.line}: only the first {FILES_MAX:,} files were read")
            self._at = len(self._lines)  # the rest is unread, as the fault says
            return
        says = section.hunks or section.is_binary or not section.is_complete
        if not (says or _FACTS.intersection(section.extended)):
            name = section.new_name or section.git_header or ""
            self.fault(
                f"line {section.line}: {short_quote(name)} names a file, but no readable change follows"
            )
            return
        self.sections.append(section)


def plain_name(name: str) -> str:
    """A name from a --- or +++ line, without its time stamp."""
    return unquote(name.split("\t", 1)[0])


def unquote(name: str) -> str:
    """Undoes git's C-style quoting: "caf\\303\\251.py" is UTF-8 in octal."""
    if len(name) < 2 or not (name.startswith('"') and name.endswith('"')):
        return name
    return _ESCAPE.sub(_unescaped, name[1:-1].encode("utf-8", "replace")).decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code = escape[1]
    return bytes([_ESCAPED[code[0]] if len(code) == 1 else int(code, 8) & 255])
