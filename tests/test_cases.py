"""Each of many cases is tried, and each that fails is named."""

from __future__ import annotations

import pytest

from tests.cases import each


def test_all_that_fail_are_named() -> None:
    """Mutation: a loop ends at the first that fails, or takes a call of ``pytest.fail`` for a success."""
    tried = []

    @each(("number", "word"), [(1, "one"), (2, "two"), (3, "three"), (4, "four")])
    def check(number: int, word: str) -> None:
        tried.append(number)
        assert number != 2, word
        if number == 3:
            pytest.fail("it is three")

    with pytest.raises(pytest.fail.Exception) as caught:
        check()
    assert tried == [1, 2, 3, 4]
    said = str(caught.value)
    assert "2 of 4 failed" in said
    assert "case 2, {'number': 2, 'word': 'two'}: AssertionError: two" in said
    assert "case 3, {'number': 3, 'word': 'three'}: Failed: it is three" in said
    assert "case 1" not in said
    assert "case 4" not in said


def test_no_case_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no cases"):
        each("number", [])
