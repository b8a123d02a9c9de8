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
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

from council.agents.messaging import ids
from council.agents.mind import BudgetClient, Case, PacketSource, ShownBallot, SpendingMind, Stream
from council.agents.prompting.assembly import Assembled, Assembly, Common, Draft, too_much
from council.agents.prompting.case_history import with_history
from council.agents.prompting.prompt import Execution, Halt, Prompt, Task
from council.agents.prompting.shorten import TEMPLATE_TOKENS, Step
from council.agents.prompting.summary import Way, summarize
from council.agents.prompting.texts import Texts, load_texts
from council.protocol.answer.markers import Marker
from council.protocol.cognition import CognitionPacket, build_packet
from council.protocol.cognition.parts import DataField
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

# Of an answer that was not accepted, this much is shown again, with the reason: enough to correct it.
ANSWER_TOKENS_MAX, PROBLEM_TOKENS_MAX = 200, 150
ANSWER_CHARS_MAX = 4_000
FINDINGS_TOKENS_MAX = 400  # of what static checks found: about ten findings, or a tenth of a small MTU
# A history of this many characters is processed in some milliseconds. A longer one is processed off the event loop.
AT_ONCE_CHARS = 20_000
# The instructions that are used if the charter has none of that name. It always has the five of rules 3.1.
_OWN_INSTRUCTIONS = ("ballot", "ruling", "act")
_JUDGES: tuple[Task, ...] = ("plan", "ballot", "ruling")  # which are shown the findings
_NOT_GIVEN = "(not shown)"


def case_text(case: Case) -> str:
    """A case as a seat is shown it: the action, then the proposer's words, unchanged.

    The action comes first, in one line, so that no later text can be taken for it.
    """
    action = "none" if case.action is None else canonical_json(plain(case.action))
    body = f"\nBody:\n{case.body}" if case.body else ""
    return f"Action: {action}\nSummary: {case.summary}{body}"


def packet_of(
    case: Case, *, now: datetime, new_id: Callable[[], str], identity_hash: str | None = None
) -> CognitionPacket:
    """The cognition packet of a case, with the relevant part of its history. Raises EnvelopeError."""
    packet = build_packet(
        case_text(case),
        now=now,
        new_id=new_id,
        session_id=case.proposal_id,
        time_budget_ms=max(0, int(case.time_left_s * 1000)),
        data_fields=(DataField(key="proposal", value=case.proposal_id),),
        identity_hash=identity_hash,
    )
    return with_history(packet, case.history)


async def built(
    case: Case, *, now: datetime, new_id: Callable[[], str], identity_hash: str | None = None
) -> CognitionPacket:
    """``packet_of``, on a thread if the history is long. Raises EnvelopeError."""
    made = partial(packet_of, case, now=now, new_id=new_id, identity_hash=identity_hash)
    is_long = sum(len(turn.text) for turn in case.history) > AT_ONCE_CHARS
    return await asyncio.to_thread(made) if is_long else made()


