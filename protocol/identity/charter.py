"""The charter of a council: its identity, a persona, the task instructions. Their shapes, limits and change.

No file is read, and no model or tokenizer is called: data and token counters are arguments. The identity is frozen
and hashed (rules 7.1). ``change`` says who may change it, and ``persona`` what a persona may not say. If an identity
lists ``approved_personas``, only personas with these hashes can be used.

All three may be in one table, as GCP 3 and 5 show them:

    [identity]
    traits = ["truthfulness", "curiosity"]
    core_rules = ["Never execute shell commands without reflection and approval"]
    [persona]
    tone = "warm"
    constraints = ["no profanity"]
    [task_instructions.refinement]
    text = "Find what is wrong with the plan …"
    stage = "refine"

A missing part has the default below. Unknown keys are kept and written back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from council.protocol.errors import EnvelopeError, Refused, TokenBudgetError
from council.protocol.identity.persona import contradictions
from council.protocol.models import (
    AS_PLAIN,
    AS_TUPLE,
    EMPTY,
    Length,
    Model,
    json_object,
    malformed,
    refusal,
    unseen,
)
from council.protocol.packet import canonical_json
from council.protocol.values import FrozenDict, kind_of, plain, quoted
from council.protocol.wording import matching

Stage = Literal["plan", "refine", "observe", "act", "verify"]
Counter = Callable[[str], int]

# rules 2.1. At 4,096 tokens without a frame, with all fields full: 245, 115, 64, 2,203, 1,469.
IDENTITY_TOKENS_MAX, IDENTITY_PERCENT = 256, 6
PERSONA_TOKENS_MAX, PERSONA_PERCENT = 128, 3
INSTRUCTION_TOKENS_MAX = 64
HISTORY_PERCENT = 60

# Far more than fits into the tokens above. These limits keep the work on a charter small.
LINES_MAX = 64
LINE_CHARS_MAX = 1_000
TEXT_CHARS_MAX = 4_000
# Settings of programs, and fields of other versions. All of a persona's are searched for refused phrases.
OPTIONS_MAX, OPTIONS_CHARS_MAX = 1_000, 50_000
_KEY = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _line(text: str) -> str:
    """One line without invisible characters: it is in every prompt, and is compared by its words."""
    if "\n" in text or not text.strip():
        raise PydanticCustomError("line", "must be one line that is not blank")
    return _check_visible(text)


def _check_visible(text: str) -> str:
    found = unseen(text)
    if found is not None:
        raise PydanticCustomError("unseen", "holds {found}, which is invisible; remove it", {"found": found})
    return text


def _day(value: object) -> object:
    """A date, or its text: TOML has dates, and JSON has texts."""
    no_date = PydanticCustomError("date", "must be a date, like 2026-11-21")
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:  # the 30th of February
            raise no_date from None
    if isinstance(value, datetime) or not isinstance(value, date | None):
        raise no_date
    return value


Line = Annotated[str, Length(LINE_CHARS_MAX, 1), AfterValidator(_line)]
Text = Annotated[str, Length(TEXT_CHARS_MAX), AfterValidator(_check_visible)]
Lines = Annotated[tuple[Line, ...], Field(max_length=LINES_MAX), AS_TUPLE]
Tool = Annotated[
    str,
    matching(
        r"^[A-Za-z_][A-Za-z0-9_.:/-]{0,199}$",
        "a tool's name: 1 to 200 letters, digits and _ . : / -, beginning with a letter or _",
    ),
]
Tools = Annotated[tuple[Tool, ...], Field(max_length=LINES_MAX), AS_TUPLE]
Options = Annotated[Mapping[str, Any], json_object(OPTIONS_MAX, OPTIONS_CHARS_MAX), AS_PLAIN]
Key = Annotated[
    str,
    matching(f"^{_KEY.pattern}$", "a key: 1 to 64 of a-z, 0-9 and '_', beginning with a letter"),
]
Hash = Annotated[str, matching(r"^[0-9a-f]{64}$", "a hash: 64 of the characters 0-9 and a-f")]
Day = Annotated[date, BeforeValidator(_day), PlainSerializer(date.isoformat, return_type=str)]


class _Open(Model):
    """A model that keeps unknown fields in ``more``, and writes them back beside its own."""

    more: Options = EMPTY

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        own = {name: inner for name, inner in value.items() if name in cls.model_fields and name != "more"}
        unknown = {name: inner for name, inner in value.items() if name not in own}
        if isinstance(unknown.get("more"), FrozenDict):  # from a model's own field, not from outside
            unknown = {**unknown.pop("more"), **unknown}
        return {**own, "more": unknown}

    @classmethod
    def build(cls, data: Mapping[str, Any]) -> Self:
        """The model of this data. Raises EnvelopeError that names the ``field``, EnvelopeTooLarge; Refused."""
        if not isinstance(data, Mapping):
            raise EnvelopeError.at(cls.__name__.lower(), f"expected an object, found {kind_of(data)}")
        return cls.checked(data)

    def data(self) -> dict[str, Any]:
        """The data for ``build``, as JSON values. Unset and empty fields are left out."""
        shown = {name: _data(getattr(self, name)) for name in type(self).model_fields if name != "more"}
        return {
            **plain(self.more),
            **{name: value for name, value in shown.items() if value not in (None, "", [], {})},
        }

    def canonical(self) -> bytes:
        """The hashed bytes: JSON in UTF-8, keys in order, no spaces, as for a packet."""
        return canonical_json(self.data()).encode()

    def content_hash(self) -> str:
        """SHA-256 of ``canonical``, in hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


