"""Humans' keys: one for each name, kept from others, whole or not at all, in no other folder."""

from __future__ import annotations

import getpass
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council import humans
from council.humans import KEY_BYTES, human_key, me, state_dir
from council.protocol.envelope import SENDER_PATTERN
from council.protocol.errors import CallerError, OperatorError


def test_a_key_is_made_once_and_stays(tmp_path: Path) -> None:
    key = human_key("ada", tmp_path)
    assert len(key) == KEY_BYTES
    assert human_key("ada", tmp_path) == key
    assert human_key("bob", tmp_path) != key


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    human_key("ada", tmp_path)
    file = tmp_path / "humans" / "ada.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [each.name for each in file.parent.iterdir()] == ["ada.key"], "a half-made key was left behind"
    file.chmod(0o640)
    with pytest.raises(OperatorError, match="chmod 600"):
        human_key("ada", tmp_path)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * (KEY_BYTES + 1)])
def test_what_is_no_key_is_never_used(tmp_path: Path, content: bytes) -> None:
    human_key("ada", tmp_path)
    (tmp_path / "humans" / "ada.key").write_bytes(content)
    with pytest.raises(OperatorError, match=f"holds {len(content)} bytes"):
        human_key("ada", tmp_path)


@pytest.mark.parametrize(
    "name", ["", "..", "../evil", "a/b", "/etc/passwd", "a\0b", "Ada", "ada ", ".ada", "ä", "x" * 65, "a\nb"]
)
def test_a_name_that_is_none_is_refused_and_makes_no_file(tmp_path: Path, name: str) -> None:
    """Mutation: without the check, answer(human="../../x") writes a key outside of its folder."""
    with pytest.raises(CallerError, match="no human's name"):
        human_key(name, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_the_operators_matter(tmp_path: Path) -> None:
    (tmp_path / "humans").write_text("in the way")
    with pytest.raises(OperatorError, match="can't be kept"):
        human_key("ada", tmp_path)


def test_all_who_come_first_at_once_get_the_same_key(tmp_path: Path) -> None:
    """Mutation: a key written into its place after it was made there is read half by another."""
    for n in range(20):
        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(lambda _, n=n: human_key(f"ada{n}", tmp_path), range(8)))  # type: ignore[misc]
        assert len(found) == 1
    assert len(list((tmp_path / "humans").iterdir())) == 20


def test_the_state_folder() -> None:
    assert state_dir({"XDG_STATE_HOME": "/var/x"}) == Path("/var/x/council")
    assert state_dir({"XDG_STATE_HOME": ""}) == Path.home() / ".local" / "state" / "council"
    assert state_dir() == Path(os.environ["XDG_STATE_HOME"]) / "council"


@given(st.text(max_size=100))
def test_me_is_always_a_senders_name(user: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(getpass, "getuser", lambda: user)
        assert re.fullmatch(SENDER_PATTERN, me())


def test_me_without_a_user() -> None:
    def nobody() -> str:
        raise KeyError("uid 4711")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(humans.getpass, "getuser", nobody)
        assert me() == "human"
