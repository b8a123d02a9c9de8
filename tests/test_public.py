"""What `council` shows the world: its names, its weight, its words."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import json
import pickle
import subprocess
import sys
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace

import council
from council import Action, AsyncCouncil, Council, CouncilConfig, CouncilPool, Decision, SeatConfig
from council.api.keywords import PLAIN, ClientSettings, Details, Guarding, Settings
from council.api.pool import AsyncPool
from council.config.settings import (
    COUNCIL_KEYS,
    SEAT_KEYS,
    ActionConfig,
    NotifyConfig,
    OutputChannel,
    OutputConfig,
    PolicyRow,
    ScannerConfig,
    SeatSettings,
)
from council.core.state import Answer, Ballot, Escalation, Option, Ruling, Tally, TieBreak
from council.protocol import errors
from council.protocol.errors import CallerError, CouncilError
from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent

PUBLIC = {
    "Action",
    "ActionFailed",
    "ActionResult",
    "AsyncCouncil",
    "Ballot",
    "Case",
    "Council",
    "CouncilConfig",
    "CouncilError",
    "CouncilPool",
    "Decision",
    "Entry",
    "Envelope",
    "Escalation",
    "Event",
    "HistoryPage",
    "Mind",
    "NotApproved",
    "NotVerified",
    "Observation",
    "OpenEscalation",
    "Opinion",
    "OutcomeUnknown",
    "Requester",
    "Ruling",
    "RulingMind",
    "SeatConfig",
    "ShownBallot",
    "Stream",
    "Tally",
}


def test_the_star_gives_the_public_names_and_no_others() -> None:
    """A name that is dropped breaks users; one that slips in is a promise that nobody made."""
    found: dict[str, Any] = {}
    exec("from council import *", found)
    assert set(found) - {"__builtins__"} == PUBLIC == set(council.__all__)
    assert set(dir(council)) >= PUBLIC
    assert council.__all__ == sorted(council.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Counsel'"):
        council.Counsel  # noqa: B018
    with pytest.raises(ImportError):
        importlib.import_module("council.counsel")


def test_the_version_is_that_of_the_distribution_and_types_are_shipped() -> None:
    assert council.__version__ == distribution("council-runtime").version
    assert (files("council") / "py.typed").is_file()


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import council", ["ray", "pydantic", "asyncio", "council.api.client", "council.agents.prime"]),
        ("import council.protocol.errors", ["ray", "pydantic", "council.api.client"]),
        ("import council.testing.plugin", ["ray", "pydantic", "council.api.client", "council.agents.prime"]),
        (
            "from council import Council",
            ["ray", "council.cluster.port", "council.agents.prime", "unidiff"],
        ),
        ("from council import *", ["ray", "council.cluster.port", "council.agents.codemind"]),
        ("import council.api.inline", ["ray"]),
        ("import council.runtime.coordinator", ["ray"]),
        ("from council.agents.seat.host import SeatHost", ["ray"]),
    ],
)
def test_importing_is_light(statement: str, absent: list[str]) -> None:
    code = f"import sys; {statement}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_whole_inline_council_never_imports_ray() -> None:
    code = (
        "import sys\nfrom council import Council\n"
        "with Council.inline() as council:\n    print(council.propose('x').final)\n"
        "print('ray' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True
    )
    assert done.stdout.split() == ["True", "False"]


# Crossing processes


def test_errors_pickle_with_their_facts_and_have_codes_of_their_own() -> None:
    kinds = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, CouncilError)
    ]
    assert len(kinds) > 15
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        error = kind("what happened", name="n", open_ids=["a"])
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is kind
        assert (str(back), back.code, back.facts) == (str(error), error.code, error.facts)
        assert (back.name, back.open_ids) == ("n", ["a"])
        with pytest.raises(AttributeError):
            _ = back.no_such_fact
        assert kind.__doc__
        assert kind.__doc__ != CouncilError.__doc__ or kind is CouncilError


def a_decision() -> Decision:
    ballot = Ballot("p", "lite", "yes", "r", 0.5, "low", "m", "d")
    return Decision(
        "p",
        "s",
        "decided",
        "approved",
        True,
        "why",
        Tally(1, 0, 0),
        2,
        (ballot,),
        ruling=Ruling("p", "prime", "confirm", "r", 0.9, "low", "m2", "d2"),
        answer=Answer("p", "ada", True, "r", "m3", "d3"),
        tie_break=TieBreak("prime", "m", "yes"),
        missing=(("codemind", "dead"),),
        late=(ballot,),
        shared=(("model x", ("lite", "prime")),),
    )


@pytest.mark.parametrize(
    "value",
    [
        a_decision(),
        Escalation(
            "esc-p",
            "p",
            "s",
            "high",
            "tie",
            "d",
            (Option("approve", ("a",), ("b",)),),
            ("g",),
            "n",
            (),
            None,
            0.0,
            1.0,
        ),
        council.Event(1, __import__("datetime").datetime(2026, 1, 1), "decision", {"a": 1}),
        council.Opinion.yes("r"),
        council.Ruling("confirm", "r"),
        council.Case("p", "c", "s"),
        CouncilConfig(),
        SeatConfig(name="a", mind="council.agents.lite:Lite"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_pickle(value: Any) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        a_decision().outcome = "rejected"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        council.Opinion.yes("r").vote = "no"  # type: ignore[misc]


def test_a_decision_is_true_for_approved_alone() -> None:
    for outcome in ("approved", "rejected", "deferred", "cancelled", None):
        assert bool(replace(a_decision(), outcome=outcome)) is (outcome == "approved")


# Words


def members(kind: type) -> list[tuple[str, Any]]:
    return [
        (name, getattr(member, "__func__", member))
        for name, member in vars(kind).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, (classmethod, property)))
    ]


def test_every_public_class_and_method_says_what_it_does() -> None:
    """AsyncCouncil's methods are those of Council, whose words count for both."""
    silent = []
    for name in PUBLIC:
        thing = getattr(council, name)
        if not (thing.__doc__ or "").strip():
            silent.append(name)
    for name, member in members(Council):
        if not (member.__doc__ or "").strip():
            silent.append(f"Council.{name}")
    assert silent == []