def _data(value: Any) -> Any:
    if isinstance(value, _Open):
        return value.data()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _data(inner) for key, inner in value.items()}
    return plain(value)


class Identity(_Open):
    """The traits and core rules that apply with every persona and task (GCP 3.1). Loaded once; its hash is journaled.

    ``approved_personas`` are the hashes of the personas that may be used. Without it, any persona without a refused
    phrase may be used. The identity's hash covers the list, so only a change of the identity approves another
    persona.
    """

    traits: Lines = ()
    core_rules: Annotated[Lines, Field(min_length=1)]
    approved_personas: (
        Annotated[tuple[Hash, ...], Field(min_length=1, max_length=LINES_MAX), AS_TUPLE] | None
    ) = None

    def prompt(self) -> str:
        """The text for a model: each core rule word for word, on its own line."""
        head = [f"Traits: {', '.join(self.traits)}."] if self.traits else []
        return "\n".join(
            [*head, "Core rules, which nothing below overrules:", *(f"- {rule}" for rule in self.core_rules)]
        )


class Persona(_Open):
    """A tone over the identity, for a session or a project. It never overrules the identity (GCP 3.2, 3.3).

    It may add layers of context, roles to play, and names of tools, which permit nothing.
    """

    tone: Annotated[str, Length(LINE_CHARS_MAX), AfterValidator(_check_visible)] = ""
    style_notes: Text = ""
    constraints: Lines = ()
    context_layers: Lines = ()
    role_layers: Lines = ()
    tools: Tools = ()
    options: Options = EMPTY

    def prompt(self) -> str:
        """The text for a model; empty if nothing is set. Options and tools are for programs."""
        lines = [f"Tone: {self.tone}"] if self.tone else []
        lines += [f"Style: {self.style_notes}"] if self.style_notes else []
        for head, layers in (
            ("Context", self.context_layers),
            ("Role", self.role_layers),
            ("Keep to", self.constraints),
        ):
            lines += [f"{head}: {layer}" for layer in layers]
        return "\n".join(lines)


class TaskInstruction(_Open):
    """A stage's instruction, of at most 64 tokens (GCP 5.1). ``key`` is its name in the table."""

    key: Key
    text: Annotated[Text, Field(min_length=1)]
    stage: Stage
    max_tokens: Annotated[int, Field(ge=1, le=INSTRUCTION_TOKENS_MAX)] = INSTRUCTION_TOKENS_MAX
    last_updated: Day | None = None


