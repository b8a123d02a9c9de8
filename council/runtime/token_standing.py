"""How the tokens of a council stand, for people and programs."""

from __future__ import annotations

from typing import Literal

from council.core.state import CouncilState, Moment, Token, UseResult, Value

Standing = Literal["live", "under way", "unknown", "used", "revoked", "expired"]


class UseStanding(Value, frozen=True):
    """A counted use: when, in seconds since, and its result; None while it is under way."""

    use_id: str
    age_s: float
    result: UseResult | None


class TokenStanding(Value, frozen=True):
    """A token (rules 5). ``standing``: whether it may be used, or else why not.

    If several standings fit, ``under way`` and ``unknown`` come first, because a person may have to look.
    ``arguments`` is the sha256 of the approved arguments' canonical JSON. ``left_s`` are the seconds until
    it expires, 0 if it has ended.
    """

    token_id: str
    proposal_id: str
    proposer: str
    standing: Standing
    tool: str
    executor: str
    operations: tuple[str, ...]
    resources: tuple[str, ...]
    arguments: str
    uses_max: int
    left_s: float
    revoked: str
    uses: tuple[UseStanding, ...]
    timeout_s: float

    def __str__(self) -> str:
        """One line: the standing, the tool, what it may do, and the results of its uses."""
        left = f", {self.left_s:.0f} s left" if self.standing == "live" else ""
        outcomes = ", ".join(use.result.outcome for use in self.uses if use.result is not None)
        came = f"; {outcomes}" if outcomes else ""
        on = f" on {', '.join(self.resources)}" if self.resources else ""
        allowed = f"{self.tool} by {self.executor}, {'/'.join(self.operations)}{on}"
        return f"{self.token_id}: {self.standing}{left}; {allowed}{came}"


def standings(
    state: CouncilState, now: tuple[float, float], proposal_id: str | None = None
) -> list[TokenStanding]:
    """The tokens that are kept, oldest first, as of now: uptime and Unix seconds."""
    tokens = state.governance.tokens
    found = tokens.values() if proposal_id is None else filter(None, (tokens.get(proposal_id),))
    return [_standing(token, Moment(*now, 0)) for token in found]


def _standing(token: Token, now: Moment) -> TokenStanding:
    standing: Standing = "live"
    if token.under_way():
        standing = "under way"
    elif any(use.result is not None and use.result.outcome == "unknown" for use in token.uses):
        standing = "unknown"
    elif token.revoked:
        standing = "revoked"
    elif token.spent():
        standing = "used"
    elif token.expired(now):
        standing = "expired"
    may_run = not (token.revoked or token.spent() or token.expired(now))
    left_s = min(token.expires_s - now.uptime_s, token.expires_wall_s - now.wall_s) if may_run else 0.0
    terms = token.terms
    return TokenStanding(
        token_id=token.token_id,
        proposal_id=token.proposal_id,
        proposer=token.proposer,
        standing=standing,
        tool=token.tool,
        executor=terms.executor,
        operations=terms.operations,
        resources=terms.resources,
        arguments=terms.digest,
        uses_max=terms.uses,
        left_s=max(left_s, 0.0),
        revoked=token.revoked,
        uses=tuple(UseStanding(use.use_id, now.uptime_s - use.at_s, use.result) for use in token.uses),
        timeout_s=terms.timeout_s,
    )
