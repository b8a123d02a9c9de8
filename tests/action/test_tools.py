"""The built-in tools: what they refuse, what they do, and how it is taken back."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from council.action.builtin import builtin_tools
from council.action.command import Command
from council.action.files import FilePatch, FileWrite
from council.action.git_commit import GitCommit
from council.action.http_request import HttpRequest
from council.action.sandbox import Limits, SandboxMissing
from council.action.tool import ArgumentsRefused, Tool
from council.config.settings import ActionConfig
from council.protocol.errors import CallerError, ConfigError
from tests.patience import HANG_S


@pytest.mark.parametrize(
    ("args", "argument"),
    [
        ({}, "argv"),
        ({"argv": "ls"}, "argv"),
        ({"argv": []}, "argv"),
        ({"argv": ["a\0b"]}, "argv"),
        ({"argv": ["x" * 40_000]}, "argv"),
        ({"argv": ["ls"], "cwd": "/etc"}, "cwd"),
        ({"argv": ["ls"], "cwd": "a/../.."}, "cwd"),
        ({"argv": ["ls"], "cwd": "out"}, "cwd"),
        ({"argv": ["ls"], "shell": True}, "shell"),
    ],
)
def test_a_command_outside_its_schema_is_refused(tmp_path: Path, args: Any, argument: str) -> None:
    (tmp_path / "out").symlink_to("/etc")
    with pytest.raises(ArgumentsRefused) as caught:
        Command(tmp_path).check(args)
    assert caught.value.argument == argument
    assert "found" in str(caught.value)
    assert "expected" in str(caught.value)


def test_a_command_runs_by_no_shell(tmp_path: Path) -> None:
    tool: Tool = Command(tmp_path, sandbox="none")
    args = {"argv": ["echo", "$HOME; touch made"]}
    tool.check(args)
    found = tool.run(args, timeout_s=HANG_S)
    assert (found.ok, found.output, found.sandbox) == (True, "$HOME; touch made\n", "none")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "", "out/x", "x\0y", 3, "."])
def test_a_path_out_of_the_root_is_refused(tmp_path: Path, path: Any) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    with pytest.raises(ArgumentsRefused):
        FileWrite(root).check({"path": path, "content": "x"})


def test_a_file_is_written_and_taken_back(tmp_path: Path) -> None:
    tool = FileWrite(tmp_path)
    for old in (b"\xff old", None):
        if old is None:
            (tmp_path / "x").unlink()
        else:
            (tmp_path / "x").write_bytes(old)
            (tmp_path / "x").chmod(0o750)
        args = {"path": "x", "content": "new\n"}
        found = tool.run(args, timeout_s=1)
        assert found.ok, found
        assert (tmp_path / "x").read_text() == "new\n"
        assert tool.verify(args, found) == ""
        tool.revert(args, found)
        assert ((tmp_path / "x").read_bytes() if old else (tmp_path / "x").exists() or None) == old
    assert tool.resources(args) == (f"file:{tmp_path / 'x'}",)


def test_missing_folders_are_made_below_the_root(tmp_path: Path) -> None:
    tool = FileWrite(tmp_path)
    args = {"path": "a/b/x", "content": "new"}
    found = tool.run(args, timeout_s=1)
    assert found.ok, found
    assert (tmp_path / "a/b/x").read_text() == "new"
    assert tool.verify(args, found) == ""
    tool.revert(args, found)
    assert not (tmp_path / "a/b/x").exists()


def test_a_file_in_the_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    found = FileWrite(tmp_path).run({"path": "a/x", "content": "new"}, timeout_s=1)
    assert "nothing was written: 'a' in the path 'a/x' is not a folder" in found.error


def test_a_replaced_file_runs_as_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "x").chmod(0o4755)
    assert FileWrite(tmp_path).run({"path": "x", "content": "new"}, timeout_s=1).ok
    assert (tmp_path / "x").stat().st_mode & 0o7777 == 0o755


def test_a_link_that_was_changed_since_the_check_leads_a_command_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret").write_text("theirs")
    (root / "a").symlink_to(outside)
    monkeypatch.setattr("council.action.command.under", lambda *_: root / "a")
    try:
        found = Command(root).run({"argv": ["cat", "secret"]}, timeout_s=HANG_S)
    except SandboxMissing:
        pytest.skip("no sandbox here")
    assert not found.ok
    assert "theirs" not in found.output


def test_a_file_that_was_changed_since_is_not_taken_back(tmp_path: Path) -> None:
    tool = FileWrite(tmp_path)
    args = {"path": "x", "content": "new"}
    found = tool.run(args, timeout_s=1)
    (tmp_path / "x").write_text("another's")
    assert tool.verify(args, found) == "not as it was written: x"
    with pytest.raises(CallerError, match="not reverted"):
        tool.revert(args, found)
    assert (tmp_path / "x").read_text() == "another's"


def test_a_link_made_after_the_check_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "x").write_text("theirs")
    tool = FileWrite(root)
    tool.check({"path": "a/x", "content": "mine"})
    (root / "a").rmdir()
    (root / "a").symlink_to(outside)
    found = tool.run({"path": "a/x", "content": "mine"}, timeout_s=1)
    assert not found.ok
    assert "nothing was written" in found.error
    assert (outside / "x").read_text() == "theirs"


DIFF = """--- a/x
+++ b/x
@@ -1,3 +1,3 @@
 one
