"""The text of a new council.toml: the model of each seat, with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from council.agents.llm.endpoint import is_loopback, shared
from council.cli.report import UsageFault
from council.cli.setup.servers import Listing, Window

SEATS = {
    "prime": "breaks ties, and rules on what is escalated",
    "lite": "reads fast and exactly",
    "codemind": "reads code",
}
# What a model is for, where its name tells that it is not for talking.
_SILENT = re.compile(
    r"embed|rerank|\bbge\b|minilm|\be5\b|whisper|\btts\b|dall-e|moderation|transcri|stable-diffusion|\bclip\b",
    re.IGNORECASE,
)
# The settings' own defaults, and what a window must have for a prompt to have room for a proposal.
PROMPT_TOKENS, ANSWER_TOKENS, WINDOW_MIN = 4_096, 2_048, 2_048
# What Ollama gives a model that nobody told otherwise; of a longer prompt it drops the beginning, and says nothing.
OLLAMAS_WINDOW = 4_096


@dataclass(frozen=True, slots=True)
class Vendor:
    """A hosted service, the variable that its key is mostly in, and a small model of theirs to begin with."""

    name: str
    variable: str
    base_url: str
    model: str


VENDORS = (
    Vendor("openai", "OPENAI_API_KEY", "https://api.openai.com/v1", "gpt-4o-mini"),
    Vendor("anthropic", "ANTHROPIC_API_KEY", "https://api.anthropic.com/v1", "claude-haiku-4-5"),
    Vendor(
        "google",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "gemini-2.5-flash",
    ),
    Vendor("mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1", "mistral-small-latest"),
    Vendor("deepseek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1", "deepseek-chat"),
    Vendor("xai", "XAI_API_KEY", "https://api.x.ai/v1", "grok-3-mini"),
    Vendor("groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1", "llama-3.3-70b-versatile"),
    Vendor("openrouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1", "openai/gpt-4o-mini"),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A seat's model, and where it is."""

    seat: str
    model: str
    base_url: str
    api_key_env: str | None = None
    vendor: str | None = None
    window: int | None = None
    window_is: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What there is here, and what came of it for the seats; no choices: the seats work by static checks.

    ``locked`` are the addresses of servers that told nothing without a key.
    """

    servers: tuple[Listing, ...] = ()
    keys: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()
    locked: tuple[str, ...] = ()


def chosen(listings: Sequence[Listing], wanted: Sequence[str], api_key_env: str | None) -> list[Choice]:
    """A model for each seat, as different ones as there are, of servers that differ too; none where there is none.

    Raises UsageFault for a model ``wanted`` that no server lists.
    """
    ranked = [
        (rank, listing, model)
        for listing in listings
        for rank, model in enumerate(name for name, window in listing.models.items() if _fit(name, window))
    ]
    ranked.sort(key=lambda each: each[0])
    offers = [(listing, model) for _, listing, model in ranked]
    if wanted and listings:
        offers = [_offer(listings, model) for model in wanted]
    return [_choice(seat, *offers[at % len(offers)], api_key_env) for at, seat in enumerate(SEATS) if offers]


def _fit(name: str, window: Window) -> bool:
    return _SILENT.search(name) is None and (window.tokens or WINDOW_MIN) >= WINDOW_MIN


def _offer(listings: Sequence[Listing], model: str) -> tuple[Listing, str]:
    from council.config.settings import did_you_mean

    for listing in listings:
        if listing.window(model) is not None:
            return listing, model
    known = [name for listing in listings for name in listing.models]
    has = ", ".join(known[:10]) or "nothing"
    raise UsageFault(f"--model {model}: no server found lists it; there is {has}{did_you_mean(model, known)}")


def _choice(seat: str, listing: Listing, model: str, api_key_env: str | None) -> Choice:
    window = listing.window(model) or Window()
    tokens, what = window.tokens, "its server says"
    if listing.kind == "Ollama" and window.given is None:
        tokens = min(OLLAMAS_WINDOW, window.trained or OLLAMAS_WINDOW)
        what = "Ollama's default (OLLAMA_CONTEXT_LENGTH)"
    return Choice(seat, model, listing.base_url, api_key_env, None, tokens, what)


def hosted(variables: Iterable[str]) -> list[Choice]:
    """Models of the services whose keys are there, each seat another's as far as they go."""
    there = set(variables)
    vendors = [vendor for vendor in VENDORS if vendor.variable in there]
    picked = [(seat, vendors[at % len(vendors)]) for at, seat in enumerate(SEATS) if vendors]
    return [Choice(seat, of.model, of.base_url, of.variable, of.name) for seat, of in picked]