def test_the_coroutines_are_the_methods() -> None:
    """The same names with the same arguments; mutation: an option that only one of the two takes."""
    council_members, aio_members = dict(members(Council)), dict(members(AsyncCouncil))
    assert set(council_members) == set(aio_members)
    for name, member in aio_members.items():
        if isinstance(member, property):
            continue
        ours = list(inspect.signature(member).parameters.values())
        theirs = list(inspect.signature(council_members[name]).parameters.values())
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], (
            name
        )
        # What these give is waited for.
        plain = {"launch", "connect", "inline", "draft", "events", "guard", "register", "tool"}
        assert inspect.iscoroutinefunction(member) is (name not in plain), name


def test_the_shared_keywords_are_those_of_what_takes_them() -> None:
    """Mutation: a key of the configuration, or a detail of a draft, that users could not give by its name."""
    details = {name: hint.__forward_arg__ for name, hint in Details.__annotations__.items()}
    for kind in (Council, AsyncCouncil, CouncilPool, AsyncPool):
        for name in ("draft", "propose", "propose_many"):
            if (call := getattr(kind, name, None)) is None:
                continue  # an AsyncPool drafts as it proposes
            keywords = {each.name: each for each in keyword_only(call)}
            assert {key: keywords[key].annotation for key in details} == details, (kind, name)
            assert {key: keywords[key].default for key in details} == PLAIN, (kind, name)
            more = {"key", "idempotency_key", "wait_for_human", "human_timeout_s"}
            assert keywords.keys() - details.keys() <= more, (kind, name)
        if hasattr(kind, "guard"):
            how = {name: hint.__forward_arg__ for name, hint in Guarding.__annotations__.items()}
            guarded = {each.name: each.annotation for each in keyword_only(kind.guard)}
            assert guarded == {**how, "risk": "RiskLevel"}, kind
    models = (ActionConfig, NotifyConfig, OutputConfig, SeatConfig, PolicyRow, ScannerConfig)
    hints = get_type_hints(
        Settings, localns={"OutputChannel": OutputChannel, **{each.__name__: each for each in models}}
    )
    assert set(hints) == set(COUNCIL_KEYS)
    assert SeatSettings.__annotations__.keys() == set(SEAT_KEYS)
    assert "SeatConfig" in str(hints.pop("seats"))
    assert "NotifyConfig" in str(hints.pop("notify"))
    assert "OutputConfig" in str(hints.pop("output"))
    assert "ActionConfig" in str(hints.pop("action"))
    assert "PolicyRow" in str(hints.pop("policy"))
    assert "ScannerConfig" in str(hints.pop("scanners"))
    configured = get_type_hints(CouncilConfig)
    assert hints == {key: configured[key] | None for key in hints}


