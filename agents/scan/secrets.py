"""Finds secrets and personal data in text.

It is a table of bounded patterns, each with a validator: a checksum if the data has one (Luhn, IBAN's mod 97,
national ids, a JWT's header), otherwise its entropy. Placeholders never match. UUIDs, timestamps, git hashes,
checksums and base64 of images are *not* secrets. A random string is a secret only if its own shape or the name that
it is assigned to says so.

Names of persons are not found: that needs a model or a directory of names, and this works offline.

Every pattern is bounded, and begins at a literal or a character that is searched first. So the time is linear in the
length of the text.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from operator import add
from typing import Literal

from council.agents.scan import personal
from council.agents.scan.personal import Grade, words

Family = Literal["secret", "personal"]

TEXT_CHARS_MAX = 2_000_000  # the size of the largest proposal; a scan of it takes less than a second
FINDINGS_MAX = 200  # a ballot names a handful; for a dump of a million addresses the first 200 suffice
NAME_CHARS_MAX, VALUE_CHARS_MAX = 200, 400  # longer ones are neither names nor credentials
LENIENT_KINDS = (
    "secret assigned by name",
    "credential in a header",
)  # in a test they usually open nothing
SHOWN_CHARS = 4  # enough to find it again, too little to use it


@dataclass(frozen=True, slots=True)
class PrivateSpot:
    """Something private in a text. It holds the place, never the private text itself.

    ``grade``: ``sure`` passed its validator; ``likely`` has the shape but could be something else; ``fake`` is a
    documented example or test value (a redactor may still hide it). ``start`` and ``end`` are offsets in the text;
    ``line`` counts from 1.
    """

    kind: str
    family: Family
    grade: Grade
    masked: str
    line: int
    start: int
    end: int


def find_private(text: str, *, assignments: bool = True) -> list[PrivateSpot]:
    """Secrets and personal data in ``text``, in order, none inside another.

    ``assignments=False`` leaves out secrets known only by the name they are assigned to (``password = "…"``), for
    lock files and generated text. Only the first 2,000,000 characters of a text are read, and only the first 200 real
    and 200 fake findings are returned. No text makes it raise.
    """
    text = text[:TEXT_CHARS_MAX]
    named = _assigned(text) if assignments else iter(())
    persons = (
        _finding(kind, "personal", grade, value, start) for kind, grade, value, start in personal.find(text)
    )
    return _settled(text, [_shaped(text), _connection_strings(text), _headers(text), named, persons])


def find_tokens(text: str) -> list[PrivateSpot]:
    """Only the secrets in ``text`` that can be recognised without the name they are assigned to. Never raises."""
    text = text[:TEXT_CHARS_MAX]
    return _settled(text, [_shaped(text), _connection_strings(text), _headers(text)])


def named_secret(name: str, value: str) -> Grade | None:
    """Whether a value is a secret because of its name; see PrivateSpot for the grades."""
    match = _NAME.search(name[:NAME_CHARS_MAX])
    if match is None or len(value) < 6 or any(char.isspace() for char in value):
        return None
    if _NOT_SECRET_NAME.match(name[match.end() : NAME_CHARS_MAX]):
        return None
    return _value_grade(match.group().lower(), value[:VALUE_CHARS_MAX], quoted=True)


def _settled(text: str, sources: list[Iterator[PrivateSpot]]) -> list[PrivateSpot]:
    """The sources' findings up to the limit, in order, with lines, none inside another. Earlier sources win."""
    found: list[PrivateSpot] = []
    # Fakes are counted separately, so that many of them do not hide real ones.
    room = {True: FINDINGS_MAX, False: FINDINGS_MAX}
    lines = [match.start() for match in re.finditer("\n", text)]
    for finding in chain.from_iterable(sources):
        is_real = finding.grade != "fake"
        if not room[is_real] or any(f.start < finding.end and finding.start < f.end for f in found):
            continue
        room[is_real] -= 1
        found.append(replace(finding, line=bisect_right(lines, finding.start - 1) + 1))
        if not any(room.values()):
            break
    return sorted(found, key=lambda finding: finding.start)


