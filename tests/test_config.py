"""Configuration: what goes before what, where each value came from, and every fault told at once."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from council.agents.messaging.logs import LogSettings, configure
from council.agents.mind import Case, Opinion
from council.config.load import (
    DEFAULT_SEATS,
    MODEL_MIND,
    CouncilConfig,
    SeatConfig,
    build_mind,
    describe,
    import_mind,
    load,
)
from council.config.origins import PROBLEMS_MAX
from council.protocol.errors import ConfigError, MindError
from tests.logged import capture_logs


class Yes:
    """A mind whose class takes an option."""

    def __init__(self, reason: str = "why not") -> None:
        self.reason = reason

    def review(self, case: Case) -> Opinion:
        return Opinion.yes(self.reason)


def no(case: Case) -> Opinion:
    return Opinion.no("no")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, text: str, name: str = "council.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, **given: Any) -> list[str]:
    given = {"env": {}, "start": folder} | given
    with pytest.raises(ConfigError) as caught:
        load(**given)
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return list(caught.value.problems)


def names(config: CouncilConfig) -> list[str]:
    return [seat.name for seat in config.seats]


def test_nothing_given_is_the_default_council(folder: Path) -> None:
    loaded = load(env={}, start=folder)
    assert loaded.config == CouncilConfig()
    assert loaded.config.seats == DEFAULT_SEATS
    assert names(loaded.config) == ["prime", "lite", "codemind"]
    assert set(loaded.origins.values()) == {"default"}


def test_flags_go_before_environment_before_file_before_defaults(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(folder, 'name = "filed"\ntime_budget_s = 10\nopen_max = 7\n')
    env = {"COUNCIL_TIME_BUDGET_S": "20", "COUNCIL_OPEN_MAX": "8", "OTHER": "x"}
    loaded = load(env=env, start=folder, flags={"open_max": 9, "quorum": None})
    config = loaded.config
    assert (config.name, config.time_budget_s, config.open_max, config.quorum) == ("filed", 20.0, 9, 2)
    assert isinstance(config.time_budget_s, float)
    monkeypatch.setenv("COUNCIL_NAME", "surrounded")  # of os.environ, unless another environment is given
    assert load(start=folder).config.name == "surrounded"
    assert [loaded.origins[key] for key in ("name", "time_budget_s", "open_max", "quorum")] == [
        str(path),
        "environment COUNCIL_TIME_BUDGET_S",
        "flag --open-max",
        "default",
    ]


def test_the_nearest_file_above_counts(folder: Path) -> None:
    deep = folder / "a" / "b"
    deep.mkdir(parents=True)
    written(folder, 'name = "far"')
    written(deep, '[tool.other]\nx = 1\n"weird key" = 2', "pyproject.toml")
    assert load(env={}, start=deep).config.name == "far"
    project = written(folder / "a", '[tool.council]\nname = "near"', "pyproject.toml")
    loaded = load(env={}, start=deep)
    assert loaded.config.name == "near"
    assert loaded.origins["name"] == f"{project} [tool.council]"


def test_two_homes_in_one_folder_are_an_error_unless_one_is_named(folder: Path) -> None:
    own = written(folder, 'name = "own"')
    project = written(folder, '[tool.council]\nname = "project"', "pyproject.toml")
    [problem] = problems(folder)
    assert str(own) in problem
    assert str(project) in problem
    assert load(own, env={}).config.name == "own"
    assert load(project, env={}).config.name == "project"


def test_a_table_amends_a_seat_adds_one_or_leaves_one_out(folder: Path) -> None:
    text = """
    [seats.lite]
    vendor = "acme"
    [seats.jurist]
    mind = "mine.law:Jurist"
    options = {strict = true}
    max_concurrent = 3
    [seats.codemind]
    enabled = false
    """
    path = written(folder, text)
    loaded = load(env={}, start=folder)
    assert names(loaded.config) == ["prime", "lite", "jurist"]
    lite, jurist = loaded.config.seats[1:]
    assert (lite.mind, lite.vendor) == ("council.agents.lite:Lite", "acme")
    assert jurist == SeatConfig(
        name="jurist", mind="mine.law:Jurist", options={"strict": True}, max_concurrent=3
    )
    assert loaded.origins["seats.lite.vendor"] == str(path)
    assert loaded.origins["seats.lite.mind"] == "default"
    assert not any(key.startswith("seats.codemind") for key in loaded.origins)


def test_another_mind_drops_what_was_said_of_the_one_before(folder: Path) -> None:
    text = '[seats.lite]\noptions = {a = 1}\nmodel = "m"\nvendor = "v"\nmax_concurrent = 4\n'
    written(folder, text)
    same = load(env={"COUNCIL_SEATS__LITE__MIND": "council.agents.lite:Lite"}, start=folder).config.seats[1]
    assert (same.options, same.model, same.vendor, same.max_concurrent) == ({"a": 1}, "m", "v", 4)
    loaded = load(env={"COUNCIL_SEATS__LITE__MIND": "mine:Other"}, start=folder)
    other = loaded.config.seats[1]
    assert (other.mind, other.options, other.model, other.vendor) == ("mine:Other", {}, None, None)
    assert other.max_concurrent == 4
    assert loaded.origins["seats.lite.options"] == "default"


def test_a_seat_left_out_comes_back_where_a_later_source_says_so(folder: Path) -> None:
    written(folder, "[seats.lite]\nenabled = false\n")
    assert names(load(env={}, start=folder).config) == ["prime", "codemind"]
    assert "lite" in names(load(env={"COUNCIL_SEATS__LITE__ENABLED": "True"}, start=folder).config)
    assert "lite" in names(load(env={}, start=folder, flags={"seats": {"lite": "a:B"}}).config)
    written(folder, '[seats]\nlite = "mine:Lite"')  # short for a table with that mind
    assert load(env={}, start=folder).config.seats[1].mind == "mine:Lite"
    written(folder, "[seats.lite]\nenabled = false\n")
    vendor = load(env={"COUNCIL_SEATS__LITE__VENDOR": "acme"}, start=folder)
    assert "lite" not in names(vendor.config)


def test_the_environment_is_typed_by_the_key(folder: Path) -> None:
    written(folder, '[seats.my-seat]\nmind = "a:B"\n')
    env = {
        "COUNCIL_QUORUM": "3",
        "COUNCIL_HEARTBEAT_S": "1.5",
        "COUNCIL_SOLE_SEAT": "allow-low-risk",
        "COUNCIL_RAY_ADDRESS": "",
        "COUNCIL_SEATS__MY_SEAT__OPTIONS": '{limit = 3, word = "x"}',
        "COUNCIL_SEATS__CODEMIND__ENABLED": "off",
        "COUNCIL_SEATS__JURIST__MIND": "c:D",
    }
    loaded = load(env=env, start=folder)
    config = loaded.config
    assert (config.quorum, config.heartbeat_s, config.sole_seat) == (3, 1.5, "allow-low-risk")
    assert config.ray_address is None
    assert names(config) == ["prime", "lite", "my-seat", "jurist"]
    assert config.seats[2].options == {"limit": 3, "word": "x"}
    assert loaded.origins["seats.my-seat.options"] == "environment COUNCIL_SEATS__MY_SEAT__OPTIONS"


def test_a_switch_that_may_be_unset_is_one_in_the_environment_too(folder: Path) -> None:
    """Mutation: to take only ``bool`` itself for a switch, and leave ``bool | None`` a text."""
    for text, panel in (("yes", True), ("0", False), ("", None)):
        assert load(env={"COUNCIL_PANEL": text}, start=folder).config.panel is panel


def test_flags_take_dotted_keys_minds_and_whole_councils(folder: Path) -> None:
    flags = {"time-budget-s": 5, "seats.lite.max-concurrent": 2, "seats": {"codemind": no, "extra": Yes}}
    loaded = load(env={}, start=folder, flags=flags)
    assert loaded.config.time_budget_s == 5
    assert loaded.config.seats[1].max_concurrent == 2
    assert [seat.mind for seat in loaded.config.seats[2:]] == [no, Yes]
    assert loaded.origins["seats.lite.max_concurrent"] == "flag --seats.lite.max-concurrent"
    whole = [SeatConfig(name="prime", mind=Yes), SeatConfig(name="b", mind=no)]
    assert load(env={}, start=folder, flags={"seats": whole}).config.seats == tuple(whole)


def test_a_built_in_seat_needs_its_name_only() -> None:
    assert SeatConfig("prime").mind == "council.agents.prime:Prime"
    assert (SeatConfig("prime"), SeatConfig(name="lite"), SeatConfig("codemind")) == DEFAULT_SEATS
    assert SeatConfig("lite", mind=Yes).mind is Yes
    assert SeatConfig("lite", model="m", base_url="http://127.0.0.1:1/v1").mind == MODEL_MIND
    with pytest.raises(ConfigError) as caught:
        SeatConfig("x")
    words = "seat 'x' has no mind: give mind='module:Class', or use one of prime, lite, codemind"
    assert (str(caught.value), list(caught.value.problems)) == (words, [words])
    for name, meant in (("Prime", "prime"), ("LITE", "lite"), ("code-mind", "codemind")):
        with pytest.raises(ConfigError, match=f"one of prime, lite, codemind; did you mean {meant}\\?$"):
            SeatConfig(name)


def test_every_fault_of_every_source_is_told_at_once(folder: Path) -> None:
    path = written(folder, 'quorom = 2\nopen_max = "many"\n[seats.lite]\nmnid = "a:B"\nmodel = 3\n')
    env = {"COUNCIL_QUORUM": "one", "COUNCIL_SEATS__LITE__MAX_CONCURRENT": "many"}
    found = problems(folder, env=env, flags={"sole_seat": "always", "prime": "lit", "heartbeat_s": 80.0})
    expected = [
        (f"file {path}: key quorom:", "did you mean quorum?"),
        (f"file {path}: key open_max:", "found 'many', expected a whole number from 1 to 100000"),
        (f"file {path}: key seats.lite.mnid:", "did you mean mind?"),
        (f"file {path}: key seats.lite.model:", "found 3, expected a text"),
        ("environment COUNCIL_QUORUM:", "found 'one', expected a whole number from 2 to 15"),
        ("environment COUNCIL_SEATS__LITE__MAX_CONCURRENT:", "found 'many', expected a whole number"),
        ("flag --sole-seat:", "'never' or 'allow-low-risk'"),
        ("flag --prime:", "did you mean lite?"),
        ("flag --heartbeat-s:", "expected at least 160"),
    ]
    assert len(found) == len(expected), found
    for problem, (start, part) in zip(found, expected, strict=True):
        assert problem.startswith(start)
        assert part in problem


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("quorum = true", "found True"),
        ("quorum = 1", "from 2 to 15"),
        ("quorum = 4", "there are 3 seats"),
        ("time_budget_s = 0", "seconds from 0.001 to 86400"),
        ("time_budget_s = nan", "found nan"),
        ("time_budget_s = inf", "found inf"),
        ('time_budget_s = "30"', "found '30'"),
        (f"time_budget_s = {10**400}", "found a whole number of 1329 bits"),
        ('name = "Big Name"', "a-z, 0-9"),
        ('name = "x\\n"', "a-z, 0-9"),
        ("inactivity_s = 59", "expected at least 60"),
        ('prime = "boss"', "expected one of the seats: prime, lite, codemind"),
        (
            'observer = "lit"',
            "expected one of the seats: prime, lite, codemind, or 'none'; did you mean lite?",
        ),
        (
            'observer = "lite"\n[seats.lite]\nenabled = false',
            "observer is 'lite', expected one of the seats: prime",
        ),
        ('observer = "Prime Seat"', "a-z, 0-9"),
        ("[seats.prime]\nenabled = false", "key seats.prime.enabled: prime is 'prime'"),
        ("[seats.lite]\nenabled = 1", "true or false"),
        ("[seats.lite]\nmax_concurrent = 257", "from 1 to 256"),
        ("[seats.lite]\nmind = 3", "expected an import path"),
        ('[seats.lite]\nmind = "import os"', "expected an import path"),
        ('[seats.lite]\nname = "x"', "unknown key"),
        ('[seats.lit]\nmodel = "m"', "did you mean lite?"),
        ('[seats.Lite]\nmind = "a:B"', "found 'Lite' as a seat's name"),
        ('[[seats]]\nname = "a"', "expected tables keyed by the seats' names"),
        ("[seats]\nlite = 3", "expected a table"),
        ("\n".join(f'[seats.s{i}]\nmind = "a:B"' for i in range(13)), "found 16 seats, expected 1 to 15"),
        ("x = 1\ny = \n", "line 2"),
        ("x = " + "[" * 5000, "nested too deep"),
        ("quorum = " + "9" * 5000, "not TOML"),
    ],
)
def test_a_wrong_file_is_told_with_file_and_what_was_expected(folder: Path, text: str, part: str) -> None:
    path = written(folder, text)
    [problem] = problems(folder)
    assert problem.startswith(f"file {path}: ")
    assert part in problem


def test_one_seat_keeps_quorum_two_and_none_is_an_error(folder: Path) -> None:
    seats = {seat.name: {"enabled": False} for seat in DEFAULT_SEATS}
    assert problems(folder, flags={"seats": seats}) == ["flag --seats: found 0 seats, expected 1 to 15"]
    alone = {"seats": [SeatConfig(name="prime", mind=Yes)]}
    assert load(env={}, start=folder, flags=alone).config.quorum == 2
    assert "expected at most 2" in problems(folder, flags=alone | {"quorum": 3})[0]


def test_the_limits_themselves_are_allowed(folder: Path) -> None:
    written(folder, "time_budget_s = 86400\nheartbeat_s = 45\ninactivity_s = 90\nquorum = 3\n")
    assert load(env={}, start=folder).config.time_budget_s == 86400


def test_an_unknown_variable_is_told_and_has_no_effect(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: to end at it, or to pass it over in silence."""
    configure(LogSettings())
    for name, hint in (
        ("COUNCIL_", ""),
        ("COUNCIL_SEATS", ""),
        ("COUNCIL_quorum", "; did you mean COUNCIL_QUORUM?"),
        ("COUNCIL_SEATS__LITE", ""),
        ("COUNCIL_TIME_BUDGETS", "; did you mean COUNCIL_TIME_BUDGET_S?"),
        ("COUNCIL_SEATS__LITE__VENDR", "; did you mean COUNCIL_SEATS__LITE__VENDOR?"),
    ):
        assert load(env={name: "x", "COUNCIL_QUORUM": "3"}, start=folder).config == CouncilConfig(quorum=3)
        [line] = capsys.readouterr().err.splitlines()
        assert f" environment {name}: unknown variable, has no effect" in line
        assert line.rstrip().endswith(hint)
    [problem] = problems(folder, env={"COUNCIL_QUORUM": "one", "COUNCIL_\x1b[2J": "x"})
    assert problem.startswith("environment COUNCIL_QUORUM: ")
    assert "'COUNCIL_\\x1b[2J': unknown variable" in capsys.readouterr().err
    load(env={f"COUNCIL_X{i}": "" for i in range(20_000)}, start=folder)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == PROBLEMS_MAX + 1
    assert "19,900 more" in lines[-1]