-two
+2
 three
--- /dev/null
+++ b/made
@@ -0,0 +1 @@
+made
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""


def test_a_patch_changes_makes_and_deletes_files(tmp_path: Path) -> None:
    tool = FilePatch(tmp_path)
    before = {"x": "one\ntwo\nthree\nfour\u2028five", "gone": "gone\n"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    tool.check({"diff": DIFF})
    found = tool.run({"diff": DIFF}, timeout_s=1)
    assert found.ok, found
    assert contents(tmp_path) == {"x": "one\n2\nthree\nfour\u2028five", "made": "made\n"}
    assert tool.verify({"diff": DIFF}, found) == ""
    tool.revert({"diff": DIFF}, found)
    assert contents(tmp_path) == before


def test_a_patch_that_does_not_fit_writes_nothing(tmp_path: Path) -> None:
    before = {"x": "one\ntwo\nthree\n", "gone": "otherwise\n"}
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    found = FilePatch(tmp_path).run({"diff": DIFF}, timeout_s=1)
    assert not found.ok
    assert "gone: the lines at 1 are not those of the diff" in found.error
    assert contents(tmp_path) == before


@pytest.mark.parametrize("diff", ["", "text", 3, "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"])
def test_a_diff_that_is_none_is_refused(tmp_path: Path, diff: Any) -> None:
    with pytest.raises(ArgumentsRefused):
        FilePatch(tmp_path).check({"diff": diff})


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Set-Cookie", "canary")
        self.send_header("Location", "/big")
        self.end_headers()
        self.wfile.write(b"x" * (5_000 if self.path == "/big" else 5))

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_request_is_answered_cut_and_redacted(server: str) -> None:
    tool = HttpRequest((server,), private=True, bytes_max=1_000)
    for path, ok, is_cut, length in (
        ("", True, False, 5),
        ("/big", True, True, 1_000),
        ("/away", False, False, 5),
    ):
        args = {"method": "GET", "url": f"http://{server}{path}"}
        tool.check(args)
        found = tool.run(args, timeout_s=HANG_S)
        assert (found.ok, found.truncated, found.output.count("x" * length)) == (ok, is_cut, 1), found
        assert "canary" not in repr(found)
    assert found.error == "the server answered 302 (not followed)"


def test_a_private_address_is_refused_unless_the_settings_allow_it(server: str) -> None:
    found = HttpRequest((server,)).run({"method": "GET", "url": f"http://{server}/"}, timeout_s=HANG_S)
    assert not found.ok
    assert "which is not public" in found.error


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "169.254.169.254", "0.0.0.0", "192.0.0.8", "100.64.0.1"),
        *(
            "::1",
            "::ffff:127.0.0.1",
            "::7f00:1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "fec0::1",
            "fd00::1",
            "ff02::1",
        ),
    ],
)
def test_an_address_that_a_name_hides_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.215.14", 80))]
    answer += [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    found = HttpRequest(("a",)).run({"method": "GET", "url": "http://a/"}, timeout_s=1)
    assert f"a has the address {address}, which is not public" in found.error


@pytest.mark.parametrize(
    ("begin", "drip", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x", "TimeoutError"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf", b"", "IncompleteRead"),
    ],
)
def test_an_answer_that_drips_or_breaks_off_is_no_answer(begin: bytes, drip: bytes, said: str) -> None:
    ended = threading.Event()

    def answer(listening: socket.socket) -> None:
        link, _ = listening.accept()
        with link:
            link.recv(65_536)
            link.sendall(begin)
            try:
                while drip and not ended.wait(0.05):
                    link.sendall(drip)
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        host = f"127.0.0.1:{listening.getsockname()[1]}"
        thread = threading.Thread(target=answer, args=[listening])
        thread.start()
        limit_s = 0.5 if drip else HANG_S
        found = HttpRequest((host,), private=True).run(
            {"method": "GET", "url": f"http://{host}/"}, timeout_s=limit_s
        )
        ended.set()
        thread.join(HANG_S)
    assert (found.ok, found.error.split(":")[1].strip()) == (False, said)


