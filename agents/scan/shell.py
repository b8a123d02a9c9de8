"""Reads shell scripts: which commands they run, with which words.

The script is parsed (tree-sitter), and each command's words are evaluated as far as the text allows.
`echo "rm -rf /"`, a comment or a heredoc for cat are not commands. The reader follows lists, pipelines, subshells,
substitutions, functions, `sh -c '…'`, `eval`, `ssh host …`, heredocs that a shell reads, and prefixes such as sudo,
env, xargs, timeout. Variables are known if the script assigns them a literal.

What is found is handed to the ``Judge`` of ``commands``, which knows which commands are dangerous.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from council.agents.scan import flow, shell_words
from council.agents.scan.commands import Judge
from council.agents.scan.finding import Finding
from council.agents.scan.languages import BY_NAME
from council.agents.scan.pieces import piece_of
from council.agents.scan.shell_words import (
    DECODERS,
    DOWNLOADERS,
    INTERPRETERS,
    SHELLS,
    Scene,
    base_name,
    code_in,
    language_of,
    shell_in_code,
)
from council.agents.scan.spelling import spelled

SCRIPT_CHARS_MAX = 64_000  # longer than scripts that people write
LINE_CHARS_MAX = 6_000
# The parser gets the script in pieces, cut at line ends, because recovery from an error costs the cube of a piece's
# length. It reports each step, of about 100 operations. To recover, it repeats steps at earlier places. Scripts by
# people need 40 steps and 17 repeats for a piece, and 500 and 120 for 60,000 characters. Of 800 commits to two
# projects of shell scripts the largest needs 214 and 36. Hostile text needs thousands.
PIECE_CHARS_MAX = 3_000
PIECE_STEPS_MAX, PIECE_REPEATS_MAX = 150, 60
STEPS_MAX, REPEATS_MAX = 2_000, 160  # for all shell text of one case
# Tree nodes, counted each time they are listed: a command is examined once for each pipeline or substitution around
# it. A script of 64,000 characters by people needs at most 42,000.
NODES_MAX = 100_000
HEREDOCS_MAX = 200  # each costs a scan of all following lines: 200 take milliseconds, 20,000 take 9 s
DEPTH_MAX = 6  # sh -c in sh -c …: nobody who wants to be read nests deeper
VALUE_CHARS_MAX = 4_000  # of a variable: usage texts are shorter
NODE_CHARS = 50  # an expanded variable counts as one node for so many characters of its value
WORD_PARTS_MAX = 200  # pieces of one word that are evaluated
# The end of a compound command that is piped to an interpreter. If it began in an earlier piece, that is not seen.
_CUT_OFF = re.compile(
    r"(?:\)|(?:^|[;\s])(?:\}|fi|done|esac))\s{0,40}\|(?!\|)(?:[^\n]{0,200}\|)?&?\s{0,40}(?:\S{0,40}/|sudo\s)?"
    rf"(?:{'|'.join(sorted(INTERPRETERS))})(?![\w.-])",
    re.MULTILINE,
)
# The grammar uses C's character tables, and reads beyond their end for characters above ASCII: it crashed on some. No
# rule needs such a character, only that a word with one equals no other word. X is in no rule's word.
_BRACES = re.compile(r"""([^{}$`'"\\\s]*)\{([^{}$`'"\\\s]*,[^{}$`'"\\\s]*)\}([^{}$`'"\\\s]*)""")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
# The end of a line whose command continues in the next line. A comment may follow.
_GOES_ON = re.compile(r"\\$|(?:[|]&?|&&)[ \t]*(?:#.*)?$")
_EMPTY = re.compile(r"[ \t]*(?:#.*)?$")
# The grammar does not know a redirection that reads and writes.
_BOTH_WAYS = re.compile(r"<>\s{0,4}(/dev/(?:tcp|udp)/(?!localhost/|127\.)\S{1,200})")
_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(slots=True)
class ParseEffort:
    """The effort of reading: the parser's steps, those repeated to recover from errors, and the listed nodes."""

    steps: int = 0
    repeats: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The findings in a script, in order of their lines. ``fault`` says why a part was not read, or is "".

    ``one_liners`` are (language, code, line) of the interpreters that it runs.
    """

    findings: tuple[Finding, ...]
    fault: str
    one_liners: tuple[tuple[str, str, int], ...]


def read(
    script: str,
    place: str = "",
    scene: Scene | None = None,
    work: ParseEffort | None = None,
    *,
    in_file: bool = False,
) -> Reading:
    """What a script does that is dangerous. Never raises.

    ``scene`` is what is known before it runs, and is updated, for a script in parts. ``work`` counts the effort of
    all scripts of the same case. ``in_file``: it stands in a file, and is not run now.
    """
    script = script.replace("\r\n", "\n").replace("\r", " ")  # "/\r" would be another word than "/"
    judge = Judge(place, in_file)
    reader = _Reader(judge, scene or Scene(), work or ParseEffort())
    reader.read(script, 0, 0)
    unique = dict.fromkeys(sorted(judge.findings, key=lambda finding: finding.line))
    return Reading(tuple(unique), reader.fault, tuple(judge.one_liners))


class _Reader:
    """Walks through one script and the scripts nested in it."""

    def __init__(self, judge: Judge, scene: Scene, work: ParseEffort) -> None:
        self.judge = judge
        self.scene = scene
        self.work = work
        self.fault = ""
        self._parser = Parser(_LANGUAGE)

    def read(self, script: str, line: int, depth: int) -> None:
        """Reads a script whose first line is ``line`` (from 0) of the outermost."""
        if fault := _too_much(script, depth):
            self.fault = fault
            return
        for match in _BOTH_WAYS.finditer(script):
            self.judge.write(match[1], False, self.scene, line + 1)
        pieces = list(_pieces(_FOREIGN.sub("X", script.replace("\0", " "))))
        if len(pieces) > 1 and _CUT_OFF.search(script):
            self.fault = "shell text left unread: a pipeline that starts too far above its end"
        for at, piece in pieces:
            tree = self._parsed(piece.encode("ascii"))
            if tree is None:
                return
            for node in self._walk(tree.root_node):
                self._visit(node, line if depth else at + node.start_point.row, depth)

    def _parsed(self, piece: bytes) -> Tree | None:
        """The tree of a piece. Above a limit of steps it is None, and ``fault`` says so."""
        work, furthest = self.work, -1
        steps_max = min(work.steps + PIECE_STEPS_MAX, STEPS_MAX)
        repeats_max = min(work.repeats + PIECE_REPEATS_MAX, REPEATS_MAX)
        # Each step costs more in a piece that is one longer line.
        weight = max(1, len(piece) ** 2 // PIECE_CHARS_MAX**2)

        def is_too_much(at: int, in_error: bool) -> bool:
            nonlocal furthest
            work.steps += 1
            work.repeats += weight * (in_error or at <= furthest)
            furthest = max(furthest, at)
            return work.steps > steps_max or work.repeats > repeats_max

        try:
            # The parser can be stopped only if it reads through a function. It gets the whole rest at once, since it
            # would ask for short chunks a million times.
            return self._parser.parse(lambda at, _place: piece[at:], progress_callback=is_too_much)
        except ValueError:  # stopped
            self._parser.reset()
            self.fault = "shell text left unread: it takes the parser too many steps"
            return None

    def _visit(self, node: Node, line: int, depth: int) -> None:
        match node.type:
            case "command":
                self._command(node, line, depth)
                if node.parent is None or node.parent.type not in {"pipeline", "redirected_statement"}:
                    self._flow(node, line, depth)
            case "declaration_command" | "unset_command":
                self._declare(node, line)
            case "variable_assignment":
                self._assign(node, line)
            case "for_statement":
                if name := node.child_by_field_name("variable"):
                    given = [self.word(each) for each in node.children_by_field_name("value")]
                    known = next((word for word in given if word.startswith(("/", "~"))), "${item}")
                    secret = next((word for word in given if "(!" in word), known)
                    self._set(name, secret)
            case "pipeline":
                self._flow(node, line, depth)
            case "redirected_statement":
                self._redirected(node, line, depth)
            case "file_redirect":
                for way, target, appends in self._redirects(node):
                    if way == ">":
                        self.judge.write(target, appends, self.scene, line + 1)
            case "function_definition":
                self._function(node, line)
            case "test_command":
                self._inspect(node)

    def _inspect(self, node: Node) -> None:
        self.scene.looked_at.update(shell_words.variables_in(_text(node)[:VALUE_CHARS_MAX]))

    def _declare(self, node: Node, line: int) -> None:
        """``export A=b`` or ``unset A``, as a command."""
        argv = [_text(node).split(maxsplit=1)[0]]
        for child in self._children(node):
            if child.type == "variable_assignment":
                name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
                argv.append(f"{_text(name) if name else ''}={self.word(value) if value else ''}")
            else:
                argv.append(self.word(child))
        self.judge.command(argv, self.scene, line + 1)

    def _assign(self, node: Node, line: int) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        around = node.parent.type if node.parent is not None else ""
        if name is None:
            return
        word = "" if value is None else self.word(value)
        if around != "command":
            self._set(name, word)
        if around != "declaration_command":
            self.judge.command(["export", f"{_text(name)}={word}"], self.scene, line + 1)

    def _set(self, name: Node, value: str) -> None:
        # Cut, because A=$A$A thirty times over would fill the memory.
        self.scene.variables[_text(name)] = value[: VALUE_CHARS_MAX + 1]

    def _command(self, node: Node, line: int, depth: int) -> None:
        *prefixes, argv = shell_words.unwrapped(self.argv(node))
        for prefix in prefixes:
            self.judge.prefix(prefix, line + 1)
            if " " in prefix[-1]:  # `watch 'a; b'`
                self.read(prefix[-1], line, depth + 1)
        if len(prefixes) == shell_words.PREFIXES_MAX:
            self.fault = f"shell text left unread: {len(prefixes)} prefixes of a command or more"
        if not argv:
            return
        for child in self._children(node):
            if child.type == "herestring_redirect":
                self._given(argv, self.word(child), line, depth)
        around = self.judge.around
        for nested in shell_words.nested_scripts(argv):
            if _program(argv) not in SHELLS | {"eval", "trap", "find"}:
                self.judge.around = " ".join(word for word in argv if " " not in word)
            self.read(nested, line, depth + 1)
            self.judge.around = around
        if one_liner := code_in(argv):
            self._code(*one_liner, line, depth)
        if argv[0] == "test" or any(":?" in word for word in argv):  # `: "${X:?}"` stops if X is empty
            self._inspect(node)
        shell_words.update_scene(argv, self.scene)
        self.judge.command(argv, self.scene, line + 1)

    def _code(self, language: str, code: str, line: int, depth: int) -> None:
        self.judge.code(language, code, line + 1)
        piece = piece_of("", BY_NAME.get(language), code[:20_000])
        for nested in shell_in_code(spelled([piece])[0].text):
            self.read(nested, line, depth + 1)

    def _inner(self, node: Node) -> list[str]:
        """The command's words without its prefixes."""
        return shell_words.unwrapped(self.argv(node))[-1]

    def argv(self, node: Node) -> list[str]:
        """The command's words as far as they are known; unknown parts stay ``${name}`` or ``$(program)``."""
        words = []
        for child in self._children(node):
            if child.type == "command_name":
                parts = self._children(child)
                word = self.word(parts[0]) if parts else _text(child)
                words += word.split() if parts and re.search("expa|subst", parts[0].type) else [word]
            elif child.type not in {"variable_assignment", "file_redirect", "herestring_redirect", "comment"}:
                word = self.word(child)
                is_printed = child.type == "command_substitution" and word[:2] != "$("
                words += _braces(_text(child)) or (word.split() if is_printed else [word])
        return words

    def word(self, node: Node) -> str:
        """A word's value. The walk visits substitutions separately."""
        out: list[str] = []
        stack, seen = [node], 0
        while stack and seen < WORD_PARTS_MAX:
            part = stack.pop()
            seen += 1
            match part.type:
                case "raw_string":
                    out.append(_text(part)[1:-1])
                case "ansi_c_string":
                    out.append(_text(part)[2:-1])
                case "word" | "number" | "string_content" | "extglob_pattern" | "brace_expression":
                    out.append(_text(part).replace("\\\n", "").replace("\\", ""))
                case "simple_expansion" | "expansion":
                    out.append(self._expansion(part))
                case "command_substitution":
                    out.append(self._output(part))
                case "process_substitution":
                    out.append(f"<({self._runs(part)})")
                case "string" if not part.named_child_count:
                    out.append(_text(part)[1:-1])
                case _ if part.named_child_count:
                    stack.extend(reversed(self._children(part)))
                case _:
                    out.append(_text(part))
        if stack:
            self.fault = f"shell text left unread: a word of more than {WORD_PARTS_MAX} parts"
        return "".join(out)

    def _expansion(self, node: Node) -> str:
        text = _text(node)
        name = next((_text(c) for c in self._children(node) if c.type == "variable_name"), text.strip("${}"))
        if name in self.scene.variables:
            known = self.scene.variables[name]
            self.work.nodes += len(known) // NODE_CHARS
            if len(known) > VALUE_CHARS_MAX:
                self.fault = f"shell text left unread: a variable of more than {VALUE_CHARS_MAX} characters"
            return known
        if ":?" in text or "?" in text[len(name) + 2 : len(name) + 3]:
            return f"${{{name}:?}}"
        default = text[len(name) + 2 : -1] if text.startswith("${") else ""
        value = default.lstrip(":")[1:].strip("\"'") if default.startswith((":-", ":=", "-", "=")) else ""
        return value or f"${{{name}}}"

    def _output(self, node: Node) -> str:
        """What a substitution puts in: a text that it only prints as it stands, else ``$(program)``."""
        parts = self._children(node)
        commands = [part for part in self._walk(node) if part.type == "command"]
        is_plain = len(parts) == 1 and parts == commands and not re.search(r"[\\%]", _text(node))
        argv = self.argv(commands[0]) if is_plain else []
        is_program = node.parent is not None and node.parent.type == "command_name"
        if is_program and _program(argv) not in {"echo", "printf"}:
            argv = []
        return shell_words.printed(argv) or f"$({self._runs(node)})"

    def _runs(self, node: Node) -> str:
        """The program in a substitution, a downloader's if there is one; before it the mark of a secret."""
        commands = [self._plain(part) for part in self._walk(node) if part.type == "command"]
        commands += [
            ["cat", _text(part).lstrip("< ")] for part in self._children(node) if part.type == "file_redirect"
        ]
        stages = [shell_words.unwrapped(argv)[-1] or argv for argv in commands]
        names = [_program(argv) for argv in stages]
        telling = (name for known in (DOWNLOADERS, DECODERS) for name in names if name in known)
        name = next(telling, names[0] if names else "")
        return flow.mark(stages, self.scene) + name

    def _plain(self, node: Node) -> list[str]:
        """A command's words as written, without quotes: enough to see which program it runs."""
        words = [c for c in self._children(node) if c.type != "variable_assignment"]
        return [_text(child).strip("\"'").replace("\\", "") for child in words]

    def _flow(self, node: Node, line: int, depth: int) -> None:
        """What goes through a pipeline. A literal text that reaches a shell is a script."""
        text = ""
        stages = self._stages(node)
        for argv in stages:
            if not text:
                text = shell_words.printed(argv)
            elif argv[-1:] == ["<-"]:  # of xargs
                self.read(shell_words.with_input(argv[:-1], text), line, depth + 1)
            else:
                self._given(argv, text, line, depth)
        # What another command takes is not shown.
        around = [node.parent, node.parent.parent if node.parent is not None else None]
        is_shown = not any(each is not None and each.type.endswith("_substitution") for each in around)
        if stages:
            self.judge.flow(stages, self.scene, line + 1, is_shown=is_shown)

    def _stages(self, node: Node) -> list[list[str]]:
        """The commands of a pipeline or of a single command, with ``<file`` and ``>file`` for their redirections."""
        stages = []
        for part in self._children(node) if node.type == "pipeline" else [node]:
            if part.type == "pipeline":
                stages += self._stages(part)
            elif part.type in {"command", "subshell", "compound_statement", "redirected_statement"}:
                found = [part] if part.type == "command" else list(self._commands_of(part))
                for argv in map(self.argv, found):
                    # xargs gives what comes through the pipe as words.
                    stages.append(
                        (shell_words.unwrapped(argv)[-1] or argv) + ["<-"] * (_program(argv) == "xargs")
                    )
                if found and part.type == "redirected_statement":
                    stages[-1] = stages[-1] + [f"{way}{file}" for way, file, _ in self._redirects(part)]
        return stages

    def _redirects(self, node: Node) -> Iterator[tuple[str, str, bool]]:
        """("<" or ">", file, whether it appends) of a redirection to or from a file, or of each one below a node."""
        for redirect in [node] if node.type == "file_redirect" else self._children(node):
            target = redirect.child_by_field_name("destination") if redirect.type == "file_redirect" else None
            operators = (child.type.strip("&|") for child in redirect.children[:2])
            operator = next((each for each in operators if each[:1] in {"<", ">"}), "")
            if target is not None and operator and target.type != "number":
                yield ">" if ">" in operator else "<", self.word(target), operator == ">>"

    def _redirected(self, node: Node, line: int, depth: int) -> None:
        """A heredoc or here-string is a script if a shell reads it, and code if another interpreter does."""
        body = node.child_by_field_name("body")
        if body is None or body.type not in {"command", "pipeline", "list", "subshell", "compound_statement"}:
            return
        if body.type != "list":
            self._flow(node, line, depth)
        command = body if body.type == "command" else next(iter(self._commands_of(body)), None)
        argv = self._inner(command) if command is not None else []
        name = _program(argv)
        takes_input = name == "ssh" or _reads_a_script(argv)
        if name in SHELLS and "-i" in argv and re.search("/dev/(?:tcp|udp)/", _text(node)):
            self.judge.command(["remote-shell"], self.scene, line + 1)
        for redirect in self._children(node):
            if redirect.type == "heredoc_redirect":
                text = "".join(_text(c) for c in self._children(redirect) if c.type == "heredoc_body")
                readers = map(self._inner, self._commands_of(redirect))
                takes_input = takes_input or any(map(_reads_a_script, readers))
            elif redirect.type == "herestring_redirect":
                text = self.word(redirect)
            else:
                continue
            self._given(argv, text, line, depth, is_script=takes_input)

    def _given(self, argv: list[str], text: str, line: int, depth: int, *, is_script: bool = False) -> None:
        """The input of a command: a script, code of an interpreter, or a query."""
        argv = shell_words.inside(argv)
        if is_script or _reads_a_script(argv):
            self.read(text, line, depth + 1)
        elif _program(argv) == "crontab":
            self.read(shell_words.without_schedules(text), line, depth + 1)
            self.judge.query(argv, text, line + 1)
        elif language_of(argv) and shell_words.reads_stdin(argv):
            self._code(language_of(argv), text, line, depth)
        elif argv:
            self.judge.query(argv, text, line + 1)

    def _function(self, node: Node, line: int) -> None:
        """A fork bomb: a function that starts itself twice, piped or in the background."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        own = [c for c in self._commands_of(body) if self._plain(c)[:1] == [_text(name)]]
        piped = [c for c in own if c.parent is not None and c.parent.type == "pipeline"]
        if len(piped) >= 2 or (len(own) >= 2 and "&" in [c.type for c in body.children]):
            self.judge.command(["fork-bomb"], self.scene, line + 1)

    def _commands_of(self, node: Node) -> Iterator[Node]:
        return (part for part in self._walk(node, until="command") if part.type == "command")

    def _walk(self, node: Node, until: str = "") -> Iterator[Node]:
        """The node and all nodes below it, in order, but none below a node of the type ``until``.

        It does not recurse, because the tree of a hostile text is thousands deep.
        """
        stack = [node]
        while stack:
            part = stack.pop()
            yield part
            if part.type != until:
                stack.extend(reversed(self._children(part)))

    def _children(self, node: Node) -> list[Node]:
        """The named children of a node; above the limit of nodes, none and a fault."""
        self.work.nodes += node.child_count
        if self.work.nodes <= NODES_MAX:
            return node.named_children
        self.work.nodes = NODES_MAX
        self.fault = "shell text left unread: its parts are looked at too many times"
        return []


def _too_much(script: str, depth: int) -> str:
    """The limit that a script exceeds before it is parsed, or ""."""
    if depth > DEPTH_MAX:
        return f"shell text in shell text, more than {DEPTH_MAX} deep"
    if len(script) > SCRIPT_CHARS_MAX:
        return f"shell text of {len(script)} characters: more than {SCRIPT_CHARS_MAX}"
    if script.count("<<") > HEREDOCS_MAX:
        return f"shell text with more than {HEREDOCS_MAX} heredocs"
    if any(len(line) > LINE_CHARS_MAX for line in script.split("\n")):
        return f"shell text with a line of more than {LINE_CHARS_MAX} characters"
    return ""


def _program(argv: list[str]) -> str:
    return base_name(argv[0]) if argv else ""


def _reads_a_script(argv: list[str]) -> bool:
    return _program(argv) in SHELLS and shell_words.reads_stdin(argv)


def _pieces(script: str) -> Iterator[tuple[int, str]]:
    """(first line from 0, text) of pieces for the parser, cut where a line ends a command."""
    piece: list[str] = []
    size = first = 0
    goes_on = False
    for number, line in enumerate(script.split("\n")):
        if size + len(line) > PIECE_CHARS_MAX and piece and not goes_on:
            yield first, "".join(piece)
            piece, size, first = [], 0, number
        piece.append(line + "\n")
        size += len(line) + 1
        if goes_on and _EMPTY.match(line):
            continue  # after "|" the command may follow after comments and empty lines
        goes_on = _GOES_ON.search(line) is not None
    if piece:
        yield first, "".join(piece)


def _braces(text: str) -> list[str]:
    """The words of an unquoted ``a{b,c}``, ab and ac; none of any other text."""
    found = _BRACES.fullmatch(text)
    return [found[1] + each + found[3] for each in found[2].split(",")] if found else []


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
