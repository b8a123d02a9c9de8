"""The socket of a council's host, in process: an ordinary client behind it, and every misuse of it."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from council import Action, Case, Council, Opinion, SeatConfig
from council.api import inline
from council.api.client import handle_of
from council.api.handle import connect
from council.cli import app
from council.cluster import known, socket_port
from council.cluster.socket_port import PROTOCOL, Greeting, SocketPort, framed
from council.cluster.socket_server import Limits, SocketServer, place
from council.config.settings import CouncilConfig
from council.protocol.errors import (
    CouncilClosed,
    CouncilDied,
    CouncilError,
    OperatorError,
    PositionLost,
    Refused,
    Unreachable,
)
from council.runtime.answers import answer, result_or_raise
from council.runtime.loop_thread import Background
from council.runtime.questions import AskEvents, AskStatus, to_bytes
from tests.cases import each
from tests.cli.conftest import entry
from tests.patience import HANG_S, until
from tests.runtime.harness import run

NAME = "near"
CONFIG = CouncilConfig(name=NAME)
Greeted = tuple[asyncio.StreamReader, asyncio.StreamWriter, dict[str, Any]]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return tmp_path


class Host:
    """A council in process with its socket, as ``council up`` leaves one behind, on a loop of its own."""

    def __init__(self, limits: Limits | None = None, **settings: Any) -> None:
        self._loop = Background("host")
        self.council = self._loop.wait(inline.start(CouncilConfig(name=NAME, **settings)))
        self.council._in_process = False  # its answers are signed bytes, as those of a coordinator on Ray
        self.server = SocketServer(self.council, NAME, place(NAME), limits)
        self._loop.wait(self.server.open())
        self.entry = entry(NAME, pid=os.getpid(), socket=str(self.server.path))
        known.write(self.entry)
        self._down = False

    def down(self) -> None:
        """As ``council down`` does."""
        if not self._down:
            self._down = True
            known.forget(NAME)
            self._loop.wait(self.council.close())
            self._loop.wait(self.server.close())
            self._loop.stop()

    def cut(self) -> None:
        """Ends all connections."""

        async def drop() -> None:
            for peer in self.server._peers:
                peer.drop()

        self._loop.wait(drop())

    def on_its_loop(self, what: Callable[[], Any]) -> Any:
        async def called() -> Any:
            return what()

        return self._loop.wait(called())

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


@contextlib.asynccontextmanager
async def greeted(path: Path) -> AsyncIterator[Greeted]:
    """A connection by hand."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer, result_or_raise(await received(reader), dict[str, Any])
    finally:
        writer.close()


async def received(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    return await reader.readexactly(size)


def call(number: int, verb: str, payload: bytes) -> bytes:
    return framed(msgspec.msgpack.encode((number, verb, payload)))


def test_a_client_behind_the_socket_is_an_ordinary_client() -> None:
    with Host() as host, Council.connect(name=NAME, sender="ada-client", key=b"k" * 32) as council:
        decision = council.propose("Rename the variable total to sum", wait_for="all")
        assert (decision.outcome, len(decision.ballots)) == ("approved", 3)
        status = council.status()
        assert (status["council_id"], status["name"]) == (host.council.council_id, NAME)
        assert [each.kind for each in council.events(follow=False)].count("ballot") == 3
        assert council.history(types=["decision"]).entries[0].proposal_id == decision.proposal_id
        with pytest.raises(Refused, match="decided"):
            council.cancel(decision.proposal_id)
        assert council.config.ray_address == host.entry.address
    assert status["sessions"] == ["ada-client"]


def looks_first(case: Case) -> Opinion:
    if case.checks:
        return Opinion.yes(f"there are {case.checks[0].output}")
    return Opinion.abstain("how many are there?", check=Action("look", {"folder": "/srv"}))


def test_a_check_is_run_by_the_client_that_acts() -> None:
    """Its executor hears of the check over the socket, beside the proposal that it waits for."""
    ran: list[str] = []
    seats = [SeatConfig("prime"), SeatConfig("lite"), SeatConfig("third", mind=looks_first)]
    with Host(seats=seats), Council.connect(name=NAME, sender="ada-client", key=b"k" * 32) as council:

        @council.tool(safety="READ")
        def look(folder: str) -> int:
            ran.append(f"look {folder}")
            return 2

        @council.tool(safety="READ")
        def copy(folder: str) -> str:
            ran.append(f"copy {folder}")
            return "copied"

        assert copy("/srv") == "copied"
        (token,) = council.tokens()
        decision = council.decision(token.proposal_id)
    assert ran == ["look /srv", "copy /srv"]
    assert decision is not None
    assert [(each.tool, each.outcome, each.text) for each in decision.checks or ()] == [("look", "ok", "2")]
    assert "there are 2" in {each.reason for each in decision.ballots}


def test_an_escalation_is_answered_with_the_humans_own_key() -> None:
    with Host(), Council.connect(name=NAME) as council:
        asked = council.propose("Drop the production database", risk="high", action={"tool": "x", "args": {}})
        assert not asked.final
        (escalation,) = council.escalations()
        assert council.answer(escalation.escalation_id, approve=False, reason="no").outcome == "rejected"
        assert council.escalations() == []


def test_ray_is_not_imported(state: Path) -> None:
    """Mutation: to import anything of Ray on the way."""
    code = (
        "import sys\n"
        "from council import Council\n"
        f"with Council.connect(name={NAME!r}) as council:\n"
        "    assert council.propose('Rename the variable').outcome == 'approved'\n"
        "print('ray' in sys.modules)\n"
    )
    with Host():
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False
        )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


