"""Who asks, as a client says it: found without a program, without secrets, and kept with the proposal."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from council import Council, Requester
from council.api.requester import of_this_process
from council.protocol.envelope import REQUESTER_CHARS_MAX, Proposal
from council.protocol.errors import CallerError, CouncilError
from council.runtime.open_escalations import waiting_text
from tests.patience import HANG_S


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user, a home and a working folder that are known."""
    shop = tmp_path / "home" / "shop"
    shop.mkdir(parents=True)
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(socket, "gethostname", lambda: "web-3")
    monkeypatch.setattr(sys, "argv", ["/opt/bots/deploy_bot.py"])
    monkeypatch.chdir(shop)
    return shop


def git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True, timeout=HANG_S)


def requester(council: Council, **details: Any) -> Requester | None:
    content = council.draft("x", **details).content
    assert isinstance(content, Proposal)
    return content.requester


def test_a_client_says_who_asks(here: Path) -> None:
    assert of_this_process() == {"agent": "deploy_bot", "user": "ada", "host": "web-3", "folder": "~/shop"}
    assert of_this_process("release-bot")["agent"] == "release-bot"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://ada:hunter2@example.com/team/shop.git", "shop.git"),
        ("https://token@example.com/team/shop.git?key=hunter2#x", "shop.git"),
        ("git@example.com:team/shop.git", "shop.git"),
        ("ssh://git@example.com:22/team/shop/", "shop"),
        ("/srv/git/shop.git", "shop.git"),
        (None, "shop"),
    ],
)
def test_a_repository_has_the_name_of_its_remote_without_credentials(
    here: Path, monkeypatch: pytest.MonkeyPatch, url: str | None, name: str
) -> None:
    git("init", "--quiet", ".")
    if url is not None:
        git("remote", "add", "origin", url)
    inner = here / "src" / "deep"
    inner.mkdir(parents=True)
    for folder in (here, inner):
        monkeypatch.chdir(folder)
        found = of_this_process()
        assert found["repository"] == name
        assert "hunter2" not in str(found)
        assert "token" not in str(found)


def test_a_further_working_tree_is_of_the_same_repository(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "--quiet", ".")
    git("remote", "add", "origin", "https://example.com/shop.git")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--allow-empty", "-m", "x")
    git("worktree", "add", "--quiet", str(here.parent / "other"))
    monkeypatch.chdir(here.parent / "other")
    assert of_this_process()["repository"] == "shop.git"


@pytest.mark.parametrize("broken", ['[remote "origin"]\nurl = \n', "]not\x00ini[", "x" * 2**21, "\xff"])
def test_what_can_not_be_read_is_left_out(here: Path, broken: str) -> None:
    (here / ".git").mkdir()
    (here / ".git" / "config").write_text(broken, encoding="latin-1")
    assert of_this_process()["repository"] == "shop"
    (here / ".git" / "config").unlink()
    (here / ".git").rmdir()
    (here / ".git").write_text("gitdir: \x00nowhere")
    assert "repository" not in of_this_process()


def test_a_folder_that_is_gone_or_strange_stops_nobody(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = here / f"a\nb\x1b[2J\u202e{'x' * 200}" / os.fsdecode(b"\xff")
    strange.mkdir(parents=True)
    monkeypatch.chdir(strange)
    folder = of_this_process()["folder"]
    assert folder.startswith("~/shop/a b\\x1b[2J\\u202exxx")
    assert len(folder) <= REQUESTER_CHARS_MAX
    Requester(folder=folder)
    strange.rmdir()
    assert of_this_process() == {"agent": "deploy_bot", "user": "ada", "host": "web-3"}


def test_a_client_is_named_by_its_name_if_it_has_one(here: Path) -> None:
    with Council.inline(sender="release-bot") as council:
        assert str(requester(council)) == "release-bot for ada@web-3 in ~/shop"
    with Council.inline() as council:
        assert str(requester(council)) == "deploy_bot for ada@web-3 in ~/shop"


def test_a_caller_may_say_another(here: Path) -> None:
    bot = Requester(agent="bot", user="bob")
    with Council.inline() as council:
        assert requester(council, requester=bot) == bot
        assert str(requester(council, requester={"agent": "bot", "folder": None})) == "bot for ada@web-3"
        assert requester(council, requester=dict.fromkeys(Requester.model_fields)) == Requester()
        with pytest.raises(CallerError, match="requester is 'bot', expected a Requester, or a mapping"):
            requester(council, requester="bot")
        for wrong in ({"name": "x"}, {"user": "a\nb"}, {"host": 5}):
            with pytest.raises(CouncilError, match=r"content\.requester"):
                requester(council, requester=wrong)


def test_it_goes_with_the_proposal_to_the_human_and_through_a_restart(here: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store.db")
    bot = Requester(agent="bot", repository="shop.git")
    with Council.inline(store=store) as council:
        decision = council.propose(
            "Drop the production database",
            risk="high",
            action={"tool": "drop", "args": {"n": 1}},
            requester=bot,
        )
        assert not decision.final
        (before,) = council.escalations()
    with Council.inline(store=store) as council:
        (after,) = council.escalations()
        assert after == before
        assert (after.requester, after.risk, after.body) == (bot, "high", "")
        assert after.action is not None
        assert (after.action.tool, dict(after.action.args)) == ("drop", {"n": 1})
        assert after.command == f"council answer {decision.escalation_id}"
        assert (after.age_s(after.asked_wall_s + 5), after.time_left_s(after.expires_wall_s + 5)) == (5, 0)
        (row,) = council.status()["waiting"]
        assert row["requester"] == "bot (shop.git)"


def test_a_guard_says_who_asks(here: Path) -> None:
    with Council.inline() as council:

        @council.guard(risk="high", requester={"agent": "cron"})
        def drop_production_database() -> None:
            raise AssertionError("it was run")

        with pytest.raises(CouncilError):
            drop_production_database()
        (found,) = council.escalations()
    assert str(found.requester) == "cron for ada@web-3 in ~/shop"


def test_whoever_waits_is_told_what_for_and_how_it_is_answered() -> None:
    said = waiting_text("Drop it\n\u202e" + "x" * 500, "esc-1a2b")
    assert said.startswith("waits for a human: Drop it \\u202exxx")
    assert said.endswith("…; to answer: council answer esc-1a2b")
    assert len(said) < 300
