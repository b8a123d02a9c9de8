"""A mind backed by a language model: sends it prompts, and reads ballots and rulings from its answers.

This module has the order of the calls. After an invalid answer the model is asked once more and shown the error;
after a second one the ballot is lost. ``llm/accept.py`` checks an answer, ``llm/stages.py`` has the stages,
``prompting/`` makes the prompts, and ``llm/calls.py`` calls the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

from council.agents.llm import accept, stages
from council.agents.llm.accept import Reader, Unusable, checked
from council.agents.llm.endpoint import Endpoint
from council.agents.llm.provider import calls_for
from council.agents.llm.stages import StepPublisher, Verification, stages_for
from council.agents.messaging import spans
from council.agents.messaging.logs import get_logger
from council.agents.mind import (
    BudgetClient,
    Case,
    Observation,
    Opinion,
    PacketSource,
    PlanStream,
    Ruling,
    ShownBallot,
    Stream,
)
from council.agents.prompting.builder import PromptBuilder
from council.agents.prompting.prompt import Execution, Halt, Prompt
from council.agents.seat.plan_stream import HALTS_MAX
from council.agents.static.floor import Floor
from council.protocol.answer.mangle import Schema
from council.protocol.errors import CallDenied, ModelError, TokenBudgetError

log = get_logger("council.model")

T = TypeVar("T")

# A mind stops this many seconds before its time ends, to report why it has no ballot. The seat knows only the time.
MARGIN_S = 0.25


class _Halted(Exception):
    """An observer interrupted the work. The argument is its reason."""


class _Attempt:
    """The time limit of a piece of work, by the loop's clock, and what has gone wrong in it so far."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.troubles: list[str] = []
        self.said = ""  # the text of the plan so far
        self.plan_s = 0.0  # seconds that the longest plan took; its ballot may take as long
        self.votes = False  # the model is being asked for its ballot, with a plan or without

    def left(self, case: Case) -> Case:
        """The case with the time that is left for the work after a plan or a halt."""
        return replace(case, time_left_s=max(0.0, self.until_s - asyncio.get_running_loop().time()))

    def has_time(self, calls: int) -> bool:
        """Whether the time suffices for that many more calls, each as long as the longest plan took."""
        return self.until_s - asyncio.get_running_loop().time() >= calls * self.plan_s