class PromptBuilder:
    """A seat's prompts. The constructor checks all that can be checked without a case.

    ``role`` names the role's text. ``mtu`` is the greatest number of tokens of a prompt, as ``count`` counts them. It
    includes ``template_tokens`` for the chat template. If ``shows_schema``, it includes those of the answer's schema,
    for servers that insert it into the prompt. If ``special_tokens`` is "refuse", no prompt holds the special tokens
    that ``special_tokens.py`` knows: a proposal with one raises Refused, and in other texts they are broken up.
    ``steps`` may use half of what is left of ``time_s``, or of a case's time. ``findings`` gives what static checks
    found in a case, or ""; it is shown as data in the prompts for plans, ballots and rulings.

    Raises TokenBudgetError if an identity or instruction does not fit, and ConfigError if a role has no text.
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
        new_nonce: Callable[[], str] | None = None,
        template_tokens: int = TEMPLATE_TOKENS,
        shows_schema: bool = True,
        way: Way | None = None,
        special_tokens: Literal["refuse", "text"] = "text",
        time_s: float | None = None,
        findings: Callable[[Case], Awaitable[str]] | None = None,
    ) -> None:
        charter, texts = charter or Charter(), texts or load_texts()
        texts.of_role(role)
        check_limits(charter, count, mtu=mtu)
        instructions = {key: _instruction(key, texts, count) for key in _OWN_INSTRUCTIONS}
        # The five of rules 3.1 exist in every charter. Their limits are checked above.
        instructions |= {each.key: (each.text, "") for each in charter.task_instructions}
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
        self._findings = findings
        self._packets: PacketSource | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packets": None}  # it pickles without its seat

    def set_packets(self, packets: PacketSource) -> None:
        """From now on each case has one packet, which its seat holds; otherwise each prompt has its own."""
        self._packets = packets

    def set_budget(self, budget: BudgetClient) -> None:
        """For the steps: this seat pays for their models (rules 2.6)."""
        for step in self.common.steps:
            if isinstance(step.ask, SpendingMind):
                step.ask.set_budget(budget)

    async def ballot(self, case: Case, plan: str | None = None) -> Prompt:
        """The prompt for the seat's own ballot, with its plan if it made one. Raises TokenBudgetError.

        Voting is blind: no other ballot is in it (rules 1.14).
        """
        if plan is None:
            return await self._prompt("ballot", case, "ballot", "ballot_answer")
        if self._packets is not None:
            self._packets.note(case.proposal_id, "plan", clean(plan))
        # rules 3.1: Refine is the ballot's call. The plan may repeat what others wrote, so it is data as well.
        own = ("plan", clean(plan))
        return await self._prompt("ballot", case, "refinement", "ballot_answer", "refine", own=own)

    async def ruling(self, case: Case, ballots: Sequence[ShownBallot]) -> Prompt:
        """The prompt for Prime's ruling, with all ballots as data (rules 1.8). Raises TokenBudgetError.

        Only the reasons of the ballots are shortened.
        """
        return await self._prompt("ruling", case, "ruling", "ruling_answer", ballots=tuple(ballots))

    # A stage's prompt has its own text ``<task>_answer``, or ``<task>_marked`` for blocks, and its instruction. None
    # of them has the case's history: the ballot's prompt has it, and a model that reads it twice is paid twice.

    async def plan(self, case: Case, *, marked: bool, halt: Halt | None = None) -> Prompt:
        """The prompt for the plan of a review; after a halt, for a new plan. Raises TokenBudgetError."""
        if halt is None:
            return await self._stage("plan", case, "initial_planning", "PLAN", marked)
        return await self._stage(
            "plan",
            case,
            "interruption_handling",
            "PLAN",
            marked,
            "halted",
            own=("said", clean(halt.said)),
            notes=(("interrupt", self._cut(halt.reason, PROBLEM_TOKENS_MAX)),),
        )

    async def observe(self, case: Case, stream: Stream, *, marked: bool) -> Prompt:
        """The prompt for observing another seat's stream, without history. Raises TokenBudgetError."""
        own = ("stream", clean(stream.text))
        return await self._stage("observe", case, "observer", "INTERRUPT", marked, own=own, is_watched=True)

    async def act(self, case: Case, done: Execution, *, marked: bool) -> Prompt:
        """The prompt for the text to the user about an execution or its correction. Raises TokenBudgetError."""
        own, notes = ("log", clean(done.log)), (("outcome", "it was run" if done.ok else "it failed"),)
        # GCP 6: a failed execution is handled like an interruption.
        instruction = "act" if done.ok else "interruption_handling"
        return await self._stage(
            "act", case, instruction, "RESPONSE", marked, own=own, notes=notes, is_watched=True
        )

    async def verify(self, case: Case, state: str, *, marked: bool) -> Prompt:
        """The prompt that asks whether the state after an execution is the intended one. Raises TokenBudgetError."""
        own = ("state", clean(state))
        return await self._stage("verify", case, "verification", "VERIFY", marked, own=own, is_watched=True)

    async def again(self, prompt: Prompt, answer: str, problem: str) -> Prompt:
        """The prompt again, with the beginning of the answer and why it was not accepted. Raises TokenBudgetError.

        A model is asked again only once (``model``). So ``prompt`` never comes from this method.
        """
        if not isinstance(prompt, Assembled) or prompt.draft is None:
            raise CallerError("this prompt was not put together here; give one of this builder's own")
        draft = replace(prompt.draft, closing="retry")
        why = ("problem", self._cut(problem, PROBLEM_TOKENS_MAX))
        try:
            given = ("answer", self._cut(answer, ANSWER_TOKENS_MAX))
            return await self._assemble(replace(draft, notes=(*draft.notes, given, why)))
        except TokenBudgetError:
            return await self._assemble(replace(draft, notes=(*draft.notes, ("answer", _NOT_GIVEN), why)))

    async def _stage(
        self,
        task: Task,
        case: Case,
        instruction: str,
        marker: Marker,
        marked: bool,
        *more_frames: str,
        **fields: Any,
    ) -> Prompt:
        frames = (f"{task}_marked" if marked else f"{task}_answer", *more_frames)
        fields["marker"] = marker if marked else None
        return await self._prompt(task, case, instruction, *frames, history=False, **fields)

    async def _prompt(
        self, task: Task, case: Case, instruction: str, *frames: str, history: bool = True, **fields: Any
    ) -> Prompt:
        packet = await self._packet(
            case if history or self._packets is not None else replace(case, history=())
        )
        turns = packet.context.relevant_history_snippet if history else ()
        shown = "\n".join(f"{turn.role}: {turn.summary}" for turn in turns)
        if self._findings is not None and task in _JUDGES and (found := await self._findings(case)):
            tokens_max = min(FINDINGS_TOKENS_MAX, self.common.mtu // 10)
            fields["notes"] = (*fields.get("notes", ()), ("findings", self._cut(found, tokens_max)))
        draft = Draft(
            task, case, packet.header.packet_id, shown, case_text(case), frames, instruction, **fields
        )
        return await self._assemble(draft)

    async def _assemble(self, draft: Draft) -> Prompt:
        assembly = Assembly(self.common, draft)
        try:
            return await assembly.fitted()
        except TokenBudgetError as error:
            facts = {**error.facts, "overruns": (*assembly.overruns, *error.facts.get("overruns", ()))}
            raise TokenBudgetError(error.message, **facts) from error

    # The parts that all prompts share

    async def _packet(self, case: Case) -> CognitionPacket:
        identity_hash = self.common.charter.identity.content_hash()

        def make() -> Awaitable[CognitionPacket]:
            return built(case, now=datetime.now(UTC), new_id=ids.new_id, identity_hash=identity_hash)

        return await (make() if self._packets is None else self._packets.of(case, make))

    def _cut(self, text: str, tokens_max: int) -> str:
        """The beginning of a model's text in that many tokens, without characters that are not text."""
        text = clean(text[:ANSWER_CHARS_MAX])
        while self.common.count(text) > tokens_max:
            text = text[: len(text) * 3 // 4]
        return text.strip() or _NOT_GIVEN


def _instruction(task: str, texts: Texts, count: Counter) -> tuple[str, str]:
    """The task's instruction and its file. The charter's instruction of that name replaces it."""
    text = texts.fill(task)
    if (tokens := count(text)) > INSTRUCTION_TOKENS_MAX:
        raise too_much(f"{task}.txt", tokens, INSTRUCTION_TOKENS_MAX, "say it in fewer words (rules 2.1)")
    return text, task


def _short_identity(identity: Identity, mtu: int, count: Counter, way: Way | None) -> tuple[str, str]:
    """The identity within its limit, and the steps that shortened it (rules 2.5)."""
    limit = identity_limit(mtu)
    text = identity.prompt()
    if (found := count(text)) <= limit:
        return text, ""
    head = text.partition("\n- ")[0].rpartition("\n")[2]  # the line that introduces the rules
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


def clean(text: str) -> str:
    """A text by a model or a program, without characters that are not text."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
