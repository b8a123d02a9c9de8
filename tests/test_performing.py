"""A guarded call once it is approved: run once, verified, reverted, and each step reported (rules 3.1)."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pydantic import SecretStr

from council import Case, Council, CouncilPool, NotApproved, NotVerified, Opinion, SeatConfig
from council.api.run_approved import Performance, run_blocking
from council.core.state import Decision, Tally
from council.protocol.errors import CallerError, CouncilDied, Refused
from tests.cases import each
from tests.logged import capture_logs
from tests.patience import HANG_S
from tests.runtime.harness import run as looped


def obeys(case: Case) -> Opinion:
    return Opinion.no("told so") if "forbidden" in case.summary else Opinion.yes("told so")


@pytest.fixture
def council() -> Iterator[Council]:
    seats = [SeatConfig(name=name, mind=obeys) for name in ("prime", "lite", "codemind")]
    with Council.inline(seats=seats, call_timeout_s=HANG_S) as made:
        yield made


def outcomes(council: Council) -> list[tuple[str, bool, str]]:
    """What was reported, in order: stage, whether it went well, and the words."""
    reports = [each.data["report"] for each in council.events(follow=False) if each.kind == "outcome"]
    return [(each["stage"], each["ok"], each["text"]) for each in reports]


def steps(council: Council) -> list[tuple[str, bool]]:
    return [(stage, ok) for stage, ok, _ in outcomes(council)]


def alerts(council: Council) -> list[str]:
    return [each.data["kind"] for each in council.events(follow=False) if each.kind == "alert"]


def test_what_is_verified_comes_back_and_is_on_the_record(council: Council) -> None:
    seen: list[Any] = []

    @council.guard(
        verify=lambda *args, **more: seen.append((args, more)) or True, revert=lambda *_, **__: None
    )
    def put(key: str, *, value: int) -> str:
        return f"{key}={value}"

    assert put("a", value=1) == "a=1"
    assert seen == [(("a=1", "a"), {"value": 1})]  # its result, then the arguments as they were given
    assert outcomes(council) == [("act", True, ""), ("verify", True, "")]
    kept = council.history(types=["outcome"], newest_first=False)
    assert [each.data["report"]["stage"] for each in kept] == ["act", "verify"]
    assert {each.who for each in kept} == {council.sender}
    assert len({each.proposal_id for each in kept}) == 1


def test_an_error_keeps_its_own_context(council: Council) -> None:
    """Mutation: the error is raised while StopIteration is handled, and every traceback begins with that."""

    @council.guard()
    def fails() -> None:
        try:
            raise OSError("no disk")
        except OSError:
            raise ValueError("no copy")  # noqa: B904 - its context is what is tested

    with pytest.raises(ValueError, match="no copy") as caught:
        fails()
    assert str(caught.value.__context__) == "no disk"


class Odd:
    def __bool__(self) -> bool:
        raise ValueError("neither")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (False, "verify gave False"),
        (None, "verify gave None"),
        ([], "verify gave a false list"),
        (Odd(), "verify gave a Odd that is neither true nor false: ValueError: neither"),
        (OSError("no disk"), "verify raised OSError: no disk"),
    ],
)
def test_what_is_not_verified_is_reverted_and_no_success(council: Council, given: Any, words: str) -> None:
    state: list[str] = []

    def verify(result: None, key: str) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    @council.guard(verify=verify, revert=state.remove)
    def put(key: str) -> None:
        state.append(key)

    with pytest.raises(NotVerified, match="put ran, and is not verified: verify") as caught:
        put("a")
    error = caught.value
    assert state == []
    assert outcomes(council) == [("act", True, ""), ("verify", False, words), ("revert", True, "")]
    assert alerts(council) == ["verification_failed"]
    assert (error.reverted, error.decision.outcome) == (True, "approved")
    assert words in error.message
    assert error.message.endswith("; it was reverted")
    assert error.__cause__ is (given if isinstance(given, Exception) else None)
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.reverted, back.decision) == (NotVerified, True, error.decision)
    assert council.decision(error.decision.proposal_id) == error.decision


def test_what_raises_is_reverted_and_raises_what_it_raised(council: Council) -> None:
    own, reverted, verified = ValueError("disk full"), list[str](), list[str]()

    @council.guard(verify=lambda *_: verified.append("?"), revert=reverted.append)
    def put(key: str) -> None:
        raise own

    with pytest.raises(ValueError, match="disk full") as caught:
        put("a")
    assert caught.value is own
    assert own.__notes__ == ["put: it was reverted"]
    assert (verified, reverted) == ([], ["a"])
    assert outcomes(council) == [("act", False, "ValueError: disk full"), ("revert", True, "")]
    assert alerts(council) == ["action_failed"]


def test_a_revert_that_fails_hides_nothing(council: Council) -> None:
    def revert(key: str) -> None:
        raise OSError("gone")

    def put(key: str) -> str:
        if key == "bad":
            raise ValueError("no")
        return key

    with pytest.raises(NotVerified, match="could not be reverted: OSError: gone") as caught:
        council.guard(verify=lambda *_: False, revert=revert)(put)("a")
    assert caught.value.reverted is False
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(ValueError, match="no") as raised:
        council.guard(revert=revert)(put)("bad")
    assert "could not be reverted: OSError: gone" in raised.value.__notes__[0]
    assert alerts(council) == ["verification_failed", "revert_failed", "action_failed", "revert_failed"]


def test_what_never_ran_is_neither_verified_nor_reverted(council: Council) -> None:
    ran: list[str] = []

    @council.guard(describe="forbidden", verify=lambda *_: ran.append("v"), revert=lambda: ran.append("r"))
    def act() -> None:
        ran.append("a")

    with pytest.raises(NotApproved):
        act()
    assert ran == []
    assert outcomes(council) == []


def test_coroutines_are_followed_alike(council: Council) -> None:
    """With checks of either kind; mutation: a coroutine that nobody awaits is true, and so a success."""
    state: list[str] = []

    async def present(result: str, key: str) -> bool:
        await asyncio.sleep(0)
        return key in state

    async def remove(key: str) -> None:
        state.remove(key)

    async def put(key: str) -> str:
        state.append(key)
        return key.upper()

    async def scenario() -> None:
        assert await council.guard(verify=present, revert=remove)(put)("a") == "A"
        assert await council.aio.guard(verify=lambda result, key: result == key.upper())(put)("b") == "B"
        for absent in (lambda *_: False, partial(missing, state)):
            with pytest.raises(NotVerified) as caught:
                await council.guard(verify=absent, revert=remove)(put)("c")
            assert caught.value.reverted
        assert state == ["a", "b"]

    looped(scenario())
    assert steps(council)[:4] == [("act", True), ("verify", True)] * 2
    assert steps(council)[4:] == [("act", True), ("verify", False), ("revert", True)] * 2


async def missing(state: list[str], result: str, key: str) -> bool:
    return key not in state


def test_a_coroutine_that_is_cancelled_is_reverted_and_ends(council: Council) -> None:
    begun, undone = asyncio.Event(), list[str]()

    @council.aio.guard(revert=undone.append)
    async def hang(key: str) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async def scenario() -> None:
        task = asyncio.create_task(hang("a"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    looped(scenario())
    assert undone == ["a"]
    assert outcomes(council) == [("act", False, "CancelledError"), ("revert", True, "")]


def test_a_council_that_is_gone_hides_no_result(council: Council) -> None:
    """The function has run: its result, or what it raised, is the caller's, and the log says what was not told."""

    @council.guard(verify=lambda *_: True)
    def act() -> str:
        council.close()
        return "done"

    with capture_logs() as logs:
        assert act() == "done"
    (said,) = logs  # one: what comes after it could not be told either
    assert (said["event"], said["stage"], said["ok"]) == (
        "the result of an action was not reported",
        "act",
        True,
    )
    assert "closed" in said["why"]


