"""A client that lives longer than its council: taken down or killed, and brought up again, it is found anew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._private.authentication.http_token_authentication import get_auth_headers_if_auth_enabled
from ray.exceptions import ActorDiedError, RayError

from council import Council
from council.api import handle
from council.api.client import handle_of
from council.cluster import port, reaper
from council.cluster.socket_port import SocketPort
from council.protocol.errors import CouncilClosed, CouncilDied, CouncilError, Unreachable
from tests.ray.nodes import Nodes
from tests.ray.test_cli_ray import Shell, below, opened, until

pytestmark = [pytest.mark.ray, pytest.mark.long]
# A call that must succeed may take so long: how soon a council is up again is the machine's affair.
LONG_S = 600.0

SETTINGS = """
[seats.codemind]
mind = "tests.ray.test_reconnect:Patient"
options = {file = "FILE"}
"""


class Patient:
    """A mind that has no opinion until a file is there."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)

    async def review(self, case: object) -> Any:
        import asyncio

        from council import Opinion

        while not self._file.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.05)
        return Opinion.yes("it is there", confidence=0.9)


class Silent:
    """What is registered as a coordinator, and does not answer."""

    def __init__(self, asked: str) -> None:
        self._asked = asked

    def hello(self) -> None:
        Path(self._asked).touch()
        time.sleep(3_600)


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: it connects to those of councils that come and go."""


@pytest.fixture
def over_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the clients of this process use Ray, as where a council's host has no socket."""
    monkeypatch.setattr(handle, "_by_socket", lambda wanted: None)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "council.toml").write_text(SETTINGS.replace("FILE", str(tmp_path / "go")), encoding="utf-8")
    with opened(tmp_path) as shell:
        yield shell
    assert not ray.is_initialized()


def up(shell: Shell) -> dict[str, Any]:
    told: dict[str, Any] = shell.told("up", "--name", "again")["up"]
    return told


def kill(told: dict[str, Any], process: str) -> None:
    """Kills the council's host, or the head of its Ray, and waits for the host's end."""
    pid, family = told["pid"], below(told["pid"])
    if process == "host":
        os.kill(pid, signal.SIGKILL)
    else:
        heads = subprocess.run(
            ["pgrep", "-P", str(pid), "gcs_server"], capture_output=True, text=True, check=True
        )
        (head,) = (int(each) for each in heads.stdout.split())
        assert head in family
        os.kill(head, signal.SIGKILL)
    until(
        lambda: reaper.process_started(pid) is None
    )  # else where Ray has made this process the parent of orphans


def patient(*where: str, **how: Any) -> Council:
    return Council.connect(*where, call_timeout_s=LONG_S, **how)


def hasty(*where: str, **how: Any) -> Council:
    """A client that connects in its own time, and whose calls then give up soon.

    They repeat a question for 5.4 s, in which they find out why, and have 10 s more to say it.
    """
    made = patient(*where, **how)
    handle: Any = handle_of(made)
    handle.session._call_timeout_s = 15.0
    soon = {"call_timeout_s": 6.0}
    if isinstance(handle.port, SocketPort):
        handle.port.config = handle.port.config.model_copy(update=soon)
    else:
        handle.port._wanted = handle.port._wanted.model_copy(update=soon)
    return made


