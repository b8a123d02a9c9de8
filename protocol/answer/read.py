"""Reads the control packet in a model's answer as far as possible, and applies it to the seat's ballot.

This module finds and splits an answer (rules 6.1), and applies its sections to the ballot (rules 6.6). It calls no
model and builds no prompt. ``sections`` has the shapes, and ``mangle`` the allowed updates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from council.protocol.answer import find_json, mangle
from council.protocol.answer.sections import (
    ATOMS_MAX,
    NAMES_MAX,
    OPERATIONS_MAX,
    TRACE_CHARS_MAX,
    TRANSITIONS_MAX,
    VERBS,
    BallotSection,
    ControlPacket,
    ExecutionMetadata,
    ImpactAnalysis,
    IntentClassification,
    LearningSignals,
    MemoryOperation,
    SafetyGates,
    Section,
    SelfCorrection,
    StateTransition,
)
from council.protocol.envelope import REASON_CHARS_MAX, RiskLevel, VoteWord
from council.protocol.errors import EnvelopeError
from council.protocol.models import malformed
from council.protocol.values import NoValue, freeze, items_of, kind_of, plain, quoted, text_problem

# rules 6.1
DEPTH_MAX = 200
ANSWER_BYTES_MAX = 5 * 2**20
SURFACE_CHARS_MAX = 50_000
# The share of an envelope that a packet may take, as JSON. The ballot's reason and the rest need the other part.
PACKET_BYTES_MAX = 512 * 1024
# Commas and brackets of all atoms in total: 2,000 atoms with a dozen arguments each. It bounds their cost.
MARKS_MAX = 30_000
# At most this many warnings, because readers begin with the first ones.
WARNINGS_MAX = 100

_SECTIONS: dict[str, type[Section]] = {
    "intent_classification": IntentClassification,
    "self_correction": SelfCorrection,
    "execution_metadata": ExecutionMetadata,
    "impact_analysis": ImpactAnalysis,
    "safety_gates": SafetyGates,
    "learning_signals": LearningSignals,
}
_ITEMS: dict[str, tuple[type[Section], int]] = {
    "memory_operations": (MemoryOperation, OPERATIONS_MAX),
    "state_transitions": (StateTransition, TRANSITIONS_MAX),
}
_REQUIRED = ("intent_classification", "mangle_updates", "memory_operations")
# The sections that may make a ballot stricter. If one of them can't be read, a human is asked.
_BEARING = ("execution_metadata", "impact_analysis", "safety_gates")
# The order in which parts are dropped if a packet is too large for an envelope.
_LEAST_FIRST = (
    *("reasoning_trace", "state_transitions", "learning_signals", "memory_operations", "mangle_updates"),
    *("self_correction", "impact_analysis", "execution_metadata", "intent_classification", "safety_gates"),
)
# Errors that are reported for one section. A model that corrects these is asked again anyway.
_PROBLEMS_MAX = 5
# Characters of a blocked action in a reason. The model's own reason must have room too.
_NAMED_MAX = 500
_LEARNING_MAX = 2_000
# The sections that a ballot is weighed by, or that are noted with it.
_WEIGHED = (*_BEARING, "intent_classification", "learning_signals")
_KEYS = frozenset({"control_packet", "surface_response", "ballot"})
_HALF = re.compile("[\ud800-\udfff]")
_MARK = re.compile(r"[\[{(,:]")


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading an answer.

    ``parse_confidence`` says how it was found (rules 6.1). ``confidence`` is the packet's own, also if the rest of
    its section could not be read.
    """

    packet: ControlPacket
    surface: str
    ballot: BallotSection | None
    parse_confidence: float
    confidence: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighed:
    """A ballot as it counts, with the effect of the packet's sections (rules 6.6).

    ``notes`` are what the packet says beside it, each with its kind: ``chesterton_fence``, ``override`` and
    ``learning``, the last as JSON. They stand with the decision, and change nothing.
    """

    vote: VoteWord
    reason: str
    confidence: float
    risk_level: RiskLevel
    asks_human: bool
    notes: tuple[tuple[str, str], ...] = ()


