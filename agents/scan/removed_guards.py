"""Finds guards that a change takes off, turns round or loosens, line by line, in any language.

Python's own tree says more about its checks: removed_checks.py finds those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from council.agents.scan.change import FileChange, short_quote
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.languages import is_test
from council.agents.scan.line_pairs import Block, Pair, bare, difference, is_code, is_remark, tokens

LINES_MAX = 12  # of a block that takes off a guard; a longer one takes its subject too
# What keeps people out, as the name of a function, decorator, middleware or field.
_ACCESS = re.compile(
    r"(?i)(?:require|ensure|check|verify|is|has|must|needs?|only)_?(?:auth|login|logged|admin|staff|owner|perm|role|"
    r"scope|signature|token|csrf|same_?user|member|sign)|(?:auth|login|admin|permission|scopes?|role|staff)s?_?(?:required|guard|only|filter|"
    r"middleware|check|backend)|authenticat\w*|authori[sz]\w*|csrf|antiforgery|pre_?authorize|roles_?allowed|"
    r"is_?authenticated|permission_?(?:classes|required)|^middleware$|helmet|ratelimit|rate_limit|throttl|limiter|@secured|"
    r"compare_digest|timing_?safe|protect_from_forgery|\bpolicy_scope|clickjacking|x_?frame_?options|securitymiddleware"
)
_EXEMPT = re.compile(
    r"(?i)permit_?all|exempt|skip|disable|optional|allow_?any|anonymous|without|un_?auth|no_?auth"
)
# In Python, lines that are guards by themselves; its checks are read from its tree.
_PYTHON_GUARD = re.compile(
    r"\s*(?:permission_classes|authentication_classes|throttle_classes|dependencies|decorators)\s*=|"
    r".{0,120}\b(?:Depends|Security)\s?\(|\s*\w+\.(?:add_middleware|before_request|use)\s?\(|"
    r"\s*(?:\w+\s*=\s*)?(?:CSRFProtect|CsrfProtect|Talisman|Limiter)\("
)
_CHECKS_INPUT = re.compile(
    r"(?i)@ ?(?:Valid|Validated|NotNull|NotBlank|NotEmpty|Size|Pattern|Email)\b|"
    r"\b(?:Valid|Validated|NotNull|NotBlank) @|"
    r"\b(?:validate\w*|valid\w+\s?\(|saniti[sz]e\w*|escape_?(?:html|sql|shell)?\s?\(|html_?escape\w*|htmlspecialchars|"
    r"secure_filename|bleach\w*|dompurify|full_clean|strip_tags|\bquote\s?\(|escapeshellarg|realpath|is_relative_to)"
)
_KEEPS_ORDER = re.compile(
    r"\bwith\s+[\w.]*(?:lock|mutex|semaphore|atomic|transaction|begin)\w*\b|\b\w*(?:lock|mutex|mu)\.(?:R?Lock|acquire|lock)\(|"
    r"\bsynchronized\b|^\s*lock\s*\(|@(?:transaction\.atomic|Transactional|synchronized|locked)\b|\bBEGIN\b;?\s*$|"
    r"(?:DB::|\.)(?:transaction|begin_nested|begin|beginTransaction)\b\s*(?:\(|do|\{)|"
    r"select_for_update|FOR UPDATE|\.with_lock\b",
    re.IGNORECASE,
)
_NAMES_GUARDS = re.compile(
    r"\s*(?:import|from|export|use|using|require|require_once|include|package|def|class|func|function|fn|type|interface|public|private|protected|(?:const|let|var)\s*\{|(?:const|let|var)\s.{1,200}\brequire\(|logger|log|print|raise|throw)\b"
)
_IF = re.compile(
    r"\s*\}?\s*(?:if|unless|guard|when|abort_(?:if|unless)|throw_(?:if|unless))\b|"
    r"\s*(?:require|check|precondition|Preconditions\.\w{1,40}|Contract\.\w{1,40}|Assert\.\w{1,40})\s*\(.{0,200}[<>=!]=?|"
    r"\s*(?:raise|return|redirect_to|head|abort|render)\b.{0,200}\s(?:if|unless)\s"
)
_THROWS = re.compile(
    r"\b(?:require|check|precondition|Preconditions|Contract|Assert)\b|\b(?:raise|throw|panic|abort(?:_if|_unless)?|log\.Fatal\w*)\b|\breturn\s.{0,40}\berr\b|errors\.New|fmt\.Errorf"
)
_REFUSES = re.compile(
    r"(?i)\b(?:require|precondition|raise|throw|abort|deny|forbidden|unauthori[sz]ed|redirect(?:_to)?|401|403|panic|head|next\(|exit|die|"
    r"return\s+(?:err|errors?|false|nil|null|fmt\.Err|status|res|http|ResponseEntity|\w*Error))"
)
_AUTHORITY = re.compile(
    r"(?i)(?:^|[^a-z]|_)(?:admin|auth\w*|allow(?:ed)?|banned|blocked|denied|expire[sd]?|forbidden|logged_?in|login|owner|passw\w*|perm\w*|"
    r"privileged?|revoked|roles?|signature|staff|superuser|trusted|valid|verif\w+|csrf|locked|scopes?|can_?\w+|active)"
    r"|is(?:Admin|Owner|Valid|Allowed|Auth\w*|Active|Verified)|has(?:Perm|Role|Access)\w*|can[A-Z]\w+|[a-z](?:Allowed|Expired|Owner|Role|Valid|Verified)\b"
)
_CONDITION = re.compile(r"\s*(?:\}?\s*else\s+)?(?:if|elif|while|unless|assert|when|guard)\b")
_NEGATIONS = {("not",), ("!",)}
_OWNER = re.compile(
    r"(?i)\b(?:\w+__)?(?:owner|tenant|account|user|author|created_by|organi[sz]ation|org|team|company|customer|is_active|is_deleted|deleted_at|is_public|published|current_user|member)(?:_?id|Id)?\b"
)
_QUERY = re.compile(
    r"(?i)\b(?:filter(?:_by)?|get_object_or_404|find(?:_by|One|First|Unique|_one|ById)?|where|exclude|objects|query|select|AND|scope|update_many|delete_many)\b"
)


def findings(
    changes: Sequence[FileChange], blocks: Sequence[Block], pairs: Sequence[Pair]
) -> Iterator[Finding]:
    """What becomes of the guards of a whole change, tests left out."""
    judged = {change.path for change in changes if change.kind != "deleted" and is_code(change)}
    judged = {path for path in judged if not is_test(path)}
    put = {token for change in changes for _, text in change.added for token in tokens(text)}
    paired = set()
    for pair in pairs:
        if pair.path in judged and not is_remark(pair.new):
            found = _cut(pair, put) or _negated(pair)
            if found is not None:
                paired.add(id(pair.block))
                yield found
    for block in blocks:
        if block.path in judged and id(block) not in paired:
            yield from _taken_off(block, put)


def _finding(rule: str, weight: Weight, path: str, line: int, message: str, cwe: int) -> Finding:
    return Finding(rule, "auth" if cwe in (862, 639) else "guard", weight, path, line, message, cwe)


# Guards that are gone


def _names_of_guard(texts: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    words = [token for text in texts for token in tokens(text)]
    return [word for word in words if pattern.search(word) and not _EXEMPT.search(word)]


def _taken_off(block: Block, put: set[str]) -> Iterator[Finding]:
    """A line that is a guard, and is only taken out, while the lines around it stay."""
    stays = block.after.strip() or block.added
    if not block.only_takes or len(block.removed) > LINES_MAX or not stays:
        return
    added = {bare(text) for _, text in block.added}
    gone = [(number, text) for number, text in block.removed if text.strip() and bare(text) not in added]
    code = [(number, text) for number, text in gone if not is_remark(text)]
    if not code:
        return
    number, first = code[0]
    shown = short_quote(first.strip())
    if _IF.match(first) and ":=" not in first and len(code) <= 6:
        body = " ".join(text for _, text in code)
        is_access = _AUTHORITY.search(first) is not None
        if not block.path.endswith(".py") and (_REFUSES if is_access else _THROWS).search(body):
            message = f"Takes off the check {shown}, and what it guards stays. Keep it, or move it."
            weight: Weight = "stop" if is_access else "ask"
            yield _finding("guard-removed", weight, block.path, number, message, 862 if is_access else 754)
        return
    for number, text in code:
        if _NAMES_GUARDS.match(text):
            continue
        shown = short_quote(text.strip())
        is_item = re.match(r"\s*['\"][\w.]+['\"],?\s*$", text) is not None
        guards = [word for word in _names_of_guard([text], _ACCESS) if word[0] not in "'\"" or is_item]
        is_line = not block.path.endswith(".py") or _PYTHON_GUARD.match(text)
        if guards and not put.intersection(guards) and len(code) <= 3 and is_line:
            message = f"Takes off the guard {shown}, and what it guards stays. Keep it, or put another in its place."
            yield _finding("guard-removed", "stop", block.path, number, message, 862)
            return
        if guards and not put.intersection(guards) and is_item:
            message = f"Takes {shown} out of a list of guards. Keep it, or put another in its place."
            yield _finding("middleware-removed", "stop", block.path, number, message, 862)
            return
        if _KEEPS_ORDER.search(text):
            message = (
                f"Takes off {shown}, and what it protects stays. Keep it, or say why two can't meet there."
            )
            yield _finding("lock-removed", "ask", block.path, number, message, 362)
            return


def _cut(pair: Pair, put: set[str]) -> Finding | None:
    """A guard that is cut out of a line which is otherwise the same."""
    is_named = _NAMES_GUARDS.match(pair.old) and not (_PYTHON_GUARD.match(pair.old) or "@" in pair.cut)
    if not pair.cut or is_named:
        return None
    shown = short_quote(pair.new.strip())
    cuts, puts = pair.cut, pair.put
    if len(cuts) == len(puts) == 1 and cuts[0][0] in "'\"" and puts[0][0] in "'\"":
        cuts, puts = difference(tokens(cuts[0][1:-1]), tokens(puts[0][1:-1]))
    name = next(iter(_names_of_guard(cuts, _ACCESS)), "")
    opens = all(_EXEMPT.search(word) for word in puts if word[0].isalpha())
    if name and opens and name not in put:
        message = f"Takes {short_quote(name)} off {shown}. Keep it, or put another guard in its place."
        return _finding("guard-cut", "stop", pair.path, pair.line, message, 862)
    cut, whole = " ".join(cuts), " ".join(text for _, text in pair.block.hunk.added)
    is_query = _QUERY.search(pair.old) and _QUERY.search(pair.new) and re.search("[=:]|AND", cut)
    owners = set(_OWNER.findall(cut))
    if (
        is_query
        and owners.difference(_OWNER.findall(whole)) == owners != set()
        and not _OWNER.search(" ".join(puts))
    ):
        weight: Weight = "ask" if puts else "stop"
        message = (
            f"Takes the filter {short_quote(cut)} off a query. Keep it: others' rows are found without it."
        )
        return _finding("filter-cut", weight, pair.path, pair.line, message, 639)
    if (
        pair.is_alone
        and _CHECKS_INPUT.search(cut)
        and set(puts) <= set(cuts)
        and not _CHECKS_INPUT.search(whole)
    ):
        message = f"Takes a check of input off {shown}. Keep it, or say where it is checked now."
        return _finding("validation-cut", "ask", pair.path, pair.line, message, 20)
    return None


# Guards that are turned round


def _negated(pair: Pair) -> Finding | None:
    """A condition on permissions that is negated, while no line beside it changes."""
    sides = {pair.cut, pair.put}
    if not (pair.is_alone and () in sides and sides & _NEGATIONS and _CONDITION.match(pair.new)):
        return None
    if not _AUTHORITY.search(pair.new):
        return None
    shown = short_quote(pair.new.strip())
    message = f"Turns a condition on permissions into its opposite: {shown}. Check that it is meant."
    return _finding("guard-negated", "ask", pair.path, pair.line, message, 697)
