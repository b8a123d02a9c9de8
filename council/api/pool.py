"""Many coordinators as one council: proposals are spread over them by a stable hash. Knows nothing of deciding.

    with CouncilPool.launch(4, name="checks") as pool:
        decision = pool.propose("Refund order 17", key="customer-7")

Each is a council of its own (``checks.0`` …), with seats, a journal and a budget of its own, so that none waits for
another. All proposals of one ``key`` go to the same one. An id of a proposal says where it belongs, so that whoever
knows it alone finds it; that is why the number of councils is fixed for as long as their journals live.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from council.agents.messaging.ids import new_id
from council.api.client import Council
from council.api.keywords import ClientSettings, Details, Guarding, Settings, check_many, configured
from council.core.state import ActionStage, Decision, Escalation, council_of
from council.protocol.envelope import Envelope
from council.protocol.errors import CallerError, ConfigError, CouncilError

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

F = TypeVar("F", bound=Callable[..., Any])

# Each is a process of its own beside its seats'; more than that is another cluster's worth.
COUNCILS_MAX = 64
# A process that starts takes a processor for seconds: so many at a time.
STARTING_MAX = 4


def part_of(config: CouncilConfig, number: int, count: int) -> CouncilConfig:
    """The configuration of one of the ``count`` councils that share the work of ``config``.

    What it has alone (its name, files, ports) follows from its number. Raises ConfigError.
    """
    from pydantic import ValidationError

    from council.config.settings import CHECK_COUNCIL, CouncilConfig, expected

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


class CouncilPool:
    """Several councils with one API. Made by ``launch``, ``inline`` or ``connect``; close it, or use it in ``with``.

    ``councils`` are those it is made of, for what is each one's own: ``events``, ``history``. Each refuses proposals
    that are another's. ``aio`` has coroutines of the same names.
    """

    def __init__(self, name: str, councils: Sequence[Council]) -> None:
        self.name = name
        self.councils = tuple(councils)
        self.aio = AsyncPool(self)

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
        return cls._opened(Council.launch, count, config, _one_sender(sender, key), settings)

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
        return cls._opened(Council.inline, count, config, _one_sender(sender, key), settings)

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
        with _closed_unless_all() as councils:

            def joined(number: int) -> Council:
                return Council.connect(address, f"{base.name}.{number}", sender=sender, key=key, **settings)

            councils.append(joined(0))
            place = councils[0].status()["pool"]
            if place is None:
                raise CallerError(f"the council {base.name}.0 is part of no pool: use Council.connect")
            councils.extend(joined(number) for number in range(1, place[1]))
            return cls(base.name, councils)

    @classmethod
    def _opened(
        cls,
        made_by: Callable[..., Council],
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
        make = partial(made_by, sender=sender[0], key=sender[1])
        with _closed_unless_all() as councils:
            councils.append(make(parts[0]))  # alone: it may start Ray for all
            with ThreadPoolExecutor(STARTING_MAX, "council-pool") as starting:
                made = [starting.submit(make, part) for part in parts[1:]]
            councils.extend(each.result() for each in made if each.exception() is None)
            for each in made:
                each.result()  # raises what one of them did
            return cls(base.name, councils)

    # Where a proposal belongs

    def council(self, proposal_id: str) -> Council:
        """The council that a proposal belongs to, by its id."""
        return self.councils[council_of(proposal_id, len(self.councils))]

    def draft(
        self, summary: str, body: str = "", *, key: str | None = None, **details: Unpack[Details]
    ) -> Envelope:
        """As ``Council.draft``; it belongs to the council of ``key``, of what it supersedes, or to any.

        Raises CallerError where the key and what it supersedes belong to different ones.
        """
        envelope = self.councils[0].draft(summary, body, **details)
        count, superseded = len(self.councils), details.get("supersedes")
        wanted = {council_of(each, count) for each in (key, superseded) if each is not None}
        if len(wanted) > 1:
            raise CallerError(
                f"{superseded} belongs to another council than the key {key!r:.80}: leave the key out, or give "
                "the one that it was proposed with"
            )
        while wanted and council_of(envelope.msg_id, count) not in wanted:  # some ``count`` tries
            envelope = envelope.model_copy(update={"msg_id": new_id()})
        return envelope

    def _placed(
        self, proposal: str | Envelope, body: str, key: str | None, details: Details
    ) -> tuple[Council, Envelope]:
        if not isinstance(proposal, Envelope):
            proposal, body, key, details = self.draft(proposal, body, key=key, **details), "", None, {}
        if body or details or key is not None:
            raise CallerError("a drafted proposal is complete: give its details, and its key, to draft")
        return self.council(proposal.msg_id), proposal

    # What one does with it; each as the method of Council of that name

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
        council, envelope = self._placed(proposal, body, key, details)
        return council.propose(envelope, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s)

    def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        """As ``Council.propose_many``; ``draft`` those that have a key."""
        return self.councils[0]._wait(self._propose_many(proposals, wait_for_human, details))

    def _propose_many(
        self, proposals: Iterable[str | Envelope], wait_for_human: bool, details: Details
    ) -> Coroutine[Any, Any, list[Decision | CouncilError]]:
        check_many(proposals)
        # All of them are placed before any is proposed: one that is no proposal proposes none.
        placed = [
            self._placed(each, "", None, {} if isinstance(each, Envelope) else details) for each in proposals
        ]
        shares = {
            council: [n for n, (other, _) in enumerate(placed) if other is council]
            for council in self.councils
        }
        found: list[Decision | CouncilError | None] = [None] * len(placed)

        async def share(council: Council, numbers: list[int]) -> None:
            envelopes = [placed[number][1] for number in numbers]
            came = await council.aio.propose_many(envelopes, wait_for_human=wait_for_human)
            for number, each in zip(numbers, came, strict=True):
                found[number] = each

        async def decided() -> list[Decision | CouncilError]:
            await asyncio.gather(*(share(council, numbers) for council, numbers in shares.items() if numbers))
            return [each for each in found if each is not None]

        return decided()

    def cancel(self, proposal_id: str, reason: str = "") -> None:
        self.council(proposal_id).cancel(proposal_id, reason)

    def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        proposal_id = decision.proposal_id if isinstance(decision, Decision) else decision
        self.council(proposal_id).report(decision, stage=stage, ok=ok, text=text)

    def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        council = self.council(escalation_id.removeprefix("esc-"))
        return council.answer(escalation_id, approve=approve, reason=reason, human=human)

    def decision(self, proposal_id: str) -> Decision | None:
        return self.council(proposal_id).decision(proposal_id)

    def escalations(self) -> list[Escalation]:
        """What waits for a human in any of them, oldest first."""
        found = [each for council in self.councils for each in council.escalations()]
        return sorted(found, key=lambda each: each.asked_wall_s)

    def status(self) -> dict[str, Any]:
        """All of them at a glance: sums of what adds up, and under ``councils`` the status of each."""
        return _summed(self.name, [council.status() for council in self.councils])

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """As ``Council.guard``; each call goes to any of the councils."""
        from council.api.guard import Guard

        return Guard(self, how)

    # Its end

    def close(self) -> None:
        """Closes all of them, whatever one raises; see ``Council.close``."""
        _close(self.councils)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CouncilPool {self.name} of {len(self.councils)}>"


class AsyncPool:
    """A pool's methods as coroutines, for any event loop."""

    def __init__(self, pool: CouncilPool) -> None:
        self._pool = pool

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
        council, envelope = self._pool._placed(proposal, body, key, details)
        return await council.aio.propose(
            envelope, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s
        )

    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        return await self._pool._propose_many(proposals, wait_for_human, details)

    async def cancel(self, proposal_id: str, reason: str = "") -> None:
        await self._pool.council(proposal_id).aio.cancel(proposal_id, reason)

    async def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        proposal_id = decision.proposal_id if isinstance(decision, Decision) else decision
        await self._pool.council(proposal_id).aio.report(decision, stage=stage, ok=ok, text=text)

    async def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        council = self._pool.council(escalation_id.removeprefix("esc-"))
        return await council.aio.answer(escalation_id, approve=approve, reason=reason, human=human)

    async def decision(self, proposal_id: str) -> Decision | None:
        return await self._pool.council(proposal_id).aio.decision(proposal_id)

    async def escalations(self) -> list[Escalation]:
        found = await asyncio.gather(*(council.aio.escalations() for council in self._pool.councils))
        return sorted((each for some in found for each in some), key=lambda each: each.asked_wall_s)

    async def status(self) -> dict[str, Any]:
        found = await asyncio.gather(*(council.aio.status() for council in self._pool.councils))
        return _summed(self._pool.name, found)

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.close)


@contextlib.contextmanager
def _closed_unless_all() -> Iterator[list[Council]]:
    """Councils that are being opened: closed again, all of them, where one can't be had."""
    councils: list[Council] = []
    try:
        yield councils
    except BaseException:
        with contextlib.suppress(Exception):  # what went wrong first is what is told
            _close(councils)
        raise


def _one_sender(sender: str | None, key: bytes | None) -> tuple[str, bytes | None]:
    """The name that a client has in all of them, for a proposal is drafted before it is known where it goes.

    With it comes the key. A name that is made up here will not come back, so a key is made for it too, and none kept.
    """
    if sender:
        return sender, key
    return f"client-{secrets.token_hex(8)}", secrets.token_bytes(32) if key is None else key


def _close(councils: Sequence[Council]) -> None:
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
