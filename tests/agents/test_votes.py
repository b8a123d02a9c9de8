"""What the weights of findings amount to: in a vote, in a whole council, and under a seat with a model."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council import Council
from council.agents.codemind import CodeMind
from council.agents.lite import Lite
from council.agents.mind import Case, Opinion, Ruling, ShownBallot
from council.agents.prime import Prime
from council.agents.prompting.builder import PromptBuilder
from council.agents.scan import scan as scanning
from council.agents.scan import tools
from council.agents.scan.scan import scan
from council.agents.static.floor import Floor
from council.agents.static.verdict import REASON_CHARS_MAX
from council.config.settings import SeatConfig
from tests.agents.test_lite import change
from tests.agents.test_minds_together import one_file, view
from tests.agents.writings import ANY_TEXT
from tests.examples import at_first, tried

KEY = "AKIA" + "Q7ZK3NVX2LMPT5RW"
STOPS = {
    "code": change("app/a.py", ["def f(x):", "    return eval(x)"]),
    "policy": change("app/a.py", [f'KEY = "{KEY}"']),
    "guard": one_file("shop/views.py", view(), view("")),
}
ASKS = {
    "code": change("app/a.py", ["def f():", "    return missing(1)"]),
    "policy": change("app/a.py", ["owner = 'anna.schmidt@firma-weber.de'"]),
    "guard": change("tests/test_a.py", ["import pytest", "@pytest.mark.skip", "def test_a():", "    assert f() == 1"],
                    removed=["import pytest", "def test_a():", "    assert f() == 1"]),
}  # fmt: skip
FINE = change("app/a.py", ["x = 1"])


def case_of(body: str, **more: Any) -> Case:
    return Case("1", "ann", "Change it", body, **more)


@dataclass(frozen=True)
class Agrees:
    """Votes yes and confirms, as a model might."""

    confidence: float = 0.9

    def review(self, case: Case) -> Opinion:
        return Opinion.yes("looks good to me", confidence=self.confidence)

    def rule(self, case: Case, ballots: list[ShownBallot]) -> Ruling:
        return Ruling("confirm", "I would do it", 0.9)


def decide(body: str, **minds: Any) -> str:
    seats = [SeatConfig(name, mind=minds.get(name, own)) for name, own in
             (("prime", Prime), ("lite", Lite), ("codemind", CodeMind))]  # fmt: skip
    with Council.inline(seats=seats) as council:
        decision = council.propose("Change it", body, wait_for="all")
    return decision.outcome or decision.standing


@pytest.mark.parametrize("kind", STOPS)
def test_what_stops_is_rejected_though_one_mind_alone_sees_it(kind: str) -> None:
    assert [found.weight for found in scan(case_of(STOPS[kind])).of("stop")]
    assert decide(STOPS[kind]) == "rejected"
    others = {"lite": Agrees(), "codemind": Agrees()}
    assert decide(STOPS[kind], **others) == "rejected", "Prime alone"


@pytest.mark.parametrize("kind", ASKS)
def test_what_a_rule_asks_about_is_never_approved_by_two_to_one(kind: str) -> None:
    seen = scan(case_of(ASKS[kind]))
    assert seen.of("ask")
    assert not seen.of("stop")
    assert decide(ASKS[kind]) == "escalated"
    assert decide(ASKS[kind], lite=Agrees(), codemind=Agrees()) == "escalated", "Prime alone"


def test_a_mind_that_asks_alone_has_a_model_of_prime_rule() -> None:
    assert decide(ASKS["code"], prime=Agrees(), lite=Agrees()) == "approved", "the model's ruling decides"
    assert decide(ASKS["policy"], prime=Agrees(), codemind=Agrees()) == "approved"
    assert CodeMind().review(case_of(ASKS["code"])).escalate
    assert Lite().review(case_of(ASKS["policy"])).escalate


@pytest.mark.parametrize("why", ["missing", "killed", "slow"])
def test_an_analyzer_that_did_not_work_is_no_yes(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: Any, folder: Any, **how: Any) -> bytes:
        raise tools.ToolFailed(f"ast-grep was {why}")

    monkeypatch.setattr(tools, "run", run)
    monkeypatch.setattr(scanning, "_kept", type(scanning._kept)())
    assert decide(FINE) == "escalated"
    assert f"ast-grep was {why}" in Prime().review(case_of(FINE)).reason


@pytest.mark.parametrize(
    ("name", "script", "why"),
    at_first(
        4,
        ("ruff", None, "is not installed"),
        ("ast-grep", "echo broken >&2; exit 3", "failed with exit code 3: broken"),
        ("ruff", "kill -9 $$", "failed with exit code -9"),
        ("ast-grep", "echo '{'", "could not be read"),
        ("ast-grep", None, "is not installed"),
        ("ruff", "echo broken >&2; exit 3", "failed with exit code 3: broken"),
        ("ast-grep", "kill -9 $$", "failed with exit code -9"),
        ("ruff", "echo '{'", "could not be read"),
    ),
)
def test_one_analyzer_that_is_missing_or_fails_is_no_yes(
    name: str, script: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one works, and finds nothing. The fault is named, and is gone once the analyzer works again."""
    real = tools.find
    broken = tmp_path / name
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)

    def find(wanted: str) -> str:
        if wanted != name:
            return real(wanted)
        if script is None:
            raise tools.ToolFailed(f"{wanted} is not installed")
        return str(broken)

    monkeypatch.setattr(scanning, "_kept", type(scanning._kept)())
    with monkeypatch.context() as during:
        during.setattr(tools, "find", find)
        (failed,) = scan(case_of(FINE)).failed
        assert name in failed
        assert why in failed
        assert failed in Prime().review(case_of(FINE)).reason
        assert failed in CodeMind().review(case_of(FINE)).reason
        assert decide(FINE) == "escalated"
    assert decide(FINE) == "approved", "a failure is not kept"