def test_a_table_in_a_variable_is_one_table(folder: Path) -> None:
    for text in ("{a = 1}\nb = 2", "{a", "3", "", "[" * 5000):
        [problem] = problems(folder, env={"COUNCIL_SEATS__LITE__OPTIONS": text})
        assert problem.startswith("environment COUNCIL_SEATS__LITE__OPTIONS: found ")
    [problem] = problems(folder, env={"COUNCIL_HUMANS": "{}\nquorum = 3"})
    assert problem.startswith("environment COUNCIL_HUMANS: found ")
    assert "found ''" in problems(folder, env={"COUNCIL_QUORUM": ""})[0]


def test_flags_with_wrong_minds_or_seats(folder: Path) -> None:
    [mind] = problems(folder, flags={"seats": {"lite": 3}})
    assert mind.startswith("flag --seats.lite.mind: found 3")
    seat = SeatConfig(name="prime", mind=Yes)
    [twice] = problems(folder, flags={"seats": [seat, seat]})
    assert "two seats share this name" in twice
    [other] = problems(folder, flags={"seats": {"lite": seat}})
    assert "expected one named lite" in other
    [options] = problems(folder, flags={"seats": {"lite": {"mind": no, "options": {"a": 1}}}})
    assert "options are for" in options


def test_a_file_that_cannot_be_used_is_told_beside_the_other_faults(folder: Path) -> None:
    missing = folder / "nowhere.toml"
    env = {"COUNCIL_QUORUM": "x", "COUNCIL_SEATS__JURIST__VENDOR": "v", "COUNCIL_PRIME": "jurist"}
    found = problems(folder, path=missing, env=env)
    # The file may well hold the jurist: nothing is concluded from its absence.
    assert [problem.split(":")[0] for problem in found] == [f"file {missing}", "environment COUNCIL_QUORUM"]
    assert "No such file" in found[0]
    assert "directory" in problems(folder, path=folder)[0]
    latin = folder / "latin.toml"
    latin.write_bytes(b'name = "x"\n# caf\xe9\n')
    assert "line 2 is not UTF-8" in problems(folder, path=latin)[0]
    big = written(folder, "#" * (2**20 + 1), "big.toml")
    assert "longer than" in problems(folder, path=big)[0]
    project = written(folder, "[tool.other]\n", "pyproject.toml")
    assert "expected a table [tool.council]" in problems(folder, path=project)[0]
    project.write_text("[tool]\ncouncil = 3\n")
    assert "key tool.council: found 3" in problems(folder)[0]


