"""What these tests reach by an internal name. Where code moves, this file is changed, and no other one here."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
import typer
from msgspec.structs import asdict

from council import Council, CouncilConfig, Envelope
from council.agents.mind import Cost
from council.cli.app import assembled, run
from council.cli.report import error_code
from council.cluster import known
from council.config.charter_files import charter_files_of, resolve_charter
from council.core.state import Account, Answer, Option, TieBreak
from council.core.state import Ruling as PrimesRuling
from council.journal.checkpoint import SIGNATURE_BYTES
from council.kinds.identity import kept_identity
from council.protocol import codec, signing
from council.protocol.errors import CouncilError
from council.protocol.identity.charter import Identity
from council.runtime.build import rules_of as _rules_of
from tests.cli.conftest import Lent, entry

__all__ = ["Account", "Answer", "Option", "PrimesRuling", "TieBreak"]  # what fields of public values are


# The wire


def encoded(envelope: Envelope) -> bytes:
    return codec.encode(envelope)


def decoded(payload: bytes) -> Envelope:
    return codec.decode(payload)


def sealed(envelope: Envelope, key: bytes, council_id: str) -> bytes:
    return signing.sign(envelope, key, council_id)


def opened(message: bytes, sender: str, key: bytes, council_id: str) -> Envelope:
    keyring = signing.Keyring()
    keyring.add(sender, key)
    return keyring.open(message, council_id)


def sealed_to(payload: bytes, key: bytes, council_id: str, peer: str) -> bytes:
    """As the council seals what it says to ``peer``."""
    return signing.seal_to(payload, key, council_id, peer)


# The journal


def rules_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that a council with these settings was launched with when the journal was kept."""
    found = asdict(_rules_of(resolve_charter(CouncilConfig(**settings))))
    later = ("lost_at_once", "asks_outcome", "keeps_escalation")
    return found | dict.fromkeys(later, msgspec.UNSET)


def identity_with(core_rule: str) -> Any:
    """The identity that ships, with one more core rule, as a journal keeps it."""
    shipped = charter_files_of(CouncilConfig()).charter.identity
    return kept_identity(Identity.build({**shipped.data(), "core_rules": [*shipped.core_rules, core_rule]}))


def snapshot_in(signed: bytes) -> bytes:
    """The snapshot itself, of one as it is kept: signed, and bound to the chain."""
    return bytes(msgspec.msgpack.decode(signed[SIGNATURE_BYTES:])["base"])


# Errors


def errors() -> Iterator[type[CouncilError]]:
    """Every class of error that the council raises, the root first."""
    importlib.import_module("council.action.sandbox")  # whose error is loaded when it is first used
    waiting = [CouncilError]
    while waiting:
        kind = waiting.pop(0)
        yield kind
        waiting += sorted(kind.__subclasses__(), key=lambda each: each.__name__)


# The command line


def command(*arguments: str, placeless: bool = False) -> tuple[int, Any]:
    """The exit code of a command line run in this process, and the JSON that it printed: one document, or lines.

    ``placeless``: whatever says ``where`` something is says nothing.
    """
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.chdir("."),  # a command may leave the working folder
    ):
        code = run(arguments)
    found = [
        json.loads(line, object_hook=_placeless if placeless else None)
        for line in out.getvalue().splitlines()
    ]
    return code, found[0] if len(found) == 1 else found


def _placeless(document: dict[str, Any]) -> dict[str, Any]:
    return {name: "" if name == "where" else value for name, value in document.items()}


def exit_code(error: CouncilError) -> int:
    return error_code(error)


def command_line() -> Any:
    """The command ``council`` with all that stands below it."""
    return typer.main.get_command(assembled())


def put_up(patch: pytest.MonkeyPatch, council: Council) -> None:
    """Makes a council in this process the one that is up, as far as commands can tell."""
    known.write(entry(council.name, pid=os.getpid()))
    patch.setattr(Council, "connect", lambda *_, **__: Lent(council))


def cost(tokens: int, microusd: int) -> Any:
    """What a call costs, as a mind tells its purse."""
    return Cost(tokens, microusd)