def weigh(reading: Reading) -> Weighed | None:
    """The ballot as it counts, or None if there is none. Sections only ever make it stricter (rules 6.6)."""
    ballot, packet = reading.ballot, reading.packet
    if ballot is None:
        return None
    vote, reason, risk = ballot.vote, ballot.reason, ballot.risk_level
    execution, gates, impact = packet.execution_metadata, packet.safety_gates, packet.impact_analysis
    blocked = []
    if execution is not None and execution.blocked_by_constitution:
        blocked.append("the constitution blocked an action")
    # Blank text blocks nothing. Any other text does: "none" can't be told from an action in all languages.
    named = "" if gates is None else (gates.dangerous_action_blocked or "").strip()
    if named:
        blocked.append(f"a dangerous action was blocked: {named[:_NAMED_MAX]}")
    if blocked and vote != "no":
        reason = f"No, as {' and '.join(blocked)}. The model had voted {vote}: {reason}"
        vote = "no"
    if impact is not None and impact.estimated_scope == "critical":
        risk = "high"
    stated = [ballot.confidence] if reading.confidence is None else [ballot.confidence, reading.confidence]
    return Weighed(
        vote=vote,
        reason=reason[:REASON_CHARS_MAX],
        confidence=min(stated),
        risk_level=risk,
        asks_human=gates is not None and gates.requires_user_approval,
        notes=tuple(_notes(packet)),
    )


def weigh_ballot(ballot: BallotSection, packet: Mapping[str, Any]) -> Weighed:
    """The ballot as it counts with this control packet, whichever mind made them (rules 6.6). Never raises.

    A section that may affect the ballot and can't be read asks a human, as in ``read``.
    """
    reader = _Reader([], mangle.shipped())
    found = reader.packet({"control_packet": {name: packet[name] for name in _WEIGHED if name in packet}})
    weighed = weigh(Reading(found, "", ballot, 1.0, reader.confidence))
    assert weighed is not None, "there is a ballot"
    return weighed


def _notes(packet: ControlPacket) -> Iterator[tuple[str, str]]:
    gates, learning = packet.safety_gates, packet.learning_signals
    if gates is not None:
        for kind, text in (
            ("chesterton_fence", gates.chesterton_fence_warning),
            ("override", gates.constitutional_override),
        ):
            if text and text.strip():
                yield kind, text.strip()[:_NAMED_MAX]
    if learning is not None and (data := plain(learning.data())):
        yield "learning", json.dumps(data, ensure_ascii=False, sort_keys=True)[:_LEARNING_MAX]


def read(text: str, schema: mangle.Schema | None = None) -> Reading:
    """Reads a model's answer: packet, surface response and ballot, as far as they are valid. Never raises.

    An invalid part is dropped, with a warning (rules 6.1). Updates are checked against ``schema``, by default the
    built-in one. If a section that may affect the ballot is invalid, its gate is closed: the packet then requires a
    user's approval.
    """
    notes: list[str] = []
    text = _clean(text).strip().strip("\ufeff").strip()
    choice = _choose(text, notes)
    if choice is None:
        surface = _cut(text, SURFACE_CHARS_MAX, "surface_response", notes)
        return Reading(ControlPacket(), surface, None, 0.5, warnings=_listed(notes))
    found, parse_confidence, contested = choice
    reader = _Reader(notes, schema or mangle.shipped())
    if contested:
        reader.unknown.append("which of several ballots is meant")
    packet = reader.packet(found.value)
    return Reading(
        packet=packet,
        surface=reader.surface(found.value),
        ballot=reader.one(BallotSection, found.value.get("ballot"), "ballot"),
        parse_confidence=parse_confidence,
        confidence=reader.confidence,
        warnings=_listed(notes),
    )


# Finding the answer


def _listed(notes: Sequence[str]) -> tuple[str, ...]:
    """The warnings, up to a limit."""
    more = len(notes) - WARNINGS_MAX
    return (*notes[:WARNINGS_MAX], f"and {more:,} more") if more > 0 else tuple(notes)


