"""The content of a new council.toml: a model for each seat, and the text with comments."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from council.agents.llm.endpoint import is_loopback, shared
from council.cli.report import UsageFault
from council.cli.setup.servers import Listing

SEATS = {
    "prime": "breaks ties, and rules on escalated proposals",
    "lite": "reads fast and exactly",
    "codemind": "reads code",
}
# Names of models that do not chat.
_NO_CHAT = re.compile(
    r"embed|rerank|\bbge\b|minilm|\be5\b|whisper|\btts\b|dall-e|moderation|transcri|stable-diffusion|\bclip\b",
    re.IGNORECASE,
)
# The defaults of the settings, and the smallest window in which a prompt has room for a proposal.
PROMPT_TOKENS, ANSWER_TOKENS, WINDOW_MIN = 4_096, 2_048, 2_048
# Ollama's default for every model. It drops the beginning of a longer prompt without an error.
OLLAMAS_WINDOW = 4_096
_OTHERS_MAX = 20


@dataclass(frozen=True, slots=True)
class Vendor:
    """A hosted service, the usual variable of its key, and a small model to begin with."""

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
    """A seat's model, the server that has it, and its window in tokens if that is known."""

    seat: str
    model: str
    base_url: str
    api_key_env: str | None = None
    vendor: str | None = None
    window: int | None = None

    @property
    def limits(self) -> tuple[int, int]:
        """Tokens for a prompt and its answer, which both fit the window (rules 2)."""
        if self.window is None or self.window >= PROMPT_TOKENS + ANSWER_TOKENS:
            return PROMPT_TOKENS, ANSWER_TOKENS
        answer = max(self.window // 4, self.window - PROMPT_TOKENS)
        return self.window - answer, answer


def choose(listings: Sequence[Listing], wanted: Sequence[str], api_key_env: str | None) -> list[Choice]:
    """A model for each seat: different models, and different servers, as far as there are any; [] without a model.

    Raises UsageFault if no server has a model that is ``wanted``.
    """
    if wanted and listings:
        offers = [(_server_of(listings, model), model) for model in wanted]
    else:
        ranked = [
            (rank, listing, name)
            for listing in listings
            for rank, name in enumerate(name for name in listing.models if _is_fit(listing, name))
        ]
        offers = [(listing, name) for _, listing, name in sorted(ranked, key=lambda each: each[0])]
    return [
        Choice(seat, model, listing.base_url, api_key_env, None, _window(listing, model))
        for seat, (listing, model) in zip(SEATS, itertools.cycle(offers), strict=False)
    ]


def choose_hosted(variables: Iterable[str]) -> list[Choice]:
    """A model for each seat of the services whose keys are in these variables; different services if possible."""
    vendors = [vendor for vendor in VENDORS if vendor.variable in variables]
    return [
        Choice(seat, each.model, each.base_url, each.variable, each.name)
        for seat, each in zip(SEATS, itertools.cycle(vendors), strict=False)
    ]


def _is_fit(listing: Listing, model: str) -> bool:
    """Whether a model chats, and has room for a prompt."""
    return _NO_CHAT.search(model) is None and (listing.window(model) or WINDOW_MIN) >= WINDOW_MIN


def _server_of(listings: Sequence[Listing], model: str) -> Listing:
    from council.config.settings import did_you_mean

    for listing in listings:
        if listing.has(model):
            return listing
    known = [name for listing in listings for name in listing.models]
    has = ", ".join(known[:10]) or "nothing"
    raise UsageFault(f"--model {model}: no server found lists it; there is {has}{did_you_mean(model, known)}")


def _window(listing: Listing, model: str) -> int | None:
    window = listing.window(model)
    return OLLAMAS_WINDOW if window is None and listing.kind == "Ollama" else window


def sharing(choices: Sequence[Choice]) -> dict[tuple[str, ...], list[str]]:
    """The seats that share a model, vendor or server, each group with what it shares (rules 1.1)."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for what, seats in shared((each.seat, each.model, each.vendor, each.base_url) for each in choices):
        groups.setdefault(seats, []).append(what)
    return groups


def describe_sharing(seats: Sequence[str], what: Sequence[str]) -> str:
    """That seats share something, and what it means."""
    servers_only = all(each.startswith("server") for each in what)
    means = "when it fails, all of them fail" if servers_only else "what one overlooks, all may overlook"
    return f"{', '.join(seats)} share {', '.join(what)}: {means}"


# The text

_HEAD = """\
# A council's settings, written by council init. What is not here has its default; council config shows all.
# council doctor tries each seat's model with a short call. council estimate says what a proposal may cost.
# council identity show says who the council is; the setting charter names a file of your own.

# How long the seats may deliberate; models on this machine need longer, as the first call loads the model.
{time}

# The most tokens that models may use, prompts and answers together. A call that might exceed it is not made.
{cap}
# council_tokens_max = {council_cap:<11}# over the council's whole life
# council_usd_max = 20.0          # needs the prices of every model
"""
_SHARING = """
# Seats that share something count separately, and every decision says that they share it (rules 1.1):
{groups}
# Models of other families or vendors are independent. A seat without these lines works by static checks.
"""
_SEAT = """
{seat:<34}# {about}
{model}
max_context_tokens = {prompt:<13}# of a prompt
max_output_tokens = {answer:<14}# of an answer
"""
_WINDOW = "context_window = {window:<17}# of both together\n"
_LOCAL = "timeout_s = 120                   # how long the server may be silent while it loads\n"
_HOSTED = """\
# usd_per_million_input = 0.0     # with the prices of your contract,
# usd_per_million_output = 0.0    # dollars are counted and can be capped
"""
_NO_MODEL = """
# No model was found, so the seats work by static checks. To give a seat a model, remove the # from its lines,
# and fill in your own. For a server that wants a key add: api_key_env = "NAME_OF_THE_VARIABLE".
"""
_EXAMPLE = """
{seat:<34}# {about}
# model = "qwen3:8b"
# base_url = "http://127.0.0.1:11434/v1"
# max_context_tokens = 3072
# max_output_tokens = 1024
"""


def text(choices: Sequence[Choice], listings: Sequence[Listing]) -> str:
    """The file. Without choices it shows the lines of a model as comments."""
    local = any(is_loopback(each.base_url) for each in choices)
    paid = any(not is_loopback(each.base_url) for each in choices)
    # A seat asks for a plan and a ballot, Prime also for a ruling, and each a second time if it can't be read.
    calls = 2 * (2 * len(SEATS) + 1)
    cap = -(-calls * max((sum(each.limits) for each in choices), default=6_144) // 10_000) * 10_000
    parts = [
        _HEAD.format(
            time="time_budget_s = 180" if local else "# time_budget_s = 60",
            cap=f"{'' if paid else '# '}proposal_tokens_max = {cap:_}",
            council_cap=f"{100 * cap:_}",
        )
    ]
    if groups := sharing(choices):
        said = "\n".join(f"#   {describe_sharing(seats, what)}" for seats, what in groups.items())
        parts.append(_SHARING.format(groups=said))
    parts += [_seat(each) for each in choices]
    if not choices:
        parts.append(_NO_MODEL)
        parts += [_EXAMPLE.format(seat=f"# [seats.{seat}]", about=about) for seat, about in SEATS.items()]
    taken = {(each.base_url, each.model) for each in choices}
    others = [
        f"#   {each.kind} at {each.base_url}: {name}\n"
        for each in listings
        for name in each.models
        if (each.base_url, name) not in taken
    ]
    if others:
        parts += ["\n# Also found:\n", *others[:_OTHERS_MAX]]
    return "".join(parts)


def _seat(choice: Choice) -> str:
    prompt, answer = choice.limits
    keys = {
        "model": choice.model,
        "vendor": choice.vendor,
        "base_url": choice.base_url,
        "api_key_env": choice.api_key_env,
    }
    found = _SEAT.format(
        seat=f"[seats.{choice.seat}]",
        about=SEATS[choice.seat],
        # The values are printable ASCII, which TOML quotes as JSON does.
        model="\n".join(f"{key} = {json.dumps(value)}" for key, value in keys.items() if value is not None),
        prompt=prompt,
        answer=answer,
    )
    if choice.window is not None:
        found += _WINDOW.format(window=choice.window)
    return found + (_LOCAL if is_loopback(choice.base_url) else _HOSTED)
