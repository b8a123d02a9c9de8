"""A cluster's door: what its head says to those without its token, with another, and with its own."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from council.protocol.errors import OperatorError, Unreachable
from council.runtime import admission


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

    def make(token: str | None) -> tuple[Head, str]:
        head, server = Head(token), grpc.server(futures.ThreadPoolExecutor(1), handlers=())
        server.add_generic_rpc_handlers((head,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return head, f"127.0.0.1:{port}"

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
    door = admission.knock(address)
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
    door = admission.knock(address)
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
        admission.knock(address)
    source = admission.TOKEN if given == "variable" else str(file)
    assert f"the token in {source} is not that of the Ray at {address}" in caught.value.message
    assert "sesame-7" not in caught.value.message


def test_no_token_where_one_is_demanded_says_how_to_give_it(heads: Any) -> None:
    _, address = heads("right")
    with pytest.raises(Unreachable, match="demands a token, and there is none: set RAY_AUTH_TOKEN_PATH"):
        admission.knock(address)


def test_a_token_file_that_cannot_be_used_is_told(
    heads: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, address = heads("right")
    monkeypatch.setenv(admission.TOKEN_PATH, str(tmp_path / "none"))
    with pytest.raises(OperatorError, match="none can't be read"):
        admission.knock(address)
    (tmp_path / "none").write_bytes(b"x" * 5_000)
    with pytest.raises(OperatorError, match="holds more than a token"):
        admission.knock(address)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("ray://head:10001", "Ray's client"),
        ("http://head:8265", "ray job submit"),
        ("head", "expected host:port"),
        (":6379", "expected host:port"),
        ("head:70000", "expected host:port"),
        ("head:٦", "expected host:port"),
        ("127.0.0.1:1", "no Ray answers at 127.0.0.1:1: .*refused"),
        ("nowhere.invalid:6379", "no Ray answers at nowhere.invalid:6379"),
        (f"{'x' * 70}.invalid:6379", "no Ray answers at x"),
    ],
)
def test_an_address_that_leads_to_no_ray_is_told(address: str, told: str) -> None:
    with pytest.raises(Unreachable, match=told) as caught:
        admission.knock(address)
    assert caught.value.address == address


def test_what_listens_and_is_no_ray_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a call without a deadline waits for as long as the other side is silent."""
    monkeypatch.setattr(admission, "PROBE_TIMEOUT_S", 0.5)
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(
            Unreachable, match=f"something listens at {address}, but it answers as no Ray does"
        ):
            admission.knock(address)
    assert time.monotonic() - began < 10  # gRPC by itself tries to connect for 20


@pytest.mark.parametrize(("mode", "open_"), [(0o600, False), (0o400, False), (0o644, True), (0o640, True)])
def test_a_token_that_others_can_read_is_told(tmp_path: Path, mode: int, open_: bool) -> None:
    """Ray leaves its own with mode 644."""
    file = tmp_path / "auth_token"
    file.touch()
    file.chmod(mode)
    told = admission.open_to_others(file)
    assert told == (
        f"{file} holds the cluster's token and is open to others (mode {mode:o}): chmod 600 {file}"
        if open_
        else None
    )
    assert admission.open_to_others(tmp_path / "none") is None


def test_doctor_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from council.cli import doctor

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
