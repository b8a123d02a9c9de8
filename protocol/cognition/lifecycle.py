"""Lifecycle steps 2 to 4 of a cognition packet: its intent, the relevant knowledge, and its handler.

Uses rules on words and no model: the same packet always gives the same result. Knows nothing of stores: history,
cheatsheets and handlers are arguments. An uncertain result gets a low confidence, for a model to decide.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from council.protocol.cognition.packet import CognitionPacket
from council.protocol.cognition.parts import Cheatsheet, Intent, RelevantHistorySnippet
from council.protocol.cognition.tokenize import COMMON, WORD, telling_words, word_set
from council.protocol.cognition.vocabulary import SystemTask

# A request is at the beginning or at the end of a text; the middle is material.
READ_CHARS_MAX = 20_000
TAGS_MAX = 8
# "It" and "that" refer to the newest turns, whatever these are about.
RECENT_TURNS = 6
SNIPPETS_MAX = 20
SHEETS_MAX = 5
# A text of fewer words is weighed as if it had so many. Otherwise a heading that shares one word would be the
# closest.
WORDS_MIN = 8

# The confidence that words alone can give.
SURE, LEADING, ASKING, INSIDE, SILENT, NOTHING = 1.0, 0.9, 0.7, 0.6, 0.3, 0.0
_AMBIGUOUS = 0.2  # subtracted if two tasks are equally likely

_CUES: Mapping[SystemTask, tuple[str, str]] = {
    SystemTask.RESEARCH: (
        "research",
        "research investigate explore search analyze analyse compare benchmark lookup",
    ),
    SystemTask.GENERATE_DRAFT: (
        "draft",
        "write draft compose create generate explain describe summarize summarise translate outline document",
    ),
    SystemTask.REFINE: (
        "refine",
        "refine improve revise rewrite rephrase polish edit shorten simplify refactor fix",
    ),
    SystemTask.VALIDATE: (
        "validate",
        "validate verify check test review audit proofread confirm lint inspect",
    ),
    SystemTask.DECISION: ("decide", "decide choose vote approve reject pick prioritize prioritise"),
    SystemTask.TRIGGER_ACTION: (
        "act",
        "run execute deploy delete remove install uninstall restart start stop send commit push merge kill",
    ),
}
# Words that ask for something: what the user wants, and the task for it.
CUES: Mapping[str, tuple[str, SystemTask]] = MappingProxyType(
    {word: (intent, task) for task, (intent, words) in _CUES.items() for word in words.split()}
)

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
# Quoted text is a subject, not a request.
_QUOTE = re.compile(r"`[^`\n]{1,500}`|\"[^\"\n]{1,500}\"|“[^”\n]{1,500}”|^[ \t]*>.*$", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[。！？؟\n])|(?<=[.!?])(?=\s)")
_SLASH = re.compile(r"\s*/([a-z][a-z_-]*)(?:\s|$)")
# A tool's name may hold characters that separate words elsewhere.
_NAME = re.compile(r"\w+(?:[.:/-]\w+)*")
_POLITE = word_set(
    "please can could would will you i we need want to like the hey hi hello gaia now then and also ok okay so "
    "i'd i’d let's lets go ahead just kindly council"
)
_ASKING = word_set("what why how who whom whose when where which is are was were does did do has have")
_NEGATIONS = word_set("not no never without don't don’t dont doesn't doesn’t avoid shouldn't shouldn’t")


# Step 2: what is wanted


def detect_intent(packet: CognitionPacket) -> CognitionPacket:
    """The packet with its intent: the task, what the user wants, the confidence, and the words that show it.

    A packet that holds a proposal or a council is about a decision. Quoted text, code and negated words are never
    read as a request.
    """
    keys = {field.key for field in packet.content.data_fields}
    if packet.council is not None or "proposal" in keys:
        found = Intent(user_intent="decide", system_task=SystemTask.DECISION, confidence=SURE)
    else:
        found = _intent(packet.content.original_prompt, packet.context.available_mcp_tools or ())
    return packet.model_copy(update={"intent": found})


def _intent(prompt: str, tools: Sequence[str]) -> Intent:
    slash = _SLASH.match(prompt)
    if slash and slash[1] in CUES:
        intent, task = CUES[slash[1]]
        return Intent(user_intent=intent, system_task=task, confidence=SURE, tags=(slash[1],))
    spoken = _QUOTE.sub(" ", _FENCE.sub("\n", prompt))
    if len(spoken) > READ_CHARS_MAX:
        spoken = f"{spoken[: READ_CHARS_MAX // 2]}\n{spoken[-READ_CHARS_MAX // 2 :]}"
    found: list[tuple[float, str, SystemTask, str]] = []
    names = {tool.casefold() for tool in tools} - COMMON
    for sentence in _SENTENCE_END.split(spoken.casefold()):
        found += _cues(sentence, names)
    tags = [word for _, _, _, word in found] + (["code"] if "```" in prompt else [])
    kept = tuple(dict.fromkeys(tags))[:TAGS_MAX]
    if not found:
        confidence = SILENT if WORD.search(spoken) else NOTHING
        return Intent(system_task=SystemTask.GENERATE_DRAFT, confidence=confidence, tags=kept)
    best = max(found, key=lambda cue: cue[0])  # the first of the best ones
    confidence, intent, task, _ = best
    if any(cue[0] == confidence and cue[2] is not task for cue in found):
        confidence = round(confidence - _AMBIGUOUS, 2)
    return Intent(user_intent=intent, system_task=task, confidence=confidence, tags=kept)


def _cues(sentence: str, tools: set[str]) -> list[tuple[float, str, SystemTask, str]]:
    """The requests in one sentence with their confidence: by its leading verb, then by other words."""
    words = WORD.findall(sentence)
    found: list[tuple[float, str, SystemTask, str]] = []
    leading = True
    for at, word in enumerate(words):
        if word in CUES:
            if _NEGATIONS.isdisjoint(words[max(0, at - 2) : at]):
                found.append((LEADING if leading else INSIDE, *CUES[word], word))
        elif leading and word == "should" and words[at + 1 : at + 2] in (["we"], ["i"]):
            found.append((LEADING, "decide", SystemTask.DECISION, word))
        leading = leading and word in _POLITE
    tool = next((match for match in _NAME.finditer(sentence) if match[0] in tools), None) if tools else None
    if tool and _NEGATIONS.isdisjoint(WORD.findall(sentence[: tool.start()])[-3:]):
        found.insert(0, (LEADING, "tool", SystemTask.TOOL_ROUTING, tool[0]))
    if words and (sentence.rstrip().endswith(("?", "？", "؟")) or words[0] in _ASKING):
        found.append((ASKING, "question", SystemTask.GENERATE_DRAFT, "question"))
    return found


# Step 3: what is known


def add_knowledge(
    packet: CognitionPacket,
    history: Sequence[RelevantHistorySnippet],
    cheatsheets: Sequence[Cheatsheet] = (),
    *,
    recent: int = RECENT_TURNS,
    snippets_max: int = SNIPPETS_MAX,
    sheets_max: int = SHEETS_MAX,
) -> CognitionPacket:
    """The packet with relevant knowledge: the newest turns, older ones that share rare words with its prompt, and the
    cheatsheets that it names, or that are core. ``history`` is oldest first, and so is the selection.

    Existing entries stay, and come first. Nothing is shortened here.
    """
    asked = telling_words(packet.content.original_prompt)
    own = packet.context.relevant_history_snippet
    turns = _unknown(history, {turn.id for turn in own})
    new = range(max(0, len(turns) - max(0, min(recent, snippets_max))), len(turns))
    older = _closest(
        asked, [telling_words(turn.summary) for turn in turns[: new.start]], snippets_max - len(new)
    )
    snippets = [turns[at] for at in (*older, *new)]
    held = packet.context.cheatsheets
    sheets = _unknown(cheatsheets, {sheet.id for sheet in held})
    wanted = asked | set(packet.intent.tags) | {packet.intent.user_intent}
    near = _closest(wanted, [telling_words(f"{sheet.id} {sheet.title}") for sheet in sheets], sheets_max)
    core = [at for at, sheet in enumerate(sheets) if sheet.pointer == "core"]
    chosen = sorted({*core, *near})
    context = packet.context.model_copy(
        update={
            "relevant_history_snippet": (*own, *snippets),
            "cheatsheets": (*held, *(sheets[at] for at in chosen)),
        }
    )
    return packet.model_copy(update={"context": context})


K = TypeVar("K", RelevantHistorySnippet, Cheatsheet)


def _unknown(given: Sequence[K], known: set[str]) -> list[K]:
    """Those with an unknown id; of several with one id, the last, which is the newest."""
    last = {one.id: one for one in given}
    return [one for one in given if one.id not in known and one is last[one.id]]


def _closest(asked: set[str], texts: Sequence[set[str]], most: int) -> list[int]:
    """The texts that share words with ``asked``, in order.

    The score is the rarity of the shared words for the length of the text, because reading costs. Of equals the later
    comes first.
    """
    spread = Counter(word for words in texts for word in words)
    scores = []
    for at, words in enumerate(texts):
        shared = math.fsum(sorted(math.log(1 + len(texts) / spread[word]) for word in words & asked))
        scores.append((shared / max(len(words), WORDS_MIN), at))
    best = sorted((score for score in scores if score[0] > 0), reverse=True)
    return sorted(at for _, at in best[: max(0, most)])
