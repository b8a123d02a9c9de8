"""Every command with its arguments and options, as ``--help`` has them: ``python -m tests.hold.options --write``."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from tests.hold import doors, names, texts


def lines() -> Iterator[str]:
    for name, command in commands():
        yield f"council {name}".strip()
        yield from (f"    {described(each)}" for each in command.params)


def commands(command: Any = None, name: str = "") -> Iterator[tuple[str, Any]]:
    """All commands and groups of them, by the words that one types."""
    command = command or doors.command_line()
    yield name, command
    for each, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {each}".strip())


def described(option: Any) -> str:
    """An option or argument: how it is spelled, what it takes, and its default."""
    words = (
        [option.metavar or option.name.upper()] if option.param_type_name == "argument" else [*option.opts]
    )
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        words.append("|".join(each.value for each in kind))
    elif option.param_type_name == "option" and option.is_flag:
        words += [f"or {each}" for each in option.secondary_opts]
    else:
        words.append(names.shown(kind))
    limits = [str(each) for each in (option.min, option.max) if each is not None]
    words += [f"({' to '.join(limits)})"] if limits else []
    words += [word for word in ("required", "multiple", "hidden") if getattr(option, word)]
    words += [f"variable {option.envvar}"] if option.envvar else []
    default = getattr(option.default, "value", option.default)
    return " ".join(words) + ("" if default in (None, False, "", ()) else f" = {default}")


if __name__ == "__main__":
    texts.command("options", lines)
