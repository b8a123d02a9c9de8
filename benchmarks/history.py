"""False alarms over the commits of well-known projects, and how long the scan of a commit takes.

    python -m benchmarks.history GIT_DIR… --count 25 --write tests/corpus/history.toml
    python -m benchmarks.history GIT_DIR… --check tests/corpus/history.toml

Each commit is read as ``council review COMMIT`` reads it. An alarm is a commit with a finding that is a stop or an
ask. The written file holds no text of a project: names, hashes, and the rules that found something. Each repository
keeps the commit from which its commits were counted, so that a later run judges the same ones.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from council.agents.mind import Case
from council.agents.scan.finding import Finding
from council.agents.scan.scan import scan
from council.cli.decide import changes
from council.cli.report import UsageFault


@dataclass(frozen=True)
class Judged:
    """What the scan said of one commit. ``seconds`` is its wall time; ``unread`` is what could not be read."""

    repo: str
    commit: str
    found: tuple[Finding, ...]
    unread: tuple[str, ...]
    seconds: float

    @property
    def alarms(self) -> list[Finding]:
        return [each for each in self.found if each.weight != "note"]


@dataclass
class Repository:
    """A git directory. ``head`` is the commit from which ``count`` commits are taken, without merges."""

    name: str
    folder: Path
    head: str
    count: int
    commits: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.commits = _git(
            self.folder, "log", "--no-merges", f"-n{self.count}", "--format=%H", self.head
        ).split()


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, check=True, timeout=60)
    return done.stdout.decode("utf-8", "replace")


def name_of(folder: Path) -> str:
    """``owner/name`` of a repository: by its remote, otherwise by the folder's name."""
    for word in (_remote(folder), folder.parent.name.replace("+", "/"), folder.name):
        parts = word.removesuffix(".git").replace(":", "/").split("/")
        if len(parts) >= 2:
            return "/".join(parts[-2:])
    return folder.name


def _remote(folder: Path) -> str:
    try:
        return _git(folder, "config", "--get", "remote.origin.url").strip()
    except subprocess.CalledProcessError:
        return ""


def judge(repo: str, folder: Path, commit: str) -> Judged | None:
    """One commit; None if ``council review`` refuses it, such as one without changes."""
    try:
        change = changes.find(commit, folder)
    except UsageFault as fault:
        print(f"{repo} {commit[:10]}: {fault}", file=sys.stderr)
        return None
    began = time.perf_counter()
    found = scan(Case("", "history", change.summary, change.body))
    took = time.perf_counter() - began
    return Judged(repo, commit, found.found, (*found.unread, *found.failed), took)


def judge_all(repositories: Sequence[Repository], processes: int) -> Iterator[Judged]:
    """All commits of all repositories."""
    with ProcessPoolExecutor(processes) as pool:
        waiting = [
            pool.submit(judge, each.name, each.folder, commit)
            for each in repositories
            for commit in each.commits
        ]
        for future in waiting:
            if (judged := future.result()) is not None:
                yield judged


def written(repositories: Sequence[Repository], judged: Sequence[Judged]) -> str:
    """The file of figures."""
    alarmed = [each for each in judged if each.alarms]
    lines = [
        "# Alarms of the scan over commits of well-known projects: python -m benchmarks.history. An alarm is a",
        "# commit with a stop or an ask. Only these are listed, with each rule's weight and how often it found",
        "# something.",
        f"commits = {len(judged)}",
        f"alarms = {len(alarmed)}",
    ]
    for each in repositories:
        lines += ["", "[[repository]]", f'name = "{each.name}"', f'head = "{each.head}"']
        lines += [f"taken = {each.count}", f"commits = {sum(one.repo == each.name for one in judged)}"]
        lines += [f"alarms = {sum(one.repo == each.name for one in alarmed)}"]
    for one in alarmed:
        counted = Counter((found.rule, found.weight) for found in one.alarms)
        found = ", ".join(f'["{rule}", "{weight}", {n}]' for (rule, weight), n in sorted(counted.items()))
        lines += [
            "",
            "[[alarm]]",
            f'repository = "{one.repo}"',
            f'commit = "{one.commit}"',
            f"found = [{found}]",
        ]
    return "\n".join(lines) + "\n"


def told(judged: Sequence[Judged]) -> Iterator[str]:
    """A report: each alarm, the rules by the number of commits in which they alarm, and times."""
    rules: Counter[str] = Counter()
    for one in judged:
        rules.update({found.rule for found in one.alarms})
        for found in one.alarms:
            yield f"{one.repo} {one.commit[:10]} {found.weight} {found}"
        for text in one.unread:
            yield f"{one.repo} {one.commit[:10]} unread {text}"
    yield ""
    yield from (f"{n:4} {rule}" for rule, n in rules.most_common())
    seconds = sorted(one.seconds for one in judged)
    alarmed = sum(bool(one.alarms) for one in judged)
    yield (
        f"{len(judged)} commits, {alarmed} alarms ({100 * alarmed / max(1, len(judged)):.1f} of 100), "
        f"{sum(bool(one.unread) for one in judged)} not read in full; "
        f"{median(seconds):.2f} s median, {seconds[int(0.99 * len(seconds))]:.2f} s p99"
    )


def _repositories(
    folders: Iterable[Path], count: int, known: dict[str, tuple[str, int]]
) -> Iterator[Repository]:
    for folder in folders:
        name = name_of(folder)
        head, number = known.get(name) or (_git(folder, "rev-parse", "HEAD").strip(), count)
        yield Repository(name, folder, head, number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.history")
    parser.add_argument("folders", nargs="+", type=Path, help="git directories")
    parser.add_argument("--count", type=int, default=25, help="commits of each, the newest first")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write", type=Path, help="write the figures to this file")
    parser.add_argument("--check", type=Path, help="judge the commits of this file, and compare")
    arguments = parser.parse_args()
    known = {}
    if arguments.check:
        kept = tomllib.loads(arguments.check.read_text(encoding="utf-8"))
        known = {each["name"]: (each["head"], each["taken"]) for each in kept["repository"]}
    repositories = list(_repositories(arguments.folders, arguments.count, known))
    judged = []
    for at, one in enumerate(judge_all(repositories, arguments.processes), start=1):
        judged.append(one)
        print(
            f"{at} commits, {sum(bool(each.alarms) for each in judged)} alarms",
            end="\r",
            file=sys.stderr,
            flush=True,
        )
    print("\n".join(told(judged)))
    text = written(repositories, judged)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
    if arguments.check and tomllib.loads(text) != kept:
        print(f"the figures differ from {arguments.check}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
