"""What a seat notices over the packets of a session: calls, answers and errors that repeat, and the user's goal.

Only exact repetitions count as a loop, because the document gives no measure of similarity. Nothing here reads a
clock: times are texts in the form of ``packet.moment``.
"""

from __future__ import annotations

import hashlib
from collections import deque

from council.protocol.cognition.parts import DetectedGoal, GoalState, LoopState
from council.protocol.cognition.vocabulary import GoalConfidence

REPEATS = 3  # the same thing this many times in a row is a loop
GOALS_MAX = 10
TEXT_CHARS_MAX = 300


class Session:
    """A session so far. ``goal`` is the user's, and ``loop`` the one that the newest entries are, if they are one."""

    def __init__(self) -> None:
        self.goal = GoalState()
        self.loop: LoopState | None = None
        self._calls: deque[str] = deque(maxlen=4)  # as many as two calls in turn take
        self._answers: deque[str] = deque(maxlen=REPEATS)
        self._errors: deque[str] = deque(maxlen=REPEATS)

    def asked(self, call: str, goal: str, at: str, *, by_user: bool) -> None:
        """Notes a request. ``call`` is a tool with its arguments, or "" if there is none."""
        self._calls.append(call)
        self.goal = _pursued(self.goal, goal, at, by_user=by_user)
        self.loop = _loop(self._call_loops(), at)

    def ended(self, answer: str, error: str, at: str) -> None:
        """Notes the answer to a request, or the error in its place. ``answer`` also says what it answers."""
        (self._errors if error else self._answers).append(error or answer)
        repeated = (
            _repeated("error_repetition", self._errors)
            if error
            else _repeated("output_verbatim", self._answers)
        )
        self.loop = _loop(self._call_loops() | repeated, at)

    def _call_loops(self) -> dict[str, str]:
        """The types and patterns of the loops that the newest calls are."""
        found = _repeated("tool_repetition", self._calls)
        if len(self._calls) == 4:
            one, other, *again = self._calls
            if one and other and one != other and again == [one, other]:
                found["tool_ping_pong"] = f"{one} | {other}"
        return found


def _repeated(loop_type: str, entries: deque[str]) -> dict[str, str]:
    newest = list(entries)[-REPEATS:]
    is_loop = len(newest) == REPEATS and newest[0] != "" and len(set(newest)) == 1
    return {loop_type: newest[0]} if is_loop else {}


def _loop(found: dict[str, str], at: str) -> LoopState | None:
    """The loop of the first of these types, if there is any."""
    for loop_type, pattern in found.items():
        return LoopState(
            detected_at=at,
            loop_type=loop_type,
            pattern=pattern[:TEXT_CHARS_MAX],
            pattern_hash=_digest(pattern),
            confidence=1.0,
            triggered_by=tuple(found),
            warned=True,
        )
    return None


def _pursued(state: GoalState, text: str, at: str, *, by_user: bool) -> GoalState:
    """The goals after one more turn. A goal in the user's own words is sure, another one less so."""
    description, current = " ".join(text.split())[:TEXT_CHARS_MAX], state.current_goal
    goal = DetectedGoal(
        goal_id=_digest(description),
        description=description,
        confidence=GoalConfidence.HIGH if by_user else GoalConfidence.MEDIUM,
        detected_at=at,
        source="fast_path",
    )
    state = state.model_copy(update={"turn_count": state.turn_count + 1})
    if current is None:
        return state.model_copy(update={"current_goal": goal})
    if current.goal_id == goal.goal_id:
        carried = current.model_copy(update={"source": "session_carry"})
        return state.model_copy(update={"current_goal": carried})
    shifted = {
        "previous_goals": (*state.previous_goals, current)[-GOALS_MAX:],
        "goal_shifts": state.goal_shifts + 1,
    }
    return state.model_copy(update={"current_goal": goal, **shifted})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
