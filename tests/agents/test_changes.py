"""What read_changes makes of diffs as programs write them, of broken ones, and of any text at all."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.agents.scan.change import FileChange, ScannedText, read_changes
from tests.examples import at_first
from tests.patience import GROWTH_MAX, growth

SMALL = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n+b = 3\n"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.email=a@example.org", "-c", "user.name=a", *arguments]
    environment = {
        "PATH": "/usr/bin:/bin",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
    }
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "surrogateescape")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits, between which files of every kind change."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    long = "".join(f"x{at} = {at}\n" for at in range(30))
    (folder / "app").mkdir()
    (folder / "app/db.py").write_text(long)
    (folder / "old.py").write_text(long.replace("x", "y"))
    (folder / "my file.py").write_text("a = 1\n")
    (folder / "café.py").write_text("a = 1\n")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / "nonl.py").write_text("a = 1\nb = 2")
    (folder / "crlf.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (folder / "run.sh").write_text("echo\n")
    (folder / "gone.py").write_text("g = 1\n")
    (folder / "doc.md").write_text("x\n```python\na\n```\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "app/db.py").write_text(long.replace("x0 = 0", "x0 = 100").replace("x20 = 20", "-- a/foo"))
    (folder / "old.py").unlink()
    (folder / "new name.py").write_text(long.replace("x", "y").replace("y3 = 3\n", "y3 = 33\n"))
    (folder / "my file.py").write_text("a = 2\n")
    (folder / "café.py").write_text("a = 2\n")
    (folder / "data.bin").write_bytes(bytes(range(255, -1, -1)))
    (folder / "nonl.py").write_text("a = 1\nb = 3")
    (folder / "crlf.py").write_bytes(b"a = 1\r\nb = 3\r\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "gone.py").unlink()
    (folder / "new.py").write_text("n = 1\n")
    (folder / "empty.py").write_text("")
    (folder / "doc.md").write_text("x\n```python\nb\n```\n```\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "second")
    return folder


def by_path(reading: ScannedText) -> dict[str, FileChange]:
    return {change.path: change for change in reading.files}


COMMANDS = [
    ("show", "HEAD"),
    ("format-patch", "--stdout", "-1"),
    ("diff", "HEAD~1"),
    ("diff", "-U1000000", "HEAD~1"),
    ("diff", "--no-prefix", "HEAD~1"),
    ("diff", "--binary", "HEAD~1"),
    ("diff", "-U0", "HEAD~1"),
    ("-c", "diff.mnemonicPrefix=true", "diff", "HEAD~1"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_reads_every_form_that_git_writes(repository: Path, command: tuple[str, ...]) -> None:
    text = f"Please apply:\n\n```diff\n{git(repository, *command)}```\n- and then rest\n"
    reading = read_changes(text)
    files = by_path(reading)
    assert reading.faults == ()
    assert {change.path: change.kind for change in reading.files} == {
        "app/db.py": "modified",
        "data.bin": "modified",
        "café.py": "modified",
        "crlf.py": "modified",
        "doc.md": "modified",
        "empty.py": "added",
        "gone.py": "deleted",
        "new name.py": "renamed",
        "my file.py": "modified",
        "new.py": "added",
        "nonl.py": "modified",
        "run.sh": "modified",
    }
    assert [change.path for change in reading.files if change.is_binary] == ["data.bin"]
    assert files["new name.py"].old_path == "old.py"
    assert files["app/db.py"].added == [(1, "x0 = 100"), (21, "-- a/foo")]
    assert files["app/db.py"].removed == [(1, "x0 = 0"), (21, "x20 = 20")]
    assert files["crlf.py"].added == [(2, "b = 3")]
    assert files["crlf.py"].hunks[0].new_text().endswith("b = 3\r\n")
    assert files["nonl.py"].hunks[0].new_text().endswith("b = 3")
    assert files["gone.py"].is_whole
    assert files["new.py"].is_whole
    assert [block.language for block in reading.blocks] == ["diff"]
    assert reading.blocks[0].has_diff


def test_whole_files_are_those_that_the_diff_proves_whole(repository: Path) -> None:
    narrow = by_path(read_changes(git(repository, "diff", "HEAD~1")))
    wide = by_path(read_changes(git(repository, "diff", "-U1000000", "HEAD~1")))
    assert not narrow["app/db.py"].is_whole
    assert not narrow["new name.py"].is_whole, "starts at line 1, ends in the middle"
    assert narrow["my file.py"].is_whole, "git's hash of the new content proves it"
    assert all(change.is_whole for change in wide.values() if change.hunks)
    assert wide["app/db.py"].hunks[0].new_text() == (repository / "app/db.py").read_text()


def test_a_whole_file_without_git_is_known_by_its_context() -> None:
    old = [f"a{at} = {at}\n" for at in range(80)]
    new = [*old[:40], "changed = 1\n", *old[41:]]
    wide = "".join(difflib.unified_diff(old, new, "a/x.py", "b/x.py", n=10**6))
    top = "".join(difflib.unified_diff(old, ["first = 1\n", *old], "a/x.py", "b/x.py"))
    assert read_changes(wide).files[0].is_whole
    assert not read_changes(top).files[0].is_whole


def test_line_numbers_are_those_of_the_files() -> None:
    hunk = read_changes(SMALL.replace("-1,2 +1,2", "-7,2 +9,2")).files[0].hunks[0]
    assert [(line.tag, line.old_no, line.new_no) for line in hunk.lines] == [
        (" ", 7, 9),
        ("-", 8, None),
        ("+", None, 10),
    ]
    assert hunk.old_text() == "a = 1\nb = 2\n"
    assert hunk.new_text() == "a = 1\nb = 3\n"


def test_a_diff_sent_with_crlf_and_with_trimmed_blank_lines_is_read() -> None:
    text = "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n a = 1\n\n-b = 2\n+b = 3\n"
    assert read_changes(text).files[0].added == [(3, "b = 3")]
    assert read_changes(text.replace("\n", "\r\n")).files[0].added == [(3, "b = 3")]
    assert read_changes(text.replace("\n", "\r\n")).faults == ()


def test_a_diff_inside_a_diff_is_content() -> None:
    inner = "".join(f"+{line}\n" for line in SMALL.splitlines())
    text = f"--- /dev/null\n+++ b/x.patch\n@@ -0,0 +1,6 @@\n{inner}"
    reading = read_changes(text)
    assert [change.path for change in reading.files] == ["x.patch"]
    assert reading.files[0].hunks[0].new_text() == SMALL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL.replace("+b = 3\n", ""), "shorter than expected"),
        (SMALL + "+c = 4\n", "longer than expected"),
        (SMALL.replace("-1,2 +1,2", "-1,1 +1,1"), "longer than expected"),
        (SMALL.replace("-1,2 +1,2", "-0,0 +0,0"), "longer than expected"),
        (SMALL.replace("@@ -1,2 +1,2 @@", "@@ somewhere @@"), "no readable change"),
        ("@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "without a file header"),
        ("diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n+a\n", "no readable change"),
        ("--- a/x.py\n+++ b/x.py\n", "no readable change"),
        ("diff --git a/x.py b/x.py\n", "no readable change"),
        ("diff --cc x.py\n@@@ -1,1 -1,1 +1,1 @@@\n", "combined diff"),
        ("```diff\n-a\n+b\n```\n", "without a file header"),
        ("*** a/x.py\n--- b/x.py\n***************\n*** 1,2 ****\n! a\n--- 1,2 ----\n! b\n", "a context diff"),
        ("Apply:\n1a2\n> os.system(input())\n", "a diff without file names"),
        ("2,3d1\n< check(user)\n< log(user)\n", "a diff without file names"),
        ("Binary files a/run and b/run differ\n", "without git's header"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, words: str) -> None:
    faults = read_changes(text).faults
    assert faults
    assert words in faults[0]


HEAD = "diff --git a/x.py b/x.py\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SMALL + "--- c\n+d = 1\n", "longer than expected"),
        (SMALL.replace(" a = 1\n", "\rimport os\n"), "shorter than expected"),
        (SMALL.replace("-1,2", "-\u0661,2"), "no readable change"),
        (SMALL.replace(" a = 1\n", " a = 1\n\\ No newline at end of file\n"), "goes on after the end"),
        (SMALL.replace("+b = 3\n", "+b = 3\n+c = 4\n").replace("+1,2", "+1,3") + "@@ -2 +3 @@\n-b\n+c\n", "overlap"),
        (SMALL + "@@ -1 +1 @@\n-b\n+c\n", "out of order"),
        (HEAD + "deleted file mode 100644\n" + SMALL, "is deleted by its header"),
        (HEAD + "new file mode 100644\n" + SMALL, "is added by its header"),
        (HEAD + "rename from x.py\nrename to docs/x.md\n" + SMALL, "has a second name, b/x.py"),
        (HEAD + "copy from y.py\ncopy to x.py\n" + SMALL, "has a second name, a/x.py"),
        (HEAD + "new file mode 100644\nnew file mode 100755\n", "contradicts one above it"),
        (HEAD + "rename from x.py\nrename to y.py\ncopy from x.py\ncopy to z.py\n", "contradicts one above it"),
        ("@@@ -1,1 -1,1 +1,2 @@@\n++import os\n", "combined diff"),
        (HEAD + "index 1234567..89abcde 160000\n" + SMALL, "submodule"),
        (SMALL.replace("b = 3", "Subproject commit " + "a" * 40), "submodule"),
        (HEAD + "new file mode 160000\nindex 0000000..89abcde\n", "submodule"),
        ("Submodule lib/x 1234567..89abcde:\n  > Fix it\n", "submodule"),
    ],
)  # fmt: skip
def test_damage_that_unidiff_accepts_is_a_fault(text: str, words: str) -> None:
    """Fails where a diff that git refuses, or one that hides its content, is read as a whole one."""
    reading = read_changes(text)
    assert [fault for fault in reading.faults if words in fault]
    assert not any(change.is_whole for change in reading.files)


@pytest.mark.parametrize("options", [["-U0"], ["-U1"], []], ids=str)
def test_adjacent_hunks_do_not_overlap(repository: Path, options: list[str]) -> None:
    """Fails if an insertion without context, whose header names the line before it, counts as an overlap."""
    (repository / "near.py").write_text("".join(f"x{at} = {at}\n" for at in range(12)))
    git(repository, "add", "near.py")
    lines = [f"x{at} = {at}\n" for at in range(12)]
    del lines[8]
    (repository / "near.py").write_text("".join(["new\n", *lines[:3], "in\n", lines[3], *lines[5:], "end\n"]))
    reading = read_changes(git(repository, "diff", *options, "near.py"))
    git(repository, "rm", "-qf", "near.py")
    assert reading.faults == ()
    assert [text for _, text in reading.files[0].added] == ["new", "in", "end"]


def test_a_line_after_a_binary_patch_stays_prose() -> None:
    """Fails if a command of one word is taken for data, as nobody reads data."""
    data = "GIT binary patch\nliteral 4\nLc${NkU|;|M00aO5\n\nliteral 0\nHcmV?d00001\n\nreboot\n"
    reading = read_changes(HEAD + "index 1234567..89abcde 100644\n" + data)
    assert (reading.files[0].is_binary, reading.faults) == (True, ())
    assert [line for line in reading.prose.split("\n") if line] == ["reboot"]


def test_the_readable_hunks_of_a_broken_diff_are_kept_and_marked() -> None:
    change = read_changes(SMALL + "@@ -20,3 +20,3 @@\n a\n").files[0]
    assert len(change.hunks) == 1


@pytest.mark.parametrize(
    "text", ["", "plain prose\n--- and a rule\n", "diff --git is a command\n", "a\n---\nb\n"]
)
def test_prose_is_no_diff(text: str) -> None:
    assert read_changes(text) == ScannedText()


def test_what_is_no_diff_stays_where_it_is() -> None:
    reading = read_changes(f"Why\n{SMALL}\nThen\n```diff\n{SMALL}```\n")
    assert reading.prose.split("\n") == ["Why", *[""] * 7, "Then", "```diff", *[""] * 6, "```"]


def test_the_lines_that_a_damaged_diff_leaves_are_no_prose() -> None:
    """Fails if a key that such a diff takes away is read as one that somebody wrote."""
    reading = read_changes(f"{SMALL}+c = 4\n-KEY = 5\n\nThen\n- more\n")
    assert len(reading.faults) == 1
    assert reading.prose.split("\n")[6:] == ["+c = 4", "", "", "Then", "- more"]


@pytest.mark.parametrize(
    "text",
    [
        "@@ -1,2 +1,2 @@\n token = 1\n-b\n\\ c\n",
        "diff --cc x.py\n- a\n  b\n",
        "--- a/x.py\n+++ b/x.py\n a\n token = 1\n",
        "--- a/x.py\n+++ b/x.py\n+y\n token = 1\n-b\n",
        "--- a/x.py\n+++ b/x.py\n@@ somewhere @@\n token = 1\n",
    ],
    ids=["hunk without a file", "combined", "names alone", "no header", "unreadable header"],
)
def test_what_an_odd_diff_is_followed_by_stays_prose(text: str) -> None:
    """Fails where lines that no hunk has are blanked: then nobody reads them."""
    reading = read_changes(text)
    assert reading.faults
    assert [line for line in reading.prose.split("\n") if line][-1] == text.split("\n")[-2]
    assert "token" in reading.prose or "combined" in reading.faults[0]


LINKED = "--- /dev/null\n+++ b/app.py\n@@ -0,0 +1 @@\n+../a\n\\ No newline at end of file\n"


@pytest.mark.parametrize(
    ("head", "is_link"),
    [
        ("new file mode 120000\nindex 0000000..1234567\n" + LINKED, True),
        ("old mode 100644\nnew mode 120000\nindex 1234567..1234568\n" + LINKED, True),
        ("index 1234567..1234568 120000\n" + LINKED, True),
        ("deleted file mode 120000\nindex 1234567..0000000\n", True),
        ("old mode 120000\nnew mode 100644\nindex 1234567..1234568\n" + LINKED, False),
        ("deleted file mode 120000\nnew file mode 100644\nindex 1234567..1234568\n" + LINKED, False),
        ("new file mode 100644\nindex 0000000..1234567 120000\n" + LINKED, False),
        ("new file mode 100644\nindex 0000000..1120000\n" + LINKED, False),
        (f"new file mode 100644\nindex {'0' * 40}..{'a' * 34}120000\n" + LINKED, False),
        ("rename from f120000\nrename to app.py\nindex 1234567..1234568 100644\n" + LINKED, False),
        ("copy from f\ncopy to 120000\nindex 1234567..1234568 100644\n" + LINKED, False),
        ("new file mode 120000\n" + LINKED.replace("+1 @@\n", "+1,2 @@\n+import os\n"), False),
    ],
)
def test_a_link_is_known_by_its_new_mode_alone(head: str, is_link: bool) -> None:
    """Fails where a hash or a name that ends as a link's mode does makes a link of a program."""
    (change,) = read_changes("diff --git a/app.py b/app.py\n" + head).files
    assert change.is_link == is_link


