"""Builds a prompt from a cognition packet, a charter and a case, within the seat's tokens (rules 2.1-2.5).

    builder = PromptBuilder("lite", count=counter_for("gpt-4o-mini"), mtu=4096)
    prompt = await builder.ballot(case)

It calls no model: the counter and the steps of the ladder are arguments. The same packet, charter, texts and nonces
give the same bytes.

The system message says who the seat is, how to read and how to answer; then come identity, persona and instruction.
The user message holds outside text as data, in sections that a nonce separates: history, ballots for a ruling, and
the proposal word for word. Neither holds packet ids, times, the proposer's confidence or risk (rules 2.3), nor
another seat's ballot before a ruling (rules 1.14).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from council.agents.messaging import ids
from council.agents.mind import Case, Purse, ShownBallot, SpendingMind, Stream
from council.agents.prompting.assembly import Assembled, Assembly, Common, Draft, Section, too_much
from council.agents.prompting.case_history import with_history
from council.agents.prompting.prompt import Execution, Halt, Prompt, Task
from council.agents.prompting.shorten import TEMPLATE_TOKENS, Step
from council.agents.prompting.summary import Way, summarize
from council.agents.prompting.texts import Texts, load_texts
from council.protocol.answer.markers import Marker
from council.protocol.cognition import CognitionPacket, build_packet, detect_intent
from council.protocol.cognition.parts import DataField, RelevantHistorySnippet
from council.protocol.errors import CallerError, TokenBudgetError
from council.protocol.identity.charter import (
    INSTRUCTION_TOKENS_MAX,
    Charter,
    Counter,
    Identity,
    check_limits,
    identity_limit,
)
from council.protocol.packet import canonical_json
from council.protocol.values import plain

# Of what could not be taken, how it began and why: enough to mend it by.
ANSWER_TOKENS_MAX, PROBLEM_TOKENS_MAX = 200, 150
ANSWER_CHARS_MAX = 4_000
# A history of so many characters is looked through in some milliseconds; a longer one off the event loop.
AT_ONCE_CHARS = 20_000
# What is instructed where the charter has nothing of that name; the five of rules 3.1 it always has.
_OWN_INSTRUCTIONS = ("ballot", "ruling", "act")
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
    """The cognition packet that a seat is handed for a case, its intent found, and what of its history bears on it.

    ``history`` are turns that are known otherwise, and come first. Raises EnvelopeError.
    """
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
    return with_history(detect_intent(packet.model_copy(update={"context": context})), case.history)


class PromptBuilder:
    """A seat's prompts. Building one checks all that can be checked before there is a case.

    ``role`` names the role's text. ``mtu`` is how many tokens a prompt may have, as ``count`` counts them, with all
    that the model reads: ``template_tokens`` of them are for its chat template and, with ``shows_schema``, as many
    as the answer's schema has, for servers that put it into the prompt. ``packet_for`` makes a case's packet, with
    its history. With ``special_tokens`` "refuse" no prompt holds the chat templates' words that ``special_tokens.py``
    knows: a proposal that does raises Refused, and elsewhere they are broken up. Half of what is left of ``time_s``,
    or of a case's time, is for ``steps``.
    Raises TokenBudgetError for an identity or instruction that will not fit, and ConfigError for a role without a
    text.
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
        special_tokens: Literal["refuse", "text"] = "text",
        time_s: float | None = None,
    ) -> None:
        charter, texts = charter or Charter(), texts or load_texts()
        texts.of_role(role)
        check_limits(charter, count, mtu=mtu)
        instructions = {key: _instruction(key, texts, count) for key in _OWN_INSTRUCTIONS}
        # The five of rules 3.1 are there whatever the charter holds; its limits are checked above.
        instructions |= {each.key: (each.text, "") for each in charter.task_instructions}
        self._packet_for = packet_for
        self.common = Common(
            role=role,
            count=count,
            mtu=mtu,
            charter=charter,
            texts=texts,
            steps=tuple(steps),
            new_nonce=new_nonce or _nonce,
            template_tokens=template_tokens,
            shows_schema=shows_schema,
            way=way,
            special_tokens=special_tokens,
            time_s=time_s,
            instructions=instructions,
            identity=_short_identity(charter.identity, mtu, count, way),
        )

    def take_purse(self, purse: Purse) -> None:
        """For the steps, whose models this seat pays (rules 2.6)."""
        for step in self.common.steps:
            if isinstance(step.ask, SpendingMind):
                step.ask.take_purse(purse)

    async def ballot(self, case: Case, plan: str | None = None) -> Prompt:
        """The prompt for the seat's own ballot, with its plan if it made one. Raises TokenBudgetError."""
        return await self.assemble("ballot", case, await self._packet(case), plan=plan)

    async def ruling(self, case: Case, ballots: Sequence[ShownBallot]) -> Prompt:
        """The prompt for Prime's ruling; of each ballot all but the reason is whole. Raises TokenBudgetError."""
        return await self.assemble("ruling", case, await self._packet(case), ballots)

    # A stage's prompt is of its own text ``<task>_answer``, or ``<task>_marked`` for blocks, and its instruction. The
    # case's history is in none of them: the ballot's has it, and a model that reads it twice is paid twice.

    async def plan(self, case: Case, *, marked: bool, halt: Halt | None = None) -> Prompt:
        """The prompt for how the seat will examine the case, anew where it was halted. Raises TokenBudgetError."""
        if halt is None:
            return await self._stage("plan", case, "initial_planning", "PLAN", marked)
        why = ("interrupt", self._cut(halt.reason, PROBLEM_TOKENS_MAX))
        held = {"own": (("said", clean(halt.said)),), "told": (why,)}
        return await self._stage("plan", case, "interruption_handling", "PLAN", marked, "halted", **held)

    async def observe(self, case: Case, stream: Stream, *, marked: bool) -> Prompt:
        """The prompt by which another seat's stream is watched; with no history. Raises TokenBudgetError."""
        held = {"own": (("stream", clean(stream.text)),), "is_watched": True}
        return await self._stage("observe", case, "observer", "INTERRUPT", marked, **held)

    async def act(self, case: Case, done: Execution, *, marked: bool) -> Prompt:
        """The prompt for what the user is told of what was run, or mended of it. Raises TokenBudgetError."""
        told = ("outcome", "it was run" if done.ok else "it failed")
        held = {"own": (("log", clean(done.log)),), "told": (told,), "is_watched": True}
        # GCP 6: a failed execution is handled as an interruption is.
        instruction = "act" if done.ok else "interruption_handling"
        return await self._stage("act", case, instruction, "RESPONSE", marked, **held)

    async def verify(self, case: Case, state: str, *, marked: bool) -> Prompt:
        """The prompt for whether what is found afterwards is what was wanted. Raises TokenBudgetError."""
        held = {"own": (("state", clean(state)),), "is_watched": True}
        return await self._stage("verify", case, "verification", "VERIFY", marked, **held)

    async def again(self, prompt: Prompt, answer: str, problem: str) -> Prompt:
        """The prompt once more, with how the answer began and why it was not taken. Raises TokenBudgetError.

        A model is asked again once (``model``), so that ``prompt`` is never one that this gave.
        """
        if not isinstance(prompt, Assembled) or prompt.draft is None:
            raise CallerError("this prompt was not put together here; give one of this builder's own")
        draft = replace(prompt.draft, closing="retry")
        why = ("problem", self._cut(problem, PROBLEM_TOKENS_MAX))
        try:
            given = ("answer", self._cut(answer, ANSWER_TOKENS_MAX))
            return await self._assemble(replace(draft, told=(*draft.told, given, why)))
        except TokenBudgetError:
            return await self._assemble(replace(draft, told=(*draft.told, ("answer", _NOT_GIVEN), why)))

    async def assemble(
        self,
        task: Literal["ballot", "ruling"],
        case: Case,
        packet: CognitionPacket,
        ballots: Sequence[ShownBallot] = (),
        *,
        plan: str | None = None,
    ) -> Prompt:
        """A prompt from a packet that the caller has. Raises TokenBudgetError.

        ``overruns``, of the prompt or the error, are the steps that were taken to make it fit.
        """
        if ballots and task != "ruling":
            raise CallerError("ballots are shown for a ruling alone: voting is blind (rules 1.14)")
        draft = Draft(task, case, packet, _asked(case, packet), (f"{task}_answer",), task, tuple(ballots))
        if plan is not None:
            # rules 3.1: Refine is the ballot's call. The plan may echo what others wrote, and is data like that.
            frames = (*draft.frames, "refine")
            draft = replace(draft, frames=frames, instruction="refinement", own=(("plan", clean(plan)),))
        return await self._assemble(draft)

    async def _stage(
        self, task: Task, case: Case, instruction: str, marker: Marker, marked: bool, *more: str, **held: Any
    ) -> Prompt:
        packet = await self._packet(replace(case, history=()))
        frames = (f"{task}_marked" if marked else f"{task}_answer", *more)
        draft = Draft(task, case, packet, _asked(case, packet), frames, instruction, **held)
        return await self._assemble(replace(draft, marker=marker if marked else None))

    async def _assemble(self, draft: Draft) -> Prompt:
        assembly = Assembly(self.common, draft)
        try:
            return await assembly.fitted()
        except TokenBudgetError as error:
            facts = {**error.facts, "overruns": (*assembly.overruns, *error.facts.get("overruns", ()))}
            raise TokenBudgetError(error.message, **facts) from error

    # What is the same in every prompt

    async def _packet(self, case: Case) -> CognitionPacket:
        if self._packet_for is not None:
            return self._packet_for(case)
        identity_hash = self.common.charter.identity.content_hash()
        made = partial(packet_of, case, now=datetime.now(UTC), new_id=ids.new_id, identity_hash=identity_hash)
        is_long = sum(len(turn.text) for turn in case.history) > AT_ONCE_CHARS
        return await asyncio.to_thread(made) if is_long else made()

    def _cut(self, text: str, tokens_max: int) -> str:
        """How a text from a model begins, in so many tokens, as far as it is text at all."""
        text = clean(text[:ANSWER_CHARS_MAX])
        while self.common.count(text) > tokens_max:
            text = text[: len(text) * 3 // 4]
        return text.strip() or _NOT_GIVEN


def _instruction(task: str, texts: Texts, count: Counter) -> tuple[str, str]:
    """What the task is, and the file that says so; one of that name in the charter takes its place."""
    text = texts.fill(task)
    if (tokens := count(text)) > INSTRUCTION_TOKENS_MAX:
        raise too_much(f"{task}.txt", tokens, INSTRUCTION_TOKENS_MAX, "say it in fewer words (rules 2.1)")
    return text, task


def _short_identity(identity: Identity, mtu: int, count: Counter, way: Way | None) -> tuple[str, str]:
    """The identity within its limit, and what made it so (rules 2.5)."""
    limit = identity_limit(mtu)
    text = identity.prompt()
    if (found := count(text)) <= limit:
        return text, ""
    head = text.partition("\n- ")[0].rpartition("\n")[2]  # what says that they are the rules
    for keep in ((head, *identity.core_rules), identity.core_rules):
        try:
            summary = summarize(text, limit, count, keep=keep, way=way)
        except TokenBudgetError as error:
            found = error.found
        else:
            return summary.text, f"local {summary.way}"
    raise too_much(
        "identity", found, limit, "no core rule is ever dropped (rules 2.5); write fewer, or shorter"
    )


def _nonce() -> str:
    return secrets.token_hex(8)


def _asked(case: Case, packet: CognitionPacket) -> tuple[Section, ...]:
    """What is kept word for word (rules 2.2): the proposal, and the user's own prompt where that is another."""
    proposal, prompt = case_text(case), packet.content.original_prompt
    own = [("prompt", prompt)] if prompt.strip() and prompt != proposal else []
    return (*own, ("proposal", proposal))


def clean(text: str) -> str:
    """What a model or a program wrote, as far as it is text at all."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
