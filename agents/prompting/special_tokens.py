"""Finds in a text what a chat template marks turns with (``<|im_start|>``, ``[INST]``). Knows no tokenizer.

Many servers read such words as the marks that they are, wherever they stand: a proposal that holds one could end
the message that it stands in, and go on as the system or as the model. The words of all families that are listed
here are looked for, whatever a seat's model is, for a model may have been taught another family's. A family that is
not listed, or that came later, is not known here: it is a guard beside blind voting and typed decisions, no more.
"""

from __future__ import annotations

import re

NAME_CHARS_MAX = 64  # of a word between bars; the longest that are known have some 30

# ChatML, Llama 3 and 4, Qwen, Phi, Zephyr, GLM, Kimi, Harmony, Command R, Granite; DeepSeek with its wide bars; Gemma
# 4 with one bar; Llama 2 and Mistral; Gemma; GLM's beginnings; EXAONE; Nemotron, Baichuan; Seed; MiniMax. All that
# ends or begins a turn, or a text; not what stands for an image or a thought. Where a family's spelling is one of
# ordinary code too ([|x|] is an array in F#), only its own words.
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

# What to do about one.
SPELL_IT = 'Spell it otherwise, or set special_tokens = "text" for a seat whose server takes it for no more than text'


def special_in(text: str) -> str | None:
    """The first such word in a text; None where there is none."""
    found = _MARKS.search(text)
    return None if found is None else found[0]


def without_specials(text: str) -> str:
    """The text with a blank behind the first sign of each such word, which then is none; nor is one within it."""
    while _MARKS.search(text) is not None:
        text = _MARKS.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)
    return text
