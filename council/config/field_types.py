"""The types, limits and descriptions of configuration values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, Field

from council.agents.scan.regex import Regex

NAME_WORDS = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
NAME_PATTERN = "^[a-z0-9][a-z0-9._-]{0,63}$"  # goes into actor names, file names and metric labels unquoted
DAY_S = 86_400.0  # nothing that a caller waits for should outlast the default life of an escalation
PATH_CHARS_MAX = 255  # of a file, or of what is imported
ARGUMENT_CHARS_MAX = 4_096  # of a command: a short script for a shell fits
# A variable of our own prefix would be read as a setting.
_KEY_SOURCE = re.compile(r"kept|file:(/|~/)[^\0]+|env:(?!COUNCIL_)[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"(?!COUNCIL_)[A-Za-z_][A-Za-z0-9_]*")
MEMORY = "memory"  # in place of a store: what is kept lives as long as the coordinator
_STORE = re.compile(r"(/|~/)[^\0]|sqlite:///(/|~/)[^\0]|postgres(ql)?(\+psycopg)?://[^\0]")
ENTRIES_MAX = 64  # of a table: keyword arguments of one mind, labels of one node
# Above any budget. In micro-dollars it is still an integer that every reader of JSON represents exactly.
CAP_TOKENS_MAX, CAP_USD_MAX = 10**12, 10**6


# An address with a password or a query, which may hold a secret.
_SECRET_ADDRESS = re.compile(r"://[^@?#]*[@?#].*", re.DOTALL)
ADDRESS_CHARS_MAX = 1_000  # of a store
SHOWN_CHARS_MAX = 80  # of a value or key in a problem: enough to recognise, not enough to flood a terminal


# Ray reads more than equality in a label it is asked for ("!a", "in(a,b)"); a plain value is what is meant here.
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LabelKey = Annotated[str, Field(pattern=rf"^([a-z0-9.-]{{1,253}}/)?{_LABEL}$")]
LabelValue = Annotated[str, Field(pattern=f"^{_LABEL}$")]
ResourceName = Annotated[str, Field(min_length=1, max_length=128)]
ResourceAmount = Annotated[float, Field(gt=0, le=1e15)]  # memory is in bytes


def quoted_value(value: Any) -> str:
    """A value for a problem: recognisable, short, harmless on a terminal, and without secrets."""
    if isinstance(value, str):
        value = _SECRET_ADDRESS.sub("://…", value[:ADDRESS_CHARS_MAX])
        return repr(value) if len(value) <= SHOWN_CHARS_MAX else f"{value[:SHOWN_CHARS_MAX]!r}… (cut)"
    if isinstance(value, Mapping):
        return f"a table of {len(value)} keys"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a whole number of {value.bit_length()} bits"  # Python refuses to write out longer ones
    if isinstance(value, int | float):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def key(default: Any, about: str, expected: str, **limits: Any) -> Any:
    """A key of the configuration: its default, its meaning, and its values in words."""
    return Field(default, description=about, json_schema_extra={"expected": expected}, **limits)


def whole(default: int | None, low: int, high: int, about: str, *, what: str = "a whole number") -> Any:
    return key(default, about, f"{what} from {low} to {high}", ge=low, le=high)


def seconds(default: float | None, high: float, about: str, *, low: float = 0.001) -> Any:
    return key(default, about, f"a number of seconds from {low:g} to {high:g}", ge=low, le=high)


def amount(default: float | None, high: float, about: str, *, what: str) -> Any:
    return key(default, about, f"{what} from 0 to {high:g}", ge=0, le=high)


def cap(kind: str, about: str) -> Any:
    """A cap on the tokens or dollars that models may use; unset for no limit."""
    if kind == "tokens":
        expected, high = f"a whole number of tokens up to {CAP_TOKENS_MAX:,}", CAP_TOKENS_MAX
    else:
        expected, high = f"a number of US dollars up to {CAP_USD_MAX:,}", CAP_USD_MAX
    return key(None, about, expected, ge=0, le=high)


def switch(default: bool | None, about: str) -> Any:
    return key(default, about, "true or false")


def host(default: str, about: str) -> Any:
    expected = "an IP address or a host's name; 0.0.0.0 for all of this machine's"
    return key(default, about, expected, pattern="^[0-9A-Za-z.:-]{1,255}$")


def name(default: Any, about: str) -> Any:
    return key(default, about, NAME_WORDS, pattern=NAME_PATTERN)


def label(about: str, *, longest: int = 128) -> Any:
    return key(None, about, f"a text of 1 to {longest} characters", min_length=1, max_length=longest)


def table(about: str, expected: str) -> Any:
    return Field(
        default_factory=dict,
        max_length=ENTRIES_MAX,
        description=about,
        json_schema_extra={"expected": f"a table {expected}"},
    )


def path(about: str) -> Any:
    return key(None, about, "/path or ~/path", max_length=PATH_CHARS_MAX)


def is_import_path(path: str) -> bool:
    """Whether ``path`` has the form ``package.module:Name``; nothing is looked up."""
    module, _, attribute = path.partition(":")
    parts = [*module.split("."), *attribute.split(".")]
    return len(path) <= PATH_CHARS_MAX and all(part.isidentifier() for part in parts)


def is_path_of_tools(path: str) -> str:
    """Refuses what is no import path. Nothing is imported."""
    if not is_import_path(path):
        raise ValueError("not an import path: expected 'package.module:NAME', as in 'shop.tools:TOOLS'")
    return path


def may_be_mind(value: Any) -> Any:
    """Refuses what ``as_mind`` would refuse later. Nothing is imported or built."""
    if isinstance(value, str):
        known = is_import_path(value)
    else:
        known = callable(value) or callable(getattr(value, "review", None))
    if not known:
        raise ValueError("expected an import path 'package.module:Name', or a mind")
    return value


def is_store_address(value: str) -> str:
    """Refuses a relative path, and a password, because ``council config`` shows every value."""
    if value != MEMORY and not _STORE.match(value):
        raise ValueError("expected a path or an address")
    if "://" in value:
        parts = urlsplit(value)  # its ValueErrors say what is wrong
        if parts.password is not None or "password" in parse_qs(parts.query):
            raise ValueError("expected an address without a password")
    return value


def is_base_url(value: str) -> str:
    """Refuses an address that is not of HTTP, or that holds a secret, because every value is shown."""
    parts = urlsplit(value)  # its ValueErrors say what is wrong
    plain = (
        value.isascii() and value.isprintable() and " " not in value
    )  # no host that only looks like another
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError("expected an address of HTTP")
    if parts.port == 0 or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("expected an address without name, password, query and fragment")
    return value


def is_webhook(value: str) -> str:
    """Refuses an address without HTTPS, unless it is of this machine, and an address with a password."""
    if value.startswith("env:"):
        is_variable(value.removeprefix("env:"))
        return value
    parts = urlsplit(value)  # its ValueErrors say what is wrong
    here = parts.hostname in ("127.0.0.1", "::1", "localhost")
    plain = value.isascii() and value.isprintable() and " " not in value
    if not (parts.scheme == "https" or (parts.scheme == "http" and here)) or not parts.hostname or not plain:
        raise ValueError("expected an address of HTTPS")
    if parts.port == 0 or "@" in parts.netloc or parts.fragment:
        raise ValueError("expected an address without name, password and fragment")
    return value


def is_argument(value: str) -> str:
    if "\0" in value or len(value) > ARGUMENT_CHARS_MAX:
        raise ValueError("expected an argument of a command")
    return value


def is_pattern(value: str) -> str:
    if not value or len(value) > ARGUMENT_CHARS_MAX:
        raise ValueError("expected a regular expression")
    try:
        Regex(value).check()
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError("expected a regular expression") from error
    return value


def words(value: Any) -> Any:
    """A command as its words. One text is split as a shell splits it, and is run by no shell."""
    return shlex.split(value) if isinstance(value, str) else value  # its ValueErrors say what is wrong


def is_command(value: tuple[str, ...]) -> tuple[str, ...]:
    is_relative = bool(value) and "/" in value[0] and not value[0].startswith("/")
    if not value or not value[0] or is_relative or len(value) > ENTRIES_MAX:
        raise ValueError("expected a program and its arguments")
    return tuple(map(is_argument, value))


def is_variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value) or len(value) > PATH_CHARS_MAX:
        raise ValueError("expected the name of a variable")
    return value


def is_path(value: str) -> str:
    if not value.startswith(("/", "~/")) or "\0" in value:
        raise ValueError("expected a path that does not depend on the working folder")
    return value


def is_key_source(value: str) -> str:
    if len(value) > PATH_CHARS_MAX or not _KEY_SOURCE.fullmatch(value):
        raise ValueError("expected kept, file:/path or env:VARIABLE")
    return value


Path = Annotated[str, AfterValidator(is_path)] | None
