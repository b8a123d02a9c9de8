"""What a council says reaches the channels of [output], redacted, at least once, or is shown as lost (GCP 7)."""

from __future__ import annotations

import base64
import hmac
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from council import Council, SeatConfig
from council.agents.mind import Case, Opinion, PlanStream
from council.cli.setup.doctor import outputs as doctor_outputs
from council.config.load import load
from council.config.outputs import Output, outputs_of, spool_of
from council.config.settings import CouncilConfig
from council.core import effects as do
from council.core.state import ActionReport, Ballot, UseResult
from council.protocol.errors import ConfigError
from council.telemetry import delivery
from council.telemetry.delivery import Channel, Notice, Spool
from council.telemetry.outputs import deliver_to, said
from tests.logged import capture_logs
from tests.patience import until
from tests.webhook import Hook
from tests.webhook import hook as hook

CANARY = "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8"
KEY = b"k" * 32
MESSAGE = {"id": "a1:0:web:", "channel": "web", "marker": "RESPONSE", "text": "hello", "counts": {}}


def leaks(case: Case) -> Opinion:
    return Opinion.yes(f"the token is {CANARY}")


class Asks:
    """Prime that leaves each ruling to a human."""

    def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine", risk_level="high")


SEATS = [SeatConfig(name=name, mind=leaks) for name in ("prime", "lite", "codemind")]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def webhook_to(url: str, *, private_hosts: bool = True) -> Output:
    return Output("", (), url, KEY, private_hosts, 10.0)


def test_a_decision_reaches_people_without_its_secrets(tmp_path: Path) -> None:
    web, log = tmp_path / "web.jsonl", tmp_path / "log.jsonl"
    output = {"web": {"file": str(web)}, "log": {"file": str(log)}}
    with Council.inline(seats=SEATS, output=output) as council:
        decision = council.propose("Tidy up")
    [said] = lines(web)
    assert (said["channel"], said["marker"]) == ("web", "RESPONSE")
    assert said["id"].startswith(f"{decision.proposal_id}.decision:")
    assert said["text"].startswith(f"{decision.proposal_id} approved: ")
    assert lines(log) == []  # it gets plans
    assert CANARY not in web.read_text()
    assert web.stat().st_mode & 0o777 == 0o600


def test_a_reason_is_redacted_in_an_escalation_too(tmp_path: Path) -> None:
    chat = tmp_path / "chat.jsonl"
    seats = [SeatConfig(name="prime", mind=Asks()), *SEATS[1:]]
    with Council.inline(seats=seats, output={"council": {"file": str(chat)}}) as council:
        standing = council.propose(f"Send {CANARY} to ada")
    [said] = lines(chat)
    assert said["marker"] == "INTERRUPT"
    assert said["text"].startswith(f"esc-{standing.proposal_id} waits for a human: Send [redacted")
    assert said["counts"] == {"GitHub token": 1}


class Thinks:
    """Says a plan in pieces, the second of which is the rest of a secret."""

    def set_plan_stream(self, stream: PlanStream) -> None:
        self._stream = stream

    async def review(self, case: Case) -> Opinion:
        for text in (
            f"1. Log in with {CANARY[:9]}",
            CANARY[9:],
            ". Then look. " + "Look at it again. " * 200,
        ):
            self._stream.publish(case.proposal_id, "plan", text)
        self._stream.end(case.proposal_id, "plan")
        self._stream.publish(case.proposal_id, CANARY, "a stage of this name")
        self._stream.end(case.proposal_id, CANARY)
        return Opinion.yes("fine")


