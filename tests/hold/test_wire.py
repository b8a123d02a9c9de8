"""What is on the wire keeps its bytes, read and written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from council import CouncilError, Envelope
from tests.cases import each
from tests.hold import doors, wire


@each(("name", "held"), wire.kept().items())
def test_each_envelope_has_the_bytes_it_had(name: str, held: dict[str, Any]) -> None:
    assert wire.described(json.dumps(held["envelope"])) == held
    envelope = Envelope.from_json(json.dumps(held["envelope"]))
    payload = bytes.fromhex(held["payload"])
    assert doors.decoded(payload) == envelope
    sealed = bytes.fromhex(held["signature"]) + payload
    assert doors.opened(sealed, "lite", wire.KEY, wire.COUNCIL_ID) == envelope


def test_all_examples_are_held() -> None:
    assert wire.kept().keys() == wire.EXAMPLES.keys()


def test_a_changed_byte_is_refused() -> None:
    held = wire.kept()["vote"]
    sealed = bytes.fromhex(held["signature"] + held["payload"])
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(CouncilError):
            doors.opened(changed, "lite", wire.KEY, wire.COUNCIL_ID)
