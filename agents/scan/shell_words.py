"""What the words of a shell command are: its program behind prefixes, the scripts and the code that they hold.

Words are evaluated as far as the script allows; unknown parts stay in them as ``${name}``, ``${name:?}`` (guarded
against being empty) or ``$(program)``. ``$(!program)`` is a substitution that prints a secret, ``$(?program)`` one
that prints an access token.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from pathlib import Path

import msgspec

from council.agents.scan.rows import convert, load

RULES = Path(__file__).parent / "rules" / "shell.yml"


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``shell.yml``: programs and options, in texts of words; ``code`` is (language, option's regex) by program.

    ``runners`` are regexes of functions. ``lines`` are files with a command on each line, after what matches.
    """

    shells: str
    interpreters: str
    downloaders: str
    decoders: str
    prefixes: dict[str, str]
    positionals: dict[str, int]
    scripts: dict[str, str]
    containers: str
    container_options: str
    ssh_options: str
    code: dict[str, tuple[str, str]]
    runners: str
    lines: dict[str, str]


_TABLE = convert(load(RULES), _Table, RULES.name)
SHELLS = frozenset(_TABLE.shells.split())
INTERPRETERS = SHELLS | frozenset(_TABLE.interpreters.split())
DOWNLOADERS = frozenset(_TABLE.downloaders.split())
DECODERS = frozenset(_TABLE.decoders.split())
LINES = _TABLE.lines
PREFIXES_MAX = 12  # sudo env nohup …: real chains are shorter


@dataclass(slots=True)
class Scene:
    """The state of a script so far: variables, the directory, and whether unset variables stop it.

    ``looked_at`` are variables that a test has examined. ``is_whole``: the whole script so far is known, so a
    variable that is not set here is unset. ``secrets`` are files and words that earlier commands gave a kind in the
    table of flows: files with a secret or a dump, saved downloads, and words such as the name of a remote.
    """

    variables: dict[str, str] = field(default_factory=dict)
    directory: str = ""
    stops_on_unset: bool = False
    looked_at: set[str] = field(default_factory=set)
    is_whole: bool = False
    secrets: dict[str, str] = field(default_factory=dict)


def base_name(word: str) -> str:
    """The program that a word names, without its folder."""
    return word.rsplit("/", 1)[-1]


def _strip_one(argv: list[str]) -> list[str] | None:
    """The command that a prefix runs; None if the first word is no prefix."""
    name = base_name(argv[0]).lstrip("@")
    if name not in _TABLE.prefixes:
        return None
    if name == "command" and any(arg in {"-v", "-V"} for arg in argv[1:2]):
        return []  # it only shows the path of a program
    at = 1
    while at < len(argv):
        word = argv[at]
        if word == "--":
            at += 1
            break
        if word.startswith("-") and len(word) > 1:
            at += 2 if word in _TABLE.prefixes[name].split() else 1
        elif name in {"env", "sudo"} and re.match(r"[A-Za-z_]\w*=", word):
            at += 1
        else:
            break
    return argv[at + _TABLE.positionals.get(name, 0) :]


def unwrapped(argv: list[str]) -> list[list[str]]:
    """The command with all its prefixes (sudo, env, xargs, …), then without the first, and so on; last without all.

    At most ``PREFIXES_MAX`` are taken off.
    """
    stages = [argv]
    while stages[-1] and len(stages) <= PREFIXES_MAX and (inner := _strip_one(stages[-1])) is not None:
        stages.append(inner)
    return stages


def _has_letter(letter: str, word: str) -> bool:
    """Whether a word is short options, such as ``-euc``, and ``letter`` is among them."""
    return letter in word and re.fullmatch(r"-[a-z]+", word) is not None


def reads_stdin(argv: list[str]) -> bool:
    """Whether an interpreter with these arguments runs its standard input."""
    name = base_name(argv[0])
    is_shell = name in SHELLS
    for word in argv[1:]:
        if word in {"-", "-s", "/dev/stdin"} or (is_shell and _has_letter("s", word)):
            return True
        if not word.startswith("-"):
            return word.startswith("<(")
        if _has_letter("c", word) if is_shell else re.fullmatch(r"-(?:[cmerp]|ne|pe|-eval)", word):
            return False
    return True


def nested_scripts(argv: list[str]) -> Iterator[str]:
    """Scripts in a command's words: of a shell's -c, eval, ssh, su, trap, find's -exec, a container's command."""
    name, rest = base_name(argv[0]) if argv else "", argv[1:]
    if name in SHELLS:
        yield from (rest[at + 1] for at, word in enumerate(rest[:-1]) if re.fullmatch(r"-[a-z]*c", word))
    elif name == "eval":
        yield " ".join(rest)
    elif name == "trap" and rest:
        yield rest[0]
    elif name == "ssh":
        yield " ".join(_after_options(rest, _TABLE.ssh_options)[1:])
    elif name == "find":
        for at, word in enumerate(rest):
            if word in {"-exec", "-execdir", "-ok", "-okdir"}:
                yield shlex.join(takewhile(lambda each: each not in {";", "+"}, rest[at + 1 :]))
    elif (inner := inside(argv)) is not argv:
        yield shlex.join(inner)
    elif (where := _TABLE.scripts.get(name, "")) == "last":
        yield from rest[-1:]
    elif where:
        yield from (word for before, word in pairwise(rest) if before in where.split())
        yield from (word.partition("=")[2] for word in rest if word.partition("=")[0] in where.split())


