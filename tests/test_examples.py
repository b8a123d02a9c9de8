"""Each program in examples/ runs as it stands."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.models.stub import Stub, ballot, says
from tests.patience import HANG_S, until
from tests.programs import Ran, ran

EXAMPLES = Path(__file__).parent.parent / "examples"
# What each program prints, among other lines, as regular expressions.
PRINTS = {
    "answer.py": ["drop_database", "approved", "dropped prod"],
    "batch.py": [r"\{'approved': 100\}"],
    "follow_events.py": ["proposal", "ballot", "decision"],
    "guard_a_tool.py": ["ls build", "would run", "rm -rf /", "rejected"],
    "own_mind.py": ["within the limit|approved", "4000 is above the limit of 500", "KeyError"],
}
# Tested below, or on Ray in tests/ray: test_cli_ray.py and test_council_on_ray.py.
ELSEWHERE = {"models.py", "web_app.py", "test_agent.py", "workers.py", "ray_tasks.py"}


def run(*arguments: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=EXAMPLES.parent,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_program_is_tested_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == PRINTS.keys() | ELSEWHERE
    listed = set(re.findall(r"\((\w+\.(?:py|ipynb))\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")))
    assert listed == programs | {path.name for path in EXAMPLES.glob("*.ipynb")}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """What the programs printed."""
    programs = {name: (EXAMPLES / name).read_text(encoding="utf-8") for name in PRINTS}
    return ran(programs, tmp_path_factory.mktemp("programs"), cwd=EXAMPLES.parent)


@pytest.mark.parametrize("name", PRINTS)
def test_it_prints_what_it_shows(name: str, printed: dict[str, Ran]) -> None:
    done = printed[name]
    assert done.error == ""
    for expected in PRINTS[name]:
        assert re.search(expected, done.printed), f"{expected!r} is missing in:\n{done.printed}"


def test_models_are_asked() -> None:
    with Stub({"small": [says(ballot())]}) as stub:
        printed = run(str(EXAMPLES / "models.py"), env={"MODEL_URL": stub.base_url, "MODEL": "small"})
    assert "approved" in printed
    assert len(stub.requests) >= 3


def test_its_tests_pass() -> None:
    printed = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(EXAMPLES / "test_agent.py")
    )
    assert "4 passed" in printed


def test_the_web_app_answers(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "examples.web_app:app", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=EXAMPLES.parent, stdout=log, stderr=log)
    try:

        def delete(name: str) -> tuple[int, Any]:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/buckets/{name}", method="DELETE")
            try:
                with urllib.request.urlopen(request, timeout=HANG_S) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        def is_up() -> bool:
            assert server.poll() is None, (tmp_path / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        until(is_up)
        code, answer = delete("invoices")
    finally:
        server.terminate()
        server.wait(HANG_S)
    # Static checks alone don't decide on a deletion: a human must.
    assert code == 202
    assert answer["detail"]["waits_for"].startswith("esc-")


def test_the_notebook_runs() -> None:
    nbclient = pytest.importorskip("nbclient")
    import nbformat

    book = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(book, timeout=int(HANG_S), kernel_name="python3").execute()
    outputs = {cell.id: cell.get("outputs", []) for cell in book.cells}
    assert "text/html" in outputs["approved"][0]["data"]
    assert "rejected" in outputs["explain"][0]["text"]