def test_a_plan_is_sent_as_it_is_said_without_a_secret_that_two_pieces_hold(tmp_path: Path) -> None:
    """By the seat that observes too. Mutation: each piece is redacted by itself, or nobody hears an observer."""
    files = {name: tmp_path / name for name in ("log", "council", "web")}
    seats = [SeatConfig("prime"), SeatConfig("lite", mind=Thinks()), SeatConfig("codemind")]
    output: Any = {name: {"file": str(path)} for name, path in files.items()}
    with Council.inline(seats=seats, output=output) as council:
        decision = council.propose("Tidy up", wait_for="all")
    plans = [message for message in lines(files["log"]) if message["marker"] == "PLAN"]
    assert len({message["id"] for message in plans}) == len(plans) > 3
    head = f"{decision.proposal_id} lite: "
    texts = [message["text"].removeprefix(head) for message in plans]
    assert all(message["text"].startswith(head) for message in plans)
    whole = "".join(texts)
    assert whole.startswith("plan: 1. Log in with [redacted: GitHub token]. Then look. Look")
    assert whole.count("Look at it again. ") == 200
    assert texts[-1] == "[redacted: GitHub token]: a stage of this name"
    assert sum(message["counts"].get("GitHub token", 0) for message in plans) == 2
    assert [message["text"] for message in lines(files["council"]) if message["marker"] == "PLAN"] == [
        message["text"] for message in plans
    ]
    assert "PLAN" not in {message["marker"] for message in lines(files["web"])}
    assert not [path for path in files.values() if CANARY[4:20] in path.read_text()]


def test_each_announcement_has_its_marker() -> None:
    """Mutation: a result that goes nowhere, or one id for two messages."""
    result = UseResult("p1", "u1", "e.exec", "failed", "no disk")
    notes = (("learning", "tests were slow"), ("override", "rule 3"))
    ballot = Ballot("p1", "lite", "yes", "fine", 1.0, "low", "m1", "d1", notes=notes)
    found = [
        each
        for effect in (
            do.AnnounceObservation("p1", "lite", "prime/1", True, "stop"),
            do.AnnounceObservation("p1", "lite", "prime/1", False, "goes on"),
            do.AnnounceResult(result),
            do.AnnounceOutcome(ActionReport("p1", "ada", "verify", True, "as wished", "d")),
            do.AnnounceBallot(ballot, late=False),
            do.AnnounceBallot(ballot, late=True),
        )
        for each in said(effect)
    ]
    assert [(block.marker, block.text) for _, block in found] == [
        ("INTERRUPT", "p1 was halted by lite: stop"),
        ("VERIFY", "p1 failed: no disk"),
        ("VERIFY", "p1 verify success: as wished"),
        ("THOUGHT_SEED", "p1 lite, learning: tests were slow"),
        ("THOUGHT_SEED", "p1 lite, override: rule 3"),
    ]
    assert len({identity for identity, _ in found}) == len(found)


def test_a_webhook_can_check_who_has_sent_a_message(hook: Hook) -> None:
    deliver_to("web", webhook_to(hook.url))(MESSAGE)
    [(headers, body)] = hook.requests
    assert json.loads(body) == MESSAGE
    signed = f"a1:0:web:.{headers['webhook-timestamp']}.".encode() + body
    made = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{made}"


def test_slack_and_discord_get_their_shapes(hook: Hook) -> None:
    message = {**MESSAGE, "text": "@everyone " + "x" * 3_000}
    deliver_to("slack", webhook_to(hook.url))(message)
    deliver_to("discord", webhook_to(hook.url))(message)
    slack, discord = hook.notices
    assert slack == {"text": message["text"]}
    assert len(discord["content"]) == 2_000
    assert discord["allowed_mentions"] == {"parse": []}


def test_a_webhook_at_a_private_address_and_a_redirect_are_refused(hook: Hook) -> None:
    with pytest.raises(OSError, match="not public"):
        deliver_to("web", webhook_to(hook.url, private_hosts=False))(MESSAGE)
    assert not hook.requests
    hook.answers.append(302)
    with pytest.raises(OSError, match="302"):
        deliver_to("web", webhook_to(hook.url))(MESSAGE)
    assert len(hook.requests) == 1


def test_a_message_that_waits_is_sent_after_a_restart_with_its_id(tmp_path: Path) -> None:
    """Mutation: removed before it is delivered."""
    got: list[Notice] = []

    def down(message: Notice) -> None:
        raise OSError("no route")

    channel = Channel("web", down, pauses_s=(600.0,), spool=Spool(tmp_path))
    channel.send(MESSAGE)
    channel.send({**MESSAGE, "id": "a2:0:web:"})
    with capture_logs():
        channel.close()
    assert not list((tmp_path / "dead").iterdir())
    again = Channel("web", got.append, spool=Spool(tmp_path))
    until(lambda: len(got) == 2)
    again.close()
    assert got == [MESSAGE, {**MESSAGE, "id": "a2:0:web:"}]
    assert [path for path in tmp_path.iterdir() if path.is_file()] == []


