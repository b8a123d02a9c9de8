"""What a seat notices over the packets of a session: calls, answers and errors that repeat, and the user's goal.

Only exact repetitions count as a loop, because the document gives no measure of similarity. Nothing here reads a
clock: times are texts in the form of ``packet.moment``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from council.protocol.cognition.parts import DetectedGoal, GoalState, LoopAttempt, LoopState
from council.protocol.cognition.vocabulary import GoalConfidence

WINDOW = 10  # the newest entries of each kind that are compared
REPEATS = 3  # the same thing this many times in a row is a loop
NO_GOAL = GoalState()
PATTERN_CHARS_MAX, GOAL_CHARS_MAX = 300, 200

_Found = tuple[str, str]  # the type of a loop, and its pattern


@dataclass(frozen=True, slots=True)
class Session:
    """The newest calls, answers and errors of a session, its goal, and its current or last loop."""

    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    goal: GoalState = NO_GOAL
    loop: LoopState | None = None

    def asked(self, call: str, goal: str, at: str, *, by_user: bool) -> Session:
        """The session after one more request. ``call`` is a tool with its arguments, or "" if there is none."""
        calls = (*self.calls, call)[-WINDOW:]
        session = replace(self, calls=calls, goal=_pursued(self.goal, goal, at, by_user=by_user))
        return session._watched(session._call_loops(), at)

    def answered(self, answer: str, at: str) -> Session:
        """The session after one more answer; ``answer`` also says what it answers."""
        session = replace(self, answers=(*self.answers, answer)[-WINDOW:])
        return session._watched([*session._call_loops(), *_repeated("output_verbatim", session.answers)], at)

    def failed(self, error: str, at: str) -> Session:
        """The session after one more error."""
        session = replace(self, errors=(*self.errors, error)[-WINDOW:])
        return session._watched([*session._call_loops(), *_repeated("error_repetition", session.errors)], at)

    def _call_loops(self) -> list[_Found]:
        found = _repeated("tool_repetition", self.calls)
        if len(self.calls) >= 4:
            one, other, *again = self.calls[-4:]
            if one and other and one != other and again == [one, other]:
                found.append(("tool_ping_pong", f"{one} | {other}"))
        return found

    def _watched(self, found: list[_Found], at: str) -> Session:
        """The session with the loop that its newest entries are. Without one, it recovers from the last."""
        before = self.loop
        if not found:
            return (
                self
                if before is None
                else replace(self, loop=before.model_copy(update={"in_recovery": True}))
            )
        loop_type, pattern = found[0]
        pattern_hash, triggered_by = _digest(pattern), tuple(kind for kind, _ in found)
        if before is not None and not before.in_recovery and before.pattern_hash == pattern_hash:
            return replace(self, loop=before.model_copy(update={"triggered_by": triggered_by}))
        loop = LoopState(
            detected_at=at,
            loop_type=loop_type,
            pattern=pattern[:PATTERN_CHARS_MAX],
            pattern_hash=pattern_hash,
            reset_count=0 if before is None else before.reset_count + 1,
            confidence=1.0,
            previous_attempts=() if before is None else _attempts(before),
            triggered_by=triggered_by,
            warned=True,
        )
        return replace(self, loop=loop)


def _repeated(loop_type: str, entries: tuple[str, ...]) -> list[_Found]:
    newest = entries[-REPEATS:]
    return [(loop_type, newest[0])] if len(newest) == REPEATS and newest[0] and len(set(newest)) == 1 else []


def _attempts(before: LoopState) -> tuple[LoopAttempt, ...]:
    attempt = LoopAttempt(approach_summary=before.pattern or "", failed_at=before.detected_at or "")
    return (*before.previous_attempts, attempt)[-WINDOW:]


def _pursued(state: GoalState, text: str, at: str, *, by_user: bool) -> GoalState:
    """The goals after one more turn. A goal in the user's own words is sure, another one less so."""
    description = " ".join(text.split())[:GOAL_CHARS_MAX]
    goal_id, current = _digest(description), state.current_goal
    carried = current is not None and current.goal_id == goal_id
    goal = DetectedGoal(
        goal_id=goal_id,
        description=description,
        confidence=GoalConfidence.HIGH if by_user else GoalConfidence.MEDIUM,
        detected_at=current.detected_at if carried and current is not None else at,
        source="session_carry" if carried else "fast_path",
    )
    shifted = current is not None and not carried
    previous = (*state.previous_goals, current)[-WINDOW:] if shifted and current else state.previous_goals
    return GoalState(
        current_goal=goal,
        previous_goals=previous,
        turn_count=state.turn_count + 1,
        goal_shifts=state.goal_shifts + shifted,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
