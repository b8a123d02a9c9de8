"""The texts that prompts are made of: the files of ``prompts/``, or a user's own files, with their hashes.

A file is plain text in UTF-8; ``$name`` is replaced by a value, ``$$`` is a dollar. A file with another name, such as
``auditor.txt``, is the role of the seat ``auditor``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from types import MappingProxyType

from council.protocol.errors import ConfigError
from council.protocol.values import quoted, text_problem

# Some pages. The builder checks the tokens.
TEXT_CHARS_MAX = 20_000
_BYTES_MAX = 4 * TEXT_CHARS_MAX
FILES_MAX = 100  # one for each seat and task is a handful

# The names that a file must hold, and no others; a role has none.
_STAGES = ("plan", "observe", "act", "verify")
_PLAIN = ("ballot", "ballot_answer", "ruling", "ruling_answer", "refine", "halted", "act", "closing", "retry")
PLACES: Mapping[str, frozenset[str]] = MappingProxyType(
    dict.fromkeys((*_PLAIN, *(f"{stage}_answer" for stage in _STAGES)), frozenset[str]())
    | dict.fromkeys((f"{stage}_marked" for stage in _STAGES), frozenset({"marker"}))
    | {
        "sections": frozenset({"nonce", "canary"}),
        "compressor": frozenset({"nonce", "target_tokens", "text"}),
    }
)
SHIPPED = Path(__file__).parent / "prompts"


@dataclass(frozen=True, slots=True)
class Texts:
    """The texts by name, stripped, and the sha256 of the bytes of each file, in hex."""

    texts: Mapping[str, str]
    hashes: Mapping[str, str]

    def of_role(self, role: str) -> str:
        """The text of a role. Raises ConfigError if there is no file for it."""
        roles = self.texts.keys() - PLACES.keys()
        if role not in roles:
            how = (
                "give it another role"
                if role in PLACES
                else f"a file {role}.txt beside your prompts makes one"
            )
            problem = f"no role {quoted(role)}: roles are {', '.join(sorted(roles))}; {how}"
            raise ConfigError(problem, problems=(problem,))
        return self.fill(role)

    def fill(self, name: str, **values: str) -> str:
        """The text of this name, with its values filled in."""
        return Template(self.texts[name]).substitute(values)

    def sources(self, *names: str) -> tuple[tuple[str, str], ...]:
        """The names of these files, sorted, each with its hash."""
        return tuple((f"{name}.txt", self.hashes[name]) for name in sorted(set(names)))


def load_texts(folder: Path | None = None) -> Texts:
    """The built-in texts, and a user's own in ``folder``. Raises ConfigError that lists every fault."""
    problems: list[str] = []
    texts: dict[str, str] = {}
    hashes: dict[str, str] = {}
    for place in (SHIPPED, *([] if folder is None else [folder])):
        for path in _files(place, problems):
            try:
                with path.open("rb") as file:
                    data = file.read(_BYTES_MAX + 1)
                texts[path.stem] = _checked(path.stem, data)
                hashes[path.stem] = hashlib.sha256(data).hexdigest()
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
    if problems:
        raise ConfigError("prompts: " + "; ".join(problems), problems=tuple(problems))
    return Texts(texts, hashes)


def _files(folder: Path, problems: list[str]) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ".txt")
    except OSError as error:
        problems.append(f"{folder}: can't be read: {error.strerror}; expected a folder of prompts, or none")
        return []
    if len(found) > FILES_MAX:
        problems.append(f"{folder}: {len(found)} prompts, of at most {FILES_MAX}")
        return []
    return found


def _checked(name: str, data: bytes) -> str:
    """The text of a file. Raises ValueError that says what is wrong with it."""
    if len(data) > _BYTES_MAX:
        raise ValueError(
            f"longer than {_BYTES_MAX:,} bytes; a prompt has at most {TEXT_CHARS_MAX:,} characters"
        )
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"is no text in UTF-8: byte {error.start}") from None
    if (problem := text_problem(text)) is not None:
        raise ValueError(problem)
    if not text or len(text) > TEXT_CHARS_MAX:
        raise ValueError(f"has {len(text):,} characters; expected 1 to {TEXT_CHARS_MAX:,}")
    template = Template(text)
    if not template.is_valid():
        raise ValueError("holds a $ that begins no name; write $$ for a dollar")
    found, wanted = set(template.get_identifiers()), PLACES.get(name, frozenset())
    if found != wanted:
        names = [f"lacks ${each}" for each in sorted(wanted - found)]
        names += [f"holds ${each}, which is nothing here" for each in sorted(found - wanted)]
        raise ValueError(f"{', '.join(names)}; $$ is a dollar")
    return text
