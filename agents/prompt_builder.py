"""Puts a prompt together from a cognition packet, a charter and a case, within the seat's tokens (rules 2.1-2.5).

    builder = PromptBuilder("lite", count=counter_for("gpt-4o-mini"), mtu=4096)
    prompt = await builder.ballot(case)

Knows fields, limits and their order. Knows no model: it is handed a counter, and for the ladder those who ask one.
The same packet, charter, texts and nonces give the same bytes.

The system message says who the seat is, how to read and how to answer, then identity, persona and instruction. The
user message holds what is from outside, as data, in sections that a nonce tells apart: history, ballots for a
ruling, and the proposal word for word. Packet ids, times, the proposer's confidence and risk stand in neither
(rules 2.3), nor does another seat's ballot before a ruling (rules 1.14).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from council.agents import ids
from council.agents.answers import SCHEMA_TEXTS, SCHEMAS
from council.agents.ladder import TEMPLATE_TOKENS, Field, Step, fresh_nonce, shorten
from council.agents.mind import Case, ShownBallot
from council.agents.prompt import Message, Overrun, Prompt, Task
from council.agents.prompt_texts import Texts, load_texts
from council.agents.summarizer import MARK, Way, summarize
from council.protocol.cognition import CognitionPacket, build_packet, detect_intent
from council.protocol.cognition.parts import DataField, RelevantHistorySnippet
from council.protocol.errors import CallerError, TokenBudgetError
from council.protocol.identity import (
    INSTRUCTION_TOKENS_MAX,
    Charter,
    Counter,
    check_limits,
    history_limit,
    identity_limit,
    persona_limit,
)
from council.protocol.jsondata import plain
from council.protocol.packet import canonical_json

# Of what could not be taken, how it began and why: enough to mend it by.
ANSWER_TOKENS_MAX, PROBLEM_TOKENS_MAX = 200, 150
ANSWER_CHARS_MAX = 4_000
# Texts joined have some tokens more than each by itself.
SEAM_TOKENS = 8
# Of a longer history the newest is taken: these are 300,000 tokens, and weighing them takes seconds.
HISTORY_CHARS_MAX = 2**20

# What a packet holds for programs: the prompt once more, and the proposal's id.
_NOT_SHOWN = frozenset({"user_message", "proposal"})
_NOT_GIVEN = "(not shown)"


def case_text(case: Case) -> str:
    """A case as a seat is shown it: what would be run, then the proposer's words, unchanged.

    The action stands in one line, and first: no text behind it can be taken for it.
    """
    action = "none" if case.action is None else canonical_json(plain(case.action))
    body = f"\nBody:\n{case.body}" if case.body else ""
    return f"Action: {action}\nSummary: {case.summary}{body}"


def packet_of(
    case: Case,
    *,
    now: datetime,
    new_id: Callable[[], str],
    history: Sequence[RelevantHistorySnippet] = (),
    data_fields: Sequence[DataField] = (),
    identity_hash: str | None = None,
) -> CognitionPacket:
    """The cognition packet that a seat is handed for a case, its intent found. Raises EnvelopeError."""
    packet = build_packet(
        "api",
        case_text(case),
        now=now,
        new_id=new_id,
        session_id=case.proposal_id,
        time_budget_ms=max(0, int(case.time_left_s * 1000)),
        extra_data_fields=(DataField(key="proposal", value=case.proposal_id), *data_fields),
        identity_hash=identity_hash,
    )
    context = packet.context.model_copy(update={"relevant_history_snippet": tuple(history)})
    return detect_intent(packet.model_copy(update={"context": context}))


@dataclass(frozen=True, slots=True)
class Assembled(Prompt):
    """A prompt, and what it was made of, so that it can be made again."""

    case: Case | None = field(default=None, repr=False)
    packet: CognitionPacket | None = field(default=None, repr=False)
    ballots: tuple[ShownBallot, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class _Draft:
    """What a prompt is to hold, before any of it is shortened; ``refused`` is an answer's beginning and problem."""

    task: Task
    case: Case
    packet: CognitionPacket
    ballots: tuple[ShownBallot, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def history(self) -> str:
        """What may be shortened: what came with the prompt, then the turns, oldest first."""
        given = [
            f"{one.key}: {one.value if isinstance(one.value, str) else canonical_json(plain(one.value))}"
            for one in self.packet.content.data_fields
            if one.key not in _NOT_SHOWN
        ]
        turns = (f"{turn.role}: {turn.summary}" for turn in self.packet.context.relevant_history_snippet)
        return "\n".join([*given, *turns])

    def asked(self) -> list[tuple[str, str]]:
        """What is kept word for word (rules 2.2): the proposal, and the user's own prompt where that is another."""
        proposal, prompt = case_text(self.case), self.packet.content.original_prompt
        own = [("prompt", prompt)] if prompt.strip() and prompt != proposal else []
        return [*own, ("proposal", proposal)]


class PromptBuilder:
    """A seat's prompts. Building one checks all that can be checked before there is a case.

    ``role`` names the role's text. ``mtu`` is how many tokens a prompt may have, as ``count`` counts them, with all
    that the model reads: ``template_tokens`` of them are for its chat template and, with ``shows_schema``, as many
    as the answer's schema has, for servers that put it into the prompt. ``packet_for`` makes a case's packet, with
    its history. Raises TokenBudgetError for an identity or instruction that will not fit, and ConfigError for a
    role without a text.
    """

    def __init__(
        self,
        role: str,
        *,
        count: Counter,
        mtu: int,
        charter: Charter | None = None,
        texts: Texts | None = None,
        steps: Sequence[Step] = (),
        packet_for: Callable[[Case], CognitionPacket] | None = None,
        new_nonce: Callable[[], str] | None = None,
        template_tokens: int = TEMPLATE_TOKENS,
        shows_schema: bool = True,
        way: Way | None = None,
    ) -> None:
        self.role, self.count, self.mtu = role, count, mtu
        self.charter = charter or Charter()
        self.texts = texts or load_texts()
        self.steps = tuple(steps)
        self.packet_for = packet_for
        self.new_nonce = new_nonce or _nonce
        self.template_tokens, self.shows_schema = template_tokens, shows_schema
        self.way = way
        self.texts.of_role(role)
        check_limits(self.charter, count, mtu=mtu)
        self.instructions = {task: self._instruction(task) for task in SCHEMAS}
        self.identity, self.identity_how = self._short_identity()
        # A persona that a model made shorter, and which: it is the same in every prompt.
        self.persona: tuple[str, str] | None = None

    async def ballot(self, case: Case) -> Prompt:
        """The prompt for the seat's own ballot. Raises TokenBudgetError."""
        return await self.assemble("ballot", case, self._packet(case))

    async def ruling(self, case: Case, ballots: Sequence[ShownBallot]) -> Prompt:
        """The prompt for Prime's ruling; of each ballot all but the reason is whole. Raises TokenBudgetError."""
        return await self.assemble("ruling", case, self._packet(case), ballots)

    async def again(self, prompt: Prompt, answer: str, problem: str) -> Prompt:
        """The prompt once more, with how the answer began and why it was not taken. Raises TokenBudgetError."""
        if not isinstance(prompt, Assembled) or prompt.case is None or prompt.packet is None:
            raise CallerError("this prompt was not put together here; give one of this builder's own")
        draft = _Draft(prompt.task, prompt.case, prompt.packet, prompt.ballots)
        why = ("problem", self._cut(problem, PROBLEM_TOKENS_MAX))
        try:
            return await self._assemble(
                replace(draft, refused=(("answer", self._cut(answer, ANSWER_TOKENS_MAX)), why))
            )
        except TokenBudgetError:
            return await self._assemble(replace(draft, refused=(("answer", _NOT_GIVEN), why)))

    async def assemble(
        self, task: Task, case: Case, packet: CognitionPacket, ballots: Sequence[ShownBallot] = ()
    ) -> Prompt:
        """A prompt from a packet that the caller has. Raises TokenBudgetError.

        ``overruns``, of the prompt or the error, are the steps that were taken to make it fit.
        """
        if ballots and task != "ruling":
            raise CallerError("ballots are shown for a ruling alone: voting is blind (rules 1.14)")
        return await self._assemble(_Draft(task, case, packet, tuple(ballots)))

    async def _assemble(self, draft: _Draft) -> Prompt:
        assembly = _Assembly(self, draft)
        try:
            return await assembly.fitted()
        except TokenBudgetError as error:
            facts = {**error.facts, "overruns": (*assembly.overruns, *error.facts.get("overruns", ()))}
            raise TokenBudgetError(error.message, **facts) from error

    # What is the same in every prompt

    def _instruction(self, task: Task) -> tuple[str, str]:
        """What the task is, and the text that says so; none where the charter has an instruction of that name."""
        for found in self.charter.task_instructions:
            if found.key == task:
                return found.text, ""
        text = self.texts.fill(task)
        if (tokens := self.count(text)) > INSTRUCTION_TOKENS_MAX:
            raise _too_much(
                f"{task}.txt", tokens, INSTRUCTION_TOKENS_MAX, "say it in fewer words (rules 2.1)"
            )
        return text, task

    def _short_identity(self) -> tuple[str, str]:
        """The identity within its limit, and what made it so (rules 2.5)."""
        identity, limit = self.charter.identity, identity_limit(self.mtu)
        text = identity.prompt()
        if (found := self.count(text)) <= limit:
            return text, ""
        head = text.partition("\n- ")[0].rpartition("\n")[2]  # what says that they are the rules
        for keep in ((head, *identity.core_rules), identity.core_rules):
            try:
                summary = summarize(text, limit, self.count, keep=keep, way=self.way)
            except TokenBudgetError as error:
                found = error.found
            else:
                return summary.text, f"local {summary.way}"
        raise _too_much(
            "identity", found, limit, "no core rule is ever dropped (rules 2.5); write fewer, or shorter"
        )

    def _packet(self, case: Case) -> CognitionPacket:
        if self.packet_for is not None:
            return self.packet_for(case)
        identity_hash = self.charter.identity.content_hash()
        return packet_of(case, now=datetime.now(UTC), new_id=ids.new_id, identity_hash=identity_hash)

    def _cut(self, text: str, tokens_max: int) -> str:
        """How a text from a model begins, in so many tokens, as far as it is text at all."""
        text = text[:ANSWER_CHARS_MAX].encode("utf-8", "replace").decode().replace("\0", "\ufffd")
        while self.count(text) > tokens_max:
            text = text[: len(text) * 3 // 4]
        return text.strip() or _NOT_GIVEN


class _Assembly:
    """One prompt on its way, and the steps that were taken for it."""

    def __init__(self, builder: PromptBuilder, draft: _Draft) -> None:
        self.overruns: list[Overrun] = []
        self._models_asked = False
        self._builder, self._draft, self._count = builder, draft, builder.count
        self._history, self._asked = draft.history(), draft.asked()
        fixed = (builder.identity, builder.charter.persona.prompt(), builder.instructions[draft.task][0])
        ballots = (f"{ballot.seat}\n{ballot.reason}" for ballot in draft.ballots)
        shown = (text for _, text in (*self._asked, *draft.refused))
        everything = "\n".join((*fixed, self._history, *shown, *ballots))
        self._nonce = fresh_nonce(builder.new_nonce, everything)
        self._canary = fresh_nonce(builder.new_nonce, f"{everything}\n{self._nonce}")
        texts = builder.texts
        self._head = "\n\n".join(
            [
                texts.of_role(builder.role),
                texts.fill("sections", nonce=self._nonce, canary=self._canary),
                texts.fill(f"{draft.task}_answer"),
            ]
        )
        self._closing = "retry" if draft.refused else "closing"
        # What the server adds to what is sent.
        self._added = builder.template_tokens
        self._added += self._count(SCHEMA_TEXTS[draft.task]) if builder.shows_schema else 0

    async def fitted(self) -> Prompt:
        """The prompt, within the MTU. Raises TokenBudgetError."""
        left = self._behind_frame()
        # A history that is left out needs no fence.
        fence = self._count(f"--{self._nonce} history\n\n") if self._history else 0
        left -= fence
        identity = self._identity()
        left -= self._count(identity)
        persona = await self._persona(left)
        instruction, _ = self._builder.instructions[self._draft.task]
        left -= self._count(persona) + self._count(instruction)
        needed = sum(self._count(text) for _, text in self._asked)
        if needed > left + fence:
            raise self._prompt_too_long(needed, left + fence)
        system = "\n\n".join(filter(None, (self._head, identity, persona, instruction)))
        # rules 2.2: what history may have, beside the prompt, which comes first.
        room = min(history_limit(left), left - needed)
        for is_last in (False, False, True):
            room = 0 if is_last else room
            reasons = await self._reasons(room)
            spent = max(0, self._reasons_tokens(reasons))
            history = await self._short("history", self._history, room - spent, self._count)
            user = self._user(history, reasons, self._asked)
            tokens = self._count(system) + self._count(user) + self._added
            over = tokens - self._builder.mtu
            if over <= 0:
                return self._done(system, user, tokens)
            spent += self._count(history)
            room = max(0, min(room, spent) - over - SEAM_TOKENS)
        raise self._prompt_too_long(needed, needed - over)

    def _behind_frame(self) -> int:
        """What the frame leaves of the MTU: what says how to read and answer, the fences, the template."""
        empty = [(name, "") for name, _ in self._asked]
        bare = self._user("", self._bare_reasons(), empty)
        frame = self._added + self._count(self._head) + self._count(bare)
        if frame >= self._builder.mtu:
            raise _too_much(
                "frame", frame, self._builder.mtu, "take shorter prompts, or give the seat a larger MTU"
            )
        return self._builder.mtu - frame

    def _user(self, history: str, reasons: Sequence[str], asked: Sequence[tuple[str, str]]) -> str:
        sections = [("history", history)] if history else []
        if self._draft.task == "ruling":
            sections.append(("ballots", _lines(self._draft.ballots, reasons)))
        end = ("end", self._builder.texts.fill(self._closing))
        return "\n".join(
            f"--{self._nonce} {name}\n{text}" for name, text in (*sections, *asked, *self._draft.refused, end)
        )

    def _done(self, system: str, user: str, tokens: int) -> Assembled:
        builder, draft = self._builder, self._draft
        names = [
            builder.role,
            "sections",
            f"{draft.task}_answer",
            self._closing,
            builder.instructions[draft.task][1],
        ]
        names += ["compressor"] if self._models_asked else []
        return Assembled(
            task=draft.task,
            proposal_id=draft.case.proposal_id,
            messages=(Message("system", system), Message("user", user)),
            schema=SCHEMAS[draft.task],
            tokens=tokens,
            canary=self._canary,
            sources=builder.texts.sources(*filter(None, names)),
            overruns=tuple(self.overruns),
            case=draft.case,
            packet=draft.packet,
            ballots=draft.ballots,
        )

    def _prompt_too_long(self, needed: int, limit: int) -> TokenBudgetError:
        mtu = self._builder.mtu
        return _too_much(
            "prompt",
            needed,
            max(0, limit),
            f"of the MTU of {mtu:,} tokens the frame and the fields before it take the rest, and it is never "
            "shortened (rules 2.2); propose less at once, or give the seat a larger MTU",
        )

    # The fields that may be shortened

    def _identity(self) -> str:
        builder = self._builder
        if builder.identity_how:
            whole = self._field("identity", builder.charter.identity.prompt(), self._count)
            after = self._count(builder.identity)
            self.overruns.append(whole.overrun(identity_limit(builder.mtu), after, builder.identity_how))
        return builder.identity

    async def _persona(self, left: int) -> str:
        text, limit = self._builder.charter.persona.prompt(), persona_limit(left)
        if self._count(text) <= limit:
            return text
        whole = self._field("persona", text, self._count)
        known, how = self._builder.persona or ("", "")
        if known and (after := self._count(known)) <= limit:
            self.overruns.append(whole.overrun(limit, after, f"{how}, before"))
            return known
        found = await self._shorten(whole, limit)
        if (how := self.overruns[-1].how) in ("lite", "prime"):
            self._builder.persona = found, how
        return found

    async def _reasons(self, room: int) -> list[str]:
        """The ballots' reasons in so many tokens; the longest are shortened first."""
        reasons, bare = [ballot.reason for ballot in self._draft.ballots], self._bare_reasons()
        if self._reasons_tokens(reasons) <= room:
            return reasons
        sizes = [_in_json(self._count, reason) for reason in reasons]
        level = _level(sizes, room)
        for at, ballot in enumerate(self._draft.ballots):
            name = f"ballots.{ballot.seat}.reason"
            short = await self._short(name, ballot.reason, level, partial(_in_json, self._count))
            reasons[at] = short or bare[at]
        for at in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            if self._reasons_tokens(reasons) > room:
                reasons[at] = bare[at]
        return reasons

    def _bare_reasons(self) -> list[str]:
        """What stands for reasons that are left out: the mark, so that none is taken for a ballot without one."""
        return [MARK if ballot.reason else "" for ballot in self._draft.ballots]

    def _reasons_tokens(self, reasons: Sequence[str]) -> int:
        """What the reasons take, beside the typed fields and marks that are the frame's."""
        ballots = self._draft.ballots
        return self._count(_lines(ballots, reasons)) - self._count(_lines(ballots, self._bare_reasons()))

    async def _short(self, name: str, text: str, limit: int, count: Counter) -> str:
        """A text that may be left out, within its limit."""
        if count(text) <= max(0, limit):
            return text
        whole = self._field(name, text, count)
        if len(text) > HISTORY_CHARS_MAX:
            text = text[-HISTORY_CHARS_MAX:].partition("\n")[2] or text[-HISTORY_CHARS_MAX:]
            newest = f"{MARK}\n{text}"
            self.overruns.append(whole.overrun(limit, count(newest), "local, the newest"))
            if count(newest) <= limit:
                return newest
        try:
            if limit > 0:
                return await self._shorten(self._field(name, text, count), limit)
        except TokenBudgetError as error:
            self.overruns.extend(error.overruns)
        # rules 2.2: down to nothing.
        self.overruns.append(whole.overrun(max(0, limit), 0, "left out"))
        return ""

    async def _shorten(self, whole: Field, limit: int) -> str:
        builder = self._builder
        text, taken = await shorten(
            whole,
            limit,
            texts=builder.texts,
            steps=builder.steps,
            new_nonce=builder.new_nonce,
            way=builder.way,
        )
        self.overruns.extend(taken)
        self._models_asked |= len(taken) > 1
        return text

    def _field(self, name: str, text: str, count: Counter) -> Field:
        return Field(self._draft.packet.header.packet_id, self._draft.case.proposal_id, name, text, count)


def _nonce() -> str:
    return secrets.token_hex(8)


def _lines(ballots: Sequence[ShownBallot], reasons: Sequence[str]) -> str:
    """Each ballot as a line of JSON, which no reason can break."""
    return "\n".join(
        json.dumps(
            {
                "seat": ballot.seat,
                "vote": ballot.vote,
                "confidence": ballot.confidence,
                "risk_level": ballot.risk_level,
                "reason": reason,
            },
            ensure_ascii=False,
        )
        for ballot, reason in zip(ballots, reasons, strict=True)
    )


def _in_json(count: Counter, text: str) -> int:
    return count(json.dumps(text, ensure_ascii=False))


def _level(sizes: Sequence[int], room: int) -> int:
    """The most that each may have so that all fit, where the small ones leave what they don't need."""
    left = max(0, room)
    for at, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - at) > left:
            return left // (len(sizes) - at)
        left -= size
    return max(sizes, default=0)


def _too_much(name: str, found: int, limit: int, advice: str) -> TokenBudgetError:
    return TokenBudgetError(
        f"{name}: {found:,} tokens, where {limit:,} fit; {advice}", field=name, limit=limit, found=found
    )
