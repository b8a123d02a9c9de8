"""Markers: line starts alone, nested seeds, any split of the stream, results."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.protocol.answer.markers import (
    BLOCKS_MAX,
    MARKERS,
    OUTPUT_CHARS_MAX,
    Block,
    Marker,
    MarkerStream,
    blocks,
    check_nonce,
    marker_head,
    parse,
    read_verification,
)
from council.protocol.errors import CallerError, EnvelopeError, EnvelopeTooLarge
from tests.cases import each
from tests.examples import tried

NONCE = "5f3a9c17e2b84d06"
OTHER = "5f3a9c17e2b84d07"
WORD = re.compile(rf"\b({'|'.join(MARKERS)}):")


def marked(text: str) -> str:
    """The text with this call's nonce in each marker."""
    return WORD.sub(rf"\1[{NONCE}]:", text)


def read(text: str) -> tuple[Block, ...]:
    return parse(marked(text), nonce=NONCE)


def in_chunks(text: str, *cuts: int) -> tuple[Block, ...]:
    stream = MarkerStream(NONCE)
    pieces = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        pieces += stream.feed(text[start:end])
    return blocks([*pieces, *stream.close()])


# Where a marker counts (rules 3.2, GCP 7.1)


@each("marker", MARKERS)
def test_each_of_the_six_begins_a_block(marker: Marker) -> None:
    head = marker_head(marker, NONCE)
    assert parse(f"{head} one\n two\n", nonce=NONCE)[-1].text == "one\n two"
    assert parse(f"before\n{head}", nonce=NONCE) == (Block("RESPONSE", "before"), Block(marker, ""))


def test_the_six_are_those_of_the_document() -> None:
    assert MARKERS == ("PLAN", "EXECUTE", "RESPONSE", "THOUGHT_SEED", "INTERRUPT", "VERIFY")


def test_an_answer_becomes_its_blocks() -> None:
    found = read("Sure.\nPLAN:\n1. look\n2. act\nEXECUTE: ls\nRESPONSE: done\n")
    assert found == (
        Block("RESPONSE", "Sure."),
        Block("PLAN", "1. look\n2. act"),
        Block("EXECUTE", "ls"),
        Block("RESPONSE", "done"),
    )


@pytest.mark.parametrize("text", ["", " ", "\r\n \t\n"])
def test_blanks_are_no_response(text: str) -> None:
    assert read(text) == ()
    assert read(text + "\nPLAN: x") == (Block("PLAN", "x"),)


def test_text_without_any_marker_is_a_response() -> None:
    assert read("It's late: 23:00.\nNOTE: sleep\n") == (Block("RESPONSE", "It's late: 23:00.\nNOTE: sleep"),)


@each(
    "text",
    [
        " PLAN[n]: x",
        "\tPLAN[n]: x",
        "a PLAN[n]: x",
        "PLAN[n] : x",
        "PLAN [n]: x",
        "plan[n]: x",
        "PLANS[n]: x",
        "PLAN[n]",
        "PLAN[n]\n: x",
        "a\rPLAN[n]: x",
        "a\u2028PLAN[n]: x",
        "a\x85PLAN[n]: x",
        "a\x0bPLAN[n]: x",
        "\ufeffPLAN[n]: x",
        "PLAN[n]\uff1a x",
        "\u0420LAN[n]: x",
        "PLAN[]: x",
        "PLAN: x",
        f"PLAN[{OTHER}]: x",
        f"PLAN[{NONCE.upper()}]: x",
    ],
)
def test_anything_else_is_text(text: str) -> None:
    """Mutation: str.splitlines, str.strip, re.IGNORECASE or re.MULTILINE on more than line feeds."""
    text = text.replace("[n]", f"[{NONCE}]")
    assert parse(text, nonce=NONCE) == (Block("RESPONSE", text.strip(" \t\r\n")),)
    assert parse(f"{text}\nEXECUTE[{NONCE}]: f", nonce=NONCE)[1:] == (Block("EXECUTE", "f"),)


def test_a_marker_ends_the_block_before_it_and_behind_a_marker_is_no_line_start() -> None:
    assert read("PLAN:EXECUTE: x\r\nVERIFY: y") == (
        Block("PLAN", f"EXECUTE[{NONCE}]: x"),
        Block("VERIFY", "y"),
    )


def test_a_block_may_be_empty() -> None:
    assert read("PLAN:\nEXECUTE:\n") == (Block("PLAN", ""), Block("EXECUTE", ""))


# Seeds