def test_what_is_raised_is_told_by_its_kind_where_an_argument_is_hidden(council: Council) -> None:
    """Mutation: a password in an error's words, in the journal for good."""

    def log_in(password: SecretStr, user: str) -> None:
        raise PermissionError(f"{user} may not come in with {password.get_secret_value()}")

    with pytest.raises(PermissionError, match="hunter2"):
        council.guard()(log_in)(SecretStr("hunter2"), "ada")
    assert outcomes(council) == [("act", False, "PermissionError")]
    assert "hunter2" not in repr([each.data for each in council.events(follow=False)])
    assert "hunter2" not in repr(council.history().entries)


def test_what_can_not_be_checked_is_refused_before_anybody_is_asked(council: Council) -> None:
    async def later(*_: Any) -> bool:
        return True

    def act(key: str) -> None: ...

    for wrong in ({"verify": True}, {"revert": "undo"}):
        with pytest.raises(CallerError, match=r"(verify|revert) is (bool|str), expected a function"):
            council.guard(**wrong)
    with pytest.raises(TypeError, match="did you mean revert"):
        council.guard(revret=act)  # type: ignore[call-arg]
    for name in ("verify", "revert"):
        with pytest.raises(CallerError, match=f"{name} is an async function, and .*act is not"):
            council.guard(**{name: later})(act)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match=r"verify of .*act can't be called with its result and the arg"):
        council.guard(verify=lambda key: True)(act)("a")
    with pytest.raises(CallerError, match=r"revert of .*act can't be called with the arguments of this call"):
        council.guard(revert=lambda: None)(act)("a")
    assert list(council.events(follow=False)) == []