def _choose(text: str, notes: list[str]) -> tuple[find_json.JsonInText, float, bool] | None:
    """The answer in a text: the whole text, else a fenced block, else an object in prose (rules 6.1).

    With it come its confidence, and whether the text holds another answer with another ballot.
    """
    if len(text) > ANSWER_BYTES_MAX or (not text.isascii() and len(text.encode()) > ANSWER_BYTES_MAX):
        notes.append(
            f"the answer is longer than {ANSWER_BYTES_MAX:,} bytes, and taken for a surface response"
        )
        return None
    search = find_json.find_objects(text, lambda value: not _KEYS.isdisjoint(value), DEPTH_MAX)
    found = search.found
    if len(found) == 1 and (found[0].start, found[0].end) == (0, len(text)):
        return found[0], 1.0, False
    # An example in prose may hold one of the keys; an answer holds both.
    found = tuple(
        one for one in found if one.fenced or {"control_packet", "surface_response"} <= one.value.keys()
    )
    fenced = [one for one in found if one.fenced]
    if not found or search.steps > find_json.STEPS_MAX:
        why = search.problem or ("it holds no control packet" if text else "it is empty")
        notes.append(f"the answer is taken for a surface response: {why}")
        return None
    chosen = (fenced or found)[-1]
    contested = any(one.value.get("ballot") != chosen.value.get("ballot") for one in found)
    if len(found) > 1:
        which = "last" if chosen is found[-1] else "last in a fence"
        notes.append(
            f"the answer holds {len(found)} control packets, of which the {which} is read"
            + ("; their ballots differ" if contested else "")
        )
    return chosen, 0.95 if fenced else 0.85, contested


def _clean(text: str) -> str:
    """A text in a form that can be kept. Characters that no database or encoding accepts are marked."""
    return text if text_problem(text) is None else _HALF.sub("\ufffd", text.replace("\0", "\ufffd"))


def _cut(text: str, most: int, where: str, notes: list[str]) -> str:
    if len(text) <= most:
        return text
    notes.append(f"{where}: {len(text):,} characters, cut to {most:,}")
    note = f"\n[cut: there were {len(text):,} characters]"
    return text[: most - len(note)] + note


# Reading its parts


