"""Finds dangerous commands in shell scripts, by parsing them. Knows nothing of diffs, files or ballots.

The script is parsed (tree-sitter), each command's words are evaluated as far as its text tells, and rules
judge the command: `echo "rm -rf /"`, a comment or a heredoc for cat are not commands. Followed are lists,
pipelines, subshells, substitutions, functions, `sh -c '…'`, `eval`, `ssh host …`, heredocs fed to a shell,
and prefixes such as sudo, env, xargs, timeout. Variables are known where the script assigns them a literal.

The rules for single programs are in shellrules.py. No finding repeats the command's own text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from council.agents import shellrules
from council.agents.remoterules import Grade, judge_sql
from council.agents.shellrules import DOWNLOADERS, INTERPRETERS, SHELLS, Scene, base_name

SCRIPT_CHARS_MAX = 64_000  # longer than scripts that people write; a second or two at the very worst
# The parser is quadratic in time and memory for hostile text (`a|a|…`), so it gets the script in pieces, cut
# at line ends: 6,000 characters cost 0.2 s at most. What is cut apart is read by its error recovery.
PIECE_CHARS_MAX = 6_000
HEREDOCS_MAX = 200  # each costs a scan of all that follows: 200 take milliseconds, 20,000 take 9 s
COMMANDS_MAX = 20_000  # a script of the greatest length holds hardly more
DEPTH_MAX = 6  # sh -c in sh -c …: nobody nests deeper to be read
VALUE_CHARS_MAX = 512  # of a variable: paths and options are shorter
WORD_PARTS_MAX = 200  # pieces of one word that are evaluated

# The grammar looks characters up in C's tables, and reads beyond their end for those above ASCII: it crashed on
# some. No rule asks what they are, only that a word with one is no other word: X is in no rule's word.
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_LANGUAGE = Language(tree_sitter_bash.language())


@dataclass(frozen=True, slots=True)
class Danger:
    """A command that harms or may harm. ``grade``: ``destructive`` is certain to when run; ``risky`` needs
    a justification that a static check can't see; ``notable`` deserves a mention. ``line`` counts from 1.
    """

    kind: str
    grade: Grade
    line: int


@dataclass(frozen=True, slots=True)
class ShellReading:
    """What a script holds of dangers, in order; ``fault`` says why it was not read, or ""."""

    dangers: tuple[Danger, ...] = ()
    fault: str = ""


def read_shell(script: str, scene: Scene | None = None) -> ShellReading:
    """Every dangerous command in ``script``. Never raises; a script past a limit is a fault, not a pass.

    ``scene`` is what is known before it runs, and is brought up to what it leaves: for a script in parts.
    """
    script = script.replace("\r\n", "\n").replace("\r", " ")  # else "/\r" would be another word than "/"
    if len(script) > SCRIPT_CHARS_MAX:
        return ShellReading(fault=f"shell text of {len(script)} characters: more than {SCRIPT_CHARS_MAX}")
    if script.count("<<") > HEREDOCS_MAX:
        return ShellReading(fault=f"shell text with more than {HEREDOCS_MAX} heredocs")
    if any(len(line) > PIECE_CHARS_MAX for line in script.split("\n")):
        return ShellReading(fault=f"shell text with a line of more than {PIECE_CHARS_MAX} characters")
    reader = _Reader(scene or Scene())
    reader.read(script, 0, 0)
    unique = dict.fromkeys(sorted(reader.dangers, key=lambda danger: danger.line))
    fault = "" if reader.commands < COMMANDS_MAX else f"shell text with more than {COMMANDS_MAX} commands"
    return ShellReading(tuple(unique), fault)


class _Reader:
    """Walks one script and what is nested in it."""

    def __init__(self, scene: Scene) -> None:
        self.dangers: list[Danger] = []
        self.scene = scene
        self.commands = 0
        self._parser = Parser(_LANGUAGE)

    def read(self, script: str, line: int, depth: int) -> None:
        """Reads a script whose first line is ``line`` (from 0) of the outermost."""
        if depth > DEPTH_MAX or len(script) > SCRIPT_CHARS_MAX or script.count("<<") > HEREDOCS_MAX:
            return
        for at, piece in _pieces(_FOREIGN.sub("X", script.replace("\0", " "))):
            root = self._parser.parse(piece.encode("ascii")).root_node
            # A stack, not recursion: the tree of a hostile text is thousands deep.
            stack = [root]
            while stack and self.commands < COMMANDS_MAX:
                node = stack.pop()
                self._visit(node, line if depth else at, depth)
                stack.extend(reversed(node.named_children))

    def add(self, kind: str, grade: Grade, line: int) -> None:
        self.dangers.append(Danger(kind, grade, line + 1))

    def _visit(self, node: Node, base: int, depth: int) -> None:
        line = base + (node.start_point.row if depth == 0 else 0)
        if node.type == "command":
            self.commands += 1
            self._command(node, line, depth)
        elif node.type == "variable_assignment":
            self._assign(node)
        elif node.type == "for_statement":
            name = node.child_by_field_name("variable")
            if name is not None:
                self.scene.variables[_text(name)] = "${item}"
        elif node.type == "pipeline":
            self._pipeline(node, line, depth)
        elif node.type == "redirected_statement":
            self._redirected(node, line, depth)
        elif node.type == "file_redirect":
            self._redirect(node, line)
        elif node.type == "function_definition":
            self._function(node, line)
        elif node.type == "test_command":
            self.scene.looked_at.update(shellrules.variables_in(_text(node)[:VALUE_CHARS_MAX]))

    def _assign(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and node.parent is not None and node.parent.type != "command":
            # Cut, since A=$A$A thirty times over would fill the memory.
            self.scene.variables[_text(name)] = "" if value is None else self.word(value)[:VALUE_CHARS_MAX]

    def _command(self, node: Node, line: int, depth: int) -> None:
        argv = self.argv(node)
        for kind, grade in shellrules.prefixes(argv):
            self.add(kind, grade, line)
        argv = shellrules.unwrap(argv)
        if not argv:
            return
        if argv[0] in SHELLS:
            for child in node.named_children:
                if child.type == "herestring_redirect":
                    self.read(self.word(child), line, depth + 1)
        for nested in shellrules.nested_scripts(argv):
            self.read(nested, line, depth + 1)
        if argv[0] == "test" or any(":?" in word for word in argv):  # `: "${X:?}"` stops where X is empty
            self.scene.looked_at.update(shellrules.variables_in(_text(node)[:VALUE_CHARS_MAX]))
        for kind, grade in shellrules.judge(argv, self.scene):
            self.add(kind, grade, line)

    def argv(self, node: Node) -> list[str]:
        """The command's words as far as the text tells; unknown parts stay ``${name}`` or ``$(program)``."""
        words = []
        for child in node.named_children:
            if child.type == "command_name":
                words.append(self.word(child.named_children[0]) if child.named_children else _text(child))
            elif child.type not in {"variable_assignment", "file_redirect", "herestring_redirect", "comment"}:
                words.append(self.word(child))
        return words

    def word(self, node: Node) -> str:
        """A word's value. Substitutions are not entered here: the walk visits them by itself."""
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
                case "string" if not part.named_children:
                    out.append(_text(part)[1:-1])
                case _ if part.named_children:
                    stack.extend(reversed(part.named_children))
                case _:
                    out.append(_text(part))
        return "".join(out)

    def _expansion(self, node: Node) -> str:
        name = next(
            (_text(c) for c in node.named_children if c.type == "variable_name"), _text(node).strip("${}")
        )
        text = _text(node)
        if name in self.scene.variables:
            return self.scene.variables[name]
        if ":?" in text or "?" in text[len(name) + 2 : len(name) + 3]:
            return f"${{{name}:?}}"
        default = text[len(name) + 2 : -1] if text.startswith("${") else ""
        if default.startswith((":-", ":=", "-", "=")):
            value = default.lstrip(":")[1:].strip("\"'")
            return value or f"${{{name}}}"
        return f"${{{name}}}"

    def _runs(self, node: Node) -> str:
        """The name of the program in a substitution: of a downloader if there is one."""
        names: list[str] = []
        stack = list(reversed(node.named_children))
        while stack and len(names) < WORD_PARTS_MAX:
            part = stack.pop()
            if part.type == "command":
                argv = shellrules.unwrap(self._plain(part))
                names.append(base_name(argv[0]) if argv else "")
            stack.extend(reversed(part.named_children))
        return next((name for name in names if name in DOWNLOADERS), names[0] if names else "")

    @staticmethod
    def _plain(node: Node) -> list[str]:
        """A command's words as written, quotes off: enough to see which program it runs."""
        words = [c for c in node.named_children if c.type != "variable_assignment"]
        return [_text(child).strip("\"'").replace("\\", "") for child in words[:12]]

    def _pipeline(self, node: Node, line: int, depth: int) -> None:
        """What flows into an interpreter: a download, decoded text, or a literal that is a script itself."""
        feed = ""
        for command in _pipe_parts(node):
            argv = shellrules.unwrap(self.argv(command))
            name = base_name(argv[0]) if argv else ""
            if name in DOWNLOADERS:
                feed = "download"
            elif name in {"base64", "base32", "xxd"} and any(
                a in {"-d", "-D", "--decode", "-r"} for a in argv
            ):
                feed = feed if feed == "download" else "decoded"
            elif name in {"echo", "printf"} and not feed:
                feed = "text:" + " ".join(a for a in argv[1:] if not a.startswith("-") and "%s" not in a)
            elif name in INTERPRETERS and shellrules.reads_stdin(argv):
                if feed == "download":
                    self.add(f"runs a download unread (piped into {name})", "destructive", line)
                elif feed == "decoded":
                    self.add(f"runs hidden code (decoded, then piped into {name})", "destructive", line)
                elif feed.startswith("text:") and name in SHELLS:
                    self.read(feed[5:], line, depth + 1)
                feed = ""
            elif feed.startswith("text:") and name in shellrules.SQL_CLIENTS:
                for kind, grade in judge_sql(feed[5:], " ".join(argv)):
                    self.add(kind, grade, line)

    def _redirected(self, node: Node, line: int, depth: int) -> None:
        """A heredoc or here-string is a script when a shell reads it, SQL when a database client does."""
        body = node.child_by_field_name("body")
        if body is None or body.type not in {"command", "pipeline", "list"}:
            return
        command = body if body.type == "command" else next(iter(_commands_of(body)), None)
        argv = shellrules.unwrap(self.argv(command)) if command is not None else []
        name = base_name(argv[0]) if argv else ""
        takes_input = name == "ssh" or (name in SHELLS and shellrules.reads_stdin(argv))
        if name in SHELLS and "-i" in argv and "/dev/tcp/" in _text(node)[:VALUE_CHARS_MAX]:
            self.add("opens a remote shell (/dev/tcp)", "destructive", line)
        for redirect in node.named_children:
            if redirect.type == "heredoc_redirect":
                text = "".join(_text(c) for c in redirect.named_children if c.type == "heredoc_body")
                readers = [shellrules.unwrap(self.argv(c)) for c in _commands_of(redirect)]
                takes_input = takes_input or any(
                    r and base_name(r[0]) in SHELLS and shellrules.reads_stdin(r) for r in readers
                )
            elif redirect.type == "herestring_redirect":
                text = self.word(redirect)
            else:
                continue
            if takes_input:
                self.read(text, line, depth + 1)
            elif name in shellrules.SQL_CLIENTS:
                for kind, grade in judge_sql(text, " ".join(argv)):
                    self.add(kind, grade, line)

    def _redirect(self, node: Node, line: int) -> None:
        target = node.child_by_field_name("destination")
        operator = node.children[0].type if node.children else ""
        if operator.isdigit() or operator == "file_descriptor":
            operator = node.children[1].type if len(node.children) > 1 else ""
        if target is None or not operator.startswith((">", "&>")):
            return
        for kind, grade in shellrules.judge_write(self.word(target), append=">>" in operator):
            self.add(kind, grade, line)

    def _function(self, node: Node, line: int) -> None:
        """A fork bomb: a function that starts itself twice, piped or in the background."""
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is None or body is None:
            return
        own = [c for c in _commands_of(body) if self._plain(c)[:1] == [_text(name)]]
        piped = [c for c in own if c.parent is not None and c.parent.type == "pipeline"]
        if len(piped) >= 2 or (len(own) >= 2 and "&" in [c.type for c in body.children]):
            self.add("fork bomb", "destructive", line)


def _pieces(script: str) -> Iterator[tuple[int, str]]:
    """(first line from 0, text) of pieces that the parser can be given, cut at line ends."""
    piece: list[str] = []
    size = first = 0
    for number, line in enumerate(script.split("\n")):
        if size + len(line) > PIECE_CHARS_MAX and piece:
            yield first, "".join(piece)
            piece, size, first = [], 0, number
        piece.append(line[:PIECE_CHARS_MAX] + "\n")
        size += len(line) + 1
    if piece:
        yield first, "".join(piece)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _pipe_parts(node: Node) -> Iterator[Node]:
    """The commands of a pipeline in order, redirected ones and those in braces included."""
    for child in node.named_children:
        if child.type == "command":
            yield child
        elif child.type in {"redirected_statement", "subshell", "compound_statement"}:
            yield from _commands_of(child)


def _commands_of(node: Node) -> Iterator[Node]:
    stack, seen = list(reversed(node.named_children)), 0
    while stack and seen < WORD_PARTS_MAX:
        part = stack.pop()
        seen += 1
        if part.type == "command":
            yield part
        else:
            stack.extend(reversed(part.named_children))