# GCP 3.1
DEFAULT_IDENTITY = Identity(
    traits=("truthfulness", "empathy", "integrity", "curiosity", "persistence", "sovereignty"),
    core_rules=(
        "Never execute shell commands without reflection and approval",
        "Avoid hallucinated facts or code",
        "Protect private data at all costs",
    ),
)
# rules 3.1, GCP 5.2. They name blocks; the prompt's frame says how a marker is written (markers.marker_head).
_INITIAL: tuple[tuple[str, Stage, str], ...] = (
    (
        "initial_planning",
        "plan",
        "Think step by step. Give a PLAN block: numbered steps, what each needs, what may go wrong. Do nothing yet.",
    ),
    (
        "refinement",
        "refine",
        "Find what is wrong with the plan, mend it, give a PLAN block. Its last line: confidence=x, x from 0 to 1.",
    ),
    (
        "observer",
        "observe",
        "Read the stream. On error, danger or a broken core rule give an INTERRUPT block that says why; else none.",
    ),
    (
        "interruption_handling",
        "act",
        "You were interrupted. Mend what was named, repeat nothing that is done, tell the user in a RESPONSE block.",
    ),
    (
        "verification",
        "verify",
        "Compare what is with what was wanted. Give a VERIFY block: success or fail first, then how you know.",
    ),
)
INITIAL_INSTRUCTIONS = tuple(
    TaskInstruction(key=key, stage=stage, text=text, last_updated=date(2026, 11, 21))
    for key, stage, text in sorted(_INITIAL)
)


def _instructions(value: object) -> object:
    """A table's instructions over the defaults, which keep their stages; sorted by key."""
    if not isinstance(value, Mapping):
        return value
    found = {initial.key: initial for initial in INITIAL_INSTRUCTIONS}
    for key, given in value.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            problem = "is not a key: expected lower-case letters, digits and _, a letter first"
            raise refusal(problem, quoted(key))
        if not isinstance(given, Mapping):
            raise refusal(f"expected an object, found {kind_of(given)}", key)
        stage = {} if key not in found else {"stage": found[key].stage}
        if given.get("key", key) != key:
            raise refusal("differs from the key of its table", f"{key}.key")
        if stage and given.get("stage", stage["stage"]) != stage["stage"]:
            problem = f"is {stage['stage']!r} (GCP 5.2); take a key of your own for another stage"
            raise refusal(problem, f"{key}.stage")
        try:
            found[key] = TaskInstruction.model_validate({**stage, **given, "key": key})
        except ValidationError as error:
            fault = malformed(error)
            raise refusal(fault.problems[0].partition(": ")[2], f"{key}.{fault.field}") from None
    return tuple(found[key] for key in sorted(found))


class Charter(_Open):
    """An identity, a persona, and the task instructions, as they are loaded.

    Building one raises Refused as ``check_persona`` does.
    """

    identity: Identity = DEFAULT_IDENTITY
    persona: Persona = Persona()
    task_instructions: Annotated[
        tuple[TaskInstruction, ...], Field(max_length=LINES_MAX), BeforeValidator(_instructions)
    ] = INITIAL_INSTRUCTIONS

    @classmethod
    def build(cls, data: Mapping[str, Any]) -> Self:
        """The charter of this data. Its instructions may be named TASK_INSTRUCTIONS, as in GCP 5.1."""
        if isinstance(data, Mapping) and "TASK_INSTRUCTIONS" in data:
            if "task_instructions" in data:
                raise EnvelopeError.at(
                    "TASK_INSTRUCTIONS", "is given beside task_instructions; give one of them"
                )
            data = dict(data)
            data["task_instructions"] = data.pop("TASK_INSTRUCTIONS")
        return super().build(data)

    @model_validator(mode="after")
    def _persona_keeps_the_rules(self) -> Self:
        check_persona(self.persona, self.identity)
        return self

    def data(self) -> dict[str, Any]:
        """The data in the form of GCP 5.1, with the instructions in a table by their keys."""
        table = {
            one.key: {name: at for name, at in one.data().items() if name != "key"}
            for one in self.task_instructions
        }
        return {**super().data(), "task_instructions": table}


# A persona under an identity (rules 7.1)


