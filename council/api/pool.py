"""Many coordinators as one council: proposals are spread over them by a stable hash.

    with CouncilPool.launch(4, name="checks") as pool:
        decision = pool.propose("Refund order 17", key="customer-7")

Each is a separate council (``checks.0`` …) with its own seats, journal and budget, so that none waits for another.
All proposals with the same ``key`` go to the same council. A proposal's id says which council has it, so it can be
found by its id alone. Therefore the number of councils is fixed for the life of their journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import secrets
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypedDict, TypeVar, Unpack

from pydantic import ValidationError

from council.action.tool import Tool
from council.agents.messaging.ids import new_id
from council.agents.mind import Action
from council.api.acting import RUN_S, TTL_S, ActionResult, tool
from council.api.aio import AsyncCouncil, decision_or_error
from council.api.client import Council, at_once, blocking, blocking_many
from council.api.guard import guard
from council.api.handle import Handle, connect, in_process, launch
from council.api.keywords import (
    PLAIN,
    ClientSettings,
    Details,
    History,
    Settings,
    check_many,
    checked,
    configured,
    spelled_out,
)
from council.config.settings import CouncilConfig, checker, expected
from council.core.state import Decision, RiskLevel, council_of, escalated_by
from council.protocol.envelope import Envelope, Requester
from council.protocol.errors import CallerError, ConfigError, CouncilError
from council.protocol.extras import require_ray
from council.runtime.loop_thread import Background
from council.runtime.open_escalations import OpenEscalation

T = TypeVar("T")
P = ParamSpec("P")

# Each has its own process besides its seats. More than this many need another cluster.
COUNCILS_MAX = 64
# This many are started at once, because a starting process takes a processor for seconds.
STARTING_MAX = 4


def part_of(config: CouncilConfig, number: int, count: int) -> CouncilConfig:
    """The configuration of one of the ``count`` councils that share the work of ``config``.

    Its name, files and ports follow from its number. Raises ConfigError.
    """
    own: dict[str, Any] = {"name": f"{config.name}.{number}"}
    for key in ("metrics_port", "panel_port"):
        if getattr(config, key):  # 0 means any port, for each
            own[key] = getattr(config, key) + number
    if config.checkpoint is not None:
        whole, suffix = os.path.splitext(config.checkpoint)
        own["checkpoint"] = f"{whole}.{number}{suffix}"
    for key, value in own.items():
        try:
            checker(CouncilConfig, key).validate_python(value)
        except ValidationError:
            wanted = expected(key, CouncilConfig)
            problem = f"{key}: council {number} of the pool would have {value!r}, expected {wanted}"
            raise ConfigError(problem, problems=(problem,)) from None
    return config.model_copy(update={**own, "pool": (number, count)})


def id_of(decision: Decision | str) -> str:
    """The id of the proposal of a decision, an escalation's id or a proposal's own id.

    Raises CallerError for anything else.
    """
    if isinstance(decision, Decision):
        return decision.proposal_id
    if not isinstance(decision, str):
        raise CallerError(
            f"{decision!r:.80} is not an id: expected a decision, or the id of a proposal or escalation"
        )
    return escalated_by(decision)[0]


class Keys(TypedDict, total=False):
    """The two keys of a proposal; see ``AsyncPool.draft``."""

    key: str | None
    idempotency_key: str | None


def chosen(
    councils: Sequence[AsyncCouncil],
    key: str | None,
    idempotency_key: str | None,
    superseded: str | None = None,
) -> AsyncCouncil:
    """The council of ``key`` or of the superseded proposal, else that of ``idempotency_key``, else any.

    Raises CallerError if the first two belong to different councils.
    """
    wanted = {council_of(str(each), len(councils)) for each in (key, superseded) if each is not None}
    if len(wanted) > 1:
        raise CallerError(
            f"{superseded} belongs to another council than the key {key!r:.80}: leave the key out, or give "
            "the one that it was proposed with"
        )
    other = new_id() if idempotency_key is None else str(idempotency_key)
    return councils[wanted.pop() if wanted else council_of(other, len(councils))]


def _routed(
    verb: Callable[Concatenate[AsyncCouncil, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[AsyncPool, P], Coroutine[Any, Any, T]]:
    """A method that calls ``verb`` of the council that has the proposal of the first argument."""
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    async def routed(self: AsyncPool, /, *args: P.args, **kwargs: P.kwargs) -> T:
        about = signature.bind(self, *args, **kwargs).args[1]
        return await verb(self._of(about), *args, **kwargs)

    return routed


class AsyncPool:
    """A pool's methods as coroutines, for any event loop. Each calls that of the right council."""

    def __init__(self, name: str, councils: Sequence[AsyncCouncil], close: Callable[[], None]) -> None:
        self._name = name
        self._councils = councils
        self._close = close

    def _of(self, about: Decision | str) -> AsyncCouncil:
        return self._councils[council_of(id_of(about), len(self._councils))]

    @checked
    def draft(
        self,
        summary: str,
        body: str = "",
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Action | Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
    ) -> Envelope:
        """Like ``Council.draft``. The council is that of ``key`` or of the superseded proposal, otherwise any.

        ``idempotency_key`` is the ``key`` of ``Council.draft``: the caller's own name for the proposal. If you give
        both keys, give both each time. Raises CallerError if the key and the superseded proposal belong to different
        councils.
        """
        council = chosen(self._councils, key, idempotency_key, supersedes)
        return council.draft(
            summary,
            body,
            risk=risk,
            confidence=confidence,
            action=action,
            wait_for=wait_for,
            timeout_s=timeout_s,
            supersedes=supersedes,
            history=history,
            requester=requester,
            key=idempotency_key,
        )

    def _addressed(self, proposal: str | Envelope, body: str, keys: Keys, details: Details) -> Envelope:
        """A proposal as a draft, with an id of the council that it belongs to."""
        if not isinstance(proposal, Envelope):
            return self.draft(proposal, body, **keys, **details)
        if body or details != PLAIN or any(each is not None for each in keys.values()):
            raise CallerError("a drafted proposal is complete: give its details, and its key, to draft")
        return proposal

    @checked
    async def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Action | Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
    ) -> Decision:
        """Like ``Council.propose``. All proposals of one ``key`` go to the same council.

        The same ``idempotency_key`` from the same ``sender`` gets the same decision, also after a restart.
        """
        details: Details = {
            "risk": risk,
            "confidence": confidence,
            "action": action,
            "wait_for": wait_for,
            "timeout_s": timeout_s,
            "supersedes": supersedes,
            "history": history,
            "requester": requester,
        }
        keys: Keys = {"key": key, "idempotency_key": idempotency_key}
        envelope = self._addressed(proposal, body, keys, details)
        return await self._of(envelope.msg_id).propose(
            envelope, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s
        )

    @checked
    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Action | Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        wait_for_human: bool = False,
    ) -> list[Decision | CouncilError]:
        """Like ``Council.propose_many``. If one of the proposals is invalid, none is proposed.

        The keywords up to ``requester`` are for those that are texts. Use ``draft`` for those that have a key.
        """
        details: Details = {
            "risk": risk,
            "confidence": confidence,
            "action": action,
            "wait_for": wait_for,
            "timeout_s": timeout_s,
            "supersedes": supersedes,
            "history": history,
            "requester": requester,
        }
        check_many(proposals)
        envelopes = [
            self._addressed(each, "", {}, PLAIN if isinstance(each, Envelope) else details)
            for each in proposals
        ]
        proposing = (self._of(each.msg_id).propose(each, wait_for_human=wait_for_human) for each in envelopes)
        return list(await asyncio.gather(*map(decision_or_error, proposing)))

    @checked
    async def act(
        self,
        tool: str,
        args: Mapping[str, Any],
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        summary: str = "",
        body: str = "",
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        timeout_s: float | None = None,
        history: History | None = None,
        requester: Requester | Mapping[str, str | None] | None = None,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        run_timeout_s: float = RUN_S,
        ttl_s: float = TTL_S,
    ) -> ActionResult:
        """Like ``Council.act``. The council is that of ``key``, otherwise any.

        With ``idempotency_key``, a call under the same ``sender`` and keys gets the result of the first run.
        """
        council = chosen(self._councils, key, idempotency_key)
        return await council.act(
            tool,
            args,
            summary=summary,
            body=body,
            risk=risk,
            confidence=confidence,
            timeout_s=timeout_s,
            history=history,
            requester=requester,
            key=idempotency_key,
            wait_for_human=wait_for_human,
            human_timeout_s=human_timeout_s,
            run_timeout_s=run_timeout_s,
            ttl_s=ttl_s,
        )

    def register(self, tool: Tool) -> None:
        """Adds a tool to each council, as ``tool`` does. Raises CallerError if there is one of its name."""
        for council in self._councils:
            council.register(tool)

    tool = tool

    cancel = _routed(AsyncCouncil.cancel)
    report = _routed(AsyncCouncil.report)
    answer = _routed(AsyncCouncil.answer)
    decision = _routed(AsyncCouncil.decision)

    async def escalations(self) -> list[OpenEscalation]:
        """The escalations of all councils that wait for a human, oldest first."""
        found = await asyncio.gather(*(council.escalations() for council in self._councils))
        return sorted((each for some in found for each in some), key=lambda each: each.asked_wall_s)

    async def status(self) -> dict[str, Any]:
        """The status of the pool: sums over all councils, and under ``councils`` the status of each."""
        found = await asyncio.gather(*(council.status() for council in self._councils))
        return _summed(self._name, found)

    async def close(self) -> None:
        """Closes all of them, even if one raises; the first one last, because Ray may have been started for it."""
        await asyncio.to_thread(self._close)


