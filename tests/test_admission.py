"""A cluster's door: what its head says to those without its token, with another, and with its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from council.cluster import admission, known
from council.protocol.errors import OperatorError, Unreachable
from tests.patience import HANG_S


class Head(grpc.GenericRpcHandler):
    """Answers Ray's first call as its head does; a real one is knocked at in tests/ray/test_cluster.py."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self.shown: list[str] = []

    def service(self, details: Any) -> Any:
        assert details.method == "/ray.rpc.NodeInfoGcsService/CheckAlive"
        return grpc.unary_unary_rpc_method_handler(self.answer)

    def answer(self, asked: bytes, context: Any) -> bytes:
        shown = dict(context.invocation_metadata()).get("authorization", "")
        self.shown.append(shown)
        if self.token is not None and shown != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "InvalidAuthToken")
        return b""


@pytest.fixture
def heads(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes heads that demand a token, or none; gives the head and its address."""
    servers = []

    def make(token: str | None, host: str = "127.0.0.1") -> tuple[Head, str]:
        head, server = Head(token), grpc.server(futures.ThreadPoolExecutor(1), handlers=())
        server.add_generic_rpc_handlers((head,))
        port = server.add_insecure_port(f"{host}:0")
        server.start()
        servers.append(server)
        return head, f"{host}:{port}"

    yield make
    for server in servers:
        server.stop(0)


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (admission.MODE, admission.TOKEN, admission.TOKEN_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_head_that_demands_a_token_lets_in_who_shows_it(
    heads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, address = heads("right")
    monkeypatch.setenv(admission.TOKEN, "right")
    door = admission.probe_auth(address)
    assert door.demands_token
    with door.mode():
        assert os.environ[admission.MODE] == "token"
    assert admission.MODE not in os.environ
    assert head.shown == ["", "Bearer right"]


def test_a_head_that_demands_none_is_shown_none(heads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: to show the token first hands it to whoever listens there."""
    head, address = heads(None)
    monkeypatch.setenv(admission.TOKEN, "of another cluster")
    monkeypatch.setenv(admission.MODE, "token")
    door = admission.probe_auth(address)
    assert not door.demands_token
    with door.mode():
        assert os.environ[admission.MODE] == "disabled"
    assert os.environ[admission.MODE] == "token"
    assert head.shown == [""]


@pytest.mark.parametrize("given", ["variable", "file", "home"])
def test_a_wrong_token_is_told_with_where_it_is_from(
    heads: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str
) -> None:
    _, address = heads("right")
    file = tmp_path / (".ray/auth_token" if given == "home" else "token")
    file.parent.mkdir(exist_ok=True)
    file.write_text("sesame-7\n")
    if given == "variable":
        monkeypatch.setenv(admission.TOKEN, "sesame-7")
    elif given == "file":
        monkeypatch.setenv(admission.TOKEN_PATH, str(file))
    with pytest.raises(Unreachable) as caught:
        admission.probe_auth(address)
    source = admission.TOKEN if given == "variable" else str(file)
    assert f"the token in {source} is not that of the Ray at {address}" in caught.value.message
    assert "sesame-7" not in caught.value.message


def test_no_token_where_one_is_demanded_says_how_to_give_it(heads: Any) -> None:
    _, address = heads("right")
    with pytest.raises(Unreachable, match="demands a token, and there is none: set RAY_AUTH_TOKEN_PATH"):
        admission.probe_auth(address)


def test_a_token_file_that_cannot_be_used_is_told(
    heads: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, address = heads("right")
    monkeypatch.setenv(admission.TOKEN_PATH, str(tmp_path / "none"))
    with pytest.raises(OperatorError, match="none can't be read"):
        admission.probe_auth(address)
    (tmp_path / "none").write_bytes(b"x" * 5_000)
    with pytest.raises(OperatorError, match="holds more than a token"):
        admission.probe_auth(address)


def test_an_address_that_leads_to_no_ray_is_told() -> None:
    not_a_head = ("ray://head:10001", "http://head:8265", "head", ":6379", "head:70000", "head:٦")
    words = {
        **dict.fromkeys(
            not_a_head, r"expected host:port, or auto\. .*Ray's client \(ray://\).*ray job submit"
        ),
        "127.0.0.1:1": "no Ray answers at 127.0.0.1:1: .*refused",
        "nowhere.invalid:6379": "no Ray answers at nowhere.invalid:6379",
        f"{'x' * 70}.invalid:6379": "no Ray answers at x",
    }
    for address, told in words.items():
        with pytest.raises(Unreachable, match=told) as caught:
            admission.probe_auth(address)
        assert caught.value.address == address


def test_what_listens_and_is_no_ray_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a call without a deadline waits for as long as the other side is silent, or gRPC tries to connect."""
    monkeypatch.setattr(admission, "PROBE_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            Unreachable,
            match=rf"something listens at {address}, but it does not answer as Ray does \(DEADLINE_EXCEEDED",
        ):
            admission.probe_auth(address)


def test_a_token_that_others_can_read_is_told(tmp_path: Path) -> None:
    """Ray leaves its own with mode 644."""
    file = tmp_path / "auth_token"
    assert admission.open_to_others(file) is None
    file.touch()
    for mode, open_ in ((0o600, False), (0o400, False), (0o644, True), (0o640, True)):
        file.chmod(mode)
        wrong = f"{file} holds the cluster's token and is open to others (mode {mode:o}): chmod 600 {file}"
        assert admission.open_to_others(file) == (wrong if open_ else None)


def test_doctor_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from council.cli.setup import doctor

    assert list(doctor._token_file()) == []
    file = tmp_path / ".ray/auth_token"
    file.parent.mkdir()
    file.touch(mode=0o644)
    file.chmod(0o644)
    assert [(level, what) for level, what, _ in doctor._token_file()] == [("warn", "Ray's token")]
    file.chmod(0o600)
    assert [level for level, _, _ in doctor._token_file()] == ["ok"]
    monkeypatch.setenv(admission.TOKEN, "given")
    assert list(doctor._token_file()) == []


# Which Ray a client joins


# Of the usual name of this machine Ray makes its address on the network, where nothing listens.
ELSEWHERE = "127.0.0.2"
CONNECTS = """
import sys
from ray._private import services
services.find_gcs_addresses = set  # or other Rays of this machine, those of other tests, count as nodes of it
from council import Council
from council.protocol.errors import CouncilError
try:
    Council.connect(**eval(sys.argv[1]))
except CouncilError as error:
    print(error.code, error.message)
"""


def connecting(head: str, /, **how: object) -> str:
    """What a fresh process is told that connects, on a machine where Ray's own search finds the one at ``head``."""
    done = subprocess.run(
        [sys.executable, "-c", CONNECTS, repr(how)],
        env={**os.environ, "RAY_ADDRESS": head},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return done.stdout


def test_without_an_address_no_ray_of_others_is_joined_nor_shown_a_token(
    heads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, address = heads("right", ELSEWHERE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COUNCIL_RAY_ADDRESS", "")  # else RAY_ADDRESS is the address that was given
    monkeypatch.setenv(admission.TOKEN, "of another cluster")
    told = connecting(address, name="nobody")
    assert told.startswith("unreachable no council named 'nobody' was brought up here by this user: ")
    assert 'council up, give the address of its Ray, or use address="auto"' in told
    assert head.shown == []


def test_auto_refuses_a_ray_without_token_unless_told(heads: Any) -> None:
    head, address = heads(None, ELSEWHERE)
    told = connecting(address, address="auto", name="nobody")
    assert told.startswith(f"config the Ray at {address} demands no token")
    assert "ray_insecure" in told
    assert head.shown == [""]
    told = connecting(address, address="auto", name="nobody", ray_insecure=True)
    assert told.startswith(f"unreachable this machine is not a node of the Ray at {address}")


def test_a_known_council_is_not_looked_for_in_a_ray_that_demands_no_token_any_more(
    heads: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: whoever listens at the address of a Ray that is gone is taken for it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COUNCIL_RAY_ADDRESS", "")
    head, address = heads(None, ELSEWHERE)
    known.write(
        known.Known(
            name="mine",
            namespace="council",
            address=address,
            machine=socket.gethostname(),
            since_wall_s=time.time(),
            pid=os.getpid(),
            started=known.process_started(os.getpid()),
            token="sesame-7",
        )
    )
    told = connecting(address, name="mine")
    assert told.startswith(f"config the Ray at {address} demands no token")
    assert head.shown == [""]