def check_persona(persona: Persona, identity: Identity) -> None:
    """Raises Refused for a persona with a refused phrase, and for one that the identity does not approve.

    The code of the first is ``persona_overrides``, and ``contradictions`` lists the phrases. The code of the second
    is ``persona_not_approved``, with the hash ``found`` and those ``expected``. The empty persona, which is built in,
    needs no approval.
    """
    phrases = contradictions(_texts(persona))
    if phrases:
        more = f" (and {len(phrases) - 1} more, see contradictions)" if len(phrases) > 1 else ""
        raise Refused(
            f"{phrases[0]}{more}",
            code="persona_overrides",
            field=f"persona.{phrases[0].where}",
            words=phrases[0].words,
            contradictions=phrases,
        )
    expected, found = identity.approved_personas, persona.content_hash()
    if expected is None or found in expected or persona == Persona():
        return
    approved = ", ".join(each[:12] for each in expected)
    raise Refused(
        f"persona: its hash is {found}, and the identity approves {approved}. Put the approved persona back, or add "
        "the hash to approved_personas under [identity] and have the creator change the identity: council identity "
        "propose-change FILE",
        code="persona_not_approved",
        field="persona",
        found=found,
        expected=expected,
    )


def _texts(persona: Persona) -> Iterator[tuple[str, str]]:
    """Every text of a persona with its place. An option is read as its path and its value."""
    for name in ("tone", "style_notes"):
        yield name, getattr(persona, name)
    for name in ("constraints", "context_layers", "role_layers"):
        yield from ((f"{name}[{at}]", line) for at, line in enumerate(getattr(persona, name)))
    yield from _leaves("options", "", persona.options)
    for key, value in persona.more.items():
        yield from _leaves(key, key, value)


def _leaves(where: str, path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{where}.{key}", f"{path} {key}", inner)
    elif isinstance(value, tuple) and value:
        for at, inner in enumerate(value):
            yield from _leaves(f"{where}[{at}]", path, inner)
    elif isinstance(value, str):
        yield where, f"{path} {value}"
    else:
        yield where, path if value is True or value in ((), EMPTY) else f"{path} {canonical_json(value)}"


# Limits (rules 2.1, 2.5, 3.1)


@dataclass(frozen=True, slots=True)
class Share:
    """The tokens of a field, and its limit."""

    field: str
    tokens: int
    limit: int

    @property
    def is_over(self) -> bool:
        return self.tokens > self.limit


def identity_limit(mtu: int) -> int:
    """The identity's limit in tokens: the stricter of two, rounded down (rules 2.1)."""
    return min(IDENTITY_TOKENS_MAX, mtu * IDENTITY_PERCENT // 100)


def persona_limit(remains: int) -> int:
    """The persona's limit in tokens; ``remains`` is the number that the identity leaves."""
    return min(PERSONA_TOKENS_MAX, max(0, remains) * PERSONA_PERCENT // 100)


def history_limit(remains: int) -> int:
    """The history's limit in tokens; ``remains`` is the number that all fields before it leave."""
    return max(0, remains) * HISTORY_PERCENT // 100


def check_limits(charter: Charter, count: Counter, *, mtu: int) -> tuple[Share, Share]:
    """The shares of identity and persona, by ``count``, the tokenizer that will read them.

    One above its limit is shortened in each prompt (rules 2.4, 2.5). Raises TokenBudgetError for what may not be
    shortened: core rules that do not fit, and an instruction above 64 tokens or its own limit.
    """
    limit = identity_limit(mtu)
    only_rules = Identity(core_rules=charter.identity.core_rules)
    rules = Share("identity.core_rules", count(only_rules.prompt()), limit)
    if rules.is_over:
        raise _over(rules, "can't be shortened (rules 2.5); write fewer or shorter core rules")
    for instruction in charter.task_instructions:
        field = f"task_instructions.{instruction.key}.text"
        text = Share(field, count(instruction.text), instruction.max_tokens)
        if text.is_over:
            raise _over(text, "is one directive and is never shortened (GCP 4.1); say it in fewer words")
    identity = Share("identity", count(charter.identity.prompt()), limit)
    remains = mtu - min(identity.tokens, limit)
    return identity, Share("persona", count(charter.persona.prompt()), persona_limit(remains))


def _over(share: Share, advice: str) -> TokenBudgetError:
    return TokenBudgetError(
        f"{share.field}: {share.tokens:,} tokens, where {share.limit:,} fit; it {advice}",
        field=share.field,
        limit=share.limit,
        found=share.tokens,
    )
