"""The public names of ``council``, a line for each signature: ``python -m tests.hold.names --write``.

What values hold is public too: the classes of their fields follow behind those that can be imported. Types are named
without their modules, which may move.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
from pydantic import BaseModel

import council
from council import Council, CouncilPool, packets
from tests.hold import texts

# Nobody calls their constructors: their docstrings say what makes them.
MADE_BY_OTHERS = ("AsyncCouncil", "AsyncPool", "Council", "CouncilPool", "Events", "Opening")
SPOKEN = (
    "__enter__",
    "__exit__",
    "__aenter__",
    "__aexit__",
    "__await__",
    "__iter__",
    "__aiter__",
    "__bool__",
    "__len__",
)


def lines() -> Iterator[str]:
    reached: dict[Any, str] = {}
    public = [getattr(council, name) for name in council.__all__]
    for kind in public:
        yield from ("", f"# {kind.__name__}", *described(kind, reached))
    yield from packet_lines()
    yield from ("", "# What they are given when they are made")
    for where, value in live().items():
        reach(type(value), where, reached)
        yield f"{where}: {type(value).__name__}"
    done = set(public)
    while waiting := sorted((kind for kind in reached if kind not in done), key=lambda kind: reached[kind]):
        for kind in waiting:
            done.add(kind)
            yield from ("", f"# {kind.__name__}, of {reached[kind]}", *described(kind, reached))


def packet_lines() -> Iterator[str]:
    """The names of ``council.packets``. The classes of their fields are the protocol's, which its documents hold."""
    for name in packets.__all__:
        value = getattr(packets, name)
        yield from ("", f"# packets.{name}")
        if inspect.isfunction(value):
            yield f"{name}{inspect.signature(value)}"
        elif inspect.isclass(value):
            yield from described(value, {})
        else:
            yield shown(value)


def live() -> dict[str, Any]:
    """The public attributes that councils are given when they are made."""
    with Council.inline() as one, CouncilPool.inline(1) as pool:
        things = {
            "Council": one,
            "AsyncCouncil": one.aio,
            "CouncilPool": pool,
            "Events": one.events(follow=False),
        }
        return {
            f"{name}.{attribute}": value
            for name, thing in things.items()
            for attribute, value in sorted(getattr(thing, "__dict__", {}).items())
            if not attribute.startswith("_")
        }


def described(kind: Any, reached: dict[Any, str]) -> Iterator[str]:
    name = kind.__name__
    if typing.is_typeddict(kind):
        yield from sorted(
            f"{name}: {key}: {shown(hint(kind, each))}" for key, each in kind.__annotations__.items()
        )
        return
    bases = [base.__name__ for base in kind.__mro__[1:] if base.__name__ in council.__all__]
    if bases:
        yield f"{name} is a {', '.join(bases)}"
    if issubclass(kind, BaseException):
        yield f"{name}.code = {kind.code!r}"
    fields = list(fields_of(kind))
    for field, annotation, default in fields:
        reach(annotation, f"{name}.{field}", reached)
        yield f"{name}.{field}: {shown(annotation)}{default}"
    if fields:
        order = [field for field, _, _ in fields]
        positional = not issubclass(kind, BaseModel)
        yield f"{name}({'' if positional else '*, '}{', '.join(order)})"
    elif name not in MADE_BY_OTHERS and "__init__" in vars(kind) and not getattr(kind, "_is_protocol", False):
        yield f"{name}{signature(kind.__init__, name, reached)}"
    for member, value in sorted(members(kind).items()):
        yield from of_member(f"{name}.{member}", value, reached)


def fields_of(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Name, type and default of each field that a value has, in their order."""
    if issubclass(kind, BaseModel):
        hints = typing.get_type_hints(kind)
        for field, info in kind.model_fields.items():
            default = "" if info.is_required() else f" = {plain(info.default)}"
            yield field, hints[field], default
    elif issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        for each in msgspec.structs.fields(kind):
            yield each.name, hints[each.name], "" if each.required else f" = {plain(each.default)}"
    elif dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        for one in dataclasses.fields(kind):
            default = "" if one.default is dataclasses.MISSING else f" = {plain(one.default)}"
            yield one.name, hints[one.name], default
    elif issubclass(kind, tuple):
        hints = typing.get_type_hints(kind)
        for field in kind._fields:  # type: ignore[attr-defined]
            yield field, hints[field], ""


def members(kind: type) -> dict[str, Any]:
    """Methods and properties, those that it has from a base of ours among them."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("council"):
            continue
        fields = {field for field, _, _ in fields_of(base)}
        for name, value in vars(base).items():
            if name in fields or (name.startswith("_") and name not in SPOKEN):
                continue
            if inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod)):
                found[name] = value
    return {
        name: value
        for name, value in found.items()
        if not (issubclass(kind, BaseModel) and hasattr(BaseModel, name))
    }


def of_member(where: str, value: Any, reached: dict[Any, str]) -> Iterator[str]:
    if isinstance(value, property):
        annotation = hint(value.fget, value.fget.__annotations__.get("return", Any))  # type: ignore[union-attr]
        reach(annotation, where, reached)
        yield f"property {where}: {shown(annotation)}"
        return
    words = ""
    if isinstance(value, (classmethod, staticmethod)):
        words, value = f"{type(value).__name__} ", value.__func__
    if inspect.iscoroutinefunction(value):
        words += "async "
    yield f"{words}{where}{signature(value, where, reached)}"


def signature(function: Any, where: str, reached: dict[Any, str]) -> str:
    found, told, keyword_only = inspect.signature(function), [], False
    for parameter in list(found.parameters.values())[1:]:
        annotation = hint(function, parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(annotation) is typing.Unpack:
            (keywords,) = typing.get_args(annotation)
            reach(keywords, where, reached)
            told.append(f"**{keywords.__name__}")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            told.append("*")
            keyword_only = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f" = {plain(parameter.default)}"
        told.append(f"{stars}{parameter.name}: {shown(annotation)}{default}")
    back = hint(function, found.return_annotation)
    reach(back, where, reached)
    return f"({', '.join(told)}) -> {shown(back)}"


def hint(owner: Any, annotation: Any) -> Any:
    """An annotation as a type; as it is written where its names are there for type checkers alone."""
    written = getattr(annotation, "__forward_arg__", annotation)
    if not isinstance(written, str):
        return annotation
    module = inspect.getmodule(owner)
    try:
        return eval(written, {**vars(typing), **vars(council), **vars(module or council)})
    except NameError:
        return written


def shown(annotation: Any) -> str:
    """A type as one writes it, without the modules of its names."""
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, list):
        return f"[{', '.join(map(shown, annotation))}]"
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(shown, parts))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, parts))}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(shown, parts))}]"
    return getattr(annotation, "__name__", None) or str(annotation)


def plain(default: Any) -> str:
    """A default that is one word; of others it is said that there is one."""
    return repr(default) if default in (None, (), "") or isinstance(default, (str, int, float)) else "…"


def reach(annotation: Any, where: str, reached: dict[Any, str]) -> None:
    """Notes the classes of ours in a type."""
    if isinstance(annotation, type) and annotation.__module__.startswith("council"):
        reached.setdefault(annotation, where)
    for part in typing.get_args(annotation):
        reach(part, where, reached)


if __name__ == "__main__":
    texts.command("names", lines)
