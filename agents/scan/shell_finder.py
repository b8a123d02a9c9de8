"""Finds shell text in other texts: scripts, Makefiles, Dockerfiles, CI, package scripts, Python calls, prose.

Line numbers are kept, so that a finding can be located.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from council.agents.scan.shell_words import ANY_RUNNERS, PYTHON_RUNNERS, shell_in_code, without_schedules

Numbered = Sequence[tuple[int, str]]  # (line number in the file, text)
Script = tuple[str, list[int]]  # the text, and for each of its lines its number in the file

PROSE_LINE_CHARS_MAX = 500  # a longer line is a paragraph
CALL_CHARS_MAX = 1_000  # of a line with a call that says shell=True
_SHELL_FILE = re.compile(
    r"\.(?:sh|bash|zsh|ksh|bats|envrc)$|(?:^|/)\.(?:bashrc|bash_profile|profile|zshrc|envrc)$"
)
_MAKE = re.compile(r"(?:^|/)(?:GNU)?[Mm]akefile[^/]*$|\.mk$")
_DOCKER = re.compile(r"(?:^|/)(?:Dockerfile|Containerfile)[^/]*$|\.[Dd]ockerfile$")
_YAML = re.compile(r"\.ya?ml$")
_UNIT = re.compile(r"\.(?:service|socket|timer|path|mount)$|\.service\.d/")
_CRON = re.compile(r"(?:^|/)(?:cron\.d/[^/]+|crontab(?:\.\w+)?|[\w-]+\.cron)$|^/?var/spool/cron/")
_USER = re.compile(r"^\s*[a-z_][a-z0-9_-]{0,31}\s+(?=\S)")
_CI = re.compile(
    r"\.github/|\.gitlab-ci|\.circleci/|azure-pipelines|bitbucket-pipelines|\.travis|buildspec|cloudbuild"
)
_GITHUB_EXPRESSION = re.compile(r"\$\{\{[^}\n]{0,200}\}\}")


def is_shell(path: str, first: str = "") -> bool:
    """Whether a file is a shell script, by its name or by its first line."""
    has_shebang = re.match(r"#!.*\b(?:ba|z|da|k|a)?sh\b", first) is not None
    return bool(_SHELL_FILE.search(path)) or ("." not in path.rsplit("/", 1)[-1] and has_shebang)


def is_python(path: str, first: str = "") -> bool:
    """Whether a file is Python, by its name or by its first line."""
    if path.lower().endswith((".py", ".pyi", ".pyw")):
        return True
    return "." not in path.rsplit("/", 1)[-1] and re.match(r"#!.*\bpython[\d.]*\b", first) is not None


def in_lines(path: str, lines: Numbered) -> Iterator[Script]:
    """The shell text in a file, or in a hunk of it."""
    first = next((text for number, text in lines if number == 1), "")
    name = path.rsplit("/", 1)[-1]
    if is_shell(path, first):
        yield _script(lines)
    elif _MAKE.search(path):
        yield from _makefile(lines)
    elif _DOCKER.search(path):
        yield from _dockerfile(lines)
    elif _YAML.search(path):
        yield from _yaml(lines, is_ci=bool(_CI.search(path)))
    elif _UNIT.search(path):
        yield from (
            _script([(n, t[1])]) for n, text in lines if (t := re.split(r"^Exec\w+=[-@:+!]*", text))[1:]
        )
    elif _CRON.search(path):
        for number, text in lines:
            command = without_schedules(text)
            yield _script([(number, _USER.sub("", command) if "cron.d/" in path else command)])
    elif name == "package.json":
        yield from _package_json(lines)
    elif is_python(path, first):
        yield from _python(lines)
    elif path.endswith(".sql") and not re.search(r"\bdown\.sql$", path):
        yield from _sql(lines)


def in_block(language: str, code: str) -> Iterator[Script]:
    """The shell text in a fenced block."""
    lines = list(enumerate(code.split("\n"), start=1))
    names = {"dockerfile": "Dockerfile", "docker": "Dockerfile", "makefile": "Makefile", "make": "Makefile",
             "yaml": "a.yml", "yml": "a.yml", "python": "a.py", "py": "a.py", "python3": "a.py"}  # fmt: skip
    if language in {"sh", "bash", "shell", "zsh", "console", "shell-session", "terminal"} or (
        not language and re.search(r"^\s{0,8}[$#] \w", code, re.MULTILINE)
    ):
        prompted = [(n, re.sub(r"^\s{0,8}[$#>] ", "", t)) for n, t in lines if re.match(r"\s{0,8}[$#>] ", t)]
        yield _script(prompted if prompted and language not in {"sh", "bash", "zsh"} else lines)
    elif language in names:
        yield from in_lines(names[language], lines)


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
    r"\b(?:never|don't|do not|doesn't|not|avoid|why|prevent|block|forbid|reject|refuse|detect|warn|"
    r"instead of|no longer)\b",
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
    """The command of an instruction or a key; the words of ``["a", "b"]`` as one line."""
    try:
        argv = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return text
    if isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv):
        return shlex.join(argv)
    return text


_YAML_KEY = re.compile(
    r"^(\s*)(-\s+)?(run|script|before_script|after_script|cmd|install|bash|"
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
            item = below if rest else re.sub(r"^\s*- ", "", below)
            block.append((lines[at][0], item))
            at += 1
        if block:
            yield _script(block)
    if loose:
        yield _script(loose)


def _package_json(lines: Numbered) -> Iterator[Script]:
    for number, text in lines:
        for _, value in package_pairs(text):
            yield _script([(number, value)])


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


def package_pairs(text: str) -> Iterator[tuple[str, str]]:
    """The keys and texts on a line of a package.json: its scripts, and everything of the same form."""
    for match in re.finditer(r'"([\w:.-]+)"\s*:\s*("(?:[^"\\]|\\.)*")', text):
        try:
            yield match[1], json.loads(match[2])
        except ValueError:
            continue  # not JSON: another program's file of that name


_QUOTE = re.compile("(?<![fF])[\"']")
_STRINGS = re.compile(r"""\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'""", re.DOTALL)
_IN_SHELL = re.compile(r"\bshell\s?=\s?True\b")


def _python(lines: Numbered) -> Iterator[Script]:
    """Commands that Python code runs, if they are literals."""
    # A notebook gives lines with ! to a shell.
    yield from (_script([(number, line[1:])]) for number, line in lines if line.startswith("!"))
    # As Python reads names, and without comments.
    texts = [
        "" if text.lstrip().startswith("#") else unicodedata.normalize("NFKC", text) for _, text in lines
    ]
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    for at, command in shell_in_code("\n".join(texts), PYTHON_RUNNERS):
        line = bisect_right(starts, at) - 1
        number = lines[line][0]
        if _is_data(texts[line][: at - starts[line]]):
            continue
        yield command, [number] * (command.count("\n") + 1)
    for (number, _), text in zip(lines, texts, strict=True):
        if _IN_SHELL.search(text) and len(text) <= CALL_CHARS_MAX:
            called = shell_in_code(text, ANY_RUNNERS)
            yield from ((command, [number]) for at, command in called if not _is_data(text[:at]))


def _is_data(before: str) -> bool:
    """Whether a call stands in a string, but for an f-string, by the text before it on its line."""
    return _QUOTE.search(_STRINGS.sub("", before)) is not None
