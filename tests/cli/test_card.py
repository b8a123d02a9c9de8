"""What a human is shown before answering stands on one screen, and an answer is what the human meant."""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from council import Council, OpenEscalation, Requester
from council.agents.mind import Opinion, Ruling
from council.cli.card import NOT_AT_HAND, ROWS, STATIC_ONLY, Card
from council.cli.render import WAITING_ROWS
from council.protocol.errors import NotApproved
from council.runtime.open_escalations import packed, with_proposal
from tests.cli.conftest import Chair, Cli, council_of, says
from tests.cli.test_commands import document
from tests.patience import HANG_S

Up = Callable[[Council], Council]
WHY = "it can't be undone, and reaches production: a human should look"
STATIC = "static checks of the core rules, no model: "
ASKS = Chair(
    Opinion.no(STATIC + WHY, confidence=0.6, risk_level="high"), Ruling("human", STATIC + WHY, 0.8, "high")
)
BOT = Requester(agent="deploy-bot", user="ada", host="web-3", folder="~/shop", repository="shop.git")
DIFF = "\n".join(
    ["The cache goes.", "diff --git a/a.py b/a.py", "--- a/a.py", "+++ b/a.py", "@@ -1,2 +1,2 @@"]
    + [f"-old {n}" for n in range(40)]
    + [f"+new {n}" for n in range(50)]
)


def waiting(**proposal: Any) -> OpenEscalation:
    """What waits for a human once a real council has seen this proposal."""
    given = {"summary": "Do it", "risk": "high", "requester": BOT, **proposal}
    with council_of(prime=ASKS) as council:
        council.propose(given.pop("summary"), **given)
        (found,) = council.escalations()
        return found


def guarded() -> OpenEscalation:
    """The case of a guarded call."""
    with council_of(prime=ASKS) as council:

        @council.guard(risk="high", requester=BOT)
        def drop_database(database: str, confirm: bool) -> None:
            raise AssertionError("it was run")

        with pytest.raises(NotApproved):
            drop_database(database="prod", confirm=True)
        (found,) = council.escalations()
        return found


def drawn(shown: Any, width: int = 80, *, colours: bool = False) -> list[str]:
    out = io.StringIO()
    system: Any = "standard" if colours else None
    console = Console(
        file=out, width=width, force_terminal=colours, color_system=system, no_color=False, highlight=False
    )
    console.print(shown)
    return out.getvalue().splitlines()


def flat(shown: Any, width: int = 80) -> str:
    return " ".join(" ".join(drawn(shown, width)).split())


def card(case: OpenEscalation, later_s: float = 125.0, **how: Any) -> Card:
    return Card(case, case.asked_wall_s + later_s, **how)


# The card


def test_what_decides_stands_on_the_first_screen() -> None:
    """Action, arguments, requester, risk, age, time left, votes and command within 24 lines of 80 columns."""
    for case in (
        guarded(),
        waiting(summary="word " * 300, body=DIFF),
        waiting(action={"tool": "edit", "args": {"a": DIFF, "path": "/etc/passwd", "b": "x" * 5_000}}),
    ):
        for each in (
            case,
            replace(case, ballots=tuple(replace(case.ballots[0], seat=f"s{n}") for n in range(15))),
        ):
            lines = drawn(card(each))
            assert len(lines) <= ROWS
            assert max(map(len, lines)) <= 80
            shown = " ".join(" ".join(lines).split())
            for said in (
                "asked by deploy-bot for ada@web-3 in ~/shop (shop.git)",
                "risk high · asked 2 min 5 s ago · 23 h 57 min left",
                " no 0.60 high risk it can't be undone",
                f"council answer {each.escalation_id} --approve --reason",
                f"council answer {each.escalation_id} --reject",
            ):
                assert said in shown, said
    assert "edit" in lines[1]
    assert '  path = "/etc/passwd"' in lines  # a long argument hides no short one


