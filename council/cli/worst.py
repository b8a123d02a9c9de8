"""What a proposal may cost at worst, by seat, beside the caps. Calls no model, and draws nothing.

Each prompt is put together by the seat's own builder and counted by its own counter, with nonces that take as many
tokens as nonces can. What nobody knows yet, the ballots that a ruling is shown, counts as all that has room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from council.agents.mind import Case
    from council.agents.prompt import Prompter
    from council.agents.purse import Cost
    from council.protocol.envelope import Envelope
    from council.settings import CouncilConfig, SeatConfig


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a model at its worst; ``certain`` where it is made however the seats answer."""

    task: str
    prompt_tokens: int
    output_tokens: int
    tokens: int
    microusd: int | None
    certain: bool


@dataclass(frozen=True, slots=True)
class SeatCost:
    """What a seat may take. Without calls it has no model, or ``problem`` says why it can have none."""

    seat: str
    mind: str
    model: str | None = None
    base_url: str | None = None
    counter: str | None = None
    mtu: int | None = None
    calls: tuple[Call, ...] = ()
    problem: str | None = None

    def tokens(self, *, certain: bool) -> int:
        return sum(call.tokens for call in self.calls if call.certain or not certain)

    def microusd(self, *, certain: bool) -> int | None:
        costs = [call.microusd for call in self.calls if call.certain or not certain]
        return None if None in costs else sum(cost for cost in costs if cost is not None)


@dataclass(frozen=True, slots=True)
class Cap:
    """A cap, and what of it may be taken: one answer of each seat (``first``), and all at worst."""

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
    """What a proposal may cost, seat by seat, beside the caps."""

    seats: tuple[SeatCost, ...]
    caps: tuple[Cap, ...]
    quorum: int
    attempts_max: int

    @property
    def works(self) -> bool:
        """Whether a quorum of seats has room for it, and no cap denies one answer of each (rules 1.4, 2.6)."""
        there = [seat for seat in self.seats if seat.problem is None]
        return len(there) >= min(self.quorum, len(self.seats)) and all(
            cap.holds != "denied" for cap in self.caps
        )

    def total(self, *, certain: bool) -> tuple[int, int | None]:
        costs = [seat.microusd(certain=certain) for seat in self.seats]
        money = None if None in costs else sum(cost for cost in costs if cost is not None)
        return sum(seat.tokens(certain=certain) for seat in self.seats), money

    def plain(self) -> dict[str, Any]:
        sums = {"first": self.total(certain=True), "worst": self.total(certain=False)}
        return {
            "seats": [asdict(seat) for seat in self.seats],
            **{key: {"tokens": tokens, "microusd": money} for key, (tokens, money) in sums.items()},
            "caps": [{**asdict(cap), "holds": cap.holds} for cap in self.caps],
            "attempts_max": self.attempts_max,
            "works": self.works,
        }


async def estimated(config: CouncilConfig, proposal: Envelope) -> Estimate:
    """What the seats of this configuration may use up on a proposal. Raises MindError."""
    from council.agents.calls import ATTEMPTS_MAX
    from council.agents.mind import Case
    from council.protocol.envelope import Proposal
    from council.protocol.jsondata import plain

    content = proposal.content
    assert isinstance(content, Proposal)
    action = None if content.action is None else plain(content.action.model_dump())
    case = Case(
        proposal.msg_id, proposal.sender, content.summary, content.body, action, 1.0, proposal.risk_level
    )
    seats = [await _seat(seat, config, case) for seat in config.seats]
    return Estimate(tuple(seats), tuple(_caps(config, seats)), config.quorum, ATTEMPTS_MAX)


async def _seat(seat: SeatConfig, config: CouncilConfig, case: Case) -> SeatCost:
    from council.agents.tokens import counter_for
    from council.importing import build_mind
    from council.protocol.errors import TokenBudgetError
    from council.settings import DEFAULT_SEATS, MODEL_MIND

    if seat.mind != MODEL_MIND:
        ships = seat.mind in [each.mind for each in DEFAULT_SEATS]
        return SeatCost(seat.name, "static" if ships else "own")
    mind: Any = build_mind(seat)
    assert seat.model is not None
    counter = counter_for(seat.model, seat.tokenizer).tokenizer
    found = SeatCost(seat.name, "model", seat.model, seat.base_url, counter, seat.max_context_tokens)
    cost = mind.endpoint.cost if seat.usd_per_million_input is not None else None
    try:
        calls = await _calls(seat, config, case, mind.prompter, cost)
    except TokenBudgetError as error:
        return replace(found, problem=error.message)
    return replace(found, calls=tuple(calls))