def test_a_silent_server_ends_at_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        found = HttpRequest((host,), private=True).run(
            {"method": "GET", "url": f"http://{host}/"}, timeout_s=0.2
        )
    assert (found.ok, found.error.split(":")[1].strip()) == (False, "TimeoutError")


@pytest.mark.parametrize(
    "args",
    [
        {"method": "GET"},
        {"method": "TRACE", "url": "http://a/"},
        {"method": "GET", "url": "http://b/"},
        {"method": "GET", "url": "http://a:81/"},
        {"method": "GET", "url": "http://a@b/"},
        {"method": "GET", "url": "http://u:p@a/"},
        {"method": "GET", "url": "file:///etc/passwd"},
        {"method": "GET", "url": "http://a/\r\nX: y"},
        {"method": "GET", "url": "http://a/", "headers": {"Authorization": "s"}},
        {"method": "GET", "url": "http://a/", "headers": {"Host": "b"}},
        {"method": "GET", "url": "http://a/", "headers": {"X-A": "a\r\nb"}},
        {"method": "GET", "url": "http://a/", "body": 3},
    ],
)
def test_a_request_outside_its_schema_is_refused(args: Any) -> None:
    with pytest.raises(ArgumentsRefused):
        HttpRequest(("a",)).check(args)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("no git here")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\nexit 1\n")
    hook.chmod(0o755)
    return tmp_path


def test_a_commit_is_made_without_hooks_and_taken_back(repository: Path) -> None:
    tool = GitCommit(repository, sandbox="none")
    before = ""
    for number in range(2):
        (repository / "a").write_text(str(number))
        (repository / "b").write_text("not named")
        args = {"paths": ["a"], "message": "-m is text"}
        tool.check(args)
        found = tool.run(args, timeout_s=HANG_S)
        assert found.ok, found
        assert found.undo[0] == before
        assert tool.verify(args, found) == ""
        tool.revert(args, found)
        assert tool.verify(args, found) != ""
        assert not (repository / "hooked").exists()
        with pytest.raises(CallerError, match="not reverted"):
            tool.revert(args, found)
        before = tool.run(args, timeout_s=HANG_S).undo[1]
    assert (repository / "a").read_text() == "1"


def test_a_commit_ends_at_the_limit_of_the_settings(repository: Path) -> None:
    (repository / "a").write_text("text")
    tool = GitCommit(repository, limits=replace(Limits(), timeout_s=1e-6), sandbox="none")
    found = tool.run({"paths": ["a"], "message": "x"}, timeout_s=HANG_S)
    assert not found.ok
    assert "time-out" in found.error


def test_a_commit_works_in_the_sandbox(repository: Path) -> None:
    (repository / "a").write_text("text")
    tool, args = GitCommit(repository), {"paths": ["a"], "message": "x"}
    try:
        found = tool.run(args, timeout_s=HANG_S)
    except SandboxMissing:
        pytest.skip("no sandbox here")
    assert found.ok, found
    assert tool.verify(args, found) == ""
    assert not (repository / "hooked").exists()


def test_a_repository_that_names_a_program_is_refused(repository: Path) -> None:
    (repository / "a").write_text("text")
    (repository / ".gitattributes").write_text("a filter=evil\n")
    clean = ["git", "-C", str(repository), "config", "filter.evil.clean", f"touch {repository}/ran; cat"]
    subprocess.run(clean, check=True)
    with pytest.raises(CallerError, match=r"filter\.evil\.clean"):
        GitCommit(repository, sandbox="none").run({"paths": ["a"], "message": "x"}, timeout_s=HANG_S)
    assert not (repository / "ran").exists()


def test_nothing_to_commit_is_a_failed_run(repository: Path) -> None:
    tool = GitCommit(repository, sandbox="none")
    found = tool.run({"paths": ["missing"], "message": "x"}, timeout_s=HANG_S)
    assert not found.ok
    assert tool.verify({"paths": ["missing"], "message": "x"}, found) == "HEAD did not move"


@pytest.mark.parametrize(
    "args",
    [
        {"paths": [], "message": "x"},
        {"paths": [".git/config"], "message": "x"},
        {"paths": ["a"], "message": " "},
    ],
)
def test_a_commit_outside_its_schema_is_refused(repository: Path, args: Any) -> None:
    with pytest.raises(ArgumentsRefused):
        GitCommit(repository).check(args)


def test_the_settings_say_which_tools_there_are(tmp_path: Path) -> None:
    assert builtin_tools(None) == {}
    found = builtin_tools(ActionConfig(root=str(tmp_path), hosts=("a",)))
    assert set(found) == {"command", "file.write", "file.patch", "git.commit", "http.request"}
    assert all(isinstance(each, Tool) for each in found.values())
    for wrong in ("/", str(tmp_path / "missing")):
        with pytest.raises(ConfigError, match="expected an existing folder other than /"):
            builtin_tools(ActionConfig(root=wrong))