class _Reader:
    """Reads one answer's packet, each section separately, and collects unknown keys and warnings."""

    def __init__(self, notes: list[str], schema: mangle.Schema) -> None:
        self.notes = notes
        self.schema = schema
        self.confidence: float | None = None
        self.unknown: list[str] = []
        self._marks = 0

    def packet(self, answer: Mapping[str, Any]) -> ControlPacket:
        raw = answer.get("control_packet")
        fields: dict[str, Any] = {}
        if isinstance(raw, dict):
            for name, value in raw.items():
                kept = None if value is None else self._section(name, value)
                if kept is not None:
                    fields[name] = kept
            for name in _REQUIRED:
                if raw.get(name) is None:
                    self.notes.append(f"{name}: is missing")
            self._fit(fields)
        elif raw is None:
            self.notes.append("control_packet: is missing")
        else:
            self._fault("control_packet", raw, "an object")
            self.unknown.append("control_packet")
        self._close_gate(fields)
        return ControlPacket.model_validate(fields)

    def surface(self, answer: Mapping[str, Any]) -> str:
        """The text for the user. Text around the object is not part of it."""
        value = answer.get("surface_response")
        if isinstance(value, str):
            return _cut(_clean(value), SURFACE_CHARS_MAX, "surface_response", self.notes)
        if value is None:
            self.notes.append("surface_response: is missing")
        else:
            self._fault("surface_response", value, "a text")
        return ""

    def one(self, kind: type[Any], value: object, where: str) -> Any:
        """``value`` as a section of this kind, or None with a warning."""
        if value is None:
            return None
        if not isinstance(value, dict):
            self._fault(where, value, "an object")
            return None
        try:
            return kind.model_validate(dict(items_of(freeze(value))))
        except EnvelopeError as fault:
            problem = f"{fault.field}: {fault.message}"
        except ValidationError as error:
            problem = "; ".join(malformed(error).problems[:_PROBLEMS_MAX])
        self.notes.append(f"{where}.{problem}; dropped")
        return None

    def _section(self, name: str, value: Any) -> Any:
        if name in _SECTIONS:
            return self._object(name, value)
        if name == "reasoning_trace":
            if not isinstance(value, str):
                self._fault(name, value, "a text")
                return None
            return _cut(_clean(value), TRACE_CHARS_MAX, name, self.notes)
        if name == "mangle_updates":
            return self._updates(value)
        if name in _ITEMS:
            return self._items(name, value)
        try:
            return freeze({name: value})[name]
        except EnvelopeError as fault:
            self.notes.append(f"{fault.field}: {fault.message}; dropped")
            return None

    def _items(self, name: str, value: Any) -> tuple[Section, ...] | None:
        kind, most = _ITEMS[name]
        found = []
        for index, item in enumerate(self._list(name, value, most)):
            where = f"{name}[{index}]"
            kept = self.one(kind, NoValue("null is none") if item is None else item, where)
            if kept is not None and (not isinstance(kept, StateTransition) or self._moves(kept, where)):
                found.append(kept)
        return tuple(found) if isinstance(value, list) else None

    def _object(self, name: str, value: Any) -> Section | None:
        if name == "impact_analysis" and isinstance(value, dict):
            value = {
                key: self._list(f"{name}.{key}", inner, NAMES_MAX) if isinstance(inner, list) else inner
                for key, inner in value.items()
            }
        found: Section | None = self.one(_SECTIONS[name], value, name)
        if name == "intent_classification":
            self._intent(found, value)
        elif found is None and name in _BEARING:
            self.unknown.append(name)
        return found

    def _intent(self, found: Section | None, value: Any) -> None:
        """The confidence that counts, also if the intent is dropped, which must not loosen the ballot."""
        stated = value.get("confidence") if isinstance(value, dict) else NoValue("")
        if isinstance(stated, int | float) and not isinstance(stated, bool) and 0 <= stated <= 1:
            self.confidence = abs(float(stated))
        elif stated is not None:
            self.unknown.append("intent_classification.confidence")
        if isinstance(found, IntentClassification) and found.verb not in VERBS[found.category]:
            others = [category for category, verbs in VERBS.items() if found.verb in verbs]
            what = f"is of {others[0]}, not {found.category}" if others else "is not a known verb"
            self.notes.append(f"intent_classification.verb: {quoted(found.verb)} {what}; kept")

    def _list(self, name: str, value: Any, most: int) -> list[Any]:
        if not isinstance(value, list):
            self._fault(name, value, "an array")
            return []
        if len(value) > most:
            self.notes.append(f"{name}: {len(value):,} entries, of which the first {most:,} are read")
        return value[:most]

    def _updates(self, value: Any) -> tuple[str, ...] | None:
        found = tuple(
            text
            for index, text in enumerate(self._list("mangle_updates", value, ATOMS_MAX))
            if self._is_atom(text, f"mangle_updates[{index}]")
        )
        return found if isinstance(value, list) else None

    def _is_atom(self, text: Any, where: str) -> bool:
        """Whether it is an atom that a model may state; if not, with a warning."""
        if not isinstance(text, str):
            self._fault(where, text, "a text")
            return False
        try:
            if len(text) <= mangle.ATOM_CHARS_MAX:  # a longer one costs nothing, because it is refused unread
                self._marks += len(_MARK.findall(text))
            if self._marks > MARKS_MAX:
                raise EnvelopeError(f"more than {MARKS_MAX:,} commas and brackets in all atoms", field=where)
            self.schema.check(text)
        except EnvelopeError as fault:
            self.notes.append(f"{where}: {fault.message}; dropped")
            return False
        return True

    def _moves(self, found: StateTransition, where: str) -> bool:
        """Whether both its ends are atoms that a model may state."""
        ends = (("from", found.from_), ("to", found.to))
        return all(not text.strip() or self._is_atom(text, f"{where}.{name}") for name, text in ends)

    def _fault(self, where: str, value: object, expected: str) -> None:
        problem = (
            value.problem if isinstance(value, NoValue) else f"expected {expected}, found {kind_of(value)}"
        )
        self.notes.append(f"{where}: {problem}; dropped")

    def _fit(self, fields: dict[str, Any]) -> None:
        """Drops what an envelope can't carry, in order of importance; all unknown keys together."""
        foreign = [name for name in fields if name not in ControlPacket.model_fields]
        for names in (foreign, *([name] for name in _LEAST_FIRST)):
            if _fits(fields):
                return
            dropped = [name for name in names if fields.pop(name, None) is not None]
            for name in dropped:
                self.notes.append(
                    f"{quoted(name)}: dropped, as the packet is larger than an envelope carries"
                )
            self.unknown.extend(name for name in dropped if name in _BEARING)

    def _close_gate(self, fields: dict[str, Any]) -> None:
        if self.unknown:
            gates = fields["safety_gates"].data() if "safety_gates" in fields else {}
            fields["safety_gates"] = {**gates, "requires_user_approval": True}
            what = ", ".join(self.unknown)
            self.notes.append(f"safety_gates: a user's approval is required, as this is not known: {what}")


def _fits(fields: Mapping[str, Any]) -> bool:
    try:
        data = plain(ControlPacket.model_validate(fields).data())
    except EnvelopeError:
        return False
    return len(json.dumps(data, ensure_ascii=False).encode()) <= PACKET_BYTES_MAX
