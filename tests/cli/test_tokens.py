"""``council tokens`` and ``council revoke``: what approvals allow is shown, and taken back under a human's key."""

from __future__ import annotations

import json
from collections.abc import Callable

from council.api.client import Council
from council.config.human_keys import current_user
from tests.cli.conftest import Cli, council_of

Up = Callable[[Council], Council]


def approved(council: Council, path: str) -> str:
    allows = {"executor": "exec", "operations": ["write"], "resources": [f"file:{path}"]}
    action = {"tool": "put", "args": {"path": path}, "authorization": allows}
    return council.propose("Put it there", action=action).proposal_id


def test_tokens_are_shown_and_a_human_revokes_one_by_a_prefix(cli: Cli, up: Up) -> None:
    council = up(council_of())
    assert "no token may be used" in cli("tokens").out
    first, second = approved(council, "/srv/x"), approved(council, "/srv/y")
    said = cli("tokens")
    assert said.code == 0
    for each in (first, second):
        assert f"token_{each}" in said.out
    assert "0 of 1" in said.out
    shown = cli("revoke", f"token_{first}", "--reason", "the plan changed")
    assert shown.code == 0, shown.err
    assert f"token_{first} is revoked" in shown.out
    tokens = json.loads(cli("tokens", "--json").out)["tokens"]
    assert [(each["token_id"], each["standing"]) for each in tokens] == [
        (f"token_{second}", "live"),
        (f"token_{first}", "revoked"),
    ]
    assert tokens[1]["revoked"] == f"by {current_user()}: the plan changed"
    assert "the plan changed" in cli("tokens").out
    log = cli("log", "--type", "revocation")
    assert log.code == 0
    assert "revokes the token" in log.out
    assert "1 live" in cli("status").out


def test_an_unknown_token_is_an_error(cli: Cli, up: Up) -> None:
    up(council_of())
    said = cli("revoke", "token_00000000", "--json")
    assert said.code == 2
    assert json.loads(said.out)["error"]["code"] == "token_unknown"
