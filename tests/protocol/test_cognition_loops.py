"""Loop detection: every kind of loop is seen, work that gets on is not, and what follows from a loop."""

from __future__ import annotations

import hashlib
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from council.protocol.cognition import CognitionPacket, Trace, build_packet, find_loops, loops, watch
from council.protocol.cognition.parts import LoopState, ToolCall
from council.protocol.cognition.vocabulary import LoopType, PacketState
from tests.cases import each
from tests.protocol.cognition.tables import ID, NOW

P = PacketState
SAID = "The server failed as its disk is full and no log can be written"


def calls(*named: tuple[str, dict[str, Any] | None]) -> list[ToolCall]:
    return [ToolCall(name=name, args=args) for name, args in named]


READ, LIST = ("read_file", {"path": "a"}), ("list_dir", {"path": "b"})
SEARCH = [("search", {"q": "parser", "page": n}) for n in range(6)]

# For each kind: what is just a loop, and what is just none.
CASES: dict[str, tuple[Trace, Trace]] = {
    "tool_repetition": (
        Trace(tool_calls=calls(*[READ] * 3)),
        Trace(tool_calls=calls(*[READ] * 2, LIST, READ)),
    ),
    "tool_ping_pong": (
        Trace(tool_calls=calls(READ, LIST, READ, LIST)),
        Trace(tool_calls=calls(READ, LIST, READ, ("list_dir", {"path": "c"}))),
    ),
    "tool_parameter_drift": (
        Trace(tool_calls=calls(*SEARCH[:5])),
        Trace(tool_calls=calls(*SEARCH[:4], ("search", {"q": "lexer", "page": 9}))),
    ),
    "output_verbatim": (
        Trace(outputs=["I can't.", "i can't. ", "I  can't."]),
        Trace(outputs=["I can't.", "I can.", "I can't."]),
    ),
    "output_paraphrase": (
        Trace(outputs=[SAID, f"{SAID} now", f"Again: {SAID}"]),
        Trace(outputs=[SAID, f"{SAID} now", "Delete old archives, then restart the service and watch it"]),
    ),
    "output_structural": (
        Trace(outputs=[f"Step {word}:\n- try {word}, then stop." for word in ("one", "two", "ten", "six")]),
        Trace(outputs=[f"Step {word}:\n- try {word}, then stop." for word in ("one", "two", "ten")]),
    ),
    "state_oscillation": (
        Trace(states=[P.PROCESSING, P.AWAITING_HUMAN] * 5),
        # All that a packet with three reinjections may do.
        Trace(states=[P.PROCESSING, *[P.AWAITING_TOOL, P.PROCESSING] * 4]),
    ),
    "state_regression": (
        Trace(states=[P.READY_TO_STREAM, P.PROCESSING, P.READY_TO_STREAM, P.PROCESSING]),
        Trace(states=[P.PROCESSING, P.AWAITING_HUMAN, P.PROCESSING, P.AWAITING_HUMAN, P.AWAITING_TOOL]),
    ),
    "goal_drift": (Trace(goals=list("abcde")), Trace(goals=list("abcda"))),
    "error_repetition": (
        Trace(errors=[f"Timeout after {n} s at 0x7f{n}" for n in range(3)]),
        Trace(errors=["Timeout", "Refused", "Timeout"]),
    ),
    "error_whack_a_mole": (
        Trace(errors=["a", "b", "a", "b", "a"]),
        Trace(errors=["a", "b", "a", "b", "c", "d"]),
    ),
    "fix_repetition": (
        Trace(fixes=["Restart it", "restart  it", "clear the cache", "restart it"]),
        Trace(fixes=["restart it", "clear the cache", "restart it"]),
    ),
    "token_repetition": (Trace(outputs=["well " + "no " * 10]), Trace(outputs=["well " + "no " * 9])),
    "phrase_loop": (
        Trace(outputs=["and then we go. " * 4]),
        Trace(outputs=["and then we go. " * 3 + "and that is the end of it"]),
    ),
    "structural_loop": (
        Trace(outputs=["\n".join(f"Now do step {n}" for n in range(8))]),
        Trace(outputs=["\n".join(f"Now do step {n}" for n in range(7))]),
    ),
}


def kinds(trace: Trace) -> set[str]:
    return {loop.loop_type for loop in find_loops(trace)}


def test_there_is_a_case_for_every_kind() -> None:
    assert set(CASES) == set(get_args(LoopType))


@each("kind", CASES)
def test_a_loop_is_seen_and_what_is_none_is_not(kind: str) -> None:
    """Mutation: any of the limits one higher or one lower."""
    loop, none = CASES[kind]
    assert kind in kinds(loop)
    assert kind not in kinds(none)


def test_nothing_is_no_loop() -> None:
    assert find_loops(Trace()) == ()
    assert find_loops(Trace(outputs=["", "", ""], errors=[], tool_calls=calls(("a", None)))) == ()


WORK = [
    Trace(
        outputs=[
            "# List\n\n- apples, red\n- pears, green\n- plums, blue\n- figs\n\nThat is all there is to buy."
        ]
    ),
    Trace(outputs=["a = 1\nb = 2\nc = 3\n}\n}\n}\n}\n}\n}\n}\n}\n}"]),
    Trace(tool_calls=calls(*[(tool, {"path": str(n)}) for n in range(5) for tool in ("read", "write")])),
    Trace(errors=["no module x", "no module y", "syntax error", "test failed"]),
    Trace(
        states=[P.INITIALIZED, P.PROCESSING, P.AWAITING_TOOL, P.PROCESSING, P.READY_TO_STREAM, P.COMPLETED]
    ),
    Trace(goals=["fix"] * 20),
]


