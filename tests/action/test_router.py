"""The router: each marker to its destinations, redacted, signed, tried again, and shown where nothing helped."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from council.action.router import ATTEMPTS, CHANNELS, QUEUE_MAX, Message, Queue, Router, Webhook
from council.action.tool import ArgumentsRefused
from council.protocol.answer.markers import Block, parse
from council.protocol.cognition.parts import DestinationTarget, OutputRouting
from council.protocol.cognition.vocabulary import OutputDestination

CANARY = "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8"
NONCE = "5f3a9c17e2b84d06"
ANSWER = "".join(
    f"{marker}[{NONCE}]: {marker.lower()} {CANARY}\n"
    for marker in ("PLAN", "EXECUTE", "RESPONSE", "THOUGHT_SEED", "INTERRUPT", "VERIFY")
)


@dataclass
class Hook:
    """A web server that records what it gets, and answers with the next of ``answers``, then 204."""

    host: str = ""
    answers: list[int] = field(default_factory=list)
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def hook() -> Iterator[Hook]:
    record = Hook()

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            record.got.append((self.path, dict(self.headers.items()), body))
            self.send_response(record.answers.pop(0) if record.answers else 204)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    record.host = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield record
    server.shutdown()
    thread.join()
    server.server_close()


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, wait_s: float) -> None:
        self.now_s += wait_s


def markers(queue: Queue) -> list[str]:
    return [message.marker for message in queue.take()]


def test_each_marker_goes_where_the_matrix_says_and_no_canary_with_it() -> None:
    queues = {channel: Queue() for channel in CHANNELS}
    made = Router(queues).send("a1", parse(ANSWER, nonce=NONCE))
    assert all(CANARY not in repr(message) and message.counts == {"GitHub token": 1} for message in made)
    to_people = ["RESPONSE", "INTERRUPT", "VERIFY"]
    assert {channel: markers(queue) for channel, queue in queues.items()} == {
        **dict.fromkeys(("cli", "web", "discord", "slack", "api", "webhook", "audio"), to_people),
        "council": ["PLAN", "THOUGHT_SEED", "INTERRUPT", "VERIFY"],
        "shell": ["EXECUTE"],
        "memory": ["THOUGHT_SEED"],
        "log": ["PLAN"],
    }
    assert len({message.id for message in made}) == len(made)


def test_the_routing_of_a_packet_chooses_among_them() -> None:
    queues = {channel: Queue() for channel in CHANNELS}
    router, blocks = Router(queues), [Block("RESPONSE", "hello"), Block("VERIFY", "success")]

    def reached(**more: object) -> dict[str, list[str]]:
        router.send("a1", blocks, OutputRouting.model_validate(more))
        return {channel: found for channel, queue in queues.items() if (found := markers(queue))}

    cli, web = (
        {"destination": name, "channel_id": "c7", "reply_to_message_id": "m1"} for name in ("cli", "web")
    )
    both = ["RESPONSE", "VERIFY"]
    assert reached(primary=cli) == {"cli": both, "council": ["VERIFY"]}
    assert reached(primary=cli, secondary=[web, web]) == {"cli": both, "web": both, "council": ["VERIFY"]}
    echo = {"suppress_echo": True, "source_destination": "web"}
    assert reached(primary=cli, secondary=[web], **echo) == {"cli": both, "council": ["VERIFY"]}
    assert reached(primary=cli, addressed_to_gaia=False) == {"cli": ["VERIFY"], "council": ["VERIFY"]}
    everywhere = reached(primary={"destination": "broadcast"})
    assert set(everywhere) == {"cli", "web", "discord", "slack", "api", "webhook", "audio", "council"}


def test_the_place_in_a_channel_goes_along() -> None:
    queue = Queue()
    target = DestinationTarget(destination=OutputDestination.WEB, channel_id="c7", reply_to_message_id="m1")
    Router({"web": queue}).send("a1", [Block("RESPONSE", "hello")], OutputRouting(primary=target))
    assert queue.take() == [Message("a1:0:web:c7", "web", "RESPONSE", "hello", {}, "c7", "m1")]


def test_a_webhook_gets_a_signed_body(hook: Hook) -> None:
    webhook = Webhook(f"http://{hook.host}/in", [hook.host], key=b"k", private=True)
    Router({"webhook": webhook}).send("a1", [Block("RESPONSE", f"it is {CANARY}")])
    [(path, headers, body)] = hook.got
    assert (path, json.loads(body)) == (
        "/in",
        {
            "id": "a1:0:webhook:",
            "channel": "webhook",
            "marker": "RESPONSE",
            "text": "it is [redacted: GitHub token]",
            "counts": {"GitHub token": 1},
        },
    )
    signed = headers["X-Council-Time"].encode() + b"." + body
    assert headers["X-Council-Signature"] == "sha256=" + hmac.new(b"k", signed, hashlib.sha256).hexdigest()


def test_slack_and_discord_get_their_shapes(hook: Hook) -> None:
    slack = Webhook(f"http://{hook.host}/slack", [hook.host], shape="slack", private=True)
    discord = Webhook(f"http://{hook.host}/discord", [hook.host], shape="discord", private=True)
    Router({"slack": slack, "discord": discord}).send("a1", [Block("RESPONSE", "@everyone " + "x" * 3_000)])
    shapes = {path: json.loads(body) for path, _, body in hook.got}
    assert shapes["/slack"] == {"text": "@everyone " + "x" * 3_000}
    assert len(shapes["/discord"]["content"]) == 2_000
    assert shapes["/discord"]["allowed_mentions"] == {"parse": []}


def test_a_webhook_outside_the_list_or_at_a_private_address_is_refused(hook: Hook) -> None:
    with pytest.raises(ArgumentsRefused, match="one of hosts"):
        Webhook(f"http://{hook.host}/in", ["hooks.slack.com"])
    router = Router(
        {"webhook": Webhook(f"http://{hook.host}/in", [hook.host])},
        clock=(clock := Clock()),
        pause=clock.pause,
    )
    router.send("a1", [Block("RESPONSE", "hello")])
    assert router.retry(60.0) == 0
    assert "not public" in router.dead[0].why
    assert not hook.got


def test_a_sink_that_comes_back_gets_the_message_with_its_id(hook: Hook) -> None:
    hook.answers += [503, 302]
    clock = Clock()
    webhook = Webhook(f"http://{hook.host}/in", [hook.host], private=True)
    router = Router({"webhook": webhook}, clock=clock, pause=clock.pause)
    router.send("a1", [Block("RESPONSE", "hello")])
    assert router.retry(60.0) == 0
    assert router.dead == ()
    assert [(path, headers["X-Council-Id"]) for path, headers, _ in hook.got] == [
        ("/in", "a1:0:webhook:")
    ] * 3
    assert clock.now_s == pytest.approx(0.2 + 0.4)


def test_a_sink_that_stays_down_leaves_a_dead_letter_without_secrets() -> None:
    clock, cli = Clock(), Queue()

    def down(message: Message) -> None:
        raise RuntimeError(f"no place for {CANARY}")

    router = Router({"audio": down, "cli": cli}, clock=clock, pause=clock.pause)
    router.send("a1", [Block("RESPONSE", CANARY)])
    assert router.retry(0.1) == 1
    assert not router.dead
    assert router.retry(60.0) == 0
    [dead] = router.dead
    assert dead.attempts == ATTEMPTS
    assert dead.message.channel == "audio"
    assert CANARY not in repr(dead)
    assert len(cli.take()) == 1


def test_a_queue_that_nobody_reads_is_bounded() -> None:
    queue = Queue()
    message = Message("a", "web", "RESPONSE", "", {})
    for _ in range(QUEUE_MAX):
        queue(message)
    with pytest.raises(OSError, match="wait to be read"):
        queue(message)
    assert len(queue.take()) == QUEUE_MAX
    assert queue.take() == []


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="'fax'"):
        Router({"fax": Queue()})  # type: ignore[dict-item]
