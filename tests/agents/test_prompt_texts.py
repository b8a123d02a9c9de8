"""The shipped prompts say what they must, in few words; a user's files take their place and are told by hash."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from council.agents.prompting.texts import FILES_MAX, PLACES, SHIPPED, TEXT_CHARS_MAX, load_texts
from council.agents.prompting.tokens import ESTIMATE, VOCABULARIES, TokenCounter
from council.protocol.errors import ConfigError
from council.protocol.identity.charter import DEFAULT_IDENTITY, INSTRUCTION_TOKENS_MAX

TEXTS = load_texts()
ROLES = ("prime", "lite", "codemind")
GPT = TokenCounter("gpt-4o", "o200k_base")


def faults(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refused:
        load_texts(folder)
    return tuple(problem.removeprefix(f"{folder}/") for problem in refused.value.problems)


# What ships


def test_there_is_a_text_for_each_role_and_each_use_and_no_other() -> None:
    assert TEXTS.texts.keys() == TEXTS.hashes.keys() == {*ROLES, *PLACES}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_says_what_it_looks_for_how_it_disagrees_and_when_it_abstains(role: str) -> None:
    who, *lines = TEXTS.texts[role].split("\n")
    assert who.lower().startswith(f"you are {role}, a seat of the council")
    assert [re.match(r"Look for: |Disagree by |Abstain when ", line) is not None for line in lines] == [
        True
    ] * 3
    assert GPT(TEXTS.texts[role]) <= 150


def test_the_roles_look_for_different_things() -> None:
    """They share the words of their form and of a vote, and few others."""
    words = {role: set(re.findall(r"[a-z]{5,}", TEXTS.texts[role].lower())) for role in ROLES}
    for one, other in (("prime", "lite"), ("prime", "codemind"), ("lite", "codemind")):
        assert len(words[one] & words[other]) < len(words[one]) / 2


def test_no_text_says_what_to_vote() -> None:
    for name, text in TEXTS.texts.items():
        assert not re.search(r"\b(?:vote|answer|say|rule) \"?(?:yes|no|confirm|reject)\b", text.lower()), name


@pytest.mark.parametrize("vocabulary", [*VOCABULARIES, ESTIMATE])
def test_the_instructions_keep_their_limit_however_they_are_counted(vocabulary: str) -> None:
    count = TokenCounter("m", vocabulary)
    assert max(count(TEXTS.texts[name]) for name in ("ballot", "ruling", "act")) <= INSTRUCTION_TOKENS_MAX


def test_the_frame_leaves_most_of_the_smallest_usual_mtu() -> None:
    fixed = [TEXTS.texts[name] for name in ("prime", "sections", "ruling_answer", "ruling", "closing")]
    assert sum(map(GPT, [*fixed, DEFAULT_IDENTITY.prompt()])) < 4096 * 20 // 100


# Places


def test_places_are_filled_once() -> None:
    said = TEXTS.fill("compressor", nonce="n1", target_tokens="70", text="costs $nonce, $$")
    assert said.endswith("START>> n1\ncosts $nonce, $$\n<<END n1")
    assert "in ≤ 70 tokens" in said


def test_a_role_that_there_is_no_text_for_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"roles are codemind, lite, prime; a file auditor\.txt"):
        TEXTS.of_role("auditor")


# A user's own


def test_a_file_takes_the_place_of_ours_and_is_told_by_its_hash(tmp_path: Path) -> None:
    own = "\ufeffYou are Lite.\r\nIt costs $$5.\n\n"
    (tmp_path / "lite.txt").write_bytes(own.encode())
    (tmp_path / "README.md").write_text("no prompt")
    texts = load_texts(tmp_path)
    assert texts.fill("lite") == "You are Lite.\nIt costs $5."
    assert texts.sources("prime", "lite", "lite") == (
        ("lite.txt", hashlib.sha256(own.encode()).hexdigest()),
        ("prime.txt", hashlib.sha256((SHIPPED / "prime.txt").read_bytes()).hexdigest()),
    )


def test_another_name_is_another_seats_role(tmp_path: Path) -> None:
    (tmp_path / "auditor.txt").write_text("You are Auditor.")
    assert load_texts(tmp_path).fill("auditor") == "You are Auditor."


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("lite", b"", "has 0 characters; expected 1 to 20,000"),
        ("lite", b" \n", "has 0 characters; expected 1 to 20,000"),
        ("lite", b"x" * (TEXT_CHARS_MAX + 1), "has 20,001 characters; expected 1 to 20,000"),
        (
            "lite",
            b"x" * (4 * TEXT_CHARS_MAX + 1),
            "longer than 80,000 bytes; a prompt has at most 20,000 characters",
        ),
        ("lite", b"caf\xe9", "is no text in UTF-8: byte 3"),
        ("lite", b"a\0b", "holds a NUL character, which databases refuse; remove it"),
        ("lite", b"costs $5", "holds a $ that begins no name; write $$ for a dollar"),
        ("lite", b"see $canary", "holds $canary, which is nothing here; $$ is a dollar"),
        (
            "sections",
            b"$nonce and $cannary",
            "lacks $canary, holds $cannary, which is nothing here; $$ is a dollar",
        ),
        ("compressor", b"$text", "lacks $nonce, lacks $target_tokens; $$ is a dollar"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, name: str, data: bytes, problem: str) -> None:
    (tmp_path / f"{name}.txt").write_bytes(data)
    assert faults(tmp_path) == (f"{name}.txt: {problem}",)


def test_every_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "lite.txt").touch()
    (tmp_path / "prime.txt").mkdir()
    assert [problem.split(":")[0] for problem in faults(tmp_path)] == ["lite.txt", "prime.txt"]


def test_a_folder_that_is_none_or_too_full_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match="can't be read"):
        load_texts(missing)
    for at in range(FILES_MAX + 1):
        (tmp_path / f"r{at}.txt").touch()
    with pytest.raises(ConfigError, match="101 prompts, of at most 100"):
        load_texts(tmp_path)


def test_a_file_without_end_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "lite.txt").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="longer than 80,000 bytes"):
        load_texts(tmp_path)
