"""Finds secrets and personal data in text.

The shapes are data, in ``rules/secrets.yml`` and ``rules/personal.yml``: bounded patterns, each with a validator.
That is a checksum if the data has one (Luhn, IBAN, a JWT's header), otherwise its entropy. Placeholders never
match. UUIDs, timestamps, git hashes, checksums and base64 of images are *not* secrets. A random string is a
secret only if its own shape or the name that it is assigned to says so.

Names of persons are not found: that needs a model or a directory of names, and this works offline.

Every pattern is bounded. So the time is linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import add

from council.agents.scan import personal
from council.agents.scan.finding import Finding, Weight
from council.agents.scan.rows import word_set
from council.agents.scan.shapes import RULES, Family, Finder, Grade, Shape, Validator, load

TEXT_CHARS_MAX = 2_000_000  # the size of the largest proposal; a scan of it takes about a second
FINDINGS_MAX = 200  # a ballot names a handful; for a dump of a million addresses the first 200 suffice
NAME_CHARS_MAX, VALUE_CHARS_MAX = 200, 400  # longer ones are neither names nor credentials
GRADED_CHARS_MAX = 100  # of a value that a name makes a secret: enough to tell whether it is random
SECRET_CHARS_MIN = 6  # a shorter one is no credential
SHOWN_CHARS = 4  # enough to find it again, too little to use it
LIST_OF_PERSONS = 5  # addresses or numbers in one file: more than a signature, so a list of people
_AUTHOR = re.compile(
    r"author|maintainer|copyright|signed-off|co-authored|mailto:|codeowner|credit|contact|@author",
    re.IGNORECASE,
)
_WHAT_TO_DO = {
    "secret": "Revoke it, and read it from the environment or a secret store.",
    "privacy": "Replace it by made-up data.",
}


@dataclass(frozen=True, slots=True)
class PrivateSpot:
    """Something private in a text. It holds the place, never the private text itself.

    ``grade``: ``sure`` passed its validator; ``likely`` has the shape but could be something else; ``fake`` is a
    documented example or test value (a redactor may still hide it). ``start`` and ``end`` are offsets in the text;
    ``line`` counts from 1. ``rule`` is the id of its shape.
    """

    kind: str
    family: Family
    grade: Grade
    masked: str
    line: int
    start: int
    end: int
    rule: str = ""


def find_private(text: str, *, assignments: bool = True) -> list[PrivateSpot]:
    """Secrets and personal data in ``text``, in order, none inside another.

    ``assignments=False`` leaves out secrets known only by the name they are assigned to (``password = "…"``), for
    lock files and generated text. Only the first 2,000,000 characters of a text are read, and only the first 200 real
    and 200 fake findings are returned. No text makes it raise.
    """
    return _spots(text, finder(named=assignments))


def find_tokens(text: str) -> list[PrivateSpot]:
    """Only the secrets in ``text`` that can be recognised without the name they are assigned to. Never raises."""
    return _spots(text, finder(named=False, personal=False))


def findings(
    path: str, lines: Sequence[tuple[int, str]], *, lenient: bool = False, assignments: bool = True
) -> list[Finding]:
    """What is private in the lines of a file, each with its number.

    ``lenient`` is for tests and documentation. There a likely secret, or one known only by its name, is only a note,
    and personal data weighs less. ``assignments`` is as for ``find_private``.
    """
    text = "\n".join(line for _, line in lines)
    spots = [spot for spot in find_private(text, assignments=assignments) if spot.grade != "fake"]
    likely = (spot for spot in spots if spot.family == "privacy" and spot.grade == "likely")
    is_list = len({text[spot.start : spot.end] for spot in likely}) >= LIST_OF_PERSONS
    found = []
    for spot in spots:
        number, line = lines[spot.line - 1]
        found.append(finding_of(spot, path, number, _weigh(spot, line, is_list=is_list, lenient=lenient)))
    return found


def finding_of(spot: PrivateSpot, path: str, line: int, weight: Weight | None = None) -> Finding:
    """A spot as a finding, by its shape's weight unless another is given."""
    shape = shapes()[spot.rule]
    message = f"{spot.kind} {spot.masked} {shape.message or _WHAT_TO_DO[spot.family]}"
    cwe = 798 if spot.family == "secret" else 359
    return Finding(spot.rule, spot.family, weight or shape.weights[spot.grade], path, line, message, cwe)