def test_a_message_that_no_try_delivers_is_kept_and_can_be_sent_again(tmp_path: Path) -> None:
    got: list[Notice] = []

    def down(message: Notice) -> None:
        raise OSError("no route")

    spool = Spool(tmp_path)
    channel = Channel("web", down, pauses_s=(), spool=spool)
    with capture_logs():
        channel.send(MESSAGE)
        until(lambda: list(spool.dead.glob("*.json")))
        channel.close()
    [dead] = spool.dead.iterdir()
    assert json.loads(dead.read_text()) == {"notice": MESSAGE, "why": "OSError: no route"}
    dead.rename(tmp_path / dead.name)
    again = Channel("web", got.append, spool=spool)
    until(lambda: got == [MESSAGE])
    again.close()


def test_lost_messages_are_bounded_and_what_can_not_be_read_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "DEAD_MAX", 3)
    spool = Spool(tmp_path)
    for number in range(5):
        message = {**MESSAGE, "id": str(number)}
        spool.bury(message, spool.add(message), "full")
    kept = [json.loads(path.read_text())["notice"]["id"] for path in sorted(spool.dead.iterdir())]
    assert kept == ["2", "3", "4"]
    (tmp_path / "0.json").write_text("{")
    with capture_logs() as logs:
        assert spool.waiting() == []
    assert "can't be read" in logs[0]["event"]
    assert (spool.dead / "0.json").exists()


def test_a_receiver_that_fails_does_not_repeat_a_secret(tmp_path: Path) -> None:
    script = f"import sys; sys.exit('no place for {CANARY}')"
    output = {"audio": {"command": [sys.executable, "-c", script]}}
    with capture_logs() as logs, Council.inline(seats=SEATS, output=output) as council:
        council.propose("Tidy up")
        until(lambda: logs)
    assert "no place for [redacted: GitHub token]" in str(logs)
    assert CANARY not in str(logs)


def test_doctor_shows_what_was_lost_and_where_it_is(tmp_path: Path) -> None:
    config = tmp_path / "council.toml"
    config.write_text('[output.audio]\nfile = "/dev/full"\n')
    (before,) = doctor_outputs(load(config, env={}).config)
    assert before == ("ok", "output audio", "no message was lost")
    spool = Spool(spool_of("council") / "audio")
    spool.bury(MESSAGE, spool.add(MESSAGE), "OSError: no\nspace")
    ((level, what, told),) = doctor_outputs(load(config, env={}).config)
    assert (level, what) == ("warn", "output audio")
    assert told.startswith("1 message was not delivered, the last because: OSError: no")
    assert str(spool.dead) in told
    assert "\n" not in told


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[output.shell]\nfile = "/x"', "key output.shell: unknown key, expected one of cli, web,"),
        ('[output.slak]\nfile = "/x"', "did you mean slack?"),
        ("[output.web]", "key output.web: expected a file, a command or a webhook"),
        ('[output.web]\nfile = "/x"\ncommand = ["y"]', "and one of them only"),
        ('[output.web]\nwebhook = "http://example.org/in"', "key output.web.webhook: found 'http://example"),
        ('[output.web]\nfile = "x"', "key output.web.file: found 'x', expected /path"),
        ('[output.web]\nfil = "/x"', "did you mean file?"),
        ('[output]\nweb = "x"', "key output.web: found 'x', expected a table [output.web]"),
        ('output = "x"', "key output: found 'x', expected a table of channels"),
    ],
)
def test_a_wrong_table_is_named(table: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "council.toml"
    path.write_text(table, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(path, env={})
    assert len(raised.value.problems) == 1
    assert said in raised.value.problems[0]


def test_a_variable_that_is_missing_is_named_with_its_channel() -> None:
    config = CouncilConfig(output={"slack": {"webhook": "env:NO_SUCH_HOOK"}})
    with pytest.raises(ConfigError, match=r"output.slack: .* NO_SUCH_HOOK, which is not set"):
        outputs_of(config)
