"""Finds calls and settings in Python that let an attacker in.

It judges what linters cannot: whether the text that reaches a shell, a database or ``eval`` is built at run time.
``python_names`` tells how a name got its value.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from council.agents.mind import RiskLevel
from council.agents.scan.personal import words
from council.agents.scan.python_checks import dotted
from council.agents.scan.python_hunks import PythonPiece
from council.agents.scan.python_names import NameFacts, joined, keyword, last_of
from council.agents.scan.secrets import find_tokens, named_secret
from council.agents.scan.shell_words import SHELLS, base_name

KEY_CHARS_MIN = 16  # a shorter text can't be recognised as a key by itself

_SQL = re.compile(
    r"\s*(select|insert|update|delete|drop|alter|create|truncate|replace|merge|with|grant|call|exec|pragma)\s",
    re.IGNORECASE,
)  # fmt: skip
_SQL_SINKS = words(
    "execute executemany executescript raw text read_sql read_sql_query fetch fetchrow fetchval execute_sql RawSQL "
    "mogrify exec_driver_sql"
)
_RUNS_WORDS = ("create_subprocess_exec", "exec", "spawn")  # with os.execvp, os.spawnlp and the like
_SUBPROCESS = words("run call Popen check_call check_output")
_SHELLS = words(
    "os.system os.popen subprocess.getoutput subprocess.getstatusoutput commands.getoutput popen2.popen2 "
    "asyncio.create_subprocess_shell create_subprocess_shell"
)
_PICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal"}
_SAFE_YAML = re.compile(r"(^|\.)C?(Safe|Base)Loader$")
_UNVERIFIED = "an unverified TLS context accepts any certificate"
_SWITCHES = ("verify", "verify_ssl", "verify_certs", "check_hostname", "ssl_verify", "verify_signature")
_CALLS_WITH_SSL = words(
    "get post put patch delete head options request ws_connect TCPConnector ClientSession"
)
_FOREIGN = re.compile(
    r"(?i)(request|body|payload|recv|sock|upload|message|cookie|input|param|remote|client|data)"
)

# The sources of a name's value: a file that is read here, and what certainly comes from elsewhere.
_LOCAL = re.compile(r"\bopen\(|\.read_bytes\(|\bdumps\(")
_OUTSIDE = re.compile(
    r"(?i)\b(request|response|urlopen|recv\w*|sock\w*|payload|upload\w*|message|stdin|b64decode|redis|websocket)\b"
)

_FED = re.compile(
    r"\brequest\.(?:args|form|json|values|data|GET|POST|query\w*|body|cookies|files|headers|get_json)\b|"
    r"\binput\(|\bsys\.argv\b|\.recv(?:from)?\("
)


@dataclass(frozen=True, slots=True)
class PythonDanger:
    """One dangerous place. ``key`` is the same for the same code in any place."""

    line: int
    end_line: int
    rule: str
    message: str
    risk: RiskLevel
    sure: bool
    key: str


def fresh_dangers(
    old: Sequence[PythonPiece], new: Sequence[PythonPiece], *, is_test: Callable[[str], bool]
) -> Iterator[tuple[PythonPiece, int, PythonDanger]]:
    """The dangers that the new pieces of a change have and the old ones lack, each with its piece and line."""
    inherited = Counter(danger.key for piece in old for danger in dangers(piece.tree, is_test=False))
    for piece in new:
        for danger in dangers(piece.tree, is_test=is_test(piece.path) and not _is_misnamed(piece)):
            line = piece.line_of(danger.line, danger.end_line)
            if inherited[danger.key] > 0:
                inherited[danger.key] -= 1
            elif line:
                yield piece, line, danger


def _is_misnamed(piece: PythonPiece) -> bool:
    """Whether a file outside of the tests' folders is named test_… but, seen whole, holds no test."""
    if not piece.is_whole or re.search(r"(?:^|/)(?:tests?|testing|specs?|fixtures?|mocks?|e2e)/", piece.path):
        return False
    defined = (
        node for node in ast.walk(piece.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return not any(node.name.startswith("test") or node.decorator_list for node in defined)


def dangers(tree: ast.Module, *, is_test: bool) -> list[PythonDanger]:
    """The dangerous places of a tree. In tests they weigh less, because the input is the author's own."""
    names = NameFacts(tree)
    found: list[PythonDanger] = []
    for node in ast.walk(tree):
        for rule, message, risk, sure in _judge(node, names):
            if is_test and not (rule in ("eval", "shell") and _is_fed(node, names)):
                is_code = rule in ("eval", "shell", "sql")
                risk, sure = ("med" if is_code and risk == "high" else "low"), False
            line = getattr(node, "lineno", 0)
            end_line = getattr(node, "end_lineno", None) or line
            found.append(PythonDanger(line, end_line, rule, message, risk, sure, f"{rule}:{ast.dump(node)}"))
    return found


def _is_fed(node: ast.AST, names: NameFacts) -> bool:
    """Whether a call's arguments hold input from an outside caller, so not a test's own input."""
    return isinstance(node, ast.Call) and any(_FED.search(names.behind(value)) for value in node.args[:2])


_Verdict = tuple[str, str, RiskLevel, bool]


def _judge(node: ast.AST, names: NameFacts) -> Iterator[_Verdict]:
    if isinstance(node, ast.Call):
        yield from _judge_code(node, names)
        yield from _judge_shell(node, names)
        yield from _judge_sql(node, names)
        yield from _judge_loading(node, names)
    yield from _judge_certificates(node, names)
    yield from _judge_secrets(node)


def _judge_code(call: ast.Call, names: NameFacts) -> Iterator[_Verdict]:
    name = names.called(call).removeprefix("builtins.").removeprefix("__builtins__.")
    if name in ("eval", "exec") and call.args and name not in names.defined:
        first = call.args[0]
        if isinstance(first, ast.Call) and dotted(first.func) == "compile" and first.args:
            first = first.args[0]
        if names.kind(first) != "constant":
            yield "eval", f"calls {name} on what is no literal", "high", True


def _judge_shell(call: ast.Call, names: NameFacts) -> Iterator[_Verdict]:
    name = names.called(call)
    last = name.rsplit(".", 1)[-1]
    first = call.args[0] if call.args else keyword(call, "args", names) or keyword(call, "cmd", names)
    shell = keyword(call, "shell", names)
    shell = names.resolve(shell) if shell is not None else None
    has_shell = isinstance(shell, ast.Constant) and shell.value in (True, 1)
    if first is None:
        if has_shell:
            yield "shell", "sets shell=True for a command that is not in sight", "med", False
        return
    command: ast.expr | None = first
    is_known = name.startswith("subprocess.") or last in _SUBPROCESS or last.startswith(_RUNS_WORDS)
    if name in _SHELLS:
        how, is_known = f"hands {last}", True
    elif has_shell:
        how = f"{last}(…, shell=True) with"
    else:
        program, command = _handed_to_shell([first, *call.args[1:]], names)
        how = f"{last}(…) has {program} -c run"
    if command is not None and names.kind(command) != "constant":
        yield "shell", f"{how} a command that is no literal", "high" if is_known else "med", is_known


def _handed_to_shell(args: Sequence[ast.expr], names: NameFacts) -> tuple[str, ast.expr | None]:
    """The text after ``sh -c`` in a command given word by word, as a list or as arguments."""
    words = [item for arg in args for item in names.items(arg) or [arg]]
    said = [str(word.value) if isinstance(word, ast.Constant) else "" for word in words]
    for at, word in enumerate(said):
        program = base_name(word).removesuffix(".exe")
        if program not in SHELLS:
            continue
        for before, option, command in zip(said[at:], said[at + 1 :], words[at + 2 :], strict=False):
            if re.fullmatch(r"-[a-z]{0,8}c", option):
                return program, command
            if option[:1] not in ("-", "+") and before not in ("-o", "+o", "-O"):
                break
    return "", None


def _judge_sql(call: ast.Call, names: NameFacts) -> Iterator[_Verdict]:
    last = names.called(call).rsplit(".", 1)[-1]
    if last not in _SQL_SINKS or not call.args:
        return
    query = names.resolve(call.args[0])
    if isinstance(query, ast.Call) and dotted(query.func).rsplit(".", 1)[-1] in _SQL_SINKS:
        return  # text(...) inside execute(...) is judged separately
    text = names.text(query)
    if last in ("text", "raw", "fetch") and not text.lstrip()[:4].isupper():
        return  # labels and pages have methods with these names too, but their words are not in capitals
    if names.kind(query) == "built" and _SQL.match(text):
        yield "sql", "builds SQL from a string, so that its input can change the statement", "high", True


def _judge_loading(call: ast.Call, names: NameFacts) -> Iterator[_Verdict]:
    name = names.called(call)
    module, _, last = name.rpartition(".")
    if module in _PICKLES and last in ("load", "loads", "Unpickler") and call.args:
        behind = names.behind(call.args[0])
        is_foreign = bool(_FOREIGN.search(ast.unparse(call.args[0])[:400]) or _OUTSIDE.search(behind))
        # Bytes of unknown origin may come from outside. A file that is opened here belongs to the program.
        is_open = last == "loads" and not _LOCAL.search(behind)
        what = "from outside" if is_foreign else "whose origin is not visible"
        risk: RiskLevel = "high" if is_foreign or is_open else "med"
        yield "pickle", f"{name} of data {what} can run any code", risk, is_foreign
    if module in ("yaml", "ruamel.yaml"):
        loader = keyword(call, "Loader") or (call.args[1] if len(call.args) > 1 else None)
        is_safe = loader is not None and bool(_SAFE_YAML.search(names.origin(dotted(loader))))
        if last in ("unsafe_load", "unsafe_load_all") or (last in ("load", "load_all") and not is_safe):
            yield "yaml", f"{name} without a safe loader can build any object", "high", True


def _judge_certificates(node: ast.AST, names: NameFacts) -> Iterator[_Verdict]:
    if isinstance(node, ast.Call):
        message = _unverified_call(node, names)
    elif isinstance(node, ast.Assign):
        message = _unverified_setting(node, names)
    else:
        pairs = _pairs(node) if isinstance(node, ast.Dict) else []
        switches = [name for name, value in pairs if name in _SWITCHES and _is_false(value, names)]
        switches = [name for name in switches if name != "verify" or names.speaks_http]
        message = f"{switches[-1]}: False turns a check of certificates or signatures off" if switches else ""
    if message:
        yield "certificate", message, "high", True


def _unverified_call(node: ast.Call, names: NameFacts) -> str:
    for name in _SWITCHES:
        if _is_false(keyword(node, name), names):
            return f"{name}=False turns a check of certificates or signatures off"
    last = last_of(node.func)
    is_set = last == "setattr" and len(node.args) == 3 and _is_false(node.args[2], names)
    if is_set and joined(node.args[1]) in _SWITCHES:
        return f"{joined(node.args[1])} = False turns the check of certificates off"
    algorithms = keyword(node, "algorithms")
    listed = algorithms.elts if isinstance(algorithms, ast.List | ast.Tuple | ast.Set) else []
    if last_of(keyword(node, "cert_reqs")) == "CERT_NONE":
        return "cert_reqs=CERT_NONE turns the check of certificates off"
    if last in _CALLS_WITH_SSL and _is_false(keyword(node, "ssl"), names):
        return f"{last}(ssl=False) turns the check of certificates off"
    if last == "decode" and any(isinstance(item, ast.Constant) and item.value == "none" for item in listed):
        return "the algorithm none accepts tokens that nobody signed"
    return _UNVERIFIED if last == "_create_unverified_context" else ""


def _unverified_setting(node: ast.Assign, names: NameFacts) -> str:
    target, name, value = node.targets[0], last_of(node.targets[0]), last_of(node.value)
    is_switch = isinstance(target, ast.Attribute) and name in ("check_hostname", "verify", "verify_ssl")
    if is_switch and _is_false(node.value, names):
        return f"{name} = False turns the check of certificates off"
    if name == "verify_mode" and value == "CERT_NONE":
        return "CERT_NONE turns the check of certificates off"
    return _UNVERIFIED if value == "_create_unverified_context" else ""


def _judge_secrets(node: ast.AST) -> Iterator[_Verdict]:
    """Keys that can be recognised by themselves, or by the name they are assigned to; the latter are only likely."""
    text = joined(node) if isinstance(node, ast.Constant | ast.BinOp) else None
    if text is not None:
        if len(text) >= KEY_CHARS_MIN and any(f.grade == "sure" for f in find_tokens(text)):
            yield "secret", "holds a key in plain text", "high", True
        return
    for name, given in _pairs(node):
        value = joined(given)
        if value is None:
            continue
        grade = named_secret(name, value)
        if grade == "sure" and not any(finding.grade == "sure" for finding in find_tokens(value)):
            yield "secret", f"holds a key in plain text ({name[:60]})", "high", True
        elif grade == "likely":
            yield "secret", f"may hold a password in plain text ({name[:60]})", "med", False


def _pairs(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """The pairs of names and values that a node assigns."""
    match node:
        case ast.Assign():
            return [(last_of(target), node.value) for target in node.targets]
        case ast.AnnAssign():
            return [(last_of(node.target), node.value)]
        case ast.keyword():
            return [(node.arg or "", node.value)]
        case ast.Dict():
            keys = [str(key.value) if isinstance(key, ast.Constant) else "" for key in node.keys]
            return list(zip(keys, node.values, strict=True))
    return []


def _is_false(node: ast.AST | None, names: NameFacts) -> bool:
    """Whether a value is False: literally, as 0 in an HTTP setting, or through a name that has no other value."""
    given = names.values.get(node.id) if isinstance(node, ast.Name) else None
    if given:
        return all(isinstance(value, ast.Constant) and _is_false(value, names) for value in given)
    if not isinstance(node, ast.Constant):
        return False
    return node.value is False or (names.speaks_http and node.value == 0 and isinstance(node.value, int))
