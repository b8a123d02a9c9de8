"""Chooses which turns before a proposal a seat is shown.

    packet = with_history(packet, case.history)

Turns of people and agents are taken whole. Of a tool's output, only relevant sentences are taken: the newest ones,
and older ones that share rare words with the proposal, as in a packet's third step (``add_knowledge``). A tool's turn
is one whose role begins with ``tool`` or ``function``. The order is kept. All of it is outside data (rules 1.14), and
is shortened to the seat's tokens later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from council.agents.mind import Turn
from council.agents.prompting.summary import split
from council.protocol.cognition import CognitionPacket, add_knowledge
from council.protocol.cognition.parts import RelevantHistorySnippet

_TOOLS = ("tool", "function")
# If a sentence is longer, such as a listing or a log without full stops, each line of it is one.
SENTENCE_CHARS_MAX = 400
# More lines than a day's log of a build has. Searching them takes some tenths of a second.
SENTENCES_MAX = 20_000
# The prefix of a turn's further lines, so that none of them can be taken for another turn.
_INDENT = "\n  "


def with_history(packet: CognitionPacket, turns: Iterable[Turn]) -> CognitionPacket:
    """The packet with the relevant parts of these turns as its history, oldest first."""
    said: list[RelevantHistorySnippet] = []
    printed: dict[str, RelevantHistorySnippet] = {}
    for place, (role, text) in enumerate(_pieces(turns)):
        if not (shown := _INDENT.join(text.strip().splitlines())):
            continue
        turn = RelevantHistorySnippet(id=f"turn {place:07}", role=role, summary=shown)
        if role.startswith(_TOOLS):
            printed.pop(shown, None)  # repeated output is shown once, at its last place
            printed[shown] = turn
        else:
            said.append(turn)
    found = add_knowledge(_holding(packet, said), list(printed.values())[-SENTENCES_MAX:])
    return _holding(packet, sorted(found.context.relevant_history_snippet, key=lambda turn: turn.id))


def _pieces(turns: Iterable[Turn]) -> Iterator[tuple[str, str]]:
    """The turns; those of tools in sentences."""
    for role, text in turns:
        if not role.startswith(_TOOLS):
            yield role, text
            continue
        for sentence in split(text):
            for line in [sentence] if len(sentence) <= SENTENCE_CHARS_MAX else sentence.splitlines():
                for start in range(0, len(line), SENTENCE_CHARS_MAX):
                    yield role, line[start : start + SENTENCE_CHARS_MAX]


def _holding(packet: CognitionPacket, turns: Sequence[RelevantHistorySnippet]) -> CognitionPacket:
    context = packet.context.model_copy(update={"relevant_history_snippet": tuple(turns)})
    return packet.model_copy(update={"context": context})
