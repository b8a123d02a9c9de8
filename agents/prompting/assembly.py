"""Assembles one prompt: its fields in order, each within its limit, and the whole within the MTU (rules 2.1-2.4).

The content comes as a ``Draft``; ``builder`` makes the draft of each stage.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from council.agents.mind import Case, ShownBallot
from council.agents.prompting.answer_schema import SCHEMA_TEXTS, SCHEMAS
from council.agents.prompting.prompt import Message, Overrun, Prompt, Task, bounded
from council.agents.prompting.shorten import Field, Step, fresh_nonce, shorten
from council.agents.prompting.special_tokens import SPELL_IT, special_in, without_specials
from council.agents.prompting.summary import MARK, Way
from council.agents.prompting.texts import Texts
from council.protocol.answer.markers import Marker, marker_head
from council.protocol.errors import EnvelopeError, Refused, TokenBudgetError
from council.protocol.identity.charter import (
    Charter,
    Counter,
    Persona,
    check_persona,
    history_limit,
    identity_limit,
    persona_limit,
)

# Two texts that are joined may have some tokens more than the sum of both.
SEAM_TOKENS = 8
# Only this much of the end of a longer history is used: about 300,000 tokens. Ranking them takes seconds.
HISTORY_CHARS_MAX = 2**20
# This many reasons of a ruling's ballots are shortened by a model. Each costs a call, and Prime is shown every vote
# unshortened. Further reasons are cut here.
REASONS_ASKED_MAX = 3
CHARS_A_TOKEN = 8  # text made of words has hardly more

Section = tuple[str, str]


@dataclass(slots=True)
class Common:
    """The parts that all prompts of a seat share; ``PromptBuilder`` explains its arguments.

    ``instructions`` maps names to texts and the files they come from. ``identity`` is within its limit, with the
    steps that shortened it. ``persona`` is the newest one that a model has shortened, with the name of that model.
    """

    role: str
    count: Counter
    mtu: int
    charter: Charter
    texts: Texts
    steps: Sequence[Step]
    new_nonce: Callable[[], str]
    template_tokens: int
    shows_schema: bool
    way: Way | None
    special_tokens: Literal["refuse", "text"]
    time_s: float | None
    instructions: dict[str, tuple[str, str]]
    identity: tuple[str, str]
    persona: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of a prompt before any of it is shortened. A section is a name and a text.

    ``packet_id`` names the case's cognition packet, and ``history`` is the text of its turns, oldest first.
    ``proposal`` is kept word for word (rules 2.2). ``own`` is what the seat said or saw before; it is fitted before
    the history and shares its room. If ``is_watched``, ``own`` is the subject: it may fill all the room that the
    proposal leaves, and without it there is no prompt. ``notes`` are short and never shortened. ``frames`` name the
    texts that say how to answer, ``instruction`` the directive, and ``closing`` the text after all sections. If there
    is a ``marker``, the answer is that block; otherwise it is one JSON object. ``until_s`` is the end of the work by
    the loop's clock; None means the case's time from now on.
    """

    task: Task
    case: Case
    packet_id: str
    history: str
    proposal: str
    frames: tuple[str, ...]
    instruction: str
    ballots: tuple[ShownBallot, ...] = ()
    own: Section | None = None
    is_watched: bool = False
    notes: tuple[Section, ...] = ()
    marker: Marker | None = None
    closing: str = "closing"
    until_s: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Assembled(Prompt):
    """A prompt with its sources, from which it can be made again."""

    draft: Draft | None = field(default=None, repr=False)