def test_a_byte_order_mark_does_no_harm_and_a_broken_link_is_not_passed_over(folder: Path) -> None:
    (folder / "council.toml").write_bytes(b'\xef\xbb\xbfname = "marked"\n')
    assert load(env={}, start=folder).config.name == "marked"
    (folder / "council.toml").unlink()
    (folder / "council.toml").symlink_to(folder / "gone.toml")
    assert "can't be read" in problems(folder)[0]


def test_a_file_of_another_program_does_not_flood(folder: Path) -> None:
    written(folder, "\n".join(f"key{i} = {i}" for i in range(20_000)))
    *found, more, other = problems(folder, env={"COUNCIL_QUORUM": "one"})
    assert len(found) == PROBLEMS_MAX
    assert f"more than {PROBLEMS_MAX}" in more
    assert other.startswith("environment COUNCIL_QUORUM: ")


@given(st.dictionaries(st.text(max_size=90), st.text(max_size=90), max_size=5))
def test_any_environment_loads_and_is_told_in_printable_lines(env: dict[str, str]) -> None:
    given = {f"COUNCIL_{key}": value for key, value in env.items()}
    with capture_logs() as told:
        assert load(Path("/dev/null"), env=given).config == CouncilConfig()
    assert len(told) == len(given)
    assert all(each["event"].isprintable() for each in told)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
