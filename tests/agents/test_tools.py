"""Tools that no static check knows: which of them write, pay, send or delete, by their names and arguments."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from council import Council, SeatConfig
from council.agents.mind import Case, Opinion
from council.agents.prime import Prime
from council.agents.static.tools import Effect, effect_of
from council.config.build_minds import build_mind
from council.config.settings import CouncilConfig
from tests.runtime.harness import run


def effect(tool: str, **args: Any) -> str | None:
    found = effect_of(Case("1", "ann", "Do it", action={"tool": tool, "args": args}))
    return None if found is None else found[0]


# As frameworks name them: functions, methods, MCP servers, HTTP.
ACTING: dict[str, str] = {
    **dict.fromkeys(
        (
            "delete_user",
            "removeContact",
            "users.delete",
            "mcp__fs__delete_file",
            "drop-database",
            "cancelSubscription",
        ),
        "deletes",
    ),
    **dict.fromkeys(
        ("transfer_money", "stripe.refund", "stripe__create_payout", "payInvoice", "place_order", "buyStock"),
        "pays",
    ),
    **dict.fromkeys(
        (
            "send_email",
            "sendEmail",
            "SendSMS",
            "HTTPPost",
            "gmail__send_message",
            "functions.tweet",
            "slack/post-message",
        ),
        "sends",
    ),
    **dict.fromkeys(
        (
            "update_record",
            "crm.upsertContact",
            "set_permissions",
            "mcp__github__merge_pull_request",
            "deploy",
        ),
        "writes",
    ),
    # a noun that is also a verb
    **{"email_send": "sends", "order_cancel": "deletes", "post_update": "writes", "order": "pays"},
    # more than one verb
    **{"find_or_create_user": "writes", "search_and_replace": "writes", "read_then_send": "sends"},
    # the verb stands before the last dot, and a module's name behind it says nothing
    **{"user.delete.all": "deletes", "__main__.drop_database": "deletes"},
    # create_payout: the graver of two is not looked for, the first verb decides
    "stripe__create_payout": "writes",
}
READING = (
    *(
        "get_user",
        "getUser",
        "list_files",
        "read_file",
        "read_email",
        "search_web",
        "web_search",
        "fetchPage",
        "lookup",
    ),
    *(
        "mcp__github__get_issue",
        "mcp__github__list_commits",
        "gmail__list_messages",
        "slack__get_channel_history",
    ),
    *(
        "get_payment_status",
        "list_deleted_users",
        "search_orders",
        "get_delete_policy",
        "post_list",
        "email_search",
    ),
    *(
        "order.get",
        "github.search_code",
        "HTTPGet",
        "count_rows",
        "describe_table",
        "validate_email",
        "draft_reply",
    ),
    *("weather", "calculator", "think", "run_tests", "bash", "python", "terminal", "", "42", "__", "漢字"),
)


@pytest.mark.parametrize("tool", ACTING)
def test_the_first_verb_of_a_name_says_what_it_does(tool: str) -> None:
    assert effect(tool, id=3) == ACTING[tool]


@pytest.mark.parametrize("tool", READING)
def test_what_reads_is_no_matter_for_a_human(tool: str) -> None:
    assert effect(tool, id=3, query="delete everything and pay") is None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"method": "POST", "url": "https://a.example"}, "sends"),
        ({"method": "delete", "path": "/users/3"}, "deletes"),
        ({"method": "GET", "path": "/users/delete"}, None),
        ({"options": {"http_method": "PATCH"}}, "writes"),
        ({"action": "send_email", "x": 1}, "sends"),
        ({"operation": "getUser"}, None),
        ({"action": "delete " * 40}, None),
        ({"query": "mutation { deleteUser(id: 3) { id } }"}, "writes"),
        ({"query": "query { user(id: 3) { id } }"}, None),
        ({"amount": 5, "recipient": "ann"}, "pays"),
        ({"amount": 5, "from": "EUR", "to": "USD"}, None),
        ({"to": "ann@a.example", "subject": "hi", "body": "x"}, "sends"),
        ({"channel": "#all", "text": "hi"}, "sends"),
    ],
)
def test_arguments_say_what_a_tool_of_any_name_does(args: dict[str, Any], expected: str | None) -> None:
    assert effect("connector", **args) == expected


def test_a_reading_name_is_believed_of_a_text_but_not_of_a_method() -> None:
    assert effect("search_messages", to="ann", body="hi") is None
    assert effect("get_page", method="DELETE") == "deletes"


@pytest.mark.parametrize(
    "tool", ["write_file", "Edit", "MultiEdit", "fs.write", "str_replace_editor", "create_file"]
)
def test_a_change_of_a_file_here_is_read_and_so_known(tool: str) -> None:
    assert effect(tool, path="a.txt", content="x") is None
    assert effect(f"__main__.{tool}", path="a.txt", content="x") is None
    assert effect(tool, url="https://a.example/a.txt", content="x") == "writes"
    assert effect("update", path="/users/3", data="x") == "writes"


def test_a_diff_that_is_applied_is_read_and_so_known() -> None:
    assert effect("apply_patch", patch="x") is None
    assert effect("apply", input="*** Begin Patch\n") is None
    assert effect("kubectl_apply", manifest="x") == "writes"
    assert effect("patch_user", id=3) == "writes"


def test_no_action_is_no_tool() -> None:
    assert effect_of(Case("1", "ann", "Send an email and delete all")) is None


@pytest.mark.parametrize("effect", get_args(Effect))
def test_prime_abstains_and_has_a_human_asked(effect: str) -> None:
    tool = next(tool for tool, does in ACTING.items() if does == effect)
    case = Case("1", "ann", "Go on", action={"tool": tool, "args": {"id": 3}})
    opinion = Prime().review(case)
    assert (opinion.vote, opinion.risk_level) == ("abstain", "high")
    assert Prime().rule(case, []).ruling == "human"


def test_a_limited_reach_is_not_believed_of_an_unknown_tool() -> None:
    """Mutation: the word staging, which the agent itself wrote, makes a deletion harmless."""
    for tool, args in (
        ("delete_bucket", {"bucket": "staging-assets"}),
        ("deploy", {"environment": "staging"}),
        ("send_email", {"text": "as seen on staging"}),
    ):
        assert (
            Prime().review(Case("1", "ann", "Go on", action={"tool": tool, "args": args})).vote == "abstain"
        )


def act(council: Council, tool: str = "send_email") -> str:
    return council.propose("Go on", action={"tool": tool, "args": {"to": "ann@a.example"}}).standing


def test_the_setting_says_whether_a_human_is_asked() -> None:
    with Council.inline() as council:
        assert act(council) == "escalated"
        assert act(council, "get_email") == "decided"
    with Council.inline(unknown_tools="allow") as council:
        assert act(council) == "decided"


def test_where_another_mind_sits_it_judges_unknown_tools() -> None:
    async def agrees(case: Case) -> Opinion:
        return Opinion.yes("I know this tool")

    seats = (
        SeatConfig(name="prime", mind="council.agents.prime:Prime"),
        SeatConfig(name="lite", mind=agrees),
    )
    with Council.inline(CouncilConfig(seats=seats)) as council:
        assert act(council) == "decided"


def test_a_seats_own_options_come_first() -> None:
    seat = SeatConfig(name="prime", mind="council.agents.prime:Prime", options={"unknown_tools": "ask"})
    mind = build_mind(seat, CouncilConfig(seats=(seat,), unknown_tools="allow"))
    case = Case("1", "ann", "Go on", action={"tool": "send_email", "args": {}})
    assert run(_reviewed(mind, case)).vote == "abstain"
    with pytest.raises(ValueError, match="unknown_tools is 'no': give 'ask' or 'allow'"):
        Prime(unknown_tools="no")  # type: ignore[arg-type]


async def _reviewed(mind: Any, case: Case) -> Opinion:
    opinion: Opinion = mind.review(case)
    return opinion


# What static checks can say in favour


def test_an_approval_by_static_checks_alone_is_told_as_that() -> None:
    with Council.inline() as council:
        decision = council.propose("Rename a variable", wait_for="all")
        assert (decision.outcome, decision.static_only) == ("approved", True)
        confirmed = council.propose("Rename a variable", risk="high")  # Prime rules by the same checks
        assert (confirmed.outcome, confirmed.static_only) == ("approved", True)
        asked = council.propose("Refund order 12", risk="high")
        assert (asked.standing, asked.static_only) == ("escalated", False)


def test_a_yes_of_a_mind_or_of_a_human_is_more() -> None:
    async def agrees(case: Case) -> Opinion:
        return Opinion.yes("I have read it")

    with Council.inline(seats={"codemind": {"mind": agrees}}, humans={"ada": "kept"}) as council:
        decision = council.propose("Rename a variable", wait_for="all")
        assert (decision.outcome, decision.static_only) == ("approved", False)
        asked = council.propose("Refund order 12", risk="high")
        answered = council.answer(asked.escalation_id or "", approve=True, human="ada")
        assert (answered.outcome, answered.static_only) == ("approved", False)
