"""Makes a mind out of an import path and its options. Knows nothing of where these were configured."""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from council.agents.mind import Mind, as_mind
from council.protocol.errors import MindError
from council.settings import SeatConfig, is_import_path


def build_mind(seat: SeatConfig) -> Mind:
    """The mind of a configured seat: imported if ``seat.mind`` is a path, built if it is a class.

    Raises MindError, which names the seat and says what to mend.
    """
    if isinstance(seat.mind, str):
        return import_mind(seat.mind, seat.options, seat=seat.name)
    shown = getattr(seat.mind, "__qualname__", type(seat.mind).__qualname__)
    return _built(seat.mind, seat.options, seat=seat.name, path=shown)


def import_mind(path: str, options: Mapping[str, Any], *, seat: str) -> Mind:
    """The mind at ``path`` (``package.module:Name``), its class built with ``options``.

    Imports the module, and so runs its code. Raises MindError, naming the seat, for a path of another form,
    a module or name that is missing, a module or class that fails, and for anything that is no mind.
    """
    if not is_import_path(path):
        raise _wrong(
            seat, path, "not an import path: expected 'package.module:Name', as in 'mine.minds:Careful'"
        )
    module, _, attribute = path.partition(":")
    found = _attribute(_module(module, seat, path), attribute, seat, path)
    return _built(found, options, seat=seat, path=path)


def _wrong(seat: str, path: str, why: str) -> MindError:
    return MindError(f"seat {seat}: mind {path!r}: {why}", seat=seat, mind=path)


def _module(name: str, seat: str, path: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            why = f"there is no module {missing}: install it, or put its folder on PYTHONPATH"
        else:
            why = f"module {name} needs {missing or error}, which is not installed: install it too"
        raise _wrong(seat, path, why) from error
    except (Exception, SystemExit) as error:
        # A user's module may do anything, even end the program, when imported; the seat must still be named.
        why = f"importing {name} failed: {error!r}: mend the module, so that 'import {name}' works"
        raise _wrong(seat, path, why) from error


def _attribute(module: ModuleType, attribute: str, seat: str, path: str) -> Any:
    found: Any = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as error:
            owner = getattr(found, "__qualname__", module.__name__)
            public = [each for each in dir(found) if not each.startswith("_")]
            close = difflib.get_close_matches(name, public, n=1)
            hint = f"; did you mean {close[0]}?" if close else ": check its spelling"
            raise _wrong(seat, path, f"{owner} has no {name}{hint}") from error
        except Exception as error:
            # Modules may compute their names when asked, and fail at it.
            why = f"looking up {name} failed: {error!r}: mend {module.__name__}"
            raise _wrong(seat, path, why) from error
    return found


def _built(thing: Any, options: Mapping[str, Any], *, seat: str, path: str) -> Mind:
    if not inspect.isclass(thing):
        if options:
            given = ", ".join(options)
            why = f"it is no class, so nothing takes the options ({given}): leave them out, or name a class"
            raise _wrong(seat, path, why)
        return as_mind(thing, seat=seat)
    if not callable(getattr(thing, "review", None)):  # before it is built, for building it may do anything
        raise _wrong(seat, path, f"{thing.__qualname__} is no mind: expected a class with review(case)")
    try:
        instance = thing(**options)
    except Exception as error:
        # The options' names, not their values: these may be long or not for everybody's eyes.
        given = f"with options {', '.join(options)}" if options else "without options"
        why = f"building {thing.__qualname__} {given} failed: {error!r}: it takes {_signature(thing)}"
        raise _wrong(seat, path, why) from error
    return as_mind(instance, seat=seat)


def _signature(kind: type[Any]) -> str:
    try:
        return str(inspect.signature(kind))
    except (ValueError, TypeError):  # classes written in C may have none
        return "unknown arguments"
