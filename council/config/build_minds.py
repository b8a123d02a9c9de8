"""Builds a seat's mind from its configuration."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from council.agents.messaging.logs import get_logger
from council.agents.mind import READS_TOKENS, Case, Mind, as_mind
from council.config.settings import (
    DEFAULT_SEATS,
    MODEL_MIND,
    CouncilConfig,
    SeatConfig,
    did_you_mean,
    is_import_path,
)
from council.protocol.errors import CouncilError, MindError, NotInstalled
from council.protocol.extras import require

if TYPE_CHECKING:
    from council.agents.llm.endpoint import Endpoint
    from council.agents.prompting.builder import PromptBuilder
    from council.agents.prompting.shorten import Step
    from council.agents.scan.policy import PolicyRow
    from council.agents.seat.threads import Policy
    from council.agents.static.floor import Floor
    from council.protocol.identity.charter import Charter

log = get_logger("council")

STATIC_MINDS = tuple(seat.mind for seat in DEFAULT_SEATS)
STATIC_PRIME = "council.agents.prime:Prime"
LITE = "lite"  # the seat that shortens for all, if it has a model


def build_mind(seat: SeatConfig, council: CouncilConfig | None = None) -> Mind:
    """The mind of a configured seat: imported if ``seat.mind`` is a path, built if it is a class.

    If ``council`` is given, its Lite and Prime shorten the texts that are too long for a model's prompt. Raises
    MindError, which names the seat and says how to correct it.
    """
    if seat.mind == MODEL_MIND:
        return _model_mind(seat, council)
    if isinstance(seat.mind, str):
        return import_mind(seat.mind, _options_of(seat, council), seat=seat.name)
    shown = getattr(seat.mind, "__qualname__", type(seat.mind).__qualname__)
    return _built(seat.mind, seat.options, seat=seat.name, path=shown)


def reads_tokens_of(seat: SeatConfig) -> int:
    """The tokens of a case that a seat's mind without a model reads (rules 2.2).

    A mind that can't be imported here, but maybe on its own node, counts as one that does not say.
    """
    mind: Any = seat.mind
    if isinstance(mind, str):
        module, _, name = mind.partition(":")
        try:
            mind = operator.attrgetter(name)(importlib.import_module(module))
        except Exception:  # noqa: BLE001 - a user's module; the seat that hosts it tells what is wrong
            return READS_TOKENS
    return int(getattr(mind, "reads_tokens", READS_TOKENS))


def _options_of(seat: SeatConfig, council: CouncilConfig | None) -> Mapping[str, Any]:
    """A seat's options. A static mind gets the user's rules, and Prime's also the setting ``unknown_tools``.

    If not all minds of the council are static, unknown tools are allowed here, because the other minds judge them.
    """
    if seat.mind not in STATIC_MINDS or council is None:
        return seat.options
    from council.config.charter_files import charter_files_of, own_rules

    options = dict(seat.options)
    if "own" in options:
        raise _wrong(seat.name, str(seat.mind), "options: own is no option: give the setting rules")
    if (own := own_rules(council, charter_files_of(council))).key:
        options["own"] = own
    if seat.mind == STATIC_PRIME:
        alone = all(each.mind in STATIC_MINDS for each in council.seats)
        options = {"unknown_tools": council.unknown_tools if alone else "allow", **options}
    return options


def rows_of(council: CouncilConfig) -> tuple[PolicyRow, ...]:
    """The rows of policy, numbered."""
    from council.agents.scan.policy import PolicyRow

    return tuple(PolicyRow(number, **dict(row)) for number, row in enumerate(council.policy, 1))


def policy_of(council: CouncilConfig, seat: str) -> Policy | None:
    """What a seat asks before its mind; None without rows. Every seat asks it, so that no mind can go without.

    Only Prime's ballot has the notes, so that each is shown once.
    """
    from council.agents.scan import policy as policies
    from council.agents.seat.threads import Held

    rows = rows_of(council)

    def policy(case: Case) -> Held:
        result = policies.judge(case, rows)
        rejects = result.reasons("reject")
        human = "" if rejects else result.reasons("human")
        return Held(rejects, human, result.reasons("note") if seat == council.prime else "")

    return policy if rows else None


def _model_mind(seat: SeatConfig, council: CouncilConfig | None) -> Mind:
    """The mind of a seat with a language model, its prompts and its tokens' counter loaded."""
    from council.agents.model import ModelMind  # which a council without models does not need
    from council.agents.static.floor import Floor
    from council.config.charter_files import charter_files_of, own_rules

    module, extra = ("openai", "models") if seat.provider is None else ("pydantic_ai", "pydantic-ai")
    try:
        package = module.replace("_", "-")
        require(module, package=package, extra=extra, what=f"seat {seat.name}: asking its model")
    except NotInstalled as error:
        raise MindError(error.message, seat=seat.name, mind=MODEL_MIND) from None
    endpoint = endpoint_of(seat)
    if endpoint.key_in_clear:
        log.warning(
            "a key goes over the network unencrypted: use https", seat=seat.name, to=endpoint.base_url
        )
    if council is None:
        floor = Floor() if seat.scan == "on" else None
        return ModelMind(endpoint, prompter_of(seat, floor=floor), stages=seat.stages, floor=floor)
    files = charter_files_of(council)
    floor = Floor(own_rules(council, files)) if seat.scan == "on" else None
    prompter = prompter_of(seat, steps_of(council), files.of(seat.name), floor)
    return ModelMind(endpoint, prompter, stages=seat.stages, predicates=files.schema(), floor=floor)


