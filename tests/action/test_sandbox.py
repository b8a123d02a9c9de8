"""What a sandboxed program can reach: probes that try to get out, at each level that works here."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from council.action import confine, sandbox
from council.action.sandbox import Limits, SandboxMissing, run_sandboxed
from council.action.tool import ToolResult
from tests.action.probes import BOUND, HARMLESS, PRELUDE
from tests.patience import HANG_S, until

NOBODY = 65_534
MARKER = "canary-5f1e"
SHM_KEY = 0x5F1E5F1E
PYTHON = next(
    (path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.path.exists(path)), sys.executable
)
LIMITS = Limits(
    timeout_s=HANG_S, output_bytes_max=2**16, memory_bytes_max=2**29, processes_max=24, file_bytes_max=2**24
)
AS_ROOT = os.geteuid() == 0
# As root, a folder of another user: the program then runs as that user.
KINDS = ("bubblewrap", "landlock", *(["bubblewrap as the folder's owner"] if AS_ROOT else []))
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")


class Outside:
    """What there is on the host, for probes to reach, and a folder that they are given."""

    def __init__(self, base: Path, kind: str) -> None:
        self.level = kind.split()[0]
        self.folder = base / "work"
        self._open: list[Path] = []
        outside = base / "outside"
        self.folder.mkdir()
        outside.mkdir()
        (outside / "secret").write_text(MARKER)
        (outside / "doomed").touch()
        (outside / "long").write_text(MARKER)
        (self.folder / "link").symlink_to(outside / "secret")
        (self.folder / "link_to_folder").symlink_to(outside)
        (self.folder / "up").symlink_to("..")
        if AS_ROOT and kind != "bubblewrap":
            for path in (outside, *outside.iterdir(), self.folder):  # no rights of files are to hold a probe
                os.chown(path, NOBODY, NOBODY)
            self._open = [each for each in (base, *base.parents) if each.stat().st_mode & 0o777 == 0o700]
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.setblocking(False)
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(f"\0council-{os.getpid()}")
        self.abstract.listen()
        self.named = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(outside)  # a socket's address is short
        self.named.bind("s")
        os.chdir(here)
        self.named.listen()
        as_nobody = ["setpriv", "--reuid", str(NOBODY), "--"] if AS_ROOT and kind != "bubblewrap" else []
        self.victim = subprocess.Popen(
            [*as_nobody, "sleep", "3000"], env={"PATH": os.environ["PATH"], "S": MARKER}
        )
        self.descriptor = os.open(outside / "secret", os.O_RDONLY)
        os.set_inheritable(self.descriptor, True)
        self.shm = Path("/dev/shm") / f"council-{os.getpid()}"
        self.shm.write_text(MARKER)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._segment = self._libc.shmget(SHM_KEY, 16, 0o1666)
        self.facts = {
            "secret": str(outside / "secret"),
            "outside": str(outside),
            "tcp": self.tcp.getsockname()[1],
            "udp": self.udp.getsockname()[1],
            "abstract": f"council-{os.getpid()}",
            "path": str(outside / "s"),
            "marker": MARKER,
            "executor": os.getpid(),
            "victim": self.victim.pid,
            "descriptor": self.descriptor,
            "shm": SHM_KEY,
            "shm_name": self.shm.name,
            "processes_max": LIMITS.processes_max,
        }

    def let_in(self) -> None:
        """Opens pytest's own folders, which the folder's owner must pass through; another pytest closes one."""
        for each in self._open:
            each.chmod(0o711)

    def run(self, code: str, level: str | None = None, **limits: Any) -> ToolResult:
        self.let_in()
        argv = [PYTHON, "-I", "-S", "-c", PRELUDE + code, json.dumps(self.facts)]
        return run_sandboxed(
            argv,
            cwd=self.folder,
            writable=[self.folder],
            readable=[] if PYTHON.startswith("/usr") else [sys.base_prefix],
            limits=replace(LIMITS, **limits),
            sandbox=level or self.level,  # type: ignore[arg-type]
        )

    def close(self) -> None:
        for each in (self.tcp, self.udp, self.abstract, self.named):
            each.close()
        os.close(self.descriptor)
        self.shm.unlink()
        self._libc.shmctl(self._segment, 0, None)
        self.victim.kill()
        self.victim.wait()


def why_not(level: str) -> str:
    """Why a level is not tried here; empty if it is."""
    if level == "landlock":
        abi = confine.landlock_abi()
        return (
            "" if abi >= confine.ABI_LEAST else f"the kernel has Landlock {abi}, expected {confine.ABI_LEAST}"
        )
    if shutil.which("bwrap") is None and not os.environ.get(
        "CI"
    ):  # in CI there must be one: the test then fails
        return "no bubblewrap here: apt-get install bubblewrap to have the sandbox tested"
    return ""


@pytest.fixture(params=KINDS)
def outside(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Outside]:
    if why := why_not(request.param.split()[0]):
        pytest.skip(why)
    monkeypatch.setenv("SECRET_OF_THE_HOST", MARKER)
    made = Outside(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("name", [*HARMLESS, *BOUND])
def test_a_probe_is_held(name: str, outside: Outside) -> None:
    expected = "held"
    if outside.level == "landlock" and name == "signal a process of the host":
        name = "kill a process of the host"
    code = {**HARMLESS, **BOUND, "kill a process of the host": "attempt(lambda: os.kill(host['victim'], 9))"}[
        name
    ]
    found = outside.run(code)
    assert found.output.split()[:1] == [expected], found
    assert found.sandbox.split(":")[0] == outside.level
    assert outside.victim.poll() is None
    assert (outside.folder.parent / "outside" / "secret").read_text() == MARKER


@pytest.mark.parametrize("name", HARMLESS)
def test_the_probe_gets_out_without_a_sandbox(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_everywhere = {
        "find secrets in the environment": "the environment is cleared at every level",
        "use an inherited descriptor": "descriptors are closed at every level",
        "make a user namespace": "a kernel may forbid it to everybody",
        "use io_uring": "a kernel may forbid it to everybody",
        "read memory of the host's process": "a kernel may forbid it to everybody",
    }
    monkeypatch.setenv("SECRET_OF_THE_HOST", MARKER)
    made = Outside(tmp_path, "bubblewrap")
    try:
        found = made.run(HARMLESS[name], "none")
    finally:
        made.close()
    assert found.sandbox == "none"
    if name not in held_everywhere:
        assert found.output.split()[:1] == ["escaped"], found


def test_no_datagram_leaves(outside: Outside) -> None:
    code = """
