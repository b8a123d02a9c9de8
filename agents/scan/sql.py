"""Finds what destroys data, gives rights away or leaves the database in SQL, by the table ``rules/sql.yml``.

Statements are parsed with sqlglot, in the client's dialect and then in others. Words inside strings and comments are
data. A statement of a dangerous kind that can't be parsed is asked about.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, groupby
from pathlib import Path

import msgspec
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from council.agents.scan.finding import Finding
from council.agents.scan.rows import Rule, convert, load, shifted

RULES = Path(__file__).parent / "rules" / "sql.yml"
SQL_CHARS_MAX = 20_000
TOKENS_MAX = 3_000  # of the statements of a text that are parsed, which takes 0.1 s
DEPTH_MAX = 60  # of brackets
NODES_MAX = 20_000
_STRINGS = {"STRING", "NATIONAL_STRING", "RAW_STRING", "HEREDOC_STRING"}
# It warns of each statement that it does not know, which is no news here.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


class SqlRow(Rule, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A row of the table. ``match`` is searched in a statement in lower case, without strings and comments."""

    match: str = ""


class SqlTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``dangerous`` is how statements start that must be parsed."""

    dangerous: str
    rows: tuple[SqlRow, ...]


@cache
def table() -> SqlTable:
    """The table. Raises ValueError if it is wrong, with why."""
    return convert(load(RULES), SqlTable, RULES.name)


def findings(text: str, place: str, dialect: str = "", around: str = "") -> list[Finding]:
    """What an SQL text does that is dangerous. Never raises.

    ``around`` is the command that carries it: words such as production raise a weight, such as staging lower it.
    """
    if len(text) > SQL_CHARS_MAX:
        message = f"Not read: SQL of {len(text)} characters, more than {SQL_CHARS_MAX}. Split it."
        return [Finding("sql-unread", "destructive", "ask", place, 0, message)]
    rows = {row.id: row for row in table().rows}
    found: list[Finding] = []
    for id_, line in dict.fromkeys(_ids(text, dialect)):
        row = rows[id_]
        weight = shifted(row.weight, f"{text} {around}") if row.reach else row.weight
        found.append(Finding(id_, row.family, weight or "note", place, line, row.message, row.cwe))
    return found


def _ids(text: str, dialect: str) -> Iterator[tuple[str, int]]:
    """(row, line from 1) of what a text holds."""
    text = _ANALYZES.sub(lambda match: re.sub(r"\S", " ", match[0]), text)  # it runs the statement
    try:
        tokens = sqlglot.tokenize(text, read=dialect or None)
    except (SqlglotError, RecursionError):
        if match := re.search(rf"(?:^|;)\s*{table().dangerous}", text, re.IGNORECASE):
            yield "sql-unparsed", text.count("\n", 0, match.end()) + 1
        return
    left = TOKENS_MAX
    for is_end, each in groupby(tokens, lambda token: token.token_type.name == "SEMICOLON"):
        statement = list(each)
        line = statement[0].line
        names = [token.token_type.name for token in statement]
        bare = " ".join(
            "''" if name in _STRINGS else token.text.lower()
            for name, token in zip(names, statement, strict=True)
        )
        if is_end or re.match(r"(?:explain|describe|desc)\b", bare):
            continue
        matched = [row.id for row in table().rows if row.match and re.search(row.match, bare)]
        yield from ((id_, line) for id_ in matched)
        is_dangerous = re.search(
            rf"(?:^|\(|\bas ){table().dangerous}|^with\b.*\b(?:delete|update)\b|^begin\b", bare
        )
        if not is_dangerous:
            continue
        tree = None
        left -= len(statement)
        # The parser recurses for each bracket, and for each "not".
        depth = max(accumulate((name == "L_PAREN") - (name == "R_PAREN") for name in names))
        if left >= 0 and max(depth, names.count("NOT")) <= DEPTH_MAX:
            tree = _parsed(text[statement[0].start : statement[-1].end + 1], dialect)
        if tree is None or isinstance(tree, exp.Command):
            if not matched and not _KNOWN.match(bare):
                yield "sql-unparsed", line
            continue
        yield from ((id_, line) for id_ in _in_tree(tree))


_ANALYZES = re.compile(
    r"\b(?:explain|desc(?:ribe)?)(?:\s|/\*[^*]{0,200}\*/)+(?:\([^()]{0,200}\banaly[sz]e\b[^()]{0,200}\)|(?:verbose\s+)?analy[sz]e\b(?:\s+verbose\b)?)",
    re.I,
)
# Statements that the parser leaves as they are, and that take nothing away unless a row matches them.
_KNOWN = re.compile(r"(?:alter|grant|revoke|copy|load|create|exec|execute|call|begin|replace)\b")


def _parsed(statement: str, dialect: str) -> exp.Expr | None:
    best = None
    for read in dict.fromkeys((dialect, "", "postgres", "mysql", "tsql")):
        try:
            tree = sqlglot.parse_one(statement, read=read or None)
        except (SqlglotError, RecursionError):
            continue
        if not tree.find(exp.Command):
            return tree
        best = best or tree
    return best


def _in_tree(tree: exp.Expr) -> Iterator[str]:
    for count, node in enumerate(tree.walk()):
        if count > NODES_MAX:
            yield "sql-unparsed"
            return
        match node:
            case exp.Drop():
                kind = node.args.get("kind") or (isinstance(node.parent, exp.Alter) and "column")
                what = str(kind).lower().replace("schema", "database")
                if what in {"column", "database", "table"}:
                    yield f"sql-drop-{what}"
            case exp.TruncateTable():
                yield "sql-drop-table"
            case exp.Delete() | exp.Update():
                where = node.args.get("where")
                if not node.args.get("limit") and (where is None or _always(where.this)):
                    yield "sql-delete-all" if isinstance(node, exp.Delete) else "sql-update-all"


def _always(condition: exp.Expr | None, depth: int = 0) -> bool:
    """Whether a condition holds for every row, as far as it says so itself."""
    if depth > DEPTH_MAX:
        return True
    match condition:
        case exp.Paren():
            return _always(condition.this, depth + 1)
        case exp.Boolean() | exp.Literal():
            return str(condition.this) not in {"", "0", "False"}
        case exp.Or() | exp.And():
            sides = [_always(side, depth + 1) for side in (condition.left, condition.right)]
            return any(sides) if isinstance(condition, exp.Or) else all(sides)
        case exp.Not():
            return isinstance(condition.this, exp.Boolean) and not condition.this.this
        case exp.EQ() | exp.GTE() | exp.LTE():
            return bool(condition.left == condition.right)
        case exp.NEQ():
            both = (condition.left, condition.right)
            return all(isinstance(each, exp.Literal) for each in both) and both[0] != both[1]
        case exp.Like(expression=exp.Literal() as like) | exp.ILike(expression=exp.Literal() as like):
            return not like.name.strip("%")
    return False
