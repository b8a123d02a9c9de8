"""Whether a Ray cluster answers, and whether it demands a token.

Ray reports a wrong token after 20 s, as a lost connection, and does not report at all that a cluster demands none. So
the cluster's head is asked first, with and without the token, by the one call that every Ray answers.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from council.protocol.errors import ConfigError, CouncilDied, OperatorError, Unreachable

# A host that is there answers a connection within a fraction of this.
PROBE_TIMEOUT_S = 5.0
# A head that keeps its state on disk is back within 9 s (measured with Ray 2.60); one that is away longer is gone.
GONE_S = 12.0
TOKEN_BYTES_MAX = 4_096
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
# What Ray's head answers whoever it lets in; its clients ask this first.
_CALL = "/ray.rpc.NodeInfoGcsService/CheckAlive"
# What becomes of what was open; from here nobody can see which of the two it is.
GONE_ON = (
    "launch it again: with a journal on disk it goes on with what was open, without one that is lost, and what is "
    "still wanted must be submitted again"
)
_HOW = f"set {TOKEN_PATH} to a file with the cluster's token (ray get-auth-token prints it on its head)"


@dataclass(frozen=True, slots=True)
class Door:
    """How a cluster's head takes a stranger: ``demands_token``, or lets in whoever reaches it."""

    address: str
    demands_token: bool
    token: str | None = field(default=None, repr=False)

    @contextlib.contextmanager
    def mode(self) -> Iterator[None]:
        """Has Ray, told to read it again, show its token to a cluster that demands one, and to no other.

        ``token`` is shown where there is one, else that of the environment, which is afterwards as it was.
        """
        told: dict[str, str | None] = {MODE: "token" if self.demands_token else "disabled"}
        if self.token is not None:
            told |= {TOKEN: self.token, TOKEN_PATH: None}
        before = {name: os.environ.get(name) for name in told}
        _set(told)
        try:
            yield
        finally:
            _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def knock(address: str, own: str | None = None) -> Door:
    """Asks the head at ``address`` (host:port), with the token ``own`` or, without it, that of the environment.

    Raises Unreachable: nobody there, no Ray, a token it wants not.
    """
    refuse_if_nobody_listens(address)
    if _lets_in(address, None):
        return Door(address, demands_token=False)
    shown, where = token() if own is None else (own, "this user's record of the council")
    if shown is None:
        raise Unreachable(f"the Ray at {address} demands a token, and there is none: {_HOW}", address=address)
    if not _lets_in(address, shown):
        raise Unreachable(
            f"the token in {where} is not that of the Ray at {address}: {_HOW}", address=address
        )
    return Door(address, demands_token=True, token=own)


def _lets_in(address: str, token: str | None) -> bool:
    import grpc  # of no use to a council without a cluster

    shown = [("authorization", f"Bearer {token}")] if token is not None else []
    try:
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            call: Any = channel.unary_unary(_CALL)
            call(b"", timeout=PROBE_TIMEOUT_S, metadata=shown)
    except grpc.RpcError as error:
        told: Any = error
        if told.code() == grpc.StatusCode.UNAUTHENTICATED:
            return False
        raise Unreachable(
            f"something listens at {address}, but it answers as no Ray does ({told.code().name}: "
            f"{told.details()}): give the address of the head, whose port is 6379 unless ray start says another",
            address=address,
        ) from error
    return True


def refuse_if_nobody_listens(address: str) -> None:
    """Ray tries an address for minutes; a form of it that can't be, or a port with nobody there, is told at once."""
    scheme, found, _ = address.partition("://")
    host, _, port = address.rpartition(":")
    if found and scheme == "ray":
        raise Unreachable(
            f"{address} is for Ray's client, over which a council can't be talked to: use host:port of the head, on "
            "one of the cluster's machines, or ray job submit",
            address=address,
        )
    if found:
        raise Unreachable(
            f"{address} is where Ray takes jobs: submit one there with ray job submit, or give host:port of the head",
            address=address,
        )
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise Unreachable(f"{address} is no address of a Ray: expected host:port, or auto", address=address)
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"no Ray answers at {address}: {error}", address=address) from error


