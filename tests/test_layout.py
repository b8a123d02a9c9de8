"""Guards of the project's structure: where imports may point, what stays pure, how large things grow."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.patience import HANG_S

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("protocol", "agents")  # folders of the top level that are imported through council
FIELDS_MAX = 15
PUBLIC_METHODS_MAX = 25
FUNCTION_LINES_MAX = 60
# The fields of these are a format: keys of the settings, or what a journal, a snapshot or a client is given.
FORMATS = (
    "agents/scan/ruleset.py Rule",
    "council/api/keywords.py Settings",
    "council/config/settings.py CouncilConfig",
    "council/config/seat_settings.py SeatConfig",
    "council/config/seat_settings.py SeatSettings",
    "council/core/state.py Decision",
    "council/core/state.py Proposal",
    "council/core/state.py Rules",
    "council/journal/entries.py Entry",
    "council/runtime/snapshot.py Base",
)
# Names that begin with an underscore and are documented: of named tuples, and of the standard library.
DOCUMENTED = frozenset({"_asdict", "_fields", "_replace", "_exit", "_current_frames"})
# Names of Ray's own that no documented one stands for.
RAY_PRIVATE = frozenset({"_private", "_raylet", "_actor_id", "_global_node"})

# Each room imports only those before it. The minds are the files of agents/ but mind.py.
ROOMS = (
    "protocol",
    "protocol.answer",
    "protocol.identity",
    "protocol.cognition",
    "protocol.omen",
    "agents.mind",
    "agents.messaging",
    "agents.prompting",
    "agents.llm",
    "agents.seat",
    "agents.scan",
    "agents.static",
    "agents",
    "core",
    "governance",
    "kinds",
    "config",
    "action",
    "journal",
    "packets",
    "gateway",
    "runtime",
    "telemetry",
    "cluster",
    "api",
    "",  # the public names
    "testing",
    "cli.report",
    "cli.options",
    "cli.reach",
    "cli.render",
    "cli.card",
    "cli.overview",
    "cli.record",
    "cli.decide",
    "cli.operate",
    "cli.setup",
    "cli",
)
VERSION = ("council", "council.__version__")  # which anybody may ask for
# Where Ray may be imported: the one room that makes all calls to it, and what tries or measures it.
RAY_FOLDERS = ("council/cluster", "tests/ray", "tests/chaos", "tests/deploy", "benchmarks")
MSGPACK_MODULES = ("protocol/codec.py",)

# The protocol, the core and the governance decide; what needs the time, an id or a file is handed it.
PURE_FOLDERS = ("protocol", "council/core", "council/governance")
IMPURE_MODULES = frozenset(
    [
        "asyncio",
        "io",
        "logging",
        "os",
        "pathlib",
        "random",
        "ray",
        "secrets",
        "shutil",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "multiprocessing",
        "concurrent",
    ]
)
IMPURE_CALLS = frozenset({"open", "input", "print", "eval", "exec", "__import__"})
CLOCK_METHODS = frozenset({"now", "utcnow", "today"})

# A test passes on any machine, however slow. These files may sleep, and those assert on a clock; each says why.
CLOCKS = frozenset(
    {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time"}
)
SLEEPS = {
    "tests/chaos/machines.py": "looks again whether processes have ended",
    "tests/chaos/postgres.py": "a server is down for a time of chance",
    "tests/chaos/ray.py": "looks again whether a coordinator recovers",
    "tests/journal/test_journal.py": "a writer is killed at a moment of chance",
    "tests/patience.py": "the one wait of tests",
    "tests/ray/test_panel.py": "a task that outlasts its limit",
    "tests/ray/test_reconnect.py": "a process that lives until it is killed",
}
LIMITS = {
    "tests/browser.py": "the wait of tests, on an event loop",
    "tests/chaos/machines.py": "ends a hang, as tests/patience.py does",
    "tests/chaos/nodes.py": "ends a hang, as tests/patience.py does",
    "tests/patience.py": "the one wait of tests",
}


def python_files(*folders: str, root: Path = ROOT) -> list[Path]:
    """All Python files below the folders; links are not followed, for what they lead to is listed itself."""
    found = []
    for folder in folders:
        for base, below, files in os.walk(root / folder):
            below[:] = [name for name in below if not name.startswith(".") and name != "__pycache__"]
            found += [Path(base, name) for name in files if name.endswith(".py")]
    return sorted(found)


def sources() -> list[Path]:
    found = python_files("protocol", "agents", "council")
    assert len(found) > 10, "the sources were not found, so nothing would be checked"
    return found


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def within(tree: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes of a tree, listed once for all the rules that go over them."""
    return tuple(ast.walk(tree))


def package_of(path: Path) -> str:
    """The package whose module this is, under the name it is imported by."""
    parts = path.relative_to(ROOT).parent.parts
    return ".".join(("council", *parts) if parts and parts[0] in LINKED else parts)