# What no command needs that only speaks to a council, and what takes long to load.
HEAVY = {
    "alembic",
    "council.agents.prompting.builder",
    "council.core.step",
    "council.journal.history",
    "council.kinds.table",
    "council.protocol.identity.charter",
    "council.protocol.packet",
    "cryptography",
    "opentelemetry",
    "ray",
    "sqlalchemy",
}
SEEN = """
import json, sys
from council.cli.app import run
for command in json.load(sys.stdin):
    code = run(command)
    modules = sorted(sys.modules)
    from council.config.settings import checker
    from council.protocol.envelope import Escalation, Heartbeat, Turn
    kinds = [kind.__name__ for kind in (Escalation, Heartbeat, Turn) if kind.__pydantic_complete__]
    keys = checker.cache_info().currsize
    print("seen:", {"code": code, "modules": modules, "validators": kinds, "keys": keys}, file=sys.stderr)
"""


def test_a_command_loads_only_what_it_needs(state: Path) -> None:
    """Mutation: to import a table, a database or a form that another command needs; to build each key's check."""
    (state / "council.toml").write_text("quorum = 2\n", encoding="utf-8")
    what: dict[str, Any] = {"risk": "high", "action": {"tool": "x", "args": {}}}
    with Host(), Council.connect(name=NAME) as council:
        asked, other = (council.propose(f"Drop database {which}", **what).proposal_id for which in "ab")
        commands = [
            ["status"],
            ["budget"],
            ["escalations"],
            ["escalations", asked],
            ["propose", "Rename the variable"],
            ["answer", asked, "--reject"],
            ["cancel", other],
        ]
        done = subprocess.run(
            [sys.executable, "-c", SEEN],
            input=json.dumps([[*command, "--name", NAME] for command in commands]),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
            cwd=state,
        )
    told = [line.removeprefix("seen: ") for line in done.stderr.splitlines() if line.startswith("seen: ")]
    for command, seen in zip(commands, told, strict=True):  # each has also what those before it have loaded
        found = ast.literal_eval(seen)
        assert found["code"] == 0, (command, done.stderr)
        assert not HEAVY.intersection(found["modules"]), command
        assert not found["validators"], command
        assert found["keys"] <= 3, command  # quorum and name


