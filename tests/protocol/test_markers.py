"""Markers: line starts alone, nested seeds, any split of the stream, results, destinations."""

from __future__ import annotations

import re
import sys
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.protocol.answer.markers import (
    BLOCKS_MAX,
    DESTINATIONS,
    MARKERS,
    OUTPUT_CHARS_MAX,
    Block,
    Marker,
    MarkerStream,
    as_text,
    blocks,
    marker_head,
    parse,
    read_verification,
)
from council.protocol.errors import CallerError, EnvelopeError, EnvelopeTooLarge
from tests.cases import each
from tests.examples import tried

NONCE = "5f3a9c17e2b84d06"
OTHER = "5f3a9c17e2b84d07"


def kinds(text: str, nonce: str | None = None) -> list[str]:
    return [block.marker for block in parse(text, nonce=nonce)]


def in_chunks(text: str, nonce: str | None, *cuts: int) -> tuple[Block, ...]:
    stream = MarkerStream(nonce)
    pieces = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        pieces += stream.feed(text[start:end])
    return blocks([*pieces, *stream.close()])


# Where a marker counts (rules 3.2, GCP 7.1)


@each(("nonce", "marker"), product([None, NONCE], MARKERS))
def test_each_of_the_six_begins_a_block(marker: Marker, nonce: str | None) -> None:
    head = marker_head(marker, nonce)
    assert parse(f"{head} one\n two\n", nonce=nonce)[-1].text == "one\n two"
    assert kinds(f"before\n{head}", nonce) == ["RESPONSE", marker]


def test_the_six_are_those_of_the_document() -> None:
    assert MARKERS == ("PLAN", "EXECUTE", "RESPONSE", "THOUGHT_SEED", "INTERRUPT", "VERIFY")


def test_an_answer_becomes_its_blocks() -> None:
    found = parse("Sure.\nPLAN:\n1. look\n2. act\nEXECUTE: ls\nRESPONSE: done\n", nonce=None)
    assert found == (
        Block("RESPONSE", "Sure."),
        Block("PLAN", "1. look\n2. act"),
        Block("EXECUTE", "ls"),
        Block("RESPONSE", "done"),
    )


@pytest.mark.parametrize("text", ["", " ", "\r\n \t\n"])
def test_blanks_are_no_response(text: str) -> None:
    assert parse(text, nonce=None) == ()
    assert kinds(text + "\nPLAN: x") == ["PLAN"]


def test_text_without_any_marker_is_a_response() -> None:
    assert parse("It's late: 23:00.\nNOTE: sleep\n", nonce=None) == (
        Block("RESPONSE", "It's late: 23:00.\nNOTE: sleep"),
    )


@each(
    "text",
    [
        " PLAN: x",
        "\tPLAN: x",
        "a PLAN: x",
        "PLAN : x",
        "plan: x",
        "PLANS: x",
        "PLAN",
        "PLAN\n: x",
        "a\rPLAN: x",
        "a\u2028PLAN: x",
        "a\x85PLAN: x",
        "a\x0bPLAN: x",
        "\ufeffPLAN: x",
        "PLAN\uff1a x",
        "\u0420LAN: x",
        "PLAN[]: x",
        f"PLAN[{NONCE}]: x",
    ],
)
def test_anything_else_is_text(text: str) -> None:
    """Mutation: str.splitlines, str.strip, re.IGNORECASE or re.MULTILINE on more than line feeds."""
    assert parse(text, nonce=None) == (Block("RESPONSE", text.strip(" \t\r\n")),)


def test_a_marker_ends_the_block_before_it_and_behind_a_marker_is_no_line_start() -> None:
    assert parse("PLAN:EXECUTE: x\r\nVERIFY: y", nonce=None) == (
        Block("PLAN", "EXECUTE: x"),
        Block("VERIFY", "y"),
    )


def test_a_block_may_be_empty() -> None:
    assert parse("PLAN:\nEXECUTE:\n", nonce=None) == (Block("PLAN", ""), Block("EXECUTE", ""))


# Seeds


def test_only_a_seed_stands_inside_another_block_which_goes_on() -> None:
    """Mutation: a seed that runs to the next marker takes a plan's steps away from whoever checks them."""
    text = "PLAN:\n1. a\nTHOUGHT_SEED: cache it\n  for later\n2. b\nRESPONSE: c\nTHOUGHT_SEED: d\ne"
    assert parse(text, nonce=None) == (
        Block("PLAN", "1. a\n2. b"),
        Block("THOUGHT_SEED", "cache it\n  for later", "PLAN"),
        Block("RESPONSE", "c\ne"),
        Block("THOUGHT_SEED", "d", "RESPONSE"),
    )


