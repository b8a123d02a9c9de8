"""RFCs as files of a git repository: how one is read, what of it is voted on, and how it is merged.

What the council votes on is a function of the file's bytes, its place, and the version that is merged in HEAD
(``Rfc.body``). So a merge builds it again, and compares it with the proposal in the journal.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from council.cli.decide.changes import Git
from council.cli.report import UsageFault
from council.config.files import whole
from council.kinds.text import line

RFC_BYTES_MAX = 256 * 2**10  # with the difference from the merged version it fits into a proposal
FOLDER, MERGED, DECISIONS = "rfcs", "rfcs/merged", "rfcs/.decisions"
DRAFT, PROPOSED = "draft", "proposed"
FIELDS = ("title", "status", "author")
FORM = "---\ntitle: …\nstatus: draft\nauthor: …\n---"
_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(.*)")
_SLUG = re.compile(r"(?:[0-9]{4}-)?([a-z0-9](?:[a-z0-9-]{0,78}[a-z0-9])?)\.md")
_MERGED = re.compile(rf"{MERGED}/([0-9]{{4}})-([a-z0-9-]+)\.md")
_DIFF: tuple[str, ...] = (
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--text",
    "--diff-algorithm=myers",
    "-U3",
)
_DIFF += ("--no-indent-heuristic", "--inter-hunk-context=0")


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged version of an RFC, as HEAD has it; ``data`` is None if there is none yet."""

    path: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Rfc:
    """An RFC's file. ``name`` is its path in the repository at ``root``, with slashes; ``data`` its bytes.

    ``head`` is the commit that has the merged version.
    """

    root: Path
    head: str
    name: str
    data: bytes
    fields: dict[str, str]
    merged: Merged
    diff: str

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def sha256(self) -> str:
        """The hash of the file's bytes, in hex."""
        return digest(self.data)

    @property
    def summary(self) -> str:
        """The proposal's summary."""
        return f"RFC: {line(self.fields['title'], 200)}"

    @property
    def body(self) -> str:
        """The proposal's body: the digest, the file as it is, and its difference from the merged version."""
        before = self.merged.data
        changes = "nothing is merged yet"
        if before is not None:
            changes = f"{self.merged.path}, sha256 {digest(before)}"
        head = f"file: {self.name}\nsha256: {self.sha256}\nmerged version: {changes}\n"
        text = f"{head}\nThe file:\n\n{self.data.decode()}"
        if before is None:
            return text
        return f"{text}\n\nThe difference from the merged version:\n\n{self.diff}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(file: Path, *, propose: bool = False) -> tuple[Rfc, Git]:
    """The RFC in a file, and its repository. Raises UsageFault for a file that is no RFC or in no repository.

    ``propose``: the bytes that the file will have when it is proposed; ``fields`` are those that it has.
    """
    path = file.absolute()
    named = _SLUG.fullmatch(path.name)
    if named is None:
        raise UsageFault(f"{file}: the name must be small letters, digits and hyphens, such as retries.md")
    if not path.parent.is_dir():
        raise UsageFault(f"{file}: there is no folder {path.parent}")
    git = Git(path.parent)
    root = Path(git.output("rev-parse", "--show-toplevel").removesuffix("\n"))
    git = Git(root)
    name = (path.parent.resolve() / path.name).relative_to(root.resolve()).as_posix()
    if name.startswith((f"{MERGED}/", f"{DECISIONS}/")):
        raise UsageFault(f"{name} is in {MERGED}: copy it to {FOLDER}/{named[1]}.md, and change the copy")
    head = git.commit("HEAD")
    if head is None:
        raise UsageFault("this repository has no commit yet: make one first")
    merged = _merged_version(git, head, named[1])
    if not path.exists() and merged.data is not None:
        raise UsageFault(f"there is no file {file}; it is merged as {merged.path}")
    data = _bytes(path)
    fields = _fields(data, name)
    if propose:
        data = _proposed(data)
    return Rfc(root, head, name, data, fields, merged, _difference(git, merged, name, data)), git


def _bytes(path: Path) -> bytes:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise UsageFault(f"{path} is not a regular file")
        with path.open("rb") as file:
            data = file.read(RFC_BYTES_MAX + 1)
    except OSError as error:
        raise UsageFault(f"{path} can't be read: {error.strerror}") from error
    if len(data) > RFC_BYTES_MAX:
        raise UsageFault(f"{path} is longer than {RFC_BYTES_MAX:,} bytes, the most that an RFC may have")
    return data


