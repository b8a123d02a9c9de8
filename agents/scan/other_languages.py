"""Finds grave faults in JavaScript, Go, Ruby, PHP, Java, CI and Kubernetes files, without parsing them.

It has a small table of calls, judged by their first argument, and a table of settings. A finding is evidence. The
absence of findings proves nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from council.agents.scan import shell_finder
from council.agents.scan.change import FileChange, Hunk

Weight = Literal["fault", "concern", "mention"]
Kind = Literal["run", "eval", "sh -c"]
How = Literal["literal", "unknown", "built", "outside"]

ARGUMENT_CHARS_MAX = 600  # of one argument that is read
FOLLOWED_MAX = 4  # assignments to one name that are followed
HUNK_CHARS_MAX = 100_000  # a longer hunk is a bundle or data
CALLS_MAX = 100  # calls read in one file: hostile text of nothing else would take minutes


@dataclass(frozen=True, slots=True)
class Spot:
    """One dangerous line of a file, by its number."""

    weight: Weight
    family: Literal["shell", "guard"]
    what: str
    line: int


_SUFFIXES = {
    "js": "js mjs cjs jsx ts mts cts tsx vue svelte", "go": "go", "ruby": "rb rake gemspec", "php": "php phtml",
    "java": "java kt kts scala groovy",
}  # fmt: skip
_LANGUAGE = {suffix: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_SH_C = (
    r"[\"'](?:/bin/|/usr/bin/)?(?:ba|z|da|k)?sh[\"']\s{0,9},\s{0,9}\[?\s{0,9}"
    r"[\"']-[a-z]{0,4}c[\"']\s{0,9},\s{0,9}"
)
# For each language: the called name, up to the relevant argument. "run" is grave if the argument is built or comes
# from outside; "eval" and "sh -c" are grave unless it is a literal.
_CALLS: dict[str, tuple[tuple[Kind, re.Pattern[str]], ...]] = {
    "js": (
        ("run", re.compile(r"(?:(?<![\w$.])|\b(?:child_process(?:[\"']\))?|childProcess|cp)\.)exec(?:Sync)?\(")),
        ("sh -c", re.compile(rf"\b(?:spawn|execFile)(?:Sync)?\(\s{{0,9}}{_SH_C}")),
        ("eval", re.compile(r"(?<![\w$.])eval\(|\bnew Function\(")),
    ),
    "go": (
        ("sh -c", re.compile(rf"\bexec\.Command(?:Context)?\((?:\s{{0,9}}\w{{1,40}}\s{{0,9}},)?\s{{0,9}}{_SH_C}")),
    ),
    "ruby": (
        ("run", re.compile(r"(?<![\w.:$@])(?:system|exec|spawn)[( ]|\b(?:Kernel\.\w{4,6}|IO\.popen)[( ]")),
        ("run", re.compile(r"(?=`[^`\n]{0,400}#\{)")),
        ("run", re.compile(r"%x(?=[({\[][^\n]{0,400}#\{)")),
        ("eval", re.compile(r"(?<![\w.:$@])eval\(")),
    ),
    "php": (
        ("run", re.compile(r"(?<![\w>:$])(?:exec|system|passthru|shell_exec|popen|proc_open)\(")),
        ("eval", re.compile(r"(?<![\w>:$])eval\(")),
    ),
    "java": (
        ("run", re.compile(r"\bgetRuntime\(\)\s{0,9}\.exec\(")),
        ("sh -c", re.compile(rf"\b(?:ProcessBuilder|exec)\((?:\s{{0,9}}new String\[\] ?\{{)?\s{{0,9}}{_SH_C}")),
        ("eval", re.compile(r"\b\w{0,40}[eE]ngine\.eval\(")),
    ),
}  # fmt: skip
_SAYS = {
    "run": "runs a command that is put together from data",
    "sh -c": "has a shell run what is no literal",
    "eval": "runs what is no literal as code",
}
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`", re.DOTALL)
_INTERPOLATED = {
    "js": re.compile(r"(?s)\$\{([^}]{0,200})\}"), "ruby": re.compile(r"(?s)#\{([^}]{0,200})\}"),
    "php": re.compile(r"(?s)(\{?\$[\w>\[\]'\-]{1,100})"), "java": re.compile(r"\$\{?([A-Za-z_][\w.]{0,100})"),
}  # fmt: skip
_JOINS = re.compile(r"\+|\.=|(?<=\s)\.(?=\s)|\.\s{0,9}\$|\b(?:Sprintf|sprintf|format|concat|join)\(")
_NAME = re.compile(r"[A-Za-z_$][\w$]{0,80}")
_ASSIGNED = re.compile(rf"(?<![\w$.])({_NAME.pattern})\s{{0,9}}(?::=|\.=|\+=|=(?![=>]))")
_FIXED = re.compile(
    r"[A-Z][A-Z0-9_]{1,80}|__\w{1,20}|new|String|path|fmt|shellescape|escapeshellarg|Shellwords"
)
_QUOTED = re.compile(r"\b(?:escapeshellarg|shellescape|Shellwords|shellQuote|shell_quote|quote)\b")
_OUTSIDE = re.compile(
    r"\breq(?:uest)?[.\[]|\bctx\.(?:query|request|params)|\bparams\[|\$_(?:GET|POST|REQUEST|COOKIE)|\bgetParameter\(|"
    r"\.URL\.Query\(|\.(?:Post)?FormValue\(|\bprocess\.argv|\bARGV\["
)
_COMMENT = re.compile(r"\s*(?://|\*|/\*|#|--)")

# Settings that turn off the verification of certificates, in any position.
_UNVERIFIED = re.compile(
    r"NODE_TLS_REJECT_UNAUTHORIZED[\"'\]]{0,3}\s{0,9}[=:,]\s{0,9}[\"']?0|"
    r"\b(?:rejectUnauthorized|strictSSL)[\"']?\s{0,9}[:=]\s{0,9}false\b|\bInsecureSkipVerify\s{0,9}:?[:=]\s{0,9}true\b|"
    r"\bverify_mode\b.{0,9}(?:=|:)>?.{0,40}\bVERIFY_NONE\b|"
    r"\bCURLOPT_SSL_VERIFY(?:PEER|HOST)\s{0,9}(?:,|=>)\s{0,9}(?:false|0)|"
    r"\bdanger_accept_invalid_certs\(true\)|\bnew (?:NoopHostnameVerifier|TrustAllStrategy)\b|"
    r"ALLOW_ALL_HOSTNAME_VERIFIER"
)
_YAML_ROOT = re.compile(r"\s{0,60}(?:- )?[\"']?(privileged|hostPID|hostIPC)[\"']?:\s{0,9}[\"']?true\b")
_WORKFLOW = re.compile(r"(?:^|/)\.(?:github|gitea|forgejo)/workflows/|(?:^|/)action\.ya?ml$")
_WRITTEN_BY_ANYBODY = re.compile(
    r"\$\{\{[^}]{0,200}\bgithub\.(?:head_ref\b|event\.(?!repository|organization|sender)[\w.*\[\]]{0,80}"
    r"\b(?:title|body|ref|label|message|name|email)\b)"
)
_TRIGGER = re.compile(
    r"\b(?:pull_request_target|issue_comment|issues|workflow_run|discussion)\b"
    r"(?=\s{0,9}(?::|,|\]|$))"
)
_CHECKOUT = re.compile(
    r"\s{0,60}ref:\s{0,9}.{0,20}\$\{\{[^}]{0,60}github\.(?:event\.pull_request\.head\.|head_ref)"
)
_SECRET_ENV = re.compile(r"\s{0,60}([A-Za-z_]\w{0,80}):\s{0,9}[\"']?\$\{\{\s{0,9}secrets\.")
_SENDS = re.compile(
    r"\b(?:curl|wget|nc)\b[^\n]{0,400}?\s(?:-d|-F|-T|--data[\w-]{0,20}|--form|--post-data|--body-data)[= \"']"
)
_TESTS_IGNORED = re.compile(
    r"\b(?:pytest|unittest|tox|nox|(?:npm|yarn|pnpm) (?:run )?test|(?:go|cargo|make|mvn|gradle) (?:test|check))\b"
    r"[^\n|;&]{0,200}\|\|\s{0,9}(?:true|:|exit 0|echo\b)"
)  # fmt: skip


def dangers(change: FileChange, *, is_test: bool) -> Iterator[Spot]:
    """The dangers that the new side of a file adds. In tests, only input from outside is as grave."""
    gone = Counter(text.strip() for _, text in change.removed)
    suffix = change.path.rsplit("/", 1)[-1].rpartition(".")[2].lower()
    language = _LANGUAGE.get(suffix, "")
    left = CALLS_MAX
    for hunk in change.hunks:
        fresh = {number for number, text in hunk.added if gone[text.strip()] <= 0}
        if suffix not in ("py", "pyi"):
            yield from _settings(hunk, fresh, suffix, is_test)
        if not fresh or not language:
            continue
        found = list(_calls_of(hunk, language))
        left -= len(found)
        if left < 0 or sum(len(line.text) for line in hunk.lines) > HUNK_CHARS_MAX:
            # An unread part is not passed: the dangerous call may follow a hundred harmless ones.
            yield Spot("concern", "shell", f"too much {suffix} to be read", hunk.new_start)
            break
        yield from _calls(hunk, found, fresh, language, is_test)
    if _WORKFLOW.search(change.path):
        yield from _workflow(change)


def _settings(hunk: Hunk, fresh: set[int], suffix: str, is_test: bool) -> Iterator[Spot]:
    for number, text in hunk.added:
        if number not in fresh or _COMMENT.match(text):
            continue
        if _UNVERIFIED.search(text):
            yield Spot(
                "mention" if is_test else "fault", "guard", "turns the check of certificates off", number
            )
        if suffix in ("yml", "yaml") and (root := _YAML_ROOT.match(text)):
            yield Spot("concern", "guard", f"gives a container the whole host ({root[1]})", number)


# Calls


def _calls_of(hunk: Hunk, language: str) -> Iterator[tuple[Kind, re.Match[str]]]:
    """The relevant calls of the new side, up to one more than are read."""
    lines = (line.text for line in hunk.lines if line.tag != "-")
    text = "\n".join("" if _COMMENT.match(line) else line for line in lines)[:HUNK_CHARS_MAX]
    for kind, pattern in _CALLS[language]:
        for found in islice(pattern.finditer(text), CALLS_MAX + 1):
            yield kind, found


def _calls(
    hunk: Hunk, calls: list[tuple[Kind, re.Match[str]]], fresh: set[int], language: str, is_test: bool
) -> Iterator[Spot]:
    numbers = [line.new_no or 0 for line in hunk.lines if line.tag != "-"]
    given = _assignments(calls[0][1].string) if calls else {}
    for kind, found in calls:
        text = found.string
        argument = _argument(text[found.end() : found.end() + ARGUMENT_CHARS_MAX])
        how = _how(argument, language, text, given)
        is_grave = how in ("built", "outside") or (kind != "run" and how != "literal")
        first = text.count("\n", 0, found.start())
        last = text.count("\n", 0, found.end() + len(argument))
        number = next((n for n in numbers[first : last + 1] if n in fresh), 0)
        if is_grave and number:
            weight: Weight = "concern" if is_test and how != "outside" else "fault"
            yield Spot(weight, "shell", _SAYS[kind], number)


def _argument(text: str) -> str:
    """The text up to the comma or bracket that ends an argument."""
    depth, at = 0, 0
    while at < len(text):
        if string := _STRING.match(text, at):
            at = string.end()
            continue
        letter = text[at]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        if depth < 0 or (depth == 0 and letter in ",;\n" and text[:at].strip()):
            return text[:at]
        at += 1
    return text


def _assignments(text: str) -> dict[str, list[int]]:
    """For each name, the places where its first assigned values begin."""
    given: dict[str, list[int]] = {}
    for found in _ASSIGNED.finditer(text):
        ends = given.setdefault(found[1], [])
        if len(ends) < FOLLOWED_MAX:
            ends.append(found.end())
    return given


def _how(text: str, language: str, around: str, given: dict[str, list[int]]) -> How:
    """Whether an argument is fixed in the source, as far as it and the nearby assignments show."""
    inner = _INTERPOLATED.get(language)
    strings = _STRING.findall(text)
    held = [part for string in strings for part in (inner.findall(string) if inner else [])]
    open_ = _STRING.sub(" ", text)
    names = [name for part in [*held, open_] for name in _NAME.findall(part) if not _FIXED.fullmatch(name)]
    if not names or (_QUOTED.search(text) and not _OUTSIDE.search(text)):
        return "literal"
    if any(_OUTSIDE.search(part) for part in [*held, open_]):
        return "unknown" if _QUOTED.search(text) else "outside"
    follow: list[How] = []
    for name in list(dict.fromkeys(names))[:FOLLOWED_MAX]:
        sides = [_argument(around[end : end + ARGUMENT_CHARS_MAX]) for end in given.get(name, ())]
        follow += [_how(side, language, around, {}) for side in sides]
    if "outside" in follow:
        return "outside"
    is_put_together = bool(held) or (bool(strings) and _JOINS.search(open_) is not None)
    if follow and set(follow) == {"literal"} and len(set(names)) == 1:
        return "literal"
    return "built" if is_put_together or "built" in follow else "unknown"


# Workflows


def _workflow(change: FileChange) -> Iterator[Spot]:
    """Text that anybody may write into a title must not become shell text, nor may a fork's code get the secrets."""
    for hunk in change.hunks:
        lines = [(line.new_no or 0, line.text) for line in hunk.lines if line.tag != "-"]
        at = dict(lines)
        fresh = {number for number, _ in hunk.added}
        trigger = next((n for n, text in lines if not _COMMENT.match(text) and _TRIGGER.search(text)), 0)
        secrets = {match[1] for _, text in lines if (match := _SECRET_ENV.match(text))}
        for number, text in lines:
            if trigger and _CHECKOUT.match(text) and {number, trigger} & fresh:
                yield Spot("fault", "shell", "runs a fork's code with this repository's rights", number)
        for _, origin in shell_finder.in_lines(change.path, lines):
            for number in dict.fromkeys(origin):
                text = at.get(number, "")
                if _WRITTEN_BY_ANYBODY.search(text) and {number, trigger} & fresh:
                    what = "puts what anybody may write into a shell command (${{ github… }})"
                    yield Spot("fault" if trigger else "concern", "shell", what, number)
                if number in fresh:
                    yield from _run_line(text, number, secrets)


def _run_line(text: str, number: int, secrets: set[str]) -> Iterator[Spot]:
    sent = _SENDS.search(text)
    if sent:
        named = any(re.search(rf"\$\{{?{name}\b", text[sent.end() :]) for name in secrets)
        if named or re.search(r"\$\{\{\s{0,9}secrets\.", text[sent.end() :]):
            yield Spot("concern", "guard", "sends a secret away", number)
    if _TESTS_IGNORED.search(text):
        yield Spot("concern", "guard", "lets failing tests pass (|| true)", number)
