"""Finds dangerous commands in shell scripts by parsing them.

The script is parsed (tree-sitter), each command's words are evaluated as far as the text allows, and rules judge the
command. `echo "rm -rf /"`, a comment or a heredoc for cat are not commands. The reader follows lists, pipelines,
subshells, substitutions, functions, `sh -c '…'`, `eval`, `ssh host …`, heredocs that a shell reads, and prefixes such
as sudo, env, xargs, timeout. Variables are known if the script assigns them a literal.

``shell_rules`` has the rules for single programs. No finding repeats the command's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree

from council.agents.scan import shell_rules
from council.agents.scan.remote_rules import Grade, Judgement, judge_sql
from council.agents.scan.shell_rules import DOWNLOADERS, INTERPRETERS, SHELLS, SQL_CLIENTS, Scene, base_name

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
COMMANDS_MAX = 20_000  # a script of the greatest length has hardly more
DEPTH_MAX = 6  # sh -c in sh -c …: nobody who wants to be read nests deeper
VALUE_CHARS_MAX = 4_000  # of a variable: usage texts are shorter
NODE_CHARS = 50  # an expanded variable counts as one node for so many characters of its value
WORD_PARTS_MAX = 200  # pieces of one word that are evaluated
# A pipeline in a piece starts with one of these words if the compound command that it ends began in an earlier piece.
_ENDS = {"}", "fi", "done", "esac"}
_ENDS_SUBSHELL = re.compile(r"\)\s*\|")
_CUT = "shell text left unread: a pipeline that starts too far above its end"
_DECODES = {"-d", "-D", "--decode", "-r"}

# The grammar uses C's character tables, and reads beyond their end for characters above ASCII: it crashed on some. No
# rule needs such a character, only that a word with one equals no other word. X is in no rule's word.
_FOREIGN = re.compile(r"[^\x00-\x7f]")
# The end of a line whose command continues in the next line. A comment may follow.
_GOES_ON = re.compile(r"\\$|(?:[|]&?|&&)[ \t]*(?:#.*)?$")
_EMPTY = re.compile(r"[ \t]*(?:#.*)?$")
_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(frozen=True, slots=True)
class ShellDanger:
    """A command that harms or may harm. ``line`` counts from 1.

    ``grade``: ``destructive`` certainly harms when run; ``risky`` needs a justification that a static check can't
    see; ``notable`` deserves a mention.
    """

    kind: str
    grade: Grade
    line: int


@dataclass(slots=True)
class ParseEffort:
    """The effort of reading: the parser's steps, those repeated to recover from errors, and the listed nodes."""

    steps: int = 0
    repeats: int = 0
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class ShellReading:
    """The dangers in a script, in order; ``fault`` says why it was not read, or is ""."""

    dangers: tuple[ShellDanger, ...] = ()
    fault: str = ""


def read_shell(script: str, scene: Scene | None = None, work: ParseEffort | None = None) -> ShellReading:
    """Every dangerous command in ``script``. Never raises. A script above a limit gives a fault.

    ``scene`` is what is known before it runs, and is updated, for a script in parts. ``work`` counts the effort of
    all scripts of the same case.
    """
    script = script.replace("\r\n", "\n").replace("\r", " ")  # "/\r" would be another word than "/"
    reader = _Reader(scene or Scene(), work or ParseEffort())
    reader.read(script, 0, 0)
    unique = dict.fromkeys(sorted(reader.dangers, key=lambda danger: danger.line))
    fault = reader.fault
    if reader.commands >= COMMANDS_MAX:
        fault = f"shell text with more than {COMMANDS_MAX} commands"
    return ShellReading(tuple(unique), fault)


