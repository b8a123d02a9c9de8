"""Humans' keys: one for each name, kept from others, whole or not at all, in no other folder."""

from __future__ import annotations

import getpass
import hmac
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.config import human_keys
from council.config.human_keys import (
    KEPT,
    KEY_BYTES,
    answering_key,
    council_key,
    current_user,
    human_key,
    keys_of_humans,
    state_dir,
)
from council.config.settings import CouncilConfig
from council.protocol.envelope import SENDER_PATTERN
from council.protocol.errors import CallerError, ConfigError, OperatorError


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
    with pytest.raises(CallerError, match="not a valid name of a human"):
        human_key(name, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CouncilConfig:
    """Ada's key is in the state folder, Bob's in a file, Eve's in a variable."""
    (tmp_path / "bob.key").write_bytes(b"b" * KEY_BYTES)
    (tmp_path / "bob.key").chmod(0o600)
    monkeypatch.setenv("EVE_ANSWERS", (b"e" * KEY_BYTES).hex())
    sources = {"ada": "kept", "bob": f"file:{tmp_path / 'bob.key'}", "eve": "env:EVE_ANSWERS"}
    return CouncilConfig(humans=sources)


def test_each_human_is_enrolled_with_a_key_for_that_council_alone(settings: CouncilConfig) -> None:
    found = keys_of_humans(settings, "one.0123")
    own = {"ada": human_key("ada"), "bob": b"b" * KEY_BYTES, "eve": b"e" * KEY_BYTES}
    assert found == {
        name: hmac.digest(key, b"council-runtime human v1one.0123", "sha256") for name, key in own.items()
    }
    assert not set(found.values()) & set(keys_of_humans(settings, "two.0123").values())
    for name in own:
        assert answering_key(name, settings, "one.0123") == found[name]


def test_by_default_the_user_who_launches_is_enrolled_and_settings_may_enrol_nobody() -> None:
    assert keys_of_humans(CouncilConfig(), "c.1") == {
        current_user(): council_key(current_user(), KEPT, "c.1")
    }
    assert keys_of_humans(CouncilConfig(humans={}), "c.1") == {}


def test_a_user_called_as_a_seat_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(human_keys, "current_user", lambda: "lite")
    with pytest.raises(ConfigError, match="humans: lite: a name of a seat"):
        keys_of_humans(CouncilConfig(), "c.1")


def test_a_key_that_cannot_be_had_ends_the_launch(
    settings: CouncilConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bob.key").chmod(0o640)
    with pytest.raises(OperatorError, match="open to others"):
        keys_of_humans(settings, "c.1")
    (tmp_path / "bob.key").unlink()
    with pytest.raises(OperatorError, match="can't be read"):
        keys_of_humans(settings, "c.1")
    assert not (tmp_path / "bob.key").exists(), "a key was made where the settings say that one is"
    alone = CouncilConfig(humans={"eve": "env:EVE_ANSWERS"})
    for value in ("", "secret words", "0a", "ab" * 33):
        monkeypatch.setenv("EVE_ANSWERS", value)
        with pytest.raises(ConfigError, match="EVE_ANSWERS holds no key") as caught:
            keys_of_humans(alone, "c.1")
        assert not value or value not in str(caught.value)
    monkeypatch.delenv("EVE_ANSWERS")
    with pytest.raises(ConfigError, match="EVE_ANSWERS, which is not set"):
        keys_of_humans(alone, "c.1")


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
        assert re.fullmatch(SENDER_PATTERN, current_user())


def test_me_without_a_user() -> None:
    def nobody() -> str:
        raise KeyError("uid 4711")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(human_keys.getpass, "getuser", nobody)
        assert current_user() == "human"


def test_a_relative_state_folder_counts_as_unset() -> None:
    assert state_dir({"XDG_STATE_HOME": "here"}) == Path.home() / ".local" / "state" / "council"