def test_only_a_seed_stands_inside_another_block_which_goes_on() -> None:
    """Mutation: a seed that runs to the next marker takes a plan's steps away from whoever checks them."""
    text = "PLAN:\n1. a\nTHOUGHT_SEED: cache it\n  for later\n2. b\nRESPONSE: c\nTHOUGHT_SEED: d\ne"
    assert read(text) == (
        Block("PLAN", "1. a\n2. b"),
        Block("THOUGHT_SEED", "cache it\n  for later"),
        Block("RESPONSE", "c\ne"),
        Block("THOUGHT_SEED", "d"),
    )


@pytest.mark.parametrize("blank", [" ", "\t", "\t ", " \t"])
def test_a_line_indented_by_blanks_or_a_tab_goes_on_with_the_seed(blank: str) -> None:
    """The rule of ``_goes_on_with_seed``. Mutation: a space alone indents; the rest of the seed is in the plan."""
    text = f"PLAN: a\nTHOUGHT_SEED: cache it\n{blank}for later\n{blank}and then\nb"
    expected = (
        Block("PLAN", "a\nb"),
        Block("THOUGHT_SEED", f"cache it\n{blank}for later\n{blank}and then"),
    )
    assert read(text) == expected
    assert in_chunks(marked(text), *range(1, len(marked(text)))) == expected


@pytest.mark.parametrize("first", ["\v", "\f", "\u00a0", "\u3000", "\n", "\r\n"])
def test_any_other_beginning_of_a_line_ends_the_seed(first: str) -> None:
    """An empty line does, and one that begins with another blank. Mutation: every blank that Unicode has indents."""
    assert read(f"PLAN: a\nTHOUGHT_SEED: b\n{first}c") == (
        Block("PLAN", f"a\n{first}c"),
        Block("THOUGHT_SEED", "b"),
    )


def test_a_seed_before_any_block_stands_in_the_response() -> None:
    assert read("THOUGHT_SEED: a\nTHOUGHT_SEED: b\nhello") == (
        Block("THOUGHT_SEED", "a"),
        Block("THOUGHT_SEED", "b"),
        Block("RESPONSE", "hello"),
    )


def test_a_marker_ends_a_seed() -> None:
    """Mutation: what stands behind a seed's own block goes on into the seed."""
    assert read("THOUGHT_SEED: a\nEXECUTE: b\n c") == (
        Block("THOUGHT_SEED", "a"),
        Block("EXECUTE", "b\n c"),
    )


def test_a_seed_whose_line_is_blank_has_the_next_one() -> None:
    assert read("PLAN: a\nTHOUGHT_SEED:\nb\nc") == (
        Block("PLAN", "a\nc"),
        Block("THOUGHT_SEED", "b"),
    )
    assert read("THOUGHT_SEED:\r\n\r\nb") == (
        Block("THOUGHT_SEED", ""),
        Block("RESPONSE", "b"),
    )


# The nonce


@pytest.mark.parametrize(
    "nonce", ["", "5f3a", NONCE.upper(), NONCE[:15], "g" * 16, NONCE + "\n", "0" * 65, "[0-9a-f]{16}"]
)
def test_an_unfit_nonce_is_refused(nonce: str) -> None:
    for use in (lambda: MarkerStream(nonce), lambda: parse("", nonce=nonce), lambda: check_nonce(nonce, "")):
        with pytest.raises(EnvelopeError) as caught:
            use()
        assert caught.value.field == "nonce"


@pytest.mark.parametrize("text", [f"x{NONCE}y", f"EXECUTE[{NONCE.upper()}]: a"])
def test_a_nonce_that_stands_in_the_text_is_refused(text: str) -> None:
    check_nonce(NONCE, "EXECUTE: a\r\n> b\u2028")
    with pytest.raises(EnvelopeError, match="make another"):
        check_nonce(NONCE, text)


PIECES = [
    *(marker_head(marker, nonce) for marker in MARKERS for nonce in (NONCE, OTHER)),
    *("\n" + marker_head(marker, NONCE) for marker in MARKERS),
    *(
        "\n",
        "\r",
        "\r\n",
        " ",
        "\t",
        "\u2028",
        "> ",
        "a",
        "PLA",
        "PLAN:",
        "THOUGHT_",
        "[",
        f"[{NONCE}",
        ":",
        "é",
    ),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


# The stream


def by_lines(text: str) -> tuple[Block, ...]:
    """The same by another way: the whole text, line by line."""
    found: list[list[str]] = []
    block: list[str] | None = None
    seed: list[str] | None = None
    for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text):
        marker = re.match(rf"({'|'.join(MARKERS)})\[{NONCE}\]:", line)
        if marker:
            new = [marker[1], line[marker.end() :]]
            if marker[1] == "THOUGHT_SEED":
                seed = new
            else:
                block, seed = new, None
            found.append(new)
            continue
        if seed is not None:
            is_first = not seed[1].strip(" \t\r\n") and line[0] not in "\r\n"
            seed = seed if line[0] in " \t" or is_first else None
        if seed is None and block is None and line.strip(" \t\r\n"):
            block = ["RESPONSE", ""]
            found.append(block)
        into = seed or block
        if into is not None:
            into[1] += line
    return tuple(Block(kind, text.strip(" \t\r\n")) for kind, text in found)  # type: ignore[arg-type]


