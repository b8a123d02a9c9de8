"""A Ray cluster of a test's own on this machine, started and ended by ``deploy/ray-node``, as users' are."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent.parent
SCRIPT = ROOT / "deploy/ray-node"


def free_port() -> int:
    """One that neither Ray's workers (10002-19999) nor the system (32768 and above) take by themselves meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


class Nodes:
    """A head, and nodes that join it; each has a folder of its own with the cluster's token."""

    def __init__(self, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cc-", dir="/tmp"))  # sockets need a short path
        self.port, self.dashboard_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.secret = secrets.token_hex(32)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._homes: list[Path] = []
        try:
            self.start("head", *options, f"--temp-dir={self.folder / 'ray'}")
        except BaseException:
            self.end()
            raise

    @property
    def token(self) -> Path:
        """The file with the cluster's token."""
        return self._homes[0] / "ray.token"

    def start(self, *what: str, python: str = sys.executable) -> Path:
        """One more node: ``head``, or options of a worker, whose Ray runs in ``python``. Its folder."""
        head = what[:1] == ("head",)
        home = self.folder / f"n{len(self._homes)}"
        (home / "bin").mkdir(parents=True)
        ray = home / "bin/ray"
        ray.write_text(f'#!/bin/sh\nexec {python} -m ray.scripts.scripts "$@"\n')
        ray.chmod(0o700)
        (home / "ray.token").write_text(self.secret)
        self._homes.append(home)
        place = ["head"] if head else ["worker", "127.0.0.1"]
        more = ["--num-cpus=2", "--object-store-memory=80000000", *what[head:]]
        # Ray's own is the same for all nodes, and of those on one machine the second to have it runs no jobs.
        more.append(f"--dashboard-agent-listen-port={free_port()}")
        more += [f"--dashboard-port={self.dashboard_port}"] if head else []
        self.tell(home, *place, "--port", str(self.port), options=more)
        return home

    def tell(self, home: Path, *arguments: str, options: list[str] | None = None) -> None:
        """Runs ``ray-node`` for one node."""
        command = [str(SCRIPT), *arguments, "--home", str(home), *(["--", *options] if options else [])]
        env = {**self.env, "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def running(self) -> list[Path]:
        """The folders of the nodes that were started and not ended."""
        return [home for home in self._homes if (home / "ray-node.pid").exists()]

    def pid(self, home: Path) -> int:
        """The process that holds a node."""
        return int((home / "ray-node.pid").read_text().split()[0])

    def end_all(self) -> None:
        """Ends the nodes, the head last; another head may be started in its place."""
        for home in reversed(self._homes):
            self.tell(home, "end")

    def end(self) -> None:
        """Ends the nodes and removes what they left."""
        self.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)
