"""Actions handed to the council: proposed, approved, run once, and refused where anything differs (rules 5)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge

from council import AsyncCouncil, Council
from council.action.tool import OUTSIDE, Operation, Safety, ToolResult
from council.api.client import handle_of
from council.protocol.errors import (
    ActionFailed,
    CallerError,
    CouncilError,
    EnvelopeError,
    NameTaken,
    NoAnswer,
    NotApproved,
    OutcomeUnknown,
    Refused,
)
from council.runtime.executor import OUTPUT_CHARS_MAX, Executor, report_text
from council.runtime.session import Session
from tests.cases import each
from tests.patience import HANG_S

KEY = b"k" * 32


@pytest.fixture
def council() -> Iterator[Council]:
    with Council.inline(sender="bob", key=KEY) as running:
        yield running


def counting(council: Council, **how: Any) -> tuple[Any, list[Any]]:
    """A tool that notes its calls."""
    calls: list[Any] = []

    @council.tool(resources=lambda name, times: [f"file:/srv/{name}"], **how)
    def note(name: str, times: Annotated[int, Ge(1)] = 1) -> str:
        """Notes a name."""
        calls.append((name, times))
        return name * times

    return note, calls


def kinds(council: Council) -> list[str]:
    return [entry.kind for entry in council.history(newest_first=False)]


# Tools


def test_a_call_of_a_tool_is_proposed_approved_and_run_once(council: Council) -> None:
    note, calls = counting(council)
    assert note("ab", times=2) == "abab"
    assert calls == [("ab", 2)]
    assert kinds(council)[-2:] == ["use", "result"]
    (proposal,) = council.history(types=["proposal"], envelopes=True)
    assert proposal.envelope is not None
    action = proposal.envelope.content.action  # type: ignore[union-attr]
    assert action.args == {"name": "ab", "times": 2}
    assert action.authorization.model_dump() == {
        "executor": "bob.exec",
        "operations": ("write",),
        "resources": ("file:/srv/ab",),
        "uses": 1,
        "ttl_s": 600.0,
        "timeout_s": 60.0,
    }
    (token,) = council.tokens()
    assert (token.standing, token.tool, token.executor) == ("used", "note", "bob.exec")
    result = token.uses[0].result
    assert result is not None
    assert (result.outcome, result.text, result.sandbox) == ("ok", "abab", "outside")


def test_act_completes_the_arguments_and_says_what_came_of_it(council: Council) -> None:
    _, calls = counting(council)
    done = council.act("note", {"name": "x"}, summary="Note x", run_timeout_s=5, ttl_s=7)
    assert done
    assert (done.ok, done.outcome, done.value, done.output, done.reported) == (True, "ok", "x", "x", True)
    assert calls == [("x", 1)]
    assert done.token_id == f"token_{done.decision.proposal_id}"
    (token,) = council.tokens(done.decision.proposal_id)
    assert token.timeout_s == 5.0
    assert done.decision.summary == "Note x"


def test_async_functions_and_councils_are_awaited() -> None:
    async def go() -> list[Any]:
        async with AsyncCouncil.inline(sender="bob", key=KEY) as council:

            @council.tool(safety="READ")
            async def look(path: Path) -> str:
                await asyncio.sleep(0)
                return path.name

            @council.tool
            def total(a: int, b: int) -> int:
                return a + b

            done = await council.act("look", {"path": "/srv/x"})
            return [await look(Path("/srv/x")), await total(1, 2), done.value]

    assert asyncio.run(go()) == ["x", 3, "x"]


@each(
    ("args", "said"),
    [
        ({}, "missing a required argument: 'name'; its arguments are name, times"),
        ({"name": 7}, "argument name: Input should be a valid string"),
        ({"name": "x", "times": 0}, "argument times: Input should be greater than or equal to 1"),
        ({"name": "x", "more": 1}, "unexpected keyword argument 'more'"),
        (["x"], "args is ['x'], expected a mapping"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_proposed(args: Any, said: str) -> None:
    with Council.inline() as council:
        _, calls = counting(council)
        with pytest.raises(CallerError) as caught:
            council.act("note", args)
        assert said in caught.value.message
        with pytest.raises(CallerError, match="no tool is named 'notes'; the known tools are note"):
            council.act("notes", {})
        assert (calls, list(council.history(types=["proposal"]))) == ([], [])


@each(
    ("how", "said"),
    [
        ({"safety": "write"}, "safety is 'write', expected one of READ, WRITE, MIXED"),
        ({"operations": ["fly"]}, "expected a list of one or more of read, write, delete, modify"),
        ({"operations": []}, "expected a list of one or more"),
        ({"safety": "READ", "operations": ["read", "delete"]}, "a READ tool has the operation read alone"),
    ],
)
def test_wrong_declarations_are_refused(how: dict[str, Any], said: str) -> None:
    with Council.inline() as council, pytest.raises(CallerError) as caught:
        council.tool(lambda: None, name="x", **how)
    assert said in caught.value.message


def test_a_name_is_a_tools_own_and_its_arguments_have_names(council: Council) -> None:
    counting(council)
    with pytest.raises(CallerError, match="a tool named 'note' already"):
        counting(council)
    with pytest.raises(CallerError, match="name each argument"):
        council.tool(lambda *args: None, name="many")
    with pytest.raises(CallerError, match="expected a function"):
        council.tool("note")
    with pytest.raises(EnvelopeError, match="ttl_s"):
        council.act("note", {"name": "x"}, ttl_s=-1)


# What is not approved, fails, or hangs


def test_what_is_not_approved_is_not_run() -> None:
    from council.testing import rejecting

    with rejecting() as council:
        note, calls = counting(council)
        with pytest.raises(NotApproved, match="note was not run: rejected") as caught:
            note("x")
        assert caught.value.facts["decision"].outcome == "rejected"
        assert (calls, council.tokens()) == ([], [])


def test_a_failure_is_a_result_and_a_calls_own_error(council: Council) -> None:
    @council.tool
    def fail() -> None:
        raise LookupError("no such row")

    done = council.act("fail", {})
    assert not done
    assert (done.outcome, done.error) == ("failed", "LookupError: no such row")
    with pytest.raises(LookupError, match="no such row"):
        fail()
    alerts = [event.data for event in council.events(follow=False) if event.kind == "alert"]
    assert [alert["kind"] for alert in alerts] == ["action_failed"] * 2


def test_what_is_not_verified_is_reverted_where_that_is_possible(council: Council) -> None:
    undone: list[str] = []
    how: Any = {
        "verify": lambda result, name, times: name == "good",
        "revert": lambda name, times: undone.append(name),
    }
    note, _ = counting(council, **how)
    assert note("good") == "good"
    with pytest.raises(ActionFailed, match="not verified: verify gave False; it was reverted"):
        note("bad")
    assert undone == ["bad"]


def test_a_tool_that_hangs_has_an_unknown_outcome_and_is_not_run_again(
    council: Council, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("council.runtime.executor.LEFT_BEHIND_S", 0.01)
    ends, calls = threading.Event(), []

    @council.tool(run_timeout_s=0.05)
    def hang() -> None:
        calls.append(1)
        ends.wait()

    with pytest.raises(OutcomeUnknown, match="did not end within"):
        hang()
    (token,) = council.tokens()
    assert token.standing == "unknown"
    executor = handle_of(council).wait(handle_of(council).tools.executor())
    with pytest.raises(Refused, match="1 use, and 1 were counted"):
        handle_of(council).wait(executor.perform(token.proposal_id, "hang", {}, 1.0))
    ends.set()
    assert calls == [1]


# Tokens through the whole council


class Recording:
    """A tool that keeps what it was called with."""

    name = "record"
    safety: Safety = "WRITE"
    operations: tuple[Operation, ...] = ("write",)

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def check(self, args: Mapping[str, Any]) -> None:
        return

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        return ("file:/srv/x",)

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        self.calls.append(dict(args))
        return ToolResult(True, "done", "", None, OUTSIDE, 0.0, False)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        return ""


ALLOWS: dict[str, Any] = {"executor": "exec", "operations": ["write"], "resources": ["file:/srv/x"]}


class Bench:
    """A council, a tool, and its executor, which is handed what a test says."""

    def __init__(self, council: Council) -> None:
        self.council, self.tool = council, Recording()
        self.executor = self.joined("exec")

    def joined(self, name: str, key: bytes = KEY) -> Executor:
        port = handle_of(self.council).port
        executor = Executor(port, name, key, 30.0, {"record": self.tool})
        handle_of(self.council).wait(executor.open())
        return executor

    def approved(self, **allows: Any) -> str:
        action = {"tool": "record", "args": {"n": 1}, "authorization": {**ALLOWS, **allows}}
        decision = self.council.propose("Record it", action=action)
        assert decision
        return decision.proposal_id

    def run(self, proposal_id: str, args: Any = None, executor: Executor | None = None) -> Any:
        work = (executor or self.executor).perform(proposal_id, "record", args or {"n": 1}, 30.0)
        return handle_of(self.council).wait(work)

    def refused(
        self, code: str, proposal_id: str, args: Any = None, executor: Executor | None = None
    ) -> None:
        with pytest.raises(Refused) as caught:
            self.run(proposal_id, args, executor)
        assert caught.value.code == code, caught.value.message


def test_nothing_runs_that_differs_from_what_was_approved(council: Council) -> None:
    bench = Bench(council)
    token = bench.approved()
    for args in ({"n": 2}, {"n": 1.0}, {"n": "1"}, {"n": 1, "m": 0}, {"N": 1}):  # every changed byte
        bench.refused("token_arguments", token, args)
    bench.refused("token_executor", token, executor=bench.joined("another"))
    bench.refused("token_unknown", "ab" * 8)
    for name, value, code in (
        ("name", "delete", None),
        ("operations", ("write", "delete"), "token_operation"),
        ("resources", lambda args: ("file:/etc",), "token_resource"),
    ):
        before = getattr(bench.tool, name)
        setattr(bench.tool, name, value)
        if code is not None:
            bench.refused(code, token)
        setattr(bench.tool, name, before)
    assert bench.tool.calls == []
    assert bench.run(token).outcome == "ok"
    bench.refused("token_used", token)
    assert bench.tool.calls == [{"n": 1}]


def test_a_revoked_or_unapproved_action_does_not_run(council: Council) -> None:
    bench = Bench(council)
    token = bench.approved()
    council.revoke(f"token_{token}", "the plan changed")
    bench.refused("token_revoked", token)
    plain = council.propose("Without terms", action={"tool": "record", "args": {"n": 1}})
    bench.refused("token_unknown", plain.proposal_id)
    with pytest.raises(Refused, match="has no token"):
        council.revoke(f"token_{plain.proposal_id}")
    other = bench.approved()
    with Council.inline() as another:
        bench.refused("token_unknown", other, executor=Bench(another).executor)
    human = council.status()["humans"][0]
    council.revoke(f"token_{other}", human=human)
    bench.refused("token_revoked", other)
    assert bench.tool.calls == []


def test_an_executor_speaks_for_itself_alone(council: Council) -> None:
    bench = Bench(council)
    token = bench.approved()
    with pytest.raises(NameTaken):
        bench.joined("exec", b"z" * 32)
    client = handle_of(council).session  # a proposer, and no executor
    request = {"run": "r", "token": f"token_{token}", "tool": "record", "operations": ("write",)}
    request |= {"resources": ("file:/srv/x",), "arguments": "0"}
    with pytest.raises(Refused) as caught:
        handle_of(council).wait(client.inform(token, "use", "", request))
    assert caught.value.code == "wrong_role"
    bench.run(token)
    use_id = council.tokens(token)[0].uses[0].use_id
    liar = Session(handle_of(council).port, "liar", "executor", KEY, 30.0)
    handle_of(council).wait(liar.open())
    with pytest.raises(Refused) as caught:
        handle_of(council).wait(liar.inform(token, "result", "", {"use": use_id, "outcome": "failed"}))
    assert caught.value.code == "token_executor"


def test_a_client_that_acts_again_under_its_key_gets_the_first_result(council: Council) -> None:
    _, calls = counting(council)
    first = council.act("note", {"name": "x"}, key="deploy 7")
    again = council.act("note", {"name": "x"}, key="deploy 7")
    assert first.decision.proposal_id == again.decision.proposal_id
    assert (first.output, again.output, again.value) == ("x", "x", None)
    assert calls == [("x", 1)]
    with pytest.raises(Refused):
        council.act("note", {"name": "y"}, key="deploy 7")


def test_without_settings_it_says_what_makes_a_tool(council: Council) -> None:
    with pytest.raises(CallerError, match=r"the known tools are none.*@council.tool.*root.*hosts"):
        council.act("command", {"argv": ["ls"]})


def test_a_result_and_a_token_are_a_line_each(council: Council) -> None:
    council.register(Echo())
    done = council.act("echo", {"words": ["x\n\x1b[1my"] * 99})
    assert str(done).startswith("ok: x ?[1my x")
    assert len(str(done)) < 300
    (token,) = council.tokens()
    assert "\n" not in str(token)
    assert str(token).startswith(f"{done.token_id}: used; echo by bob.exec, read; ok")


class Echo:
    """A tool whose arguments have a list inside."""

    name = "echo"
    safety: Safety = "READ"
    operations: tuple[Operation, ...] = ("read",)

    def check(self, args: Mapping[str, Any]) -> None: ...

    def resources(self, args: Mapping[str, Any]) -> tuple[str, ...]:
        return ()

    def run(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolResult:
        return ToolResult(True, " ".join(args["words"]), "", None, OUTSIDE, 0.0, False)

    def verify(self, args: Mapping[str, Any], result: ToolResult) -> str:
        return ""


def test_arguments_that_change_meanwhile_run_as_they_were_approved(
    council: Council, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["approved"]
    told = Session.inform

    async def changing(self: Session, *args: Any, **how: Any) -> Any:
        words[0] = "changed"
        return await told(self, *args, **how)

    monkeypatch.setattr(Session, "inform", changing)
    council.register(Echo())
    assert council.act("echo", {"words": words}).output == "approved"
    executor = handle_of(council).wait(handle_of(council).tools.executor())
    words[0] = "approved"
    proposal = council.draft(
        "echo",
        action={
            "tool": "echo",
            "args": {"words": ["approved"]},
            "authorization": {"executor": executor.name, "operations": ["read"]},
        },
    )
    token = council.propose(proposal).proposal_id
    done = handle_of(council).wait(executor.perform(token, "echo", {"words": words}, 30.0))
    assert (words, done.result.output) == (["changed"], "approved")


def test_a_check_of_arguments_that_does_not_end_is_given_up_and_nothing_is_run(
    council: Council, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the executor, which may not be the process that proposed. Mutation: it waits for ever."""
    bench, end = Bench(council), threading.Event()
    token = bench.approved()
    monkeypatch.setattr("council.runtime.executor.PREPARE_S", 0.1)
    bench.tool.check = lambda args: end.wait(HANG_S) and None  # type: ignore[method-assign]
    with pytest.raises(CallerError, match=r"record did not check its arguments within 0.1 s"):
        handle_of(council).wait(bench.executor.perform(token, "record", {"n": 1}, 30.0))
    end.set()
    assert (council.tokens(token)[0].uses, bench.tool.calls) == ((), [])