@settings(max_examples=tried(300))
@given(TEXTS, st.data())
def test_wherever_it_is_split_the_blocks_are_those_of_the_whole(text: str, data: st.DataObject) -> None:
    """Mutation: no text held back, or the line start forgotten between two chunks."""
    expected = by_lines(text)
    assert parse(text, nonce=NONCE) == expected
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    assert in_chunks(text, *cuts) == expected
    assert in_chunks(text, *range(1, len(text))) == expected


def test_text_is_told_as_soon_as_it_can_be_no_marker() -> None:
    stream = MarkerStream(NONCE)
    assert [piece.text for piece in stream.feed("hello wor")] == ["", "hello wor"]
    assert [piece.text for piece in stream.feed("ld\nEXECUT")] == ["ld\n"]
    assert stream.feed("E") == []
    assert [(piece.block, piece.marker, piece.text) for piece in stream.feed("D: x")] == [
        (0, "RESPONSE", "EXECUTED: x")
    ]
    assert [(piece.block, piece.marker) for piece in stream.feed(f"\nINTERRUPT[{NONCE}]:")][-1] == (
        1,
        "INTERRUPT",
    )
    assert stream.close() == []


def test_what_is_held_back_is_shorter_than_a_marker() -> None:
    """Mutation: a stream that keeps the line, or the text, holds as much as an endless model writes."""
    stream = MarkerStream(NONCE)
    longest = max(len(marker_head(marker, NONCE)) for marker in MARKERS)
    sizes = []
    for number in range(3_000):
        stream.feed(("PLAN" if number % 7 else f"\nTHOUGHT_SEED[{NONCE[:9]}") * 9)
        sizes.append(sum(sys.getsizeof(value) for value in vars(stream).values() if isinstance(value, str)))
    assert max(sizes) <= sys.getsizeof("x" * longest)


def test_an_answer_without_end_is_cut_off() -> None:
    stream = MarkerStream(NONCE)
    chunk = "a" * 2**16
    for _ in range(OUTPUT_CHARS_MAX // len(chunk)):
        stream.feed(chunk)
    with pytest.raises(EnvelopeTooLarge) as caught:
        stream.feed("a")
    assert (caught.value.limit, caught.value.found) == (OUTPUT_CHARS_MAX, OUTPUT_CHARS_MAX + 1)
    with pytest.raises(CallerError, match="closed"):
        stream.feed("a")


def test_blocks_without_end_are_cut_off() -> None:
    assert len(read("PLAN:\n" * BLOCKS_MAX)) == BLOCKS_MAX
    with pytest.raises(EnvelopeTooLarge):
        read("PLAN:\n" * (BLOCKS_MAX + 1))


def test_a_closed_stream_reads_no_more() -> None:
    stream = MarkerStream(NONCE)
    stream.feed("PLAN")
    assert [piece.text for piece in stream.close()][-1] == "PLAN"
    assert stream.close() == []
    with pytest.raises(CallerError, match="closed"):
        stream.feed(":")


# The result of Verify (GCP 6)


@each(
    ("text", "result"),
    [
        ("VERIFY: success", "success"),
        ("VERIFY:\nSuccess: 12 passed, 0 failed", "success"),
        ("VERIFY: fail. The file is empty.", "fail"),
        ("VERIFY: FAILED", "fail"),
        ("VERIFY: success\nVERIFY: failure", "fail"),
        ("VERIFY: success\nVERIFY: hm", None),
        ("VERIFY: hm\nVERIFY: fail", "fail"),
        ("VERIFY: success/fail", None),
        ("VERIFY: success or fail", None),
        ("VERIFY: success|fail", None),
        ("VERIFY: successfully failed", None),
        ("VERIFY: not a success", None),
        ("VERIFY: failing tests are gone", None),
        ("VERIFY:", None),
        ("RESPONSE: success", None),
        ("success", None),
    ],
)
def test_verify_says_success_or_fail(text: str, result: str | None) -> None:
    assert read_verification(read(text)) == result