for _ in range(3):
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', host['udp']))
    except OSError as error:
        print(error)
"""
    assert outside.run(code).ok
    with pytest.raises(BlockingIOError):
        outside.udp.recv(10)
    assert outside.run(code, "none").ok
    assert outside.udp.recv(10) == b"x"


def test_a_program_works_in_its_folder_and_has_a_private_tmp(outside: Outside) -> None:
    code = """
open('made', 'w').write('kept')
import tempfile
path = tempfile.mkstemp()[1]
open(path, 'w').write('gone')
print(os.getcwd(), path, sorted(os.environ))
"""
    found = outside.run(code)
    assert found.ok, found
    cwd, path, names = found.output.split(maxsplit=2)
    assert cwd == str(outside.folder)
    assert (outside.folder / "made").read_text() == "kept"
    assert not Path(path).exists()
    assert {"SECRET_OF_THE_HOST"}.isdisjoint(json.loads(names.replace("'", '"')))
    assert found.exit_code == 0
    assert not found.truncated


def test_a_folder_that_is_not_writable_is_read_only(outside: Outside) -> None:
    (outside.folder / "there").write_text("as it was")
    if AS_ROOT:
        os.chown(outside.folder / "there", os.stat(outside.folder).st_uid, -1)
    outside.let_in()
    found = run_sandboxed(
        ["sh", "-c", "cat there; echo x > there"],
        cwd=outside.folder,
        limits=LIMITS,
        sandbox=outside.level,  # type: ignore[arg-type]
    )
    assert (found.ok, found.output) == (False, "as it was")
    assert (outside.folder / "there").read_text() == "as it was"


def test_huge_output_is_cut_and_the_program_goes_on(outside: Outside) -> None:
    found = outside.run("for _ in range(3000): print('x' * 10_000)\nsys.stderr.write('y' * 10)")
    assert found.ok
    assert found.truncated
    assert found.output == ("x" * 10_000 + "\n") * 6 + "x" * (2**16 - 60_006)
    assert found.error == "y" * 10


def test_output_of_just_the_limit_is_whole(outside: Outside) -> None:
    found = outside.run("sys.stdout.write('x' * 2**16)")
    assert (len(found.output), found.truncated) == (2**16, False)


def test_endless_output_ends_at_the_time_out(outside: Outside) -> None:
    found = outside.run("while True: print('x' * 10_000)", timeout_s=1.0)
    assert (found.ok, found.exit_code, found.truncated) == (False, None, True)
    assert len(found.output) == 2**16
    assert found.error.startswith("time-out: it did not end within 1 s, so it was killed")


def test_a_program_that_ignores_sigterm_ends_at_the_time_out(outside: Outside) -> None:
    code = "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(3000)"
    found = outside.run(code, timeout_s=1.0)
    assert (found.ok, found.exit_code) == (False, None)
    assert nothing_runs(str(outside.folder))


def test_a_daemon_does_not_survive(outside: Outside) -> None:
    code = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import time
        open('daemon', 'w').write('on')
        time.sleep(3000)
    os._exit(0)
while not os.path.exists('daemon') or not open('daemon').read():
    pass
"""
    found = outside.run(code)
    assert found.ok, found
    assert nothing_runs(str(outside.folder))