def _fields(data: bytes, name: str) -> dict[str, str]:
    """The fields between the two lines ``---`` at the top of the file."""
    try:
        lines = [each.removesuffix("\r") for each in data.decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise UsageFault(f"{name} is not text in UTF-8") from error
    if lines[:1] != ["---"] or "---" not in lines[1:]:
        raise UsageFault(f"{name} has no front matter: it must begin with\n{FORM}")
    found: dict[str, str] = {}
    for number, each in enumerate(lines[1 : lines.index("---", 1)], 2):
        field = _FIELD.fullmatch(each)
        if field is None:
            goes_on = each.startswith((" ", "\t", "#", "-"))  # the value of a field of the user's
            if each.strip() and not goes_on:
                raise UsageFault(f"{name}, line {number}: expected a field such as title: …")
            continue
        if field[1] in found:
            raise UsageFault(f"{name}, line {number}: {field[1]} is there twice")
        found[field[1]] = field[2].strip()
    missing = [field for field in FIELDS if not found.get(field)]
    if missing:
        raise UsageFault(f"{name}: the front matter has no {', no '.join(missing)}; it must have\n{FORM}")
    if found["status"] not in (DRAFT, PROPOSED):
        raise UsageFault(f"{name}: the status is {found['status']!r:.80}, expected {DRAFT} or {PROPOSED}")
    return found


def _merged_version(git: Git, head: str, slug: str) -> Merged:
    """The merged version of that name in a commit, or the place that it will have."""
    highest = 0
    for name in filter(None, git.output("ls-tree", "-z", "--name-only", head, f"{MERGED}/").split("\0")):
        if (found := _MERGED.fullmatch(name)) is None:
            continue
        if found[2] == slug:
            return Merged(name, git.run("cat-file", "blob", f"{head}:{name}").stdout)
        highest = max(highest, int(found[1]))
    return Merged(f"{MERGED}/{highest + 1:04}-{slug}.md", None)


def _difference(git: Git, merged: Merged, name: str, data: bytes) -> str:
    if merged.data is None:
        return ""
    blobs = [git.output("hash-object", "-w", "--stdin", data=each).strip() for each in (merged.data, data)]
    shown = git.output("-c", "diff.suppressBlankEmpty=false", "diff", *_DIFF, *blobs)
    _, _, hunks = shown.partition("\n@@")
    return f"--- {merged.path}\n+++ {name}\n@@{hunks}" if hunks else "none"


def _proposed(data: bytes) -> bytes:
    """The file's bytes with the status ``proposed``, and otherwise as they are."""
    status = re.compile(rb"^(status:[ \t]*)draft(?=[ \t]*\r?$)", re.MULTILINE)
    return status.sub(rb"\g<1>" + PROPOSED.encode(), data, count=1)


def write(path: Path, data: bytes) -> None:
    """Replaces a file as a whole, and keeps its mode. Raises UsageFault."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        with whole(path) as file:
            file.write(data)
        path.chmod(mode)
    except OSError as error:
        raise UsageFault(f"{path} can't be written: {error.strerror}") from error


def unclean(rfc: Rfc, git: Git) -> str:
    """Why the repository can't take the merge now; empty if it can."""
    target = rfc.merged.path
    for name in (rfc.name, target):
        if git.run("diff-index", "--cached", "--quiet", "HEAD", "--", f":(literal){name}").returncode != 0:
            return f"{name} has changes in the index: commit them, or take them out (git restore --staged)"
    folder = rfc.root / MERGED
    if folder.resolve() != rfc.root.resolve() / MERGED:
        return f"{MERGED} is a link to {folder.resolve()}: it must be a folder of the repository"
    path = rfc.root / target
    if (_bytes(path) if os.path.lexists(path) else None) != rfc.merged.data:
        return f"{target} differs from HEAD: commit it, or restore it"
    return ""


def merge(rfc: Rfc, git: Git, message: str) -> tuple[str, bool]:
    """Commits the voted bytes under ``rfcs/merged`` and takes the file away. Runs no hook and no filter.

    The commit is built from these bytes and HEAD in an index of its own, so that nothing else is in it. Returns its
    hash, and whether the file was removed: if it changed meanwhile, it stays. Raises UsageFault.
    """
    head, target = rfc.head, rfc.merged.path
    blob = git.output("hash-object", "-w", "--stdin", data=rfc.data).strip()
    changes = [("--add", "--cacheinfo", f"100644,{blob},{target}"), ("--force-remove", "--", rfc.name)]
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        git.output("read-tree", head, index=index)
        for change in changes:
            git.output("update-index", *change, index=index)
        tree = git.output("write-tree", index=index).strip()
    commit = git.output("commit-tree", tree, "-p", head, data=message.encode()).strip()
    git.output(
        "update-ref", "-m", f"council rfc merge: {target}", "HEAD", commit, head
    )  # only if HEAD is as read
    try:
        for change in changes:
            git.output("update-index", *change)
        write(rfc.root / target, rfc.data)
    except UsageFault as error:
        how = f"bring index and files to it with: git restore --staged --worktree {target}"
        raise UsageFault(f"merged in commit {commit}, but {error}; {how}") from error
    if _bytes(rfc.path) != rfc.data:
        return commit, False
    rfc.path.unlink()
    return commit, True
