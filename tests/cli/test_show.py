"""What is drawn says all that a decision holds, fits the terminal, and obeys nothing that came from outside."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console, RenderableType

from council.cli import overview, render
from council.cli.card import Card
from council.core.state import Answer, Ballot, Decision, Option, Ruling, Tally, TieBreak
from council.kinds.text import clean, line, span
from council.runtime.open_escalations import OpenEscalation

NOW_S = 1_700_000_000.0
HOSTILE = "\x1b[2J\x1b]0;title\x07[bold red]all is well[/] \u202egnol\u2069 \x9b31m\r\x08\u200b"


def drawn(shown: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=False, highlight=False).print(shown)
    return out.getvalue()


def flat(shown: RenderableType) -> str:
    """What is drawn, as running text."""
    return " ".join(drawn(shown).replace("│", " ").split())


def ballot(seat: str, vote: str = "yes", **details: object) -> Ballot:
    said: dict[str, object] = {"reason": f"{seat}'s reason", "confidence": 0.9, "risk_level": "low"}
    given = {"proposal_id": "1a", "seat": seat, "vote": vote, "msg_id": "2b", "digest": "3c", **said}
    return Ballot(**{**given, **details})  # type: ignore[arg-type]


FULL = Decision(
    proposal_id="0123456789abcdef",
    summary="Delete the staging bucket",
    standing="decided",
    outcome="rejected",
    final=True,
    reason="a tie, broken by prime's no",
    tally=Tally(1, 1, 1),
    quorum=2,
    ballots=(ballot("prime", "no"), ballot("lite"), ballot("codemind", "abstain", confidence=0.2)),
    ruling=Ruling("1a", "prime", "confirm", "weighed", 0.8, "med", "4d", "5e"),
    answer=Answer("1a", "ada", False, "not on a Friday", "6f", "7a"),
    tie_break=TieBreak("prime", "2b", "no"),
    early=True,
    degraded=True,
    missing=(("jurist", "inactive: its actor died"),),
    late=(ballot("scribe", "no", reason="I was slow"),),
    escalated_for=("lite sees high risk",),
    escalation_id="esc-1a",
    dissent="lite voted yes: it is a copy",
    shared=(("model small-7b", ("lite", "codemind")),),
    seconds=75.0,
)
WAITING = OpenEscalation(
    escalation_id="esc-1a",
    proposal_id="1a",
    summary="Drop the table",
    risk_level="high",
    reason="prime_asks",
    detail="Prime ruled that a human must decide",
    options=(Option("approve", ("it is done",), ("it is gone",)), Option("reject", ("it stays",), ())),
    gaps=("whether there is a copy",),
    next_step="Read Prime's ruling, then approve or reject.",
    ballots=(ballot("prime", "no", risk_level="high"),),
    ruling=Ruling("1a", "prime", "human", "a person must see this", 0.8, "high", "4d", "5e"),
    asked_wall_s=0.0,
    expires_wall_s=NOW_S + 7_200,
)


def test_a_decision_shows_all_that_it_holds() -> None:
    shown = flat(render.decision(FULL))
    for said in (
        "rejected",
        "Delete the staging bucket",
        "a tie, broken by prime's no · 1 yes, 1 no, 1 abstained · quorum 2 · 1 min 15 s",
        "prime no 0.90 low prime's reason",
        "codemind abstain 0.20 low codemind's reason",
        "jurist — inactive: its actor died",
        "scribe no 0.90 low late, not counted: I was slow",
        "escalated lite sees high risk",
        "tie broken by prime's own ballot: no",
        "ruling prime: confirm (0.80, med risk). weighed",
        "human ada rejected it: not on a Friday",
        "dissent lite voted yes: it is a copy",
        "early no missing ballot could have changed the result",
        "degraded decided without every seat that should have voted",
        "shared lite, codemind share model small-7b",
        "proposal 0123456789abcdef",
    ):
        assert said in shown, said


def test_a_reason_is_shown_once_and_without_the_mark_of_static_checks() -> None:
    reason = "static checks of the core rules, no model: it can't be undone"
    shown = flat(
        render.decision(
            replace(
                FULL,
                ballots=(ballot("prime", "yes", reason=reason), ballot("lite", "no")),
                ruling=Ruling("1a", "prime", "human", reason, 0.8, "med", "4d", "5e"),
                dissent=f"prime (yes, 0.90): {reason}",
            )
        )
    )
    assert shown.count("it can't be undone") == 1
    assert "no model:" not in shown
    assert "ruling prime: human (0.80, med risk), for the reason of its vote" in shown
    assert "dissent prime (yes, 0.90)" in shown


def test_a_decision_that_waits_names_the_command_that_answers_it() -> None:
    waits = replace(FULL, standing="escalated", outcome=None, final=False)
    shown = flat(render.decision(waits))
    assert "escalated" in shown
    assert "council answer esc-1a" in shown
    assert "council answer" not in flat(render.decision(waits, ended=True))


def test_what_did_not_happen_is_not_mentioned() -> None:
    plain = replace(
        FULL, ruling=None, answer=None, tie_break=None, early=False, degraded=False, missing=(), late=(),
        escalated_for=(), dissent="", shared=(), outcome="approved",
    )  # fmt: skip
    shown = flat(render.decision(plain))
    for word in ("tie broken", "ruling", "human", "dissent", "early", "degraded", "shared", "—"):
        assert word not in shown, word


def test_an_escalation_shows_options_gaps_and_the_next_step() -> None:
    shown = flat(Card(WAITING, NOW_S))
    for said in (
        "esc-1a",
        "approve for: it is done; against: it is gone",
        "reject for: it stays; against: nothing",
        "unknown whether there is a copy",
    ):
        assert said in shown, said
    assert "prime: human 0.80 a person must see this" in shown
    assert "Read Prime's ruling" in shown
    assert "2 h left" in shown
    assert "59 min left" in flat(Card(WAITING, NOW_S + 3_660))
    assert "0 ms left" in flat(Card(WAITING, NOW_S + 7_201))


@pytest.mark.parametrize("width", [60, 80, 110])
def test_nothing_is_wider_than_the_terminal(width: int) -> None:
    long = replace(
        FULL, summary="word " * 400, ballots=(ballot("prime", reason="x" * 5_000), *FULL.ballots[1:])
    )
    for shown in (render.decision(long), Card(WAITING, NOW_S)):
        assert max(map(len, drawn(shown, width).splitlines())) <= width


def test_a_long_reason_is_cut_and_says_so() -> None:
    shown = flat(render.decision(replace(FULL, ballots=(ballot("prime", reason="word " * 4_000),))))
    assert "characters more: --json" in shown
    assert len(shown) < 4_000


def test_hostile_text_is_shown_and_not_obeyed() -> None:
    hostile = replace(
        FULL,
        summary=HOSTILE,
        reason=HOSTILE,
        dissent=HOSTILE,
        ballots=(ballot("prime", reason=HOSTILE),),
        missing=(("lite", HOSTILE),),
        escalated_for=(HOSTILE,),
        ruling=replace(FULL.ruling, reason=HOSTILE),
        answer=replace(FULL.answer, reason=HOSTILE, human=HOSTILE),
    )
    waiting = replace(WAITING, summary=HOSTILE, gaps=(HOSTILE,), detail=HOSTILE, next_step=HOSTILE)
    for shown in (
        render.decision(hostile),
        Card(waiting, NOW_S),
        render.waiting_lines([waiting], NOW_S),
    ):
        out = drawn(shown)
        assert not {char for char in out if not char.isprintable()} - {"\n"}
        assert "[bold red]" in " ".join(out.replace("│", " ").split())


@given(st.text())
def test_clean_text_prints_harmlessly_and_loses_nothing_visible(text: str) -> None:
    shown = clean(text)
    assert all(char == "\n" or char.isprintable() or char.isspace() for char in shown)
    assert "\x1b" not in shown
    assert "".join(filter(str.isalpha, text)) in "".join(filter(str.isalpha, shown)) or "\\" in shown
    assert len(line(text, 40)) <= 40
    assert "\n" not in line(text)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 ms"),
        (0.0083, "8 ms"),
        (0.24, "0.24 s"),
        (0.996, "1.0 s"),
        (9.96, "10 s"),
        (59.7, "1 min"),
        (75, "1 min 15 s"),
        (7_800, "2 h 10 min"),
        (86_400, "1 d"),
        (-3.0, "-3.0 s"),
    ],
)
def test_lengths_of_time_read_as_people_say_them(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(("age", "full"), [(0.0, 0), (45.0, 8), (90.0, 16), (500.0, 16)])
def test_a_heartbeat_fills_its_bar(age: float, full: int) -> None:
    assert overview.bar(age, 90.0).plain == "━" * full + "─" * (16 - full)


def test_where_the_council_is_served_is_shown_and_why_it_is_not() -> None:
    """Mutation: a metrics' port in use that nobody but the log and --json tells of."""
    away = {"url": None, "notice": "metrics can't be served at 127.0.0.1 port 9464: in use; see metrics_port"}
    told = {"panel": {"url": "http://127.0.0.1:7/", "notice": ""}, "metrics": away}
    lines = [drawn(each, 200).strip() for each in overview.served(told)]
    assert lines == ["panel http://127.0.0.1:7/", f"no metrics: {away['notice']}", ""]
    unwanted = {"url": None, "notice": None}
    assert overview.served({"metrics": unwanted}) == overview.served({"panel": None, "metrics": None}) == []


