"""The highest cost of a proposal, by seat, beside the caps. No model is called.

Each prompt is built by the seat's own builder and counted by its own counter, with nonces that take as many tokens as
nonces can. Text that is not known yet (the plan before a ballot, the ballots before a ruling, the stream that is
observed) counts with its limit. Shortening of it by Lite and Prime does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from council.agents.llm.calls import ATTEMPTS_MAX as ATTEMPTS_MAX
from council.agents.llm.compress import Compressor
from council.agents.llm.endpoint import Endpoint
from council.agents.llm.stages import stages_for
from council.agents.mind import Case, ShownBallot, Turn
from council.agents.prompting.assembly import SEAM_TOKENS
from council.agents.prompting.builder import ANSWER_TOKENS_MAX, PROBLEM_TOKENS_MAX, PromptBuilder, case_text
from council.agents.prompting.prompt import Halt, Prompt
from council.agents.prompting.shorten import Step
from council.agents.prompting.tokens import counter_for
from council.agents.seat.plan_stream import HALTS_MAX as HALTS_MAX
from council.agents.seat.plan_stream import OBSERVATIONS_MAX
from council.config.build_minds import endpoint_of, prompter_of, steps_of
from council.config.charter_files import charter_files_of
from council.config.settings import DEFAULT_SEATS, MODEL_MIND, CouncilConfig, SeatConfig
from council.protocol.envelope import Envelope, Proposal
from council.protocol.errors import OperatorError, TokenBudgetError
from council.protocol.identity.charter import history_limit
from council.protocol.values import plain
from council.runtime.build import rules_of

_STATIC_MINDS = tuple(seat.mind for seat in DEFAULT_SEATS)


class Sum(NamedTuple):
    """The total cost of calls; ``microusd`` is None if a price is unknown."""

    tokens: int
    microusd: int | None


@dataclass(frozen=True, slots=True)
class WorstCall:
    """A call of a model at its highest cost, made ``times`` times; ``certain`` if it is made in any case."""

    task: str
    prompt_tokens: int
    output_tokens: int
    tokens: int
    microusd: int | None
    certain: bool
    times: int = 1


@dataclass(frozen=True, slots=True)
class SeatCost:
    """The calls of a seat. It has none without a model, or with a ``problem``, which says why it can't vote."""

    seat: str
    mind: str
    model: str | None = None
    base_url: str | None = None
    counter: str | None = None
    mtu: int | None = None
    calls: tuple[WorstCall, ...] = ()
    problem: str | None = None


def total(seats: Iterable[SeatCost], *, certain: bool) -> Sum:
    """The sum of the seats' calls, or only of those that are certain."""
    calls = [call for seat in seats for call in seat.calls if call.certain or not certain]
    costs = [call.microusd * call.times for call in calls if call.microusd is not None]
    return Sum(
        sum(call.tokens * call.times for call in calls), sum(costs) if len(costs) == len(calls) else None
    )