class Wanted:
    """A lock that says that somebody has asked for it by ``acquire``."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock, self.wanted = lock, threading.Event()
        self.release = lock.release

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self, timeout: float) -> bool:
        self.wanted.set()
        return self._lock.acquire(timeout=timeout)


def close_while_it_is_looked_for(council: Council, patch: pytest.MonkeyPatch) -> None:
    """Closes a council of a Ray that this process has left: after that, no thread may be inside Ray."""
    find, inside, order = port._find_coordinator, threading.Event(), list[str]()
    handle: Any = handle_of(council)
    lock = handle.port._connecting = Wanted(handle.port._connecting)

    def slowly(*how: Any) -> Any:
        inside.set()
        assert lock.wanted.wait(LONG_S), "close() does not wait"
        place = find(*how)
        order.append("found")
        return place

    patch.setattr(port, "_find_coordinator", slowly)
    asking = handle.background._begin(handle.status())
    assert inside.wait(LONG_S)
    council.close()
    order.append("closed")
    assert order == ["found", "closed"]
    asking.cancel()


def is_dead(actor: Any) -> bool:
    try:
        ray.get(actor.hello.remote(), timeout=LONG_S)
    except ActorDiedError:
        return True
    except RayError:
        pass
    return False


def end_and_begin_again(
    shell: Shell, told: dict[str, Any], council: Council, other: Council, end: str
) -> None:
    """Ends the council while a proposal is in flight, and brings it up again."""
    go = shell.folder / "go"
    go.unlink()
    draft, decided = council.draft("In flight", wait_for="all", timeout_s=300), list[Any]()
    thread = threading.Thread(target=lambda: decided.append(council.propose(draft)))
    thread.start()
    until(lambda: other.status()["open_count"] == 1)
    if end == "down":
        assert shell.run("down", "--name", "again", "--yes").returncode == 0
    else:
        kill(told, end)
    told |= up(shell)
    go.touch()
    thread.join(LONG_S)
    assert [(each.proposal_id, each.outcome) for each in decided] == [(draft.msg_id, "approved")]
    assert other.propose("Second")


def test_a_client_of_the_socket_finds_its_council_again(shell: Shell) -> None:
    """Also after its host, or the head of its Ray, was killed; and without Ray in this process."""
    (shell.folder / "go").touch()
    told = up(shell)
    with patient(name="again") as council, patient(name="again") as other, hasty(name="again") as brief:
        assert isinstance(handle_of(council).port, SocketPort)
        for end in ("down", "host", "head"):
            end_and_begin_again(shell, told, council, other, end)
        assert brief.status()["decided"] == council.status()["decided"]
        kill(told, "head")
        with pytest.raises(CouncilDied, match="has crashed") as crashed:
            brief.status()
        assert crashed.value.code == "council_died"
        assert shell.run("down", "--name", "again", "--yes").returncode == 0
        with pytest.raises(CouncilClosed, match="was taken down, and is not up"):
            brief.status()


@pytest.mark.usefixtures("over_ray")
def test_a_client_finds_its_council_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations: to leave Ray the token that it read first; to end a call with the connection it began on; to look
    for the council in order to leave it, or still when it is closed.
    """
    go = shell.folder / "go"
    go.touch()
    told = up(shell)
    council, other = patient(name="again"), patient(name="again")
    assert council.propose("First")
    council_id = council.status()["council_id"]

    for end in ("down", "host"):
        end_and_begin_again(shell, told, council, other, end)

    # Its Ray is ended under a thread that waits for an answer over it.
    asked, failed = shell.folder / "asked", list[BaseException]()
    silent: Any = ray.remote(num_cpus=0)(Silent)
    place = {"name": "silent/coordinator", "namespace": told["namespace"], "lifetime": "detached"}
    silent.options(**place).remote(str(asked))

    def connect() -> None:
        try:
            patient(told["address"], "silent")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    until(lambda: asked.exists() or failed)
    assert not failed
    kill(told, "head")
    told = up(shell)
    assert other.status()["council_id"] == council_id
    assert council.propose("Third")
    thread.join(LONG_S)
    assert [isinstance(each, CouncilError) for each in failed] == [True], failed

    # The caller ends the connection, and makes one of his own.
    ray.shutdown()
    assert council.status()["council_id"] == council_id
    ray.shutdown()
    with monkeypatch.context() as patch:
        close_while_it_is_looked_for(council, patch)
    ray.shutdown()  # the other one held it still
    kept = json.loads((shell.folder / "council/councils/again.json").read_text(encoding="utf-8"))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", kept["token"])
    ray.init(address=told["address"], log_to_driver=False)
    looked, look = list[object](), port.RayPort._find_again
    monkeypatch.setattr(port.RayPort, "_find_again", lambda self: looked.append(self) or look(self))
    other.close()
    assert not looked
    assert ray.is_initialized()
    ray.shutdown()
    assert shell.run("down", "--name", "again", "--yes").returncode == 0


