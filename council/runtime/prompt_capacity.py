"""Checks whether a proposal fits into any seat's prompt, before it is accepted (rules 2.2). Calls no model.

In most cases the number of bytes shows that a text fits. If not, a thread counts its tokens piece by piece. If the
result is close, the whole prompt is built and counted. A seat may still find an accepted proposal too long; its
ballot is then lost.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

from council.agents.messaging.logs import get_logger
from council.agents.mind import Case
from council.agents.prompting.builder import PromptBuilder, case_text
from council.agents.prompting.special_tokens import SPELL_IT, special_in
from council.agents.prompting.tokens import WITHOUT_MODEL, TokenCounter
from council.config.build_minds import prompter_of, reads_tokens_of
from council.config.charter_files import charter_files_of
from council.config.settings import MODEL_MIND, CouncilConfig
from council.protocol.envelope import Envelope, Proposal
from council.protocol.errors import CouncilError, Refused, TokenBudgetError
from council.protocol.values import plain

log = get_logger("council")

# Nonces and joined texts can change the count by some tokens.
MARGIN_TOKENS = 64
# The characters that are counted at once. It takes some milliseconds, in which nothing else runs in this process.
PIECE_CHARS = 8_000
# A cut within a word or a letter adds at most this many tokens.
CUT_TOKENS = 4
# Texts up to this length are searched on the coordinator's own loop, longer ones on a thread.
AT_ONCE_CHARS = 16_000
_EMPTY = Case("00" * 8, "nobody", "")


@dataclass(frozen=True, slots=True)
class PromptCapacity:
    """The room in a seat's prompt for a proposal's text, in ``tokens``, and whether special tokens are allowed.

    A mind without a model has no ``prompter``; ``tokens`` are those that it reads.
    """

    seat: str
    prompter: PromptBuilder | None
    count: TokenCounter
    tokens: int

    def problem(self, case: Case, text: str) -> tuple[str, int]:
        """The reason why the text does not fit, or "", and its number of tokens as far as it was counted."""
        if self.refuses_special and (word := special_in(text)) is not None:
            return f"{self.seat} may not be shown {word!r}", 0
        if self.surely_fits(text):
            return "", 0
        found, pieces = 0, 0
        for start in range(0, len(text), PIECE_CHARS):
            found, pieces = found + self.count(text[start : start + PIECE_CHARS]), pieces + 1
            least = found - CUT_TOKENS * pieces - MARGIN_TOKENS
            if least > self.tokens:
                more = " or more" if start + PIECE_CHARS < len(text) else ""
                return self._too_long(f"{found:,}{more}"), found
        if found + MARGIN_TOKENS <= self.tokens:
            return "", found
        if self.prompter is None:
            return self._too_long(f"about {found:,}"), found
        return self._problem_of_prompt(self.prompter, case), found

    @property
    def refuses_special(self) -> bool:
        return self.prompter is not None and self.prompter.common.special_tokens == "refuse"

    def surely_fits(self, text: str) -> bool:
        """Whether it fits by its number of bytes alone. With a tokenizer file this is never certain."""
        return not self.reads_file and self.count.most(text) + MARGIN_TOKENS <= self.tokens

    @property
    def reads_file(self) -> bool:
        """Whether it counts with a tokenizer file, which may change a text in any way, so counting needs a thread."""
        return self.count.tokenizer.endswith(".json")

    def _too_long(self, found: str) -> str:
        has = "reads" if self.prompter is None else "has room for"
        return f"{self.seat} {has} {self.tokens:,} tokens, and it takes {found}"

    def _problem_of_prompt(self, prompter: PromptBuilder, case: Case) -> str:
        try:
            asyncio.run(prompter.ballot(case))
        except TokenBudgetError as error:
            # A persona that no local step shortens may still be shortened by a model, at the seat.
            return f"{self.seat}: {error.message}" if error.field in ("frame", "prompt") else ""
        return ""


class PromptCapacities:
    """The prompt capacities of a council's seats."""

    def __init__(self, config: CouncilConfig) -> None:
        self._config = config
        self._loading = threading.Lock()
        self._capacities: list[PromptCapacity] | None = None

    async def problem(self, envelope: Envelope) -> CouncilError | None:
        """The reason why this is a proposal that fits no seat; None for any other envelope."""
        content = envelope.content
        if not isinstance(content, Proposal):
            return None
        action = None if content.action is None else plain(content.action.model_dump())
        case = Case(envelope.msg_id, envelope.sender, content.summary, content.body, action)
        text = case_text(case)
        if self._capacities is not None and len(text) <= AT_ONCE_CHARS:
            refuses = any(capacity.refuses_special for capacity in self._capacities)
            if any(capacity.surely_fits(text) for capacity in self._capacities) and not (
                refuses and special_in(text)
            ):
                return None
        return await asyncio.to_thread(self._problem, case, text)

    def _problem(self, case: Case, text: str) -> CouncilError | None:
        with self._loading:
            if self._capacities is None:
                self._capacities = self._loaded()
        problems = []
        for capacity in self._capacities:
            problems.append(capacity.problem(case, text))
            if not problems[-1][0]:
                return None
        if not problems:
            return None
        reasons = "; ".join(problem for problem, _ in problems)
        refuses = any(capacity.refuses_special for capacity in self._capacities)
        if refuses and (word := special_in(text)) is not None:
            return Refused(
                f"no seat's model can be shown this proposal, because it contains {word!r}: with such words chat "
                f"templates end or begin a message, and a server may read them so ({reasons}). {SPELL_IT}",
                code="special_token",
            )
        return TokenBudgetError(
            f"the proposal fits no seat's prompt, where it is never shortened (rules 2.2): {reasons}; propose less "
            "at once, or give a seat a larger max_context_tokens, or a mind without a model a larger reads_tokens",
            field="prompt",
            limit=max(capacity.tokens for capacity in self._capacities),
            found=max(found for _, found in problems),
        )

    def _loaded(self) -> list[PromptCapacity]:
        try:
            charters = charter_files_of(self._config)
            return [
                self._capacity(prompter_of(seat, charter=charters.of(seat.name)), seat.name)
                if seat.mind == MODEL_MIND
                else PromptCapacity(seat.name, None, TokenCounter("", WITHOUT_MODEL), reads_tokens_of(seat))
                for seat in self._config.seats
            ]
        except CouncilError as error:  # the seat's tokenizer is on the seat's node and not here
            log.warning("proposals are not measured before they are accepted", why=error.message)
            return []

    def _capacity(self, prompter: PromptBuilder, seat: str) -> PromptCapacity:
        assert isinstance(prompter.common.count, TokenCounter)
        try:
            bare = asyncio.run(prompter.ballot(_EMPTY)).tokens - prompter.common.count(case_text(_EMPTY))
        except TokenBudgetError as error:
            bare = prompter.common.mtu if error.field == "frame" else 0
        return PromptCapacity(seat, prompter, prompter.common.count, prompter.common.mtu - bare)
