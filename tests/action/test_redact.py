"""Redaction: no canary survives an encoding, a split or a flood, and plain text stays as it is."""

import base64
import json
import re
import string
from collections.abc import Callable
from itertools import product
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.action.redact import Filter, Redactor, redact
from tests.action.canaries import CANARIES
from tests.cases import each
from tests.patience import GROWTH_MAX, growth

SOME = [CANARIES[kind] for kind in ("AWS access key", "GitHub token", "Stripe key", "mail address", "IBAN")]


def in_hex(text: str) -> str:
    return text.encode().hex()


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": in_base64,
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 of a sentence": lambda text: in_base64(f"the token is {text} today"),
    "base64 in lines": lambda text: base64.encodebytes(f"{'a b c ' * 12}{text}".encode()).decode(),
    "hex": in_hex,
    "upper hex": lambda text: in_hex(text).upper(),
    "hex with colons": lambda text: text.encode().hex(":"),
    "URL": lambda text: "".join(f"%{ord(char):02X}" for char in text),
    "URL in part": lambda text: quote(text).replace("a", "%61").replace("_", "%5F").replace("-", "%2D"),
    "URL twice": lambda text: quote("".join(f"%{ord(char):02x}" for char in text)),
    "JSON escapes": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"x": text})),
    "JSON with a line before": lambda text: json.dumps(f"a\n{text}\tb"),
    "HTML": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "two lines": lambda text: f"{text[:11]}\n{text[11:]}",
    "three lines": lambda text: f"{text[:7]}\n  {text[7:13]}\r\n{text[13:]}",
    "zero width": lambda text: "\u200b".join(text),
}


@each(("name", "kind"), product(ENCODINGS, CANARIES))
def test_no_canary_survives_an_encoding(name: str, kind: str) -> None:
    canary = CANARIES[kind]
    hidden = ENCODINGS[name](canary)
    found = redact(f"before it\nhere: {hidden}\nafter it")
    assert hidden not in found.text
    assert canary not in found.text
    assert canary not in re.sub(r"\s", "", found.text)
    assert found.counts
    assert canary not in str(found.counts)
    assert found.text.startswith("before it")
    assert found.text.endswith("after it")


def hidden_in_two_chunks(name: str, kind: str, quarter: int) -> None:
    """The text is cut behind a quarter of the hidden canary, two or three."""
    hidden = ENCODINGS[name](CANARIES[kind])
    before, after = "a word " * 300 + "\nhere: ", "\nand more" + " words" * 200
    cut = len(before) + len(hidden) * quarter // 4
    text = before + hidden + after
    redactor = Redactor()
    shown = redactor.feed(text[:cut]) + redactor.feed(text[cut:]) + redactor.close()
    assert hidden not in shown
    assert CANARIES[kind] not in shown
    assert sum(redactor.counts.values()) >= 1


@each(("name", "kind"), product(ENCODINGS, CANARIES))
def test_no_canary_survives_a_split_over_two_chunks(name: str, kind: str) -> None:
    hidden_in_two_chunks(name, kind, 2)


@pytest.mark.long
@each(("name", "kind", "quarter"), product(ENCODINGS, CANARIES, (1, 3)))
def test_no_canary_survives_a_split_elsewhere(name: str, kind: str, quarter: int) -> None:
    hidden_in_two_chunks(name, kind, quarter)


def test_plain_text_stays() -> None:
    text = "PLAN: read src/app.py, id 0f8fad5b-d9cb-469f-a165-70867728950e, at 2026-01-02T03:04:05Z; 100 % of it.\n"
    assert redact(text * 50).text == text * 50
    assert redact("") == redact("")
    assert redact("").text == ""


def test_more_than_the_findings_that_a_scan_shows_are_redacted() -> None:
    text = "".join(f"ghp_{at:05d}a1B2c3D4e5F6g7H8j9K0m1N2p3Q4r5S \n" for at in range(1_000))
    assert "a1B2c3" not in redact(text).text


def test_the_steps_go_in_order() -> None:
    filter = Filter(["Project Falcon", "glpat"])
    found = filter.redact(f"project falcon, falconry, SHIT, shiitake, {CANARIES['GitLab token']}")
    assert found.text == (
        "[redacted: blocked by the content policy], falconry, [redacted: profanity], shiitake, "
        "[redacted: GitLab token]"
    )
    assert found.counts == {"blocked by the content policy": 1, "profanity": 1, "GitLab token": 1}


@pytest.mark.parametrize("blocked", [[""], ["  "], ["x" * 201], ["x"] * 1_001])
def test_a_wrong_policy_is_refused(blocked: list[str]) -> None:
    with pytest.raises(ValueError, match="blocked phrase"):
        Filter(blocked)


@pytest.mark.parametrize("canary", SOME, ids=lambda text: text[:4])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_canary_survives_a_split(canary: str, data: st.DataObject) -> None:
    before = data.draw(st.integers(0, 4_000)) * "a word "
    text = f"{before}\ntoken {canary} and{' more' * data.draw(st.integers(0, 900))}"
    redactor, shown, at = Redactor(), "", 0
    while at < len(text):
        size = data.draw(st.integers(1, 40) if abs(at - len(before)) < 60 else st.integers(300, 9_000))
        shown += redactor.feed(text[at : at + size])
        at += size
    shown += redactor.close()
    assert shown == redact(text).text
    assert canary not in shown
    assert sum(redactor.counts.values()) == 1


def test_a_stream_shows_text_before_it_ends() -> None:
    redactor = Redactor()
    shown = sum(len(redactor.feed("some words ")) for _ in range(1_000))
    assert shown > 11_000 - 3 * 1_024


def test_a_named_secret_within_a_line_is_hidden() -> None:
    assert (
        redact("use password=S3cr3tPw9rdX7q today").text
        == "use password=[redacted: secret assigned by name] today"
    )


def test_colours_of_a_terminal_hide_no_secret() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    for text in (f"\x1b[31m{token}\x1b[0m", f"{token[:10]}\x1b[1;32m{token[10:]}"):
        assert token[10:] not in redact(text).text, text


HOSTILE = [
    "a.", "a", "\n", "a\n", "%41", "\\u0041", "A1b2C3d4", "0a", "password=", "-----BEGIN PRIVATE KEY-----\n",
    "ghp_", "1 ", "4111 1111 1111 1111 ", "a1\nb2 ", "eyJ.", "token: ", " ", '"', "\\n",
    "secret_access_key=", "2-", "a@b.co ", "fuck ", "\uff21", "\u200b", "é", "A1", "bsn 1 ", "--password ", "DE44 ",
    "glpat-", "gldt-", "xoxb-", "sk-", "\x1b[0",
]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda text: repr(text)[:20])
def test_the_time_is_linear(unit: str) -> None:
    assert growth(redact, (unit * 25_000)[:25_000]) < GROWTH_MAX


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=string.printable + "\u200b\uff21\0", max_size=400))
def test_any_text_is_redacted(text: str) -> None:
    assert isinstance(redact(text).text, str)