@dataclass(frozen=True, slots=True)
class Cap:
    """A cap, and what may be taken of it: by one answer of each seat (``first``), and at worst."""

    key: str
    unit: str
    limit: int
    first: int
    worst: int

    @property
    def holds(self) -> str:
        return "denied" if self.first > self.limit else "tight" if self.worst > self.limit else "fits"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The highest cost of a proposal, by seat, beside the caps."""

    seats: tuple[SeatCost, ...]
    caps: tuple[Cap, ...]
    works: bool

    def plain(self) -> dict[str, Any]:
        return {
            "seats": [asdict(seat) for seat in self.seats],
            "first": total(self.seats, certain=True)._asdict(),
            "worst": total(self.seats, certain=False)._asdict(),
            "caps": [{**asdict(cap), "holds": cap.holds} for cap in self.caps],
            "attempts_max": ATTEMPTS_MAX,
            "halts_max": HALTS_MAX,
            "works": self.works,
        }


async def estimated(config: CouncilConfig, proposal: Envelope) -> Estimate:
    """The highest cost of a proposal for the seats of this configuration. Raises MindError and ConfigError."""
    content = proposal.content
    assert isinstance(content, Proposal)
    case = Case(
        proposal.msg_id,
        proposal.sender,
        content.summary,
        content.body,
        None if content.action is None else plain(content.action.model_dump()),
        1.0,
        proposal.risk_level,
        history=tuple(Turn(turn.role, turn.text) for turn in content.history),
    )
    seats = tuple([await _seat(seat, config, case) for seat in config.seats])
    caps = tuple(_caps(config, seats))
    # rules 1.4, 2.6: a quorum has room for the proposal, and no cap denies one answer of each seat.
    able = [seat for seat in seats if seat.problem is None]
    works = len(able) >= min(config.quorum, len(seats)) and all(cap.holds != "denied" for cap in caps)
    return Estimate(seats, caps, works)


async def _seat(seat: SeatConfig, config: CouncilConfig, case: Case) -> SeatCost:
    if seat.mind != MODEL_MIND:
        return SeatCost(seat.name, "static" if seat.mind in _STATIC_MINDS else "own")
    prompter = prompter_of(seat, steps_of(config), charter_files_of(config).of(seat.name))
    assert seat.model is not None
    counter = counter_for(seat.model, seat.tokenizer).tokenizer
    found = SeatCost(seat.name, "model", seat.model, seat.base_url, counter, seat.mtu)
    try:
        return replace(found, calls=tuple(await _Calls(seat, config, case, prompter).all()))
    except TokenBudgetError as error:
        return replace(found, problem=error.message)


class _Calls:
    """Collects a seat's calls."""

    def __init__(self, seat: SeatConfig, config: CouncilConfig, case: Case, prompter: PromptBuilder) -> None:
        prompter.common.new_nonce = _longest_nonces()
        prompter.common.steps = tuple(map(self._only_asked, prompter.common.steps))
        self._seat, self._config, self._case, self._prompter = seat, config, case, prompter
        self._found: list[WorstCall] = []
        self._asked: list[tuple[str, Endpoint, int, int]] = []

    def _only_asked(self, step: Step) -> Step:
        """A step that notes what its model would be asked, and fails, so that the next step is due too."""
        assert isinstance(step.ask, Compressor)
        endpoint = step.ask.endpoint

        async def ask(prompt: Prompt, until_s: float) -> str:
            written = prompt.written_max(endpoint.max_output_tokens)
            self._asked.append((step.how, endpoint, prompt.tokens, written))
            raise OperatorError("no model is asked")

        return replace(step, ask=ask)

    async def all(self) -> list[WorstCall]:
        """The calls for a vote, for observing, and for Prime's ruling. Raises TokenBudgetError: no room to vote."""
        observer, name = rules_of(self._config).observer, self._seat.name
        if _plans(self._seat, self._case):
            await self._vote(certain=True)
            # rules 3.1: a halt may come in the last of the calls for a vote, and then all are made anew.
            if observer not in ("", name):
                await self._vote(halted=True, times=HALTS_MAX)
        else:
            await self._add("ballot", await self._prompter.ballot(self._case), certain=True)
        speakers = [each for each in self._config.seats if each.name != name and _speaks(each, self._case)]
        if observer == name and speakers:
            self._call("observe", self._prompter.common.mtu, times=OBSERVATIONS_MAX * len(speakers))
        if name == self._config.prime:
            shown = [ShownBallot(each.name, "abstain", "", 0.95, "high") for each in self._config.seats]
            with suppress(TokenBudgetError):  # then Prime has no room to rule, and a human does
                always = self._case.risk_level == "high"  # rules 1.8
                await self._add(
                    "ruling", await self._prompter.ruling(self._case, shown), fills=True, certain=always
                )
        return self._found

    async def _vote(self, *, halted: bool = False, certain: bool = False, times: int = 1) -> None:
        """Plan and ballot, in each form that its server may take."""
        form, anew = self._seat.answer_format, " anew" if halted else ""
        forms = {"auto": (False, True), "text": (True,)}.get(form, (False,))
        halt, more = (Halt("x", "x"), PROBLEM_TOKENS_MAX) if halted else (None, 0)
        with suppress(TokenBudgetError):  # then it votes without a plan
            plans = [await self._prompter.plan(self._case, marked=marked, halt=halt) for marked in forms]
            plan = max(plans, key=lambda each: each.tokens)
            await self._add(f"plan{anew}", plan, more=more, fills=halted, certain=certain, times=times)
        try:
            ballot, fills = await self._prompter.ballot(self._case, "x"), True
        except TokenBudgetError:
            ballot, fills = await self._prompter.ballot(self._case), False
        await self._add(f"ballot{anew}", ballot, fills=fills, certain=certain, times=times)

    async def _add(
        self,
        task: str,
        prompt: Prompt,
        *,
        more: int = 0,
        fills: bool = False,
        certain: bool = False,
        times: int = 1,
    ) -> None:
        """A call, and its repetition if the answer is invalid. If it ``fills``, its prompt takes all the room."""
        self._shortened(certain=certain, times=times)
        tokens = prompt.tokens + more
        # A history that has to be shortened takes some tokens more where the nonce takes less.
        if fills or any(step.field == "history" for step in prompt.overruns):  # rules 2.1, 2.2
            needed = self._prompter.common.count(case_text(self._case))
            left = self._prompter.common.mtu - prompt.tokens + needed
            tokens += max(0, min(history_limit(left), left - needed)) + SEAM_TOKENS
        self._call(task, tokens, certain=certain, times=times)
        with suppress(TokenBudgetError):  # then it is not asked for once more
            again = await self._prompter.again(prompt, "", "")
            tokens += again.tokens - prompt.tokens + ANSWER_TOKENS_MAX + PROBLEM_TOKENS_MAX + SEAM_TOKENS
            self._call(f"{task} again", tokens, times=times)
            self._shortened(times=times)

    def _shortened(self, *, certain: bool = False, times: int = 1) -> None:
        """The calls that shorten a text for this prompt: Lite's, and Prime's if Lite's fails (rules 2.4)."""
        for how, endpoint, read, written in self._asked:
            first = how == self._prompter.common.steps[0].how
            cost = _money(endpoint, read, written)
            self._found.append(
                WorstCall("compress", read, written, read + written, cost, certain and first, times)
            )
        self._asked.clear()

    def _call(self, task: str, tokens: int, *, certain: bool = False, times: int = 1) -> None:
        # rules 2: no prompt has more.
        tokens, written = min(tokens, self._prompter.common.mtu), self._seat.max_output_tokens
        money = _money(endpoint_of(self._seat), tokens, written)
        self._found.append(WorstCall(task, tokens, written, tokens + written, money, certain, times))