def test_a_command_with_a_key_finds_the_proposal_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command is a client of the same name and key."""
    monkeypatch.chdir(tmp_path)
    with Host(store="memory"):
        for _ in range(2):
            assert app.run(["propose", "Rename total to sum", "--name", NAME, "--key", "k", "--json"]) == 0
    first, again = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["proposal_id"], first["position"]) == (again["proposal_id"], again["position"])


def test_an_error_comes_as_its_own_type_with_its_facts() -> None:
    with Host(), Council.connect(name=NAME) as council:
        with pytest.raises(PositionLost) as lost:
            list(council.events(after=1_000_000, follow=False))
        assert lost.value.facts["asked"] == 1_000_000
        with pytest.raises(Refused):
            council.decision("0" * 16)


def test_a_false_key_is_refused_as_everywhere() -> None:
    """Mutation: to trust whoever reaches the socket."""
    with (
        Host(),
        Council.connect(name=NAME, sender="one", key=b"k" * 32),
        pytest.raises(CouncilError) as caught,
    ):
        Council.connect(name=NAME, sender="one", key=b"x" * 32)
    assert caught.value.code == "name_taken"


# It comes and goes


def test_a_lost_connection_is_replaced_and_nothing_is_decided_twice() -> None:
    with Host() as host, Council.connect(name=NAME) as council:
        for number in range(3):
            assert council.propose(f"Number {number}").outcome == "approved"
            host.cut()
        assert council.status()["decided"] == {"approved": 3}


def test_a_client_finds_its_council_again_after_it_was_down(tmp_path: Path) -> None:
    """Mutation: to keep to the connection, or to the entry, of the host that it began with."""
    store = f"sqlite:///{tmp_path / 'journal.db'}"
    with Host(store=store) as host, Council.connect(name=NAME, call_timeout_s=HANG_S) as council:
        first = council.status()["council_id"]
        draft = council.draft("In flight")
        assert council.propose(draft).outcome == "approved"
        host.down()
        with Host(store=store):
            assert council.propose(draft).outcome == "approved"
            assert council.propose("After it").outcome == "approved"
            status = council.status()
            assert (status["council_id"], status["decided"]) == (first, {"approved": 2})


def test_another_council_of_its_name_is_told_as_such() -> None:
    with Host() as host, Council.connect(name=NAME, call_timeout_s=HANG_S) as council:
        host.down()
        with Host(), pytest.raises(CouncilDied, match="another council runs under the name"):
            council.propose("After it")


def hasty() -> Council:
    """A client whose calls soon stop repeating a question, and then have seconds to say why."""
    made = Council.connect(name=NAME, call_timeout_s=5.0)
    port: Any = handle_of(made).port
    port.config = port.config.model_copy(update={"call_timeout_s": 0.1})
    return made


def test_a_council_that_was_taken_down_is_told_as_such() -> None:
    with Host() as host, hasty() as council:
        host.down()
        with pytest.raises(CouncilClosed, match="was taken down, and is not up"):
            council.status()
        with pytest.raises(CouncilClosed, match="may still be decided"):
            council.propose("Nobody is there")


def test_a_client_can_end_the_council_and_learns_if_it_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with Host() as host:
        Council.connect(name=NAME).end()
        with pytest.raises(CouncilClosed):
            Council.connect(name=NAME)

        async def hang() -> None:
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(socket_port, "CLOSE_TIMEOUT_S", 0.05)
            patch.setattr(host.council, "close", hang)
            with pytest.raises(Unreachable, match="has not ended it within"):
                run(ended(host))


async def ended(host: Host) -> None:
    port = await SocketPort.opened(CONFIG, host.entry)
    await port.close()


def test_a_killed_host_is_told_as_a_crash() -> None:
    with Host() as host, hasty() as council:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        known.write(entry(NAME, pid=child.pid, socket=str(host.server.path)))
        child.communicate(b"\n")
        host._loop.wait(host.server.close())
        with pytest.raises(CouncilDied, match="has crashed") as caught:
            council.status()
        assert caught.value.code == "council_died"
        with pytest.raises(CouncilDied, match="has crashed"):
            Council.connect(name=NAME)


def test_a_host_that_lives_without_its_socket_is_told_with_the_reason() -> None:
    with Host() as host, hasty() as council:
        host._loop.wait(host.server.close())
        with pytest.raises(
            CouncilDied, match=r"is not found again: its process can't be reached at .*near\.sock"
        ):
            council.status()


class Ray:
    """Stands for what leads over Ray."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from council.cluster import port

        self.asked: list[CouncilConfig] = []
        monkeypatch.setattr(port, "connect", self.connect)

    def connect(self, wanted: CouncilConfig) -> Any:
        self.asked.append(wanted)
        raise Unreachable("over Ray")


def over_ray(ray: Ray, **how: Any) -> None:
    before = len(ray.asked)
    with pytest.raises(Unreachable, match="over Ray"):
        connect(how.pop("address", None), NAME, None, None, None, {}, **how)
    assert len(ray.asked) == before + 1


def test_without_a_usable_socket_it_connects_over_ray_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(socket_port, "GREETING_TIMEOUT_S", 0.05)
    ray = Ray(monkeypatch)
    path = place(NAME)

    def said() -> str:
        text = caplog.text
        caplog.clear()
        return text

    known.write(entry(NAME, pid=os.getpid()))
    over_ray(ray)
    assert "its process has no socket" in said()
    known.write(entry(NAME, pid=os.getpid(), socket=str(path)))
    over_ray(ray)
    assert "No such file" in said()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        over_ray(ray)
        assert "refused" in said()
        listening.listen()
        over_ray(ray)
        assert "no answer within 0.05 s" in said()
    path.parent.chmod(0o755)
    over_ray(ray)
    assert "is open to others (mode 755): chmod 700" in said()


