"""People are told of what waits for a human, by a command and by a webhook (rules 1.9)."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from council import Council, SeatConfig
from council.agents.mind import Case, Opinion
from council.api.client import handle_of
from council.config.load import load
from council.protocol.errors import ConfigError, OperatorError, OutcomeUnknown
from council.runtime import session
from council.telemetry import delivery
from council.telemetry.delivery import Channel, to_command, to_webhook
from tests.logged import capture_logs
from tests.patience import HANG_S, until
from tests.webhook import Hook
from tests.webhook import hook as hook

SECRET = "the-bucket-of-ada"
KEY = b"k" * 32


def yes(case: Case) -> Opinion:
    return Opinion.yes("fine")


class Asks:
    """Prime that leaves each ruling to a human."""

    def review(self, case: Case) -> Opinion:
        return Opinion.yes("fine", risk_level="high")


SEATS = [
    SeatConfig(name="prime", mind=Asks()),
    SeatConfig(name="lite", mind=yes),
    SeatConfig(name="codemind", mind=yes),
]


def writes(folder: Path) -> list[str]:
    """A command that keeps each notice in a file of its own, in their order."""
    code = (
        "import os, sys; n = len(os.listdir(sys.argv[1])); "
        "open(f'{sys.argv[1]}/.{n}', 'w').write(sys.stdin.read()); "
        "os.rename(f'{sys.argv[1]}/.{n}', f'{sys.argv[1]}/{n}')"
    )
    return [sys.executable, "-c", code, str(folder)]


def kept(folder: Path) -> list[dict[str, Any]]:
    names = sorted((p for p in folder.iterdir() if not p.name.startswith(".")), key=lambda p: int(p.name))
    return [json.loads(p.read_text()) for p in names]


def test_waiting_and_answered_are_told_to_both(tmp_path: Path, hook: Hook) -> None:
    """Mutation: content in a notice though it was not asked for."""
    with Council.inline(seats=SEATS, notify={"command": writes(tmp_path), "webhook": hook.url}) as council:
        standing = council.propose(
            f"Delete {SECRET}", body=SECRET, action={"tool": "rm", "args": {"path": SECRET}}
        )
        assert not standing.final
        until(lambda: len(hook.requests) == 1 and len(kept(tmp_path)) == 1)
        council.answer(standing.escalation_id, approve=False, reason=SECRET)
        until(lambda: len(hook.requests) == 2 and len(kept(tmp_path)) == 2)
    for told in (hook.notices, kept(tmp_path)):
        waiting, answered = told
        assert (waiting["kind"], answered["kind"]) == ("waiting", "answered")
        assert waiting["escalation_id"] == standing.escalation_id
        assert waiting["risk"] == "high"
        assert "council.answer" in waiting["to_answer"]
        assert answered["outcome"] == "rejected"
        assert answered["answered_by"] in answered["text"]
        assert SECRET not in json.dumps(told)


def test_content_is_told_where_it_is_asked_for(hook: Hook) -> None:
    with Council.inline(seats=SEATS, notify={"webhook": hook.url, "content": True}) as council:
        standing = council.propose(f"Delete {SECRET}", action={"tool": "rm", "args": {"path": SECRET}})
        until(lambda: len(hook.requests) == 1)
        council.answer(standing.escalation_id, approve=False, reason="keep it")
        until(lambda: len(hook.requests) == 2)
    waiting, answered = hook.notices
    assert waiting["summary"] == f"Delete {SECRET}"
    assert waiting["action"] == {"tool": "rm", "args": {"path": SECRET}}
    assert answered["answer_reason"] == "keep it"


def test_secrets_in_the_content_are_redacted(hook: Hook) -> None:
    canary = "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8"
    with Council.inline(seats=SEATS, notify={"webhook": hook.url, "content": True}) as council:
        council.propose(f"Use {canary}", action={"tool": "curl", "args": {"headers": [canary]}})
        until(lambda: hook.requests)
    (notice,) = hook.notices
    assert notice["summary"] == "Use [redacted: GitHub token]"
    assert notice["action"]["args"] == {"headers": ["[redacted: GitHub token]"]}
    assert canary not in str(hook.requests)


def test_an_unknown_outcome_is_told(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("council.runtime.executor.LEFT_BEHIND_S", 0.01)
    ends = threading.Event()
    with Council.inline(notify={"webhook": hook.url}) as council:

        @council.tool(run_timeout_s=0.05)
        def hang() -> None:
            ends.wait()

        with pytest.raises(OutcomeUnknown):
            hang()
        until(lambda: len(hook.notices) == 2)
        ends.set()
        (token,) = council.tokens()
        (question,) = council.escalations()
        council.answer(question.escalation_id, approve=False, reason=SECRET)
        until(lambda: len(hook.notices) == 3)
    notice, waiting, answered = hook.notices
    assert (waiting["kind"], waiting["reason"]) == ("waiting", "outcome_unknown")
    assert question.escalation_id in waiting["to_answer"]
    assert (answered["kind"], answered["outcome"]) == ("answered", "cancelled")
    assert "to_answer" not in answered
    assert SECRET not in json.dumps(hook.notices)
    assert (notice["kind"], notice["token_id"]) == ("outcome_unknown", token.token_id)
    assert notice["id"] == f"{token.uses[0].use_id}.outcome_unknown"
    assert "is not run again" in notice["text"]
    assert "detail" not in notice


def test_a_webhook_can_check_who_has_sent_a_notice(hook: Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the headers of Standard Webhooks. Mutation: a signature of the body alone."""
    monkeypatch.setenv("HOOK", hook.url)
    monkeypatch.setenv("HOOK_KEY", KEY.hex())
    with Council.inline(seats=SEATS, notify={"webhook": "env:HOOK", "key": "env:HOOK_KEY"}) as council:
        council.propose("Deploy")
        until(lambda: len(hook.requests) == 1)
    headers, body = hook.requests[0]
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = base64.b64encode(hmac.digest(KEY, signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{right}"
    assert headers["webhook-id"] == json.loads(body)["id"]


def test_the_key_is_kept_for_the_receiver(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with Council.inline(seats=SEATS, name="ops", notify={"webhook": hook.url}):
        path = tmp_path / "council" / "notify" / "ops.key"
        assert len(path.read_bytes()) == 32
        assert path.stat().st_mode & 0o077 == 0


def test_an_expired_and_a_cancelled_one_are_told_as_such(hook: Hook) -> None:
    with Council.inline(
        seats=SEATS, notify={"webhook": hook.url, "remind_s": 0.001}, escalation_ttl_s=0.2
    ) as council:
        council.propose("Deploy", wait_for_human=True)
        until(lambda: "expired" in [each["kind"] for each in hook.notices])
    kinds = [each["kind"] for each in hook.notices]
    assert kinds[0] == "waiting"
    assert set(kinds[1:-1]) <= {"reminder"}
    assert kinds[-1] == "expired"


def test_a_council_that_starts_again_reminds_of_what_waits(hook: Hook, tmp_path: Path) -> None:
    """The one before it may have ended before it told anybody."""
    settings: Any = {"seats": SEATS, "store": str(tmp_path / "journal.db")}
    with Council.inline(**settings) as council:
        standing = council.propose("Deploy")
    with Council.inline(**settings, notify={"webhook": hook.url}):
        until(lambda: len(hook.requests) == 1)
    assert hook.notices[0]["kind"] == "reminder"
    assert hook.notices[0]["escalation_id"] == standing.escalation_id


# Delivery


def notice(number: int = 1) -> dict[str, Any]:
    return {"id": f"esc-1.waiting.{number}", "text": "waits \ud800"}


def test_a_webhook_that_is_away_gets_it_later(hook: Hook) -> None:
    hook.answers += [503, 500]
    channel = Channel("webhook", to_webhook(hook.url, KEY, HANG_S), pauses_s=(0, 0))
    channel.send(notice())
    until(lambda: len(hook.requests) == 3)
    channel.close()
    assert len({headers["webhook-id"] for headers, _ in hook.requests}) == 1


def read_whole(connection: socket.socket) -> None:
    """Reads a request, head and body."""
    with connection.makefile("rb") as stream:
        length = 0
        while (line := stream.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        stream.read(length)


@contextlib.contextmanager
def answers(said: bytes, times: int, pause_s: float = 0.0) -> Iterator[str]:
    """The address of a server that answers ``said`` and waits, ``times`` times, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            connection = server.accept()[0]
            with connection, contextlib.suppress(OSError):  # the client has gone
                read_whole(connection)  # else its end resets the connection, and the answer may be lost
                for _ in range(times):
                    connection.sendall(said)
                    if ended.wait(pause_s):
                        break

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        thread.join(HANG_S)


@pytest.mark.parametrize("said", [b"hello\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200])
def test_an_answer_that_is_not_http_does_not_end_the_channel(said: bytes, hook: Hook) -> None:
    """Mutation: an error of http.client, which is no OSError, ends the thread, and all later notices are lost."""
    with answers(said, 1) as url, capture_logs() as logs:
        to = iter([url, hook.url])
        channel = Channel("webhook", lambda notice: to_webhook(next(to), KEY, HANG_S)(notice), pauses_s=())
        channel.send(notice(1))
        channel.send(notice(2))
        until(lambda: len(hook.requests) == 1)
        channel.close()
    assert hook.notices[0]["id"] == notice(2)["id"]
    assert [each["event"] for each in logs] == ["notice lost"]
    assert "not HTTP" in logs[0]["why"]


def test_an_answer_that_comes_byte_by_byte_is_not_waited_for() -> None:
    """Mutation: the timeout is that of each byte, so that such a webhook delays all notices without end."""
    with (
        answers(b"HTTP/1.1 200 O", 1_000_000, 0.001) as url,
        pytest.raises(TimeoutError, match=r"did not answer within 0\.2 s"),
    ):
        to_webhook(url, KEY, 0.2)(notice())


def test_a_notice_that_is_in_a_pause_at_the_end_is_tried_once_more() -> None:
    tried = threading.Semaphore(0)
    away = iter([True])

    def deliver(_: Any) -> None:
        tried.release()
        if next(away, False):
            raise OSError("away")

    with capture_logs() as logs:
        channel = Channel("webhook", deliver, pauses_s=(HANG_S,))
        channel.send(notice())
        until(lambda: any(each["event"] == "notice not delivered yet" for each in logs))
        channel.close(HANG_S)
    assert tried.acquire(timeout=0)
    assert tried.acquire(timeout=0)
    assert "notice lost" not in [each["event"] for each in logs]


@pytest.mark.parametrize("code", [302, 307, 404])
def test_what_can_not_be_delivered_is_logged_and_does_not_stop_the_next(hook: Hook, code: int) -> None:
    """Mutation: a redirect is followed."""
    hook.answers += [code, code]
    with capture_logs() as logs:
        channel = Channel("webhook", to_webhook(hook.url, KEY, HANG_S), pauses_s=(0,))
        channel.send(notice(1))
        channel.send(notice(2))
        until(lambda: len(hook.requests) == 3)
        channel.close()
    assert hook.notices[-1]["id"] == notice(2)["id"]
    (lost,) = [each for each in logs if each["event"] == "notice lost"]
    assert lost["notice"] == notice(1)["id"]
    assert str(code) in lost["why"]


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = (
        "import subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        f"open({str(pid_file)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    deliver = to_command([sys.executable, "-c", code], timeout_s=2.0)
    with pytest.raises(TimeoutError, match="ran longer than 2 s"):
        deliver(notice())
    if pid_file.exists():  # on a busy machine it may have been ended before

        def gone() -> bool:
            try:
                return (
                    Path(f"/proc/{pid_file.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
                    == "Z"
                )
            except (FileNotFoundError, ProcessLookupError):
                return True

        until(gone)


def test_a_command_that_fails_says_why() -> None:
    deliver = to_command([sys.executable, "-c", "import sys; sys.exit('no pager')"], HANG_S)
    with pytest.raises(OSError, match="ended with 1: no pager"):
        deliver(notice())
    with pytest.raises(FileNotFoundError):
        to_command(["no-such-program-anywhere"], HANG_S)(notice())


def test_notices_above_the_limit_are_lost_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WAITING_MAX", 2)
    begun, go = threading.Event(), threading.Event()

    def deliver(_: Any) -> None:
        begun.set()
        go.wait(HANG_S)

    with capture_logs() as logs:
        channel = Channel("slow", deliver)
        channel.send(notice(0))
        assert begun.wait(HANG_S)
        for number in range(1, 4):
            channel.send(notice(number))
        go.set()
        channel.close(HANG_S)
    assert [each["notice"] for each in logs] == [notice(3)["id"]]


def test_the_end_of_a_council_does_not_wait_for_a_webhook_that_is_away() -> None:
    """Mutation: the pauses are waited for."""
    tried = threading.Event()

    def deliver(_: Any) -> None:
        tried.set()
        raise OSError("away")

    with capture_logs() as logs:
        channel = Channel("webhook", deliver, pauses_s=(HANG_S, HANG_S))
        channel.send(notice())
        assert tried.wait(HANG_S)
        channel.close(HANG_S)
    assert logs[-1]["event"] == "notice lost"


def test_the_end_of_a_council_waits_for_both_channels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: one after the other, so that a close takes as long as both."""
    both = threading.Barrier(2)
    monkeypatch.setattr(Channel, "close", lambda self: both.wait(HANG_S))
    with Council.inline(seats=SEATS, notify={"command": ["true"], "webhook": "https://127.0.0.1:1"}):
        pass
    assert not both.broken


# Settings


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "names nobody, expected a table with command, webhook, or both"),
        (
            {"webhook": "http://example.org/x"},
            "key notify.webhook: found 'http://example.org/x', expected https://",
        ),
        ({"webhook": "https://a:b@example.org"}, "expected https://… without name and password"),
        ({"webhok": "https://example.org"}, "did you mean webhook?"),
        ({"command": "page-me"}, "key notify.command: found 'page-me', expected a list of a program"),
        ({"command": ["sh", "a\0b"]}, "key notify.command: found a list of 2, expected a list of a program"),
        ({"command": ["sh", "x" * 5_000]}, "each up to 4,096 characters"),
        ({"command": ["x"], "remind_s": 0}, "key notify.remind_s: found 0, expected a number of seconds"),
    ],
)
def test_a_wrong_table_is_named(table: dict[str, Any], said: str, tmp_path: Path) -> None:
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    path = tmp_path / "council.toml"
    path.write_text("\n".join(["[notify]", *lines]), encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load(path, env={})
    assert len(raised.value.problems) == 1
    assert said in raised.value.problems[0]


@pytest.mark.parametrize("given", ["page-me", 'command = ["page-me"]', "{command = ["])
def test_a_variable_that_is_no_table_is_named_with_an_example(given: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(env={"COUNCIL_NOTIFY": given})
    (said,) = raised.value.problems
    assert said.startswith("environment COUNCIL_NOTIFY: found ")
    assert 'as in {command = ["/usr/local/bin/page-me"]}' in said


def test_a_variable_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOK", raising=False)
    monkeypatch.delenv("HOOK_KEY", raising=False)
    with pytest.raises(ConfigError, match="in the variable HOOK, which is not set"):
        Council.inline(seats=SEATS, notify={"webhook": "env:HOOK"})
    monkeypatch.setenv("HOOK", "example.org")
    with pytest.raises(ConfigError, match="in the variable HOOK, which holds another value"):
        Council.inline(seats=SEATS, notify={"webhook": "env:HOOK"})
    with pytest.raises(
        ConfigError, match=r"^notify: the key of the webhook of council should be in the variable"
    ):
        Council.inline(seats=SEATS, notify={"webhook": "https://127.0.0.1:1", "key": "env:HOOK_KEY"})
    with pytest.raises(OperatorError, match="can't be read"):
        Council.inline(seats=SEATS, notify={"webhook": "https://127.0.0.1:1", "key": "file:/no/such/key"})


def test_a_program_that_is_not_there_is_said_before_anybody_waits() -> None:
    """It is no error, because the coordinator may run on another machine."""
    with capture_logs() as logs:
        Council.inline(seats=SEATS, notify={"command": ["/no/such/pager"]}).close()
        Council.inline(seats=SEATS, notify={"command": [sys.executable]}).close()
    (said,) = [each for each in logs if each["event"].startswith("notify: ")]
    assert said["command"] == "/no/such/pager"


# Where a caller waits


def test_a_program_is_told_where_it_waits() -> None:
    """In process, where no shell can answer, also how one could (rules 1.9)."""
    with capture_logs() as logs, Council.inline(seats=SEATS) as council:
        standing = council.propose("Deploy")
    (said,) = [each["event"] for each in logs if "waits for a human" in each["event"]]
    assert standing.escalation_id is not None
    assert f'only this program can answer it: council.answer("{standing.escalation_id}"' in said
    assert "waits for a human: Deploy" in said
    assert "council up" in said
    assert "Council.connect()" in said


def test_a_guard_says_where_it_waits_before_it_is_answered() -> None:
    with capture_logs() as logs, Council.inline(seats=SEATS) as council:

        @council.guard(wait_for_human=True)
        def deploy() -> str:
            return "deployed"

        results: list[str] = []
        thread = threading.Thread(target=lambda: results.append(deploy()))
        thread.start()
        until(lambda: any("waits for a human" in each["event"] for each in logs))
        (escalation,) = council.escalations()
        council.answer(escalation.escalation_id, approve=True, reason="now")
        thread.join(HANG_S)
    assert results == ["deployed"]


def test_a_log_that_takes_nothing_does_not_stop_the_council(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a pipe that nobody reads. Mutation: the line is written on the council's loop."""
    monkeypatch.setattr(session, "SAY_S", 0.01)
    taken = threading.Event()
    with Council.inline(seats=SEATS) as council:
        handle_of(council).on_waiting = lambda _: taken.wait(HANG_S) and None
        try:
            standing = council.propose("Deploy")
            assert council.decision(standing.proposal_id) is not None
            assert not taken.is_set()
        finally:
            taken.set()
