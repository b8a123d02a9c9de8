"""Every question crosses a process border as it is, and a coordinator has an answer of the type that it names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from council.core.state import Value
from council.journal.entries import Wanted
from council.protocol.errors import CallerError, EnvelopeError, OperatorError
from council.runtime.questions import (
    AskDecision,
    AskEscalations,
    AskEvents,
    AskHistory,
    AskPages,
    AskStatus,
    AskTokens,
    Question,
    answer_type,
    from_bytes,
    name_of,
    to_bytes,
)
from tests.runtime.harness import (
    in_loop,
)
from tests.runtime.test_coordinator import Bench

QUESTIONS: list[Question[Any]] = [
    AskStatus(),
    AskDecision("aaaaaaaa"),
    AskEscalations(),
    AskTokens(),
    AskTokens("aaaaaaaa"),
    AskHistory(Wanted(types=("decision",), limit=3)),
    AskEvents(0, 10, 0.0),
    AskPages(install=True),
]


def test_each_question_is_tried_here() -> None:
    assert {type(each) for each in QUESTIONS} == set(Question.__subclasses__())


@pytest.mark.parametrize("question", QUESTIONS, ids=name_of)
@in_loop
async def test_a_question_and_its_answer_survive_the_way_to_another_process(question: Question[Any]) -> None:
    """Mutation: a question without a case in the coordinator; an answer of another type than is named."""
    async with Bench() as bench:
        client = await bench.client()
        await client.exchange(client.proposal("aaaaaaaa"))
        asked = from_bytes(to_bytes(question))
        assert asked == question
        answer = await bench.coordinator.ask(asked)
        assert answer is not None
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=answer_type(question))
        assert msgspec.to_builtins(again) == msgspec.to_builtins(answer)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no",
        b"\x81\xa4type\xa2\xff\xff",
        b"\x81\xa4type\xa4none",
        msgspec.msgpack.encode({"type": "another"}),
        to_bytes(AskHistory(Wanted(proposal="x" * 500))),
    ],
)
def test_what_is_no_question_is_refused(data: bytes) -> None:
    with pytest.raises(EnvelopeError, match="question: not one of this version's"):
        from_bytes(data)


@in_loop
async def test_a_message_that_is_no_question_gets_no_answer() -> None:
    class Other(Value, frozen=True):
        """No question."""

    async with Bench() as bench:
        wrong: Any = Other()
        with pytest.raises(OperatorError, match="Other is not a question"):
            await bench.coordinator.ask(wrong)


@pytest.mark.parametrize("question", [AskDecision("\ud800"), AskEvents(2**70, 1, 0.0)])
def test_a_question_that_cannot_be_written_is_an_error_of_the_caller(question: Question[Any]) -> None:
    with pytest.raises(CallerError, match="can't be sent"):
        to_bytes(question)