def named_finding(name: str, value: str, path: str, line: int) -> Finding | None:
    """A value that its name makes a secret, as a finding."""
    match = _NAME.search(name[:NAME_CHARS_MAX])
    if match is None or len(value) < SECRET_CHARS_MIN or any(char.isspace() for char in value):
        return None
    if _NOT_SECRET_NAME.match(name[match.end() : NAME_CHARS_MAX]):
        return None
    grade = _value_grade(match.group().lower(), value[:VALUE_CHARS_MAX], quoted=True)
    spot = PrivateSpot(
        "secret assigned by name", "secret", grade or "fake", mask(value), 0, 0, 0, "secret-named-secret"
    )
    return finding_of(spot, path, line) if grade else None


def _weigh(spot: PrivateSpot, line: str, *, is_list: bool, lenient: bool) -> Weight:
    shape = shapes()[spot.rule]
    weight = shape.weights[spot.grade]
    if spot.family == "secret":
        return "note" if lenient and (spot.grade == "likely" or shape.lenient) else weight
    if spot.grade == "sure":
        return "ask" if lenient else weight
    return "note" if lenient or _AUTHOR.search(line) else "stop" if is_list else weight


def _spots(text: str, finder: Finder) -> list[PrivateSpot]:
    """What is found, up to the limit, in order, none inside another. Earlier shapes win."""
    text = text[:TEXT_CHARS_MAX]
    spots: list[PrivateSpot] = []
    # Fakes are counted separately, so that many of them do not hide real ones.
    room = {True: FINDINGS_MAX, False: FINDINGS_MAX}
    lines = [match.start() for match in re.finditer("\n", text)]
    for _, start, end, shape, grade in finder.find(text):
        is_real = grade != "fake"
        if not room[is_real] or any(spot.start < end and start < spot.end for spot in spots):
            continue
        room[is_real] -= 1
        line = bisect_right(lines, start - 1) + 1
        spots.append(
            PrivateSpot(shape.kind, shape.family, grade, mask(text[start:end]), line, start, end, shape.id)
        )
    return sorted(spots, key=lambda spot: spot.start)