class CouncilPool:
    """Several councils with one API. Create it by ``launch``, ``inline`` or ``connect``; close it, or use ``with``.

    ``councils`` are its members, for what each has alone: ``events``, ``history``. Each refuses proposals that belong
    to another. ``aio`` has coroutines of the same names.
    """

    def __init__(self, name: str, handles: Sequence[Handle]) -> None:
        self.name = name
        self.councils = tuple(Council(handle, (at, len(handles))) for at, handle in enumerate(handles))
        self._handles = handles
        # A loop of the pool's own, so that no council waits for another.
        self._background = Background(f"pool-{name}")
        self._councils = [council.aio for council in self.councils]
        self.aio = AsyncPool(name, self._councils, self.close)

    @classmethod
    @spelled_out
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

        ``settings`` apply to each council: with three seats and a cap of a million tokens, each has these. An SQLite
        store becomes a file for each, next to the configured one. Raises the errors of ``Council.launch``, and
        PoolMismatch for journals that belong to a pool of another size.
        """
        require_ray("CouncilPool.launch()", "; or use CouncilPool.inline(), which needs none")
        return cls._opened(launch, count, config, _one_sender(sender, key), settings)

    @classmethod
    @spelled_out
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
    @spelled_out
    def connect(
        cls,
        address: str | None = None,
        name: str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[ClientSettings],
    ) -> Self:
        """Connects to a running pool by the name of its launch; see ``Council.connect``.

        Raises CallerError for a council that is not part of a pool.
        """
        base = configured(None, {**settings, "ray_address": address, "name": name})
        sender, key = _one_sender(sender, key)
        with _closed_unless_all() as handles:

            def joined(number: int) -> Handle:
                return connect(address, f"{base.name}.{number}", None, sender, key, settings)

            handles.append(joined(0))
            place = handles[0].wait(handles[0].status())["pool"]
            if place is None:
                raise CallerError(f"the council {base.name}.0 is not part of a pool: use Council.connect")
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
            handles.append(make(parts[0], *sender, {}))  # alone, because it may start Ray for all
            with ThreadPoolExecutor(STARTING_MAX, "council-pool") as starting:
                made = [starting.submit(make, part, *sender, {}) for part in parts[1:]]
            handles.extend(each.result() for each in made if each.exception() is None)
            for each in made:
                each.result()  # raises its error
            return cls(base.name, handles)

    def council(self, proposal_id: str) -> Council:
        """The council of a proposal, by its id."""
        return self.councils[council_of(proposal_id, len(self.councils))]

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            for handle in self._handles:
                handle.background.refuse_own_thread()
        except CallerError:
            coroutine.close()
            raise
        return self._background.wait(coroutine)

    draft = at_once(AsyncPool.draft)
    register = at_once(AsyncPool.register)
    propose = blocking(AsyncPool.propose)
    act = blocking(AsyncPool.act)
    cancel = blocking(AsyncPool.cancel)
    report = blocking(AsyncPool.report)
    answer = blocking(AsyncPool.answer)
    decision = blocking(AsyncPool.decision)
    escalations = blocking(AsyncPool.escalations)
    status = blocking(AsyncPool.status)

    propose_many = blocking_many(AsyncPool.propose_many)

    guard = guard
    tool = tool

    def close(self) -> None:
        """Closes all of them, even if one raises; see ``Council.close``."""
        try:
            _close(self.councils)
        finally:
            self._background.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CouncilPool {self.name} of {len(self.councils)}>"


@contextlib.contextmanager
def _closed_unless_all() -> Iterator[list[Handle]]:
    """Collects opened councils. If one can't be opened, closes all of them."""
    handles: list[Handle] = []
    try:
        yield handles
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to report
            _close(handles)
        raise


def _one_sender(sender: str | None, key: bytes | None) -> tuple[str, bytes | None]:
    """A client's name in all councils, because a proposal is drafted before its council is known.

    The key comes with it. A name that is made up here is used once, so its key is made here too, and not stored.
    """
    if sender:
        return sender, key
    return f"client-{secrets.token_hex(8)}", secrets.token_bytes(32) if key is None else key


def _close(councils: Iterable[Council | Handle]) -> None:
    """Closes the first council last: if Ray was started for the pool, it was started for that one."""
    with contextlib.ExitStack() as closing:
        for council in councils:
            closing.callback(council.close)


def _summed(name: str, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The statuses of a pool's councils, and the sums over them."""
    sums: dict[str, Any] = {key: sum(each[key] for each in found) for key in ("open_count", "with_human")}
    for key in ("decided", "refused", "ignored"):
        words = sorted({word for each in found for word in each[key]})
        sums[key] = {word: sum(each[key].get(word, 0) for each in found) for word in words}
    silent = [
        f"{each['name']}: {seat['name']}" for each in found for seat in each["seats"] if not seat["active"]
    ]
    return {"name": name, "count": len(found), **sums, "inactive": silent, "councils": list(found)}