def test_a_cpu_hog_ends_at_its_limit(outside: Outside) -> None:
    found = outside.run("while True: pass", cpu_s=1)
    assert found.exit_code in (128 + signal.SIGXCPU, 128 + signal.SIGKILL), found
    assert not found.ok


def test_bombs_of_processes_end(outside: Outside) -> None:
    """Children that fork go on forking, 300 times at most in all, and all of them are gone at the end."""
    code = """
left = 300
while left:
    left -= 1
    try:
        os.fork()
    except OSError:
        break
    left //= 2
import time
time.sleep(3000)
"""
    found = outside.run(code, timeout_s=1.0)
    assert found.exit_code is None
    assert nothing_runs(str(outside.folder))


def test_an_exit_code_is_the_programs(outside: Outside) -> None:
    found = outside.run("sys.stderr.write('why'); sys.exit(7)")
    assert (found.ok, found.exit_code, found.error) == (False, 7, "exit code 7\nwhy")
    found = outside.run("import resource; os.kill(os.getpid(), 11)")
    assert (found.exit_code, found.error.strip()) == (139, "exit code 139: ended by SIGSEGV")


def test_a_program_that_is_not_there_is_a_failed_run(outside: Outside) -> None:
    outside.let_in()
    found = run_sandboxed(["no-such-program"], cwd=outside.folder, limits=LIMITS, sandbox=outside.level)  # type: ignore[arg-type]
    assert not found.ok
    assert "No such file" in found.error


def test_without_a_sandbox_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_why_not", lambda level, user: f"{level} was taken away")
    with pytest.raises(SandboxMissing) as caught:
        run_sandboxed(["touch", "made"], cwd=tmp_path, writable=[tmp_path])
    assert "bubblewrap was taken away; landlock: landlock was taken away" in str(caught.value)
    assert 'sandbox = "none"' in str(caught.value)
    assert not (tmp_path / "made").exists()
    found = run_sandboxed(["touch", "made"], cwd=tmp_path, sandbox="none")
    assert (found.ok, found.sandbox) == (True, "none")


def test_landlock_refuses_programs_of_root() -> None:
    if not AS_ROOT or why_not("landlock"):
        pytest.skip("for root, on a kernel with Landlock")
    with pytest.raises(SandboxMissing, match="can't hold a program of root"):
        sandbox.level_for(None, "landlock")


def test_a_machine_without_numbers_of_calls_has_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(SandboxMissing, match="the machine is s390x, known are x86_64, aarch64"):
        sandbox.level_for((NOBODY, 1), "bubblewrap")


def nothing_runs(folder: str) -> bool:
    """Waits until no process has the folder in its arguments, or has it as its working folder."""

    def runs() -> list[str]:
        found = []
        for each in filter(str.isdecimal, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{each}/cwd").startswith(folder):
                    found.append(each)
            except OSError:
                continue
        return found

    until(lambda: not runs(), "a process outlived its run")
    return True


def test_every_descriptor_is_closed_and_by_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is closed twice may be another thread's by then, such as that of the journal."""
    closed: list[bool] = []

    class Noted(selectors.EpollSelector):
        """It is opened after the ends of pipes were closed, so it has the number of one of them."""

        def close(self) -> None:
            os.fstat(self.fileno())  # it raises where another has closed the number
            super().close()
            closed.append(True)

    run_sandboxed(["true"], cwd=tmp_path)  # the trial, once
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(selectors, "DefaultSelector", Noted)
    assert run_sandboxed(["true"], cwd=tmp_path).ok
    assert (closed, os.listdir("/proc/self/fd")) == ([True], before)