def mask(value: str) -> str:
    """The first four characters and an ellipsis; fewer of a short value, so that most stays hidden."""
    return value[: min(SHOWN_CHARS, len(value) // 3)] + "…"


def entropy(value: str) -> float:
    """Shannon entropy in bits a character: 0 for one repeated, about 4 for random hex, 6 for base64."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) if shares else 0.0


# Placeholders

_PLACEHOLDER_PARTS = re.compile(
    r"example|placeholder|change[-_ ]?(?:me|this)|replace[-_ ]?(?:me|with|this)|insert[-_ ]|your[-_ ]|"
    r"dummy|sample|redacted|xxxx|\*\*\*|\.\.\.|not[-_ ]?a[-_ ]?real|not[-_ ]?real|fake|todo|fixme|"
    r"secret[-_]?here|"
    r"(?:^|[-_ .])(?:test|tests|testing|mock|stub|foo|bar|baz|demo|insecure|undefined)(?:$|[-_ .0-9])"
)
_PLACEHOLDER_WORDS = word_set(
    "password passwd pass passw0rd p@ssw0rd p@ssword password1 password123 pwd secret secrets secretkey "
    "mysecret mypassword token mytoken apikey api_key api-key key none null nil true false default admin "
    "root user username guest postgres mysql redis mongo rabbitmq minio minioadmin letmein qwerty "
    "topsecret string value empty unset required optional hidden masked private public yourpassword "
    "yourtoken s3cret s3cr3t abc123 pass123 test test123 test1234 testing testpass testpassword secret123 "
    "admin123 scott tiger"
)
_INTERPOLATED = re.compile(
    r"\$\{|\$\(|\$[A-Za-z_]|\{\{|\}\}|\{[A-Za-z0-9_.\[\]'\"!:]{0,60}\}|<[^<>\n]{1,60}>|%\(|%[sdr]|#\{"
)
_RUNS = "abcdefghijklmnopqrstuvwxyza", "01234567890", "qwertyuiopasdfghjklzxcvbnmq", "98765432109"
_STEPS = frozenset(run[at : at + 2] for run in _RUNS for at in range(len(run) - 1))


def is_placeholder(value: str) -> bool:
    """Whether it is useless for a login: a placeholder, an interpolation, a run of the alphabet."""
    bare = value.strip().strip("\"'`")
    low = bare.lower()
    if low in _PLACEHOLDER_WORDS or len(set(low)) <= 3:
        return True
    steps = sum(map(_STEPS.__contains__, map(add, low, low[1:])))
    return steps * 5 >= len(low) * 3 or bool(_PLACEHOLDER_PARTS.search(low) or _INTERPOLATED.search(bare))


# Validators: the grade of a value, given its match and the arguments in the rule


def _token(value: str, match: re.Match[str]) -> Grade | None:
    """A token's body. Repeated or spelled-out ones, as in documentation, are fake."""
    body = re.split(r"[_\-.]", value)[-1] if len(value) > 24 else value[4:]
    body = body if len(body) >= 12 else value[4:]
    return "fake" if is_placeholder(value) or is_placeholder(body) or entropy(body) < 2.6 else "sure"


def _entropy(
    value: str, match: re.Match[str], least: str, after: str = "", grade: Grade = "sure"
) -> Grade | None:
    """Random enough, in bits a character; the part behind the last ``after`` alone, if it is given."""
    body = value.rpartition(after)[2] if after else value
    return grade if not is_placeholder(body) and entropy(body) >= float(least) else None


def decoded(value: str) -> str:
    """The text that base64 encodes, "" if it encodes none."""
    try:
        plain = value.rstrip("=").replace("-", "+").replace("_", "/")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def _jwt(value: str, match: re.Match[str]) -> Grade | None:
    """A JWT's first part is a JSON object with ``alg``. Documentation's John Doe is fake."""
    head, body, _signature = value.split(".", 2)
    try:
        header = json.loads(decoded(head))
    except (ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or "alg" not in header:
        return None
    return "fake" if "John Doe" in decoded(body) or str(header["alg"]).lower() == "none" else "sure"


def _key_block(value: str, match: re.Match[str]) -> Grade | None:
    """A private key has a body; code that only names the header line has none."""
    body = re.sub(r"\\n|[^A-Za-z0-9+/]", "", value.split("-----", 2)[-1])
    return "fake" if is_placeholder(body[:64]) or entropy(body[:120]) < 3.5 else "sure"


def _base64(value: str, match: re.Match[str], kind: str) -> Grade | None:
    """Base64 of a text: ``key`` of a private key, ``login`` of a name and a password, ``digits`` of a number."""
    text = decoded(value.partition(".")[0] if kind == "digits" else value)
    if kind == "key":
        return "sure" if "PRIVATE KEY-----" in text else None
    if kind == "digits":
        return "sure" if text.isdigit() and len(text) >= 15 else None
    user, colon, password = text.partition(":")
    is_real = bool(colon) and not is_placeholder(password) and password.lower() != user.lower()
    return "sure" if is_real and text.isprintable() and text.isascii() else None


_WEAK_LOCAL = word_set("localhost 127.0.0.1 0.0.0.0 [::1] host.docker.internal")


def _userinfo(value: str, match: re.Match[str]) -> Grade | None:
    """The password of a connection string. One of a local host is usually that of a development database."""
    host = match["host"].lower()
    labels = host.rstrip(".").split(".")
    # RFC 2606 and 6761 reserve these for examples.
    is_reserved = labels[-1] in {"example", "test", "invalid"} or (
        len(labels) > 1 and labels[-2] == "example"
    )
    if is_placeholder(value) or value.lower() == match["user"].lower() or is_reserved:
        return "fake"
    return "likely" if host in _WEAK_LOCAL or "." not in host or len(value) < 6 else "sure"


def _scheme(value: str, match: re.Match[str]) -> Grade | None:
    """``sure`` if it is random, or decodes to a name and a password; words after the scheme are prose."""
    scheme = match["scheme"].lower()
    if is_placeholder(value) or scheme == "basic":
        return _base64(value, match, "login") if scheme == "basic" else None
    is_mixed = scheme == "bearer" and len(value) >= 24 and not (value.islower() or value.isupper())
    longest = max(re.split(r"[^A-Za-z0-9]", value), key=len)
    is_random = (_DIGIT.search(value) or is_mixed) and len(longest) >= 16 and entropy(longest) >= 3.2
    return "sure" if is_random else None


def _password(value: str, match: re.Match[str]) -> Grade | None:
    return _value_grade("password", value[:VALUE_CHARS_MAX], quoted=True)


# Values that a name makes a secret. The names of _NAME stand in rules/secrets.yml too.

_NAME = re.compile(
    r"secret|passwo?r?d|passwd|passphrase|pwd|token|api[_-]?key|access[_-]?key|auth[_-]?key|account[_-]?key|"
    r"private[_-]?key|signing[_-]?key|encryption[_-]?key|master[_-]?key|service[_-]?key|credential",
    re.IGNORECASE,
)
_NOT_SECRET_NAME = re.compile(
    r"^(?:s$|s_|iz|ized|_?(?:type|field|name|path|file|dir|url|uri|id|ids|hint|label|prompt|regex|pattern|policy|len|length|min|max|"
    r"hash|digest|count|limit|env|var|header|title|message|msg|error|text|help|desc|description|selector|class|"
    r"column|param|endpoint|format|ttl|expiry|expires|expires_at|expires_in|budget|version|provider|manager|store|ref|"
    r"schema|scheme|kind|list|set|map|index|position|scope|scopes|usage|used|bucket|arn|fingerprint|algorithm))"
    r"(?:$|[-_])",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?<![A-Za-z_])[A-Za-z_][A-Za-z0-9_]{0,400}+(?:[.(\[]|::)|^[A-Z][A-Z0-9_]{2,60}[,;)]{0,2}$|"
    r"^[a-z_][a-z_]{2,60}[,;)]{0,2}$"
)
_UUID = re.compile(r"^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
_UNQUOTED_END = re.compile(r"[ \t]{0,8}(?:#[^\n]{0,200})?(?:\n|\r|$)")
_DIGIT = re.compile(r"[0-9]")
_CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", "[^A-Za-z0-9]")))


def _named(value: str, match: re.Match[str]) -> Grade | None:
    """A value that is assigned to a name such as ``password``."""
    quote, end = match["quote"], match.end("secret")
    if _NOT_SECRET_NAME.match(match["suffix"]) or (match["prefix"] == "f" and "{" in value):
        return None
    if quote and match.string[end : end + 1] != quote:
        return None  # it continues after a space: a sentence, not a credential
    bare = value if quote else value.rstrip(",;:)")
    grade = (
        _value_grade(match["name"].lower(), bare, quoted=bool(quote))
        if len(bare) >= SECRET_CHARS_MIN
        else None
    )
    if not grade or quote:
        return grade
    if _CODE.search(value):
        return None  # an expression of a programming language, not an .env or YAML value
    # In the middle of a line it is no finding, but redaction hides it.
    return grade if _UNQUOTED_END.match(match.string, end) else "fake"


_VERSION = re.compile(r"[~^<>=v]{0,2}\d{1,4}(?:\.\d{1,5}){1,3}(?:-[a-z]{1,8}\.?\d{0,4})?")  # of a dependency


def _value_grade(name: str, value: str, *, quoted: bool) -> Grade | None:
    """How much a value looks like a credential: ``sure`` if random, ``likely`` if it is only not a word."""
    value = value[:GRADED_CHARS_MAX]
    is_password = name.startswith(("passw", "pwd", "passp"))
    has_digit = bool(_DIGIT.search(value))
    if not (has_digit or is_password):
        return None
    classes = sum(bool(kind.search(value)) for kind in _CLASSES)
    if not has_digit and classes < 3:
        return None
    is_place = value.startswith(("/", "./", "~/", "http:", "https:", "arn:"))
    if is_place or is_placeholder(value) or _UUID.match(value) or _VERSION.fullmatch(value):
        return None
    longest = max(re.split(r"[^A-Za-z0-9+/]", value), key=len)
    if len(longest) >= 16 and has_digit and entropy(longest) >= 3.2:
        return "sure"
    if is_password and classes >= 2:
        mixed = len(value) >= 10 and classes >= 3 and has_digit and entropy(value) >= 3.0
        return "sure" if mixed and (quoted or classes == 4 or len(value) >= 12) else "likely"
    return "likely" if len(value) >= 10 and classes >= 2 and entropy(value) >= 3.0 else None


VALIDATORS: dict[str, Validator] = {
    "token": _token, "entropy": _entropy, "jwt": _jwt, "key_block": _key_block, "base64": _base64,
    "userinfo": _userinfo, "scheme": _scheme, "password": _password,
    "named": _named, "any": lambda value, match: None if is_placeholder(value) else "sure",
}  # fmt: skip


@cache
def shapes() -> dict[str, Shape]:
    """All shapes by id: those of secrets, then those of personal data."""
    return {
        shape.id: shape for shape in load(RULES / "secrets.yml", "secret", VALIDATORS) + personal.shapes()
    }


@cache
def finder(*, named: bool = True, personal: bool = True) -> Finder:
    """A finder of all shapes. Without ``named``, of those that need no name; without ``personal``, of secrets."""
    return Finder(
        shape
        for shape in shapes().values()
        if (named or not shape.named) and (personal or shape.family == "secret")
    )
