"""Reads the change to review from git, a file or the standard input.

The reviewed repository is not trusted: only git's plumbing is called (``diff-tree`` heeds no pager, no aliases, no
colours), without external diff programs, text converters, file-system monitors, transports or prompts, and with a
time limit.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from council.cli.report import UsageFault
from council.kinds.text import count, line

# The council takes 768 KiB sealed (reading.PROPOSAL_BYTES_MAX); this leaves room for the envelope around it.
CHANGE_BYTES_MAX = 760 * 2**10
# Read from a file or pipe before it is called too large: enough to say by how much, not to fill the memory.
READ_BYTES_MAX = 64 * 2**20
GIT_TIMEOUT_S = 60.0
MESSAGE_CHARS_MAX = 4_000  # of the commits' own words; the change is what is reviewed
SUMMARY_CHARS_MAX = 300
SUBJECTS_MAX = 20
# Lines of context, the most first: seats judge whole files best, and whole functions better than fragments.
CONTEXTS: tuple[tuple[str, ...], ...] = (("-U1000000",), ("-U10", "-W"), ("-U10",), ("-U3",))
NEWEST = "HEAD"
_OVERRIDES = (
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.hooksPath=/dev/null",
    "diff.external=",
    "protocol.allow=never",  # a partial clone would fetch what is missing, by a command of its own choosing
    "log.showSignature=false",
    "core.quotePath=true",
)
_SUBJECT = re.compile(r"^Subject: *(.{0,1000})((?:\n[ \t].{0,1000}){0,5})", re.MULTILINE)
_TAG = re.compile(r"^\[[^\]\n]{0,80}\] *")
_HUNK = re.compile(r"^(?:diff --git |@@ -[0-9]{1,10}|Index: |\*\*\* )", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ReviewedChange:
    """A change to review: what it is about, the text that is reviewed, and where it came from."""

    summary: str
    body: str
    source: str


def find(what: str | None, folder: Path) -> ReviewedChange:
    """The change that ``what`` names: a range, commit, patch file, ``-``, or by default the newest commit.

    Raises UsageFault.
    """
    if what == "-":
        return from_text(sys.stdin.buffer.read(READ_BYTES_MAX + 1), "standard input")
    if what is None:
        return _from_git(NEWEST, folder)
    if not what or what.startswith("-"):
        raise UsageFault(f"{what!r} is no range, commit or file")
    path = folder / what
    if path.exists() and not path.is_dir():
        if os.sep not in what and _resolves(what, folder):
            raise UsageFault(f"{what} is both a file and a commit: write ./{what} for the file")
        return from_file(path)
    return _from_git(what, folder)


def sample() -> ReviewedChange:
    """The patch that comes with this package."""
    data = resources.files("council.cli.decide").joinpath("sample.patch").read_bytes()
    return from_text(data, "the bundled sample patch")


def from_file(path: Path) -> ReviewedChange:
    """A patch file. Raises UsageFault."""
    try:
        if not (stat.S_ISREG(path.stat().st_mode) or path.is_fifo()):
            raise UsageFault(f"{path} is no file that can be read to its end")
        with path.open("rb") as file:
            data = file.read(READ_BYTES_MAX + 1)
    except OSError as error:
        raise UsageFault(f"{path} can't be read: {error.strerror}") from error
    return from_text(data, path.name)


def from_text(data: bytes, source: str) -> ReviewedChange:
    """A patch, as ``git diff`` or ``git format-patch`` write it. Raises UsageFault."""
    text = _decoded(data)
    if not text.strip():
        raise UsageFault(f"{source} is empty: there is nothing to review")
    if not _HUNK.search(text):
        raise UsageFault(f"{source} holds no unified diff: expected what git diff or git format-patch write")
    _refuse_if_large(text, source)
    head = _HUNK.split(text, maxsplit=1)[0]
    subject = _SUBJECT.search(head)
    summary = _TAG.sub("", line("".join(subject.groups()), SUMMARY_CHARS_MAX)) if subject else ""
    files = len(re.findall(r"^\+\+\+ ", text, re.MULTILINE))
    return ReviewedChange(
        summary or f"A patch of {count(files, 'file')} from {line(source, 80)}", text, source
    )


def _refuse_if_large(text: str, source: str, *, beside: int = 0) -> None:
    """Raises UsageFault where there is no room for the text, and so many bytes beside it."""
    size = len(text.encode()) + beside
    if size > CHANGE_BYTES_MAX:
        raise UsageFault(
            f"{source} has {size:,} bytes, at most {CHANGE_BYTES_MAX:,} can be reviewed at once: split it, or "
            "review its commits one by one"
        )


def _decoded(data: bytes) -> str:
    # NUL is refused in proposals; git shows none but where attributes force a binary file to be text.
    return data.decode("utf-8", errors="replace").replace("\0", "\ufffd")


# git


def _from_git(what: str, folder: Path) -> ReviewedChange:
    inside = _git(["rev-parse", "--is-inside-work-tree"], folder)
    if inside.returncode != 0:
        why = _git_error(inside)
        hint = "" if "not a git repository" not in why else "; give a patch file, or - for the standard input"
        asked = "" if what == NEWEST else f"there is no file {what}, and "
        raise UsageFault(f"{asked}git finds no repository in {folder}: {why}{hint}")
    old, new, source = _ends(what, folder)
    body = _diff(old, new, source, folder)
    summary, message = _words(old, new, folder)
    return ReviewedChange(summary, f"{message}\n{body}" if message else body, source)


def _ends(what: str, folder: Path) -> tuple[str, str, str]:
    """The two trees to compare. ``A..B`` is what ``B`` brings on top of where it left ``A``, as for a merge."""
    if ".." in what:
        left, _, right = what.partition("..")
        left, right = left or "HEAD", right.removeprefix(".") or "HEAD"
        ours, theirs = _commit(left, what, folder), _commit(right, what, folder)
        base = _git(["merge-base", ours, theirs], folder)
        if base.returncode == 0 and (found := base.stdout.decode().split()):
            ours = found[0]
        return ours, theirs, what
    commit = _commit(what, what, folder)
    parent = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^1"], folder)
    if parent.returncode == 0:
        return parent.stdout.decode().strip(), commit, f"commit {commit[:10]}"
    if _git(["rev-parse", "--is-shallow-repository"], folder).stdout.strip() == b"true":
        raise UsageFault(
            f"the parent of commit {commit[:10]} is not in this shallow clone, so its change is not known: "
            "fetch one commit more (git fetch --deepen=1)"
        )
    empty = _checked(_git(["hash-object", "-t", "tree", "--stdin"], folder), "hash-object")
    return empty.strip(), commit, f"commit {commit[:10]}"


def _commit(name: str, asked: str, folder: Path) -> str:
    found = _git(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"], folder)
    if found.returncode != 0:
        if asked == NEWEST:
            raise UsageFault("this repository has no commit yet; review staged changes with: "
                             "git diff --cached | council review -")  # fmt: skip
        within = "" if name == asked else f" of {asked}"
        raise UsageFault(f"{name}{within} is neither a file nor a commit of this repository")
    return found.stdout.decode().strip()


def _resolves(name: str, folder: Path) -> bool:
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
    return _git(asked, folder).returncode == 0


def _diff(old: str, new: str, source: str, folder: Path) -> str:
    """The change with as much context as there is room for."""
    command = ["diff-tree", "-p", "-M", "-r", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index"]
    command += ["--src-prefix=a/", "--dst-prefix=b/", "--submodule=short"]
    words = 2 * MESSAGE_CHARS_MAX
    body = ""
    for context in CONTEXTS:
        done = _git([*command, *context, old, new], folder, blind=True)
        body = _decoded(_checked_bytes(done, "diff-tree"))
        if not body.strip():
            raise UsageFault(f"{source} changes nothing: there is nothing to review")
        if len(body.encode()) + words <= CHANGE_BYTES_MAX:
            break
    _refuse_if_large(body, source, beside=words)
    return body


def _words(old: str, new: str, folder: Path) -> tuple[str, str]:
    """A summary from the commits' subjects, and their messages, indented so that none can pose as a diff."""
    kind = _checked(_git(["cat-file", "-t", old], folder), "cat-file").strip()
    chosen = [f"{old}..{new}"] if kind == "commit" else [new]
    if kind != "commit" or _parents(new, folder)[:1] == [old]:
        chosen = ["--no-walk", new]
    listed = ["log", f"--max-count={SUBJECTS_MAX + 1}", "--no-color", "--format=%s%x00%b%x00", *chosen]
    fields = _checked(_git(listed, folder), "log").split("\0")[:-1]
    commits = [
        (subject.strip(), body.strip()) for subject, body in zip(fields[::2], fields[1::2], strict=True)
    ]
    subjects = [line(subject, SUMMARY_CHARS_MAX) for subject, _ in commits if subject]
    if not subjects:
        return f"The change from {old[:10]} to {new[:10]}", ""
    told = "\n\n".join(part for commit in commits for part in commit if part)
    message = "\n".join(f"    {each}".rstrip() for each in told[:MESSAGE_CHARS_MAX].splitlines())
    if len(subjects) == 1:
        return subjects[0], f"{message}\n"
    many = f"{SUBJECTS_MAX}+" if len(subjects) > SUBJECTS_MAX else str(len(subjects))
    return line(f"{many} commits: {'; '.join(subjects)}", SUMMARY_CHARS_MAX), f"{message}\n"