def test_what_only_gives_something_to_run_has_not_run(council: Council) -> None:
    async def later() -> int:
        return 1

    def make() -> Awaitable[int]:
        return later()

    assert looped(council.guard()(make)()) == 1  # type: ignore[arg-type]  # as without a guard
    assert outcomes(council) == []
    with pytest.raises(CallerError, match="has not run; make it an async function"):
        council.guard(verify=lambda *_: True)(make)()
    assert outcomes(council) == []
    with pytest.raises(NotVerified, match="verify gave a coroutine, which has not run"):
        council.guard(verify=lambda _: later())(lambda: 1)()
    with pytest.raises(NotVerified, match="reverted: revert gave a coroutine, which has not run"):
        council.guard(verify=lambda _: False, revert=lambda: later())(lambda: 1)()


def test_any_exception_of_the_functions_own_passes(council: Council) -> None:
    """Also those that have a meaning for generators, and NotVerified of another guard."""
    inner = NotVerified("of another", decision="other", reverted=True)
    for own in (StopIteration(3), GeneratorExit(), KeyboardInterrupt(), SystemExit(2), inner):

        def act(own: int, error: BaseException = own) -> None:
            raise error

        council_guard = council.guard(describe="x", revert=lambda *_, **__: None)
        with pytest.raises(type(own)) as caught:
            council_guard(partial(act, 1))()
        assert caught.value is own
    assert steps(council) == [("act", False), ("revert", True)] * 5


def test_in_a_pool_a_report_goes_where_its_proposal_is() -> None:
    seats = [SeatConfig(name=name, mind=obeys) for name in ("prime", "lite", "codemind")]
    with CouncilPool.inline(3, name="checks", seats=seats) as pool:
        done = [pool.guard(verify=lambda *_: True)(lambda n: n)(number) for number in range(6)]
        assert done == list(range(6))
        decisions = [pool.propose("x", key=key) for key in "abcd"]
        for decision in decisions[:2]:
            pool.report(decision, ok=True)
        for decision in decisions[2:]:
            looped(pool.aio.report(decision.proposal_id, ok=True))
        found = [steps(council) for council in pool.councils]
        assert sum(map(len, found)) == 6 * 2 + 4
        assert sum(bool(each) for each in found) > 1


# What it comes to, whatever comes