@each(
    "greeting",
    [
        answer(Greeting(protocol=PROTOCOL + 1, name=NAME)),
        answer(Greeting(protocol=PROTOCOL, name="another")),
        answer("hello"),
        b"garbage",
        b"",
    ],
)
def test_what_does_not_greet_as_a_host_is_not_used(greeting: bytes) -> None:
    async def scenario() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(framed(greeting))
            writer.close()

        path = place(NAME)
        path.unlink(missing_ok=True)
        async with await asyncio.start_unix_server(greet, path):
            with pytest.raises(Unreachable):
                await SocketPort.opened(CONFIG, entry(NAME, pid=os.getpid(), socket=str(path)))

    run(scenario())


def test_a_host_that_is_stopped_keeps_no_client_from_closing() -> None:
    """Mutation: to wait until it has taken what was sent."""

    async def scenario() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(framed(answer(Greeting(protocol=PROTOCOL, name=NAME))))

        async with await asyncio.start_unix_server(greet, place(NAME)):
            found = entry(NAME, pid=os.getpid(), socket=str(place(NAME)))
            port = await SocketPort.opened(CONFIG, found)
            call = asyncio.create_task(port.exchange("session", [b"x" * 2**20] * 3))
            for _ in range(3):  # until the call is begun, and more was sent than the system takes
                await asyncio.sleep(0)
            assert port._wire._writer.transport.get_write_buffer_size()
            await port._wire.close()
            with pytest.raises(CouncilDied, match="has ended"):
                await call

    run(scenario())


def test_where_ray_leads_to_it_no_socket_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = Ray(monkeypatch)
    with Host() as host:
        over_ray(ray, address="192.0.2.1:6379")
        known.write(entry(NAME, pid=os.getpid(), machine="far"))
        over_ray(ray)
        known.write(host.entry)
        monkeypatch.setattr(socket_port, "connected_to_ray", lambda: True)
        over_ray(ray)


def test_a_host_that_is_taken_down_leaves_no_task(caplog: pytest.LogCaptureFixture) -> None:
    """Mutation: connections end with the loop, which reports each as an error."""
    with Host() as host, Council.connect(name=NAME) as council:
        council.status()
        known.forget(NAME)
        host._loop.wait(host.server.close())
        assert host.on_its_loop(lambda: (set(host.server._peers), set(host.server._serving))) == (
            set(),
            set(),
        )
    assert not caplog.records


# The socket file


def test_only_this_user_reaches_the_socket() -> None:
    with Host() as host:
        assert host.server.path == known.folder() / f"{NAME}.sock"
        assert host.server.path.stat().st_mode & 0o777 == 0o600
        assert host.server.path.parent.stat().st_mode & 0o777 == 0o700
    assert not host.server.path.exists()


def test_a_folder_that_others_may_enter_holds_no_socket() -> None:
    known.folder().chmod(0o750)
    with pytest.raises(OperatorError, match=r"is open to others \(mode 750\): chmod 700"):
        place(NAME)


def test_a_folder_of_another_user_holds_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    known.folder()
    monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    with pytest.raises(OperatorError, match="is not a folder of this user"):
        place(NAME)


def test_a_process_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(path: Path) -> None:
        with pytest.raises(OperatorError, match="is of user"):
            async with greeted(path):
                pass

    with Host() as host:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
        run(scenario(host.server.path))


def test_a_long_path_has_its_socket_in_a_short_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    short = tempfile.TemporaryDirectory(dir="/tmp")  # tmp_path may be too long itself
    request.addfinalizer(short.cleanup)
    runtime = Path(short.name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 40)))
    with Host() as host, Council.connect(name=NAME) as council:
        assert host.server.path.parent == runtime / f"council-{os.geteuid()}"
        assert council.status()["name"] == NAME
    one = place(NAME)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("longer" * 40)))
    assert place(NAME) != one  # of another state folder
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / ("long" * 40)))
    with pytest.raises(OperatorError, match="too long for a socket"):
        place(NAME)


def test_a_dead_hosts_socket_is_replaced_and_another_file_is_not() -> None:
    path = place(NAME)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.exists()
    with Host(), Council.connect(name=NAME) as council:
        assert council.status()["name"] == NAME
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(OperatorError, match="is no socket: remove it"):
        run(SocketServer(None, NAME, path).open())  # type: ignore[arg-type]
    assert path.read_text(encoding="utf-8") == "mine"


# Misuse