async def _calls(
    seat: SeatConfig,
    config: CouncilConfig,
    case: Case,
    prompter: Prompter,
    cost: Callable[[int, int], Cost] | None,
) -> list[Call]:
    """A ballot's calls, and those of a ruling for Prime. Raises TokenBudgetError for a ballot without room."""
    from council.agents.mind import ShownBallot
    from council.agents.prompt_builder import (
        ANSWER_TOKENS_MAX,
        PROBLEM_TOKENS_MAX,
        SEAM_TOKENS,
        PromptBuilder,
        case_text,
    )
    from council.protocol.errors import TokenBudgetError
    from council.protocol.identity import history_limit

    assert isinstance(prompter, PromptBuilder)
    prompter.new_nonce = _longest_nonces()
    count, mtu = prompter.count, prompter.mtu

    def call(task: str, tokens: int, *, certain: bool) -> Call:
        tokens = min(tokens, mtu)  # rules 2: no prompt has more
        worst = tokens + seat.max_output_tokens
        money = None if cost is None else cost(tokens, seat.max_output_tokens).microusd
        return Call(task, tokens, seat.max_output_tokens, worst, money, certain)

    ballot = await prompter.ballot(case)
    found = [call("ballot", ballot.tokens, certain=True)]
    more = ANSWER_TOKENS_MAX + PROBLEM_TOKENS_MAX + SEAM_TOKENS
    try:  # with so little of an answer that all the rest can be added
        again = await prompter.again(ballot, "", "")
        more += again.tokens - ballot.tokens
        found.append(call("ballot again", ballot.tokens + more, certain=False))
    except TokenBudgetError:
        pass  # then it is not asked for once more
    if seat.name != config.prime:
        return found
    shown = [ShownBallot(each.name, "abstain", "", 0.95, "high") for each in config.seats]
    try:
        bare = (await prompter.ruling(case, shown)).tokens
    except TokenBudgetError:
        return found  # Prime has no room to rule, and a human does
    # rules 2.1, 2.2: what room the ballots' reasons have.
    needed = count(case_text(case))
    left = mtu - bare + needed
    full = bare + max(0, min(history_limit(left), left - needed)) + SEAM_TOKENS
    always = case.risk_level == "high"  # rules 1.8
    found.append(call("ruling", full, certain=always))
    found.append(call("ruling again", full + more, certain=False))
    return found


def _longest_nonces() -> Callable[[], str]:
    """Nonces whose every digit is a token of its own, as no tokenizer joins a figure and a letter."""
    made = iter(range(10**8))

    def new() -> str:
        return "".join(
            figure + letter for figure, letter in zip(f"{next(made):08d}", "abcdefab", strict=True)
        )

    return new


def _caps(config: CouncilConfig, seats: Sequence[SeatCost]) -> list[Cap]:
    """The caps that are set, beside what may be taken of them."""
    from council.runtime.inline import rules_of

    budget = rules_of(config).budget
    own = dict(budget.seats)
    asked = [("proposal", budget.proposal, list(seats)), ("council", budget.council, list(seats))]
    asked += [(f"seat {seat.seat}", own.get(seat.seat, budget.seat), [seat]) for seat in seats if seat.calls]
    found = []
    for whose, caps, of in asked:
        if caps.tokens is not None:
            first, worst = (sum(each.tokens(certain=certain) for each in of) for certain in (True, False))
            found.append(Cap(whose, "tokens", caps.tokens, first, worst))
        if caps.microusd is not None:
            first, worst = (
                sum(each.microusd(certain=certain) or 0 for each in of) for certain in (True, False)
            )
            found.append(Cap(whose, "microusd", caps.microusd, first, worst))
    return found
