"""Takes the texts of a case apart: changes of files, code, and words."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from council.agents.mind import Case
from council.agents.scan.action import Argument, ParsedAction, holds_diff
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