def imports_in(tree: ast.AST, package: str) -> Iterator[str]:
    """Every name that is imported anywhere in it, in full: ``from a import b`` is ``a.b``."""
    for node in within(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield str(node.args[0].value)


def module_of(path: Path) -> str:
    return f"{package_of(path)}.{path.stem}"


def room_of(name: str) -> str:
    """The room of a module, or of a name in it: the longest of ROOMS that it stands below."""
    return max((room for room in ROOMS if below(name, f"council.{room}".rstrip("."))), key=len)


def below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@cache
def imports(path: Path) -> set[str]:
    return set(imports_in(tree_of(path), package_of(path)))


def offences(paths: list[Path], wrong: Callable[[str], bool]) -> list[str]:
    return [
        f"{place(path)} imports {name}" for path in paths for name in sorted(imports(path)) if wrong(name)
    ]


def impurities(tree: ast.AST) -> list[str]:
    """What a pure module does that it may not, apart from imports."""
    found = []
    for node in within(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"line {node.lineno} calls {node.func.id}()")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_METHODS:
            found.append(f"line {node.lineno} calls .{node.func.attr}()")
    return found


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def too_large(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each class and function above a limit, by its name, and what it has too much of."""
    for node in within(tree):
        if isinstance(node, FUNCTIONS):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield node.name, f"{lines} lines"
        elif isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, FUNCTIONS)]
            public = [each for each in methods if not each.name.startswith("_")]
            if len(public) > PUBLIC_METHODS_MAX:
                yield node.name, f"{len(public)} public methods"
            if len(fields_of(node)) > FIELDS_MAX:
                yield node.name, f"{len(fields_of(node))} fields"


def fields_of(node: ast.ClassDef) -> set[str]:
    """The fields that a class declares, and those that its methods assign."""
    declared = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "ClassVar" not in ast.unparse(each.annotation)
    }
    return declared | {each.attr for each in own_attributes(node) if isinstance(each.ctx, ast.Store)}


def own_attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    """Each ``self.name`` and ``cls.name``."""
    for node in within(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                yield node


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in {"_"} | DOCUMENTED


def private_names(tree: ast.AST) -> set[str]:
    """The private names that a module or a class defines."""
    found = {each.attr for each in own_attributes(tree) if isinstance(each.ctx, ast.Store)}
    for node in within(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return {name for name in found if is_private(name)}


def foreign_private(tree: ast.AST) -> list[str]:
    """The private names of others that a module imports, or uses as attributes."""
    own = private_names(tree)
    used = {node.attr for node in within(tree) if isinstance(node, ast.Attribute)} - own
    imported = {
        part
        for node in within(tree)
        if isinstance(node, ast.ImportFrom)
        for part in (*(node.module or "").split("."), *(alias.name for alias in node.names))
    }
    return sorted(filter(is_private, used | imported))


def overridden_private(tree: ast.AST, defined: dict[str, ast.ClassDef]) -> list[str]:
    """The private names of a base class in another module that a class here defines anew."""
    classes = [node for node in within(tree) if isinstance(node, ast.ClassDef)]
    here = {node.name for node in classes}
    bases = [(node, ast.unparse(base)) for node in classes for base in node.bases]
    return [
        f"{node.name}.{name}"
        for node, base in bases
        if base in defined and base not in here
        for name in sorted(private_names(node) & private_names(defined[base]))
    ]


def is_clock(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
        and node.func.attr in CLOCKS | {"time", "time_ns"}
    )


def is_duration(node: ast.AST) -> bool:
    """Whether it is the difference of a clock and something."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and any(map(is_clock, ast.walk(node)))


def clock_asserts(tree: ast.AST) -> list[int]:
    """The lines of asserts that compare how long something took, or what a clock of this machine shows."""
    assigned = [node for node in within(tree) if isinstance(node, ast.Assign) and is_duration(node.value)]
    durations = {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}

    def tells(node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in durations
        return is_duration(node) or (is_clock(node) and node.func.attr in CLOCKS)  # type: ignore[attr-defined]

    compared = (node for node in within(tree) if isinstance(node, ast.Assert))
    return [
        node.lineno
        for node in compared
        if any(
            isinstance(each, ast.Compare) and any(map(tells, ast.walk(each))) for each in ast.walk(node.test)
        )
    ]


def sleeps(tree: ast.AST) -> list[int]:
    calls = (node.func for node in within(tree) if isinstance(node, ast.Call))
    return [func.lineno for func in calls if ast.unparse(func) == "time.sleep"]


# (1) The links


@pytest.mark.parametrize("name", LINKED)
def test_the_folder_is_linked_and_no_package_of_its_own(name: str) -> None:
    link = ROOT / "council" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert link.resolve() == ROOT / name
    assert (ROOT / name).is_dir()
    assert not (ROOT / name).is_symlink()
    assert not (ROOT / name / "__init__.py").exists()


# (2) Imports point one way, from room to room


def test_a_room_imports_only_rooms_before_it() -> None:
    places = {room: number for number, room in enumerate(ROOMS)}
    wrong = [
        f"{place(path)} imports {name}"
        for path in sources()
        for name in sorted(imports(path))
        if below(name, "council")
        and name not in VERSION
        and places[room_of(name)] > places[room_of(module_of(path))]
    ]
    assert not wrong


def test_there_is_no_circle_of_files() -> None:
    """Imports within functions and for types alone count too."""
    modules = {module_of(path): path for path in sources() if path.name != "__init__.py"}
    order = TopologicalSorter[str]()
    for module, path in modules.items():
        used = {name if name in modules else name.rpartition(".")[0] for name in imports(path)}
        order.add(module, *(used & modules.keys() - {module}))
    assert len(list(order.static_order())) == len(modules)  # raises CycleError where there is a circle


def test_at_the_top_of_the_package_stand_the_public_names_alone() -> None:
    assert sorted(path.name for path in (ROOT / "council").glob("*.py")) == ["__init__.py", "packets.py"]


def test_the_core_imports_only_itself_and_the_errors() -> None:
    """And a table of words, by which a decision tells static checks from models."""
    allowed = ("council.core", "council.protocol.errors", "council.agents.static.marks")
    paths = python_files("council/core")
    assert not offences(paths, lambda name: below(name, "council") and not below(name, *allowed))


# (3) The core and the protocol are pure


@pytest.mark.parametrize("folder", PURE_FOLDERS)
def test_what_decides_has_no_clock_chance_files_or_network(folder: str) -> None:
    paths = python_files(folder)
    assert paths
    # A UUID is a value; what makes new ones is not to be had.
    assert not offences(paths, lambda name: name.split(".")[0] in IMPURE_MODULES and name != "uuid.UUID")
    assert not [f"{place(path)} {what}" for path in paths for what in impurities(tree_of(path))]


# (4) Nobody imports the folders of the top level by their own name


def test_nothing_imports_a_top_level_agents_or_protocol() -> None:
    paths = python_files("protocol", "agents", "council", "tests", "benchmarks")
    assert not offences(paths, lambda name: below(name, *LINKED))


# (5) and (7) Ray stands in one room, msgpack behind one module


def test_ray_is_imported_in_one_room() -> None:
    paths = python_files("protocol", "agents", "council", "tests")
    elsewhere = [path for path in paths if not any(place(path).startswith(f"{f}/") for f in RAY_FOLDERS)]
    assert not offences(elsewhere, lambda name: below(name, "ray"))


def test_importing_does_not_load_ray_nor_sqlalchemy() -> None:
    modules = (
        "council, council.api.client, council.api.inline, council.config.load, council.protocol.envelope"
    )
    code = f"import sys, {modules}; sys.exit(', '.join({{'ray', 'sqlalchemy'}} & sys.modules.keys()) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr


def test_msgpack_is_imported_in_one_module() -> None:
    paths = [path for path in sources() if place(path) not in MSGPACK_MODULES]
    assert not offences(paths, lambda name: below(name, "msgpack"))


# (6) Readable sizes


def test_every_source_file_begins_with_a_docstring() -> None:
    silent = [place(path) for path in sources() if not ast.get_docstring(tree_of(path))]
    assert not silent


def test_no_class_and_no_function_is_too_large() -> None:
    found = [(f"{place(path)} {name}", what) for path in sources() for name, what in too_large(tree_of(path))]
    assert [each for each in found if each[0] not in FORMATS] == []
    large = {name for name, _ in found}
    assert [name for name in FORMATS if name not in large] == [], "take them off the list"


def test_a_private_name_is_used_in_its_own_module_alone() -> None:
    ray = [path for path in sources() if place(path).startswith("council/cluster/")]
    defined = {
        node.name: node
        for path in sources()
        for node in within(tree_of(path))
        if isinstance(node, ast.ClassDef)
    }
    assert [
        f"{place(path)} uses {name}"
        for path in sources()
        for name in [*foreign_private(tree_of(path)), *overridden_private(tree_of(path), defined)]
        if not (path in ray and name in RAY_PRIVATE)
    ] == []


# (7) No test depends on the time that something takes


@pytest.mark.parametrize(("wrong", "allowed"), [(clock_asserts, LIMITS), (sleeps, SLEEPS)])
def test_no_test_depends_on_how_fast_a_machine_is(
    wrong: Callable[[ast.AST], list[int]], allowed: dict[str, str]
) -> None:
    """What must come is waited for with tests/patience.py; what takes a limit's time runs in virtual time."""
    found = {place(path): wrong(tree_of(path)) for path in python_files("tests")}
    assert {where: lines for where, lines in found.items() if lines and where not in allowed} == {}
    assert [where for where in allowed if not found[where]] == [], "they need not be named any more"


# The guards themselves: each finds a planted fault


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import ray", "ray"),
        ("import ray.util as u", "ray.util"),
        ("from council import client", "council.client"),
        ("def f():\n    from os import environ", "os.environ"),
        ("from . import seat", "council.core.seat"),
        ("from .state import Ballot", "council.core.state.Ballot"),
        ("from ..runtime.driver import Driver", "council.runtime.driver.Driver"),
        ("import importlib\nimportlib.import_module('ray')", "ray"),
        ("__import__('time')", "time"),
    ],
)
def test_an_import_is_seen_however_it_is_written(code: str, name: str) -> None:
    assert name in set(imports_in(ast.parse(code), "council.core"))


@pytest.mark.parametrize(
    "code", ["datetime.now(UTC)", "datetime.datetime.utcnow()", "date.today()", "open('x')", "print('x')"]
)
def test_an_impure_call_is_seen(code: str) -> None:
    assert len(impurities(ast.parse(code))) == 1


def test_the_time_as_a_value_is_no_impurity() -> None:
    assert not impurities(ast.parse("def step(now: datetime) -> datetime:\n    return now + timedelta(1)"))


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("assert time.monotonic() - began < 5", True),
        ("assert 0.2 < time.perf_counter() - began < 5", True),
        ("assert fine and time.process_time() - began < 5", True),
        ("assert time.monotonic() < ends_s, 'it did not come'", True),
        ("took_s = time.time() - began_s\nassert took_s < 5", True),
        ("assert before_s <= span.start_s <= time.time()", False),
        ("took_s = time.monotonic() - began_s\nprint(took_s)\nassert found", False),
        ("assert loop.time() - began_s == 7.0", False),
    ],
)
def test_an_assert_on_a_clock_is_seen(code: str, seen: bool) -> None:
    assert bool(clock_asserts(ast.parse(code))) == seen


