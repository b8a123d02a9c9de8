"""A Ray cluster of several nodes on this machine, whose nodes are killed, frozen and cut off. Knows no council.

Each node is a `ray start` of its own; where the machine allows network namespaces, with a network and an address of
its own. Nodes are ended by the ids of their processes alone, and reaped, for the workers of a raylet that is dead but
not waited for live on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray

from tests.patience import HANG_S
from tests.ray.nodes import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
LOOK_S = 0.05
PR_SET_CHILD_SUBREAPER = 36
# A node that does not answer is dead after about 2 s, as deploy/ray-node has it after 3 to 9.
FAST = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "200",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_timeout_ms_task_wait_for_death_info": "50",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
}


def namespaces_allowed() -> bool:
    """Whether nodes can have networks of their own here."""
    name = f"probe-{os.getpid()}"
    if shutil.which("ip") is None or _ip("netns", "add", name, check=False) != 0:
        return False
    allowed = _ip("link", "add", "name", name[:15], "type", "bridge", check=False) == 0
    _ip("link", "del", name[:15], check=False)
    _ip("netns", "del", name, check=False)
    return allowed


def _ip(*arguments: str, inside: str | None = None, check: bool = True) -> int:
    command = ["ip", *(["-n", inside] if inside else []), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.returncode


@dataclass
class Machine:
    """One node of the cluster: the process that holds it, and where it is reached."""

    name: str
    holder: subprocess.Popen[bytes]
    address: str
    node_id: str = ""
    known: list[psutil.Process] = field(default_factory=list)

    def processes(self) -> list[psutil.Process]:
        """All of its processes that live, those that it has lost sight of too."""
        with contextlib.suppress(psutil.Error):
            holder = psutil.Process(self.holder.pid)
            self.known = list(dict.fromkeys([holder, *holder.children(recursive=True), *self.known]))
        for each in list(self.known):
            with contextlib.suppress(psutil.Error):
                self.known += [new for new in each.children(recursive=True) if new not in self.known]
        return [each for each in self.known if _lives(each)]

    def signal(self, number: int) -> None:
        """To all of its processes at once, as when the machine loses power, or stands still."""
        for each in self.processes():
            with contextlib.suppress(psutil.Error):
                each.send_signal(number)

    def kill(self) -> None:
        ends_s = time.monotonic() + HANG_S
        while self.processes() and time.monotonic() < ends_s:
            self.signal(signal.SIGKILL)
            self.reap()
            time.sleep(LOOK_S)
        assert not self.processes(), f"{self.name}: {self.processes()} can't be killed"
        self.reap()

    def reap(self) -> None:
        self.holder.poll()
        for each in self.known:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(each.pid, os.WNOHANG)

    def gone_within(self, seconds: float) -> bool:
        """Whether all of its processes end by themselves within so long."""
        ends_s = time.monotonic() + seconds
        while self.processes():
            self.reap()
            if time.monotonic() > ends_s:
                return False
            time.sleep(LOOK_S)
        return True


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


class Machines:
    """A head, on which nothing but clients and perhaps a coordinator runs, and workers with room for seats."""

    def __init__(self, *, networks: bool = False, **environment: str) -> None:
        # What a node leaves behind when its own parents are killed comes to this process, which reaps it.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        self.folder = Path(tempfile.mkdtemp(prefix="cn-", dir="/tmp"))  # sockets need a short path
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        self._environment |= {**FAST, "PYTHONPATH": str(ROOT), **environment}
        self._mark = secrets.token_hex(2)
        self._bridge = f"cn{self._mark}" if networks else None
        self._net = f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(200)}"
        self.port = free_port()
        self._made = 0
        self.workers: list[Machine] = []
        self._left: list[Machine] = []
        if self._bridge:
            # An address of its own: else it takes one of its ports', and another as these come and go.
            own = f"02:00:00:00:{self._mark[:2]}:{self._mark[2:]}"
            _ip("link", "add", "name", self._bridge, "address", own, "type", "bridge")
            _ip("addr", "add", f"{self._net}.1/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
        self.host = f"{self._net}.1" if networks else "127.0.0.1"
        self.address = f"{self.host}:{self.port}"
        try:
            self.start_head()
        except BaseException:
            self.end()
            raise

    def start_head(self) -> None:
        """The head, also one in place of another that was lost."""
        log = self.folder / "head.log"
        log.unlink(missing_ok=True)  # an earlier one's says that it started
        place = [
            "--head",
            f"--port={self.port}",
            "--include-dashboard=false",
            f"--temp-dir={self.folder}/ray",
        ]
        self.head = self._start("head", self.host, place, [])
        ends_s = time.monotonic() + HANG_S
        while "Ray runtime started" not in log.read_text(errors="replace"):
            assert self.head.holder.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < ends_s, "the head does not start"
            time.sleep(LOOK_S)

    def add(self) -> Machine:
        """One more worker, once the cluster knows it."""
        self._made += 1
        name, address, inside = f"w{self._made}", self.host, []
        if self._bridge:
            address = f"{self._net}.{self._made + 1}"
            inside = ["nsenter", f"--net=/run/netns/{self._space(name)}"]
            self._connect(name, address)
        more = [f"--address={self.address}", f"--labels=machine={name}", '--resources={"room": 16}']
        machine = self._start(name, address, more, inside)
        self.workers.append(machine)
        self._wait_for(machine)
        return machine

    def _start(self, name: str, address: str, more: list[str], inside: list[str]) -> Machine:
        command = [*inside, sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *more]
        command += [f"--node-ip-address={address}", "--num-cpus=2", "--object-store-memory=80000000"]
        command += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
        with (self.folder / f"{name}.log").open("ab") as log:
            holder = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        return Machine(name, holder, address)

    def _wait_for(self, machine: Machine) -> None:
        ends_s = time.monotonic() + HANG_S
        while not machine.node_id:
            for node in nodes():
                if node["Alive"] and node["Labels"].get("machine") == machine.name:
                    machine.node_id = node["NodeID"]
            log = self.folder / f"{machine.name}.log"
            assert machine.holder.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < ends_s, f"{machine.name} does not join"
            time.sleep(LOOK_S)

    def lose(self, machine: Machine) -> None:
        """It is no worker of ours any more; what still lives of it ends with the cluster."""
        self.workers.remove(machine)
        self._left.append(machine)

    # Networks

    def _space(self, name: str) -> str:
        return f"cn{self._mark}-{name}"

    def _connect(self, name: str, address: str) -> None:
        space, outer = self._space(name), f"v{self._mark}{name}"
        _ip("netns", "add", space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outer, "master", str(self._bridge))
        _ip("link", "set", outer, "up")
        for words in (("addr", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            _ip(*words, inside=space)
        _ip("link", "set", "lo", "up", inside=space)
        _ip("route", "add", "default", "via", self.host, inside=space)  # Ray asks it for a node's own address

    def cut_off(self, machine: Machine) -> None:
        """Nothing reaches it from the others, nor the other way."""
        _ip("link", "set", f"v{self._mark}{machine.name}", "down")

    def connect_again(self, machine: Machine) -> None:
        _ip("link", "set", f"v{self._mark}{machine.name}", "up")

    def keep_apart(self, one: Machine, other: Machine, *, apart: bool = True) -> None:
        """Nothing of the one reaches the other, nor the other way; the head, and further workers, reach both."""
        for each in (one, other):
            # Ports of a bridge that are isolated are so from one another alone.
            how = "on" if apart else "off"
            _ip("link", "set", f"v{self._mark}{each.name}", "type", "bridge_slave", "isolated", how)

    def end(self) -> None:
        """Ends every process that was started here, and takes the networks away."""
        for machine in [*self.workers, *self._left, self.head]:
            machine.signal(signal.SIGCONT)
            machine.kill()
        if self._bridge:
            for number in range(1, self._made + 1):
                _ip("netns", "del", self._space(f"w{number}"), check=False)
            _ip("link", "del", self._bridge, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def nodes() -> list[dict[str, Any]]:
    found: Any = ray.nodes
    return list(found())


@contextlib.contextmanager
def machines(workers: int = 2, *, networks: bool = False, **environment: str) -> Iterator[Machines]:
    """A cluster with so many workers, to which this process is connected."""
    found = Machines(networks=networks, **environment)
    try:
        from council.cluster import connection

        release = connection.ensure_ray(found.address)
        try:
            for _ in range(workers):  # one by one: of two that begin at once, one may not be let in
                found.add()
            yield found
        finally:
            if release is not None:
                release()
    finally:
        found.end()