STATUS = {
    "durable": True,
    "position": 31,
    "epoch": 2,
    "journal_lag": 0,
    "journal_write_s": 0.00123,
    "journal_trouble": None,
    "journal_unsigned": None,
    "untold": 0,
    "decided": {"approved": 5, "rejected": 1},
    "ways": {"early": 4, "tie_broken": 1, "degraded": 0},
    "late_ballots": 2,
    "refused": {},
    "humans": ["ada"],
    "with_human": 0,
}


def test_totals_say_how_it_was_decided_and_how_far_the_journal_is() -> None:
    """On lines of their own at 80 columns. Mutation: the outcomes alone."""
    lines = [each.strip().split(maxsplit=1) for each in drawn(overview.totals(STATUS)).splitlines()]
    assert lines == [
        ["decided", "5 approved  1 rejected  (4 early, 1 tie-broken, 2 late ballots)"],
        ["refused", "none"],
        ["waiting", "0 proposals for a human (ada may answer)"],
        ["journal", "#31, epoch 2 (1 restart)  ·  0 behind  ·  last write 1.23 ms"],
    ]
    assert "last write 9.2 s" in drawn(overview.totals({**STATUS, "journal_write_s": 9.16}))
    quiet = {
        **STATUS,
        "durable": False,
        "ways": dict.fromkeys(("early",), 0),
        "late_ballots": 0,
        "decided": {},
    }
    assert drawn(overview.totals(quiet)).split("\n")[0].split() == ["decided", "none"]
    assert "journal  #31, in memory" in drawn(overview.totals(quiet))
    assert overview.stalled(STATUS) == []


def test_a_journal_in_trouble_says_why_and_what_that_holds_up() -> None:
    full = {**STATUS, "journal_trouble": f"no room{HOSTILE}", "journal_lag": 4, "untold": 1}
    (said,) = overview.stalled(full)
    assert flat(said).startswith("journal stalled: no room")
    assert flat(said).endswith("; 4 records not on disk (on 1 proposal)")
    assert "\x1b" not in drawn(said)
    (said,) = overview.stalled({**STATUS, "journal_unsigned": "/a/b can't be written"})
    assert flat(said) == "the journal has no checkpoint: /a/b can't be written"
