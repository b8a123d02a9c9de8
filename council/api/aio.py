"""A council's methods as coroutines, for any event loop. Each is Council's own, waited for in another way.

from council import AsyncCouncil
async with AsyncCouncil.launch() as council:
    decision = await council.propose("Delete the staging bucket", risk="high", timeout_s=60)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from council.agents.messaging import spans
from council.api.events import Events
from council.api.keywords import ClientSettings, Details, Guarding, Settings
from council.core.state import ActionStage, Decision, Escalation
from council.journal.entries import Asked, HistoryPage
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError

if TYPE_CHECKING:
    from council.api.client import Council
    from council.config.settings import CouncilConfig

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class AsyncCouncil:
    """A council's methods as coroutines, for use from any event loop. See ``Council`` for each.

    ``launch``, ``connect`` and ``inline`` give what can be awaited, or used in ``async with``, which closes
    the council; a thread makes it, so that the loop goes on meanwhile.
    """

    def __init__(self, council: Council) -> None:
        self._council = council

    @classmethod
    def launch(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        dashboard: bool = False,
        **settings: Unpack[Settings],
    ) -> Opening:
        from council.api.client import Council

        return Opening(
            lambda: Council.launch(config, sender=sender, key=key, dashboard=dashboard, **settings)
        )

    @classmethod
    def connect(
        cls,
        address: str | None = None,
        name: str | None = None,
        *,
        config: CouncilConfig | Path | str | None = None,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[ClientSettings],
    ) -> Opening:
        """As ``Council.connect``.

        Without an address it uses the council that this user brought up here; ``ray_address`` of the settings and
        RAY_ADDRESS count as an address.
        """
        from council.api.client import Council

        return Opening(
            lambda: Council.connect(address, name, config=config, sender=sender, key=key, **settings)
        )

    @classmethod
    def inline(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Opening:
        from council.api.client import Council

        return Opening(lambda: Council.inline(config, sender=sender, key=key, **settings))

    @property
    def name(self) -> str:
        return self._council.name

    @property
    def sender(self) -> str:
        return self._council.sender

    @property
    def config(self) -> CouncilConfig:
        return self._council.config

    @property
    def _around(self) -> spans.Context | None:
        """What spans of the caller's are children of, for it waits on another loop than they are made on."""
        return spans.here(self._council._spans)

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._council._closed:
            coroutine.close()
            self._council._refuse_if_closed()
        return await self._council._background.wrap(coroutine)

    async def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        return await self._run(
            self._council._propose(proposal, body, wait_for_human, human_timeout_s, details, self._around)
        )

    async def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        return await self._run(self._council._propose_many(proposals, wait_for_human, details, self._around))

    async def cancel(self, proposal_id: str, reason: str = "") -> None:
        await self._run(self._council._cancel(proposal_id, reason))

    async def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        await self._run(self._council._report(decision, stage, ok, text))

    async def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        return await self._run(self._council._answer(escalation_id, approve, reason, human))

    async def decision(self, proposal_id: str) -> Decision | None:
        return await self._run(self._council._decision(proposal_id))

    async def escalations(self) -> list[Escalation]:
        return await self._run(self._council._escalations())

    async def status(self) -> dict[str, Any]:
        return await self._run(self._council._status())

    async def history(self, **asked: Unpack[Asked]) -> HistoryPage:
        return await self._run(self._council._history(asked))

    def draft(self, summary: str, body: str = "", **details: Unpack[Details]) -> Envelope:
        return self._council.draft(summary, body, **details)

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        return self._council.events(after, follow=follow)

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """As ``Council.guard``, for async functions alone: a plain one raises CallerError when decorated."""
        from council.api.guard import Guard

        return Guard(self._council, how, coroutines_only=True)

    async def close(self) -> None:
        await asyncio.to_thread(self._council.close)

    async def end(self) -> None:
        await asyncio.to_thread(self._council.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._council)[1:]}"


class Opening:
    """A council that is still to be made: await it, or use it in ``async with``."""

    def __init__(self, make: Callable[[], Council]) -> None:
        self._make = make
        self._made: AsyncCouncil | None = None

    def __await__(self) -> Generator[Any, None, AsyncCouncil]:
        return self._open().__await__()

    async def _open(self) -> AsyncCouncil:
        maker = ThreadPoolExecutor(1, "council-opening")
        making = maker.submit(self._make)
        try:
            return (await asyncio.wrap_future(making)).aio
        except asyncio.CancelledError:
            # What is begun comes to its end; the same thread then closes the council that nobody will have.
            maker.submit(lambda: making.result().close())
            raise
        finally:
            maker.shutdown(wait=False)

    async def __aenter__(self) -> AsyncCouncil:
        self._made = await self
        return self._made

    async def __aexit__(self, *_: object) -> None:
        assert self._made is not None
        await self._made.close()
