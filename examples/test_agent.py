"""Tests of your own agent. ``council.testing`` has real councils whose minds always say the same."""

import pytest

from council import Council, NotApproved
from council.testing import approving, escalating, rejecting


def clean_up(council: Council, folder: str) -> str:
    """The code under test."""

    @council.guard(describe="Remove {folder}")
    def remove(folder: str) -> str:
        return f"removed {folder}"

    try:
        return remove(folder)
    except NotApproved as error:
        return "asked a human" if not error.decision.final else "left it"


def test_it_removes_what_was_approved() -> None:
    with approving() as council:
        assert clean_up(council, "build") == "removed build"


def test_it_leaves_what_was_rejected() -> None:
    with rejecting(reason="it is still in use") as council:
        assert clean_up(council, "build") == "left it"


def test_it_says_that_a_human_is_asked() -> None:
    with escalating() as council:
        assert clean_up(council, "build") == "asked a human"


def test_the_reason_reaches_the_caller() -> None:
    with rejecting(reason="it is still in use") as council:

        @council.guard()
        def remove() -> None: ...

        with pytest.raises(NotApproved, match="it is still in use"):
            remove()