DECISION = Decision("0a", "x", "decided", "approved", True, "r", Tally(2), 2, ())
ENDS = {"act": ("ok", "raises", "ends"), "verify": (None, "ok", "no", "raises", "ends")}
REVERTS = (None, "ok", "raises", "ends")
REPORTS = ("ok", "lost", "ends")


@each(
    ("act", "verify", "revert", "report", "awaits"),
    itertools.product(*ENDS.values(), REVERTS, REPORTS, [False, True]),
)
def test_whatever_happens_is_told_and_undone(
    act: str, verify: str | None, revert: str | None, report: str, awaits: bool
) -> None:
    """Against the rules said plainly: no success that was not verified; undone where it is to be, whatever else."""
    did: list[str] = []
    told: list[tuple[str, bool]] = []

    def does(name: str, how: str | None) -> Callable[..., Any] | None:
        def work(*_: Any) -> Any:
            did.append(name)
            if how == "raises":
                raise ValueError(name)
            if how == "ends":
                raise KeyboardInterrupt(name)
            return how == "ok"

        return None if how is None else work

    def tell(decision: Decision, *, stage: str, ok: bool, text: str) -> None:
        told.append((stage, ok))
        if report == "lost":
            raise CouncilDied("it is gone")
        if report == "ends":
            raise KeyboardInterrupt("report")

    performance = Performance("f", DECISION, tell, awaits=awaits, discreet=False)
    action, check, undo = does("act", act), does("verify", verify), does("revert", revert)
    assert action is not None
    steps = performance.steps(action, check, undo)
    raised: BaseException | None = None
    try:
        result = looped(steps).value_or_raise() if awaits else run_blocking(steps)
    except (ValueError, KeyboardInterrupt, NotVerified) as error:
        raised = error

    wrong = act != "ok" or verify not in (None, "ok")
    ran = ["act", *(["verify"] if verify and act == "ok" else []), *(["revert"] if revert and wrong else [])]
    assert did == ran
    went = {"act": act == "ok", "verify": verify == "ok", "revert": revert == "ok"}
    expected = [(stage, went[stage]) for stage in ran]
    assert told == (expected if report == "ok" else expected[:1])
    if report == "ends":
        assert isinstance(raised, KeyboardInterrupt)
        assert raised.args == ("report",)
    elif not wrong:
        assert (raised, result) == (None, True)
    elif "ends" in (act, verify if act == "ok" else "", revert):
        assert isinstance(raised, KeyboardInterrupt)
    elif act != "ok":
        assert isinstance(raised, ValueError)
        assert raised.args == ("act",)
    else:
        assert isinstance(raised, NotVerified)
        assert raised.reverted is (revert == "ok")


# By hand


def test_a_report_by_hand(council: Council) -> None:
    decision = council.propose("Rotate the key", wait_for="all")
    council.report(decision, ok=True, text="rotated")
    council.report(decision.proposal_id, stage="verify", ok=False)
    looped(council.aio.report(decision, stage="revert", ok=True))
    assert outcomes(council) == [("act", True, "rotated"), ("verify", False, ""), ("revert", True, "")]
    with pytest.raises(Refused, match="it was reported as successful before: that stands"):
        council.report(decision, ok=True, text="rotated")
    rejected = council.propose("forbidden")
    with pytest.raises(Refused, match="it is rejected, so no action may have run") as caught:
        council.report(rejected, ok=True)
    assert caught.value.code == "not_approved"
    assert council.decision(decision.proposal_id) == decision


def test_a_report_that_can_not_be_meant_is_refused(council: Council) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "decision is int": {"decision": 7},
        "stage is 'done', expected one of act, verify, revert": {"stage": "done"},
        "ok is 'no', expected True or False": {"ok": "no"},
        "text is bytes": {"text": b"x"},
    }
    for words, given in wrong.items():
        with pytest.raises(CallerError, match=words):
            council.report(**{"decision": "0123456789abcdef", "ok": True, **given})
