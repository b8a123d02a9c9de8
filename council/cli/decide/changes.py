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
_LINK = "120000"
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
    """A change to review: what it is about, the text that is reviewed, and where it came from.

    ``rules`` are the texts of the repository's rules before the change, each with its file's name; a patch file has
    none.
    """

    summary: str
    body: str
    source: str
    rules: tuple[tuple[str, str], ...] = ()


def find(what: str | None, folder: Path) -> ReviewedChange:
    """The change that ``what`` names: a range, commit, patch file, ``-``, or by default the newest commit.

    Raises UsageFault.
    """
    if what == "-":
        return from_text(sys.stdin.buffer.read(READ_BYTES_MAX + 1), "standard input")
    git = Git(folder)
    if what is None:
        return _from_git(NEWEST, git)
    if not what or what.startswith("-"):
        raise UsageFault(f"{what!r} is not a range, a commit or a file")
    path = folder / what
    if path.exists() and not path.is_dir():
        if os.sep not in what and git.commit(what) is not None:
            raise UsageFault(f"{what} is both a file and a commit: write ./{what} for the file")
        return from_file(path)
    return _from_git(what, git)


def sample() -> ReviewedChange:
    """The patch that comes with this package."""
    data = resources.files("council.cli.decide").joinpath("sample.patch").read_bytes()
    return from_text(data, "the bundled sample patch")


def from_file(path: Path) -> ReviewedChange:
    """A patch file. Raises UsageFault."""
    try:
        if not (stat.S_ISREG(path.stat().st_mode) or path.is_fifo()):
            raise UsageFault(f"{path} is not a file that can be read to its end")
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
    """Raises UsageFault if there is no room for the text, and that many bytes beside it."""
    size = len(text.encode()) + beside
    if size > CHANGE_BYTES_MAX:
        raise UsageFault(
            f"{source} has {size:,} bytes, at most {CHANGE_BYTES_MAX:,} can be reviewed at once: split it, or "
            "review its commits one by one"
        )


def _decoded(data: bytes) -> str:
    # NUL is refused in proposals. git shows one only if attributes force a binary file to be text.
    return data.decode("utf-8", errors="replace").replace("\0", "\ufffd")


# git


