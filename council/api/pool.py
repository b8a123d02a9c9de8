"""Many coordinators as one council: proposals are spread over them by a stable hash.

    with CouncilPool.launch(4, name="checks") as pool:
        decision = pool.propose("Refund order 17", key="customer-7")

Each is a council of its own (``checks.0`` …), with its own seats, journal and budget, so that none waits for
another. All proposals with the same ``key`` go to the same council. A proposal's id says which council has it, so
that it can be found by its id alone. For that, the number of councils is fixed for the life of their journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

from pydantic import ValidationError

from council.agents.messaging.ids import new_id
from council.api.aio import AsyncCouncil
from council.api.client import Council
from council.api.guard import Guard
from council.api.handle import Handle, connect, in_process, launch
from council.api.keywords import ClientSettings, Details, Guarding, Settings, check_many, configured
from council.config.settings import CHECK_COUNCIL, CouncilConfig, expected
from council.core.state import ActionStage, Decision, Escalation, council_of
from council.protocol.envelope import Envelope
from council.protocol.errors import CallerError, ConfigError, CouncilError

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

# Each is a process of its own beside its seats'; more than that is another cluster's worth.
COUNCILS_MAX = 64
# A process that starts takes a processor for seconds: so many at a time.
STARTING_MAX = 4


def part_of(config: CouncilConfig, number: int, count: int) -> CouncilConfig:
    """The configuration of one of the ``count`` councils that share the work of ``config``.

    What it has alone (its name, files, ports) follows from its number. Raises ConfigError.
    """
    own: dict[str, Any] = {"name": f"{config.name}.{number}"}
    for key in ("metrics_port", "panel_port"):
        if getattr(config, key):  # 0 is any, for each
            own[key] = getattr(config, key) + number
    if config.checkpoint is not None:
        whole, suffix = os.path.splitext(config.checkpoint)
        own["checkpoint"] = f"{whole}.{number}{suffix}"
    for key, value in own.items():
        try:
            CHECK_COUNCIL[key].validate_python(value)
        except ValidationError:
            wanted = expected(key, CouncilConfig)
            problem = f"{key}: council {number} of the pool would have {value!r}, expected {wanted}"
            raise ConfigError(problem, problems=(problem,)) from None
    return config.model_copy(update={**own, "pool": (number, count)})


def id_of(decision: Decision | str) -> str:
    """The id of the proposal that a decision, an escalation's id or a proposal's own id is about.

    Raises CallerError for anything else.
    """
    if isinstance(decision, Decision):
        return decision.proposal_id
    if not isinstance(decision, str):
        raise CallerError(
            f"{decision!r:.80} is no id: expected a decision, or the id of a proposal or escalation"
        )
    return decision.removeprefix("esc-")


def drafted(
    councils: Sequence[AsyncCouncil], summary: str, body: str, key: str | None, details: Details
) -> Envelope:
    """See ``CouncilPool.draft``."""
    envelope = councils[0].draft(summary, body, **details)
    count, superseded = len(councils), details.get("supersedes")
    wanted = {council_of(each, count) for each in (key, superseded) if each is not None}
    if len(wanted) > 1:
        raise CallerError(
            f"{superseded} belongs to another council than the key {key!r:.80}: leave the key out, or give "
            "the one that it was proposed with"
        )
    while wanted and council_of(envelope.msg_id, count) not in wanted:  # some ``count`` tries
        envelope = envelope.model_copy(update={"msg_id": new_id()})
    return envelope


def placed(
    councils: Sequence[AsyncCouncil], proposal: str | Envelope, body: str, key: str | None, details: Details
) -> Envelope:
    """A proposal as a draft, whose id says where it belongs."""
    if not isinstance(proposal, Envelope):
        return drafted(councils, proposal, body, key, details)
    if body or details or key is not None:
        raise CallerError("a drafted proposal is complete: give its details, and its key, to draft")
    return proposal


def all_placed(
    councils: Sequence[AsyncCouncil], proposals: Iterable[str | Envelope], details: Details
) -> list[Envelope]:
    """All of them as drafts, before any is proposed: one that is no proposal proposes none."""
    check_many(proposals)
    return [
        placed(councils, each, "", None, {} if isinstance(each, Envelope) else details) for each in proposals
    ]


class AsyncPool:
    """A pool's methods as coroutines, for any event loop: each goes to the council that it concerns."""

    def __init__(self, name: str, councils: Sequence[AsyncCouncil], close: Callable[[], None]) -> None:
        self._name = name
        self._councils = councils
        self._close = close

    def _of(self, about: Decision | str) -> AsyncCouncil:
        return self._councils[council_of(id_of(about), len(self._councils))]

    async def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        key: str | None = None,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        envelope = placed(self._councils, proposal, body, key, details)
        return await self._of(envelope.msg_id).propose(
            envelope, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s
        )

    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        envelopes = all_placed(self._councils, proposals, details)
        shares: dict[AsyncCouncil, list[int]] = {}
        for number, envelope in enumerate(envelopes):
            shares.setdefault(self._of(envelope.msg_id), []).append(number)
        found: dict[int, Decision | CouncilError] = {}

        async def share(council: AsyncCouncil, numbers: list[int]) -> None:
            own = [envelopes[number] for number in numbers]
            came = await council.propose_many(own, wait_for_human=wait_for_human)
            found.update(zip(numbers, came, strict=True))

        await asyncio.gather(*(share(*each) for each in shares.items()))
        return [found[number] for number in range(len(envelopes))]

    async def cancel(self, proposal_id: str, reason: str = "") -> None:
        await self._of(proposal_id).cancel(proposal_id, reason)

    async def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        await self._of(decision).report(decision, stage=stage, ok=ok, text=text)

    async def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        council = self._of(escalation_id)
        return await council.answer(escalation_id, approve=approve, reason=reason, human=human)

    async def decision(self, proposal_id: str) -> Decision | None:
        return await self._of(proposal_id).decision(proposal_id)

    async def escalations(self) -> list[Escalation]:
        found = await asyncio.gather(*(council.escalations() for council in self._councils))
        return sorted((each for some in found for each in some), key=lambda each: each.asked_wall_s)

    async def status(self) -> dict[str, Any]:
        found = await asyncio.gather(*(council.status() for council in self._councils))
        return _summed(self._name, found)

    async def close(self) -> None:
        """Closes all of them, whatever one raises; the first one last: Ray may have been started for that one."""
        await asyncio.to_thread(self._close)