class Assembly:
    """One prompt in progress, and the steps that were taken to make it fit."""

    def __init__(self, common: Common, draft: Draft) -> None:
        self.overruns: list[Overrun] = []
        self._models_asked = self._prime_asked = False
        self._asked = self._reasons_asked = 0
        now_s = asyncio.get_running_loop().time()
        if draft.until_s is None:  # kept in the draft, so that a prompt made again has the same limit
            time_s = min(draft.case.time_left_s, common.time_s or draft.case.time_left_s)
            draft = replace(draft, until_s=now_s + time_s)
        assert draft.until_s is not None
        # Half of the time is left for the answer itself; the models that shorten texts get the other half.
        self._until_s = now_s + max(0.0, draft.until_s - now_s) / 2
        if common.special_tokens == "refuse":
            _refuse_special(draft.proposal)
            draft = _without_specials(draft)
        self._common, self._draft, self._count = common, draft, common.count
        fixed = (
            common.identity[0],
            common.charter.persona.prompt(),
            common.instructions[draft.instruction][0],
        )
        ballots = (f"{ballot.seat}\n{ballot.reason}" for ballot in draft.ballots)
        shown = (text for _, text in _sections(draft.own, draft.notes))
        everything = "\n".join((*fixed, draft.history, draft.proposal, *shown, *ballots))
        self._nonce = fresh_nonce(common.new_nonce, everything)
        self._canary = fresh_nonce(common.new_nonce, f"{everything}\n{self._nonce}")
        texts = common.texts
        # rules 3.2: only a marker with this call's nonce counts. No text in the prompt holds that nonce.
        marker = {"marker": marker_head(draft.marker, self._nonce)} if draft.marker else {}
        self._head = "\n\n".join(
            [
                texts.of_role(common.role),
                texts.fill("sections", nonce=self._nonce, canary=self._canary),
                *(texts.fill(name, **marker) for name in draft.frames),
            ]
        )
        # The tokens that the server adds.
        self._added = common.template_tokens
        self._added += (
            self._count(SCHEMA_TEXTS[draft.task]) if common.shows_schema and not draft.marker else 0
        )

    async def fitted(self) -> Prompt:
        """The prompt, within the MTU. Raises TokenBudgetError."""
        left = self._behind_frame()
        # Without a history there is no fence around it.
        fence = self._count(f"--{self._nonce} history\n\n") if self._draft.history else 0
        left -= fence
        identity = self._identity()
        left -= self._count(identity)
        persona = await self._persona(left)
        instruction, _ = self._common.instructions[self._draft.instruction]
        left -= self._count(persona) + self._count(instruction)
        needed = self._count(self._draft.proposal)
        if needed > left + fence:
            raise self._prompt_too_long(needed, left + fence)
        system = "\n\n".join(filter(None, (self._head, identity, persona, instruction)))
        # rules 2.2: the room for the history. The prompt comes first.
        room = left - needed if self._draft.is_watched else min(history_limit(left), left - needed)
        for is_last in (False, False, True):
            room = 0 if is_last else room
            reasons = await self._reasons(room)
            spent = max(0, self._reasons_tokens(reasons))
            own = await self._own(room - spent)
            spent += 0 if own == MARK else self._count(own)
            history = await self._short("history", self._draft.history, room - spent, self._count)
            user = self._user(history, reasons, own, self._draft.proposal)
            tokens = self._count(system) + self._count(user) + self._added
            over = tokens - self._common.mtu
            if over <= 0:
                return self._done(system, user, tokens)
            spent += self._count(history)
            room = max(0, min(room, spent) - over - SEAM_TOKENS)
        raise self._prompt_too_long(needed, needed - over)

    def _behind_frame(self) -> int:
        """The tokens of the MTU without the frame: the instructions for the answer, the fences, the template."""
        bare = self._user(
            "", self._bare_reasons(), MARK if self._draft.own and self._draft.own[1] else "", ""
        )
        frame = self._added + self._count(self._head) + self._count(bare)
        if frame >= self._common.mtu:
            raise too_much(
                "frame", frame, self._common.mtu, "take shorter prompts, or give the seat a larger MTU"
            )
        return self._common.mtu - frame

    def _user(self, history: str, reasons: Sequence[str], own: str, proposal: str) -> str:
        draft = self._draft
        sections = [("history", history)] if history else []
        if draft.task == "ruling":
            sections.append(("ballots", _lines(draft.ballots, reasons)))
        sections += [("proposal", proposal), *_sections(draft.own and (draft.own[0], own), draft.notes)]
        sections.append(("end", self._common.texts.fill(draft.closing)))
        return "\n".join(f"--{self._nonce} {name}\n{text}" for name, text in sections)

    def _done(self, system: str, user: str, tokens: int) -> Assembled:
        common, draft = self._common, self._draft
        names = [
            common.role,
            "sections",
            *draft.frames,
            draft.closing,
            common.instructions[draft.instruction][1],
        ]
        names += ["compressor"] if self._models_asked else []
        return Assembled(
            task=draft.task,
            proposal_id=draft.case.proposal_id,
            messages=(Message("system", system), Message("user", user)),
            schema={} if draft.marker else SCHEMAS[draft.task],
            tokens=tokens,
            canary=self._canary,
            sources=common.texts.sources(*filter(None, names)),
            overruns=bounded(self.overruns),
            nonce=self._nonce if draft.marker else None,
            draft=draft,
            sent=0 if getattr(self._count, "is_estimate", True) else self._count(system) + self._count(user),
        )

    def _prompt_too_long(self, needed: int, limit: int) -> TokenBudgetError:
        mtu = self._common.mtu
        return too_much(
            "prompt",
            needed,
            max(0, limit),
            f"of the MTU of {mtu:,} tokens the frame and the fields before it take the rest, and it is never "
            "shortened (rules 2.2); propose less at once, or give the seat a larger MTU",
        )

    # The fields that may be shortened

    def _identity(self) -> str:
        identity, how = self._common.identity
        if how:
            whole = self._field("identity", self._common.charter.identity.prompt(), self._count)
            limit = identity_limit(self._common.mtu)
            self.overruns.append(whole.overrun(limit, self._count(identity), how))
        return identity

    async def _persona(self, left: int) -> str:
        text, limit = self._common.charter.persona.prompt(), persona_limit(left)
        if self._count(text) <= limit:
            return text
        whole = replace(self._field("persona", text, self._count), problem=self._no_persona)
        known, how = self._common.persona or ("", "")
        if known and (after := self._count(known)) <= limit:
            self.overruns.append(whole.overrun(limit, after, f"{how}, before"))
            return known
        found = await self._shorten(whole, limit)
        if (how := self.overruns[-1].how) in ("lite", "prime"):
            self._common.persona = found, how
        return found

    def _no_persona(self, said: str) -> str:
        """The reason why a shortened persona does not fit this identity (rules 7.1); empty if it does."""
        try:
            check_persona(Persona.build({"style_notes": said}), self._common.charter.identity)
        except (Refused, EnvelopeError) as error:
            return error.message
        return ""

    async def _own(self, room: int) -> str:
        """The text of the seat's own section in that many tokens; the mark if it does not fit."""
        name, text = self._draft.own or ("", "")
        short = await self._short(name, text, room, self._count)
        if text and not short and self._draft.is_watched:
            raise too_much(name, self._count(text), max(0, room), "there is no room for what it is about")
        return short or (MARK if text else "")

    async def _reasons(self, room: int) -> list[str]:
        """The ballots' reasons in that many tokens. The longest are shortened first."""
        reasons, bare = [ballot.reason for ballot in self._draft.ballots], self._bare_reasons()
        if self._reasons_tokens(reasons) <= room:
            return reasons
        sizes = [_in_json(self._count, reason) for reason in reasons]
        level = _level(sizes, room)
        for at, ballot in enumerate(self._draft.ballots):
            name, count, before = f"ballots.{ballot.seat}.reason", partial(_in_json, self._count), self._asked
            asks = self._reasons_asked < REASONS_ASKED_MAX
            short = await self._short(name, ballot.reason, level, count, cuts=True, asks=asks)
            self._reasons_asked += self._asked > before
            reasons[at] = short or bare[at]
        for at in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
            if self._reasons_tokens(reasons) > room:
                reasons[at] = bare[at]
        return reasons

    def _bare_reasons(self) -> list[str]:
        """The mark in place of each omitted reason, so that no ballot seems to have been cast without one."""
        return [MARK if ballot.reason else "" for ballot in self._draft.ballots]

    def _reasons_tokens(self, reasons: Sequence[str]) -> int:
        """The tokens of the reasons, without the typed fields and marks that belong to the frame."""
        ballots = self._draft.ballots
        return self._count(_lines(ballots, reasons)) - self._count(_lines(ballots, self._bare_reasons()))

    async def _short(
        self, name: str, text: str, limit: int, count: Counter, *, cuts: bool = False, asks: bool = True
    ) -> str:
        """A text that may be left out, within its limit. If it ``cuts``, only the beginning of the text is kept.

        A model is asked only if it ``asks``.
        """
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
                return await self._shorten(self._field(name, text, count), limit, asks=asks)
        except TokenBudgetError as error:
            self.overruns.extend(error.overruns)
        if cuts and (begun := _beginning(text, limit, count)):
            self.overruns.append(whole.overrun(limit, count(begun), "local, its beginning"))
            return begun
        # rules 2.2: the text may be left out.
        self.overruns.append(whole.overrun(max(0, limit), 0, "left out"))
        return ""

    async def _shorten(self, whole: Field, limit: int, *, asks: bool = True) -> str:
        common = self._common
        text, taken = await shorten(
            whole,
            limit,
            texts=common.texts,
            steps=self._steps() if asks else (),
            new_nonce=common.new_nonce,
            way=common.way,
            until_s=self._until_s,
        )
        self.overruns.extend(taken)
        self._models_asked |= len(taken) > 1
        return text

    def _steps(self) -> list[Step]:
        """The steps of rules 2.4: Lite for every text that is too long, Prime once for a prompt."""

        def counted(step: Step) -> Step:
            def ask(prompt: Prompt, until_s: float) -> Awaitable[str]:
                self._asked += 1
                self._prime_asked |= step.how == "prime"
                return step.ask(prompt, until_s)

            return replace(step, ask=ask)

        return [counted(step) for step in self._common.steps if step.how != "prime" or not self._prime_asked]

    def _field(self, name: str, text: str, count: Counter) -> Field:
        return Field(self._draft.packet_id, self._draft.case.proposal_id, name, text, count)


