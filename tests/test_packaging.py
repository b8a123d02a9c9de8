"""What is built is what is shipped: sdist and wheel carry the linked folders and live beside a stranger."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.patience import ROUND_S

pytestmark = [pytest.mark.packaging, pytest.mark.long]

ROOT = Path(__file__).resolve().parent.parent
SETUPTOOLS_LEAST = 77  # as in pyproject.toml

STRANGER = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "stranger"
version = "1.0"
[tool.setuptools]
packages = ["agents"]
"""

# Run in the empty environment: says where each module came from.
PROBE = """
import importlib, json, sys
names = ["council.protocol.errors", "council.protocol.envelope", "council.agents.mind", "council", "agents"]
names.append("council.protocol.answer.mangle")
modules = {name: importlib.import_module(name) for name in names}
try:
    import protocol
except ModuleNotFoundError:
    top_level_protocol = None
else:
    top_level_protocol = str(protocol)
print(json.dumps({
    "files": {name: module.__file__ or list(module.__path__)[0] for name, module in modules.items()},
    "stranger": modules["agents"].WHO,
    "agent": modules["council.agents.mind"].Opinion.yes("fine").vote,
    "atom": modules["council.protocol.answer.mangle"].parse("task_status(/a, /failed)").predicate,
    "protocol": top_level_protocol,
    "finders": [getattr(finder, "__module__", "") for finder in sys.meta_path],
}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=ROUND_S
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(project: Path, out: Path, *kinds: str) -> None:
    """Builds with the setuptools that is here if it is new enough, else with one fetched for the build."""
    try:
        here = int(version("setuptools").split(".")[0]) >= SETUPTOOLS_LEAST
    except PackageNotFoundError:
        here = False
    isolation = ["--no-isolation"] if here else []
    run(sys.executable, "-m", "build", *isolation, *kinds, "--outdir", out, project, cwd=project)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist of a copy of the tree, so that nothing is left in the tree, and a wheel of that sdist."""
    copy = tmp_path_factory.mktemp("tree") / "project"
    junk = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "__pycache__", "tests", "benchmarks")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=junk)
    out = tmp_path_factory.mktemp("dist")
    build(copy, out)  # neither --sdist nor --wheel: the wheel is built from the sdist
    return out


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of somebody else's that owns a top-level ``agents``, as several on the index do."""
    project = tmp_path_factory.mktemp("stranger")
    (project / "pyproject.toml").write_text(STRANGER)
    (project / "agents").mkdir()
    (project / "agents" / "__init__.py").write_text("WHO = 'stranger'\n")
    out = project / "out"
    build(project, out, "--wheel")
    return next(out.glob("*.whl"))


def sources() -> set[str]:
    """Every module of the tree, by the path it is to have in the wheel."""
    found = {f"council/{path.relative_to(ROOT)}" for name in ("protocol", "agents") for path in _below(name)}
    return found | {str(path.relative_to(ROOT)) for path in _below("council")}


def data() -> set[str]:
    """What modules read beside themselves, by the path it is to have in the wheel."""
    kinds = ("*.lark", "*.gl", "*.toml", "*.patch", "*.txt", "*.css", "*.html", "*.js", "*.json")
    linked = {
        f"council/{path.relative_to(ROOT)}"
        for name in ("protocol", "agents")
        for kind in kinds
        for path in _below(name, kind)
    }
    return linked | {str(path.relative_to(ROOT)) for kind in kinds for path in _below("council", kind)}


def _below(folder: str, kind: str = "*.py") -> list[Path]:
    linked = (ROOT / "council" / "protocol", ROOT / "council" / "agents")
    paths = (ROOT / folder).rglob(kind)
    return [path for path in paths if not any(path.is_relative_to(link) for link in linked)]


def test_the_wheel_holds_every_module_once_under_council(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    assert {name for name in names if name.endswith(".py")} == sources()
    assert "council/py.typed" in names
    assert (
        {"council/protocol/answer/mangle.lark", "council/protocol/answer/schemas.gl"} <= data() <= set(names)
    )
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"council"}
    assert len(names) == len(set(names))


def test_the_sdist_holds_what_the_links_lead_to(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as sdist:
        held = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
    assert sources() | data() <= set(held)
    assert not [name for name, member in held.items() if member.issym() or member.islnk()]


def test_the_wheel_works_in_an_empty_environment_beside_a_stranger(
    dist: Path, stranger: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    run(sys.executable, "-m", "venv", "--without-pip", empty, cwd=tmp_path)
    python = empty / "bin" / "python"
    wheels = [next(dist.glob("*.whl")), stranger]
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
    run(*install, *wheels, cwd=tmp_path)
    purelib = Path(
        run(python, "-Ic", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    # The dependencies are those of the environment that runs this test. A folder added by a .pth has its own
    # .pth files left alone, so the editable install there does not come along; the probe shows that it didn't.
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    said = json.loads(run(python, "-Ic", PROBE, cwd=tmp_path))
    assert all(Path(file).is_relative_to(purelib) for file in said["files"].values()), said
    assert not [finder for finder in said["finders"] if "editable" in finder]
    assert said["stranger"] == "stranger"
    assert said["agent"] == "yes"
    assert said["atom"] == "task_status"
    assert said["protocol"] is None
