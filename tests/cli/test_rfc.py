"""``council rfc``: what is voted on, and that only the very bytes that were approved are merged (rules 7.3)."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from council.agents.mind import Opinion, Ruling
from council.api.client import Council
from council.cli.decide import rfc_files, submit
from tests.cli.conftest import Chair, Cli, Repository, Said, council_of, says

Up = Callable[[Council], Council]

TEXT = "---\ntitle: Retry twice\nstatus: draft\nauthor: Ada\n---\n\nA call is tried again two times.\n"
FILE = "rfcs/retry.md"
TARGET = "rfcs/merged/0001-retry.md"
ASKS = Chair(Opinion.no("too risky", risk_level="high"), Ruling("human", "a person must see this"))
YES, NO = Opinion.yes("it is clear", confidence=0.9), Opinion.no("no limit is named", confidence=0.9)


@pytest.fixture
def cli(cli: Cli, home: Path) -> Cli:
    """As the command line of each process: a command that has connected has left the working folder."""

    def run(*arguments: str) -> Said:
        os.chdir(home)
        return cli(*arguments)

    return run


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def written(repository: Repository, text: str = TEXT, name: str = FILE) -> Path:
    path = repository.path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def merging(cli: Cli, repository: Repository, tmp_path: Path) -> Callable[..., Any]:
    """``council rfc merge``, which reads the store of the council that reviewed."""
    for name, value in (("user.name", "Ada"), ("user.email", "ada@example.com")):
        repository.git("config", name, value)
    repository.commit("First", README__md="hello\n")

    def merge(name: str = FILE, *more: str) -> Any:
        return cli("rfc", "merge", name, "--url", str(tmp_path / "store.db"), *more)

    return merge


def council(tmp_path: Path, up: Up, *, lite: Any = None, **settings: Any) -> Council:
    return up(council_of(lite=lite or says(YES), store=str(tmp_path / "store.db"), **settings))


def reviewed(cli: Cli, name: str = FILE) -> dict[str, Any]:
    said = cli("rfc", "review", name, "--json")
    found: dict[str, Any] = json.loads(said.out)
    assert found["exit_code"] == said.code
    return found


# From a draft to the merge


def test_an_rfc_is_proposed_reviewed_and_merged_as_it_was_voted_on(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    path = written(repository, TEXT.replace("\n", "\r\n") + "é \u2028 end, with no newline")
    for name in ("pre-commit", "commit-msg", "post-commit", "reference-transaction"):
        hook = repository.path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\nexit 1\n", encoding="utf-8")
        hook.chmod(0o755)
    said = cli("rfc", "propose", FILE, "--json")
    voted = path.read_bytes()
    assert voted == (TEXT.replace("status: draft", "status: proposed").replace("\n", "\r\n").encode()) + (
        "é \u2028 end, with no newline".encode()
    )
    digest = hashlib.sha256(voted).hexdigest()
    document = json.loads(said.out)["rfc"]
    assert (said.code, document["sha256"], document["merged"]) == (0, digest, None)
    minds = council(tmp_path, up)
    found = reviewed(cli)
    assert (found["exit_code"], found["outcome"], found["early"]) == (0, "approved", False)
    note = json.loads((repository.path / f"rfcs/.decisions/{digest}.json").read_bytes())
    assert note == found["rfc"]
    assert note["reviews"]["lite"] == {"vote": "yes", "reason": "it is clear"}
    assert path.read_bytes() == voted
    (sent,) = minds.history(proposal=note["proposal_id"], types=["proposal"], envelopes=True)
    assert sent.envelope is not None
    content: Any = sent.envelope.content
    assert (content.wait_for, f"sha256: {digest}" in content.body) == ("all", True)
    assert content.body.encode().endswith(voted)
    (repository.path / "other.txt").write_text("staged", encoding="utf-8")
    repository.git("add", "other.txt")
    said = merging(FILE, "--json")
    assert said.code == 0, said
    merged = json.loads(said.out)["merged"]
    assert (merged["file"], merged["sha256"]) == (TARGET, digest)
    assert (path.exists(), (repository.path / TARGET).read_bytes()) == (False, voted)
    blob = repository.git("rev-parse", f"HEAD:{TARGET}").strip()
    assert blob == repository.git("hash-object", "--no-filters", TARGET).strip()
    assert repository.git("show", "--name-status", "--format=", "HEAD").split() == ["A", TARGET]
    assert repository.git("status", "--porcelain", "--", "other.txt", "rfcs/merged") == "A  other.txt\n"
    assert f"Council-Proposal: {note['proposal_id']}" in repository.git("log", "-1", "--format=%B")
    assert not (tmp_path / "sprung").exists()
    again = merging()
    assert (again.code, f"it is merged as {TARGET}" in again.err.replace("\n", " ")) == (2, True)


def test_a_tracked_file_moves_and_the_same_bytes_are_merged_once(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    path = written(repository)
    repository.commit("Draft")
    cli("rfc", "propose", FILE)
    repository.commit("Propose")
    voted = path.read_text(encoding="utf-8")
    council(tmp_path, up)
    reviewed(cli)
    assert merging().code == 0
    assert repository.git("show", "-M", "--name-status", "--format=", "HEAD").split() == [
        "R100",
        FILE,
        TARGET,
    ]
    head = repository.git("rev-parse", "HEAD")
    written(repository, voted)
    said = merging()
    assert (said.code, "are merged already" in said.err) == (1, True)
    assert cli("rfc", "review", FILE).code == 2
    assert repository.git("rev-parse", "HEAD") == head


def test_a_revision_is_voted_on_with_its_difference_and_takes_the_place_of_the_merged_version(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    council(tmp_path, up)
    first = TEXT.replace("draft", "proposed")
    for name in ("aside", "retry"):
        written(repository, first, f"rfcs/{name}.md")
        reviewed(cli, f"rfcs/{name}.md")
        assert merging(f"rfcs/{name}.md").code == 0
    written(repository, TEXT.replace("two times", "three times"))
    said = cli("rfc", "propose", FILE, "--json")
    document = json.loads(said.out)["rfc"]
    target = "rfcs/merged/0002-retry.md"
    assert document["merged"] == {"file": target, "sha256": sha256(first)}
    assert "-A call is tried again two times.\n+A call is tried again three times.\n" in document["diff"]
    reviewed(cli)
    repository.git("config", "diff.context", "0")  # the settings of a user change nothing in what is compared
    repository.git("config", "diff.noprefix", "true")
    assert merging().code == 0
    assert "three times" in (repository.path / target).read_text(encoding="utf-8")


# Refused merges


def test_bytes_that_changed_after_the_review_are_refused_with_both_digests(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    voted = TEXT.replace("draft", "proposed")
    path = written(repository, voted)
    council(tmp_path, up)
    reviewed(cli)
    head = repository.git("rev-parse", "HEAD")
    changed = voted.replace("two", "ten")
    path.write_text(changed, encoding="utf-8")
    said = merging(FILE, "--json")
    error = json.loads(said.out)["error"]
    assert (said.code, error["code"]) == (1, "rfc_refused")
    assert (error["facts"]["sha256"], error["facts"]["reviewed"]) == (sha256(changed), [sha256(voted)])
    assert f"the file has sha256 {sha256(changed)}" in error["message"]
    assert f"the council reviewed {sha256(voted)}" in error["message"]
    # A note made by hand for the changed bytes names an approved proposal, and the journal knows better.
    notes = repository.path / "rfcs/.decisions"
    forged = (notes / f"{sha256(voted)}.json").read_text("utf-8").replace(sha256(voted), sha256(changed))
    (notes / f"{sha256(changed)}.json").write_text(forged, encoding="utf-8")
    error = json.loads(merging(FILE, "--json").out)["error"]
    assert (error["facts"]["sha256"], error["facts"]["reviewed"]) == (sha256(changed), [sha256(voted)])
    assert repository.git("rev-parse", "HEAD") == head
    path.write_text(voted, encoding="utf-8")
    assert merging().code == 0


def test_a_file_that_changes_during_the_merge_stays_and_the_voted_bytes_are_merged(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    voted = TEXT.replace("draft", "proposed")
    path = written(repository, voted)
    council(tmp_path, up)
    reviewed(cli)
    checked = rfc_files.unclean

    def unclean(*arguments: Any) -> str:
        path.write_text("changed", encoding="utf-8")
        return checked(*arguments)

    monkeypatch.setattr(rfc_files, "unclean", unclean)
    said = merging()
    assert (said.code, "changed during the merge" in said.err) == (0, True)
    assert repository.git("show", f"HEAD:{TARGET}") == voted
    assert path.read_text(encoding="utf-8") == "changed"


def test_of_two_simultaneous_merges_one_is_refused(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(repository, TEXT.replace("draft", "proposed"))
    council(tmp_path, up)
    reviewed(cli)
    checked = rfc_files.unclean

    def unclean(*arguments: Any) -> str:
        found = checked(*arguments)
        repository.git("commit", "--quiet", "--allow-empty", "--message", "Another")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(rfc_files, "unclean", unclean)
        said = merging()
    assert (said.code, "cannot lock ref 'HEAD'" in said.err.replace("\n", " ")) == (2, True)
    assert repository.git("log", "-1", "--format=%s") == "Another\n"
    assert ((repository.path / FILE).exists(), (repository.path / TARGET).exists()) == (True, False)
    assert merging().code == 0


def test_a_rejected_rfc_is_refused_with_reasons_and_not_voted_on_again(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    written(repository, TEXT.replace("draft", "proposed"))
    council(tmp_path, up, lite=says(NO), prime=says(NO))
    said = cli("rfc", "review", FILE)
    assert (said.code, "no limit is named" in said.out) == (1, True)
    merged = merging()
    assert (merged.code, "no limit is named" in merged.err.replace("\n", " ")) == (1, True)
    again = cli("rfc", "review", FILE)
    assert (again.code, "has rejected these bytes" in again.err.replace("\n", " ")) == (1, True)
    # What the note says of the outcome counts for nothing.
    (note,) = (repository.path / "rfcs/.decisions").iterdir()
    note.write_text(note.read_text("utf-8").replace('"rejected"', '"approved"'), encoding="utf-8")
    assert merging().code == 1


def test_one_that_waits_for_a_human_is_merged_after_the_answer(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    written(repository, TEXT.replace("draft", "proposed"))
    minds = council(tmp_path, up, lite=says(YES), prime=ASKS)
    found = reviewed(cli)
    assert (found["exit_code"], found["standing"], found["rfc"]["outcome"]) == (3, "escalated", None)
    said = merging(FILE, "--json")
    assert (said.code, json.loads(said.out)["error"]["code"]) == (3, "rfc_undecided")
    minds.answer(found["escalation_id"], approve=True, reason="read it")
    assert merging().code == 0


def test_what_was_not_reviewed_or_by_another_council_is_refused(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    voted = TEXT.replace("draft", "proposed")
    path = written(repository, voted)
    said = merging()
    assert (said.code, "was not reviewed" in said.err.replace("\n", " ")) == (1, True)
    minds = council(tmp_path, up)
    found = reviewed(cli)
    note = repository.path / f"rfcs/.decisions/{sha256(voted)}.json"
    kept = note.read_text(encoding="utf-8")
    for text, words in (
        (kept.replace(found["proposal_id"], "0123456789abcdef"), "has no proposal 0123456789abcdef"),
        (kept.replace(found["proposal_id"], found["proposal_id"][:8]), "has no proposal"),
        (kept.replace(found["proposal_id"], "../x"), "names no proposal"),
        ("[]", "names no proposal"),
        ("{", "names no proposal"),
    ):
        note.write_text(text, encoding="utf-8")
        said = merging()
        assert (said.code, words in said.err.replace("\n", " ")) == (1, True), said
    # The same body, decided without waiting for every seat, is no review.
    rfc, _ = rfc_files.read(path)
    early = minds.propose(rfc.summary, rfc.body)
    assert early
    note.write_text(kept.replace(found["proposal_id"], early.proposal_id), encoding="utf-8")
    said = merging()
    assert (said.code, "did not wait for all" in said.err.replace("\n", " ")) == (1, True)


def test_without_a_ballot_of_lite_it_is_not_reviewed(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    async def fails(case: Any) -> Opinion:
        raise RuntimeError("no mind")

    written(repository, TEXT.replace("draft", "proposed"))
    council(tmp_path, up, lite=fails)
    said = cli("rfc", "review", FILE)
    assert (said.code, "lite has cast no ballot" in said.err.replace("\n", " ")) == (0, True)
    said = merging()
    assert (said.code, "no ballot of lite" in said.err.replace("\n", " ")) == (1, True)


@pytest.mark.parametrize("record", ["proposal", "decision"])
def test_an_altered_record_of_the_journal_is_refused(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up, record: str
) -> None:
    written(repository, TEXT.replace("draft", "proposed"))
    minds = council(tmp_path, up)
    found = reviewed(cli)
    (entry,) = minds.history(proposal=found["proposal_id"], types=[record])
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as store:
        for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            store.execute(f"DROP TRIGGER {name}")
        where = "WHERE position = ?", (entry.position,)
        ((content,),) = store.execute(f"SELECT content FROM packet_store {where[0]}", where[1]).fetchall()
        altered = content[:-1] + bytes([content[-1] ^ 1])
        store.execute(f"UPDATE packet_store SET content = ? {where[0]}", (altered, *where[1]))
    assert merging().code == 1
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as store:
        store.execute(f"UPDATE packet_store SET content = ? {where[0]}", (content, *where[1]))
    assert merging().code == 0


def test_a_dirty_index_of_the_file_and_a_changed_place_are_refused(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path, up: Up
) -> None:
    voted = TEXT.replace("draft", "proposed")
    written(repository, voted)
    council(tmp_path, up)
    reviewed(cli)
    head = repository.git("rev-parse", "HEAD")
    repository.git("add", FILE)
    said = merging()
    assert (said.code, f"{FILE} has changes in the index" in said.err.replace("\n", " ")) == (1, True)
    repository.git("rm", "--cached", "--quiet", FILE)
    written(repository, "mine", TARGET)
    said = merging()
    assert (said.code, f"{TARGET} differs from HEAD" in said.err.replace("\n", " ")) == (1, True)
    (repository.path / TARGET).unlink()
    (repository.path / "rfcs/merged").rmdir()
    os.symlink(tmp_path, repository.path / "rfcs/merged")
    said = merging()
    assert (said.code, "is a link to" in said.err.replace("\n", " ")) == (1, True)
    (repository.path / "rfcs/merged").unlink()
    assert repository.git("rev-parse", "HEAD") == head
    # Meanwhile another version was merged under this name, which the seats did not compare it with.
    (repository.path / "rfcs/merged").mkdir()
    (repository.path / TARGET).write_text("another", encoding="utf-8")
    repository.git("add", TARGET)
    repository.git("commit", "--quiet", "--message", "Another")
    said = merging()
    assert (said.code, "merged version or the file's place has changed" in said.err.replace("\n", " ")) == (
        1,
        True,
    )


# Files and councils that will not do


def test_what_is_no_rfc_is_named(cli: Cli, repository: Repository) -> None:
    repository.commit("First", README__md="hello\n")
    head = "---\ntitle: A\nstatus: draft\nauthor: B\n"
    for text, words in (
        ("# No front matter\n", "has no front matter"),
        (head, "has no front matter"),
        ("---\ntitle: A\nstatus: draft\n---\n", "no author"),
        ("---\ntitle:\nauthor: B\n---\n", "no title, no status"),
        (head + "title: C\n---\n", "line 5: title is there twice"),
        (head + "what is this\n---\n", "line 5: expected a field"),
        (head.replace("draft", "merged") + "---\n", "the status is 'merged'"),
        (head.replace("draft", "proposed") + "---\n", "is proposed already"),
        (head + "---\n\0", "NUL"),
        (head + "---\n" + "x" * rfc_files.RFC_BYTES_MAX, "longer than 262,144 bytes"),
    ):
        written(repository, text)
        said = cli("rfc", "propose", FILE)
        assert (said.code, words in said.err.replace("\n", " ")) == (2, True), said
        assert (repository.path / FILE).read_bytes() == text.encode()
    (repository.path / FILE).write_bytes(b"---\n\xff")
    for name, words in (
        (FILE, "not text in UTF-8"),
        ("rfcs/none.md", "can't be read"),
        ("rfcs/My File.md", "the name must be"),
        ("nowhere/none.md", "there is no folder"),
        ("rfcs/link.md", "not a regular file"),
    ):
        if name.endswith("link.md"):
            os.symlink("/etc/passwd", repository.path / name)
        said = cli("rfc", "propose", name)
        assert (said.code, words in said.err.replace("\n", " ")) == (2, True), said
    written(repository, TEXT)
    assert cli("rfc", "review", FILE).code == 2  # a draft


def test_outside_a_repository_it_says_so(cli: Cli, home: Path) -> None:
    (home / "retry.md").write_text(TEXT, encoding="utf-8")
    said = cli("rfc", "propose", "retry.md")
    assert (said.code, "not a git repository" in said.err.replace("\n", " ")) == (2, True)


def test_a_council_of_the_commands_own_needs_a_store_and_its_journal_is_read_later(
    cli: Cli, repository: Repository, merging: Any, tmp_path: Path
) -> None:
    written(repository, TEXT)
    assert cli("rfc", "propose", FILE).code == 0
    said = cli("rfc", "review", FILE, "--inline")
    assert (said.code, "in a store that the settings name" in said.err.replace("\n", " ")) == (2, True)
    settings = tmp_path / "council.toml"
    settings.write_text(f'store = "{tmp_path / "store.db"}"\n', encoding="utf-8")
    said = cli("rfc", "review", FILE, "--inline", "--config", str(settings))
    assert said.code == 0, said
    assert merging().code == 0
    assert submit.BODY_BYTES_MAX > rfc_files.RFC_BYTES_MAX
