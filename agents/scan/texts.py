"""Takes the texts of a case apart: changes of files, code, and words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from council.agents.mind import Case
from council.agents.scan.action import WORDS, Argument, ParsedAction, holds_diff
from council.agents.scan.change import DiffLine, FileChange, Hunk, ScannedText, narrowed, read_changes
from council.agents.scan.languages import BY_NAME, FENCED
from council.agents.scan.pieces import Piece, piece_of

ARGUMENTS = "the action's arguments"  # a place


@dataclass(slots=True)
class Texts:
    """What a case consists of.

    ``reading`` is what its diffs hold, ``written`` the files that its action writes, and ``code`` its code blocks and
    the code that its action runs. ``words`` are all other texts, each with its place.
    """

    reading: ScannedText
    written: list[FileChange] = field(default_factory=list)
    code: list[Piece] = field(default_factory=list)
    words: list[tuple[str, str]] = field(default_factory=list)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """All changes of files."""
        return (*self.reading.files, *self.written)


def texts_of(case: Case, action: ParsedAction) -> Texts:
    """The texts of a case with this action."""
    texts = Texts(_read(case.body))
    texts.words += [("the summary", case.summary), ("the body", texts.reading.prose)]
    told = []  # arguments, without the diffs that are applied: only what these add is judged
    for argument in action.args:
        text = argument.text
        if holds_diff(text):
            more, known = _read(text), texts.reading
            files, blocks = known.files + more.files, known.blocks + more.blocks
            texts.reading = replace(known, files=files, blocks=blocks, faults=known.faults + more.faults)
            text = more.prose if action.applies(argument) else text
        elif action.writes(argument) or action.names_file(argument):
            texts.written.append(written(argument))
        elif (language := BY_NAME.get(action.language_of(argument))) and language.ast_grep:
            texts.code.append(piece_of(f"the action's {argument.key[:40]!r}", language, text))
        if not action.writes(argument):
            told.append(f"{argument.key} = {json.dumps(text, ensure_ascii=False)}")
    texts.written += edits(action)
    left = (each for each in action.commands if not (action.writes(each) or action.applies(each)))
    told += [f"{each.key} = {json.dumps(each.text, ensure_ascii=False)}" for each in left]
    texts.words.append((ARGUMENTS, "\n".join(told)))
    for block in texts.reading.blocks:
        language = FENCED.get(block.language)
        if language and language.name not in ("text", "markdown") and not block.has_diff:
            texts.code.append(piece_of(f"code block at line {block.line}", language, block.code))
    return texts


def _read(text: str) -> ScannedText:
    reading = read_changes(text)
    return replace(reading, files=tuple(map(narrowed, reading.files)))


def written(argument: Argument) -> FileChange:
    """A file that an action writes, as a change that adds it."""
    added = tuple(DiffLine("+", text, None, at) for at, text in enumerate(argument.text.split("\n"), start=1))
    return FileChange(argument.path, None, "added", hunks=(Hunk(0, 1, added),), is_whole=True)


def edits(action: ParsedAction) -> Iterator[FileChange]:
    """The parts of named files that an action replaces or inserts, each as a change of its file."""
    pair: dict[str, Argument] = {}
    for argument in action.args:
        key = argument.key.lower().replace("_", "")
        kind = next((each for each in ("old_keys", "new_keys") if key in WORDS[each]), "")
        if kind and argument.path:
            pair[kind] = argument
        if len(pair) == 2:
            old, new = pair.pop("old_keys"), pair.pop("new_keys")
            yield _edited(new.path, old.text.split("\n"), new.text.split("\n"))
    if "new_keys" in pair:  # it is inserted
        yield _edited(pair["new_keys"].path, [], pair["new_keys"].text.split("\n"))


def _edited(path: str, old: list[str], new: list[str]) -> FileChange:
    """A change of some lines of a file. Their place is not known: they count from 2, so the file is not whole."""
    least = min(len(old), len(new))
    head = next((at for at in range(least) if old[at] != new[at]), least)
    tail = next((at for at in range(least - head) if old[-1 - at] != new[-1 - at]), least - head)
    gone, came = len(old) - tail, len(new) - tail
    lines = [DiffLine(" ", text, at, at) for at, text in enumerate(old[:head], 2)]
    lines += [DiffLine("-", text, at, None) for at, text in enumerate(old[head:gone], head + 2)]
    lines += [DiffLine("+", text, None, at) for at, text in enumerate(new[head:came], head + 2)]
    lines += [DiffLine(" ", text, gone + at, came + at) for at, text in enumerate(old[gone:], 2)]
    return FileChange(path, None, "modified", hunks=(Hunk(2, 2, tuple(lines)),))