def printed(argv: list[str]) -> str:
    """What ``echo`` or ``printf`` prints; for ``pidof``, the name of the program that it looks for; else ""."""
    name, words = base_name(argv[0]) if argv else "", argv[1:]
    if name in {"echo", "printf"}:
        at = next((at for at, word in enumerate(words) if not re.fullmatch("-[neE]+", word)), len(words))
        return " ".join(word for word in words[at:] if "%s" not in word)
    return " ".join(word for word in words if word[:1] != "-") if name in {"pidof", "pgrep"} else ""


def with_input(argv: list[str], text: str) -> str:
    """The command that xargs makes of a command and its input."""
    command = shlex.join(argv)
    return command.replace("{}", text) if "{}" in command else f"{command} {text}"


def _after_options(rest: list[str], taking: str) -> list[str]:
    """The words from the first on that is no option; ``taking`` are the options that take a value."""
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        at += 2 if rest[at] in taking.split() else 1
    return rest[at:]


def inside(argv: list[str]) -> list[str]:
    """The command that ``docker exec`` and the like run, or the shell of ``ssh host``; another command as it is."""
    name, rest = base_name(argv[0]) if argv else "", argv[1:]
    if name == "ssh" and not _after_options(rest, _TABLE.ssh_options)[1:]:
        return ["sh"]
    if name not in _TABLE.containers.split() or not {"exec", "run"} & set(rest):
        return argv
    if "--" in rest:
        return rest[rest.index("--") + 1 :]
    if "exec" in rest:
        return _after_options(rest[rest.index("exec") + 1 :], _TABLE.container_options)[1:]
    # Of `run`, only a shell: which word is the image is not known.
    return rest[next((at for at, word in enumerate(rest) if base_name(word) in SHELLS), len(rest)) :]


def language_of(argv: list[str]) -> str:
    """The language that an interpreter runs; "" if it is a shell, or no interpreter."""
    return _TABLE.code.get(base_name(argv[0]).rstrip("0123456789.") if argv else "", ("", ""))[0]


def code_in(argv: list[str]) -> tuple[str, str] | None:
    """(language, code) of an interpreter's one-liner, such as ``python -c``; None if the command is no such."""
    language, option = _TABLE.code.get(base_name(argv[0]).rstrip("0123456789."), ("", ""))
    for at, word in enumerate(argv[1:-1] if language else [], start=1):
        if re.fullmatch(option, word):
            return language, argv[at + 1]
        if not word.startswith("-"):
            break
    return None


_RUNNERS = rf"\b(?:{'|'.join(_TABLE.runners.split())})"
_QUOTED = (
    r"(?:\"\"\"(?P<long>.{2,2000}?)\"\"\"|\"(?P<double>(?:[^\"\\\n]|\\.){2,2000})\"|"
    r"'(?P<single>(?:[^'\\\n]|\\.){2,2000})')"
)
_TICKED = re.compile(r"`([^`]{2,2000})`")
_WORD = re.compile(r"[\"']([^\"']{1,300})[\"']|([^\s,\"'][^,\"']*)")
_CALLED = re.compile(rf"{_RUNNERS}\s{{0,4}}[({{]?\s{{0,40}}[rb]?{_QUOTED}(?!\s?,\s?[\"'])", re.DOTALL)
_LISTED = re.compile(rf"{_RUNNERS}\s?[( ]\s{{0,40}}(?:\w+\.P_\w+,\s?)?[\[(]?([\"'][^)\]]{{2,500}})")


def shell_in_code(code: str) -> Iterator[str]:
    """What code in any language seems to give to a shell, also of a list of words that it runs."""
    for match in _CALLED.finditer(code):
        yield re.sub(r"\\([\"'])", r"\1", next(filter(None, match.groups()), ""))
    for match in _LISTED.finditer(code):
        argv = words_in(match[1], "?")
        if len(argv) > 1 and "=" not in match[1].partition(",")[2].partition(",")[0]:
            yield shlex.join(argv)
    yield from _TICKED.findall(code)


def words_in(listed: str, unknown: str = "") -> list[str]:
    """The words of a list without its brackets; words without quotes as they stand, or as ``unknown``."""
    return [quoted or unknown or bare.strip() for quoted, bare in _WORD.findall(listed)]


def variables_in(text: str) -> list[str]:
    """The variables that a piece of script names, in any form of expansion."""
    return re.findall(r"\$\{?([A-Za-z_]\w*|\d)", text)


def update_scene(argv: list[str], scene: Scene) -> None:
    """What ``cd``, ``source`` and ``set`` change for the commands after them."""
    name, rest = base_name(argv[0]), argv[1:]
    if name == "cd" and rest:
        scene.directory = rest[0]
    elif name in {"source", "."}:
        scene.is_whole = False  # it may set anything
    elif name == "set":
        for word in rest:
            if "u" in word and re.fullmatch(r"[-+][a-zA-Z]+", word):
                scene.stops_on_unset = word[0] == "-"
        if "nounset" in rest:
            scene.stops_on_unset = "+o" not in rest


def without_schedules(text: str) -> str:
    """The commands of a crontab, without the five fields or the name in front of each."""
    return re.sub(r"(?m)^[ \t]*(?:@[a-z]{4,9}|(?:[\w*/,-]{1,40}[ \t]+){5})", "", text)
