"""``council validate``: what it reads, what it says of a fault and where, and its exit codes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from council.cli.record import validate
from council.protocol.omen import to_dict
from tests.governance.episodes import built, changed

from .conftest import Cli


def documents(template: str, **about: Any) -> list[dict[str, Any]]:
    return [to_dict(each) for each in built(template, **about)]


def lines(packets: list[Any]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in packets)


FORMS: dict[str, Callable[[list[Any]], str]] = {
    "list": json.dumps,
    "indented": lambda packets: json.dumps(packets, indent=2),
    "object": lambda packets: json.dumps({"packets": packets}),
    "lines": lines,
    "blank lines": lambda packets: "\n" + lines(packets).replace("\n", "\r\n\r\n"),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_episode_is_read_in_each_form(cli: Cli, home: Path, form: str) -> None:
    (home / "episode").write_text(FORMS[form](documents("D")), encoding="utf-8")
    done = cli("validate", "episode")
    assert (done.code, done.err) == (0, "")
    assert done.out == "valid: 8 packets, 1 episode, 0 errors, 0 warnings\n"


@pytest.mark.parametrize(
    ("form", "position"), [("list", "[3]"), ("object", "packets[3]"), ("lines", "line 4")]
)
def test_a_fault_is_told_with_its_place(cli: Cli, home: Path, form: str, position: str) -> None:
    packets: list[Any] = documents("D")
    packets[3]["payload"]["revoked"] = True
    packets[3]["header"]["layer_source"] = 2
    (home / "a.json").write_text(FORMS[form](packets[:4]), encoding="utf-8")
    done = cli("validate", "a.json")
    assert done.code == 1
    first = done.out.splitlines()[0]
    packet_id = packets[3]["header"]["packet_id"]
    assert first == (
        f"a.json: {position}: ERROR {packet_id}: machine LAYER: header.layer_source: expected a layer that emits "
        "ToolAuthorizationToken: 1 or 5, found 2"
    )


def test_episodes_may_be_interleaved(cli: Cli, home: Path) -> None:
    one, other = documents("C"), documents("E", correlation_id="corr_2")
    mixed = [each for pair in zip(one, other, strict=False) for each in pair] + one[len(other) :]
    (home / "mixed.jsonl").write_text(lines(mixed), encoding="utf-8")
    done = cli("validate", "mixed.jsonl", "--json")
    document = json.loads(done.out)
    assert (done.code, document["valid"], document["packets"], document["problems"]) == (0, True, 11, [])
    assert document["episodes"] == [
        {"file": "mixed.jsonl", "correlation_id": "corr_1", "state": "S7_REVIEW", "accepted": 7},
        {"file": "mixed.jsonl", "correlation_id": "corr_2", "state": "S8_ESCALATED", "accepted": 4},
    ]


def test_json_has_every_field_of_a_problem(cli: Cli, home: Path) -> None:
    packets = built("A")
    wrong = changed(packets[2], {"payload.constraints_satisfied.budget_check": False})
    (home / "a.jsonl").write_text(lines([*map(to_dict, packets[:2]), wrong]), encoding="utf-8")
    document = json.loads(cli("validate", "a.jsonl", "--json").out)
    assert (document["valid"], document["exit_code"], document["errors"]) == (False, 1, 1)
    assert document["problems"][0] == {
        "file": "a.jsonl",
        "position": "line 3",
        "packet_id": packets[2].header.packet_id,
        "layer": "invariants",
        "rule": "INV-006",
        "severity": "ERROR",
        "path": "payload.constraints_satisfied.budget_check",
        "expected": "true",
        "found": "false",
    }


def test_a_packet_that_is_a_file_is_checked_by_itself(cli: Cli, home: Path) -> None:
    for number, packet in enumerate(built("D")):
        (home / f"{number}.json").write_text(json.dumps(to_dict(packet)), encoding="utf-8")
    done = cli("validate", *(f"{number}.json" for number in range(8)))
    assert (done.code, done.out) == (0, "valid: 8 packets, 0 episodes, 0 errors, 0 warnings\n")
    wrong = changed(built("D")[4], {"header.layer_source": 4, "mcp.quality.quality_tier": "SUBPAR"})
    (home / "wrong.json").write_text(json.dumps(wrong), encoding="utf-8")
    done = cli("validate", "0.json", "wrong.json")
    assert done.code == 1
    assert [line.split(": ")[3].split()[-1] for line in done.out.splitlines()[:2]] == ["LAYER", "INV-002"]


def test_an_unfinished_episode_is_a_warning(cli: Cli, home: Path) -> None:
    (home / "a.jsonl").write_text(lines(documents("C")[:4]), encoding="utf-8")
    done = cli("validate", "a.jsonl")
    assert done.code == 0
    assert "line 4: WARNING" in done.out
    assert "expected a TaskResultPacket for" in done.out


def test_standard_input_is_read_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(lines(documents("A")).encode())

    monkeypatch.setattr(sys, "stdin", Input())
    assert cli("validate", "-").out == "valid: 3 packets, 1 episode, 0 errors, 0 warnings\n"
    twice = cli("validate", "-", "-")
    assert (twice.code, twice.err) == (2, "error: - stands for standard input, which can be read once\n")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "[0]: ERROR"),
        ("null", "expected an object"),
        ('{"header": 1}', "ERROR"),
        ("[" * 100_000, "ERROR"),
        ('{"a": NaN}', "ERROR"),
        ('{"a": 1, "a": 2}', "ERROR"),
        ("\xff", "not UTF-8"),
        ('{"header": {}}\n{', "line 2: ERROR"),
        ('{"packets": 1}', "ERROR"),
        ("[" + "1," * 3_000 + "1]", "and 2,001 problems more"),
        ('[{"header": {"packet_id": "\x1b[31m"}}]', "ERROR"),
    ],
)
def test_hostile_input_is_told_and_bounded(cli: Cli, home: Path, text: str, told: str) -> None:
    (home / "a").write_bytes(text.encode("latin-1" if text == "\xff" else "utf-8"))
    done = cli("validate", "a")
    assert (done.code, done.err) == (1, "")
    assert told in done.out
    assert "\x1b" not in done.out
    assert len(done.out.splitlines()) <= validate.PROBLEMS_MAX + 2


def test_what_can_t_be_read_is_wrong_usage(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = cli("validate", "nowhere")
    assert (done.code, done.err) == (2, "error: nowhere: can't be read: No such file or directory\n")
    done = cli("validate", ".")
    assert (done.code, done.err) == (2, "error: .: can't be read: Is a directory\n")
    monkeypatch.setattr(validate, "PACKETS_MAX", 2)
    (home / "a").write_text(lines(documents("A")), encoding="utf-8")
    assert "more than 2 packets; split it by episodes" in cli("validate", "a").err
    monkeypatch.setattr(validate, "FILE_BYTES_MAX", 1 << 10)
    assert cli("validate", "a").code == 2
    assert cli("validate").code == 2