class _Reader:
    """Walks through one script and the scripts nested in it."""

    def __init__(self, scene: Scene, work: ParseEffort) -> None:
        self.dangers: list[ShellDanger] = []
        self.scene = scene
        self.work = work
        self.commands = 0
        self.fault = ""
        self._parser = Parser(_LANGUAGE)

    def read(self, script: str, line: int, depth: int) -> None:
        """Reads a script whose first line is ``line`` (from 0) of the outermost."""
        if fault := _too_much(script, depth):
            self.fault = fault
            return
        for at, piece in _pieces(_FOREIGN.sub("X", script.replace("\0", " "))):
            tree = self._parsed(piece.encode("ascii"))
            if tree is None:
                return
            for node in self._walk(tree.root_node):
                if self.commands >= COMMANDS_MAX:
                    return
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

    def add(self, line: int, *judgements: Judgement) -> None:
        self.dangers += [ShellDanger(kind, grade, line + 1) for kind, grade in judgements]

    def _visit(self, node: Node, line: int, depth: int) -> None:
        match node.type:
            case "command":
                self.commands += 1
                self._command(node, line, depth)
            case "variable_assignment":
                self._assign(node)
            case "for_statement":
                if name := node.child_by_field_name("variable"):
                    self.scene.set(_text(name), "${item}", VALUE_CHARS_MAX)
            case "pipeline":
                self._pipeline(node, line, depth)
            case "redirected_statement":
                self._redirected(node, line, depth)
            case "file_redirect":
                self._redirect(node, line)
            case "function_definition":
                self._function(node, line)
            case "test_command":
                self._inspect(node)
            case "ERROR" if _ENDS_SUBSHELL.match(_text(node)) and node.next_named_sibling:
                readers = map(self.argv, self._commands_of(node.next_named_sibling))
                if any(_program(self._unwrap(argv)) in INTERPRETERS for argv in readers):
                    self.fault = _CUT

    def _inspect(self, node: Node) -> None:
        self.scene.looked_at.update(shell_rules.variables_in(_text(node)[:VALUE_CHARS_MAX]))

    def _assign(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and node.parent is not None and node.parent.type != "command":
            # Cut, because A=$A$A thirty times over would fill the memory.
            self.scene.set(_text(name), "" if value is None else self.word(value), VALUE_CHARS_MAX)

    def _command(self, node: Node, line: int, depth: int) -> None:
        argv = self.argv(node)
        self.add(line, *shell_rules.prefixes(argv))
        argv = self._unwrap(argv)
        if not argv:
            return
        if argv[0] in SHELLS:
            for child in self._children(node):
                if child.type == "herestring_redirect":
                    self.read(self.word(child), line, depth + 1)
        for nested in shell_rules.nested_scripts(argv):
            self.read(nested, line, depth + 1)
        if argv[0] == "test" or any(":?" in word for word in argv):  # `: "${X:?}"` stops if X is empty
            self._inspect(node)
        self.add(line, *shell_rules.judge(argv, self.scene))

    def _unwrap(self, argv: list[str]) -> list[str]:
        inner = shell_rules.unwrap(argv)
        if inner and shell_rules.is_prefix(inner[0]):
            self.fault = f"shell text left unread: more than {shell_rules.PREFIXES_MAX} prefixes of a command"
        return inner

    def argv(self, node: Node) -> list[str]:
        """The command's words as far as they are known; unknown parts stay ``${name}`` or ``$(program)``."""
        words = []
        for child in self._children(node):
            if child.type == "command_name":
                parts = self._children(child)
                words.append(self.word(parts[0]) if parts else _text(child))
            elif child.type not in {"variable_assignment", "file_redirect", "herestring_redirect", "comment"}:
                words.append(self.word(child))
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
                    out.append(f"$({self._runs(part)})")
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
        if name in self.scene.cut:
            self.fault = f"shell text left unread: a variable of more than {VALUE_CHARS_MAX} characters"
        if name in self.scene.variables:
            self.work.nodes += len(self.scene.variables[name]) // NODE_CHARS
            return self.scene.variables[name]
        if ":?" in text or "?" in text[len(name) + 2 : len(name) + 3]:
            return f"${{{name}:?}}"
        default = text[len(name) + 2 : -1] if text.startswith("${") else ""
        value = default.lstrip(":")[1:].strip("\"'") if default.startswith((":-", ":=", "-", "=")) else ""
        return value or f"${{{name}}}"

    def _runs(self, node: Node) -> str:
        """The name of the program in a substitution; a downloader's, if there is one."""
        commands = (part for part in self._walk(node) if part.type == "command")
        names = [_program(self._unwrap(self._plain(c))) for c in commands]
        return next((name for name in names if name in DOWNLOADERS), names[0] if names else "")

    def _plain(self, node: Node) -> list[str]:
        """A command's words as written, without quotes: enough to see which program it runs."""
        words = [c for c in self._children(node) if c.type != "variable_assignment"]
        return [_text(child).strip("\"'").replace("\\", "") for child in words]

    def _pipeline(self, node: Node, line: int, depth: int) -> None:
        """The input of an interpreter: a download, decoded text, or a literal script."""
        feed = ""
        for command in self._pipe_parts(node):
            argv = self._unwrap(self.argv(command))
            name = _program(argv)
            if name in DOWNLOADERS:
                feed = "download"
            elif name in _ENDS:
                feed = "unseen"
            elif name in {"base64", "base32", "xxd"} and not _DECODES.isdisjoint(argv):
                feed = feed if feed == "download" else "decoded"
            elif name in {"echo", "printf"} and not feed:
                feed = "text:" + " ".join(a for a in argv[1:] if not a.startswith("-") and "%s" not in a)
            elif name in INTERPRETERS and shell_rules.reads_stdin(argv):
                if feed == "download":
                    self.add(line, (f"runs a download unread (piped into {name})", "destructive"))
                elif feed == "decoded":
                    self.add(line, (f"runs hidden code (decoded, then piped into {name})", "destructive"))
                elif feed.startswith("text:") and name in SHELLS:
                    self.read(feed[5:], line, depth + 1)
                elif feed == "unseen":
                    self.fault = _CUT
                feed = ""
            elif feed.startswith("text:") and name in SQL_CLIENTS:
                self.add(line, *judge_sql(feed[5:], " ".join(argv)))

    def _redirected(self, node: Node, line: int, depth: int) -> None:
        """A heredoc or here-string is a script if a shell reads it, and SQL if a database client does."""
        body = node.child_by_field_name("body")
        if body is None or body.type not in {"command", "pipeline", "list"}:
            return
        command = body if body.type == "command" else next(iter(self._commands_of(body)), None)
        argv = self._unwrap(self.argv(command)) if command is not None else []
        name = _program(argv)
        takes_input = name == "ssh" or _reads_a_script(argv)
        if name in SHELLS and "-i" in argv and "/dev/tcp/" in _text(node):
            self.add(line, ("opens a remote shell (/dev/tcp)", "destructive"))
        for redirect in self._children(node):
            if redirect.type == "heredoc_redirect":
                text = "".join(_text(c) for c in self._children(redirect) if c.type == "heredoc_body")
                readers = (self._unwrap(self.argv(c)) for c in self._commands_of(redirect))
                takes_input = takes_input or any(map(_reads_a_script, readers))
            elif redirect.type == "herestring_redirect":
                text = self.word(redirect)
            else:
                continue
            if takes_input:
                self.read(text, line, depth + 1)
            elif name in SQL_CLIENTS:
                self.add(line, *judge_sql(text, " ".join(argv)))

    def _redirect(self, node: Node, line: int) -> None:
        target = node.child_by_field_name("destination")
        operator = node.children[0].type if node.children else ""
        if operator.isdigit() or operator == "file_descriptor":
            operator = node.children[1].type if len(node.children) > 1 else ""
        if target is not None and operator.startswith((">", "&>")):
            self.add(line, *shell_rules.judge_write(self.word(target), append=">>" in operator))

    def _function(self, node: Node, line: int) -> None:
        """A fork bomb: a function that starts itself twice, piped or in the background."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        own = [c for c in self._commands_of(body) if self._plain(c)[:1] == [_text(name)]]
        piped = [c for c in own if c.parent is not None and c.parent.type == "pipeline"]
        if len(piped) >= 2 or (len(own) >= 2 and "&" in [c.type for c in body.children]):
            self.add(line, ("fork bomb", "destructive"))

    def _pipe_parts(self, node: Node) -> Iterator[Node]:
        """The commands of a pipeline in order, with redirected ones and those in braces."""
        for child in self._children(node):
            if child.type == "command":
                yield child
            elif child.type in {"redirected_statement", "subshell", "compound_statement"}:
                yield from self._commands_of(child)

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
    return _program(argv) in SHELLS and shell_rules.reads_stdin(argv)


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


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
