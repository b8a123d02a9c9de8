"""What is reviewed: out of real repositories, files and texts; and nothing of it is executed."""

from __future__ import annotations

import dataclasses
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from council.cli.decide import changes
from council.cli.report import UsageFault

from .conftest import Repository

PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a = 1\n+a = 2\n"


def lines(count: int, word: str = "x") -> str:
    return "".join(f"{word}{n} = {n}\n" for n in range(count))


def test_by_default_it_is_the_newest_commit(repository: Repository) -> None:
    repository.commit("First", a__py="a = 1\n")
    first = changes.find(None, repository.path)
    assert (first.summary, "new file mode" in first.body, "+a = 1\n" in first.body) == ("First", True, True)
    repository.commit("Second\n\nBecause it is two.", a__py="a = 2\n")
    change = changes.find(None, repository.path)
    assert change.summary == "Second"
    assert "-a = 1\n+a = 2\n" in change.body
    assert "    Because it is two.\n" in change.body
    assert changes.find("HEAD~1..", repository.path) == dataclasses.replace(change, source="HEAD~1..")


def test_a_range_is_what_its_end_brings_on_top_of_where_it_left(repository: Repository) -> None:
    repository.commit("Base", a__py="a = 1\n")
    repository.git("switch", "--quiet", "--create", "work")
    repository.commit("Add b", b__py="b = 1\n")
    repository.commit("Add c", c__py="c = 1\n")
    repository.git("switch", "--quiet", "main")
    repository.commit("Main went on", d__py="d = 1\n")
    change = changes.find("main..work", repository.path)
    assert change.summary == "2 commits: Add c; Add b"
    assert "+b = 1" in change.body
    assert "+c = 1" in change.body
    assert "d.py" not in change.body  # a plain comparison would show main's own work taken back
    assert changes.find("main...work", repository.path).body == change.body


def test_a_merge_is_what_it_brought_to_the_branch(repository: Repository) -> None:
    repository.commit("Base", a__py="a = 1\n")
    repository.git("switch", "--quiet", "--create", "work")
    repository.commit("Add b", b__py="b = 1\n")
    repository.git("switch", "--quiet", "main")
    repository.commit("Add c", c__py="c = 1\n")
    repository.git("merge", "--quiet", "--no-ff", "--message", "Merge work", "work")
    change = changes.find(None, repository.path)
    assert "+b = 1" in change.body
    assert "c.py" not in change.body


def test_a_rename_is_one_and_files_are_shown_whole_where_there_is_room(repository: Repository) -> None:
    repository.commit("Base", old__py=lines(3_000))
    repository.git("mv", "old.py", "new.py")
    repository.commit("Rename", new__py=lines(2_999) + "last = 0\n")
    body = changes.find(None, repository.path).body
    assert "rename from old.py\nrename to new.py" in body
    assert " x0 = 0\n" in body


def test_with_less_room_the_context_shrinks_before_anything_is_refused(repository: Repository) -> None:
    wide = [f"# {'y' * 900} {n}\n" for n in range(1_000)]
    repository.commit("Base", a__py="".join(wide))
    repository.commit("Change", a__py="".join(wide) + "last = 0\n")
    body = changes.find(None, repository.path).body
    assert len(body.encode()) < changes.CHANGE_BYTES_MAX
    assert "+last = 0" in body
    assert " 0\n" not in body.split("@@", 2)[2][:50]


def test_what_is_too_large_is_refused_with_its_size(repository: Repository) -> None:
    repository.commit("Base", a__py="a = 1\n")
    repository.commit("Huge", a__py=lines(80_000))
    with pytest.raises(UsageFault, match=r"has 1,[0-9]{3},[0-9]{3} bytes, at most 778,240"):
        changes.find(None, repository.path)


def test_a_wrong_range_is_named(repository: Repository) -> None:
    repository.commit("First", a__py="a = 1\n")
    repository.commit("Empty")
    for what, words in (
        ("nope", "nope is neither a file nor a commit"),
        ("nope..HEAD", "nope of nope..HEAD is neither"),
        ("HEAD..HEAD", "changes nothing"),
        ("HEAD", "changes nothing"),
        ("--output=x", "is not a range"),
        ("", "is not a range"),
        ("HEAD^{tree}", "neither a file nor a commit"),
    ):
        with pytest.raises(UsageFault, match=re.escape(words)):
            changes.find(what, repository.path)
    assert not (repository.path / "x").exists()


def test_without_a_repository_or_a_commit_it_says_so(home: Path) -> None:
    with pytest.raises(UsageFault, match="git finds no repository"):
        changes.find(None, home)
    Repository(home)
    with pytest.raises(UsageFault, match="no commit yet"):
        changes.find(None, home)