def test_what_is_reported_of_a_long_output_ends_with_no_half_of_a_secret() -> None:
    """Many secrets that are redacted make room for the text before which all was cut."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8"
    key = (
        f"-----BEGIN PRIVATE KEY-----\n{'MIIBVAIBADANBgkqhkiG9w0BAQEFAASC' * 60}\n-----END PRIVATE KEY-----\n"
    )
    keys = key * (2 * OUTPUT_CHARS_MAX // len(key))
    whole = keys + "." * (2 * OUTPUT_CHARS_MAX - len(keys) - len(secret) // 2) + secret
    told = report_text(ToolResult(True, whole, "", None, OUTSIDE, 0.0, False))
    assert "[redacted: private key block]" in told
    assert secret[:10] not in told
    assert report_text(ToolResult(True, "a short one", "", None, OUTSIDE, 0.0, False)) == "a short one"


# Restarts


def restarted(store: Path) -> Council:
    return Council.inline(store=str(store), sender="bob", key=KEY)


def test_a_token_outlives_a_restart_and_so_do_its_counts(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    with restarted(store) as council:
        bench = Bench(council)
        used, revoked, live = bench.approved(), bench.approved(), bench.approved(uses=2)
        bench.run(used)
        council.revoke(f"token_{revoked}")
        bench.run(live)
    with restarted(store) as council:
        stranger = Executor(handle_of(council).port, "exec", b"z" * 32, 30.0, {})
        with pytest.raises(NameTaken, match="with another key"):  # the name stays with the key that had it
            handle_of(council).wait(stranger.open())
        bench = Bench(council)
        bench.refused("token_used", used)
        bench.refused("token_revoked", revoked)
        assert bench.run(live).outcome == "ok"
        bench.refused("token_used", live)
        assert [token.standing for token in council.tokens()] == ["used", "revoked", "used"]


def test_a_client_that_comes_back_has_its_executor_again_and_runs_nothing_twice(tmp_path: Path) -> None:
    """rules 1.12: the same key finds the proposal, and the result of its action."""
    ran: list[int] = []

    def total(amount: int) -> int:
        ran.append(amount)
        return amount

    for amount in (1, 2):
        with restarted(tmp_path / "store.db") as council:
            assert council.tool(total)(amount) == amount
            assert council.act("total", {"amount": 17}, key="order-17").output == "17"
    assert ran == [1, 17, 2]


def test_a_crash_between_use_and_result_leaves_an_unknown_outcome(tmp_path: Path) -> None:
    """The process ends after the use is on disk, and before its result is."""
    store = tmp_path / "store.db"
    with restarted(store) as council:
        bench = Bench(council)
        token = bench.approved(uses=3)
        gone = bench.joined("exec")

        async def lost(*_: Any) -> bool:
            return False

        gone._report = lost  # type: ignore[method-assign]
        bench.run(token, executor=gone)
    with restarted(store) as council:
        assert [each.standing for each in council.tokens()] == ["under way"]
        before = council.status()["events"]
        bench = Bench(council)  # whose executor restarts
        (found,) = council.tokens()
        assert found.standing == "unknown"
        alerts = [event.data for event in council.events(before, follow=False) if event.kind == "alert"]
        assert [alert["kind"] for alert in alerts] == ["outcome_unknown"]
        assert "is not run again" in alerts[0]["text"]
        assert council.status()["tokens"]["unknown"] == 1
        assert bench.tool.calls == []
    with restarted(store) as council:
        (waiting,) = council.escalations()
        assert waiting.escalation_id == f"esc-{token}-1"
        assert [each["escalation_id"] for each in council.status()["waiting"]] == [waiting.escalation_id]
        assert council.status()["with_human"] == 1
        decided = council.answer(waiting.escalation_id, approve=True, reason="record 1 is there")
        assert decided.outcome == "approved"
        with pytest.raises(Refused, match="is asked about use 1"):
            council.answer(waiting.escalation_id, approve=False)
        assert council.escalations() == []
    with restarted(store) as council:
        (found,) = council.tokens()
        assert found.uses[0].result is not None
        assert (found.standing, found.uses[0].result.outcome) == ("live", "ok")  # two uses are left
        assert "record 1 is there" in found.uses[0].result.text
        (entry,) = council.history(types=["answer"])
        assert (entry.proposal_id, entry.data["answer"]["use"]) == (token, 1)
        assert council.escalations() == []


def test_a_use_that_is_not_granted_in_time_is_not_run(council: Council) -> None:
    bench = Bench(council)
    token = bench.approved()
    with pytest.raises(NoAnswer, match="the grant came too late"):
        handle_of(council).wait(bench.executor.perform(token, "record", {"n": 1}, 0.0))
    assert bench.tool.calls == []
    (found,) = council.tokens(token)
    assert found.uses[0].result is not None
    assert found.uses[0].result.outcome == "cancelled"
    with pytest.raises(CouncilError):
        bench.run(token)
