"""Councils for users' tests: they decide as their names say, whatever is proposed."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from council import Action, Council, NotApproved
from council.protocol.errors import ConfigError
from council.testing import approving, escalating, rejecting
from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent
RISKS: tuple[Literal["low", "high"], ...] = ("low", "high")  # at a high risk, Prime rules
PLUGIN = "council.testing.plugin"


@pytest.mark.parametrize(
    ("made", "outcome"), [(approving, "approved"), (rejecting, "rejected"), (escalating, None)]
)
def test_it_decides_as_its_name_says(made: Callable[..., Council], outcome: str | None) -> None:
    with made("for a reason of mine") as council:
        for risk in RISKS:
            for action in (None, Action("shell", {"command": "rm -rf /"})):
                decision = council.propose("x", risk=risk, action=action)
                assert decision.outcome == outcome
                assert outcome == "approved" or "for a reason of mine" in str(decision)
                assert {ballot.reason for ballot in decision.ballots} == {"for a reason of mine"}


def test_what_waits_can_be_answered_and_what_is_guarded_runs_or_not() -> None:
    with escalating() as council:
        waiting = council.propose("x")
        assert waiting.escalation_id is not None
        assert council.answer(waiting.escalation_id, approve=True)
    with approving() as council:
        assert council.guard(lambda: 3)() == 3
    with (
        rejecting("not on a Friday") as council,
        pytest.raises(NotApproved, match="rejected: prime: not on a Friday"),
    ):
        council.guard(lambda: 3)()


def test_settings_of_the_machine_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "council.toml").write_text('name = "mine"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNCIL_QUORUM", "nonsense")
    with approving(quorum=3) as council:
        assert (council.config.name, council.config.quorum) == ("council", 3)


def test_nothing_is_written_to_the_users_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the key of the human who answers is kept in the state folder, as for other councils."""
    for name, variable in (("home", "HOME"), ("state", "XDG_STATE_HOME"), ("temporary", "TMPDIR")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    monkeypatch.setattr(tempfile, "tempdir", None)  # what it found before
    with escalating() as council:
        waiting = council.propose("x")
        assert council.answer(str(waiting.escalation_id), approve=True)
    del council
    gc.collect()
    with pytest.raises(ConfigError):
        escalating(quorum=99)
    assert [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")] == ["home", "state", "temporary"]


def test_seats_are_refused() -> None:
    """Mutation: they are ignored, and the test tests other minds than it says."""
    with pytest.raises(TypeError, match="have their own seats"):
        approving(seats=[])


TESTS = """
import sys

LIGHT = not {"ray", "pydantic", "council.api.client"} & sys.modules.keys()


def test_fixtures(council_approves, council_rejects, council_escalates):
    assert LIGHT, "pytest's start loaded the whole council"
    assert council_approves.propose("x")
    assert council_rejects.propose("x").outcome == "rejected"
    assert council_escalates.propose("x").escalation_id
"""


def test_the_fixtures_are_found_by_the_entry_point_and_pytest_starts_light(tmp_path: Path) -> None:
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"council": PLUGIN}
    (tmp_path / "test_it.py").write_text(TESTS)
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