def test_a_sleep_is_seen() -> None:
    assert sleeps(ast.parse("def f():\n    time.sleep(0.1)\n    clock.sleep(0.1)")) == [2]


@pytest.mark.parametrize(
    ("fits", "one_more", "what"),
    [
        (FUNCTION_LINES_MAX - 1, "    def f(self):\n" + "        x = 1\n" * FUNCTION_LINES_MAX, "61 lines"),
        (PUBLIC_METHODS_MAX, "    def g(self): ...\n", "26 public methods"),
        (FIELDS_MAX, "    def _set(self):\n        self.one_more = 1\n", "16 fields"),
    ],
)
def test_what_is_too_large_is_seen(fits: int, one_more: str, what: str) -> None:
    bodies = {
        "lines": "    async def f(self):\n" + "        x = 1\n" * fits,
        "methods": "".join(f"    def f{n}(self): ...\n" for n in range(fits)),
        "fields": "".join(f"    field_{n}: int\n" for n in range(fits)),
    }
    body = "class A:\n" + bodies[what.split()[-1]]
    assert [*too_large(ast.parse(body))] == []
    assert what in [much for _, much in too_large(ast.parse(body + one_more))]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from council.a import _b", ["_b"]),
        ("from council._a import b", ["_a"]),
        ("import council\ncouncil.a._b()", ["_b"]),
        ("def f(other):\n    return other._field", ["_field"]),
        ("class A(B):\n    def f(self):\n        return self._of_the_base()", ["_of_the_base"]),
        (
            "class A:\n    def __init__(self):\n        self._b = 1\n    def f(self, a):\n        return a._b",
            [],
        ),
        ("_b = 1\ndef _c(): ...\nclass A:\n    _d = 1\n    def _e(self):\n        return self._d", []),
        ("a._asdict()\na.__dict__\n_, b = a", []),
    ],
)
def test_a_private_name_of_another_is_seen(code: str, names: list[str]) -> None:
    assert foreign_private(ast.parse(code)) == names


def test_a_private_name_of_a_base_that_is_defined_anew_is_seen() -> None:
    base = ast.parse("class B:\n    def _f(self): ...\n").body[0]
    assert isinstance(base, ast.ClassDef)
    tree = ast.parse("class A(B):\n    def _f(self): ...\n    def _g(self): ...\n")
    assert overridden_private(tree, {"B": base}) == ["A._f"]
    assert overridden_private(tree, {}) == []


def test_files_are_found_once_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.py").touch()
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "real")
    assert python_files("top", root=tmp_path) == []
    assert python_files("real", root=tmp_path) == [tmp_path / "real" / "a.py"]