_KEYS = st.sampled_from([*CouncilConfig.model_fields, "sets"]) | st.text(max_size=12)


@given(st.dictionaries(_KEYS, _VALUES, max_size=6))
def test_any_flags_load_or_are_a_config_error(flags: dict[str, Any]) -> None:
    try:
        loaded = load(Path("/dev/null"), env={}, flags=flags)
    except ConfigError as error:
        told = error.problems
    else:
        told = None
        assert set(loaded.origins) == {key for key, _, _ in describe(loaded)}
    assert told is None or (told and all(isinstance(problem, str) for problem in told))


@given(st.integers(2, 15), st.floats(0.05, 3600), st.floats(0.1, 86400))
def test_the_model_and_the_loader_agree(quorum: int, beat: float, silence: float) -> None:
    given: dict[str, Any] = {"quorum": quorum, "heartbeat_s": beat, "inactivity_s": silence}
    try:
        made = CouncilConfig(**given)
    except ConfigError:
        made = None
    try:
        read = load(Path("/dev/null"), env={}, flags=given).config
    except ConfigError:
        read = None
    assert made == read
    assert (made is not None) == (quorum <= 3 and silence >= 2 * beat)


def test_the_error_and_the_configuration_cross_processes(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(env={"COUNCIL_QUORUM": "x"}, start=folder)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems
    assert pickle.loads(pickle.dumps(CouncilConfig())) == CouncilConfig()


def test_the_models_refuse_by_themselves() -> None:
    with pytest.raises(ConfigError, match="two seats share the name prime"):
        CouncilConfig(seats=(DEFAULT_SEATS[0], DEFAULT_SEATS[0]))
    with pytest.raises(ConfigError, match="quorom"):
        CouncilConfig(quorom=2)  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="frozen"):
        CouncilConfig().quorum = 3  # type: ignore[misc]
    assert CouncilConfig(seats=list(DEFAULT_SEATS)).seats == DEFAULT_SEATS  # type: ignore[arg-type]