class Git:
    """Runs git's plumbing in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self, *arguments: str, blind: bool = False, data: bytes = b"", index: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a git command with ``data`` as its input. Raises UsageFault if git is missing, or takes too long.

        ``blind``: without the work tree and the index, because their ``.gitattributes`` could hide a text by having
        it shown as binary. ``index``: the index to use instead of the repository's.
        """
        command = ["git", "--no-pager", "--no-replace-objects"]
        env = {name: value for name, value in os.environ.items() if name not in _DROPPED} | _ENVIRONMENT
        folder = self.folder
        if blind:
            git_dir = self.output("rev-parse", "--absolute-git-dir").strip()
            command += ["--git-dir", git_dir, "-c", "core.bare=true", "-c", "core.attributesFile=/dev/null"]
            env["GIT_INDEX_FILE"] = os.devnull + ".none"
            folder = Path("/")
        if index is not None:
            env["GIT_INDEX_FILE"] = str(index)
        for setting in _OVERRIDES:
            command += ["-c", setting]
        try:
            return subprocess.run(
                [*command, *arguments],
                cwd=folder,
                env=env,
                input=data,
                capture_output=True,
                timeout=GIT_TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise UsageFault(
                "git is not installed: give a patch file, or - for the standard input"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise UsageFault(
                f"git {arguments[0]} took longer than {GIT_TIMEOUT_S:g} s, and was ended"
            ) from error

    def output(
        self, *arguments: str, blind: bool = False, data: bytes = b"", index: Path | None = None
    ) -> str:
        """The output of a git command, as ``run``. Raises UsageFault if it fails."""
        done = self.run(*arguments, blind=blind, data=data, index=index)
        if done.returncode != 0:
            raise UsageFault(f"git {arguments[0]} failed: {_git_error(done)}")
        return done.stdout.decode("utf-8", errors="replace")

    def commit(self, name: str) -> str | None:
        """The hash of the commit that ``name`` names; None if there is none."""
        done = self.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return done.stdout.decode().strip() if done.returncode == 0 else None


_DROPPED = frozenset({"GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_DIFF_OPTS", "GIT_TRACE", "GIT_SSH_COMMAND"})
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}


def _git_error(done: subprocess.CompletedProcess[bytes]) -> str:
    return line(done.stderr.decode("utf-8", errors="replace"), 400) or f"exit code {done.returncode}"


def _from_git(what: str, git: Git) -> ReviewedChange:
    inside = git.run("rev-parse", "--is-inside-work-tree")
    if inside.returncode != 0:
        why = _git_error(inside)
        hint = "" if "not a git repository" not in why else "; give a patch file, or - for the standard input"
        no_file = "" if what == NEWEST else f"there is no file {what}, and "
        raise UsageFault(f"{no_file}git finds no repository in {git.folder}: {why}{hint}")
    if ".." in what:
        left, _, right = what.partition("..")
        old, new = _commit(left or NEWEST, what, git), _commit(right.removeprefix(".") or NEWEST, what, git)
        # What the right side adds to where it left the left side, as a merge would bring it.
        base = git.run("merge-base", old, new).stdout.decode().split()
        old = base[0] if base else old
        source, logged = what, [f"{old}..{new}"]
    else:
        new = _commit(what, what, git)
        old = _parent(new, git)
        source, logged = f"commit {new[:10]}", ["--no-walk", new]
    body = _diff(old, new, source, git)
    summary, message = _messages(logged, git)
    summary = summary or f"The change from {old[:10]} to {new[:10]}"
    return ReviewedChange(summary, f"{message}\n{body}" if message else body, source, _rules(old, git))


def _rules(revision: str, git: Git) -> tuple[tuple[str, str], ...]:
    """The texts of the folder of rules in a revision, which is the one before the change. Raises UsageFault."""
    from council.agents.scan import own
    from council.agents.scan.ruleset import RuleError

    listed = git.output("ls-tree", "-z", "-l", revision, f"{own.FOLDER}/", blind=True)
    blobs: dict[str, str] = {}
    sizes = []
    for entry in filter(None, listed.split("\0")):
        facts, _, path = entry.partition("\t")
        mode, kind, blob, size = facts.split()
        if kind == "blob" and mode != _LINK and own.holds_rules(path):
            blobs[path] = blob
            sizes.append((path, int(size)))
    try:
        found = own.texts_of(sizes, lambda path: git.run("cat-file", "blob", blobs[path], blind=True).stdout)
        own.own_of(found)
    except RuleError as error:
        raise UsageFault(f"in {revision[:10]}, before the change: {error}") from error
    return found


def _commit(name: str, asked: str, git: Git) -> str:
    found = git.commit(name)
    if found is not None:
        return found
    if asked == NEWEST:
        raise UsageFault(
            "this repository has no commit yet; review staged changes with: git diff --cached | council review -"
        )
    within = "" if name == asked else f" of {asked}"
    raise UsageFault(f"{name}{within} is neither a file nor a commit of this repository")


def _parent(commit: str, git: Git) -> str:
    """A commit's first parent, or the empty tree."""
    if (parent := git.commit(f"{commit}^1")) is not None:
        return parent
    if git.output("rev-parse", "--is-shallow-repository").strip() == "true":
        raise UsageFault(
            f"the parent of commit {commit[:10]} is not in this shallow clone, so its change is unknown: "
            "fetch one commit more (git fetch --deepen=1)"
        )
    return git.output("hash-object", "-t", "tree", "--stdin").strip()


def _diff(old: str, new: str, source: str, git: Git) -> str:
    """The change with as much context as there is room for."""
    command = ["diff-tree", "-p", "-M", "-r", "--no-color", "--no-ext-diff", "--no-textconv", "--full-index"]
    command += ["--src-prefix=a/", "--dst-prefix=b/", "--submodule=short"]
    beside = 2 * MESSAGE_CHARS_MAX
    body = ""
    for context in CONTEXTS:
        body = git.output(*command, *context, old, new, blind=True).replace("\0", "\ufffd")
        if not body.strip():
            raise UsageFault(f"{source} changes nothing: there is nothing to review")
        if len(body.encode()) + beside <= CHANGE_BYTES_MAX:
            break
    _refuse_if_large(body, source, beside=beside)
    return body


def _messages(logged: Sequence[str], git: Git) -> tuple[str, str]:
    """A summary from the commits' subjects, and their messages, indented so that none can pose as a diff."""
    listed = git.output(
        "log", f"--max-count={SUBJECTS_MAX + 1}", "--no-color", "--format=%s%x00%b%x00", *logged
    )
    fields = [field.strip() for field in listed.split("\0")[:-1]]
    subjects = [line(subject, SUMMARY_CHARS_MAX) for subject in fields[::2] if subject]
    if not subjects:
        return "", ""
    text = "\n\n".join(field for field in fields if field)
    message = "\n".join(f"    {each}".rstrip() for each in text[:MESSAGE_CHARS_MAX].splitlines()) + "\n"
    if len(subjects) == 1:
        return subjects[0], message
    many = f"{SUBJECTS_MAX}+" if len(subjects) > SUBJECTS_MAX else str(len(subjects))
    return line(f"{many} commits: {'; '.join(subjects)}", SUMMARY_CHARS_MAX), message