def test_a_program_that_is_nowhere_is_not_installed() -> None:
    with pytest.raises(tools.ToolFailed, match="no-such-analyzer is not installed"):
        tools.find("no-such-analyzer")


def test_a_language_that_no_rule_reads_is_no_yes() -> None:
    assert decide(change("src/a.zig", ["const x = 1;"])) == "escalated"


def test_a_note_is_a_yes_that_names_it() -> None:
    body = change("web/package.json", ['{"scripts": {"postinstall": "node scripts/setup.js"}}'])
    assert decide(body) == "approved"
    assert "npm-install-hook" in Lite().review(case_of(body)).reason


def test_reasons_name_rule_and_place_once_and_stay_within_their_limit() -> None:
    body = change("app/a.py", [f"y{at} = eval(x{at}(" + "z" * 90 + "))" for at in range(300)])
    for mind in (CodeMind(), Prime()):
        reason = mind.review(case_of(body)).reason
        assert len(reason) <= REASON_CHARS_MAX
        assert reason.count("app/a.py:1 ") == 1
        assert "(py-eval-of-data)" in reason
        assert "more" in reason
    assert len(scan(case_of(body)).found) == scanning.FINDINGS_MAX


# Under a seat with a model


def floor(body: str, opinion: Opinion) -> Opinion:
    return asyncio.run(Floor().under(case_of(body), opinion))


def test_a_models_yes_does_not_undo_a_stop() -> None:
    for kind, body in STOPS.items():
        opinion = floor(body, Opinion.yes("it was agreed", confidence=0.9))
        assert (opinion.vote, opinion.risk_level) == ("no", "high"), kind
        assert "it was agreed" in opinion.reason
        assert scan(case_of(body)).found[0].rule in opinion.reason
        ballots = [ShownBallot(f"s{at}", "no", opinion.reason, opinion.confidence, "high") for at in range(1)]
        assert Prime().rule(case_of(FINE), ballots).ruling == "reject"