def sharing(choices: Sequence[Choice]) -> dict[tuple[str, ...], list[str]]:
    """The seats that share a model, vendor or server, each group with what it shares (rules 1.1)."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for what, seats in shared((each.seat, each.model, each.vendor, each.base_url) for each in choices):
        groups.setdefault(seats, []).append(what)
    return groups


def shared_in_words(seats: Sequence[str], what: Sequence[str]) -> str:
    """That seats share something, and what it means."""
    alone = all(each.startswith("server") for each in what)
    means = "when it fails, all of them do" if alone else "what one overlooks, all may"
    return f"{listed(seats)} share {listed(what)}: {means}"


def listed(names: Sequence[str]) -> str:
    """``prime, lite and codemind``."""
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


# The text


def text(found: Found) -> str:
    """The file. Without choices the lines of a model are there, and commented out."""
    choices = found.choices
    lines = [
        "# A council's settings, written by council init. What is not here has its default: council config tells it.",
        "# council doctor tries each seat's model with a short call, council estimate says what a proposal may cost.",
        "",
        "# council identity show says who the council is; the setting charter names a file of your own.",
        "",
        *_time(choices),
        *_caps(choices),
        *_sharing(choices),
    ]
    if not choices:
        lines += _bare()
    for choice in choices:
        lines += ["", *_seat(choice)]
    others = [f"{each.kind} at {each.base_url}: {name}" for each in found.servers for name in each.models]
    taken = {f"{each.base_url}: {each.model}" for each in choices}
    others = [each for each in others if not any(each.endswith(f"at {one}") for one in taken)]
    if others:
        lines += ["", "# Also found:", *(f"#   {each}" for each in others[:_OTHERS_MAX])]
        lines += [f"#   and {len(others) - _OTHERS_MAX:,} more"] if len(others) > _OTHERS_MAX else []
    return "\n".join([*lines, ""])


_OTHERS_MAX = 20


def _time(choices: Sequence[Choice]) -> list[str]:
    if any(is_loopback(each.base_url) for each in choices):
        why = [
            "# How long the seats may deliberate. They share this machine, and the first call loads the model."
        ]
        return [*why, "time_budget_s = 180", ""]
    return ["# How long the seats may deliberate.", "# time_budget_s = 60", ""]


def _caps(choices: Sequence[Choice]) -> list[str]:
    calls = 2 * (2 * len(SEATS) + 1)  # each plan, each ballot and the ruling, and once more
    most = sum(_limits(each)[0] + _limits(each)[1] for each in choices or [Choice("", "", "")] * len(SEATS))
    worst = most * 4 + most // len(SEATS) * 2
    paid = any(not is_loopback(each.base_url) for each in choices)
    return [
        "# The most that models may use up, prompts and answers together. A call that might go past it is not made.",
        f"# With the limits below one proposal takes {worst:,} tokens at worst, in {calls} calls, if no observer",
        "# calls a halt; council estimate tells all. Without an action or a risk half of them do.",
        f"{'' if paid else '# '}proposal_tokens_max = {_round(worst):_}",
        _beside(f"# council_tokens_max = {100 * _round(worst):_}", "over the council's whole life"),
        _beside("# council_usd_max = 20.0", "needs the prices of every model"),
    ]


def _round(tokens: int) -> int:
    """Up to the next ten thousand."""
    return -(-tokens // 10_000) * 10_000


def _sharing(choices: Sequence[Choice]) -> list[str]:
    groups = sharing(choices)
    if not groups:
        return []
    said = [f"#   {shared_in_words(seats, what)}" for seats, what in groups.items()]
    mend = [
        "# A majority of one model is one opinion, and who talks one of its seats into something has them all.",
        "# To mend it give seats models of other families or vendors; or take a seat's lines away, and it works by",
        "# static checks: no model, no cost, and nothing shared.",
    ]
    servers_alone = all(each.startswith("server") for what in groups.values() for each in what)
    return [
        "",
        "# Seats that share something count separately, and every decision says that they share it (rules 1.1):",
        *said,
        *([] if servers_alone else mend),
    ]


def _limits(choice: Choice) -> tuple[int, int]:
    """Tokens for a prompt and its answer, that both fit the window (rules 2)."""
    if choice.window is None or choice.window >= PROMPT_TOKENS + ANSWER_TOKENS:
        return PROMPT_TOKENS, ANSWER_TOKENS
    answer = max(choice.window // 4, choice.window - PROMPT_TOKENS)
    return choice.window - answer, answer


def _seat(choice: Choice) -> list[str]:
    prompt, answer = _limits(choice)
    lines = [
        _beside(f"[seats.{choice.seat}]", SEATS[choice.seat]),
        f"model = {_quoted(choice.model)}",
    ]
    lines += [f"vendor = {_quoted(choice.vendor)}"] if choice.vendor else []
    lines += [f"base_url = {_quoted(choice.base_url)}"]
    lines += [f"api_key_env = {_quoted(choice.api_key_env)}"] if choice.api_key_env else []
    lines += [
        _beside(f"max_context_tokens = {prompt}", "of a prompt"),
        _beside(f"max_output_tokens = {answer}", "of an answer"),
    ]
    if choice.window is not None:
        lines += [_beside(f"context_window = {choice.window}", f"of both together: {choice.window_is}")]
    if is_loopback(choice.base_url):
        lines += [
            _beside("timeout_s = 120", "how long the server may be silent while it loads, or serves others")
        ]
    else:
        lines += [
            _beside("# usd_per_million_input = 0.0", "with the prices of your contract,"),
            _beside("# usd_per_million_output = 0.0", "dollars are counted and can be capped"),
        ]
    return lines


def _bare() -> list[str]:
    lines = [
        "",
        "# No model was found, so the seats work by static checks. To give one a model, take away the # before its",
        '# lines, and put in your own; a server that wants a key: api_key_env = "NAME_OF_THE_VARIABLE".',
    ]
    for seat, about in SEATS.items():
        lines += [
            "",
            _beside(f"# [seats.{seat}]", about),
            '# model = "qwen3:8b"',
            '# base_url = "http://127.0.0.1:11434/v1"',
            "# max_context_tokens = 3072",
            "# max_output_tokens = 1024",
        ]
    return lines


def _beside(setting: str, comment: str) -> str:
    return f"{setting:<34}# {comment}"


def _quoted(value: str) -> str:
    """A string of TOML; all that comes here is printable ASCII, which JSON quotes alike."""
    return json.dumps(value)
