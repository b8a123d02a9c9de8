"""Three minds vote before an agent acts. The public names, loaded when they are first used.

    from council import Council

    with Council.connect() as council:  # the council that ``council up`` started
        decision = council.propose("Delete the staging bucket", risk="high")
        print(decision)

Without a running council, ``Council.inline()`` starts one in this process and ``Council.launch()`` one on Ray.
``help(council.Council)`` describes all calls; ``council.testing`` has councils for tests. Importing this package
imports neither Ray nor any mind.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from council.agents.mind import (
        Action,
        Case,
        Mind,
        Observation,
        Opinion,
        Ruling,
        RulingMind,
        ShownBallot,
        Stream,
    )
    from council.api.acting import ActionResult
    from council.api.aio import AsyncCouncil
    from council.api.client import Council
    from council.api.event_stream import Event
    from council.api.pool import CouncilPool
    from council.config.settings import CouncilConfig, SeatConfig
    from council.core.state import Ballot, Decision, Escalation, Tally
    from council.journal.entries import Entry, HistoryPage
    from council.protocol.envelope import Envelope, Requester
    from council.protocol.errors import (
        ActionFailed,
        CouncilError,
        NotApproved,
        NotVerified,
        OutcomeUnknown,
    )
    from council.runtime.open_escalations import OpenEscalation

__version__ = "0.2.0"

_HOMES = {
    "Action": "council.agents.mind",
    "ActionFailed": "council.protocol.errors",
    "ActionResult": "council.api.acting",
    "AsyncCouncil": "council.api.aio",
    "Ballot": "council.core.state",
    "Case": "council.agents.mind",
    "Council": "council.api.client",
    "CouncilConfig": "council.config.settings",
    "CouncilError": "council.protocol.errors",
    "CouncilPool": "council.api.pool",
    "Decision": "council.core.state",
    "Entry": "council.journal.entries",
    "Envelope": "council.protocol.envelope",
    "Escalation": "council.core.state",
    "Event": "council.api.event_stream",
    "HistoryPage": "council.journal.entries",
    "Mind": "council.agents.mind",
    "NotApproved": "council.protocol.errors",
    "NotVerified": "council.protocol.errors",
    "Observation": "council.agents.mind",
    "OpenEscalation": "council.runtime.open_escalations",
    "Opinion": "council.agents.mind",
    "OutcomeUnknown": "council.protocol.errors",
    "Requester": "council.protocol.envelope",
    "Ruling": "council.agents.mind",
    "RulingMind": "council.agents.mind",
    "SeatConfig": "council.config.settings",
    "ShownBallot": "council.agents.mind",
    "Stream": "council.agents.mind",
    "Tally": "council.core.state",
}

__all__ = [
    "Action",
    "ActionFailed",
    "ActionResult",
    "AsyncCouncil",
    "Ballot",
    "Case",
    "Council",
    "CouncilConfig",
    "CouncilError",
    "CouncilPool",
    "Decision",
    "Entry",
    "Envelope",
    "Escalation",
    "Event",
    "HistoryPage",
    "Mind",
    "NotApproved",
    "NotVerified",
    "Observation",
    "OpenEscalation",
    "Opinion",
    "OutcomeUnknown",
    "Requester",
    "Ruling",
    "RulingMind",
    "SeatConfig",
    "ShownBallot",
    "Stream",
    "Tally",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'council' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