def test_in_a_shallow_clone_a_missing_parent_is_not_taken_for_none(
    repository: Repository, tmp_path: Path
) -> None:
    repository.commit("First", a__py="a = 1\n")
    repository.commit("Second", a__py="a = 2\n")
    repository.git("clone", "--quiet", "--depth=1", f"file://{repository.path}", str(tmp_path / "clone"))
    with pytest.raises(UsageFault, match="shallow clone"):
        changes.find(None, tmp_path / "clone")


def test_without_git_a_patch_is_asked_for(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageFault, match="git is not installed"):
        changes.find(None, repository.path)


def test_a_name_that_is_a_file_and_a_commit_is_no_guess(repository: Repository) -> None:
    repository.commit("First", main=PATCH)
    with pytest.raises(UsageFault, match=r"both a file and a commit: write \./main"):
        changes.find("main", repository.path)
    assert changes.find("./main", repository.path).body == PATCH


def test_a_message_can_not_pose_as_a_diff(repository: Repository) -> None:
    repository.commit("First", a__py="a = 1\n")
    repository.commit(f"Second\n\ndiff --git a/x.py b/x.py\n{PATCH}", a__py="a = 2\n")
    body = changes.find(None, repository.path).body
    assert body.count("\ndiff --git ") == 1
    assert "\n    diff --git a/x.py" in body


def test_nothing_that_the_repository_configures_is_executed(repository: Repository, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n", encoding="utf-8")
    trap.chmod(0o755)
    repository.commit("First", a__py="a = 1\n")
    (repository.path / ".gitattributes").write_text("*.py diff=trap filter=trap\n", encoding="utf-8")
    repository.commit("Second", a__py="a = 2\n")
    names = ("core.fsmonitor", "core.pager", "diff.external", "diff.trap.command", "diff.trap.textconv")
    names += ("core.sshCommand", "gpg.program", "pager.log", "pager.diff-tree", "filter.trap.smudge")
    for name in names:
        repository.git("config", name, str(trap))
    repository.git("config", "log.showSignature", "true")
    repository.git("config", "alias.diff-tree", f"!{trap}")
    change = changes.find(None, repository.path)
    assert "+a = 2" in change.body
    changes.find("HEAD~1..HEAD", repository.path)
    assert not (tmp_path / "sprung").exists()


def test_settings_of_colour_and_prefixes_do_not_change_the_text(repository: Repository) -> None:
    repository.commit("First", a__py="a = 1\n")
    repository.commit("Second", a__py="a = 2\n")
    plain = changes.find(None, repository.path)
    for name, value in (("color.ui", "always"), ("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true")):
        repository.git("config", name, value)
    assert changes.find(None, repository.path) == plain


def test_an_attribute_does_not_hide_a_text_from_the_seats(repository: Repository) -> None:
    """``*.py -diff`` in the very change would have its text shown as "Binary files differ"."""
    repository.commit("First", w__py="def f(c):\n    return c\n")
    (repository.path / ".gitattributes").write_text("*.py -diff\n", encoding="utf-8")
    repository.commit("Second", w__py="import subprocess\n\n\nsubprocess.run(c, shell=True)\n")
    body = changes.find(None, repository.path).body
    assert "+subprocess.run(c, shell=True)" in body
    assert "Binary files" not in body


# Patches


def test_a_patch_is_about_its_subject_or_named_after_its_file(home: Path) -> None:
    sample = changes.sample()
    assert sample.summary == "Write the stock list in one step, and refuse to shrink it by surprise"
    assert sample.body.startswith("From ")
    (home / "fix.patch").write_text(PATCH, encoding="utf-8")
    assert changes.find("fix.patch", home).summary == "A patch of 1 file from fix.patch"
    in_the_diff = PATCH.replace("-a = 1", "-a = 1\n Subject: not this")
    assert changes.from_text(in_the_diff.encode(), "x").summary == "A patch of 1 file from x"


def test_the_input_is_read_for_a_dash(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(PATCH.encode())))
    assert changes.find("-", home).body == PATCH


def test_what_is_no_patch_is_refused(home: Path) -> None:
    for text, words in (
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (b"print('no diff')\n", "holds no unified diff"),
        (PATCH.encode() + b" " * 2**20, "at most 778,240 can be reviewed"),
    ):
        with pytest.raises(UsageFault, match=words):
            changes.from_text(text, "x.patch")
    with pytest.raises(UsageFault, match="not a file that can be read to its end"):
        changes.find("/dev/zero", home)
    with pytest.raises(UsageFault, match="git finds no repository"):
        changes.find(".", home)


def test_bytes_that_are_no_text_are_reviewed_as_what_they_look_like() -> None:
    change = changes.from_text(PATCH.replace("a = 2", "a = '\0X'").encode().replace(b"X", b"\xff"), "x")
    assert "a = '\ufffd\ufffd'" in change.body
