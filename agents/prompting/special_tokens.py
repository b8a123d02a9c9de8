"""Finds the marks of chat templates in a text (``<|im_start|>``, ``[INST]``).

Many servers treat such marks as control tokens wherever they stand. A proposal that holds one could end its message
and go on as the system or as the model. The marks of all listed families are looked for, whichever model a seat has,
because a model may have been trained on another family's marks. Families that are not listed are not found, so this
is a guard in addition to blind voting and typed decisions.
"""

from __future__ import annotations

import re

NAME_CHARS_MAX = 64  # of a name between bars; the longest known ones have about 30

# ChatML, Llama 3 and 4, Qwen, Phi, Zephyr, GLM, Kimi, Harmony, Command R, Granite; DeepSeek with its wide bars; Gemma
# 4 with one bar; Llama 2 and Mistral; Gemma; GLM's beginnings; EXAONE; Nemotron, Baichuan; Seed; MiniMax. These are
# all tokens that begin or end a turn or a text, but not those for images or thoughts. If ordinary code has the same
# spelling ([|x|] is an array in F#), only the family's own names are listed.
_MARKS = re.compile(
    rf"<(?=[|｜])[|｜][^\s<>|｜]{{1,{NAME_CHARS_MAX}}}[|｜]>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|gMASK|EOS|EOT|BOS)\]"
    r"|<</?SYS>>"
    r"|</?s>|<(?:bos|eos|sop|eop|eoh|eoa)>|<(?:start|end)_of_turn>|<(?:start|end)_of_role>"
    rf"|<\|[a-z_]{{2,{NAME_CHARS_MAX}}}>|<[a-z_]{{2,{NAME_CHARS_MAX}}}\|>"
    r"|\[\|(?:system|user|assistant|tool|endofturn)\|\]"
    r"|<(?:SPECIAL|extra_id|reserved)_[0-9]{1,4}>"
    rf"|</?seed:[a-z_]{{1,{NAME_CHARS_MAX}}}>"
    r"|\]~!?b[\[\]]|\[e~\["
)

# Advice for an error message.
SPELL_IT = 'Spell it otherwise, or set special_tokens = "text" for a seat whose server takes it for no more than text'


def special_in(text: str) -> str | None:
    """The first special token in a text; None if there is none."""
    found = _MARKS.search(text)
    return None if found is None else found[0]


def without_specials(text: str) -> str:
    """The text with a space after the first character of each special token, so that none is left."""
    while _MARKS.search(text) is not None:
        text = _MARKS.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return text
