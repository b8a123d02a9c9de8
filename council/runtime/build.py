"""Builds the parts of a council from its configuration: rules, seats, clock. It does not connect them."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from council.agents.llm.endpoint import shared
from council.agents.messaging.ids import new_id
from council.agents.mind import ObservingMind
from council.agents.seat.host import SeatHost
from council.config.build_minds import build_mind, policy_of
from council.config.charter_files import charter_files_of
from council.config.settings import NOBODY, OBSERVER, CouncilConfig, SeatConfig
from council.core.state import Budget, Caps, Rules
from council.kinds.identity import kept_identity
from council.protocol.errors import MindError
from council.runtime.surroundings import Clock

if TYPE_CHECKING:
    from council.agents.messaging.span_recorder import SpanRecorder


def rules_of(config: CouncilConfig) -> Rules:
    """The part of the configuration that decisions depend on."""
    names = tuple(seat.name for seat in config.seats)
    observer = config.observer or OBSERVER
    return Rules(
        seats=names,
        prime=config.prime,
        observer=observer if observer in names else "",
        pool=config.pool,
        quorum=config.quorum,
        inactivity_limit_s=config.inactivity_s,
        escalation_ttl_s=config.escalation_ttl_s,
        sole_seat=config.sole_seat,
        lost_at_once=True,
        asks_outcome=True,
        keeps_escalation=True,
        open_max=config.open_max,
        escalations_max=config.escalations_max,
        creator=config.creator or "",
        identity=kept_identity(charter_files_of(config).charter.identity),
        shared=shared((seat.name, seat.model, seat.vendor, seat.base_url) for seat in config.seats),
        budget=Budget(
            proposal=_caps(config.proposal_tokens_max, config.proposal_usd_max),
            seat=_caps(config.seat_tokens_max, config.seat_usd_max),
            council=_caps(config.council_tokens_max, config.council_usd_max),
            seats=tuple((seat.name, _caps_of(seat, config)) for seat in config.seats if _has_caps(seat)),
        ),
    )


def _caps(tokens: int | None, usd: float | None) -> Caps:
    return Caps(tokens, None if usd is None else int(Decimal(str(usd)).scaleb(6)))  # never more than was set


def _has_caps(seat: SeatConfig) -> bool:
    return (seat.tokens_max, seat.usd_max) != (None, None)


def _caps_of(seat: SeatConfig, config: CouncilConfig) -> Caps:
    tokens = config.seat_tokens_max if seat.tokens_max is None else seat.tokens_max
    return _caps(tokens, config.seat_usd_max if seat.usd_max is None else seat.usd_max)


def system_clock() -> Clock:
    """The machine's clocks. Uptime counts from now."""
    began_s = time.monotonic()
    return Clock(uptime=lambda: time.monotonic() - began_s, wall=time.time)


def new_council_id(name: str) -> str:
    """A unique id: no other council has it, nor an earlier one of this name (rules 1.12)."""
    return f"{name}.{secrets.token_hex(8)}"


def new_seat(
    config: CouncilConfig, name: str, key: bytes, council_id: str, spans: SpanRecorder | None = None
) -> SeatHost:
    """The seat of that name, with a new mind. Raises MindError."""
    seat = next(seat for seat in config.seats if seat.name == name)
    mind = build_mind(seat, config)
    if config.observer == name and not isinstance(mind, ObservingMind):
        raise MindError(
            f"seat {name} is to observe, but its mind, {type(mind).__name__}, has no observe(case, stream): give it "
            f"one, name another seat as observer, or say observer = {NOBODY!r}",
            seat=name,
            mind=repr(mind),
        )
    return SeatHost(
        name,
        mind,
        key,
        council_id,
        wall=lambda: datetime.now(UTC),
        uptime=time.monotonic,
        new_id=new_id,
        heartbeat_s=config.heartbeat_s,
        concurrent_max=seat.max_concurrent,
        spans=spans,
        policy=policy_of(config, name),
        keeps_packets=config.keep_packets,
    )
