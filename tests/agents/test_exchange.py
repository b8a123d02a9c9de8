"""Mailbox and Courier: nothing is lost, nothing is sent twice, no call waits without a limit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.messaging.mailbox import (
    BATCH_BYTES_MAX,
    BATCH_ITEMS_MAX,
    Courier,
    Mailbox,
    Reply,
    frame,
    frame_reply,
    take_batch,
    unframe,
    unframe_reply,
)
from council.protocol.errors import EnvelopeError, EnvelopeTooLarge
from tests.examples import tried
from tests.runtime.harness import in_loop, until


@given(st.lists(st.integers(0, BATCH_BYTES_MAX + 10), max_size=40), st.integers(0, 600))
def test_take_takes_what_fits_in_order_and_at_least_one(sizes: list[int], small: int) -> None:
    items = [bytes(size) for size in sizes if size < 1000] + [b"x"] * small
    big = [bytes(size) for size in sizes if size >= 1000][:4]
    waiting = deque(big + items)
    before = list(waiting)
    batches = []
    while waiting:
        batches.append(take_batch(waiting))
    assert [item for batch in batches for item in batch] == before
    for batch in batches:
        assert 1 <= len(batch) <= BATCH_ITEMS_MAX
        assert len(batch) == 1 or sum(map(len, batch)) <= BATCH_BYTES_MAX
    assert take_batch(waiting) == []


# Mailbox


@in_loop
async def test_collect_returns_at_once_when_nobody_is_busy() -> None:
    mailbox = Mailbox()
    assert await mailbox.collect(lambda: False) == (False, [])
    mailbox.put(b"a")
    mailbox.put(b"b")
    assert len(mailbox) == 2
    assert await mailbox.collect(lambda: True) == (True, [b"a", b"b"])


@in_loop
async def test_a_parked_call_takes_all_that_is_put_in_one_turn() -> None:
    mailbox = Mailbox()
    call = asyncio.ensure_future(mailbox.collect(lambda: True))
    await asyncio.sleep(0)
    assert not call.done()
    mailbox.put(b"a")
    mailbox.put(b"b")
    assert await call == (True, [b"a", b"b"])


@in_loop
async def test_a_second_call_releases_the_first_and_parks_itself() -> None:
    mailbox = Mailbox()
    first = asyncio.ensure_future(mailbox.collect(lambda: True))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(mailbox.collect(lambda: True))
    assert await first == (True, [])
    assert not second.done()
    mailbox.put(b"a")
    assert await second == (True, [b"a"])


@in_loop
async def test_a_parked_call_returns_by_itself() -> None:
    assert await Mailbox().collect(lambda: True, park_s=0.02) == (True, [])


@in_loop
async def test_a_cancelled_call_loses_nothing() -> None:
    mailbox = Mailbox()
    call = asyncio.ensure_future(mailbox.collect(lambda: True))
    await asyncio.sleep(0)
    mailbox.put(b"a")
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert await mailbox.collect(lambda: True) == (True, [b"a"])


@in_loop
async def test_more_than_a_batch_says_that_there_is_more() -> None:
    mailbox = Mailbox()
    for _ in range(BATCH_ITEMS_MAX + 1):
        mailbox.put(b"x")
    more, items = await mailbox.collect(lambda: False)
    assert (more, len(items)) == (True, BATCH_ITEMS_MAX)
    assert await mailbox.collect(lambda: False) == (False, [b"x"])


# Courier


class Peer:
    """The other side: gives each item back in capitals; ``failing`` calls raise before or after receipt."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.batches: list[list[bytes]] = []
        self.under_way = 0
        self.most = 0
        self.busy = False
        self.fail: deque[Exception | None] = deque()

    async def call(self, batch: list[bytes]) -> Reply:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            self.batches.append(batch)
            error = self.fail.popleft() if self.fail else None
            if error is not None:
                raise error
            for item in batch:
                self.mailbox.put(item.upper())
            return await self.mailbox.collect(lambda: self.busy)
        finally:
            self.under_way -= 1


class Post:
    def __init__(self) -> None:
        self.peer = Peer()
        self.got: list[bytes] = []
        self.lost: list[tuple[list[bytes], Exception]] = []
        self.courier = Courier(
            self.peer.call, self.receive, lambda batch, error: self.lost.append((batch, error))
        )

    def receive(self, items: Sequence[bytes]) -> None:
        self.got += items


@in_loop
async def test_what_is_sent_in_one_turn_leaves_in_one_call() -> None:
    post = Post()
    for item in (b"a", b"b", b"c"):
        post.courier.send(item)
    assert len(post.courier) == 3
    await until(lambda: post.courier.idle)
    assert post.peer.batches == [[b"a", b"b", b"c"]]
    assert post.got == [b"A", b"B", b"C"]


@in_loop
async def test_a_peer_that_does_not_return_is_not_called_a_third_time() -> None:
    calls: list[list[bytes]] = []

    async def call(batch: list[bytes]) -> Reply:
        calls.append(batch)
        await asyncio.sleep(3600)
        return False, []

    courier = Courier(call, lambda items: None, lambda batch, error: None)
    for item in (b"a", b"b", b"c", b"d"):
        courier.send(item)
        await asyncio.sleep(0.001)
    assert calls == [[b"a"], [b"b"]]
    assert courier.drop() == [b"c", b"d"]
    await until(lambda: courier.idle)


@in_loop
async def test_it_calls_again_while_there_is_more_to_come() -> None:
    post = Post()
    post.peer.busy = True
    post.courier.send(b"a")
    await until(lambda: post.got == [b"A"])
    await until(lambda: post.peer.under_way == 1)
    post.peer.busy = False
    post.peer.mailbox.put(b"later")
    await until(lambda: post.courier.idle)
    assert post.got == [b"A", b"later"]
    assert len(post.peer.batches) == 2