@pytest.mark.parametrize("trace", WORK)
def test_work_that_gets_on_is_no_loop(trace: Trace) -> None:
    assert find_loops(trace) == ()


def test_the_surest_comes_first_and_more_times_are_surer() -> None:
    found = find_loops(Trace(tool_calls=calls(*[READ] * 9), errors=["x"] * 3))
    assert [loop.loop_type for loop in found] == ["tool_repetition", "error_repetition"]
    assert found[0].confidence == 0.9
    assert found[1].confidence == 0.75


def test_only_what_was_done_lately_counts() -> None:
    many = calls(*[READ] * 50)
    newest = find_loops(Trace(tool_calls=many))[0]
    assert newest.confidence == round(loops.WINDOW / (loops.WINDOW + 1), 4)
    assert find_loops(Trace(tool_calls=[*many, *calls(LIST)])) == ()


def test_a_pattern_is_cut() -> None:
    found = find_loops(Trace(outputs=["x " + "long words " * 3_000] * 3))
    assert len(found[0].pattern) == loops.PATTERN_CHARS_MAX


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=8),
    st.lists(st.sampled_from(list(P)), max_size=12),
)
def test_any_trace_gives_the_same_loops_each_time(texts: list[str], states: list[PacketState]) -> None:
    trace = Trace(outputs=texts, errors=texts, fixes=texts, goals=texts, states=states)
    found = find_loops(trace)
    assert found == find_loops(trace)
    assert all(0 < loop.confidence < 1 for loop in found)
    assert [loop.confidence for loop in found] == sorted((loop.confidence for loop in found), reverse=True)


@pytest.mark.parametrize("unit", ["a", "a ", "f", "f,", "\t", "0x", ", ", "a b ", '"', "`"])
def test_no_text_makes_it_search_for_long(unit: str) -> None:
    """A pattern that backtracks over these takes minutes; pytest's time limit is the judge."""
    text = unit * (loops.TEXT_CHARS_MAX // len(unit))
    assert isinstance(find_loops(Trace(outputs=[text + "!", text], errors=[text])), tuple)


# What follows


LOOP, OTHER, NONE = Trace(tool_calls=calls(*[READ] * 3)), Trace(errors=["x"] * 3), Trace()


def watched(*traces: Trace, state: LoopState | None = None) -> LoopState | None:
    found: CognitionPacket = build_packet("cli", "x", now=NOW, new_id=lambda: ID)
    found = found.model_copy(update={"loop_state": state})
    for trace in traces:
        found = watch(found, trace, NOW)
    assert found.compute_hashes() == found
    return found.loop_state


def test_the_first_loop_is_a_warning() -> None:
    found = watched(LOOP)
    assert found is not None
    assert found.loop_type == "tool_repetition"
    assert found.pattern == 'read_file {"path": "a"}'
    assert found.pattern_hash == hashlib.sha256(found.pattern.encode()).hexdigest()[:16]
    assert (found.warned, found.in_recovery, found.reset_count) == (True, False, 0)
    assert (found.triggered_by, found.confidence) == (("tool_repetition",), 0.75)
    assert found.detected_at == "2026-11-21T12:00:00.000250+00:00"


@pytest.mark.parametrize("second", [LOOP, OTHER])
def test_the_next_one_is_a_reset(second: Trace) -> None:
    """Mutation: a warning for each pattern anew, so that a model that changes its loop is never reset."""
    found = watched(LOOP, second)
    assert found is not None
    assert (found.warned, found.in_recovery, found.reset_count) == (True, True, 1)
    assert len(found.previous_attempts) == 1
    assert found.previous_attempts[0].approach_summary.startswith(found.loop_type or "?")
    assert found.recovery_context


def test_every_kind_has_its_way_out() -> None:
    for kind, (loop, _) in CASES.items():
        found = watched(loop, loop)
        assert found is not None, kind
        assert found.recovery_context, kind


def test_what_gets_on_again_is_clear_and_remembers() -> None:
    found = watched(LOOP, LOOP, NONE)
    assert found is not None
    assert (found.warned, found.in_recovery, found.recovery_context) == (False, False, None)
    assert (found.reset_count, len(found.previous_attempts)) == (1, 1)
    assert watched(NONE) is None
    warned_again = watched(LOOP, LOOP, NONE, LOOP)
    assert warned_again is not None
    assert (warned_again.warned, warned_again.reset_count) == (True, 1)


def test_attempts_are_kept_to_a_limit() -> None:
    found = watched(*[LOOP] * 30)
    assert found is not None
    assert (found.reset_count, len(found.previous_attempts)) == (29, loops.ATTEMPTS_MAX)


def test_a_loop_that_is_allowed_is_noted_alone() -> None:
    found = watched(LOOP, LOOP, state=LoopState(override_active=True))
    assert found is not None
    assert (found.loop_type, found.warned, found.in_recovery) == ("tool_repetition", False, False)
    assert (found.reset_count, found.previous_attempts) == (0, ())