def _money(endpoint: Endpoint, read: int, written: int) -> int | None:
    return None if endpoint.usd_per_million_input is None else endpoint.cost(read, written).microusd


def _speaks(seat: SeatConfig, case: Case) -> bool:
    """Whether the seat may have a plan to observe; a mind of the user's own may."""
    return _plans(seat, case) or seat.mind not in (MODEL_MIND, *_STATIC_MINDS)


def _plans(seat: SeatConfig, case: Case) -> bool:
    """Whether the seat's model makes a plan."""
    return seat.mind == MODEL_MIND and "plan" in stages_for(case, seat.stages)


def _longest_nonces() -> Callable[[], str]:
    """Nonces whose every digit is a token of its own, as no tokenizer joins a figure and a letter."""
    made = iter(range(10**8))

    def new() -> str:
        return "".join(
            figure + letter for figure, letter in zip(f"{next(made):08d}", "abcdefab", strict=True)
        )

    return new


def _caps(config: CouncilConfig, seats: Sequence[SeatCost]) -> Iterator[Cap]:
    """The caps that are set, and what may be taken of them."""
    budget = rules_of(config).budget
    own = dict(budget.seats)
    capped = [("proposal", budget.proposal, seats), ("council", budget.council, seats)]
    capped += [(f"seat {seat.seat}", own.get(seat.seat, budget.seat), [seat]) for seat in seats if seat.calls]
    for key, caps, takers in capped:
        first, worst = total(takers, certain=True), total(takers, certain=False)
        if caps.tokens is not None:
            yield Cap(key, "tokens", caps.tokens, first.tokens, worst.tokens)
        if caps.microusd is not None:  # so all prices are known
            yield Cap(key, "microusd", caps.microusd, first.microusd or 0, worst.microusd or 0)
