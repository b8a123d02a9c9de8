"""``council tokens`` and ``council revoke``: what approvals allow is shown, and taken back under a human's key."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from council.api.client import Council, handle_of
from council.api.tools import FunctionTool
from council.config.human_keys import current_user
from council.protocol.errors import Refused
from council.runtime.executor import Executor
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


def test_a_human_answers_whether_an_action_ran(cli: Cli, up: Up) -> None:
    council = up(council_of())
    proposal_id = approved(council, "/srv/x")
    executor = handle_of(council).wait(used(council, proposal_id))
    question = f"esc-{proposal_id}-1"
    shown = cli("escalations")
    assert question in shown.out
    assert "file:/srv/x" in shown.out
    assert "1 proposal for a human" in cli("status").out
    assert cli("answer", question, "--approve").code == 2  # how it is known is the reason
    said = cli("answer", question, "--approve", "--reason", "it is there")
    assert said.code == 0, said.err
    assert "on the record: it ran" in said.out
    assert cli("answer", question, "--reject").code == 1
    assert "nothing waits" in cli("escalations").out
    log = cli("log", "--type", "answer")
    assert "answers that use 1 ran" in log.out
    assert "it is there" in cli("show", question).out
    handle_of(council).wait(executor.close())


async def used(council: Council, proposal_id: str) -> Executor:
    """An executor that uses the token, comes back, and has not reported: the outcome is unknown."""

    async def lost(*_: Any) -> bool:
        return False

    put = FunctionTool(
        lambda path: None, "put", "WRITE", ("write",), lambda path: [f"file:{path}"], None, None
    )
    for _ in range(2):
        executor = Executor(handle_of(council).port, "exec", b"k" * 32, 30.0, {"put": put})
        await executor.open()
        executor._report = lost  # type: ignore[method-assign]
        with contextlib.suppress(Refused):
            await executor.perform(proposal_id, "put", {"path": "/srv/x"}, 30.0)
    return executor