MISUSES: dict[str, bytes] = {
    "a frame that is too large": struct.pack(">I", 10_001) + b"x" * 10_001,
    "the largest head": b"\xff" * 4,
    "no msgpack": framed(b"\xc1\xc1\xc1"),
    "no call": framed(msgspec.msgpack.encode({"verb": "ask"})),
    "an unknown verb": call(1, "kill", b""),
    "text": b"GET / HTTP/1.1\r\n\r\n",
}


@each("name", list(MISUSES))
def test_garbage_ends_its_own_connection_alone(name: str) -> None:
    async def scenario(path: Path) -> None:
        async with greeted(path) as (good, sent, greeting):
            assert greeting == {"protocol": PROTOCOL, "name": NAME}
            async with greeted(path) as (bad, writer, _):
                writer.write(MISUSES[name])
                with contextlib.suppress(ConnectionResetError):
                    assert await bad.read() == b""
            sent.write(call(7, "ask", msgspec.msgpack.encode(AskStatus())))
            number, packed = msgspec.msgpack.decode(await received(good))
            assert (number, packed[:1]) == (7, b"+")

    with Host(Limits(call_bytes=10_000)) as host:
        run(scenario(host.server.path))


def test_a_call_that_can_not_be_read_is_answered_with_an_error() -> None:
    bad = {"join": b"\xc1", "ask": b"\xc1", "exchange": b"\xff" * 8, "leave": b"\xff"}

    async def scenario(path: Path) -> None:
        async with greeted(path) as (reader, writer, _):
            for number, (verb, payload) in enumerate(bad.items()):
                writer.write(call(number, verb, payload))
                answered, packed = msgspec.msgpack.decode(await received(reader))
                assert answered == number
                assert packed[:1] == (b"+" if verb == "leave" else b"-"), verb

    with Host() as host:
        run(scenario(host.server.path))


def test_a_peer_that_sends_half_a_call_or_nothing_is_let_go() -> None:
    """Mutation: to wait for it without a limit."""

    async def scenario(path: Path) -> None:
        for sent in (b"", b"\0\0", struct.pack(">I", 100) + b"half"):
            async with greeted(path) as (reader, writer, _):
                writer.write(sent)
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""

    with Host(Limits(idle_s=0.02, frame_s=0.02)) as host:
        run(scenario(host.server.path))


def test_a_client_that_was_idle_for_too_long_does_not_notice() -> None:
    with Host(Limits(idle_s=0.02)) as host, Council.connect(name=NAME) as council:
        council.status()
        until(lambda: host.on_its_loop(lambda: not host.server._peers))
        assert council.propose("After the pause").outcome == "approved"


def test_a_peer_that_does_not_read_is_let_go_and_others_are_served() -> None:
    """Mutation: to wait for it with its answers in memory, or without a limit."""

    async def flood(path: Path) -> None:
        async with greeted(path) as (reader, writer, _):
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(call(1, "ask", msgspec.msgpack.encode(AskStatus())))
                    await writer.drain()

    with Host(Limits(send_s=0.05)) as host, Council.connect(name=NAME) as council:
        run(flood(host.server.path))
        assert council.status()["name"] == NAME


def test_a_peer_has_no_more_than_its_calls_under_way() -> None:
    """Mutation: to read on, and to hold whatever was sent. A later call of another peer is answered meanwhile."""

    async def scenario(host: Host) -> None:
        async with greeted(host.server.path) as (_, writer, _):
            newest = host.on_its_loop(lambda: host.council._driver.announcements.feed.position)
            for number in range(10):
                writer.write(call(number, "ask", to_bytes(AskEvents(newest, 1, 3_600.0))))
            await writer.drain()

            def held() -> list[int]:
                found: list[int] = host.on_its_loop(lambda: [len(peer.calls) for peer in host.server._peers])
                return found

            await asyncio.to_thread(until, lambda: held()[0] >= 3)
            async with greeted(host.server.path) as (reader, other, _):  # all ten have arrived there by then
                other.write(call(1, "ask", to_bytes(AskStatus())))
                await received(reader)
                assert sorted(held()) == [0, 3]

    with Host(Limits(calls=3)) as host:
        run(scenario(host))


def test_no_more_connections_than_the_limit_and_the_next_is_told() -> None:
    async def scenario(path: Path) -> None:
        async with greeted(path), greeted(path):
            with pytest.raises(OperatorError, match="2 clients are connected to this council's process"):
                await SocketPort.opened(CONFIG, entry(NAME, pid=os.getpid(), socket=str(path)))

    with Host(Limits(connections=2)) as host:
        run(scenario(host.server.path))
        until(lambda: host.on_its_loop(lambda: not host.server._peers))
        with Council.connect(name=NAME) as council:
            assert council.status()["name"] == NAME