def _parents(commit: str, folder: Path) -> list[str]:
    listed = _git(["rev-list", "--parents", "--max-count=1", commit], folder)
    return _checked(listed, "rev-list").split()[1:]


def _git(
    arguments: Sequence[str], folder: Path, *, blind: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """One git command. ``blind``: out of reach of the work tree and the index, whose ``.gitattributes`` could
    have a text shown as binary, and so hide it.
    """
    command = ["git", "--no-pager", "--no-replace-objects"]
    away: dict[str, str] = {}
    if blind:
        git_dir = _checked(_git(["rev-parse", "--absolute-git-dir"], folder), "rev-parse").strip()
        command += ["--git-dir", git_dir, "-c", "core.bare=true", "-c", "core.attributesFile=/dev/null"]
        away = {"GIT_INDEX_FILE": os.devnull + ".none"}
        folder = Path("/")
    for setting in _OVERRIDES:
        command += ["-c", setting]
    kept = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    env = {**kept, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "none"}
    env |= {"GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C", **away}
    try:
        return subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageFault("git is not installed: give a patch file, or - for the standard input") from error
    except subprocess.TimeoutExpired as error:
        raise UsageFault(f"git {arguments[0]} took longer than {GIT_TIMEOUT_S:g} s, and was ended") from error


_DROPPED = frozenset({"GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_DIFF_OPTS", "GIT_TRACE", "GIT_SSH_COMMAND"})


def _checked_bytes(done: subprocess.CompletedProcess[bytes], what: str) -> bytes:
    if done.returncode != 0:
        raise UsageFault(f"git {what} failed: {_git_error(done)}")
    return done.stdout


def _checked(done: subprocess.CompletedProcess[bytes], what: str) -> str:
    return _checked_bytes(done, what).decode("utf-8", errors="replace")


def _git_error(done: subprocess.CompletedProcess[bytes]) -> str:
    return line(done.stderr.decode("utf-8", errors="replace"), 400) or f"exit code {done.returncode}"