def test_what_rules_only_ask_about_is_the_models_to_decide() -> None:
    said = Opinion.yes("I looked", confidence=0.9)
    assert floor(ASKS["code"], said) == said
    assert floor(FINE, said) == said


def test_a_model_primes_confirmation_of_a_stop_goes_to_a_human() -> None:
    ruling = Ruling("confirm", "it is meant", 0.9)
    kept = asyncio.run(Floor().under_ruling(case_of(STOPS["code"]), ruling))
    assert (kept.ruling, "it is meant" in kept.reason) == ("human", True)
    assert asyncio.run(Floor().under_ruling(case_of(FINE), ruling)) == ruling
    rejected = replace(ruling, ruling="reject")
    assert asyncio.run(Floor().under_ruling(case_of(STOPS["code"]), rejected)) == rejected


def test_a_model_is_shown_the_findings_as_data() -> None:
    async def shown(findings: Any) -> str:
        builder = PromptBuilder("lite", count=lambda text: len(text) // 4, mtu=40_000, findings=findings)
        return (await builder.ballot(case_of(STOPS["code"]))).messages[-1].text

    with_them, without = asyncio.run(shown(Floor().told)), asyncio.run(shown(None))
    head, _, section = with_them.partition(" findings\n")
    assert "py-eval-of-data" in section
    assert head.rsplit("\n", 1)[-1].startswith("--"), "a section of its own, behind the nonce"
    assert "py-eval-of-data" not in without


# Robustness


def test_a_scan_does_not_block_the_loop_of_a_council_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hangs where a mind scans on the event loop: the loop itself sets what the scan waits for."""
    from council.api.aio import AsyncCouncil

    going, real = threading.Event(), scanning._scanned

    def waits(case: Case, own: Any) -> Any:
        assert going.wait(60)
        return real(case, own)

    monkeypatch.setattr(scanning, "_scanned", waits)

    async def main() -> str | None:
        async with AsyncCouncil.inline() as council:
            asyncio.get_running_loop().call_later(0.2, going.set)
            return (await council.propose("Change it", FINE.replace("x = 1", "x = 2"))).outcome

    assert asyncio.run(main()) == "approved"


HOSTILE = st.sampled_from(
    ["app/a.py", "a.js", "a.sh", "Dockerfile", "a.sql", "a.json", "a.tf", "k8s/a.yaml", "b/\udcff.py"]
)


@settings(max_examples=tried(25), deadline=None)
@given(
    HOSTILE,
    st.lists(ANY_TEXT, max_size=8),
    ANY_TEXT,
    st.sampled_from(["shell", "python", "write_file", "run_sql"]),
)
def test_no_text_makes_it_raise(path: str, lines: list[str], text: str, tool: str) -> None:
    action = {"tool": tool, "args": {"command": text, "path": path, "content": "\n".join(lines)}}
    seen = scan(Case("1", "ann", text, change(path, lines or [""]) + text, action))
    assert seen.failed == ()
    assert len(seen.found) <= scanning.FINDINGS_MAX


@pytest.mark.parametrize(
    "body",
    at_first(
        3,
        change("a.py", ["x = '\udc80\udcff'", "y = '\ud800'"]),
        change("a.py", ["x = 1\0", "\0\0"]),
        change("a.py", ["x = '" + "a" * 2_000_000 + "'"]),
        "".join(change(f"m{at}.py", [f"x = {at}"]) for at in range(2_000)),
    ),
    ids=["surrogates", "NUL", "a line of 2 MB", "2,000 files"],
)
def test_odd_texts_are_read_or_named(body: str) -> None:
    seen = scan(Case("1", "ann", "Change it", body))
    assert seen.failed == ()
    assert len(seen.found) <= scanning.FINDINGS_MAX
