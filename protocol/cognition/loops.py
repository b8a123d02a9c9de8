"""Loop detection: recognises that a session repeats itself, and says what to do about it.

Counts and compares the newest actions, without a model. Knows nothing of clocks: the time is an argument. The first
loop gives a warning, the next one a reset: the attempted way is then recorded as tried.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import get_args

from council.protocol.cognition.packet import CognitionPacket, moment
from council.protocol.cognition.parts import LoopAttempt, LoopState, ToolCall
from council.protocol.cognition.states import MOVES
from council.protocol.cognition.tokenize import WORD, cut, telling_words
from council.protocol.cognition.tools import REINJECTIONS_MAX
from council.protocol.cognition.vocabulary import LoopType, PacketState

# So many of the newest entries of each kind are compared, and so much of each text, so that the cost is constant.
WINDOW = 20
TEXT_CHARS_MAX = 20_000
PATTERN_CHARS_MAX = 300
ATTEMPTS_MAX = 10

# The number of repetitions that make a loop. Two are a retry.
REPEATS = 3
PING_PONG_CALLS = 4
DRIFTING_CALLS = 5
SHAPED_OUTPUTS = 4
# A packet that uses all its reinjections legitimately goes to its tool and back so often.
OSCILLATING_STATES = 2 * (REINJECTIONS_MAX + 1) + 2
REGRESSIONS = 2
DRIFTING_GOALS = 5
RETURNING_ERRORS = 3
SAME_WORDS = 10
PHRASE_REPEATS = 4
PHRASE_WORDS_MAX = 12
SAME_LINES = 8
# Two outputs that share so much of their words say the same. Texts with fewer words can't be judged.
PARAPHRASE_LIKENESS = 0.7
PARAPHRASE_WORDS = 5

_ORDER: tuple[str, ...] = get_args(LoopType)
_STATE_ORDER = {state: place for place, state in enumerate(PacketState)}
_RECOVERY = {
    "tool": "The same tools were called again and again. Use what they gave, or another way; do not call them so.",
    "output": "The same was said again and again. Say only what is new, or that there is nothing new.",
    "state": "The work went back and forth without getting on. Finish the step at hand, or say what is missing.",
    "goal": "What is worked on changed with every turn. Go back to what the user asked for last.",
    "error": "The same errors came again. Find their common cause before anything else is changed.",
    "fix": "The same mend was tried again and did not help. Try another one.",
}
_RECOVERY |= dict.fromkeys(("token", "phrase", "structural"), _RECOVERY["output"])


@dataclass(frozen=True, slots=True)
class Trace:
    """The recent actions of a session, oldest first for each kind."""

    tool_calls: Sequence[ToolCall] = ()
    outputs: Sequence[str] = ()
    states: Sequence[PacketState] = ()
    errors: Sequence[str] = ()
    fixes: Sequence[str] = ()
    goals: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its kind, the repeated pattern, and the confidence, 0 to 1."""

    loop_type: LoopType
    pattern: str
    confidence: float


def watch(packet: CognitionPacket, trace: Trace, now: datetime) -> CognitionPacket:
    """The packet with its loop state by ``trace``: clear, warned, or in recovery.

    If ``override_active`` is set, the loop is allowed: it is recorded without consequences.
    """
    state = packet.loop_state or LoopState()
    loops = find_loops(trace)
    if not loops:
        if not (state.warned or state.in_recovery):
            return packet
        clear = {"warned": False, "in_recovery": False, "recovery_context": None}
        return packet.model_copy(update={"loop_state": state.model_copy(update=clear)})
    worst = loops[0]
    changes: dict[str, object] = {
        "detected_at": moment(now),
        "loop_type": worst.loop_type,
        "pattern": worst.pattern,
        "pattern_hash": hashlib.sha256(worst.pattern.encode()).hexdigest()[:16],
        "confidence": worst.confidence,
        "triggered_by": tuple(loop.loop_type for loop in loops),
    }
    if state.warned and not state.override_active:
        tried = LoopAttempt(approach_summary=f"{worst.loop_type}: {worst.pattern}", failed_at=moment(now))
        changes |= {
            "reset_count": state.reset_count + 1,
            "in_recovery": True,
            "previous_attempts": (*state.previous_attempts, tried)[-ATTEMPTS_MAX:],
            "recovery_context": _RECOVERY[worst.loop_type.split("_")[0]],
        }
    elif not state.override_active:
        changes["warned"] = True
    return packet.model_copy(update={"loop_state": state.model_copy(update=changes)})


def find_loops(trace: Trace) -> tuple[Loop, ...]:
    """All loops in the recent actions, most certain first; of equals, in the vocabulary's order."""
    found = [
        *_in_calls(trace.tool_calls[-WINDOW:]),
        *_in_outputs([text[-TEXT_CHARS_MAX:] for text in trace.outputs[-WINDOW:]]),
        *_in_states(trace.states[-WINDOW:]),
        *_in_goals([_normal(goal) for goal in trace.goals[-WINDOW:]]),
        *_in_errors([_masked(error) for error in trace.errors[-WINDOW:]]),
        *_in_fixes([_normal(fix) for fix in trace.fixes[-WINDOW:]]),
    ]
    return tuple(sorted(found, key=lambda loop: (-loop.confidence, _ORDER.index(loop.loop_type))))


def _loop(kind: LoopType, pattern: str, times: int, likeness: float = 1.0) -> Loop:
    # The confidence grows with each repetition, and never reaches 1.
    return Loop(kind, cut(pattern, PATTERN_CHARS_MAX), round(likeness * times / (times + 1), 4))


# What was done


