"""TOKEN_BUDGET_OVERRUN (rules 2.4): each step that was taken is in the journal, also where no call came of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from council import Council
from council.agents.mind import Case, Opinion
from council.agents.prompting.prompt import OVERRUNS_MAX, Overrun, overruns_of
from council.cli import render
from council.config.settings import SeatConfig
from council.protocol.errors import ModelError, TokenBudgetError

CUT = Overrun("cafe4321", "persona", 96, 400, 400, "local tf-idf")
LITES = Overrun("cafe4321", "persona", 96, 400, 400, 'lite, in vain: "m at http://host/v1: it is gone"')


def error_with(*overruns: Any) -> TokenBudgetError:
    return TokenBudgetError("persona: 400 tokens, where 96 fit", field="persona", overruns=overruns)


def council_of(error: Exception) -> Council:
    async def agrees(case: Case) -> Opinion:
        return Opinion.yes("agreed")

    async def fails(case: Case) -> Opinion:
        raise error

    minds = {"prime": agrees, "lite": agrees, "codemind": fails}
    return Council.inline(seats=[SeatConfig(name=name, mind=mind) for name, mind in minds.items()])


def test_the_steps_of_a_prompt_that_was_never_sent_stand_with_the_lost_ballot() -> None:
    """Mutation: they ride with a reservation alone, and where the prompt fails there is none."""
    with council_of(error_with(CUT, LITES)) as council:
        council.propose("a change", wait_for="all")
        (fault,) = council.history(types=["fault"])
        assert fault.data["overruns"] == [asdict(CUT), asdict(LITES)]
        (loss,) = (event for event in council.events(follow=False) if event.kind == "loss")
        assert loss.data["overruns"] == [asdict(CUT), asdict(LITES)]
        told = render.phrase(fault.kind, fault.data).detail
    assert "shortened: persona 400 → 400 (local tf-idf), persona 400 → 400 (lite, in vain" in told


def test_those_of_an_error_behind_another_count_too() -> None:
    """There was no room to ask again: the steps stand in what the model's error came from."""
    with pytest.raises(ModelError) as caught:
        raise ModelError("no room to ask again") from error_with(CUT)
    assert overruns_of(caught.value) == [asdict(CUT)]


@pytest.mark.parametrize(
    "broken",
    [
        "none",
        ("a step",),
        (Overrun("p", "f", 1, 2, 3, "a\0b"),),
        (Overrun("p", "f", 1, 2, 3, "\ud800"),),
        (Overrun("p", "x" * 2_000, 1, 2, 3, "how"),),
        (Overrun("p", "f", 1.5, 2, 3, "how"),),  # type: ignore[arg-type]
        (Overrun("p", "f", 1, object(), 3, "how"),),  # type: ignore[arg-type]
        (),
        7,
    ],
)
def test_what_is_no_overrun_costs_nothing_but_itself(broken: Any) -> None:
    """Mutation: a mind's own error takes its seat down, or hides why its ballot is lost."""
    error = TokenBudgetError("it is too long", overruns=broken)
    assert overruns_of(error) == []
    with council_of(error) as council:
        decision = council.propose("a change", wait_for="all")
    ((seat, why),) = decision.missing
    assert (seat, "it is too long" in why) == ("codemind", True)


def test_all_of_them_are_told_and_of_very_many_how_many_there_were() -> None:
    """Mutation: the first twenty, and not a word of the others."""
    assert overruns_of(error_with(*[CUT] * OVERRUNS_MAX)) == [asdict(CUT)] * OVERRUNS_MAX
    told = overruns_of(error_with(*[CUT] * (OVERRUNS_MAX + 30)))
    assert told[:-1] == [asdict(CUT)] * (OVERRUNS_MAX - 1)
    assert (told[-1]["packet"], told[-1]["how"]) == (CUT.packet, "and 31 steps more, which are not recorded")


def test_as_many_as_a_seat_tells_are_on_the_record() -> None:
    """Mutation: whoever reads them has a lower bound than whoever tells them."""
    with council_of(error_with(*[CUT] * (OVERRUNS_MAX + 30))) as council:
        council.propose("a change", wait_for="all")
        (fault,) = council.history(types=["fault"])
    assert len(fault.data["overruns"]) == OVERRUNS_MAX
    assert fault.data["overruns"][-1]["how"] == "and 31 steps more, which are not recorded"