def keyword_only(call: Any) -> list[inspect.Parameter]:
    return [each for each in inspect.signature(call).parameters.values() if each.kind is each.KEYWORD_ONLY]


def test_no_signature_hides_its_keywords() -> None:
    """IPython and ``help`` complete what a signature lists; mutation: ``**settings`` that nobody can see into."""
    for kind in (Council, AsyncCouncil, CouncilPool, AsyncPool):
        for name in dir(kind):
            if name.startswith("_") or isinstance(inspect.getattr_static(kind, name), property):
                continue
            kinds = {each.kind for each in inspect.signature(getattr(kind, name)).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{kind.__name__}.{name}"
        for name, settings, more in (
            ("launch", Settings, {"sender", "key", "dashboard"}),
            ("inline", Settings, {"sender", "key"}),
            ("connect", ClientSettings, {"config", "sender", "key"}),
        ):
            if hasattr(kind, name):
                found = {each.name for each in keyword_only(getattr(kind, name))}
                assert settings.__annotations__.keys() <= found
                assert found - settings.__annotations__.keys() <= more


def test_the_ways_in_are_shown_with_connect_first() -> None:
    for words in (council.__doc__, Council.__doc__):
        assert words is not None
        places = [words.index(f"Council.{way}(") for way in ("connect", "inline", "launch")]
        assert min(places) == places[0]
    ways = [name for name in vars(Council) if name in ("connect", "inline", "launch")]
    assert ways[0] == "connect"


# An action


def test_an_action_is_a_mapping_that_cannot_be_changed() -> None:
    action = Action("shell", {"command": "ls"})
    whole = {"tool": "shell", "args": {"command": "ls"}}
    assert action == whole == Action(**whole) == Action.of(whole)
    assert (action.tool, action.args, action["tool"], action.get("args")) == (
        "shell",
        {"command": "ls"},
        "shell",
        {"command": "ls"},
    )
    assert json.loads(json.dumps(action)) == dataclasses.asdict(action) == whole
    assert repr(action) == "Action(tool='shell', args={'command': 'ls'})"
    assert Action("ls").args == {} == Action.of({"tool": "ls"}).args
    for copied in (pickle.loads(pickle.dumps(action)), copy.deepcopy(action), dataclasses.replace(action)):
        assert type(copied) is Action
        assert copied == action
    changes: list[Any] = [
        lambda: action.update(tool="rm"),
        lambda: action.__setitem__("tool", "rm"),
        lambda: action.pop("tool"),
        lambda: action.clear(),
        lambda: action.setdefault("x", 1),
        lambda: action.__ior__({"tool": "rm"}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="an Action can't be changed"):
            change()
    with pytest.raises(AttributeError):
        action.tool = "rm"  # type: ignore[misc]
    assert action == whole


def test_a_case_holds_its_action_as_one_on_every_way() -> None:
    whole = {"tool": "shell", "args": {"command": "ls"}}
    case = council.Case("p", "c", "s", action=whole)  # type: ignore[arg-type]
    assert case == council.Case("p", "c", "s", action=Action(**whole)) == pickle.loads(pickle.dumps(case))
    assert case.action is not None
    assert type(pickle.loads(pickle.dumps(case)).action) is type(case.action) is Action
    assert case.action.tool == case.action["tool"]


@pytest.mark.parametrize(
    "wrong", [("shell", "ls"), "shell", ["shell"], {"tool": "t", "arguments": {}}, {"args": {}}, 3]
)
def test_another_shape_of_action_is_told_the_right_one(wrong: Any) -> None:
    with pytest.raises(CallerError, match=r"expected Action\(tool, args\) or a mapping .*\"tool\"") as caught:
        Action.of(wrong)
    assert caught.value.field == "content.action"
    with pytest.raises(CallerError, match=r"action is .*, expected Action"):
        council.Case("p", "c", "s", action=wrong)


def test_every_argument_and_result_has_a_type() -> None:
    for kind in (Council, AsyncCouncil):
        for name, member in members(kind):
            if isinstance(member, property):
                continue
            signature = inspect.signature(member)
            assert signature.return_annotation is not inspect.Signature.empty, name
            for parameter in list(signature.parameters.values())[1:]:
                assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter.name})"