def test_code_blocks() -> None:
    text = "Intro\n\n```Python title=x\na = 1\n```\n- item\n  ~~~\n  b\n    c\n  ~~~\n```js\nnever closed"
    blocks = read_changes(text).blocks
    assert [(block.language, block.code, block.line) for block in blocks] == [
        ("python", "a = 1\n", 3),
        ("", "b\n  c\n", 7),
        ("js", "never closed\n", 11),
    ]


def test_an_indented_block_may_hold_a_diff() -> None:
    text = "1. do\n\n   ```diff\n" + "".join(f"   {line}\n" for line in SMALL.splitlines()) + "   ```\n"
    assert read_changes(text).files[0].added == [(2, "b = 3")]


PARTS = st.sampled_from(
    [*SMALL.splitlines(), "diff --git a/x b/y", "rename from x", "rename to y", "```", "~~~ diff", "\\ No newline",
     "", "GIT binary patch", "Binary files a and b differ", "@@ -0,0 +1 @@", "new file mode 100644",
     '+++ "b/\\30', "\r"]
)  # fmt: skip


@given(st.lists(PARTS | st.text(max_size=20), max_size=30))
def test_any_text_gives_a_reading(lines: list[str]) -> None:
    reading = read_changes("\n".join(lines))
    for change in reading.files:
        for hunk in change.hunks:
            assert all(line.tag in " +-" for line in hunk.lines)


