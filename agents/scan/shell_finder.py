"""Finds shell text in other texts: scripts, Makefiles, Dockerfiles, CI, package scripts, Python calls, prose.

Line numbers are kept, so that a finding can be located.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator, Sequence

from council.agents.scan.change import DiffLine, FileChange, Hunk
from council.agents.scan.languages import FENCED, is_a, language_of
from council.agents.scan.pieces import pieces_of
from council.agents.scan.python_checks import dotted
from council.agents.scan.shell_words import LINES, shell_in_code, without_schedules, words_in
from council.agents.scan.spelling import aliases

Numbered = Sequence[tuple[int, str]]  # (line number in the file, text)
Script = tuple[str, list[int]]  # the text, and for each of its lines its number in the file

PROSE_LINE_CHARS_MAX = 500  # a longer line is a paragraph
_USER = re.compile(r"^\s*[a-z_][a-z0-9_-]{0,31}\s+(?=\S)")
_GITHUB_EXPRESSION = re.compile(r"\$\{\{[^}\n]{0,200}\}\}")


def in_lines(path: str, lines: Numbered) -> Iterator[Script]:
    """The shell text in a file, or in a hunk of it."""
    first = next((text for number, text in lines if number == 1), "")
    match name_of(path, first):
        case "bash":
            yield _script(lines)
        case "makefile":
            yield from _makefile(lines)
        case "dockerfile":
            yield from _dockerfile(lines)
        case "yaml":
            yield from _yaml(lines, is_ci=is_a("pipelines", path))
        case "cron":
            for number, text in lines:
                command = without_schedules(text)
                yield _script([(number, _USER.sub("", command) if "cron.d/" in path else command)])
        case "python":
            yield from _python(lines)
        case "sql" if not path.endswith("down.sql"):
            yield from _sql(lines)
        case _:
            yield from _by_path(path, lines)


def _by_path(path: str, lines: Numbered) -> Iterator[Script]:
    """Commands on lines of their own, in calls of any language, and those of a package.json."""
    before = next((each for known, each in LINES.items() if re.search(known, path)), "(?!)")
    has_calls = is_a("callers", path) and not is_a("tests", path)
    for number, text in lines:
        if start := re.match(before, text):
            yield _script([(number, text[start.end() :])])
        elif has_calls:  # words in backticks are no command in most languages
            yield from ((command, [number]) for command in shell_in_code(text.replace("`", "'")))
        elif path.rsplit("/", 1)[-1] == "package.json":
            yield from (_script([(number, value)]) for value in _json_texts(text))


def name_of(path: str, first: str = "") -> str:
    """The name of a file's language in languages.yml, or ""."""
    language = FENCED["yaml"] if first.startswith("#cloud-config") else language_of(path, first)
    return language.name if language is not None else ""


def in_block(language: str, code: str) -> Iterator[Script]:
    """The shell text in a fenced block."""
    lines = list(enumerate(code.split("\n"), start=1))
    if language in {"sh", "bash", "shell", "zsh", "console", "shell-session", "terminal"} or (
        not language and re.search(r"^\s{0,8}[$#] \w", code, re.MULTILINE)
    ):
        prompted = [(n, re.sub(r"^\s{0,8}[$#>] ", "", t)) for n, t in lines if re.match(r"\s{0,8}[$#>] ", t)]
        yield _script(prompted if prompted and language not in {"sh", "bash", "zsh"} else lines)
    elif language:
        named = FENCED.get(language)
        yield from in_lines(f"a.{named.extensions[0] if named else language}", lines)


_BULLET = re.compile(
    r"^\s{0,12}(?:[-*>] |\d{1,3}[.)] )?"
    r"(?:(?:please )?(?:run|execute|exec|command|cmd|do|then)\b:?\s{0,4})?(?:[$#] )?",
    re.IGNORECASE,
)
_TICKED = re.compile(
    r"\b(?:run|runs|execute|exec|invoke|do|command|with|via|using)\s{0,4}:?\s{0,4}`{1,2}([^`\n]{3,400})`",
    re.IGNORECASE,
)
_PROGRAM = re.compile(r"(?:sudo |/bin/|/usr/bin/)?[a-z:][a-z0-9_.:+-]{0,30}(?:[ (]|$)")
_ABOUT = re.compile(
    r"\b(?:never|don't|doesn't|not|avoid|why|prevent|block|forbid|reject|refuse|detect|warn|instead of|no longer)\b",
    re.IGNORECASE,
)