class ModelMind:
    """Reviews and rules by asking the model at ``endpoint`` with the prompts of ``prompter``; observes others.

    It spends from the budget that its seat gives it, and makes no call without one. It publishes its plan through its
    seat's plan stream, but never a ballot (rules 1.14). ``stages`` is the number of calls for a vote: "one", "two",
    or "auto" for as many as the case needs. ``predicates`` are those that its updates may use; by default the
    built-in ones. If there is a ``floor``, no vote or ruling of the model undoes what static checks stop.

    It pickles as its configuration; clients are made where it works.
    """

    reads_tokens = None  # its prompts have budgets of their own

    def __init__(
        self,
        endpoint: Endpoint,
        prompter: PromptBuilder,
        *,
        stages: stages.Setting = "auto",
        predicates: Schema | None = None,
        floor: Floor | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.prompter = prompter
        self.stages = stages
        self.predicates = predicates
        self.floor = floor
        self._opinion = partial(accept.opinion, predicates=predicates)
        self._ruling = partial(accept.ruling, predicates=predicates)
        self._calls = calls_for(endpoint)
        self._budget: BudgetClient | None = None
        self._stream: PlanStream | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(ModelMind, stages=self.stages, predicates=self.predicates, floor=self.floor)
        return made, (self.endpoint, self.prompter)

    def __repr__(self) -> str:
        return f"ModelMind({self.endpoint})"

    def set_budget(self, budget: BudgetClient) -> None:
        self._budget = budget
        self.prompter.set_budget(budget)  # its shortening steps may call models too

    def set_packets(self, packets: PacketSource) -> None:
        packets.model = {"name": self.endpoint.model, "provider": self.endpoint.provider or "openai"}
        self.prompter.set_packets(packets)

    def set_plan_stream(self, stream: PlanStream) -> None:
        self._stream = stream

    async def review(self, case: Case) -> Opinion:
        """The model's ballot. Raises ModelError, CallDenied or TokenBudgetError; the ballot is then lost."""
        if "plan" in stages_for(case, self.stages):
            opinion = await self._within(case, lambda work: self._deliberated(case, work))
        else:
            opinion = await self._answered(case, self.prompter.ballot(case), self._opinion)
        return opinion if self.floor is None else await self.floor.under(case, opinion)

    async def rule(self, case: Case, ballots: Sequence[ShownBallot]) -> Ruling:
        """The model's ruling, with all ballots in its prompt (rules 1.8). Raises as ``review`` does."""
        ruling = await self._answered(case, self.prompter.ruling(case, ballots), self._ruling)
        return ruling if self.floor is None else await self.floor.under_ruling(case, ruling)

    async def observe(self, case: Case, stream: Stream) -> Observation:
        """The model's observation of another seat's work. Raises as ``review`` does; there is then no observation.

        The call is independent and made once. It leaves no trace in the mind's own ballot (rules 6.7).
        """
        prompt = self.prompter.observe(case, stream, marked=self._marked)
        return await self._answered(case, prompt, stages.observation, asks_again=False)

    async def act(self, case: Case, done: Execution) -> str:
        """The text for the user about an execution or its failure (GCP 6). Raises as ``review`` does."""
        return await self._answered(case, self.prompter.act(case, done, marked=self._marked), stages.response)

    async def verify(self, case: Case, state: str) -> Verification:
        """Whether ``state``, found after the execution, is the intended one (GCP 6).

        Raises as ``review`` does, also if the answer does not say. The caller must treat that as a failure.
        """
        prompt = self.prompter.verify(case, state, marked=self._marked)
        return await self._answered(case, prompt, stages.verification)

    @property
    def _marked(self) -> bool:
        """Whether the model writes answers in marked blocks, because its server enforces no schema (rules 3.2)."""
        return self._calls.form == "text"

    # Plan and Refine (rules 3.1)

    async def _deliberated(self, case: Case, work: _Attempt) -> Opinion:
        """The ballot, by a plan. After each halt by an observer it begins again, if there is time for both.

        When it can't heed a further halt it escalates to Prime: the council may have counted the halts (rules 1.8).
        """
        halt: Halt | None = None
        for _ in range(HALTS_MAX):
            try:
                return await self._unless_halted(case, work, self._planned(case, work, halt))
            except _Halted as halted:
                halt, work.said = Halt(str(halted), work.said), ""
            if not work.has_time(2):
                why = f"its plan was halted, and there was no time for another: {halt.reason}"
                return _escalated(await self._unplanned(case, work), why)
        assert halt is not None
        why = f"its plans were halted {HALTS_MAX} times, the last for: {halt.reason}"
        return _escalated(await self._planned(case, work, halt), why)

    async def _unless_halted(
        self, case: Case, work: _Attempt, review: Coroutine[Any, Any, Opinion]
    ) -> Opinion:
        """The result of the review. Raises _Halted after the review is cancelled and its calls are settled."""
        task = asyncio.ensure_future(review)
        halt = None if self._stream is None else self._stream.interrupted(case.proposal_id)
        waits: set[asyncio.Future[Any]] = {task} if halt is None else {task, halt}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if halt is None or not halt.done():
                return await task
            if work.votes and not work.has_time(1):  # no other ballot would be in time, so this one is kept
                why = f"a halt came when there was no time to heed it: {halt.result()}"
                return _escalated(await task, why)
            raise _Halted(halt.result())
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # its error is not needed

    async def _planned(self, case: Case, work: _Attempt, halt: Halt | None) -> Opinion:
        """A ballot by a plan. If the model gives no plan: a ballot without one, escalated to Prime (GCP 6)."""
        work.votes, missing = False, "it made no plan"
        try:
            plan = await self._plan(case, work, halt)
            missing = "its ballot has no room for its plan"
            prompt = await self.prompter.ballot(work.left(case), plan)
        except (ModelError, CallDenied, TokenBudgetError) as error:
            # A failed plan must not cost the ballot. If the server is down, the next call fails as well.
            return _escalated(await self._unplanned(case, work), f"{missing}: {error.message}")
        work.votes = True
        return await self._ask(case, prompt, self._opinion, work)

    async def _unplanned(self, case: Case, work: _Attempt) -> Opinion:
        work.votes = True
        return await self._ask(case, self.prompter.ballot(work.left(case)), self._opinion, work)

    async def _plan(self, case: Case, work: _Attempt, halt: Halt | None) -> str:
        clock = asyncio.get_running_loop().time
        now_s = clock()
        until_s = now_s + (work.until_s - now_s) * stages.PLAN_SHARE
        planning = replace(case, time_left_s=until_s - now_s)
        prompt = self.prompter.plan(planning, marked=self._marked, halt=halt)
        try:
            async with asyncio.timeout_at(until_s):
                with spans.stage(spans.PLAN, case.proposal_id):
                    return await self._ask(case, prompt, stages.plan, work, says=True)
        except TimeoutError:
            raise self.endpoint.error(f"it gave none within {until_s - now_s:.3g} s") from None
        finally:
            work.plan_s = max(work.plan_s, clock() - now_s)
            if self._stream is not None:
                self._stream.end(case.proposal_id, "plan")

    # Asking

    async def _answered(
        self, case: Case, prompt: Awaitable[Prompt], reader: Reader[T], *, asks_again: bool = True
    ) -> T:
        """Returns what is read from the answer to this one prompt."""
        return await self._within(
            case, lambda work: self._ask(case, prompt, reader, work, asks_again=asks_again)
        )

    async def _within(self, case: Case, done: Callable[[_Attempt], Awaitable[T]]) -> T:
        """Awaits ``done`` within the time limits of the case and the endpoint."""
        limit_s = case.time_left_s - min(MARGIN_S, case.time_left_s / 10)
        limit_s = min(limit_s, self.endpoint.max_execution_time_s or limit_s)
        work = _Attempt(asyncio.get_running_loop().time() + limit_s)
        try:
            async with asyncio.timeout_at(work.until_s):
                return await done(work)
        except TimeoutError:
            before = f"; before that: {work.troubles[-1]}" if work.troubles else ""
        raise self.endpoint.error(f"it gave no answer within {limit_s:.3g} s{before}")

    async def _ask(
        self,
        case: Case,
        prompted: Prompt | Awaitable[Prompt],
        reader: Reader[T],
        work: _Attempt,
        *,
        says: bool = False,
        asks_again: bool = True,
    ) -> T:
        """Returns what is read from the answer. If ``says`` is set, the answer is published as it arrives."""
        prompt, first = self._logged(prompted if isinstance(prompted, Prompt) else await prompted), ""
        shown = prompt.messages  # written by others; when it is asked again it may correct its own answer
        while True:
            publisher = (
                StepPublisher(prompt.nonce, lambda text: self._publish(case, work, text)) if says else None
            )
            on_piece = None if publisher is None else publisher.add
            answer = await self._calls.answer(prompt, self._budget, work.until_s, work.troubles, on_piece)
            try:
                found = checked(case, replace(prompt, messages=shown), answer, reader)
            except Unusable as unusable:
                problem, final = str(unusable), unusable.final
            else:
                if publisher is not None:
                    publisher.rest(str(found))
                return found
            if publisher is not None:
                publisher.add(None)
            work.troubles.append(problem)
            if final or first or not asks_again:
                asked = "" if not first else f"; asked again, as before {first}"
                raise self.endpoint.error(f"its answer can't be taken, as {problem}{asked}")
            try:
                prompt = self._logged(await self.prompter.again(prompt, answer.text, problem))
            except TokenBudgetError as error:
                raise self.endpoint.error(
                    f"its answer can't be taken, as {problem}; there is no room to ask again: {error}"
                ) from error
            first = problem

    def _publish(self, case: Case, work: _Attempt, text: str) -> None:
        work.said += text
        if self._stream is not None:
            self._stream.publish(case.proposal_id, "plan", text)

    def _logged(self, prompt: Prompt) -> Prompt:
        """Logs how the prompt was made to fit (rules 2.4), and returns it."""
        for overrun in prompt.overruns:
            log.warning("TOKEN_BUDGET_OVERRUN", proposal=prompt.proposal_id, **asdict(overrun))
        return prompt


def _escalated(opinion: Opinion, why: str) -> Opinion:
    """The opinion, with this reason added to its escalation."""
    return replace(
        opinion, escalate="; ".join(filter(None, (why, opinion.escalate)))[: stages.REASON_CHARS_MAX]
    )