def test_the_action_comes_first_with_its_exact_arguments() -> None:
    lines = drawn(card(guarded()))
    assert lines[0].endswith("waits for a human")
    assert "drop_database" in lines[1]
    assert lines[2:4] == ["  confirm = true", '  database = "prod"']
    order = [
        "confirm = ",
        "says ",
        "asked by ",
        "risk ",
        "prime ",
        "ruling ",
        "unknown ",
        "options ",
        "next ",
        "approve ",
    ]
    at = [next(n for n, each in enumerate(lines) if each.lstrip().startswith(word)) for word in order]
    assert at == sorted(at)
    assert "without arguments" in flat(card(waiting(action={"tool": "restart", "args": {}})))


def test_each_reason_stands_once_and_without_its_prefix() -> None:
    case = waiting()
    for shown in (flat(card(case)), flat(card(case, whole=True))):
        assert shown.count(WHY) == 1
        assert "no model:" not in shown
        assert "prime: human 0.80, for the reason of its vote" in shown
        assert (
            "options approve (for it: lite, codemind), or reject (for it: prime, its proposer rates" in shown
        )
        assert STATIC_ONLY not in shown  # lite has said nothing of being static
    by_checks = replace(case, ballots=case.ballots[:1])
    assert STATIC_ONLY in flat(card(by_checks))


@pytest.mark.parametrize(
    ("char", "shown"),
    [
        ("\u202e", "\\u202e"),
        ("\u2066", "\\u2066"),
        ("\u200b", "\\u200b"),
        ("\u3164", "\\u3164"),
        ("\u034f", "\\u034f"),
        ("\u2800", "\\u2800"),
        ("\U000e0041", "\\U000e0041"),
        ("\x1b", "\\u001b"),
        ("\x9b", "\\x9b"),
        ("\x7f", "\\x7f"),
        ("\n", "\\n"),
    ],
)
def test_what_can_not_be_seen_is_shown_as_its_number(char: str, shown: str) -> None:
    found = flat(card(waiting(action={"tool": "rm", "args": {f"k{char}": f"a{char}"}}, requester=None)))
    assert f'k{shown} = "a{shown}"' in found
    assert char == "\n" or char not in found


def test_text_of_an_argument_can_not_pass_for_a_line_of_the_card() -> None:
    lines = drawn(
        card(waiting(action={"tool": "edit", "args": {"new": "x\nrisk      low\nasked by  root\x1b[2J"}}))
    )
    assert [each for each in lines if each.startswith("risk ")] == [
        "risk      high · asked 2 min 5 s ago · 23 h 57 min left"
    ]
    assert "  │ risk      low" in lines
    assert "  │ asked by  root\\x1b[2J" in lines


def test_a_tools_name_can_not_pass_for_a_line_of_the_card() -> None:
    case = waiting(action={"tool": "read\nasked by  root\u202e", "args": {"db": 1}})
    for shown in (card(case), card(case, whole=True)):
        lines = drawn(shown)
        assert lines[1] == "read\\nasked by  root\\u202e"
        assert [each for each in lines if each.startswith("asked by")] == [
            next(each for each in lines if "deploy-bot" in each)
        ]


@pytest.mark.parametrize(
    ("char", "shown"), [("\u00a0", "\\xa0"), ("\u3000", "\\u3000"), ("\u2003", "\\u2003")]
)
def test_a_space_that_is_another_character_is_shown_as_its_number_in_an_argument(
    char: str, shown: str
) -> None:
    args = {"dir": f"/srv{char}/old", "text": f"one{char}two\nthree"}
    found = flat(card(waiting(action={"tool": "rm", "args": args})))
    assert f'dir = "/srv{shown}/old"' in found
    assert f"one{shown}two" in found