def token() -> tuple[str | None, str]:
    """The token that Ray would show, and where it is from; found as Ray finds it. Raises OperatorError."""
    given = os.environ.get(TOKEN, "").strip()
    if given:
        return given, TOKEN
    path = token_file()
    if path is None:
        return None, ""
    try:
        with path.open("rb") as file:
            found = file.read(TOKEN_BYTES_MAX + 1)
        if len(found) > TOKEN_BYTES_MAX:
            raise OperatorError(f"{path} holds more than a token: {_HOW}")
        return found.decode("ascii").strip() or None, str(path)
    except (OSError, UnicodeError) as error:
        raise OperatorError(f"the token in {path} can't be read: {error}") from error


def token_file() -> Path | None:
    """The file that Ray would take its token from, if there is one."""
    if os.environ.get(TOKEN, "").strip():
        return None
    named = os.environ.get(TOKEN_PATH)
    if named:
        return Path(named)
    path = Path.home() / ".ray" / "auth_token"
    return path if path.exists() else None


def open_to_others(path: Path) -> str | None:
    """What to do about a token that others can read, as Ray itself leaves it (mode 644); None where all is well."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None  # whoever reads it says so
    if not mode & 0o077:
        return None
    return f"{path} holds the cluster's token and is open to others (mode {mode:o}): chmod 600 {path}"


def insecure(address: str) -> ConfigError:
    """Why a Ray that lets anybody in is not used unless told so."""
    why = (
        f"the Ray at {address} demands no token: anybody who reaches its ports can run code there, read the "
        f"council's keys and vote in its name. Start it with {MODE}=token (see deploy/SECURITY.md), or, where nobody "
        "else reaches it, say --insecure (setting ray_insecure)"
    )
    return ConfigError(why, problems=[why])


def no_node(address: str) -> Unreachable:
    """For a machine that runs none of a cluster's nodes."""
    return Unreachable(
        f"this machine is no node of the Ray at {address}, and only from one can its actors be called: run this on a "
        "node (ray exec cluster.yaml …), make this machine one (ray start --address=…), or use ray job submit",
        address=address,
    )


class Head:
    """Where a cluster's head listens. Without it a council is gone, and Ray does not say so in time."""

    def __init__(self, address: str, name: str, *, may_return: bool) -> None:
        self._address = address
        self._name = name
        self._gone_s = GONE_S if may_return else 0.0
        self._away_since_s: float | None = None

    def look(self) -> None:
        """Raises CouncilDied once nobody has listened there for GONE_S, Unreachable where the network fails.

        A head that does not come back, as that of a local Ray, is gone at once.
        """
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
            self._away_since_s = None
        except OSError as error:
            now_s = time.monotonic()
            self._away_since_s = now_s if self._away_since_s is None else self._away_since_s
            if now_s - self._away_since_s < self._gone_s:
                return
            what = f"the Ray of council {self._name} at {self._address} does not answer ({error})"
            if not isinstance(error, ConnectionRefusedError):
                raise Unreachable(what, name=self._name, address=self._address) from error
            raise CouncilDied(
                f"{what}: it has crashed, and the council with it; {GONE_ON}",
                name=self._name,
                open_ids=[],
            ) from error


def same_place(one: str, other: str, own: str) -> bool:
    """Whether two addresses, ``host:port``, lead to one Ray; this machine's names are all one host, ``own`` too."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    return port == other_port and bool(_numbers(host, own) & _numbers(other_host, own))


def _numbers(host: str, own: str) -> set[str]:
    """A host's IP addresses; where one of them is this machine's, the word for that instead."""
    host = host.strip("[]")
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host}  # a name that leads nowhere is that of another cluster, unless it is the very same
    return {"here"} if any(each == own or ipaddress.ip_address(each).is_loopback for each in found) else found
