"""Commands where something around them is wrong: the output, the state folder, whose working folder it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from council.agents.mind import Opinion, Ruling
from council.api.client import Council
from council.cluster import known
from tests.examples import at_first
from tests.patience import HANG_S

from .conftest import Chair, Cli, Repository, council_of, entry

Up = Callable[[Council], Council]
ASKS = Chair(Opinion.no("too risky", risk_level="high"), Ruling("human", "a person must see this"))
PROPOSE = (sys.executable, "-P", "-m", "council.cli", "propose", "Raise the cache limit", "--inline")


@pytest.mark.parametrize(
    ("arguments", "where"),
    at_first(
        3,
        (PROPOSE, ">/dev/full"),
        ((*PROPOSE, "--json"), ">&-"),
        ((*PROPOSE[:4], "--help"), ">/dev/full"),
        (PROPOSE, ">&-"),
        ((*PROPOSE, "--json"), ">/dev/full"),
    ),
)
def test_an_output_that_cannot_be_written_is_told_in_one_line_with_a_code_of_its_own(
    arguments: tuple[str, ...], where: str
) -> None:
    command = ["sh", "-c", f'"$@" {where}', "sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 74, done.stderr
    assert done.stderr.count("can't be written") == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_an_input_that_is_closed_is_an_empty_one() -> None:
    """Mutation: to read from what is not there, and call it a fault of the council's own."""
    command = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-P", "-m", "council.cli", "review", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, "standard input is empty" in done.stderr) == (2, True), done.stderr


def test_nobody_is_waited_for_in_a_council_of_the_commands_own(
    cli: Cli, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: it waits, for a day."""
    repository.commit("Note", note__md="words\n")
    monkeypatch.setattr(Council, "propose", lambda *_, **__: pytest.fail("it was proposed"))
    for what in (["propose", "Drop the table", "--inline"], ["review"]):
        said = cli(*what, "--wait-for-human")
        assert (said.code, "council up" in said.err) == (2, True)


def test_a_review_needs_no_folder_to_keep_keys_in(
    cli: Cli, repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository.commit("Note", note__md="words\n")
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "below"))  # no folder can be made there
    said = cli("review", "--json")
    assert said.code in (0, 1, 3), said.err
    assert not list(tmp_path.rglob("*.key"))


def test_an_answer_goes_to_no_ray_that_a_file_of_the_working_folder_names(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a cloned repository's council.toml has an answer signed towards whoever listens there."""
    asked: list[str | None] = []

    def connect(*_: object, config: object, **__: object) -> Council:
        asked.append(config.ray_address)  # type: ignore[attr-defined]
        raise AssertionError("connected")

    monkeypatch.setattr(Council, "connect", connect)
    (home / "council.toml").write_text('ray_address = "192.0.2.1:6379"\n', encoding="utf-8")
    said = cli("answer", "esc-00ff", "--approve")
    assert (said.code, asked) == (2, [])
    assert f"--config {home / 'council.toml'}" in said.err
    for told in (["--config", "council.toml"], ["--address", "192.0.2.1:6379"]):
        cli("answer", "esc-00ff", "--approve", *told)
        monkeypatch.chdir(home)  # which the command has left
    monkeypatch.setenv("COUNCIL_RAY_ADDRESS", "192.0.2.1:6379")
    cli("answer", "esc-00ff", "--approve")
    monkeypatch.delenv("COUNCIL_RAY_ADDRESS")
    monkeypatch.chdir(home)
    known.write(entry("council", pid=os.getpid()))
    assert cli("answer", "esc-00ff", "--approve").code == 2
    (home / "council.toml").write_text('ray_address = "127.0.0.1:1"\n', encoding="utf-8")
    cli("answer", "esc-00ff", "--approve")  # where council up has brought it up
    assert asked == ["192.0.2.1:6379"] * 3 + ["127.0.0.1:1"]


def test_doctor_imports_nothing_that_a_file_of_the_working_folder_names(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "trap.py").write_text("open('sprung', 'w')\ndef mind(case): ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(home)
    told = 'ray_address = "192.0.2.1:6379"\n[seats.lite]\nmind = "trap:mind"\n'
    (home / "council.toml").write_text(told, encoding="utf-8")
    monkeypatch.setattr(Council, "connect", lambda *_, **__: pytest.fail("connected"))
    said = cli("doctor", "--ray")
    assert said.code == 0
    assert not (home / "sprung").exists()
    for words in ("trap:mind is named by", "192.0.2.1:6379 is named by", "not started"):
        assert words in " ".join(said.out.split())


def test_a_position_that_never_was_is_wrong_usage(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    council.propose("Drop the table")
    said = cli("watch", "--once", "--since", "999999")
    assert (said.code, said.out) == (2, "")
    assert "never had them" in said.err
    assert "no longer kept" not in said.err
    assert cli("watch", "--once", "--since", "-5").code == 2
