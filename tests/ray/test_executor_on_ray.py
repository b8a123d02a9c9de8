"""The council's own executor on Ray: an actor of its own, which is killed (rules 5)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from council import Council, SeatConfig
from council.protocol.errors import CallerError, NameTaken, OutcomeUnknown
from council.runtime.session import Session
from tests.patience import HANG_S, until
from tests.test_kept_packets import packets_of

TOOLS = "tests.ray.tools:TOOLS"


@pytest.fixture(scope="module")
def acting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Council]:
    """A council with an executor of its own, whose Prime looks before some actions. The first test kills it."""
    seats = [
        SeatConfig("prime", mind="tests.ray.minds:look_first"),
        SeatConfig("lite"),
        SeatConfig("codemind"),
    ]
    store = str(tmp_path_factory.mktemp("acting") / "s.db")
    with Council.launch(
        name="acts", tools=TOOLS, seats=seats, sender="bob", store=store, keep_packets=True
    ) as council:
        yield council


def test_it_runs_what_is_approved_in_its_own_process_and_nothing_again_once_it_is_killed(
    acting: Council, tmp_path: Path
) -> None:
    council, file, gate = acting, tmp_path / "file", tmp_path / "gate"
    with pytest.raises(CallerError, match="the known tools are append, look"):
        council.act("remove", {"path": str(file)})
    with pytest.raises(CallerError, match="path: found None, expected a text"):
        council.act("append", {})
    pids = {os.getpid(), council.status()["pid"]}  # a status is answered once the journal has its beginning
    assert list(council.history(types=["proposal"])) == []

    done = council.act("append", {"path": str(file)})
    assert done
    assert (done.output, done.sandbox) == (file.read_text().strip(), "outside")
    assert int(done.output) not in pids

    port = council._handle.port
    stranger = Session(port, "executor", "executor", b"x" * 32, HANG_S)
    with pytest.raises(NameTaken):
        council._handle.wait(stranger.open())

    file.unlink()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(council.act, "append", {"path": str(file), "gate": str(gate)})
        pid = int(until(lambda: file.exists() and file.read_text().strip()))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OutcomeUnknown, match="restarted before it reported a result"):
            waiting.result(timeout=HANG_S)
    gate.touch()
    assert file.read_text() == f"{pid}\n"  # it was not run again
    (unknown,) = [token for token in council.tokens() if token.standing == "unknown"]
    assert (unknown.executor, len(unknown.uses)) == ("executor", 1)
    alerts = [event.data for event in council.events(follow=False) if event.kind == "alert"]
    assert [alert["kind"] for alert in alerts] == ["outcome_unknown"]
    kept_packets = packets_of(council, unknown.proposal_id)
    routing = kept_packets[0]["packet"]["tool_routing"]
    assert (routing["selected_tool"]["tool_name"], routing["execution_status"]) == ("append", "failed")
    assert council.status()["tokens"] == {"live": 0, "under_way": 0, "unknown": 1}

    assert council.act("append", {"path": str(file)}, summary="Append again")  # another run of it goes on
    assert len(file.read_text().split()) == 2


def test_a_check_is_run_by_whoever_runs_the_action(acting: Council, tmp_path: Path) -> None:
    """By the council's own executor for its tools, and by the client's for those of the client."""
    file = tmp_path / "file"
    file.write_text("two lines")

    @acting.tool(safety="READ")
    def glance(path: str) -> str:
        return f"{os.getpid()}: {Path(path).read_text()}"

    for tool in ("look", "glance"):
        done = acting.act(tool, {"path": str(file)}, summary=tool, body=str(file))
        assert done
        (check,) = done.decision.checks or ()
        assert (check.seat, check.tool, check.outcome) == ("prime", tool, "ok")
        assert f"seen: {check.text}" in {ballot.reason for ballot in done.decision.ballots}
        ran_by, _, text = check.text.partition(": ")
        assert text == "two lines"
        assert (int(ran_by) == os.getpid()) == (tool == "glance")
