"""What the documents say is there, and the examples that need no Ray run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import council
from tests.programs import Ran, ran

ROOT = Path(__file__).parent.parent
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name for name in ("council/README.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def words_of_sentences(text: str) -> list[int]:
    """The number of words of each sentence in the paragraphs and lists of a page."""
    prose = re.sub(r"```.*?```|^\|.*?$|^#.*?$|!\[.*?\]\(.*?\)", "", text, flags=re.S | re.M)
    prose = re.sub(r"`[^`]*`", "name", re.sub(r"\]\([^)]*\)", "]", prose))
    paragraphs = re.split(r"\n\s*\n|\n\s*(?:-|\d+\.) ", prose)
    sentences = [part for each in paragraphs for part in re.split(r"(?<=[.!?:])\s+", each.strip())]
    return [count for each in sentences if (count := len(each.split()))]


USERS_PAGES = [page for page in PAGES if page.parent.name == "docs" or page == ROOT / "README.md"]


@pytest.mark.parametrize("page", USERS_PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    """At most 20 words on average."""
    counts = words_of_sentences(page.read_text(encoding="utf-8"))
    assert sum(counts) / len(counts) <= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[([\w.]+)\](?: - \d{4}-\d\d-\d\d)?$", text, re.M)
    assert headings[:2] == ["Unreleased", council.__version__]


def test_make_targets_that_the_readme_names_exist() -> None:
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.M))
    assert {"run", "test", "check", "bench", "sim"} <= named
    assert named <= made


def test_modules_that_the_picture_names_exist() -> None:
    page = (ROOT / "council/README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\b((?:runtime|core|journal|agents|cli)/[a-z_]+\.py)", page))
    assert len(named) >= 6
    for name in named:
        assert (ROOT / "council" / name).exists(), name


def test_tests_that_the_rules_name_exist() -> None:
    named = re.findall(
        r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "docs/rules.md").read_text(encoding="utf-8")
    )
    assert len(named) >= 100
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


PAGES_WITH_EXAMPLES = (
    "README.md",
    "docs/quickstart.md",
    "docs/python-api.md",
    "docs/packets.md",
    "docs/acting.md",
)


def examples() -> list[str]:
    text = "".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES_WITH_EXAMPLES)
    return re.findall(r"```python\n(.*?)```", text, re.S)


IN_PROCESS = {
    number: code for number, code in enumerate(examples()) if "launch(" not in code and "connect(" not in code
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """What the examples printed."""
    programs = {f"example {number}": code for number, code in IN_PROCESS.items()}
    return ran(programs, tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("number", IN_PROCESS)
def test_examples_run(number: int, printed: dict[str, Ran]) -> None:
    done = printed[f"example {number}"]
    assert done.error == ""
    assert done.printed.strip(), "an example shows something"


def test_the_readme_shows_what_its_example_prints(printed: dict[str, Ran]) -> None:
    """Its long line is wrapped there."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.search(r"```python\n(.*?)```\s+```text\n(.*?)```", text, re.S)
    assert shown is not None
    number = examples().index(shown[1])
    assert printed[f"example {number}"].printed.split() == shown[2].split()
