"""What is built is what is shipped: sdist and wheel carry the linked folders and live beside a stranger."""

from __future__ import annotations

import email
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import council
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


def setuptools_is_here() -> bool:
    """Whether the setuptools here is new enough. If not, one is fetched for each build."""
    try:
        return int(version("setuptools").split(".")[0]) >= SETUPTOOLS_LEAST
    except PackageNotFoundError:
        return False


def build(project: Path, out: Path, *kinds: str) -> None:
    isolation = ["--no-isolation"] if setuptools_is_here() else []
    run(sys.executable, "-m", "build", *isolation, *kinds, "--outdir", out, project, cwd=project)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, so that nothing is left in the tree itself."""
    copy = tmp_path_factory.mktemp("tree") / "project"
    junk = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "__pycache__", "tests", "benchmarks")
    return Path(shutil.copytree(ROOT, copy, symlinks=True, ignore=junk))


@pytest.fixture(scope="module")
def dist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist, and a wheel of that sdist."""
    out = tmp_path_factory.mktemp("dist")
    build(tree, out)  # neither --sdist nor --wheel: the wheel is built from the sdist
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
    kinds = ("*.lark", "*.gl", "*.toml", "*.yml", "*.patch", "*.txt", "*.css", "*.html", "*.js", "*.json")
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
    assert {name.split(".dist-info/")[1] for name in names if ".dist-info/" in name} >= {"licenses/LICENSE"}


def test_the_metadata_is_what_an_index_takes_and_names_the_licence(dist: Path) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        [place] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(place))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Version"] == council.__version__
    needed = [each for each in metadata.get_all("Requires-Dist", []) if "extra ==" not in each]
    assert not [
        each for each in needed if each.startswith(("ray", "grpcio", "openai", "pydantic-ai", "torch"))
    ]
    assert {"sentencex", "splintr-rs", "tiktoken"} <= {re.split("[<>=]", each)[0] for each in needed}


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


def test_an_editable_install_names_the_folder_and_has_no_finder(tree: Path, tmp_path: Path) -> None:
    """Mutation: without package-dir, setuptools installs a finder, and pyright resolves no import of the package."""
    empty = tmp_path / "empty"
    run(sys.executable, "-m", "venv", "--without-pip", empty, cwd=tmp_path)
    python = empty / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps"]
    isolation = ["--no-build-isolation"] if setuptools_is_here() else []
    run(*install, *isolation, "--editable", tree, cwd=tmp_path)
    purelib = Path(
        run(python, "-Ic", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    )
    assert [path.read_text().strip() for path in purelib.glob("*.pth")] == [str(tree)]
    assert not list(purelib.glob("*finder*"))
    found = run(python, "-Ic", "import council.protocol.errors as it; print(it.__file__)", cwd=tmp_path)
    assert Path(found.strip()) == tree / "council" / "protocol" / "errors.py"