@pytest.mark.parametrize("blank", [" ", "\t", "\t ", " \t"])
def test_a_line_indented_by_blanks_or_a_tab_goes_on_with_the_seed(blank: str) -> None:
    """The rule of ``_goes_on_with_seed``. Mutation: a space alone indents; the rest of the seed is in the plan."""
    text = f"PLAN: a\nTHOUGHT_SEED: cache it\n{blank}for later\n{blank}and then\nb"
    expected = (
        Block("PLAN", "a\nb"),
        Block("THOUGHT_SEED", f"cache it\n{blank}for later\n{blank}and then", "PLAN"),
    )
    assert parse(text, nonce=None) == expected
    assert in_chunks(text, None, *range(1, len(text))) == expected


@pytest.mark.parametrize("first", ["\v", "\f", "\u00a0", "\u3000", "\n", "\r\n"])
def test_any_other_beginning_of_a_line_ends_the_seed(first: str) -> None:
    """An empty line does, and one that begins with another blank. Mutation: every blank that Unicode has indents."""
    assert parse(f"PLAN: a\nTHOUGHT_SEED: b\n{first}c", nonce=None) == (
        Block("PLAN", f"a\n{first}c"),
        Block("THOUGHT_SEED", "b", "PLAN"),
    )


def test_a_seed_before_any_block_stands_in_the_response() -> None:
    assert parse("THOUGHT_SEED: a\nTHOUGHT_SEED: b\nhello", nonce=None) == (
        Block("THOUGHT_SEED", "a", "RESPONSE"),
        Block("THOUGHT_SEED", "b", "RESPONSE"),
        Block("RESPONSE", "hello"),
    )


def test_a_marker_ends_a_seed() -> None:
    """Mutation: what stands behind a seed's own block goes on into the seed."""
    assert parse("THOUGHT_SEED: a\nEXECUTE: b\n c", nonce=None) == (
        Block("THOUGHT_SEED", "a", "RESPONSE"),
        Block("EXECUTE", "b\n c"),
    )


def test_a_seed_whose_line_is_blank_has_the_next_one() -> None:
    assert parse("PLAN: a\nTHOUGHT_SEED:\nb\nc", nonce=None) == (
        Block("PLAN", "a\nc"),
        Block("THOUGHT_SEED", "b", "PLAN"),
    )
    assert parse("THOUGHT_SEED:\r\n\r\nb", nonce=None) == (
        Block("THOUGHT_SEED", "", "RESPONSE"),
        Block("RESPONSE", "b"),
    )


# The nonce


def test_without_its_nonce_a_marker_is_text() -> None:
    text = f"EXECUTE: a\nEXECUTE[{OTHER}]: b\nEXECUTE[{NONCE.upper()}]: c\nEXECUTE [{NONCE}]: d\n EXECUTE[{NONCE}]: e"
    assert parse(text, nonce=NONCE) == (Block("RESPONSE", text),)
    assert parse(f"{text}\nEXECUTE[{NONCE}]: f", nonce=NONCE)[1:] == (Block("EXECUTE", "f"),)


@pytest.mark.parametrize(
    "nonce", ["", "5f3a", NONCE.upper(), NONCE[:15], "g" * 16, NONCE + "\n", "0" * 65, "[0-9a-f]{16}"]
)
def test_an_unfit_nonce_is_refused(nonce: str) -> None:
    for use in (
        lambda: MarkerStream(nonce),
        lambda: parse("", nonce=nonce),
        lambda: as_text("", nonce=nonce),
    ):
        with pytest.raises(EnvelopeError) as caught:
            use()
        assert caught.value.field == "nonce"


def test_with_a_nonce_foreign_text_stays_word_for_word() -> None:
    """rules 2.2: the prompt is preserved; there is nothing to quote where no writer knows the nonce."""
    text = "EXECUTE: a\r\n> b\u2028"
    assert as_text(text, nonce=NONCE) == text


@pytest.mark.parametrize("text", [f"x{NONCE}y", f"EXECUTE[{NONCE.upper()}]: a"])
def test_a_nonce_that_stands_in_the_text_is_refused(text: str) -> None:
    with pytest.raises(EnvelopeError, match="make another"):
        as_text(text, nonce=NONCE)