def commands_in_prose(text: str) -> Iterator[str]:
    """Lines and `quoted` parts of prose that tell somebody to run them, not those that are only mentioned."""
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        if fenced or len(line) > PROSE_LINE_CHARS_MAX or not line.strip():
            continue
        told = [m.group(1) for m in _TICKED.finditer(line) if not _ABOUT.search(line, 0, m.start())]
        yield from told
        bare = _BULLET.sub("", line, count=1).strip().strip("`")
        if "`" not in bare and _PROGRAM.match(bare):
            yield bare


def _script(lines: Numbered) -> Script:
    text = "\n".join(_GITHUB_EXPRESSION.sub("expression", line) for _, line in lines)
    return text, [number for number, _ in lines] or [0]


def _makefile(lines: Numbered) -> Iterator[Script]:
    """Each recipe line, with its continuations joined; make's $(X) is the shell's ${X}."""
    recipe: list[tuple[int, str]] = []
    for number, text in lines:
        if text.startswith("\t") or (recipe and recipe[-1][1].endswith("\\")):
            line = re.sub(r"^\t[@+\- ]*", "", text)
            line = re.sub(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)", r"${\1}", line).replace("$$", "$")
            recipe.append((number, line))
        elif recipe:
            yield _script(recipe)
            recipe = []
    if recipe:
        yield _script(recipe)


_RUN = re.compile(r"\s*(?:RUN|CMD|ENTRYPOINT)\s+((?:--\S+\s+)*)", re.IGNORECASE)


def _dockerfile(lines: Numbered) -> Iterator[Script]:
    run: list[tuple[int, str]] = []
    for number, text in lines:
        if start := _RUN.match(text):
            text = _exec_form(text[start.end() :])
        elif not run or text.lstrip().startswith("#"):
            continue
        run.append((number, text))
        if not text.rstrip().endswith("\\"):
            yield _script(run)
            run = []
    if run:
        yield _script(run)


def _exec_form(text: str) -> str:
    """The command of an instruction or a key. A list such as ``["a", "b"]`` or ``[a, b]`` becomes one line."""
    if not re.fullmatch(r"\[.+\]\s*", text):
        return text
    try:
        argv = json.loads(text)
    except (ValueError, RecursionError):
        argv = words_in(text.strip()[1:-1]) if "," in text else None
    if isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv):
        return shlex.join(argv)
    return text


_YAML_KEY = re.compile(
    r"^(\s*)(-\s+)?(run|script|before_script|after_script|cmd|install|bash|runcmd|bootcmd|cmds|"
    r"(?:ansible\.builtin\.)?(?:shell|command|raw)):\s*(.*)$"
)
_ANY_KEY = re.compile(r"^\s{0,60}(?:- )?[\w.\"'-]{1,60}:(?:\s|$)")


def _yaml(lines: Numbered, *, is_ci: bool) -> Iterator[Script]:
    """The text after run:, script: and the like; in CI files also lines whose key is outside the hunk."""
    at = 0
    loose: list[tuple[int, str]] = []
    while at < len(lines):
        number, text = lines[at]
        at += 1
        match = _YAML_KEY.match(text)
        if not match:
            if is_ci and not _ANY_KEY.match(text) and not text.lstrip().startswith("#"):
                loose.append((number, re.sub(r"^\s*- ", "", text)))
            continue
        indent, rest = len(match.group(1)) + len(match.group(2) or ""), match.group(4).strip()
        if rest and not re.match(r"[|>][-+0-9]{0,2}(?:\s|$)", rest):
            yield _script([(number, rest.strip("\"'") if rest[:1] in "\"'" else _exec_form(rest))])
            continue
        block: list[tuple[int, str]] = []
        while at < len(lines):
            below = lines[at][1]
            deeper = len(below) - len(below.lstrip())
            is_item = not rest and deeper == indent and below.lstrip().startswith("- ")
            if below.strip() and deeper <= indent and not is_item:
                break
            item = below if rest else _exec_form(re.sub(r"^\s*- ", "", below))
            block.append((lines[at][0], item))
            at += 1
        if block:
            yield _script(block)
    if loose:
        yield _script(loose)


