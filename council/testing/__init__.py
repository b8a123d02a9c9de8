"""Councils for the tests of your own code: real ones in this process, whose minds always vote the same.

    from council.testing import rejecting

    def test_nothing_is_deployed_if_the_council_rejects_it():
        with rejecting("not on a Friday") as council:
            assert deploy(council) == "not deployed"

Nothing is mocked: proposals are checked, signed, voted on and journaled in memory, by the ordinary rules. With
pytest, the fixtures ``council_approves``, ``council_rejects`` and ``council_escalates`` are such councils. No
council.toml and no variable of the environment is read. Without ``store``, nothing is written to the user's state
folder. Importing this module imports neither pydantic nor Ray.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from council.agents.mind import Case, Opinion, Ruling, ShownBallot

if TYPE_CHECKING:
    from council.api.client import Council

__all__ = ["approving", "escalating", "rejecting"]


def approving(reason: str = "approved for a test", **settings: Any) -> Council:
    """A council whose minds approve everything, for this reason. Close it, or use it in ``with``.

    ``settings`` are those of ``CouncilConfig``, without ``seats``. Raises the errors of ``Council.inline``.
    """
    return _inline(Opinion.yes(reason), Ruling("confirm", reason), settings)


def rejecting(reason: str = "rejected for a test", **settings: Any) -> Council:
    """A council whose minds reject everything, for this reason; see ``approving``."""
    return _inline(Opinion.no(reason), Ruling("reject", reason), settings)


def escalating(reason: str = "escalated for a test", **settings: Any) -> Council:
    """A council that asks a human about everything, for this reason; see ``approving``.

    ``council.answer(decision.escalation_id, approve=True)`` answers.
    """
    return _inline(Opinion.abstain(reason, escalate=reason), Ruling("human", reason), settings)


@dataclass(frozen=True)
class _Always:
    """A mind that says the same of every case."""

    opinion: Opinion
    ruling: Ruling

    def review(self, case: Case) -> Opinion:
        return self.opinion

    def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        return self.ruling


def _inline(opinion: Opinion, ruling: Ruling, settings: dict[str, Any]) -> Council:
    from council.api.client import Council
    from council.config.human_keys import current_user, kept_key
    from council.config.settings import BUILT_IN, MEMORY, CouncilConfig, SeatConfig

    if "seats" in settings:
        raise TypeError("these councils have their own seats: for others, use Council.inline(seats=...)")
    seats = tuple(SeatConfig(name, mind=_Always(opinion, ruling)) for name in BUILT_IN)
    given = {"store": MEMORY, **settings, "seats": seats}
    if given.get("humans") is not None:
        return Council.inline(CouncilConfig(**given))
    folder = TemporaryDirectory(prefix="council-testing-")  # for this user's key, instead of the state folder
    try:
        key = Path(folder.name, "human.key")
        kept_key(key, current_user())
        council = Council.inline(CouncilConfig(**{**given, "humans": {current_user(): f"file:{key}"}}))
    except BaseException:
        folder.cleanup()
        raise
    weakref.finalize(council, folder.cleanup)
    return council
