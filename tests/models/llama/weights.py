"""Writes a language model whose weights are chance, as a file that llama.cpp runs. Knows no server.

It is of Llama's kind, 200 kB large and made in 0.02 s. What it says means nothing, but it is said token by token, by
a real sampler under a real grammar. Its vocabulary is that of ``tests/agents/tokenizers/bpe.json``, so that our
counter and the server count the same tokens.

Chance alone would hardly ever end a string, and never leave a gate open: one number of each token's vector is the
same for all, and what the last layer makes of it is how much a token is liked wherever it may stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, TokenType

TOKENIZER = Path(__file__).resolve().parents[2] / "agents" / "tokenizers" / "bpe.json"
WIDTH, LAYERS, HEADS = 32, 2, 2
SEED = 1
# What is said is much the same without any chance in what is liked, and nothing but that with more.
SPREAD = 0.2
# Ends of strings and lists; then false for the gate that asks for a human, null for the one that blocks, yes, a low
# risk and a confidence above 0.3: else next to everything would go to a human.
LIKED: Mapping[str, float] = {'"': 3, "]": 3, "f": 3, "n": 3.5, "y": 4, "l": 1.5, "5": 1.5, "7": 2, "8": 2}
_TEMPLATE = (
    "{% for each in messages %}<|im_start|>{{ each.role }}\n{{ each.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write(path: Path, *, context: int) -> None:
    """A model that reads and writes ``context`` tokens together."""
    given = json.loads(TOKENIZER.read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = given["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    special = {each["content"] for each in given["added_tokens"]}
    writer = GGUFWriter(str(path), "llama")
    writer.add_name("random")
    writer.add_context_length(context)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_merges([" ".join(pair) for pair in given["model"]["merges"]])
    writer.add_token_types([TokenType.CONTROL if each in special else TokenType.NORMAL for each in tokens])
    writer.add_bos_token_id(vocabulary["<|im_start|>"])
    writer.add_eos_token_id(vocabulary["<|im_end|>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)
    for name, values in _tensors(tokens).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(tokens: list[str]) -> dict[str, Any]:
    chance = np.random.default_rng(SEED)

    def matrix(rows: int, columns: int, spread: float) -> Any:
        return (chance.standard_normal((rows, columns)) * spread).astype(np.float32)

    given, said = matrix(len(tokens), WIDTH, 1.0), matrix(len(tokens), WIDTH, SPREAD)
    given[:, 0], said[:, 0] = 2.0, 0.0
    for at, token in enumerate(tokens):
        if token in LIKED:
            said[at, 0] = LIKED[token]
        elif not all("!" <= letter <= "~" or letter == "Ġ" for letter in token):
            said[at], said[at, 0] = 0.0, -50.0  # halves of letters would be no text
    ones = np.ones(WIDTH, np.float32)
    tensors = {"token_embd.weight": given, "output_norm.weight": ones, "output.weight": said}
    shapes = {"attn_q": 1, "attn_k": 1, "attn_v": 1, "attn_output": 1, "ffn_gate": 2, "ffn_up": 2}
    for layer in range(LAYERS):
        here = {name: matrix(times * WIDTH, WIDTH, WIDTH**-0.5) for name, times in shapes.items()}
        here["ffn_down"] = matrix(WIDTH, 2 * WIDTH, (2 * WIDTH) ** -0.5)
        here["attn_output"][0] = here["ffn_down"][0] = 0.0  # so that the first number stays as it is
        here |= {"attn_norm": ones, "ffn_norm": ones}
        tensors |= {f"blk.{layer}.{name}.weight": values for name, values in here.items()}
    return tensors