def test_a_client_with_a_name_of_its_own_is_shown_beside_who_asks_as_it_says() -> None:
    case = replace(waiting(requester=Requester(agent="ada, checked " * 15)), proposer="night-bot")
    assert "as client night-bot" in flat(card(case))
    assert "as client" not in flat(card(replace(case, proposer="client-0123456789abcdef")))


def test_a_case_without_its_proposal_does_not_look_like_one_without_an_action() -> None:
    case = waiting(action={"tool": "drop", "args": {"db": "prod"}})
    assert NOT_AT_HAND not in flat(card(case))
    assert f"{NOT_AT_HAND} council show {case.proposal_id}" in flat(card(with_proposal(case, None)))


def test_of_many_large_proposals_the_newest_fit_an_answer() -> None:
    case = waiting(body="x")
    first, second, third = (replace(case, proposal_id=name) for name in ("1", "2", "3"))
    found = packed([first, second, third], {"1": b"a", "2": b"bbb", "3": b"cc"}, bytes_max=3)
    assert [each.proposal for each in found] == [b"a", b"", b"cc"]


def test_an_arguments_name_can_not_pass_for_a_name_and_its_value() -> None:
    args = {'dry_run = true, "x': 1, "": 2, "a b": "c\nd"}
    lines = drawn(card(waiting(action={"tool": "rm", "args": args})))
    assert {'  "dry_run = true, \\"x" = 1', '  "" = 2', '  "a b":'} <= set(lines)


def test_a_change_is_measured_and_coloured_and_what_is_cut_can_be_had() -> None:
    case = waiting(body=DIFF)
    lines = drawn(card(case))
    assert lines[2] == "  1 file changed, 50 lines added, 40 removed"
    assert lines[3] == "  │ diff --git a/a.py b/a.py"
    (cut,) = [each for each in lines if "more lines" in each]
    assert cut.endswith(f"more lines: council show {case.proposal_id}")
    whole = drawn(card(case, whole=True))
    assert "  │ +new 49" in whole
    assert "  │ The cache goes." in whole
    hidden = len(whole) - len([each for each in lines if "more lines" not in each])
    assert int(cut.split()[1]) <= hidden
    coloured = "\n".join(drawn(card(case, whole=True), colours=True))
    for style, text in (("32", "+new 3"), ("31", "-old 3"), ("36", "@@ -1,2 +1,2 @@")):
        assert f"\x1b[{style}m{text}\x1b[0m" in coloured


@pytest.mark.parametrize("width", [20, 39, 40, 80, 110])
def test_it_fits_any_width(width: int) -> None:
    case = waiting(action={"tool": "t" * 90, "args": {"k" * 90: "漢" * 90, "diff": DIFF}}, body="word " * 90)
    for whole in (False, True):
        shown = drawn(card(case, whole=whole), width)
        assert max(map(len, shown)) <= width
        assert "".join(f"council answer {case.escalation_id}".split()) in "".join("".join(shown).split())


def test_a_command_names_the_council_that_it_is_for() -> None:
    shown = flat(card(waiting(), where=["--name shop"]), 110)
    assert "--name shop --approve" in shown
    assert "council answer" not in flat(card(waiting(), answers=False))


# The commands