@given(st.lists(PARTS | st.sampled_from([SMALL.rstrip("\n"), "+d = 1", "--- c", "@@ -1 +1 @@"]), max_size=30))
def test_what_a_text_adds_is_in_the_files_or_in_the_prose_or_a_fault_is_said(lines: list[str]) -> None:
    """Fails if a line that a damaged diff adds is dropped without a word."""
    text = "\n".join(lines)
    reading = read_changes(text)
    seen = {added for change in reading.files for _, added in change.added} | set(reading.prose.split("\n"))
    added = {line for line in text.split("\n") if line.startswith("+") and not line.startswith("+++ ")}
    assert reading.faults or {line for line in added if line not in seen and line[1:] not in seen} == set()


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8), max_size=20
    ),
    st.lists(
        st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=8), max_size=20
    ),
)
def test_a_whole_diff_gives_both_files_back(old: list[str], new: list[str]) -> None:
    """Caught if line counting, blank context lines or splitting at other separators than \\n went wrong."""
    lines = difflib.unified_diff([f"{x}\n" for x in old], [f"{x}\n" for x in new], "a/x", "b/x", n=10**6)
    reading = read_changes("".join(lines))
    assert reading.faults == ()
    if old != new:
        (hunk,) = reading.files[0].hunks
        assert hunk.old_text() == "".join(f"{x}\n" for x in old)
        assert hunk.new_text() == "".join(f"{x}\n" for x in new)


