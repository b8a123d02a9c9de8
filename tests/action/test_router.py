"""The router: each marker to its destinations, redacted."""

import pytest

from council.action.router import CHANNELS, Message, Router
from council.protocol.answer.markers import Block, parse
from council.protocol.cognition.parts import DestinationTarget, OutputRouting
from council.protocol.cognition.vocabulary import OutputDestination

CANARY = "ghp_" + "a1B2c3D4e5F6g7H8j9K0" + "m1N2p3Q4r5S6t7U8"
NONCE = "5f3a9c17e2b84d06"
ANSWER = "".join(
    f"{marker}[{NONCE}]: {marker.lower()} {CANARY}\n"
    for marker in ("PLAN", "EXECUTE", "RESPONSE", "THOUGHT_SEED", "INTERRUPT", "VERIFY")
)


class Queue:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    def __call__(self, message: Message) -> None:
        self._messages.append(message)

    def take(self) -> list[Message]:
        taken, self._messages = self._messages, []
        return taken


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


def test_an_unknown_channel_is_refused() -> None:
    with pytest.raises(ValueError, match="'fax'"):
        Router({"fax": Queue()})  # type: ignore[dict-item]