def mask(value: str) -> str:
    """The first four characters and an ellipsis; fewer of a short value, so that most stays hidden."""
    return value[: min(SHOWN_CHARS, len(value) // 3)] + "…"


def entropy(value: str) -> float:
    """Shannon entropy in bits a character: 0 for one repeated, about 4 for random hex, 6 for base64."""
    shares = [count / len(value) for count in Counter(value).values()]
    return -sum(share * math.log2(share) for share in shares) if shares else 0.0


def _finding(kind: str, family: Family, grade: Grade, value: str, start: int) -> PrivateSpot:
    return PrivateSpot(kind, family, grade, mask(value), 0, start, start + len(value))


# Placeholders

_PLACEHOLDER_PARTS = re.compile(
    r"example|placeholder|change[-_ ]?(?:me|this)|replace[-_ ]?(?:me|with|this)|insert[-_ ]|your[-_ ]|"
    r"dummy|sample|redacted|xxxx|\*\*\*|\.\.\.|not[-_ ]?a[-_ ]?real|not[-_ ]?real|fake|todo|fixme|"
    r"secret[-_]?here|"
    r"(?:^|[-_ .])(?:test|tests|testing|mock|stub|foo|bar|baz|demo|insecure|undefined)(?:$|[-_ .0-9])",
    re.IGNORECASE,
)
_PLACEHOLDER_WORDS = words(
    "password passwd pass passw0rd p@ssw0rd p@ssword password1 password123 pwd secret secrets secretkey "
    "mysecret mypassword token mytoken apikey api_key api-key key none null nil true false default admin "
    "root user username guest postgres mysql redis mongo rabbitmq minio minioadmin letmein qwerty "
    "topsecret string value empty unset required optional hidden masked private public yourpassword "
    "yourtoken s3cret s3cr3t abc123 pass123 test test123 test1234 testing testpass testpassword secret123 "
    "admin123 "
)
_INTERPOLATED = re.compile(
    r"\$\{|\$\(|\$[A-Za-z_]|\{\{|\}\}|\{[A-Za-z0-9_.\[\]'\"!:]{0,60}\}|<[^<>\n]{1,60}>|%\(|%[sdr]|#\{"
)
_RUNS = "abcdefghijklmnopqrstuvwxyz", "0123456789", "qwertyuiopasdfghjklzxcvbnm", "9876543210"
_STEPS = [frozenset(map("".join, zip(run, run[1:] + run[0], strict=True))) for run in _RUNS]
_ANY_STEP = frozenset().union(*_STEPS)


def is_placeholder(value: str) -> bool:
    """Whether it is useless for a login: a placeholder, an interpolation, a run of the alphabet."""
    bare = value.strip().strip("\"'`")
    low = bare.lower()
    if low in _PLACEHOLDER_WORDS or len(set(low)) <= 3:
        return True
    return bool(_PLACEHOLDER_PARTS.search(bare) or _INTERPOLATED.search(bare)) or _mostly_runs(low)


def _mostly_runs(low: str) -> bool:
    """Whether runs like ``abcdef`` or ``12345`` make up three quarters of it."""
    if sum(map(_ANY_STEP.__contains__, map(add, low, low[1:]))) * 2 < len(low):
        return False  # too few steps for that, as in nearly every value
    lengths = [1] * len(low)  # of the longest run that begins at each character
    for steps in _STEPS:
        length = 1
        for at in range(len(low) - 2, -1, -1):
            length = length + 1 if low[at : at + 2] in steps else 1
            lengths[at] = max(lengths[at], length)
    covered = at = 0
    while at < len(low):
        covered += lengths[at] if lengths[at] >= 4 else 0
        at += lengths[at]
    return covered * 4 >= len(low) * 3


# Tokens with a format that their issuers made recognisable


def _random_enough(value: str) -> Grade | None:
    """A token's body. Repeated or spelled-out ones, as in documentation, are fake."""
    body = re.split(r"[_\-.]", value)[-1] if len(value) > 24 else value[4:]
    body = body if len(body) >= 12 else value[4:]
    return "fake" if is_placeholder(value) or is_placeholder(body) or entropy(body) < 2.6 else "sure"


def _test_mode(value: str) -> Grade | None:
    """A payment provider's test-mode key moves no money, but is a credential."""
    return "fake" if _random_enough(value) == "fake" else "likely"


def _jwt(value: str) -> Grade | None:
    """A JWT's first part is a JSON object with ``alg``. Documentation's John Doe is fake."""
    head, body, _signature = value.split(".", 2)
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
        claims = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", "replace")
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(header, dict) or "alg" not in header:
        return None
    return "fake" if "John Doe" in claims or str(header["alg"]).lower() == "none" else "sure"


def _key_block(value: str) -> Grade | None:
    """A private key has a body; code that only names the header line has none."""
    body = re.sub(r"\\n|[^A-Za-z0-9+/]", "", value.split("-----", 2)[-1])
    return "fake" if is_placeholder(body[:64]) or entropy(body[:120]) < 3.5 else "sure"


_B = r"(?<![A-Za-z0-9_])"  # not in the middle of a longer word
_E = r"(?![A-Za-z0-9_])"
_T = r"[A-Za-z0-9_-]"


# Kind, a text that must be present before the pattern is tried, and the pattern.
_SHAPES = (
    ("private key block", "PRIVATE KEY",
        r"-----BEGIN (?:[A-Z]{2,10} ){0,2}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[\s\"'+,]|\\n|\\r|[A-Za-z-]{4,12}: [^\n]{1,80}\n){0,20}"
        r"(?:[A-Za-z0-9+/=]{4,120}(?:[\s\"'+,]|\\n|\\r){0,12}){1,100}"),
    ("AWS access key", "AKIA", _B + r"AKIA[A-Z0-9]{16}" + _E),
    ("AWS session key", "ASIA", _B + r"ASIA[A-Z0-9]{16}" + _E),
    ("GitHub token", "gh", _B + r"gh[pousr]_[A-Za-z0-9]{36,255}" + _E),
    ("GitHub token", "github_pat_", _B + r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}" + _E),
    ("GitLab token", "gl", _B + r"gl(?:pat|ptt|dt|rt|soat|cbt|ft|agent)-[A-Za-z0-9_-]{20,80}"),
    ("Slack token", "xox", _B + r"xox[abeoprs]-[A-Za-z0-9-]{10,200}"),
    ("Slack token", "xapp-", _B + r"xapp-\d-[A-Z0-9]{8,14}-\d{8,16}-[a-f0-9]{32,80}"),
    ("Slack webhook", "hooks.slack.com",
        r"hooks\.slack\.com/services/T[A-Z0-9]{6,14}/B[A-Z0-9]{6,14}/[A-Za-z0-9]{20,30}"),
    ("Stripe live key", "k_live_", _B + r"[srp]k_live_[A-Za-z0-9]{16,120}" + _E),
    ("Stripe test key", "k_test_", _B + r"[sr]k_test_[A-Za-z0-9]{16,120}" + _E),
    ("Stripe webhook secret", "whsec_", _B + r"whsec_[A-Za-z0-9]{24,80}" + _E),
    ("Google API key", "AIza", _B + r"AIza[A-Za-z0-9_-]{35}" + r"(?![A-Za-z0-9_-])"),
    ("Google OAuth token", "ya29.", _B + r"ya29\.[A-Za-z0-9_-]{20,300}"),
    ("Google client secret", "GOCSPX-", _B + r"GOCSPX-[A-Za-z0-9_-]{28}"),
    ("Anthropic key", "sk-ant-", _B + r"sk-ant-[A-Za-z0-9_-]{24,200}"),
    ("OpenAI-style key", "sk-", _B + r"sk-(?:proj-|svcacct-|admin-|or-v1-|lf-)?" + _T + r"{24,200}"),
    ("Hugging Face token", "hf_", _B + r"hf_[A-Za-z]{34}" + _E),
    ("npm token", "npm_", _B + r"npm_[A-Za-z0-9]{36}" + _E),
    ("package index token", "pypi-", _B + r"pypi-AgE[A-Za-z0-9_-]{50,300}"),
    ("SendGrid key", "SG.", _B + r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    ("DigitalOcean token", "do", _B + r"do[opr]_v1_[a-f0-9]{64}" + _E),
    ("Telegram bot token", ":AA", r"(?<![0-9])\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ("Mailgun key", "key-", _B + r"key-[0-9a-f]{32}" + _E),
    ("Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{60,90}={0,2}"),
    ("Databricks token", "dapi", _B + r"dapi[0-9a-f]{32}(?:-\d)?" + _E),
    ("Shopify token", "shp", _B + r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}" + _E),
    ("Vault token", "hvs.", _B + r"hvs\.[A-Za-z0-9_-]{24,200}"),
    ("age secret key", "AGE-SECRET-KEY-1", _B + r"AGE-SECRET-KEY-1[A-Z0-9]{58}" + _E),
    ("JSON web token", "eyJ",
        _B + r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{2,4000}\.[A-Za-z0-9_-]{16,1000}"),
)  # fmt: skip
_JUDGES = {"private key block": _key_block, "Stripe test key": _test_mode, "JSON web token": _jwt}
_SHAPE_RULES = [
    (kind, anchor, re.compile(pattern), _JUDGES.get(kind, _random_enough))
    for kind, anchor, pattern in _SHAPES
]


def _shaped(text: str) -> Iterator[PrivateSpot]:
    for kind, anchor, pattern, judge in _SHAPE_RULES:
        for match in pattern.finditer(text) if anchor in text else ():
            if grade := judge(match.group()):
                yield _finding(kind, "secret", grade, match.group(), match.start())


# Connection strings: scheme://user:password@host

_USERINFO = re.compile(
    r"[^\s:/@\"'<>`]{0,80}:([^\s/@\"'<>`]{1,120})@([A-Za-z0-9._-]{1,120}|\[[0-9a-fA-F:]{2,45}\]|[${][^\s/]{1,60})"
)
_WEAK_LOCAL = words("localhost 127.0.0.1 0.0.0.0 [::1] host.docker.internal")


def _connection_strings(text: str) -> Iterator[PrivateSpot]:
    at = text.find("://")
    while at >= 0:
        match = _USERINFO.match(text, at + 3)
        if match:
            password, host = match.group(1), match.group(2).lower()
            user = text[at + 3 : match.start(1) - 1]
            grade: Grade = "sure"
            if is_placeholder(password) or password.lower() == user.lower() or _reserved_host(host):
                grade = "fake"
            elif host in _WEAK_LOCAL or "." not in host or len(password) < 6:
                grade = "likely"  # usually a development database on the same machine
            yield _finding("connection string with a password", "secret", grade, password, match.start(1))
        at = text.find("://", at + 3)


def _reserved_host(host: str) -> bool:
    """Whether the name is one that RFC 2606 and 6761 reserve for examples."""
    labels = host.rstrip(".").split(".")
    return labels[-1] in {"example", "test", "invalid"} or (len(labels) > 1 and labels[-2] == "example")


# Credentials after the scheme of an HTTP header, or passed to a client as user:password

_SCHEME = re.compile(
    r"(?<![A-Za-z0-9_])(bearer|basic|token|apikey)[ \t]{1,4}([A-Za-z0-9._~+/=-]{16,2000})", re.IGNORECASE
)
_USER_OPTION = re.compile(
    r"(?<![A-Za-z0-9_])(?:curl|wget|http)\b[^\n]{0,200}?[ \t](?:-u|--user)[ =]?[\"']?"
    r"[^\s:\"'$]{1,60}:([^\s\"']{6,120})"
)


def _headers(text: str) -> Iterator[PrivateSpot]:
    for match in _SCHEME.finditer(text):
        if grade := _scheme_grade(match.group(1).lower(), match.group(2)):
            yield _finding("credential in a header", "secret", grade, match.group(2), match.start(2))
    for match in _USER_OPTION.finditer(text):
        if grade := _value_grade("password", match.group(1), quoted=True):
            yield _finding("credential in a header", "secret", grade, match.group(1), match.start(1))


def _scheme_grade(scheme: str, value: str) -> Grade | None:
    """``sure`` if it is random, or decodes to a name and a password; words after the scheme are prose."""
    if is_placeholder(value):
        return None
    if scheme == "basic":
        try:
            decoded = base64.b64decode(value, validate=True).decode("ascii")
        except (binascii.Error, ValueError):
            return None
        user, colon, password = decoded.partition(":")
        is_real = bool(colon) and not is_placeholder(password) and password.lower() != user.lower()
        return "sure" if is_real and decoded.isprintable() else None
    is_mixed = scheme == "bearer" and len(value) >= 24 and not (value.islower() or value.isupper())
    has_digit = any(map(str.isdigit, value))
    longest = max(re.split(r"[^A-Za-z0-9]", value), key=len)
    return "sure" if (has_digit or is_mixed) and len(longest) >= 16 and entropy(longest) >= 3.2 else None


# Values that a name makes a secret

_NAME = re.compile(
    r"secret|passwo?r?d|passwd|passphrase|pwd|token|api[_-]?key|access[_-]?key|auth[_-]?key|account[_-]?key|"
    r"private[_-]?key|signing[_-]?key|encryption[_-]?key|master[_-]?key|service[_-]?key|credential",
    re.IGNORECASE,
)
_AFTER_NAME = re.compile(
    r"([A-Za-z0-9_-]{0,24})[\"'\]]{0,2}(?:[ \t]{0,4}:[ \t]{0,4}[A-Za-z][A-Za-z\[\]. |]{0,24})?"
    r"[ \t]{0,8}(?:=>|:=|==?|:)[ \t]{0,8}([rbuf]?)([\"'`]?)([^\s\"'`]{6,400})"
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
    r"[A-Za-z_][A-Za-z0-9_]{0,60}(?:[.(\[]|::)|^[A-Z][A-Z0-9_]{2,60}[,;)]{0,2}$|^[a-z_][a-z_]{2,60}[,;)]{0,2}$"
)
_UUID = re.compile(r"^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")
# Names and values separated by a space: a Dockerfile's ENV, an option, an SQL account.
_SPACED = re.compile(
    r"(?:^[ \t]{0,8}(?:ENV|ARG)[ \t]{1,8}[A-Z0-9_]{0,40}(?:PASSW(?:OR)?D|SECRET|TOKEN|API_?KEY|ACCESS_?KEY)"
    r"[A-Z0-9_]{0,20}|[ \"']--?(?:password|passwd|token|secret|api-key)|"
    r"\bidentified by|\bpassword(?= '))[ \t]{1,4}"
    r"([\"']?)([^\s\"'=]{6,200})(?=[\s\"';]|$)",
    re.IGNORECASE | re.MULTILINE,
)
_UNQUOTED_END = re.compile(r"[ \t]{0,8}(?:#[^\n]{0,200})?(?:\n|\r|$)")


def _assigned(text: str) -> Iterator[PrivateSpot]:
    skip_to = 0
    for name in _NAME.finditer(text):
        if name.start() < skip_to:
            continue
        match = _AFTER_NAME.match(text, name.end())
        if match is None or _NOT_SECRET_NAME.match(match.group(1)):
            continue
        quote, value = match.group(3), match.group(4)
        if quote and text[match.end() : match.end() + 1] != quote:
            continue  # it continues after a space: a sentence, not a credential
        if not quote:
            if not _UNQUOTED_END.match(text, match.end()) or _CODE.search(value):
                continue  # an expression of a programming language, not an .env or YAML value
            value = value.rstrip(",;")
        grade = _value_grade(name.group().lower(), value, quoted=bool(quote))
        if grade is not None and not (match.group(2) == "f" and "{" in value):
            skip_to = match.end()
            yield _finding("secret assigned by name", "secret", grade, value, match.start(4))

    for match in _SPACED.finditer(text):
        if grade := _value_grade("password", match.group(2), quoted=True):
            yield _finding("secret assigned by name", "secret", grade, match.group(2), match.start(2))


def _value_grade(name: str, value: str, *, quoted: bool) -> Grade | None:
    """How much a value looks like a credential: ``sure`` if random, ``likely`` if it is only not a word."""
    is_place = value.startswith(("/", "./", "~/", "http:", "https:", "arn:"))
    if is_place or is_placeholder(value) or _UUID.match(value):
        return None
    classes = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", "[^A-Za-z0-9]"))
    has_digit = any(map(str.isdigit, value))
    longest = max(re.split(r"[^A-Za-z0-9+/]", value), key=len)
    if len(longest) >= 16 and has_digit and entropy(longest) >= 3.2:
        return "sure"
    if name.startswith(("passw", "pwd", "passp")) and classes >= 2 and (has_digit or classes >= 3):
        mixed = len(value) >= 10 and classes >= 3 and has_digit and entropy(value) >= 3.0
        return "sure" if mixed and (quoted or classes == 4 or len(value) >= 12) else "likely"
    if len(value) >= 10 and has_digit and classes >= 2 and entropy(value) >= 3.0:
        return "likely"
    return None