@pytest.mark.usefixtures("over_ray")
def test_a_crash_is_told_from_an_end(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    told = up(shell)
    with patient(name="again") as council, hasty(name="again") as brief:
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                brief.propose("In flight", wait_for="all", timeout_s=300)
            except CouncilDied as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: council.status()["open_count"] == 1)
        assert shell.run("down", "--name", "again", "--yes").returncode == 0
        thread.join(LONG_S)
        assert [(type(each), each.code) for each in failed] == [(CouncilClosed, "council_closed")]
        assert "may still be decided" in str(failed[0])
        with pytest.raises(CouncilClosed, match="was taken down, and is not up"):
            brief.status()
        status = shell.run("status", "--name", "again", "--json")
        assert (status.returncode, json.loads(status.stdout)["error"]["code"]) == (4, "unreachable")
        with pytest.raises(Unreachable, match="no council named 'again' was brought up here"):
            Council.connect(name="again")

        told = up(shell)
        assert council.status()["open_count"] == 1  # in the journal it is still open
        kill(told, "head")
        with pytest.raises(CouncilDied, match="has crashed") as crashed:
            brief.status()
        assert crashed.value.code == "council_died"
        with pytest.raises(CouncilDied, match=r"may still be decided.*has crashed"):
            brief.propose("It stays away", timeout_s=300)
        asking = list[str]()
        handle: Any = handle_of(brief)
        port = handle.port
        ask = port._ask
        monkeypatch.setattr(port, "_ask", lambda *what: asking.append(what[1]) or ask(*what))
        with pytest.raises(CouncilDied):
            handle.wait(handle.session.open())
        assert asking == ["join"]  # a session that joins anew asks again by itself
        for _ in range(2):
            status = shell.run("status", "--name", "again", "--json")
            assert (status.returncode, json.loads(status.stdout)["error"]["code"]) == (4, "council_died")
        assert shell.run("down", "--name", "again", "--yes").returncode == 0
        assert shell.run("status", "--name", "again").returncode == 4
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "the caller's own")
    assert get_auth_headers_if_auth_enabled({})["authorization"] == "Bearer the caller's own"


@pytest.mark.usefixtures("over_ray")
def test_a_client_follows_its_council_from_ray_to_ray(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutations: to take a head for the one before it, since it listens there; to keep to a Ray that runs still."""
    (shell.folder / "council.toml").unlink()
    nodes = Nodes()
    try:
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(nodes.token))
        shell.env["RAY_AUTH_TOKEN_PATH"] = str(nodes.token)
        assert shell.run("up", "--name", "again", "--address", nodes.address).returncode == 0
        council, brief = patient(name="again"), hasty(nodes.address, "again")
        council_id = council.status()["council_id"]
        coordinator = handle_of(council).port._place.handle  # type: ignore[attr-defined]
        ray.kill(coordinator)
        until(lambda: is_dead(coordinator))  # it may still answer for a moment
        for _ in range(2):
            with pytest.raises(CouncilDied, match=r"is dead.*it is not found again: no council") as died:
                brief.status()
            assert died.value.code == "council_died"
        brief.close()

        nodes.end_all()
        nodes.start("head", f"--temp-dir={nodes.folder / 'ray'}")
        assert shell.run("up", "--name", "again", "--address", nodes.address).returncode == 0
        assert council.status()["council_id"] == council_id
        assert council.propose("Second")

        assert shell.run("down", "--name", "again", "--yes").returncode == 0
        up(shell)
        assert council.propose("Third")
        council.close()
        assert shell.run("down", "--name", "again", "--yes").returncode == 0
    finally:
        nodes.end()
