"""What a decision says of itself, in one line, in a few, and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from council.core.state import Answer, Ballot, Decision, InlineDecision, Ruling, Tally, Vote

NOISE = "static checks of the core rules, no model: "


def ballot(seat: str, vote: Vote, reason: str) -> Ballot:
    return Ballot("p1", seat, vote, reason, 0.9, "low", f"m-{seat}", "d")


REJECTED = Decision(
    "p1",
    "Clean the disk",
    "decided",
    "rejected",
    True,
    "prime ruled against it",
    Tally(1, 2, 0),
    2,
    (
        ballot("prime", "no", f"{NOISE}it deletes /srv/data"),
        ballot("lite", "yes", "small"),
        ballot("codemind", "no", "no backup is made"),
    ),
    ruling=Ruling("p1", "prime", "reject", f"{NOISE}it deletes /srv/data", 0.9, "high", "m2", "d2"),
)
APPROVED = replace(
    REJECTED, outcome="approved", reason="a majority of yes", ruling=None, tally=Tally(2, 1, 0)
)
WAITING = replace(
    REJECTED,
    standing="escalated",
    outcome=None,
    final=False,
    reason="Prime gave no ruling",
    ruling=None,
    escalation_id="esc-p1",
    missing=(("lite", "it raised ValueError"),),
)


def test_one_line_says_outcome_tally_and_who_objected() -> None:
    """Mutation: a reason that is both a ballot's and the ruling's is said twice."""
    assert str(REJECTED) == (
        "rejected (1 yes, 2 no, 0 abstained): prime: it deletes /srv/data; codemind: no backup is made"
    )
    assert str(WAITING).startswith(
        "waiting for a human as esc-p1 (1 yes, 2 no, 0 abstained): Prime gave no ruling"
    )
    assert str(replace(APPROVED, ballots=())) == "approved (2 yes, 1 no, 0 abstained): a majority of yes"
    assert "; against it prime: it deletes" in str(APPROVED)
    answered = replace(REJECTED, answer=Answer("p1", "ada", False, "not today", "m3", "d3"))
    assert str(answered).startswith(
        "rejected by ada (1 yes, 2 no, 0 abstained): ada: not today; prime: it deletes"
    )
    assert "by ada" in str(replace(APPROVED, answer=Answer("p1", "ada", True, "", "m3", "d3")))


@pytest.mark.parametrize(
    ("decision", "next_step"),
    [
        (REJECTED, "change what is objected to"),
        (APPROVED, "It may be done once"),
        (WAITING, "The human, and nobody else, answers: council answer esc-p1"),
        (replace(REJECTED, outcome="deferred"), "No human answered in time"),
        (replace(REJECTED, outcome="cancelled"), "It was cancelled, for the reason above"),
    ],
)
def test_an_explanation_names_the_id_every_objection_and_what_can_be_done(
    decision: Decision, next_step: str
) -> None:
    said = decision.explain().splitlines()
    assert said[0].startswith("Proposal p1 is ")
    assert "Objection of codemind: no backup is made" in said
    assert any("it deletes /srv/data" in line for line in said)
    assert next_step in said[-1]
    assert ("No vote of lite: it raised ValueError" in said) is (decision is WAITING)
    assert NOISE not in decision.explain()


def test_a_decision_in_process_says_how_its_program_answers() -> None:
    """Mutation: the command of a shell, which does not reach that council."""
    waiting = InlineDecision(**{name: getattr(WAITING, name) for name in WAITING.__struct_fields__})
    for said in (waiting.explain().splitlines()[-1], Cells(getattr(waiting, "_repr_html_")()).text):  # noqa: B009
        assert 'answers: in the program that runs this council, council.answer("esc-p1", approve=' in said
        assert "council answer" not in said
        assert "run council up and use Council.connect()" in said


class Cells(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.text = set[str](), ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_is_shown_a_table_and_no_markup_of_others() -> None:
    """Mutation: a summary, a reason or a seat's name that is not escaped."""
    evil = "<script>alert(1)</script><img src=x>"
    shown = replace(
        REJECTED,
        proposal_id=evil,
        summary=evil,
        reason=evil,
        ballots=(ballot(evil, "no", evil),),
        missing=((evil, evil),),
        escalation_id=evil,
        final=False,
        ruling=None,
    )
    page = Cells(getattr(shown, "_repr_html_")())  # noqa: B009 - a notebook's name for it
    assert page.tags == {"table", "tr", "th", "td"}
    assert page.text.count(evil) >= 6


def test_texts_of_others_stay_on_their_line_and_show_what_is_hidden() -> None:
    said = replace(
        REJECTED, reason="a\n\x1b[2Jb\u202ec\U000e0041", outcome="deferred", ballots=(), ruling=None
    )
    assert str(said) == "deferred (1 yes, 2 no, 0 abstained): a \\u001b[2Jb\\u202ec\\U000e0041"
    long = replace(REJECTED, ballots=tuple(ballot(f"s{n}", "no", f"{n} " * 9_000) for n in range(15)))
    assert "\n" not in str(long)
    assert len(repr(long)) < 1_000
    assert len(str(long)) < 4_000
    assert len(long.explain()) < 25_000


def test_what_prime_leaves_to_a_human_is_no_objection() -> None:
    """Mutation: an approved decision names Prime as one against it, because Prime had asked a human."""
    asks = Ruling("p1", "prime", "human", "it can't be undone", 0.9, "high", "m2", "d2")
    waiting = replace(WAITING, ballots=(), ruling=asks, reason="Prime ruled that a human must decide")
    assert str(waiting).endswith("Prime ruled that a human must decide; it can't be undone")
    assert "Question of prime to a human: it can't be undone" in waiting.explain().splitlines()
    assert "Objection" not in waiting.explain()
    approved = replace(APPROVED, ballots=(), ruling=asks, answer=Answer("p1", "ada", True, "", "m3", "d3"))
    assert "against it" not in str(approved)
    assert "Objection" not in approved.explain()


@pytest.mark.parametrize("vote", ["no", "abstain"])
def test_the_reason_of_a_vote_and_a_ruling_is_said_once(vote: Vote) -> None:
    asks = Ruling("p1", "prime", "human", "it can't be undone", 0.9, "high", "m2", "d2")
    waiting = replace(WAITING, ballots=(ballot("prime", vote, "it can't be undone"),), ruling=asks)
    assert waiting.explain().count("it can't be undone") == 1
    assert str(waiting).count("it can't be undone") == 1