class CouncilPool:
    """Several councils with one API. Made by ``launch``, ``inline`` or ``connect``; close it, or use it in ``with``.

    ``councils`` are those it is made of, for what is each one's own: ``events``, ``history``. Each refuses proposals
    that are another's. ``aio`` has coroutines of the same names.
    """

    def __init__(self, name: str, handles: Sequence[Handle]) -> None:
        self.name = name
        self.councils = tuple(Council(handle) for handle in handles)
        self._handles = handles
        self._councils = [council.aio for council in self.councils]
        self.aio = AsyncPool(name, self._councils, self.close)

    @classmethod
    def launch(
        cls,
        count: int,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Self:
        """``count`` councils on Ray, which end with this object; see ``Council.launch``.

        ``settings`` are each one's own: with three seats and a cap of a million tokens, each has these. An SQLite
        store becomes a file for each, beside the one that is named. Raises what ``Council.launch`` does, and
        PoolMismatch for journals that belong to a pool of another size.
        """
        return cls._opened(launch, count, config, _one_sender(sender, key), settings)

    @classmethod
    def inline(
        cls,
        count: int,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Self:
        """``count`` councils in this process; see ``Council.inline``."""
        return cls._opened(in_process, count, config, _one_sender(sender, key), settings)

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        name: str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[ClientSettings],
    ) -> Self:
        """A pool that runs already, by the name it was launched with; see ``Council.connect``.

        Raises CallerError for a council that is part of none.
        """
        base = configured(None, {**settings, "ray_address": address, "name": name})
        sender, key = _one_sender(sender, key)
        with _closed_unless_all() as handles:

            def joined(number: int) -> Handle:
                return connect(address, f"{base.name}.{number}", None, sender, key, settings)

            handles.append(joined(0))
            place = handles[0].wait(handles[0].status())["pool"]
            if place is None:
                raise CallerError(f"the council {base.name}.0 is part of no pool: use Council.connect")
            handles.extend(joined(number) for number in range(1, place[1]))
            return cls(base.name, handles)

    @classmethod
    def _opened(
        cls,
        make: Callable[..., Handle],
        count: int,
        config: CouncilConfig | Path | str | None,
        sender: tuple[str, bytes | None],
        settings: Settings,
    ) -> Self:
        if type(count) is not int or not 1 <= count <= COUNCILS_MAX:
            raise CallerError(
                f"count is {count!r:.80}, expected a whole number of councils, 1 to {COUNCILS_MAX}"
            )
        base = configured(config, settings)
        parts = [part_of(base, number, count) for number in range(count)]
        with _closed_unless_all() as handles:
            handles.append(make(parts[0], *sender, {}))  # alone: it may start Ray for all
            with ThreadPoolExecutor(STARTING_MAX, "council-pool") as starting:
                made = [starting.submit(make, part, *sender, {}) for part in parts[1:]]
            handles.extend(each.result() for each in made if each.exception() is None)
            for each in made:
                each.result()  # raises what one of them did
            return cls(base.name, handles)

    def council(self, proposal_id: str) -> Council:
        """The council that a proposal belongs to, by its id."""
        return self.councils[council_of(proposal_id, len(self.councils))]

    def _wait(self, about: Decision | str, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits on the loop of the council that a proposal belongs to: so no council waits for another."""
        try:
            handle = self._handles[council_of(id_of(about), len(self._handles))]
        except CallerError:
            coroutine.close()
            raise
        return handle.wait(coroutine)

    # Each as the method of Council of that name

    def draft(
        self, summary: str, body: str = "", *, key: str | None = None, **details: Unpack[Details]
    ) -> Envelope:
        """As ``Council.draft``; it belongs to the council of ``key``, of what it supersedes, or to any.

        Raises CallerError where the key and what it supersedes belong to different ones.
        """
        return drafted(self._councils, summary, body, key, details)

    def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        key: str | None = None,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """As ``Council.propose``; all proposals of one ``key`` go to the same council."""
        envelope = placed(self._councils, proposal, body, key, details)
        proposing = self.aio.propose(envelope, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s)
        return self._wait(envelope.msg_id, proposing)

    def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        """As ``Council.propose_many``; ``draft`` those that have a key."""
        envelopes = all_placed(self._councils, proposals, details)  # an iterator of the caller's runs here
        return self._handles[0].wait(self.aio.propose_many(envelopes, wait_for_human=wait_for_human))

    def cancel(self, proposal_id: str, reason: str = "") -> None:
        self._wait(proposal_id, self.aio.cancel(proposal_id, reason))

    def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        self._wait(decision, self.aio.report(decision, stage=stage, ok=ok, text=text))

    def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        answering = self.aio.answer(escalation_id, approve=approve, reason=reason, human=human)
        return self._wait(escalation_id, answering)

    def decision(self, proposal_id: str) -> Decision | None:
        return self._wait(proposal_id, self.aio.decision(proposal_id))

    def escalations(self) -> list[Escalation]:
        """What waits for a human in any of them, oldest first."""
        return self._handles[0].wait(self.aio.escalations())

    def status(self) -> dict[str, Any]:
        """All of them at a glance: sums of what adds up, and under ``councils`` the status of each."""
        return self._handles[0].wait(self.aio.status())

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """As ``Council.guard``; each call goes to any of the councils."""
        return Guard(how, self.aio, self)

    def close(self) -> None:
        """Closes all of them, whatever one raises; see ``Council.close``."""
        _close(self.councils)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CouncilPool {self.name} of {len(self.councils)}>"


@contextlib.contextmanager
def _closed_unless_all() -> Iterator[list[Handle]]:
    """Councils that are being opened: closed again, all of them, where one can't be had."""
    handles: list[Handle] = []
    try:
        yield handles
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is what is told
            _close(handles)
        raise


def _one_sender(sender: str | None, key: bytes | None) -> tuple[str, bytes | None]:
    """The name that a client has in all of them, for a proposal is drafted before it is known where it goes.

    With it comes the key. A name that is made up here will not come back, so a key is made for it too, and none kept.
    """
    if sender:
        return sender, key
    return f"client-{secrets.token_hex(8)}", secrets.token_bytes(32) if key is None else key


def _close(councils: Iterable[Council | Handle]) -> None:
    """The first one last: where Ray was started for them, it was started for that one."""
    with contextlib.ExitStack() as closing:
        for council in councils:
            closing.callback(council.close)


def _summed(name: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The statuses of a pool's councils, and sums of what adds up."""
    sums: dict[str, Any] = {key: sum(each[key] for each in found) for key in ("open_count", "with_human")}
    for key in ("decided", "refused", "ignored"):
        words = sorted({word for each in found for word in each[key]})
        sums[key] = {word: sum(each[key].get(word, 0) for each in found) for word in words}
    silent = [
        f"{each['name']}: {seat['name']}" for each in found for seat in each["seats"] if not seat["active"]
    ]
    return {"name": name, "count": len(found), **sums, "inactive": silent, "councils": list(found)}
