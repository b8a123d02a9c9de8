"""The council from Python: launch, connect, propose, watch, answer.

    from council import Council
    with Council.launch() as council:
        decision = council.propose("Delete the staging bucket", risk="high", timeout_s=60)
        print(decision.outcome, decision.tally, decision.dissent)

Every method blocks: it waits for the coroutine of the same name of ``council.aio``, an AsyncCouncil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

from council.api import handle as handles
from council.api.aio import AsyncCouncil
from council.api.events import Events
from council.api.guard import Guard
from council.api.handle import Handle
from council.api.keywords import ClientSettings, Details, Guarding, History, Settings, check_many
from council.core.state import ActionStage, Decision, Escalation, RiskLevel
from council.journal.entries import Asked, HistoryPage
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError

if TYPE_CHECKING:
    from council.config.settings import CouncilConfig

F = TypeVar("F", bound=Callable[..., Any])


class Council:
    """A running council. Made by ``launch``, ``inline`` or ``connect``; close it, or use it in ``with``."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._wait = handle.wait
        self.aio = AsyncCouncil(handle)

    # Connecting

    @classmethod
    def launch(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        dashboard: bool = False,
        **settings: Unpack[Settings],
    ) -> Council:
        """A council on Ray, which ends with this object. ``settings`` are those of ``council.toml``.

        Without ``ray_address`` it uses the Ray that this process is connected to, else starts a local one.
        With a store, the key of ``sender`` is kept in the state folder for the next run, unless ``key`` gives it.
        Raises ConfigError, MindError, NameTaken, Unreachable, VersionMismatch, OperatorError.
        """
        return cls(handles.launch(config, sender, key, settings, dashboard=dashboard))

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
    ) -> Council:
        """A council that runs already, by its name and the address of its Ray; it goes on after ``close``.

        Without an address it uses the council that this user brought up here; ``ray_address`` of the settings and
        RAY_ADDRESS count as an address. If there is none, it looks in the Ray that this process is connected to.
        ``address="auto"`` joins whichever Ray runs on this machine, anybody's, and refuses one that demands no token
        unless ``ray_insecure=True``. ``sender`` and ``key`` (32 bytes) let a client be known by the same name again.
        Where the council goes away and comes up again, the next call connects anew, within its own time. Raises
        Unreachable, CouncilDied (it has crashed), VersionMismatch, NameTaken, ConfigError.
        """
        return cls(handles.connect(address, name, config, sender, key, settings))

    @classmethod
    def inline(
        cls,
        config: CouncilConfig | Path | str | None = None,
        *,
        sender: str | None = None,
        key: bytes | None = None,
        **settings: Unpack[Settings],
    ) -> Council:
        """A council in this process, without Ray, for scripts, notebooks and tests; the rules are the same.

        Asynchronous minds share one event loop here, on a thread of the council's own. ``sender`` and ``key`` are
        as in ``launch``. Raises ConfigError, MindError, NameTaken, OperatorError.
        """
        return cls(handles.in_process(config, sender, key, settings))

    # Asking and deciding

    @property
    def name(self) -> str:
        """The council's name."""
        return self._handle.config.name

    @property
    def sender(self) -> str:
        """The name that this client proposes under."""
        return self._handle.session.name

    @property
    def config(self) -> CouncilConfig:
        """The configuration it was launched or connected with."""
        return self._handle.config

    def draft(
        self,
        summary: str,
        body: str = "",
        *,
        risk: RiskLevel = "low",
        confidence: float = 1.0,
        action: Mapping[str, Any] | None = None,
        wait_for: Literal["decisive", "all"] | None = None,
        timeout_s: float | None = None,
        supersedes: str | None = None,
        history: History | None = None,
    ) -> Envelope:
        """A PROPOSAL envelope, not yet submitted: submitting it again is a retry, never a second proposal.

        ``action`` is ``{"tool": str, "args": {...}}``; ``timeout_s`` the time budget in seconds. Proposals
        with an action wait for every seat unless told otherwise (rules 1.5). ``history`` is what was said and
        done before, oldest first: pairs such as ``("user", "…")`` or ``("tool", "…")``, of which each seat's
        model is shown what bears on the proposal. Raises EnvelopeError or CallerError, which names the field.
        """
        return self.aio.draft(
            summary,
            body,
            risk=risk,
            confidence=confidence,
            action=action,
            wait_for=wait_for,
            timeout_s=timeout_s,
            supersedes=supersedes,
            history=history,
        )

    def propose(
        self,
        proposal: str | Envelope,
        body: str = "",
        *,
        wait_for_human: bool = False,
        human_timeout_s: float | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """Submits a proposal, or one that ``draft`` made, and waits for the decision.

        ``details`` are those of ``draft``. A decision that waits for a human has ``final`` False, unless
        ``wait_for_human``, which waits for the answer or its expiry, ``human_timeout_s`` at most. Raises
        TooManyOpen, Refused, TokenBudgetError (it fits no seat's prompt), EnvelopeError, NoAnswer, CouncilDied.
        """
        return self._wait(
            self.aio.propose(
                proposal, body, wait_for_human=wait_for_human, human_timeout_s=human_timeout_s, **details
            )
        )

    def propose_many(
        self,
        proposals: Iterable[str | Envelope],
        *,
        wait_for_human: bool = False,
        **details: Unpack[Details],
    ) -> list[Decision | CouncilError]:
        """Submits many proposals at once; a decision for each, in order, or the error it came to."""
        check_many(proposals)
        given = [*proposals]  # an iterator of the caller's runs here
        return self._wait(self.aio.propose_many(given, wait_for_human=wait_for_human, **details))

    def cancel(self, proposal_id: str, reason: str = "") -> None:
        """Takes back a proposal of this client's. Raises Refused: not its own, unknown, or decided."""
        self._wait(self.aio.cancel(proposal_id, reason))

    def report(
        self, decision: Decision | str, *, stage: ActionStage = "act", ok: bool, text: str = ""
    ) -> None:
        """Tells what became of an approved action of this client's, once for each ``stage``, in their order.

        The decision stays as it is. Raises Refused: not its own, not approved, told before, or out of order.
        """
        self._wait(self.aio.report(decision, stage=stage, ok=ok, text=text))

    def answer(
        self, escalation_id: str, *, approve: bool, reason: str = "", human: str | None = None
    ) -> Decision:
        """The decision that an answer to an escalation makes, given as ``human`` (by default this user).

        It is signed with that human's own key, and the first one is the decision (rules 1.9). Raises
        NotEnrolled, which says who may answer, and Refused: unknown, not escalated, or answered by another.
        """
        return self._wait(self.aio.answer(escalation_id, approve=approve, reason=reason, human=human))

    def decision(self, proposal_id: str) -> Decision | None:
        """The decision on a proposal or how it stands with a human; None while the seats deliberate.

        Raises Refused for an id that the council was never given, and StoreError while its journal can't keep what
        has become of it (rules 4.7).
        """
        return self._wait(self.aio.decision(proposal_id))

    def escalations(self) -> list[Escalation]:
        """What waits for a human, oldest first."""
        return self._wait(self.aio.escalations())

    def status(self) -> dict[str, Any]:
        """The council at a glance, as plain data: seats and their heartbeats, what is open, counts."""
        return self._wait(self.aio.status())

    def history(self, **asked: Unpack[Asked]) -> HistoryPage:
        """A page of the journal's records, the newest first unless ``newest_first=False``.

        All on one ``proposal`` (its id, or the first 4 or more characters of it), of some ``types`` ("ballot",
        "decision" …), of one ``seat``, client or human, ``since`` a time and ``until`` another. Up to ``limit``
        of them; the same question with the page's ``cursor`` goes on, until that is None. With ``envelopes``,
        each with the one that brought it. Raises CallerError, Refused for an unknown proposal, StoreError.
        """
        return self._wait(self.aio.history(**asked))

    def events(self, after: int = 0, *, follow: bool = True) -> Events:
        """Events from position ``after`` on, for ``for`` and ``async for``; with ``follow``, without end.

        Raises PositionLost, while iterating, where events after ``after`` are no longer kept.
        """
        return self.aio.events(after, follow=follow)

    def guard(self, **how: Unpack[Guarding]) -> Callable[[F], F]:
        """Puts the council in front of a function: a call of it runs only once it is approved.

        ``describe`` makes the summary from the arguments: a format string (``"Delete {bucket}"``) or a
        function. The arguments are shown to the seats and in the events, whole, but for those that ``hide``
        names or that are pydantic's secrets, shown as ``<hidden>``. Raises NotApproved with the decision
        where it is not approved, also while it waits for a human, unless ``wait_for_human``; and CallerError,
        unproposed, for an argument that can't be shown, as one whose repr is an address and no ``describe``
        stands for. What became of the call is reported. ``verify(result, *args)`` says after it whether all is
        as wanted; where that gives nothing true or raises, or the call itself raises, ``revert(*args)`` runs,
        and the caller gets NotVerified, or what the call raised.
        """
        return Guard(how, self.aio, self)

    # Its end

    def close(self) -> None:
        """Ends a council that was launched here; only leaves one that was not.

        What is open goes on when a council of this name and store is launched again; without a journal on disk
        it ends undecided.
        """
        self._handle.close()

    def end(self) -> None:
        """Ends the council itself, also one that was only connected to; see ``close``."""
        self._handle.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCouncil:
        return self.aio

    async def __aexit__(self, *_: object) -> None:
        await self.aio.close()

    def __repr__(self) -> str:
        return f"<Council {self._handle}>"


def handle_of(council: Council) -> Handle:
    """How this process holds the council."""
    return council._handle
