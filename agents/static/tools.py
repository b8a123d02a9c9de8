"""Whether an action's tool writes, pays, sends or deletes, as far as its name and its arguments say so.

Static checks read what a shell, Python, SQL or a file's new text does. Of any other tool they know the name alone.
Frameworks name tools in many ways: ``send_email``, ``sendEmail``, ``stripe.refund``, ``mcp__github__create_issue``.
A name's first verb decides: ``get_payment`` reads, and ``payment_refund`` pays.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Literal, get_args

from council.agents.mind import Case
from council.agents.scan.action import WORDS, Argument, ParsedAction, holds_diff, read_action
from council.agents.scan.rows import word_list

Effect = Literal["deletes", "pays", "sends", "writes"]

_EFFECTS: dict[str, Effect] = {verb: effect for effect in get_args(Effect) for verb in WORDS[effect]}
_READS = WORDS["reads"]
_CONJUNCTIONS = frozenset({"and", "or", "then"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_PARTS = re.compile(r"__|[.:/]")

_METHODS: dict[str, Effect] = {"post": "sends", "put": "writes", "patch": "writes", "delete": "deletes"}
_ACT_CHARS_MAX = 60  # of an argument that names an operation
_MUTATION = re.compile(r"\s*mutation\b")
# Pairs of arguments by lists of their names: a sum and who gets it, a text and who gets that.
_GIVEN: tuple[tuple[Effect, str, str], ...] = (
    ("pays", "sum_keys", "payee_keys"),
    ("sends", "mail_to_keys", "mail_text_keys"),
    ("sends", "receiver_keys", "message_keys"),
)

_FILE_WORDS = WORDS["file_words"]
_DIFF_WORDS = _FILE_WORDS | WORDS["diff_words"]


def effect_of(case: Case) -> tuple[Effect, str] | None:
    """What the tool of a case's action does beyond reading, and the word that says so.

    None if there is no action, it only reads, or static checks can read what it does: a change of a file or a diff.
    """
    if case.action is None:
        return None
    action, name = read_action(case.action), str(case.action.get("tool", ""))[:200]
    if _changes_files(action, name):
        return None
    return _by_arguments(action) or _by_name(name) or _by_what_it_is_given(action, name)


def _changes_files(action: ParsedAction, name: str) -> bool:
    """Whether it changes a file here, or applies a diff. What an argument holds does not make a payment a diff."""
    said = {word for part in _named(name)[-1:] for word in part}
    if said <= _DIFF_WORDS and any(action.applies(each) and _is_diff(each) for each in action.args):
        return True
    is_writer = said <= _FILE_WORDS and bool(said & WORDS["writes_files"])
    return (
        is_writer
        and not action.sends
        and any(argument.key.lower() in word_list("file_keys") for argument in action.args)
    )


def _is_diff(argument: Argument) -> bool:
    key = {word.lower() for word in _WORD.findall(argument.key)}
    return (
        holds_diff(argument.text) or "*** Begin Patch" in argument.text or bool(key & word_list("diff_keys"))
    )


def _named(name: str) -> list[list[str]]:
    """The words of a name in lower case, by its parts: server or module, then the tool."""
    return [[word.lower() for word in _WORD.findall(part)] for part in _PARTS.split(name) if part]


def _by_name(name: str) -> tuple[Effect, str] | None:
    verbs = _verbs(name)
    return next(((_EFFECTS[verb], verb) for verb in verbs if verb in _EFFECTS), None)


def _verbs(name: str) -> list[str]:
    """The verbs of the name's last part, one for each clause; if it has none, those of the part before."""
    for part in reversed(_named(name)[-2:]):
        # A conjunction separates clauses: find_or_create, search_and_replace.
        clauses = [list(words) for is_link, words in groupby(part, _CONJUNCTIONS.__contains__) if not is_link]
        if found := list(filter(None, map(_verb_of, clauses))):
            return found
    return []


def _verb_of(clause: list[str]) -> str | None:
    """The first verb of a clause. A word that may be a noun is one if a verb follows."""
    known = [word for word in clause if word in _READS or word in _EFFECTS]
    sure = [word for word in known if word not in WORDS["nouns"]]
    if known and known[0] in WORDS["nouns"] and sure:
        known = sure
    if known and known[0] in WORDS["read_nouns"] and sure[-1] in _EFFECTS:
        return sure[-1]
    return known[0] if known else None


def _by_arguments(action: ParsedAction) -> tuple[Effect, str] | None:
    """By an argument that names an HTTP method or an operation, whatever the tool is called."""
    for key, text, _ in action.args:
        name = key.lower()
        if name in word_list("method_keys") and (effect := _METHODS.get(text.lower())):
            return effect, text
        if name in word_list("operation_keys") and len(text) <= _ACT_CHARS_MAX and (found := _by_name(text)):
            return found
        if name == "query" and _MUTATION.match(text):
            return "writes", "mutation"
    return None


def _by_what_it_is_given(action: ParsedAction, name: str) -> tuple[Effect, str] | None:
    """By a pair of arguments, unless the tool's name says that it reads."""
    keys = {argument.key.lower() for argument in action.args}
    if _READS.isdisjoint(_verbs(name)):
        for effect, *pair in _GIVEN:
            given = [keys & word_list(name) for name in pair]
            if all(given):
                return effect, " and ".join(map(min, given))
    return None
