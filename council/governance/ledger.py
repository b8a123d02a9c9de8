"""The ledger of an episode: budgets and what is spent of them, and the tokens with their uses (rules 5).

The budgets are those of the episode's first Decision. A directive costs a tool call when it is accepted; a result
brings the tokens and the time that were used. Nothing here changes a value: ``booked`` returns a new ledger.

A ToolAuthorizationToken has no fields of its own for two of its bounds, so these are keys of its
``resource_constraints``:

- ``arguments_sha256``: the ``arguments_digest`` of the directive's parameters.
- ``decision_packet_id``: the decision that the token stands on.
- ``executor``: the party that may execute it. The executor's side checks it.

Each other key names a parameter of the directive and bounds it: a list holds the values that are allowed, an object
with ``min`` or ``max`` bounds a number, and anything else must be equal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from council.governance.results import Result, Severity
from council.protocol.omen import Packet
from council.protocol.values import kind_of, plain, quoted

# The share of a budget at which a warning is given.
WARNING_SHARE = 0.8
WRITING = frozenset({"write", "delete", "modify"})
_ELSEWHERE = frozenset({"arguments_sha256", "decision_packet_id", "executor"})


class Budgets(msgspec.Struct, frozen=True):
    """What an episode may spend."""

    tokens: int
    tool_calls: int
    time_s: int


class Use(NamedTuple):
    """How much of one budget is used, in its unit."""

    name: str
    used: float
    budget: float

    @property
    def is_exceeded(self) -> bool:
        return self.used > self.budget

    @property
    def is_near(self) -> bool:
        """Whether 80 % are used."""
        return self.used > 0 and self.used >= WARNING_SHARE * self.budget


class Ledger(msgspec.Struct, frozen=True):
    """What an episode has spent. ``budgets`` is None until the first Decision.

    ``is_excused`` says that an exceeded budget was escalated, or approved by layer 1 (invariant 005).
    """

    budgets: Budgets | None = None
    tokens: int = 0
    tool_calls: int = 0
    time_ms: float = 0.0
    is_excused: bool = False

    def uses(self) -> tuple[Use, ...]:
        """Each budget and what is used of it; nothing without budgets."""
        if self.budgets is None:
            return ()
        return (
            Use("token_budget", self.tokens, self.budgets.tokens),
            Use("tool_call_budget", self.tool_calls, self.budgets.tool_calls),
            Use("time_budget_seconds", self.time_ms / 1000, self.budgets.time_s),
        )

    @property
    def is_exceeded(self) -> bool:
        return any(use.is_exceeded for use in self.uses())


class Grant(msgspec.Struct, frozen=True):
    """A token in the ledger. ``decision_id`` is the decision that it stands on, None if there was none yet."""

    token_id: str
    tool_ids: tuple[str, ...]
    operations: frozenset[str]
    resources: Mapping[str, Any]
    expiry: datetime
    uses_max: int
    uses: int
    is_revoked: bool
    decision_id: str | None


def booked(ledger: Ledger, packet: Packet) -> Ledger:
    """The ledger after an accepted packet."""
    payload = packet.payload
    match packet.header.packet_type:
        case "DecisionPacket" if ledger.budgets is None and packet.mcp is not None:
            given = packet.mcp.budgets
            budgets = Budgets(given.token_budget, given.tool_call_budget, given.time_budget_seconds)
            return replace(ledger, budgets=budgets)
        case "TaskDirectivePacket":
            return replace(ledger, tool_calls=ledger.tool_calls + 1)
        case "TaskResultPacket" if payload.execution_metadata is not None:
            used = payload.execution_metadata
            return replace(
                ledger,
                tokens=ledger.tokens + (used.tokens_used or 0),
                time_ms=ledger.time_ms + (used.execution_time_ms or 0),
            )
        case "EscalationPacket" if payload.escalation_trigger == "budget_insufficient":
            return replace(ledger, is_excused=ledger.is_excused or ledger.is_exceeded)
        case "BeliefUpdatePacket" if packet.header.layer_source == 1:
            return replace(ledger, is_excused=ledger.is_excused or ledger.is_exceeded)
    return ledger


def check(ledger: Ledger, packet: Packet) -> Iterator[Result]:
    """What is wrong with the packet's cost: a directive past a budget is refused; a result only warns.

    So a directive is refused if its call does not fit, or if any budget is exceeded already.
    """
    kind, after = packet.header.packet_type, booked(ledger, packet)
    if kind not in ("TaskDirectivePacket", "TaskResultPacket"):
        return
    for before, use in zip(ledger.uses(), after.uses(), strict=True):
        expected = f"at most {use.budget:g} used"
        if use.is_exceeded and kind == "TaskDirectivePacket":
            severity: Severity = "WARNING" if packet.header.layer_source == 1 else "ERROR"
            yield _fault(packet, severity, "LEDGER-BUDGET", use, expected)
        elif use.is_exceeded and not before.is_exceeded:
            yield _fault(packet, "WARNING", "LEDGER-EXCEEDED", use, expected)
        elif use.is_near and not before.is_near and not use.is_exceeded:
            expected = f"less than {WARNING_SHARE:.0%} of {use.budget:g} used"
            yield _fault(packet, "WARNING", "LEDGER-80", use, expected)


def _fault(packet: Packet, severity: Severity, rule: str, use: Use, expected: str) -> Result:
    path = f"mcp.budgets.{use.name}"
    return Result(packet.header.packet_id, "ledger", rule, severity, path, expected, f"{use.used:g} used")


# Tokens


def grant_of(packet: Packet, decision_id: str | None) -> Grant:
    """The ledger's entry of a ToolAuthorizationToken. ``decision_id`` is the episode's last decision."""
    payload = packet.payload
    scope = payload.authorized_scope
    resources = scope.resource_constraints or {}
    named = resources.get("decision_packet_id")
    return Grant(
        payload.token_id,
        tuple(scope.tool_ids),
        frozenset(map(str, scope.operation_types)),
        resources,
        payload.expiry,
        payload.max_usage_count,
        payload.usage_count or 0,
        bool(payload.revoked),
        named if isinstance(named, str) else decision_id,
    )


def used(tokens: Mapping[str, Grant], token_id: str) -> dict[str, Grant]:
    """The tokens after one use of ``token_id``."""
    token = tokens[token_id]
    return {**tokens, token_id: replace(token, uses=token.uses + 1)}


def revoked(tokens: Mapping[str, Grant], which: Iterable[str]) -> dict[str, Grant]:
    """The tokens with those of ``which`` revoked. Ids that are no token's change nothing."""
    wanted = set(which)
    return {key: replace(each, is_revoked=True) if key in wanted else each for key, each in tokens.items()}