@in_loop
async def test_a_failed_call_gives_its_items_back_and_does_not_call_again_by_itself() -> None:
    post = Post()
    post.peer.fail.append(ConnectionError("gone"))
    post.courier.send(b"a")
    await until(lambda: post.lost)
    (batch, error) = post.lost[0]
    assert batch == [b"a"]
    assert isinstance(error, ConnectionError)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(post.peer.batches) == 1
    post.courier.send(b"b")
    await until(lambda: post.got == [b"B"])


@in_loop
async def test_drop_gives_up_calls_and_gives_back_what_waited() -> None:
    post = Post()
    post.peer.busy = True
    post.courier.send(b"a")
    await until(lambda: post.got == [b"A"])
    post.courier.send(b"b")
    assert post.courier.drop() == [b"b"]
    await until(lambda: post.courier.idle)
    assert post.peer.under_way == 0
    assert post.lost == []
    post.courier.send(b"c")
    await until(lambda: post.got == [b"A", b"C"])
    post.courier.drop()


@in_loop
async def test_a_receiver_that_raises_does_not_stop_the_post() -> None:
    got: list[bytes] = []

    def receive(items: Sequence[bytes]) -> None:
        got.extend(items)
        raise RuntimeError("a bug of the receiver")

    peer = Peer()
    courier = Courier(peer.call, receive, lambda batch, error: None)
    courier.send(b"a")
    await until(lambda: got == [b"A"])
    courier.send(b"b")
    await until(lambda: got == [b"A", b"B"])
    courier.send(b"b")
    await until(lambda: got == [b"A", b"B"])
    await until(lambda: courier.idle)


@settings(max_examples=tried(40))
@given(st.lists(st.sampled_from(["send", "turn", "answer", "idle", "fail"]), max_size=60))
@in_loop
async def test_every_item_is_answered_or_given_back(plan: list[str]) -> None:
    post, sent = Post(), []
    for n, act in enumerate(plan):
        if act == "send":
            sent.append(b"m%d" % n)
            post.courier.send(sent[-1])
        elif act == "fail":
            post.peer.fail.append(ConnectionError())
        elif act in ("answer", "idle"):
            post.peer.busy = act == "answer"
            post.peer.mailbox.release()
        await asyncio.sleep(0)
    post.peer.busy = False
    post.peer.mailbox.release()
    await until(lambda: post.courier.idle)
    back = [item.upper() for batch, _ in post.lost for item in batch]
    # A call that failed may have been answered in part by a later one; none is lost or made up.
    assert sorted(post.got + back) == sorted(item.upper() for item in sent)
    assert post.peer.most <= 2


@in_loop
async def test_a_call_that_is_given_up_before_its_first_step_makes_room() -> None:
    """Mutation: it counts as under way for good, and after two of them nothing is ever sent again."""

    calls: list[list[bytes]] = []

    async def call(batch: list[bytes]) -> Reply:
        calls.append(batch)
        return False, []

    courier = Courier(call, lambda items: None, lambda batch, error: None)
    for _ in range(3):
        courier.send(b"lost")
        courier.drop()
        await asyncio.sleep(0)
    courier.send(b"later")
    await until(lambda: calls)
    assert calls == [[b"later"]]
    assert courier.waiting_bytes == 0
    await until(lambda: courier.idle)


@in_loop
async def test_an_earlier_reply_that_is_heard_later_strands_nothing() -> None:
    """Mutation: the last that was heard is believed, and what the later call promised is never fetched."""

    box, owed, got = Mailbox(), set[bytes](), []
    late = asyncio.Event()
    number = 0

    async def call(batch: list[bytes]) -> Reply:
        nonlocal number
        number += 1
        mine = number
        owed.update(batch)
        reply = await box.collect(lambda: bool(owed))
        if mine == 1:
            await late.wait()
        return reply

    def answer(item: bytes) -> None:
        owed.discard(item)
        box.put(item)

    courier = Courier(call, got.extend, lambda batch, error: None)
    courier.send(b"a")
    await until(lambda: owed)
    answer(b"a")  # the first call returns with it, and nothing more; its reply is under way
    await until(lambda: not len(box))
    courier.send(b"b")
    courier.send(b"c")
    await until(lambda: len(owed) == 2)
    answer(b"b")
    await until(lambda: b"b" in got)  # with more to come, heard before the first
    late.set()
    await until(lambda: b"a" in got)
    answer(b"c")
    await until(lambda: b"c" in got)


@pytest.mark.parametrize("count", [BATCH_ITEMS_MAX + 2, 2**32 - 1])
def test_a_frame_of_more_than_a_call_carries_is_refused(count: int) -> None:
    """Mutation: a million empty items in four megabytes keep the coordinator's loop for ten seconds."""
    data = count.to_bytes(4) + bytes(4 * min(count, 10_000))
    with pytest.raises(EnvelopeTooLarge) as caught:
        unframe(data)
    assert (caught.value.limit, caught.value.found) == (BATCH_ITEMS_MAX + 1, count)


@given(st.lists(st.binary(max_size=50), max_size=20), st.booleans())
def test_a_frame_is_read_back(items: list[bytes], more: bool) -> None:
    assert unframe(frame(items)) == items
    assert unframe_reply(frame_reply((more, items))) == (more, items)


@given(st.binary(max_size=60))
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    try:
        assert frame(unframe(data)) == data
    except EnvelopeError:
        pass