def test_the_newest_come_first_and_not_too_many(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    for number in range(7):
        council.propose(f"Case {number}")
    shown = cli("escalations").out
    assert [n for n in range(7) if f"Case {n}" in shown] == [2, 3, 4, 5, 6]
    assert shown.index("Case 6") < shown.index("Case 2")
    assert "… and 2 more: council escalations --all" in shown
    named = cli("escalations", "--name", "council").out
    assert "… and 2 more: council escalations --all --name council" in named
    every = cli("escalations", "--all").out
    assert [n for n in range(7) if f"Case {n}" in every] == [*range(7)]
    assert "more: council" not in every
    listed = document(cli("escalations", "--json").out)["escalations"]
    assert [each["summary"] for each in listed] == [f"Case {n}" for n in reversed(range(7))]


def test_status_lists_the_newest_and_says_how_many_are_older(cli: Cli, up: Up) -> None:
    """Mutation: the ten that waited longest, and nothing of the others."""
    council = up(council_of(prime=ASKS))
    for number in range(WAITING_ROWS + 2):
        council.propose(f"Case {number:02}")
    shown = cli("status").out
    rows = [each for each in shown.splitlines() if each.strip().startswith("esc-")]
    assert [each.split()[-1] for each in rows] == [f"{n:02}" for n in reversed(range(2, WAITING_ROWS + 2))]
    assert "\n2 older: council escalations --all\n" in shown
    assert "2 older: council escalations --all --name council" in cli("status", "--name", "council").out


def test_the_document_holds_what_is_to_be_approved(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    council.propose("Drop it", action={"tool": "drop", "args": {"db": ["prod"]}}, requester=BOT)
    (found,) = document(cli("escalations", "--json").out)["escalations"]
    assert (found["action"], found["args"]) == ({"tool": "drop", "args": {"db": ["prod"]}}, {"db": ["prod"]})
    assert found["requester"] == {"name": str(BOT), **BOT.model_dump()}
    assert (found["risk"], found["command"]) == ("high", f"council answer {found['escalation_id']}")
    assert 0 <= found["age_s"] < HANG_S
    assert found["time_left_s"] > 86_000
    assert found["votes"][0] == {"seat": "prime", "vote": "no", "reason": WHY}
    (row,) = document(cli("status", "--json").out)["waiting"]
    assert (row["action"]["tool"], row["action"]["args"]) == ("drop", '{"db": ["prod"]}')
    assert (row["requester"], row["votes"]["prime"], row["command"]) == (str(BOT), "no", found["command"])


def test_a_case_is_found_by_the_beginning_of_its_id(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    one, other = (str(council.propose(f"Case {n}").proposal_id) for n in range(2))
    for given in (one, f"esc-{one}", one.upper(), unlike(one, other)):
        shown = cli("escalations", given)
        assert (shown.code, "Case 0" in shown.out, "Case 1" in shown.out) == (0, True, False)
    answered = cli("answer", unlike(one, other), "--reject", "--json")
    assert document(answered.out)["proposal_id"] == one
    for command in (("escalations",), ("answer", "--reject")):
        unknown = cli(command[0], "0123456789abcdef", *command[1:], "--json")
        error = document(unknown.out)["error"]
        assert (unknown.code, error["code"]) == (2, "unknown_proposal")
        assert error["message"] == "no escalation '0123456789abcdef': council escalations lists them"


def unlike(one: str, other: str) -> str:
    """The shortest beginning of one that the other does not share, of 4 or more characters."""
    return next(one[:n] for n in range(4, 17) if one[:n] != other[:n])


def test_an_ambiguous_beginning_lists_the_matches(cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    council = up(council_of(prime=ASKS))
    drafts = [
        council.draft(f"Case {n}").model_copy(update={"msg_id": f"abcd{n}{'0' * 11}"}) for n in range(7)
    ]
    for each in drafts:
        council.propose(each)
    said = cli("answer", "abcd", "--reject")
    assert said.code == 2
    told = " ".join(said.err.split())
    assert "'abcd' begins 7 ids: esc-abcd000000000000 (Case 0), esc-abcd100000000000 (Case 1)" in told
    assert "and 2 more; give more characters" in told
    assert len(council.escalations()) == 7
    assert cli("answer", "abcd3", "--reject").code == 0
    assert len(council.escalations()) == 6


def test_two_answers_at_once_are_none(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    case = str(council.propose("Drop it").escalation_id)
    for given in (["--approve", "--reject"], ["--reject", "--approve", "--yes"]):
        said = cli("answer", case, *given)
        assert (said.code, "give one of --approve and --reject" in said.err) == (2, True)
    nothing = cli("answer", case)
    assert nothing.code == 2
    assert f"council escalations {case}" in " ".join(nothing.err.split())
    assert [each.escalation_id for each in council.escalations()] == [case]


def test_high_risk_is_not_approved_without_a_reason(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS, lite=says(Opinion.yes("fine", confidence=0.9))))
    case = str(council.propose("Drop it").escalation_id)
    for given in ([], ["--reason", "  "], ["--reason", "…"], ["--yes"]):
        said = cli("answer", case, "--approve", *given)
        assert (said.code, "approving a high risk needs a reason" in " ".join(said.err.split())) == (2, True)
    assert len(council.escalations()) == 1
    assert cli("answer", case, "--approve", "--reason", "it is a copy").code == 0
    council.propose("Drop the other")
    assert cli("answer", council.escalations()[0].proposal_id, "--reject").code == 0


def test_a_low_risk_is_approved_without_a_reason(cli: Cli, up: Up) -> None:
    unsure = Chair(
        Opinion.yes("perhaps", confidence=0.1), Ruling("human", "a person should see it", 0.9, "low")
    )
    council = up(council_of(prime=unsure))
    case = str(council.propose("Rename it").escalation_id)
    assert council.escalations()[0].risk == "low"
    assert cli("answer", case, "--approve").code == 0


def test_a_late_answer_is_told_whose_was_counted(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS, humans={"ada": "kept"}))
    case = str(council.propose("Drop it").escalation_id)
    council.answer(case, approve=False, human="ada")
    for given in (case, case[:14]):
        said = cli("answer", given, "--approve", "--reason", "mine", "--as", "ada", "--json")
        error = document(said.out)["error"]
        assert (said.code, error["code"]) == (1, "already_answered")
        assert error["message"] == "already answered by ada: rejected. Your answer was not counted."
    withdrawn = str(council.propose("Drop the other").escalation_id)
    council.cancel(withdrawn.removeprefix("esc-"))
    said = cli("answer", withdrawn, "--reject", "--as", "ada", "--json")
    assert (said.code, document(said.out)["error"]["code"]) == (1, "closed")


def test_show_has_all_of_a_case(cli: Cli, up: Up) -> None:
    council = up(council_of(prime=ASKS))
    args = {"path": "a.py", "new": DIFF}
    case = council.propose("Edit it", action={"tool": "edit", "args": args}, requester=BOT)
    shown = cli("show", case.proposal_id)
    assert shown.code == 3
    lines = shown.out.splitlines()
    assert lines[1:3] == ["edit", '  path = "a.py"']
    assert "  │ +new 49" in lines
    assert f"asked by {BOT}, as client {council.sender}" in " ".join(shown.out.split())
    council.answer(str(case.escalation_id), approve=True, reason="fine")
    told = " ".join(cli("show", case.proposal_id).out.split())
    assert f"asked by {BOT}" in told
    assert "new 49" in told


# At a terminal


class Person:
    """Somebody at a terminal, who types ``answers`` at the questions, one after the other."""

    def __init__(self, answers: list[str]) -> None:
        self.screen = ""
        self._answers = answers

    @contextmanager
    def at(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Person]:
        ours, theirs = os.openpty()
        ended = threading.Event()
        typing = threading.Thread(target=self._type, args=(ours, ended))
        with (
            monkeypatch.context() as patch,
            open(theirs, encoding="utf-8") as keyboard,
            open(os.dup(theirs), "w", encoding="utf-8", buffering=1) as screen,
        ):
            patch.setattr(sys, "stdin", keyboard)
            patch.setattr(sys, "stderr", screen)
            typing.start()
            try:
                yield self
            finally:
                ended.set()
                typing.join(HANG_S)
        os.close(ours)

    def _type(self, terminal: int, ended: threading.Event) -> None:
        seen = 0
        while not ended.is_set() or select.select([terminal], [], [], 0)[0]:
            if select.select([terminal], [], [], 0.01)[0]:
                self.screen += os.read(terminal, 65_536).decode("utf-8", "replace")
            asked = max(
                self.screen.find(mark, seen) for mark in ("[y/N] ", "[a/r/L] ", "reason: ", "empty): ")
            )
            if asked >= 0 and self._answers:
                seen = len(self.screen)
                os.write(terminal, f"{self._answers.pop(0)}\n".encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    ("options", "answers", "came_to"),
    [
        ([], ["a", "it is a copy"], (0, "approved", "it is a copy")),
        ([], ["approve", ""], (2, None, None)),
        ([], ["r", ""], (0, "rejected", "")),
        ([], ["reject", "not today"], (0, "rejected", "not today")),
        ([], [""], (3, None, None)),
        ([], ["yes"], (3, None, None)),
        (["--approve", "--reason", "seen"], ["y"], (0, "approved", "seen")),
        (["--approve"], ["y", "seen"], (0, "approved", "seen")),
        (["--approve", "--reason", "seen"], [""], (3, None, None)),
        (["--approve", "--reason", "seen"], ["n"], (3, None, None)),
        (["--reject", "--reason", "seen"], ["y"], (0, "rejected", "seen")),
        (["--approve", "--reason", "seen", "--yes"], [], (0, "approved", "seen")),
        (["--approve", "--reason", "seen", "--json"], [], (0, "approved", "seen")),
    ],
)
def test_a_person_is_shown_the_case_and_asked(
    cli: Cli,
    up: Up,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    answers: list[str],
    came_to: tuple[int, str | None, str | None],
) -> None:
    council = up(council_of(prime=ASKS))
    case = council.propose("Drop it", action={"tool": "drop", "args": {"db": "prod"}})
    with Person([*answers]).at(monkeypatch) as person:
        said = cli("answer", str(case.escalation_id)[:16], *options)
    decision = council.decision(case.proposal_id)
    assert decision is not None
    answer = decision.answer
    assert (said.code, decision.outcome, answer and answer.reason) == came_to, (said, person.screen)
    assert ('db = "prod"' in person.screen) == bool(answers)
    if answers and options:
        assert f"{options[0].removeprefix('--')} this? [y/N]" in person.screen
    if came_to[0] == 3:
        assert "left as it is: nothing was answered" in person.screen


def test_bytes_that_are_no_text_are_no_answer(cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    council = up(council_of(prime=ASKS))
    case = council.propose("Drop it", action={"tool": "drop", "args": {"db": "prod"}})
    with Person(["a", "\udcff"]).at(monkeypatch) as person:
        assert cli("answer", str(case.escalation_id)).code == 2
    assert "the input is not text in utf-8: nothing was answered" in person.screen.replace("\r\n", " ")
    assert council.escalations()


# Where a terminal can little


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_locale_without_utf_8_gets_readable_text(
    cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    council = up(council_of(prime=ASKS))
    council.propose("Lösche 漢 …", action={"tool": "drop", "args": {"db": "é"}})
    raw = io.BytesIO()
    stdout = io.TextIOWrapper(raw, encoding)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert cli("escalations").code == 0
    stdout.flush()
    out = raw.getvalue().decode(encoding)
    assert "L\\xf6sche \\u6f22 ~" in out or encoding != "ascii"
    assert ("risk      high - asked" in out) == (encoding == "ascii")
    assert ("é" in out, "…" in out) == (encoding != "ascii", encoding == "utf-8")


def test_a_narrow_terminal_without_colours_shows_a_case(
    cli: Cli, up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    council = up(council_of(prime=ASKS))
    council.propose("Drop it", action={"tool": "drop", "args": {"db": "prod"}})
    monkeypatch.setenv("COLUMNS", "20")
    shown = cli("escalations")
    assert (shown.code, "\x1b" in shown.out) == (0, False)
    assert max(map(len, shown.out.splitlines())) <= 20
    assert 'db = "prod"' in shown.out
