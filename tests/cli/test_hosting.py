"""The process that holds a council on a Ray of its own, where it fails; that it works is tried in tests/ray."""

from __future__ import annotations

import contextlib
import errno
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from council.cli.operate import host_launch
from council.cli.report import Report
from council.cluster import connection, known, panel_actor, port
from council.config import files
from council.config.settings import CouncilConfig
from council.protocol.errors import MindError, OperatorError

CLUSTER = CouncilConfig(name="far", ray_address="192.0.2.1:6379")


def test_a_host_that_failed_and_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: to wait for it alone, and tell of the wait that was too long instead of the error."""
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def popen(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
        told = '{"error": {"code": "mind", "type": "MindError", "message": "seat lite: no"}}'
        started.append(
            start(["bash", "-c", f"cat >/dev/null; echo '{told}' >&{command[4]}; exec sleep infinity"], **how)
        )
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(host_launch, "END_TIMEOUT_S", 0.3)
    with pytest.raises(MindError, match="seat lite: no"):
        host_launch._host(CouncilConfig(name="failing"))
    assert started[0].poll() is not None


# On a cluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One on which a council is launched without more; what is done there."""
    done: list[str] = []
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-this-test")  # and none of this user's own is looked at

    def launch(config: CouncilConfig, *, detached: bool) -> Any:
        done.append("launched")
        return SimpleNamespace(ask=None, release=lambda: done.append("left"))

    async def places(ask: object) -> dict[str, str | None]:
        kept = known.read("far")
        done.append("remembered" if kept is not None else "not remembered")
        return {"panel": "http://192.0.2.1:5/", "notice": "", "dashboard": None}

    monkeypatch.setattr(port, "launch", launch)
    monkeypatch.setattr(connection, "here", lambda: "192.0.2.1:6379")
    monkeypatch.setattr(panel_actor, "places", places)
    return done


def full_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the disk be full once so many files were written."""
    left = iter(range(count))

    @contextlib.contextmanager
    def whole(path: Path) -> Iterator[IO[bytes]]:
        with files.whole(path) as file:
            if next(left, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            yield file

    monkeypatch.setattr(known, "whole", whole)


def test_a_council_on_a_cluster_is_remembered_before_all_else_is_asked(cluster: list[str]) -> None:
    """Mutation: to remember it once its panel is up, and to forget it where that is interrupted."""
    found = host_launch._up_on_cluster(CLUSTER, Report())
    assert cluster == ["launched", "remembered", "left"]
    assert found == known.read("far")
    assert found.panel == "http://192.0.2.1:5/"
    assert [each.name for each in known.folder().iterdir()] == ["far.json"]


def test_what_could_not_be_remembered_is_not_started(
    cluster: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full_after(0, monkeypatch)
    with pytest.raises(OperatorError, match=r"far\.json.* can't be written: No space left.*XDG_STATE_HOME"):
        host_launch._up_on_cluster(CLUSTER, Report())
    assert cluster == []


def test_a_council_that_is_up_and_can_not_be_remembered_stays_and_is_told_with_its_address(
    cluster: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    full_after(1, monkeypatch)
    found = host_launch._up_on_cluster(CLUSTER, Report())
    assert cluster == ["launched", "not remembered", "left"]
    assert found.address == "192.0.2.1:6379"
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("warning") == 1
    assert "council 'far' is up at 192.0.2.1:6379, in namespace council, but is not remembered here" in said
    assert 'Council.connect("192.0.2.1:6379", "far", ray_namespace="council").end()' in said