def _sql(lines: Numbered) -> Iterator[Script]:
    """Each statement, as a client's words, without the part of a migration that reverts it."""
    statement: list[tuple[int, str]] = []
    for number, text in [*lines, (0, ";")]:
        if re.match(r"\s{0,8}--.{0,60}\bdown\b", text, re.IGNORECASE):
            break
        bare = re.sub(r"('(?:[^']|'')*')|--.*", lambda match: match[1] or "", text)
        if bare.strip():
            statement.append((number, bare))
        if bare.rstrip().endswith(";"):
            if statement and statement[0][0]:
                words = "\n".join(line for _, line in statement)
                yield shlex.join(["psql", "-c", words]), [number for number, _ in statement]
            statement = []


def _json_texts(text: str) -> Iterator[str]:
    """The values on a line of a package.json that are texts: its scripts, and everything of the same form."""
    for match in re.finditer(r'"[\w:.-]+"\s*:\s*("(?:[^"\\]|\\.)*")', text):
        try:
            yield json.loads(match[1])
        except ValueError:
            continue  # not JSON: another program's file of that name


_RUNNER = re.compile(
    r"subprocess\.\w+|(?:.*\.)?(?:system|[pP]open|check_call|check_output|get(?:status)?output|create_subprocess_shell)"
)


def _python(lines: Numbered) -> Iterator[Script]:
    """Commands that Python code runs, if they are literals. A call in a string is data."""
    # A notebook gives lines with ! to a shell.
    yield from (_script([(number, line[1:])]) for number, line in lines if line.startswith("!"))
    code = [(number, "" if line.startswith("!") else line) for number, line in lines]
    if not any(_RUNS.search(line) or not line.isascii() for _, line in code):
        return
    hunk = Hunk(0, 1, tuple(DiffLine("+", line, None, number) for number, line in code))
    (piece,) = pieces_of([FileChange("a.py", None, "added", hunks=(hunk,))])
    if piece.tree is None:  # it is searched as code of any language
        found = [(number, command) for number, line in code for command in shell_in_code(line)]
    else:
        nodes = [node for statement in piece.statements for node in statement.inner]
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        names = dict(aliases(piece))
        found = [(piece.number(call.lineno - 1), _run_by(call, names)) for call in calls]
    for number, command in found:
        if command:
            yield command, [number] * (command.count("\n") + 1)


_RUNS = re.compile(
    r"\b(?:shell|run|call)\b|subprocess|system|[pP]open|check_|output|(?:exec|spawn)[lv]", re.ASCII
)


def _run_by(call: ast.Call, names: dict[str, str]) -> str:
    """The command that a call gives to the system, or ""; an unknown word of a list of words is "?".

    ``names`` are the names in full of what is imported.
    """
    first, dot, rest = dotted(call.func).partition(".")
    name = names.get(first, first) + dot + rest
    if re.fullmatch(r"os\.(?:exec|spawn|posix_spawn)\w+", name):  # the program is named twice
        texts = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
        return shlex.join(text for text in texts if isinstance(text, str))
    has_shell = any(each.arg == "shell" and getattr(each.value, "value", False) for each in call.keywords)
    if not (has_shell or _RUNNER.fullmatch(name)):
        return ""
    given = [*call.args, *(each.value for each in call.keywords if each.arg in {"args", "cmd"})]
    match given[:1]:
        case [ast.Constant(value=str(text))]:
            return text
        case [ast.List(elts=words) | ast.Tuple(elts=words)] if words and isinstance(words[0], ast.Constant):
            return shlex.join(str(each.value) if isinstance(each, ast.Constant) else "?" for each in words)
    return ""