def _in_calls(calls: Sequence[ToolCall]) -> Iterator[Loop]:
    keys = [f"{call.name} {json.dumps(call.to_dict()['args'], sort_keys=True)}" for call in calls]
    times = _run(keys)
    if times >= REPEATS:
        yield _loop("tool_repetition", keys[-1], times)
    times = _alternation(keys)
    if times >= PING_PONG_CALLS:
        yield _loop("tool_ping_pong", f"{keys[-2]} ⇄ {keys[-1]}", times)
    drift = 1
    while drift < len(calls) and _drifts(calls[-drift - 1], calls[-drift]):
        drift += 1
    if drift >= DRIFTING_CALLS:
        yield _loop("tool_parameter_drift", keys[-1], drift)


def _drifts(one: ToolCall, other: ToolCall) -> bool:
    """Whether two calls have the same tool and the same arguments but one."""
    if one.name != other.name or not one.args or not other.args or set(one.args) != set(other.args):
        return False
    return [one.args[name] == other.args[name] for name in one.args].count(False) == 1


def _in_states(states: Sequence[PacketState]) -> Iterator[Loop]:
    times = _alternation(states)
    if times >= OSCILLATING_STATES:
        yield _loop("state_oscillation", f"{states[-2]} ⇄ {states[-1]}", times)
    back = [
        f"{one} → {other}"
        for one, other in pairwise(states)
        if _STATE_ORDER[other] < _STATE_ORDER[one] and other not in MOVES[one]
    ]
    if len(back) >= REGRESSIONS:
        yield _loop("state_regression", back[-1], len(back))


def _in_goals(goals: Sequence[str]) -> Iterator[Loop]:
    newest = goals[-DRIFTING_GOALS:]
    if len(newest) == DRIFTING_GOALS == len(set(newest)):
        yield _loop("goal_drift", " → ".join(newest), DRIFTING_GOALS)


def _in_errors(errors: Sequence[str]) -> Iterator[Loop]:
    times = _run(errors)
    if times >= REPEATS:
        yield _loop("error_repetition", errors[-1], times)
    came_again = [
        error for at, error in enumerate(errors) if at and error != errors[at - 1] and error in errors[:at]
    ]
    if len(came_again) >= RETURNING_ERRORS:
        yield _loop("error_whack_a_mole", " ⇄ ".join(dict.fromkeys(came_again)), len(came_again))


def _in_fixes(fixes: Sequence[str]) -> Iterator[Loop]:
    times = fixes.count(fixes[-1]) if fixes else 0
    if times >= REPEATS:
        yield _loop("fix_repetition", fixes[-1], times)


# What was said


def _in_outputs(outputs: Sequence[str]) -> Iterator[Loop]:
    if not outputs:
        return
    texts = [_normal(text) for text in outputs]
    times = _run(texts)
    if times >= REPEATS and texts[-1]:
        yield _loop("output_verbatim", texts[-1], times)
        return  # equal texts are alike in every other way too
    words = [telling_words(text) for text in texts[-REPEATS:]]
    if len(words) == REPEATS and min(map(len, words)) >= PARAPHRASE_WORDS:
        likeness = min(_likeness(one, other) for one, other in pairwise(words))
        if likeness >= PARAPHRASE_LIKENESS:
            yield _loop("output_paraphrase", texts[-1], REPEATS, likeness)
    shapes = [_shape(text) for text in outputs]
    times = _run(shapes)
    if times >= SHAPED_OUTPUTS and "\n" in shapes[-1]:
        yield _loop("output_structural", shapes[-1], times)
    yield from _within(outputs[-1])


def _within(text: str) -> Iterator[Loop]:
    """Loops inside one output, a typical failure of models."""
    words = WORD.findall(text.casefold())
    times, at = _longest(words, 1)
    if times >= SAME_WORDS:
        yield _loop("token_repetition", words[at], times)
    phrases = [(*_longest(words, size), size) for size in range(2, PHRASE_WORDS_MAX + 1)]
    times, at, size = max(phrases, key=lambda phrase: (phrase[0], -phrase[2]))
    phrase = words[at : at + size]
    if times >= PHRASE_REPEATS and len(set(phrase)) > 1:
        yield _loop("phrase_loop", " ".join(phrase), times)
    lines = [_masked(line) for line in text.splitlines()]
    times, at = _longest(lines, 1)
    if times >= SAME_LINES and len(WORD.findall(lines[at])) > 1:
        yield _loop("structural_loop", lines[at], times)


# Counting


def _run(items: Sequence[Hashable]) -> int:
    """The number of equal items at the end."""
    times = 1
    while times < len(items) and items[-times - 1] == items[-1]:
        times += 1
    return min(times, len(items))


def _alternation(items: Sequence[Hashable]) -> int:
    """The number of items at the end in which two different ones alternate."""
    if len(items) < 2 or items[-1] == items[-2]:
        return 0
    times = 2
    while times < len(items) and items[-times - 1] == items[-times + 1]:
        times += 1
    return times


def _longest(items: Sequence[str], size: int) -> tuple[int, int]:
    """The longest run of equal pieces of this size, and where it begins."""
    best, begin, run = 0, 0, 0
    for at in range(size, len(items)):
        run = run + 1 if items[at] == items[at - size] else 0
        if run > best:
            best, begin = run, at - run - size + 1
    return (best // size + 1, begin) if items else (0, 0)


def _likeness(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _masked(text: str) -> str:
    """A text without details that vary: numbers, addresses, case and spaces."""
    plain = _normal(text[:TEXT_CHARS_MAX])
    return WORD.sub(lambda word: "#" if any(map(str.isdigit, word[0])) else word[0], plain)


def _shape(text: str) -> str:
    """The shape of a text: each line with a mark for each run of words, and its punctuation."""
    lines = (re.sub(r"\w+(?:[ \t'’,]+\w+)*", "w", line.strip()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)