def arguments_digest(arguments: Mapping[str, Any] | None) -> str:
    """SHA-256, in hex, of the canonical JSON of a directive's parameters: keys sorted, no blanks, UTF-8."""
    return hashlib.sha256(_canonical(arguments or {})).hexdigest()


def arguments_of(directive: Packet) -> Mapping[str, Any]:
    """The parameters of a directive's tool or code."""
    method = directive.payload.execution_method
    return (method.code_params if method.method == "code" else method.tool_params) or {}


class Breach(NamedTuple):
    """Where a directive leaves its token: the path in the directive, what was expected and found."""

    path: str
    expected: str
    found: str


def breaches(grant: Grant, directive: Packet, safety: str, decision_id: str | None) -> Iterator[Breach]:
    """Each bound of the token that the directive does not keep.

    ``safety`` is WRITE or MIXED; ``decision_id`` is the episode's last decision. Expiry is judged at the directive's
    ``created_at``; a token is expired at its expiry.
    """
    token, method = "payload.authorization_token_id", directive.payload.execution_method
    if grant.is_revoked:
        yield Breach(token, "a token that is not revoked", f"{grant.token_id}, revoked")
    if directive.header.created_at >= grant.expiry:
        expected = f"a token that expires after {directive.header.created_at.isoformat()}"
        yield Breach(token, expected, f"{grant.token_id}, expired at {grant.expiry.isoformat()}")
    if grant.uses >= grant.uses_max:
        yield Breach(
            token, "a token with uses left", f"{grant.token_id}, used {grant.uses} of {grant.uses_max}"
        )
    if grant.decision_id not in (None, decision_id):
        yield Breach(token, f"a token of the decision {decision_id}", f"one of {grant.decision_id}")
    if method.tool_id not in grant.tool_ids:
        expected = f"one of {', '.join(grant.tool_ids)}"
        yield Breach("payload.execution_method.tool_id", expected, quoted(method.tool_id))
    yield from _operation_breaches(grant, directive, safety)
    yield from _resource_breaches(grant, arguments_of(directive))


def _operation_breaches(grant: Grant, directive: Packet, safety: str) -> Iterator[Breach]:
    """A parameter ``operation`` must be in scope. Without it, WRITE needs a writing operation, MIXED read as well."""
    operation = arguments_of(directive).get("operation")
    allowed = ", ".join(sorted(grant.operations))
    if operation is not None:
        if operation not in grant.operations:
            path = "payload.execution_method.tool_params.operation"
            yield Breach(path, f"one of {allowed}", quoted(operation))
    elif not grant.operations & WRITING or (safety == "MIXED" and "read" not in grant.operations):
        needed = "read, and one of " if safety == "MIXED" else "one of "
        expected = f"a token for {needed}{', '.join(sorted(WRITING))}"
        yield Breach("payload.tool_safety_class", expected, f"{safety}, and a token for {allowed}")


def _resource_breaches(grant: Grant, arguments: Mapping[str, Any]) -> Iterator[Breach]:
    path = "payload.execution_method.tool_params"
    digest = grant.resources.get("arguments_sha256")
    if digest is not None and digest != arguments_digest(arguments):
        yield Breach(path, f"arguments with the digest {quoted(digest, 64)}", arguments_digest(arguments))
    for name in sorted(grant.resources.keys() - _ELSEWHERE):
        bound, here = grant.resources[name], f"{path}.{name}"
        if name not in arguments:
            yield Breach(here, f"an argument within {_shown(bound)}", "no such argument")
        elif not _is_within(arguments[name], bound):
            yield Breach(here, f"a value within {_shown(bound)}", _shown(arguments[name]))


def _is_within(value: object, bound: object) -> bool:
    """Whether a parameter keeps a constraint; of a list, each element must."""
    if isinstance(bound, Mapping) and bound and bound.keys() <= {"min", "max"}:
        if not _is_number(value) or not all(map(_is_number, bound.values())):
            return False
        return bool(bound.get("min", value) <= value <= bound.get("max", value))
    if isinstance(bound, list | tuple):
        allowed = {_canonical(each) for each in bound}
        values = value if isinstance(value, list | tuple) else (value,)
        return all(_canonical(each) in allowed for each in values)
    return _canonical(value) == _canonical(bound)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """A foreign value for a message, cut."""
    if isinstance(value, Mapping | list | tuple):
        text = json.dumps(plain(value), sort_keys=True)
        return text if len(text) <= 80 else kind_of(value)
    return quoted(value) if isinstance(value, str) else json.dumps(value)


def _canonical(value: object) -> bytes:
    text = json.dumps(
        plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8", "surrogatepass")
