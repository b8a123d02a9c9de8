"""A pool: proposals find their council by id and key, and its size is fixed for as long as its journals live."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council import Case, Council, CouncilPool, Decision, Opinion, SeatConfig
from council.api.pool import part_of
from council.config.human_keys import state_dir
from council.config.load import load
from council.config.settings import CouncilConfig
from council.core.state import council_of
from council.protocol.errors import (
    CallerError,
    ConfigError,
    EnvelopeError,
    JournalHeld,
    NotApproved,
    PoolMismatch,
    Refused,
)


def agree(case: Case) -> Opinion:
    return Opinion.no("no") if "bad" in case.summary else Opinion.yes("yes")


def torn(case: Case) -> Opinion:
    return Opinion.abstain("I can't tell")


SEATS = [SeatConfig(name=name, mind=agree) for name in ("prime", "lite", "codemind")]


def pool_of(count: int, name: str = "checks", **settings: object) -> CouncilPool:
    return CouncilPool.inline(count, name=name, seats=SEATS, **settings)  # type: ignore[arg-type]


@given(st.text(), st.integers(1, 64))
def test_a_key_belongs_to_one_of_the_councils(key: str, count: int) -> None:
    assert 0 <= council_of(key, count) < count


def test_the_hash_is_the_same_in_every_version_and_spreads_evenly() -> None:
    """Another one would look for open proposals where they are not."""
    assert [council_of(f"customer-{number}", 4) for number in range(8)] == [0, 3, 0, 1, 1, 0, 1, 0]
    found = Counter(council_of(f"key {number}", 4) for number in range(4_000))
    assert all(900 < found[number] < 1_100 for number in range(4))


def test_what_has_one_key_goes_to_one_council_and_its_id_says_which() -> None:
    with pool_of(3) as pool:
        drafts = [pool.draft("x", key="customer-7") for _ in range(20)]
        assert len({draft.msg_id for draft in drafts}) == 20
        (place,) = {council_of(draft.msg_id, 3) for draft in drafts}
        assert place == council_of("customer-7", 3)
        assert all(pool.council(draft.msg_id) is pool.councils[place] for draft in drafts)
        assert all(pool.propose(draft) for draft in drafts)
        decided = [council.status()["decided"].get("approved", 0) for council in pool.councils]
        assert decided[place] == 20
        assert sum(decided) == 20


def test_the_same_proposal_again_is_a_retry_and_no_other_council_takes_it() -> None:
    """rules 1.12: no id is decided twice."""
    with pool_of(4) as pool:
        draft = pool.draft("once", key="k")
        first = pool.propose(draft)
        again, found = pool.propose(draft), pool.decision(draft.msg_id)
        assert found is not None
        assert first.position == again.position == found.position
        with pytest.raises(CallerError, match="give its details, and its key, to draft"):
            pool.propose(draft, key="k")
        elsewhere = next(each for each in pool.councils if each is not pool.council(draft.msg_id))
        with pytest.raises(Refused):
            elsewhere.decision(draft.msg_id)
        with pytest.raises(Refused, match="use CouncilPool") as refused:
            elsewhere.propose(draft)
        assert refused.value.code == "another_council"
        assert pool.status()["decided"] == {"approved": 1}


def test_many_come_back_in_order_each_from_its_own() -> None:
    with pool_of(3) as pool:
        found = pool.propose_many(f"{'bad' if number % 3 == 0 else 'good'} {number}" for number in range(30))
        assert [bool(each) for each in found] == [number % 3 != 0 for number in range(30)]
        status = pool.status()
        assert status["decided"] == {"approved": 20, "rejected": 10}
        assert status["count"] == 3
        assert [each["pool"] for each in status["councils"]] == [(0, 3), (1, 3), (2, 3)]
        assert min(sum(each["decided"].values()) for each in status["councils"]) > 0
        assert status["inactive"] == []
        with pytest.raises(CallerError, match="one str"):
            pool.propose_many("x")


def torn_pool(count: int) -> CouncilPool:
    seats = [SeatConfig(name=name, mind=torn) for name in ("prime", "lite", "codemind")]
    return CouncilPool.inline(count, name="torn", seats=seats)


def test_escalations_of_all_are_seen_and_answered_or_taken_back_where_they_are() -> None:
    with torn_pool(3) as pool:
        assert len(pool.propose_many(["a", "b", "c", "d"])) == 4
        waiting = pool.escalations()
        assert sorted(each.summary for each in waiting) == ["a", "b", "c", "d"]
        assert waiting == sorted(waiting, key=lambda each: each.asked_wall_s)
        assert pool.status()["with_human"] == 4
        for each in waiting[1:]:
            assert pool.answer(each.escalation_id, approve=True)
        pool.cancel(waiting[0].proposal_id, "no more")
        decision = pool.decision(waiting[0].proposal_id)
        assert decision is not None
        assert decision.outcome == "cancelled"
        assert pool.escalations() == []


def test_what_is_no_id_is_refused() -> None:
    with CouncilPool.inline(2) as pool:
        verbs: tuple[Any, ...] = (
            pool.cancel,
            pool.decision,
            functools.partial(pool.report, ok=True),
            functools.partial(pool.answer, approve=True),
        )
        for verb, about in itertools.product(verbs, (None, 7, b"esc-")):
            with pytest.raises(
                CallerError, match="is not an id: expected a decision, or the id of a proposal"
            ):
                verb(about)


def test_coroutines_do_the_same_from_any_loop() -> None:
    async def use(pool: CouncilPool) -> None:
        decision = await pool.aio.propose("x", key="k")
        assert decision
        assert pool.council(decision.proposal_id) is pool.councils[council_of("k", 2)]
        found = await pool.aio.decision(decision.proposal_id)
        assert found is not None
        assert found.position == decision.position
        assert len(await pool.aio.propose_many(["a", "b"])) == 2
        assert await pool.aio.escalations() == []
        assert (await pool.aio.status())["decided"] == {"approved": 3}
        with pytest.raises(Refused):
            await pool.aio.cancel(decision.proposal_id)
        await pool.aio.close()

    asyncio.run(use(pool_of(2)))


def test_coroutines_find_the_council_of_an_escalation_and_raise_as_the_methods_do() -> None:
    async def use(pool: CouncilPool) -> None:
        standing = await pool.aio.propose_many(["a", "b", "c", "d"])
        waiting = await pool.aio.escalations()
        answered = [await pool.aio.answer(each.escalation_id, approve=True) for each in waiting]
        assert {each.proposal_id for each in answered} == {
            each.proposal_id for each in standing if isinstance(each, Decision)
        }
        with pytest.raises(CallerError, match="give its details, and its key, to draft"):
            await pool.aio.propose(pool.draft("x"), key="k")
        with pytest.raises(TypeError, match="takes no keyword 'riks'; did you mean risk"):
            await pool.aio.propose("x", riks="low")  # type: ignore[call-arg]

    with torn_pool(3) as pool:
        asyncio.run(use(pool))


def test_a_blocking_call_from_a_mind_of_the_pool_is_refused() -> None:
    """Mutation: it waits for the loop that it blocks, or for that of another council, until that is told."""
    box: list[CouncilPool] = []

    async def asks_back(case: Case) -> Opinion:
        box[0].status()
        return Opinion.yes("never")

    seats = [SeatConfig(name=name, mind=agree) for name in ("prime", "lite")]
    with CouncilPool.inline(2, seats=[*seats, SeatConfig(name="codemind", mind=asks_back)]) as pool:
        box.append(pool)
        for decision in pool.propose_many(["a", "b", "c"], wait_for="all"):
            assert isinstance(decision, Decision)
            assert "use council.aio" in dict(decision.missing)["codemind"]


def test_a_pools_size_is_fixed_for_its_journals(tmp_path: Path) -> None:
    store = str(tmp_path / "packets.db")
    with pool_of(2, store=store) as pool:
        draft = pool.draft("kept", key="k")
        first = pool.propose(draft)
    assert sorted(path.name for path in tmp_path.glob("*.db")) == [
        "packets.checks.0.db",
        "packets.checks.1.db",
    ]
    for count in (1, 3):
        with pytest.raises(
            PoolMismatch, match=rf"is number 0 of a pool of 2, and was opened as.*pool of {count}"
        ):
            pool_of(count, store=store)
    with pool_of(2, store=store) as pool:
        kept = pool.decision(draft.msg_id)
        assert kept is not None
        assert kept.outcome == first.outcome


def test_a_council_by_itself_does_not_take_a_pools_journal(tmp_path: Path) -> None:
    with pool_of(2, store=str(tmp_path / "packets.db")) as pool:
        pool.propose("x")
    with pytest.raises(
        PoolMismatch, match="number 1 of a pool of 2, and was opened as of a council by itself"
    ):
        Council.inline(name="checks.1", seats=SEATS, store=str(tmp_path / "packets.checks.1.db"))


def test_nor_does_it_begin_another_journal_at_the_pools_own_store(tmp_path: Path) -> None:
    store = str(tmp_path / "packets.db")
    with pool_of(2, store=store) as pool:
        pool.propose("x")
    for address in (store, f"sqlite:///{store}"):
        with pytest.raises(
            PoolMismatch, match=r"checks\.1 is part of a pool, .*packets\.checks\.1\.db: open the"
        ):
            Council.inline(name="checks.1", seats=SEATS, store=address)
    assert not Path(store).exists()
    with Council.inline(
        name="checks.2", seats=SEATS, store=store
    ) as other:  # a name that only looks like one
        assert other.propose("y")


def test_what_is_opened_is_closed_where_one_can_not_be_had(tmp_path: Path) -> None:
    """Its journals can be opened again at once, which a council that was left running would hold."""
    store = str(tmp_path / "packets.db")
    config = part_of(CouncilConfig(name="checks", seats=SEATS, store=store), 1, 2)
    with Council.inline(config), pytest.raises(JournalHeld, match=r"checks\.1"):
        pool_of(2, store=store)
    with pool_of(2, store=store) as pool:
        assert pool.propose("y")


def test_a_count_that_is_none_is_refused() -> None:
    for count in (0, -1, 65, True, 2.0, "2"):
        with pytest.raises(CallerError, match="expected a whole number of councils, 1 to 64"):
            pool_of(count)  # type: ignore[arg-type]


def test_each_part_has_a_name_a_checkpoint_and_ports_of_its_own() -> None:
    config = CouncilConfig(
        name="checks", metrics_port=9_464, panel_port=9_000, checkpoint="/elsewhere/last.checkpoint", quorum=3
    )
    parts = [part_of(config, number, 3) for number in range(3)]
    assert [part.name for part in parts] == ["checks.0", "checks.1", "checks.2"]
    assert [part.metrics_port for part in parts] == [9_464, 9_465, 9_466]
    assert [part.panel_port for part in parts] == [9_000, 9_001, 9_002]
    assert [part.checkpoint for part in parts][:2] == [
        "/elsewhere/last.0.checkpoint",
        "/elsewhere/last.1.checkpoint",
    ]
    assert [part.pool for part in parts] == [(0, 3), (1, 3), (2, 3)]
    assert {part.quorum for part in parts} == {3}
    assert part_of(CouncilConfig(metrics_port=0), 1, 2).metrics_port == 0
    assert part_of(CouncilConfig(), 1, 2).metrics_port is None


def test_what_a_part_can_not_have_is_told_before_any_is_made() -> None:
    wrong: dict[str, dict[str, Any]] = {
        "name: council 0": {"name": "a" * 63},
        "metrics_port: council 2": {"metrics_port": 65_534},
    }
    for words, settings in wrong.items():
        with pytest.raises(ConfigError, match=words):
            CouncilPool.inline(3, seats=SEATS, **settings)


def test_many_new_stores_are_made_side_by_side_and_opened_again_with_their_checkpoints(
    tmp_path: Path,
) -> None:
    """Caught: alembic's context is the process's, and two threads at once broke it; one checkpoint for all."""
    settings = {"store": str(tmp_path / "p.db"), "checkpoint": str(tmp_path / "last")}
    for _ in range(2):
        with pool_of(6, **settings) as pool:
            assert all(pool.propose_many(["x"] * 12))
    assert len(list(tmp_path.glob("p.checks.*.db"))) == 6
    assert len(list(tmp_path.glob("last.*"))) == 6


def test_a_revised_proposal_goes_where_the_old_one_is() -> None:
    with torn_pool(3) as pool:
        for number in range(6):
            old = pool.propose(f"first {number}")
            pool.propose("second", supersedes=old.proposal_id)
            found = pool.decision(old.proposal_id)
            assert found is not None
            assert found.outcome == "cancelled"
        elsewhere = next(
            f"k{n}" for n in range(99) if council_of(f"k{n}", 3) != council_of(old.proposal_id, 3)
        )
        with pytest.raises(CallerError, match="leave the key out"):
            pool.draft("third", key=elsewhere, supersedes=old.proposal_id)


def test_all_parts_have_the_charter_as_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "charter.toml"
    path.write_text('[identity]\ncore_rules = ["Never lie"]\n')
    config = load(flags={"charter": str(path), "name": "checks"}).config
    path.unlink()
    parts = [part_of(config, number, 2) for number in range(2)]
    assert all(part._papers is config._papers for part in parts)


def test_one_that_fails_to_close_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: what is no error of ours leaves the rest running, with their journals held."""
    pool = pool_of(3)
    close = pool.councils[1].close

    def fails() -> None:
        close()
        raise OSError("the disk is gone")

    monkeypatch.setattr(pool.councils[1], "close", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        pool.close()
    for council in pool.councils:
        with pytest.raises(CallerError, match="was closed"):
            council.status()
    with pytest.raises(CallerError, match="council or pool was closed"):
        pool.escalations()


@pytest.mark.parametrize("key", [None, b"k" * 32])
def test_a_sender_comes_back_to_every_council(tmp_path: Path, key: bytes | None) -> None:
    store = str(tmp_path / "s.db")
    with pool_of(2, store=store, sender="agent", key=key) as pool:
        drafts = [pool.draft("x", key=str(number)) for number in range(8)]
        first = pool.propose_many(drafts)
    with pool_of(2, store=store, sender="agent", key=key) as pool:
        again = pool.propose_many(drafts)
    assert [(each.proposal_id, each.position) for each in again if isinstance(each, Decision)] == [
        (each.proposal_id, each.position) for each in first if isinstance(each, Decision)
    ]
    assert len(again) == len([each for each in again if isinstance(each, Decision)]) == 8
    pool_of(
        2, store=str(tmp_path / "other.db"), name="other"
    ).close()  # a client without a name leaves no keys
    folders = sorted(state_dir().rglob("*.senders"))
    assert [each.name for each in folders] == ([] if key else ["checks.0.senders", "checks.1.senders"])


def test_an_idempotency_key_names_one_proposal_across_restarts(tmp_path: Path) -> None:
    """With and without a key that says which council has it. Mutation: the id belongs to another council."""
    kept = {"store": str(tmp_path / "s.db"), "sender": "agent"}
    names = [{"idempotency_key": f"order-{number}"} for number in range(6)]
    names += [{"idempotency_key": f"order-{number}", "key": "customer-7"} for number in range(6, 12)]
    with pool_of(3, **kept) as pool:
        first = [pool.propose("Refund it", **name) for name in names]
        assert [pool.propose("Refund it", **name).position for name in names] == [
            each.position for each in first
        ]
        assert pool.status()["decided"] == {"approved": 12}
        assert {pool.council(each.proposal_id).name for each in first[6:]} == {
            pool.councils[council_of("customer-7", 3)].name
        }
    with pool_of(3, **kept) as pool:
        draft = pool.draft("Refund it", **names[7])
        assert pool.propose(draft).position == first[7].position
        with pytest.raises(Refused) as refused:
            pool.propose("Refund twice as much", **names[0])
        assert refused.value.code == "id_reused"
        with pytest.raises(CallerError, match="give its details, and its key, to draft"):
            pool.propose(draft, idempotency_key="order-7")
        with pytest.raises(EnvelopeError, match=r"^key: "):
            pool.draft("x", idempotency_key=7)  # type: ignore[arg-type]
        with pytest.raises(CallerError, match="has 181 characters, expected at most 180"):
            pool.draft("x", idempotency_key="k" * 181)
    with pool_of(3) as pool, pytest.raises(CallerError, match="made-up name"):
        pool.draft("x", idempotency_key="order-1")


def test_an_action_runs_once_in_the_council_of_its_key(tmp_path: Path) -> None:
    ran: list[str] = []

    def pool_with_tools() -> CouncilPool:
        pool = pool_of(3, store=str(tmp_path / "s.db"), sender="agent", key=b"k" * 32)

        @pool.tool
        def refund(order: str) -> str:
            ran.append(order)
            return f"refunded {order}"

        with pytest.raises(CallerError, match="there is a tool named 'refund' already"):
            pool.tool(refund)
        assert refund("0") == "refunded 0"
        return pool

    with pool_with_tools() as pool:
        done = [pool.act("refund", {"order": each}, idempotency_key=f"refund {each}") for each in "123"]
        other = pool.act("refund", {"order": "4"}, key="customer-7")
        assert pool.council(other.decision.proposal_id) is pool.councils[council_of("customer-7", 3)]
        with pytest.raises(TypeError, match="takes no keyword 'riks'; did you mean risk"):
            pool.act("refund", {"order": "5"}, riks="low")  # type: ignore[call-arg]
    with pool_with_tools() as pool:
        again = [pool.act("refund", {"order": each}, idempotency_key=f"refund {each}") for each in "123"]
        assert [each.output for each in again] == ["refunded 1", "refunded 2", "refunded 3"]
        assert [each.decision.proposal_id for each in again] == [each.decision.proposal_id for each in done]
        with pytest.raises(NotApproved):
            pool.act("refund", {"order": "5"}, summary="a bad one")
    assert ran == ["0", "1", "2", "3", "4", "0"]


def test_a_member_makes_ids_of_its_own() -> None:
    with pool_of(3) as pool:
        for council in pool.councils:
            assert pool.council(council.propose("x").proposal_id) is council


def test_an_iterator_of_the_callers_runs_on_the_callers_thread() -> None:
    """Mutation: draw from it on a council's loop, which then waits for itself."""
    with CouncilPool.inline(2) as pool, Council.inline() as council:
        for each in (pool, council):
            found = each.propose_many(str(each.propose(f"Do {number}").outcome) for number in range(2))
            assert [str(one.outcome) for one in found if isinstance(one, Decision)] == ["approved"] * 2