def prompter_of(
    seat: SeatConfig,
    steps: Sequence[Step] = (),
    charter: Charter | None = None,
    floor: Floor | None = None,
) -> PromptBuilder:
    """The builder of such a seat's prompts, its tokens' counter loaded. Raises MindError.

    A ``floor`` adds its findings to a ballot's and a ruling's prompt.
    """
    from council.agents.prompting.builder import PromptBuilder
    from council.agents.prompting.texts import load_texts
    from council.agents.prompting.tokens import counter_for

    assert seat.model is not None
    try:
        counter = counter_for(seat.model, seat.tokenizer)
        counter.prime()
        return PromptBuilder(
            seat.role or seat.name,
            count=counter,
            mtu=seat.mtu,
            charter=charter,
            texts=load_texts(None if seat.prompts is None else Path(seat.prompts).expanduser()),
            shows_schema=seat.answer_format in ("auto", "json_schema"),
            steps=steps,
            special_tokens=seat.special_tokens,
            time_s=seat.max_execution_time_s,
            findings=None if floor is None else floor.told,
        )
    except CouncilError as error:
        why = f"seat {seat.name}: its model {seat.model} can't be asked: {error.message}"
        raise MindError(why, seat=seat.name, mind=MODEL_MIND) from error


def endpoint_of(seat: SeatConfig) -> Endpoint:
    """The model of such a seat, and how it is called."""
    from council.agents.llm.endpoint import Endpoint

    return Endpoint(**{each.name: getattr(seat, each.name) for each in dataclasses.fields(Endpoint)})


def steps_of(council: CouncilConfig) -> tuple[Step, ...]:
    """rules 2.4: Lite, then Prime, if they have a model; a model of both is asked once.

    Each model is called as its own seat calls it, and so only with its own key.
    """
    from council.agents.llm.compress import Compressor
    from council.agents.prompting.shorten import Step
    from council.agents.prompting.tokens import counter_for

    found: dict[tuple[str | None, ...], Step] = {}
    seats = {seat.name: seat for seat in council.seats if seat.mind == MODEL_MIND}
    roles: tuple[tuple[Literal["lite", "prime"], str], ...] = (("lite", LITE), ("prime", council.prime))
    for how, name in roles:
        seat = seats.get(name)
        if seat is None or (where := (seat.provider, seat.base_url, seat.model)) in found:
            continue
        assert seat.model is not None
        try:
            counter = counter_for(seat.model, seat.tokenizer)
        except CouncilError as error:  # a file that is where that seat is, and not here
            log.warning("no step of the ladder", seat=name, why=error.message)
            continue
        found[where] = Step(how, Compressor(endpoint_of(seat)), counter, seat.mtu)
    return tuple(found.values())


def import_mind(path: str, options: Mapping[str, Any], *, seat: str) -> Mind:
    """The mind at ``path`` (``package.module:Name``), its class built with ``options``.

    Imports the module, and so runs its code. Raises MindError, which names the seat, for a path of another form, a
    missing module or name, a module or class that fails, and anything that is not a mind.
    """
    if not is_import_path(path):
        why = "not an import path: expected 'package.module:Name', as in 'mine.minds:Careful'"
        raise _wrong(seat, path, why)
    name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            why = f"there is no module {missing}: install it, or put its folder on PYTHONPATH"
        else:
            why = f"module {name} needs {missing or error}, which is not installed: install it too"
        raise _wrong(seat, path, why) from error
    except (Exception, SystemExit) as error:
        # A user's module may do anything when it is imported, even end the program.
        why = f"importing {name} failed: {error!r}: correct the module, so that 'import {name}' works"
        raise _wrong(seat, path, why) from error
    try:
        found = operator.attrgetter(attribute)(module)
    except AttributeError as error:
        owner = getattr(error.obj, "__qualname__", name)
        public = [each for each in dir(error.obj) if not each.startswith("_")]
        hint = did_you_mean(error.name, public) or ": check its spelling"
        raise _wrong(seat, path, f"{owner} has no {error.name}{hint}") from error
    except Exception as error:
        # A module may compute its names when they are looked up.
        raise _wrong(seat, path, f"looking up {attribute} failed: {error!r}: correct {name}") from error
    return _built(found, options, seat=seat, path=path)


def _wrong(seat: str, path: str, why: str) -> MindError:
    return MindError(f"seat {seat}: mind {path!r}: {why}", seat=seat, mind=path)


def _built(thing: Any, options: Mapping[str, Any], *, seat: str, path: str) -> Mind:
    if not inspect.isclass(thing):
        if options:
            why = f"it is not a class, so it takes no options ({', '.join(options)}): leave them out, or name a class"
            raise _wrong(seat, path, why)
        return as_mind(thing, seat=seat)
    if not callable(
        getattr(thing, "review", None)
    ):  # before it is built, because building it may do anything
        raise _wrong(seat, path, f"{thing.__qualname__} is not a mind: expected a class with review(case)")
    try:
        instance = thing(**options)
    except Exception as error:
        try:
            takes = str(inspect.signature(thing))
        except (ValueError, TypeError):  # a class written in C may have no signature
            takes = "unknown arguments"
        # The names of the options only: their values may be long, or secret.
        given = f"with options {', '.join(options)}" if options else "without options"
        why = f"building {thing.__qualname__} {given} failed: {error!r}: it takes {takes}"
        raise _wrong(seat, path, why) from error
    return as_mind(instance, seat=seat)