def _refuse_special(proposal: str) -> None:
    """Raises Refused for a special token in the proposal, which may not be changed."""
    if (word := special_in(proposal)) is not None:
        raise Refused(
            f"the proposal holds {word!r}, with which chat templates end or begin a message: the model's server "
            f"may read it so, and what follows as the system's or the model's own words. {SPELL_IT}",
            code="special_token",
            field="proposal",
        )


def _without_specials(draft: Draft) -> Draft:
    """The draft without special tokens in the texts that may be changed."""
    ballots = tuple(replace(each, reason=without_specials(each.reason)) for each in draft.ballots)
    own = draft.own and (draft.own[0], without_specials(draft.own[1]))
    notes = tuple((name, without_specials(text)) for name, text in draft.notes)
    return replace(draft, history=without_specials(draft.history), ballots=ballots, own=own, notes=notes)


def _sections(own: Section | None, notes: Iterable[Section]) -> Iterable[Section]:
    return notes if own is None else (own, *notes)


def _lines(ballots: Sequence[ShownBallot], reasons: Sequence[str]) -> str:
    """Each ballot as a line of JSON. No reason can break out of it."""
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


def _beginning(text: str, limit: int, count: Counter) -> str:
    """The beginning of a text in that many tokens with the mark, cut at a word; empty if nothing fits."""
    chars = min(len(text), CHARS_A_TOKEN * max(0, limit))
    while begun := text[:chars].rpartition(" ")[0].strip():
        if count(found := f"{MARK}\n{begun} …") <= limit:
            return found
        chars = len(begun) * 3 // 4
    return ""


def _level(sizes: Sequence[int], room: int) -> int:
    """The highest limit for each text at which all fit. Small texts leave their unused share to the others."""
    left = max(0, room)
    for at, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - at) > left:
            return left // (len(sizes) - at)
        left -= size
    return max(sizes, default=0)


def too_much(name: str, found: int, limit: int, advice: str) -> TokenBudgetError:
    return TokenBudgetError(
        f"{name}: {found:,} tokens, where {limit:,} fit; {advice}", field=name, limit=limit, found=found
    )
