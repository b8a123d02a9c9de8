"""Says whether a proposal fits some seat of a council, before it is accepted (rules 2.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from council.config.build_minds import reads_tokens_of
from council.config.settings import MODEL_MIND, CouncilConfig
from council.protocol.envelope import Envelope
from council.protocol.errors import CouncilError

if TYPE_CHECKING:
    from council.runtime.prompt_capacity import PromptCapacities


class ProposalSize:
    """The check of one council. ``free_bytes``: a sealed proposal up to this size fits without being measured.

    That is what its mind without a model reads, if it has one: a token is at least a byte.
    """

    def __init__(self, config: CouncilConfig) -> None:
        self._config = config
        self._capacities: PromptCapacities | None = None
        read = [reads_tokens_of(seat) for seat in config.seats if seat.mind != MODEL_MIND]
        self.free_bytes = max(read, default=0)

    async def problem(self, envelope: Envelope) -> CouncilError | None:
        """The reason why this is a proposal that fits no seat; None for any other envelope."""
        if self._capacities is None:
            from council.runtime.prompt_capacity import PromptCapacities  # prompts, which others do not need

            self._capacities = PromptCapacities(self._config)
        return await self._capacities.problem(envelope)