@pytest.mark.parametrize(
    "text",
    at_first(6,
     "@@ -1 +1 @@\n" * 40_000, "--- a\n+++ b\n" * 40_000, "diff --git " + "a:// " * 100_000, "```\n" * 125_000,
     "--- " + "a/ " * 150_000 + "\n+++ b\n", "Binary files " + " and " * 100_000 + " differ\n", "`" * 500_000,
     "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n" * 15_000, "@@ -1,999999999 +1,999999999 @@\n" + " a\n" * 150_000,
     SMALL + "\\ No newline at end of file\n" * 40_000, SMALL + "@@ -1 +1 @@\n-a\n+b\n" * 30_000,
     "--- a\n+++ b\n@@ -0,0 +1,95000 @@\n" + "+a\n" * 95_000, "Submodule " + " abcdef0" * 60_000,
     "diff --git a/x b/y\n" + "rename from x\n" * 40_000, "Submodule a abcdef0\n" * 30_000),
    ids=range(15),
)  # fmt: skip
def test_half_a_megabyte_of_anything_is_read_in_the_time_of_its_length(text: str) -> None:
    readings = []
    assert growth(lambda part: readings.append(read_changes(part)), text) < GROWTH_MAX
    reading = readings[-1]  # of the whole
    assert len(reading.files) <= 2_000
    assert len(reading.faults) <= 201
