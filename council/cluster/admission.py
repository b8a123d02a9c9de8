"""Checks that a Ray cluster answers, and whether it demands a token.

Ray reports a wrong token only after 20 s, as a lost connection. It does not report that a cluster demands no token.
So the cluster's head is asked first, with and without the token, by the one call that every Ray answers.
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

# A live host answers a connection within a fraction of this.
PROBE_TIMEOUT_S = 5.0
# A head that keeps its state on disk is back within 9 s (measured with Ray 2.60). After this time it counts as gone.
GONE_S = 12.0
TOKEN_BYTES_MAX = 4_096
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
# The method that Ray's head answers to every admitted client; Ray's own clients call it first.
_CALL = "/ray.rpc.NodeInfoGcsService/CheckAlive"
# The fate of open proposals. A client can't know which of the two applies.
GONE_ON = (
    "launch it again: with a journal on disk it goes on with what was open, without one that is lost, and what is "
    "still wanted must be submitted again"
)
_HOW = f"set {TOKEN_PATH} to a file with the cluster's token (ray get-auth-token prints it on its head)"


@dataclass(frozen=True, slots=True)
class AuthMode:
    """Whether a cluster's head demands a token (``demands_token``) or admits everyone."""

    address: str
    demands_token: bool
    token: str | None = field(default=None, repr=False)

    @contextlib.contextmanager
    def mode(self) -> Iterator[None]:
        """Makes Ray read its token again, and show it only to a cluster that demands one.

        ``token`` is used if it is set, otherwise the environment's. The environment is restored afterwards.
        """
        variables: dict[str, str | None] = {MODE: "token" if self.demands_token else "disabled"}
        if self.token is not None:
            variables |= {TOKEN: self.token, TOKEN_PATH: None}
        with environment(variables):
            yield


@contextlib.contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Sets environment variables, and restores them afterwards. None removes one."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
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


def probe_auth(address: str, own: str | None = None) -> AuthMode:
    """Asks the head at ``address`` (host:port), with the token ``own`` or, without it, the environment's.

    Raises Unreachable if nobody answers, if it is not Ray, or if it refuses the token.
    """
    refuse_if_nobody_listens(address)
    if _lets_in(address, None):
        return AuthMode(address, demands_token=False)
    shown, where = token() if own is None else (own, "this user's record of the council")
    if shown is None:
        raise Unreachable(f"the Ray at {address} demands a token, and there is none: {_HOW}", address=address)
    if not _lets_in(address, shown):
        raise Unreachable(
            f"the token in {where} is not that of the Ray at {address}: {_HOW}", address=address
        )
    return AuthMode(address, demands_token=True, token=own)


def _lets_in(address: str, token: str | None) -> bool:
    import grpc  # not needed by a council without a cluster

    shown = [("authorization", f"Bearer {token}")] if token is not None else []
    try:
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            call: Any = channel.unary_unary(_CALL)
            call(b"", timeout=PROBE_TIMEOUT_S, metadata=shown)
    except grpc.RpcError as error:
        call_error: Any = error
        if call_error.code() == grpc.StatusCode.UNAUTHENTICATED:
            return False
        raise Unreachable(
            f"something listens at {address}, but it does not answer as Ray does ({call_error.code().name}: "
            f"{call_error.details()}): give the address of the head; its port is 6379 unless ray start says another",
            address=address,
        ) from error
    return True


def refuse_if_nobody_listens(address: str) -> None:
    """Raises at once for an invalid address or a closed port, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise Unreachable(
            f"{address} is not the address of a Ray's head: expected host:port, or auto. A council can't be reached "
            "through Ray's client (ray://) or its jobs' server (http://): run this on one of the cluster's machines, "
            "or use ray job submit",
            address=address,
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), PROBE_TIMEOUT_S).close()
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"no Ray answers at {address}: {error}", address=address) from error


def token() -> tuple[str | None, str]:
    """The token that Ray would show, and its source; found as Ray finds it. Raises OperatorError."""
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
    """The file from which Ray would read its token, if there is one."""
    if os.environ.get(TOKEN, "").strip():
        return None
    named = os.environ.get(TOKEN_PATH)
    if named:
        return Path(named)
    path = Path.home() / ".ray" / "auth_token"
    return path if path.exists() else None


def open_to_others(path: Path) -> str | None:
    """The advice if others can read the token, as Ray itself leaves it (mode 644); None if they can't."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None  # reading it reports the error
    if not mode & 0o077:
        return None
    return f"{path} holds the cluster's token and is open to others (mode {mode:o}): chmod 600 {path}"


def insecure(address: str) -> ConfigError:
    """The error for a Ray that admits everyone, which is used only if the settings allow it."""
    why = (
        f"the Ray at {address} demands no token: anyone who reaches its ports can run code there, read the council's "
        f"keys and vote in its name. Start it with {MODE}=token (see deploy/SECURITY.md) or, if no one else can "
        "reach it, use --insecure (setting ray_insecure)"
    )
    return ConfigError(why, problems=[why])


def no_node(address: str) -> Unreachable:
    """The error for a machine that runs none of a cluster's nodes."""
    return Unreachable(
        f"this machine is not a node of the Ray at {address}, and actors can be called only from a node: run this on "
        "one (ray exec cluster.yaml …), make this machine one (ray start --address=…), or use ray job submit",
        address=address,
    )


class ClusterHead:
    """The address of a cluster's head. Without a head a council is gone, and Ray reports that too late."""

    def __init__(self, address: str, name: str, *, may_return: bool) -> None:
        self._address = address
        self._name = name
        self._gone_s = GONE_S if may_return else 0.0
        self._away_since_s: float | None = None

    def check(self) -> None:
        """Raises CouncilDied if nobody has listened there for GONE_S, and Unreachable if the network fails.

        A head that does not come back, such as that of a local Ray, counts as gone at once.
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
            what = f"the Ray of council {self._name!r} at {self._address} does not answer ({error})"
            if not isinstance(error, ConnectionRefusedError):
                raise Unreachable(what, name=self._name, address=self._address) from error
            raise CouncilDied(
                f"{what}: it has crashed, and the council with it; {GONE_ON}",
                name=self._name,
                open_ids=[],
            ) from error


def same_place(one: str, other: str, own: str) -> bool:
    """Whether two addresses, ``host:port``, are one Ray; all names of this machine, and ``own``, are one host."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    return port == other_port and bool(_numbers(host, own) & _numbers(other_host, own))


def _numbers(host: str, own: str) -> set[str]:
    """A host's IP addresses; if one of them is this machine's, a common word for that instead."""
    host = host.strip("[]")
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return {host}  # a name without address is another cluster's, unless both names are equal
    return {"here"} if any(each == own or ipaddress.ip_address(each).is_loopback for each in found) else found