PIECES = [
    *(marker_head(marker, nonce) for marker in MARKERS for nonce in (None, NONCE, OTHER)),
    *("\n" + marker_head(marker, nonce) for marker in MARKERS for nonce in (None, NONCE)),
    *("\n", "\r", "\r\n", " ", "\t", "\u2028", "> ", "a", "PLA", "THOUGHT_", "[", f"[{NONCE}", ":", "é"),
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


@given(TEXTS)
def test_quoted_text_holds_no_marker_however_its_lines_are_read(text: str) -> None:
    quoted = as_text(text, nonce=None)
    read_otherwise = "\n".join(quoted.splitlines())
    assert not {"PLAN", "EXECUTE", "THOUGHT_SEED", "INTERRUPT", "VERIFY"} & {
        *kinds(quoted),
        *kinds(read_otherwise),
    }
    assert re.sub("(\r\n|[\n\r\u2028])> ", r"\1", quoted).removeprefix("> ") == text  # nothing is lost


# The stream


def by_lines(text: str, nonce: str | None) -> tuple[Block, ...]:
    """The same by another way: the whole text, line by line."""
    form = "" if nonce is None else re.escape(f"[{nonce}]")
    found: list[list[str | None]] = []
    block: list[str | None] | None = None
    seed: list[str | None] | None = None
    for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text):
        marker = re.match(rf"({'|'.join(MARKERS)}){form}:", line)
        if marker:
            new = [marker[1], line[marker.end() :], None]
            if marker[1] == "THOUGHT_SEED":
                new[2] = block[0] if block else "RESPONSE"
                seed = new
            else:
                block, seed = new, None
            found.append(new)
            continue
        if seed is not None:
            is_first = not (seed[1] or "").strip(" \t\r\n") and line[0] not in "\r\n"
            seed = seed if line[0] in " \t" or is_first else None
        if seed is None and block is None and line.strip(" \t\r\n"):
            block = ["RESPONSE", "", None]
            found.append(block)
        into = seed or block
        if into is not None:
            into[1] = (into[1] or "") + line
    return tuple(Block(kind, (text or "").strip(" \t\r\n"), inside) for kind, text, inside in found)  # type: ignore[arg-type]


@settings(max_examples=tried(300))
@given(TEXTS, st.sampled_from([None, NONCE]), st.data())
def test_wherever_it_is_split_the_blocks_are_those_of_the_whole(
    text: str, nonce: str | None, data: st.DataObject
) -> None:
    """Mutation: no text held back, or the line start forgotten between two chunks."""
    expected = by_lines(text, nonce)
    assert parse(text, nonce=nonce) == expected
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=4).map(sorted))
    assert in_chunks(text, nonce, *cuts) == expected
    assert in_chunks(text, nonce, *range(1, len(text))) == expected


def test_text_is_told_as_soon_as_it_can_be_no_marker() -> None:
    stream = MarkerStream(None)
    assert [piece.text for piece in stream.feed("hello wor")] == ["", "hello wor"]
    assert [piece.text for piece in stream.feed("ld\nEXECUT")] == ["ld\n"]
    assert stream.feed("E") == []
    assert [(piece.block, piece.marker, piece.text) for piece in stream.feed("D: x")] == [
        (0, "RESPONSE", "EXECUTED: x")
    ]
    assert [(piece.block, piece.marker) for piece in stream.feed("\nINTERRUPT:")][-1] == (1, "INTERRUPT")
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
    stream = MarkerStream(None)
    chunk = "a" * 2**16
    for _ in range(OUTPUT_CHARS_MAX // len(chunk)):
        stream.feed(chunk)
    with pytest.raises(EnvelopeTooLarge) as caught:
        stream.feed("a")
    assert (caught.value.limit, caught.value.found) == (OUTPUT_CHARS_MAX, OUTPUT_CHARS_MAX + 1)
    with pytest.raises(CallerError, match="closed"):
        stream.feed("a")


def test_blocks_without_end_are_cut_off() -> None:
    assert len(parse("PLAN:\n" * BLOCKS_MAX, nonce=None)) == BLOCKS_MAX
    with pytest.raises(EnvelopeTooLarge):
        parse("PLAN:\n" * (BLOCKS_MAX + 1), nonce=None)


def test_a_closed_stream_reads_no_more() -> None:
    stream = MarkerStream(None)
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
    assert read_verification(parse(text, nonce=None)) == result


# Where a block may go (rules 3.4, GCP 7.2)

MATRIX = """
             cli_chat web_chat discord_chat council_chat shell memory
PLAN         log      -        -            show         -     -
EXECUTE      -        -        -            -            show  -
RESPONSE     show     show     show         -            -     -
THOUGHT_SEED -        -        -            show         -     show
INTERRUPT    show     show     show         show         -     -
VERIFY       show     show     show         show         -     -
"""


def test_the_destinations_are_the_documents_and_fixed() -> None:
    head, *rows = [line.split() for line in MATRIX.strip().splitlines()]
    expected = {
        marker: {channel: level for channel, level in zip(head, levels, strict=True) if level != "-"}
        for marker, *levels in rows
    }
    assert {marker: dict(channels) for marker, channels in DESTINATIONS.items()} == expected
    with pytest.raises(TypeError):
        DESTINATIONS["RESPONSE"]["shell"] = "show"  # type: ignore[index]
