"""The user's goal over the turns of a session: found by rules on words, refined by a model.

Knows nothing of clocks or randomness: the time and the generator of ids are arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from council.protocol.cognition.lifecycle import CUES, INSIDE, LEADING
from council.protocol.cognition.packet import CognitionPacket, moment
from council.protocol.cognition.parts import DetectedGoal, GoalState
from council.protocol.cognition.tokenize import WORD, cut, telling_words, word_set
from council.protocol.cognition.vocabulary import GoalConfidence, GoalSource

DESCRIPTION_CHARS_MAX = 200
PREVIOUS_GOALS_MAX = 10
# Two goals are the same if they share at least one in so many words of the shorter one.
SAME_GOAL_WORDS = 3
# An answer of so few words, with nothing in it but these, continues the current goal.
_CARRYING_WORDS_MAX = 6
_CARRYING = word_set(
    "yes yep yeah no nope ok okay sure go ahead on continue more again next please thanks thank right correct "
    "exactly do it that this and then now same keep going proceed fine good great the one first second last"
)

_SURENESS = tuple(GoalConfidence)  # most certain first


def follow_goal(packet: CognitionPacket, *, now: datetime, new_id: Callable[[], str]) -> CognitionPacket:
    """The packet after one turn, with its goal by its prompt and its intent (lifecycle step 2).

    A prompt that only continues, or is not certain, keeps the current goal.
    """
    state = _turned(packet)
    prompt = packet.content.original_prompt
    sureness = _sureness(packet.intent.confidence)
    current = state.current_goal
    if current is not None and (_carries(prompt) or sureness is GoalConfidence.LOW):
        state = state.model_copy(update={"current_goal": _with(current, source="session_carry")})
    elif WORD.search(prompt):
        state = _towards(state, prompt, sureness, "fast_path", now=now, new_id=new_id)
    return packet.model_copy(update={"goal_state": state})


def adopt_goal(
    packet: CognitionPacket,
    description: str,
    confidence: GoalConfidence,
    *,
    now: datetime,
    new_id: Callable[[], str],
) -> CognitionPacket:
    """The packet with the goal that a model found in the turn that ``follow_goal`` has counted."""
    state = _towards(packet.goal_state or GoalState(), description, confidence, "llm", now=now, new_id=new_id)
    return packet.model_copy(update={"goal_state": state})


def _towards(
    state: GoalState,
    text: str,
    confidence: GoalConfidence,
    source: GoalSource,
    *,
    now: datetime,
    new_id: Callable[[], str],
) -> GoalState:
    """The state with this goal: the current one with more confidence, or another one, which is a shift."""
    description = cut(text, DESCRIPTION_CHARS_MAX)
    current = state.current_goal
    if current is not None and _alike(current.description, description):
        surer = min(current.confidence, confidence, key=_SURENESS.index)
        return state.model_copy(update={"current_goal": _with(current, source=source, confidence=surer)})
    found = DetectedGoal(
        goal_id=new_id(),
        description=description,
        confidence=confidence,
        detected_at=moment(now),
        source=source,
    )
    if current is None:
        return state.model_copy(update={"current_goal": found})
    return state.model_copy(
        update={
            "current_goal": found,
            "previous_goals": (*state.previous_goals, current)[-PREVIOUS_GOALS_MAX:],
            "goal_shifts": state.goal_shifts + 1,
        }
    )


def _turned(packet: CognitionPacket) -> GoalState:
    state = packet.goal_state or GoalState()
    return state.model_copy(update={"turn_count": state.turn_count + 1})


def _with(goal: DetectedGoal, **changes: object) -> DetectedGoal:
    return goal.model_copy(update=changes)


def _sureness(confidence: float) -> GoalConfidence:
    if confidence >= LEADING:
        return GoalConfidence.HIGH
    return GoalConfidence.MEDIUM if confidence >= INSIDE else GoalConfidence.LOW


def _carries(prompt: str) -> bool:
    words = WORD.findall(prompt[:500].casefold())
    return len(words) <= _CARRYING_WORDS_MAX and _CARRYING.issuperset(words)


def _alike(one: str, other: str) -> bool:
    """Whether two goals have the same subject; what is to be done with it makes no difference."""
    mine, theirs = telling_words(one) - CUES.keys(), telling_words(other) - CUES.keys()
    fewer = min(len(mine), len(theirs))
    return len(mine & theirs) * SAME_GOAL_WORDS >= fewer if fewer else one.casefold() == other.casefold()