def test_describe_shows_every_key_with_value_and_origin(folder: Path) -> None:
    described = describe(load(env={"COUNCIL_QUORUM": "3"}, start=folder, flags={"seats": {"lite": Yes}}))
    rows = {key: (value, origin) for key, value, origin in described}
    assert rows["quorum"] == (3, "environment COUNCIL_QUORUM")
    assert rows["seats.lite.mind"] == (f"{__name__}:Yes", "flag --seats.lite.mind")
    assert rows["seats.prime.max_concurrent"] == (16, "default")
    assert [key for key, _, _ in described][:2] == ["name", "seats.prime.mind"]


# Minds from import paths

MODULE = """
class Careful:
    word = "careful"
    def __init__(self, limit=1):
        self.limit = limit
    def review(self, case):
        return self.word
class Broken:
    def review(self, case): ...
    def __init__(self):
        raise RuntimeError("no licence")
class Outer:
    class Inner(Careful):
        pass
class Silent:
    pass
def bare(case):
    return "bare"
ready = Careful(7)
number = 3
def __getattr__(name):
    if name == "lazy":
        raise ImportError("lazy part is gone")
    raise AttributeError(name)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported, under a name of its own, with others that can't be beside it."""
    name = f"minds_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_needy.py").write_text("import no_such_module_here\n")
    (tmp_path / f"{name}_rash.py").write_text("raise SystemExit(3)\n")
    (tmp_path / f"{name}_torn.py").write_text("def broken(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield name  # type: ignore[misc]
    for imported in set(sys.modules) - before:
        del sys.modules[imported]


def test_a_path_becomes_a_mind(module: str) -> None:
    built: Any = import_mind(f"{module}:Careful", {"limit": 5}, seat="lite")
    assert built.limit == 5
    ready: Any = import_mind(f"{module}:ready", {}, seat="lite")
    assert ready.limit == 7
    bare: Any = import_mind(f"{module}:bare", {}, seat="lite")
    assert bare.review(None) == "bare"
    inner: Any = import_mind(f"{module}:Outer.Inner", {}, seat="lite")
    assert inner.limit == 1


@pytest.mark.parametrize(
    ("path", "options", "parts"),
    [
        ("nothing", {}, ["'package.module:Name'"]),
        ("a b:C", {}, ["'package.module:Name'"]),
        (".rel:C", {}, ["'package.module:Name'"]),
        ("no_such_pkg.minds:X", {}, ["there is no module no_such_pkg", "PYTHONPATH"]),
        ("{m}.sub:X", {}, ["there is no module {m}.sub"]),
        ("{m}_needy:X", {}, ["module {m}_needy needs no_such_module_here"]),
        ("{m}_rash:X", {}, ["importing {m}_rash failed: SystemExit(3)"]),
        ("{m}_torn:X", {}, ["importing {m}_torn failed", "SyntaxError"]),
        ("{m}:Carefull", {}, ["has no Carefull", "did you mean Careful?"]),
        ("{m}:Outer.Iner", {}, ["Outer has no Iner", "did you mean Inner?"]),
        ("{m}:lazy", {}, ["looking up lazy failed", "lazy part is gone"]),
        ("{m}:Broken", {}, ["building Broken without options failed", "no licence"]),
        ("{m}:Careful", {"limt": 1}, ["with options limt failed", "(limit=1)"]),
        ("{m}:bare", {"limit": 1}, ["not a class", "(limit)"]),
        ("{m}:number", {}, ["is not a mind"]),
        ("{m}:Silent", {}, ["is not a mind"]),
    ],
)
def test_what_is_wrong_with_a_path_is_told(
    module: str, path: str, options: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(MindError) as caught:
        import_mind(path.replace("{m}", module), options, seat="jurist")
    assert caught.value.seat == "jurist"
    assert str(caught.value).startswith("seat jurist: ")
    for part in parts:
        assert part.replace("{m}", module) in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_build_mind_takes_whatever_a_seat_holds(module: str) -> None:
    imported: Any = build_mind(SeatConfig(name="a", mind=f"{module}:Careful", options={"limit": 2}))
    assert imported.limit == 2
    made: Any = build_mind(SeatConfig(name="a", mind=Yes, options={"reason": "r"}))
    assert made.reason == "r"
    held = Yes()
    assert build_mind(SeatConfig(name="a", mind=held)) is held
    assert build_mind(SeatConfig(name="a", mind=no)).review(Case("1", "c", "s")) == Opinion.no("no")
    with pytest.raises(MindError, match=r"seat a: .*Yes.*with options x failed"):
        build_mind(SeatConfig(name="a", mind=Yes, options={"x": 1}))


def test_loading_imports_and_runs_nothing(module: str, folder: Path) -> None:
    written(folder, f'[seats.lite]\nmind = "{module}_rash:X"\n')
    assert load(env={}, start=folder).config.seats[1].mind == f"{module}_rash:X"
    assert f"{module}_rash" not in sys.modules


def test_a_class_that_is_no_mind_is_not_even_built(tmp_path: Path) -> None:
    """Building a class may do anything (``subprocess:Popen`` would run a command)."""
    mark = tmp_path / "ran"
    with pytest.raises(MindError, match="Popen is not a mind"):
        import_mind("subprocess:Popen", {"args": ["touch", str(mark)]}, seat="lite")
    assert not mark.exists()


# Who may answer


def test_humans_stand_in_a_table_and_a_source_that_gives_it_gives_all_of_it(folder: Path) -> None:
    path = written(folder, '[humans]\nada = "kept"\nbob = "file:~/bob.key"\n')
    loaded = load(env={}, start=folder)
    assert loaded.config.humans == {"ada": "kept", "bob": "file:~/bob.key"}
    assert ("humans", loaded.config.humans, str(path)) in describe(loaded)
    env = {"COUNCIL_HUMANS": '{eve = "env:EVE_ANSWERS"}'}
    assert load(env=env, start=folder).config.humans == {"eve": "env:EVE_ANSWERS"}
    assert load(env={"COUNCIL_HUMANS": ""}, start=folder).config.humans is None
    assert load(env={"COUNCIL_HUMANS": "{}"}, start=folder).config.humans == {}
    assert load(env=env, start=folder, flags={"humans": {}}).config.humans == {}
    assert CouncilConfig.model_validate_json(loaded.config.model_dump_json()) == loaded.config


def test_what_names_no_key_is_a_problem(folder: Path) -> None:
    for table in (
        "7",
        '["ada"]',
        "{ada = true}",
        '{ada = "0123456789abcdef"}',
        '{ada = "file:relative.key"}',
        '{ada = "file:"}',
        '{ada = "env:COUNCIL_KEY"}',
        '{ada = "env:two words"}',
        '{"Ada Lovelace" = "kept"}',
        '{"../ada" = "kept"}',
    ):
        path = written(folder, f"humans = {table}")
        [problem] = problems(folder)
        assert problem.startswith(f"file {path}: key humans: found ")
        assert "expected a table of names to 'kept'" in problem


def test_a_human_may_not_have_a_seats_name(folder: Path) -> None:
    path = written(folder, 'humans = {lite = "kept", ada = "kept", coordinator = "kept"}')
    text = "coordinator, lite: a name of a seat or of the coordinator; choose another"
    assert problems(folder) == [f"file {path}: key humans: {text}"]
    with pytest.raises(ConfigError, match="prime: a name of a seat"):
        CouncilConfig(humans={"prime": "kept"})
