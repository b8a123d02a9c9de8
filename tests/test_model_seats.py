"""Seats that are backed by a model: how they are configured, what can't be, and what is made of them."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from council.agents.llm.endpoint import Endpoint
from council.agents.model import ModelMind
from council.config.load import CouncilConfig, SeatConfig, build_mind, describe, load
from council.config.settings import MODEL_KEYS, MODEL_MIND, of_profile
from council.protocol.errors import ConfigError, MindError
from council.protocol.identity.profiles import Profiles
from council.runtime.build import rules_of
from tests.logged import capture_logs

URL = "http://127.0.0.1:11434/v1"


def loaded(tmp_path: Path, text: str, **given: Any) -> Any:
    (tmp_path / "council.toml").write_text(text, encoding="utf-8")
    return load(**({"env": {}, "start": tmp_path} | given))


def seat(tmp_path: Path, text: str, name: str = "lite", **given: Any) -> SeatConfig:
    return next(seat for seat in loaded(tmp_path, text, **given).config.seats if seat.name == name)


def problems(tmp_path: Path, text: str, **given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, **given)
    return list(caught.value.problems)


def test_an_address_and_a_model_are_all_that_it_takes(tmp_path: Path) -> None:
    found = seat(tmp_path, f'[seats]\nlite = {{model = "llama3.1:8b", base_url = "{URL}"}}')
    assert (found.mind, found.model, found.base_url) == (MODEL_MIND, "llama3.1:8b", URL)
    assert (found.max_context_tokens, found.api_key_env) == (4096, None)  # rules 2


def test_every_key_reaches_the_model(tmp_path: Path) -> None:
    """Mutation: a key that is configured and never handed on."""
    text = f"""
    [seats.lite]
    model = "m"
    base_url = "{URL}"
    api_key_file = "~/keys/m"
    max_output_tokens = 333
    temperature = 0.5
    top_p = 0.9
    answer_format = "json_object"
    timeout_s = 7
    max_execution_time_s = 11
    usd_per_million_input = 0.15
    usd_per_million_output = 0.6
    max_context_tokens = 2000
    tokenizer = "o200k_base"
    role = "codemind"
    context_window = 2200
    special_tokens = "text"
    stages = "two"
    """
    mind: Any = build_mind(seat(tmp_path, text))
    assert isinstance(mind, ModelMind)
    assert mind.endpoint == Endpoint(
        model="m",
        base_url=URL,
        api_key_file="~/keys/m",
        max_output_tokens=333,
        temperature=0.5,
        top_p=0.9,
        answer_format="json_object",
        timeout_s=7.0,
        max_execution_time_s=11.0,
        usd_per_million_input=0.15,
        usd_per_million_output=0.6,
    )
    prompter = mind.prompter
    assert (prompter.common.role, prompter.common.mtu, prompter.common.count.tokenizer) == (
        "codemind",
        1867,
        "o200k_base",
    )  # rules 2
    assert (prompter.common.special_tokens, prompter.common.time_s) == ("text", 11.0)
    assert prompter.common.shows_schema is False
    assert (mind.stages, pickle.loads(pickle.dumps(mind)).stages) == ("two", "two")
    assert pickle.loads(pickle.dumps(mind)).endpoint == mind.endpoint


@pytest.mark.parametrize(
    ("given", "mtu"),
    [
        ({}, 4_096),
        ({"context_window": 100_000}, 4_096),
        ({"context_window": 6_144}, 4_096),
        ({"context_window": 6_143}, 4_095),
        ({"context_window": 4_096, "max_output_tokens": 1_000}, 3_096),
        ({"context_window": 8_192, "max_context_tokens": 2_000}, 2_000),
        ({"context_window": 2_304}, 256),
    ],
)
def test_a_prompt_has_never_more_than_the_window_less_the_answers_limit(
    given: dict[str, Any], mtu: int
) -> None:
    """rules 2. Mutation: the window is told, and the prompt has all of max_context_tokens."""
    assert SeatConfig(name="lite", model="m", base_url=URL, **given).mtu == mtu


def test_prompts_of_ones_own_go_before_those_that_ship(tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "jurist.txt").write_text("You know the law.", encoding="utf-8")
    found = seat(
        tmp_path, f'[seats.jurist]\nmodel = "gpt-4o"\nbase_url = "{URL}"\nprompts = "{folder}"', "jurist"
    )
    mind: Any = build_mind(found)
    assert mind.prompter.common.texts.fill("jurist") == "You know the law."


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"role": "nobody"}, "no role 'nobody'"),
        ({"role": "sections"}, "no role 'sections'"),
        ({"role": "compressor"}, "give it another role"),
        ({"tokenizer": "no-such"}, "tokenizer 'no-such' of model 'm' is none"),
        ({"max_context_tokens": 256}, "tokens"),
        ({"prompts": "/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_what_can_be_known_before_the_first_case_is_said_at_launch(more: dict[str, Any], why: str) -> None:
    with pytest.raises(MindError, match=re.escape(why)) as caught:
        build_mind(SeatConfig(name="lite", model="m", base_url=URL, **more))
    assert str(caught.value).startswith("seat lite: its model m can't be asked: ")


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MindError, match=re.escape("pip install 'council-runtime[models]'")):
        build_mind(SeatConfig(name="lite", model="m", base_url=URL))


@pytest.mark.parametrize(
    ("address", "key", "warned"),
    [
        ("http://10.0.0.9:8000/v1", {"api_key_env": "K"}, True),
        ("HTTP://models.example/v1", {"api_key_file": "/k"}, True),
        ("https://models.example/v1", {"api_key_env": "K"}, False),
        (URL, {"api_key_env": "K"}, False),
        ("http://10.0.0.9:8000/v1", {}, False),
    ],
)
def test_a_key_that_goes_over_the_network_in_clear_is_warned_of(
    address: str, key: dict[str, Any], warned: bool
) -> None:
    with capture_logs() as logged:
        build_mind(SeatConfig(name="lite", model="m", base_url=address, **key))
    assert [each["to"] for each in logged if "unencrypted: use https" in each["event"]] == [address] * warned


def test_python_may_leave_the_mind_out_too() -> None:
    found = SeatConfig(name="lite", model="m", base_url=URL)
    assert found.mind == MODEL_MIND
    config = CouncilConfig(seats=(found, SeatConfig(name="prime", mind="council.agents.prime:Prime")))
    assert CouncilConfig.model_validate_json(config.model_dump_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ConfigError, match="model: not given"):
        SeatConfig(name="lite", base_url=URL)
    with pytest.raises(ConfigError, match="temperature: is for a seat that is backed by a model"):
        SeatConfig(name="lite", mind="council.agents.lite:Lite", temperature=0.5)


def test_a_profile_of_a_config_json_is_a_seats_keys() -> None:
    """The control-packet document's own form; what it leaves open stays as it is here."""
    data = {
        "shard_profiles": {
            "reviewer": {
                "model": "m",
                "temperature": 0.2,
                "top_p": 0.9,
                "max_context_tokens": 30_000,
                "max_output_tokens": 6_000,
                "max_execution_time_sec": 600,
                "max_facts_in_shard_kernel": 9,
            }
        },
        "default_shard": {"model": "other", "max_output_tokens": 0},
    }
    imported = Profiles.checked(data)
    found = SeatConfig(name="lite", base_url=URL, **of_profile(imported.profile("reviewer")))
    assert (found.model, found.temperature, found.top_p, found.max_context_tokens) == ("m", 0.2, 0.9, 30_000)
    assert (found.max_output_tokens, found.max_execution_time_s) == (6_000, 600.0)
    assert of_profile(imported.profile("coder")) == {"model": "other"}


# Sources


def test_sources_amend_each_other(tmp_path: Path) -> None:
    """Mutation: the address, given last, drops the model that another source gave."""
    env = {
        "COUNCIL_SEATS__LITE__BASE_URL": URL,
        "COUNCIL_SEATS__LITE__TEMPERATURE": "0.5",
        "COUNCIL_SEATS__LITE__MAX_OUTPUT_TOKENS": "99",
        "COUNCIL_SEATS__LITE__API_KEY_ENV": "",
    }
    text = '[seats.lite]\nmodel = "m"\napi_key_env = "KEY"\nmax_execution_time_s = 3'
    found = seat(tmp_path, text, env=env)
    assert (found.mind, found.model, found.temperature, found.max_output_tokens) == (MODEL_MIND, "m", 0.5, 99)
    assert (found.api_key_env, found.max_execution_time_s) == (None, 3)


def test_a_mind_that_is_named_later_goes_before_the_model(tmp_path: Path) -> None:
    text = f'[seats.lite]\nmodel = "m"\nbase_url = "{URL}"\ntemperature = 1'
    found = seat(tmp_path, text, flags={"seats.lite.mind": "mine:Lite"})
    assert (found.mind, found.model, found.base_url, found.temperature) == ("mine:Lite", None, None, None)


def test_options_of_the_mind_before_are_dropped(tmp_path: Path) -> None:
    text = '[seats.lite]\nmind = "mine:Lite"\nmodel = "m"\noptions = {strict = true}'
    found = seat(tmp_path, text, env={"COUNCIL_SEATS__LITE__BASE_URL": URL})
    assert (found.mind, found.options, found.model) == (MODEL_MIND, {}, "m")


def test_what_is_told_shows_where_it_came_from_and_no_more_than_there_is(tmp_path: Path) -> None:
    told = loaded(tmp_path, f'[seats.lite]\nmodel = "m"\nbase_url = "{URL}"')
    keys = {key: origin for key, _, origin in describe(told)}
    assert keys["seats.lite.base_url"] == keys["seats.lite.mind"] == str(tmp_path / "council.toml")
    assert keys["seats.lite.timeout_s"] == "default"
    assert not [
        key for key in keys if key.startswith("seats.prime.") and key.rpartition(".")[2] in MODEL_KEYS
    ]


# What is wrong


@pytest.mark.parametrize(
    "address",
    [
        "localhost:11434",
        "ftp://host/v1",
        "http://",
        "http://user:secret@host/v1",
        "https://host/v1?key=secret",
        "https://host/v1#secret",
        "http://host:99999/v1",
        "http://ho st/v1",
        "http://host/v1\n",
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused(tmp_path: Path, address: str) -> None:
    told = problems(tmp_path, "", flags={"seats.lite.base_url": address, "seats.lite.model": "m"})
    assert told[0].startswith("flag --seats.lite.base-url: found ")
    assert "expected http://host/v1" in told[0]
    assert "secret" not in str(told)


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        (f'base_url = "{URL}"', "model", "not given, and a seat that is backed by a model needs it"),
        ('model = "m"\ntimeout_s = 5', "timeout_s", "is for a seat that is backed by a model: give base_url"),
        (
            f'mind = "{MODEL_MIND}"\nmodel = "m"',
            "base_url",
            "not given, and a seat that is backed by a model",
        ),
        ('api_key_env = "K"\napi_key_file = "/k"', "api_key_file", "found beside api_key_env"),
        ("usd_per_million_input = 1", "usd_per_million_output", "expected both prices, or none"),
        ("usd_max = 5", "usd_max", "a cap in dollars needs usd_per_million_input"),
        ("options = {a = 1}", "options", "a model takes none"),
        ('api_key_env = "COUNCIL_KEY"', "api_key_env", "the name of a variable"),
        ('api_key_env = "sk-0123"', "api_key_env", "the name of a variable"),
        ('api_key_file = "key"', "api_key_file", "expected /path or ~/path"),
        ("temperature = 3", "temperature", "expected a number from 0 to 2"),
        ("usd_per_million_input = -1", "usd_per_million_input", "expected dollars from 0"),
        ('answer_format = "xml"', "answer_format", "expected 'auto', 'json_schema', 'json_object' or 'text'"),
        ('stages = "three"', "stages", "expected 'auto', 'one' or 'two'"),
        ("max_output_tokens = 0", "max_output_tokens", "expected a whole number from 16"),
        ("context_window = 0", "context_window", "expected a whole number of tokens from 1"),
        (
            "context_window = 2303",
            "context_window",
            "2,303 less the answer's 2,048 (max_output_tokens) leaves 255",
        ),
        (
            "context_window = 900",
            "context_window",
            "leaves 0 for a prompt, which needs 256: lower max_output_tokens",
        ),
        ('special_tokens = "letters"', "special_tokens", "expected 'refuse', or 'text' for a server"),
    ],
)
def test_what_does_not_fit_is_told_with_its_key(tmp_path: Path, text: str, key: str, why: str) -> None:
    whole = text if "base_url" in text or "model" in text else f'model = "m"\nbase_url = "{URL}"\n{text}'
    told = problems(tmp_path, f"[seats.lite]\n{whole}")
    assert any(f"key seats.lite.{key}: " in problem and why in problem for problem in told), told


def test_a_cap_in_dollars_wants_prices_of_every_model(tmp_path: Path) -> None:
    """Mutation: a model without prices costs nothing, whatever the cap (rules 2.6)."""
    text = f'proposal_usd_max = 1\n[seats.lite]\nmodel = "m"\nbase_url = "{URL}"\n'
    (told,) = problems(tmp_path, text)
    assert "key proposal_usd_max: lite: a cap in dollars needs" in told
    assert loaded(tmp_path, f"{text}usd_per_million_input = 0\nusd_per_million_output = 0").config
    seats = (SeatConfig(name="prime", model="m", base_url=URL),)
    with pytest.raises(ConfigError, match="council_usd_max: prime: a cap in dollars"):
        CouncilConfig(seats=seats, council_usd_max=1.0)


def test_the_council_knows_who_shares_a_model_vendor_or_server() -> None:
    """rules 1.1."""
    seats = (
        SeatConfig(name="prime", model="openai/gpt-4o", base_url="https://a.example/v1"),
        SeatConfig(name="lite", model="gpt-4o", base_url="https://b.example/v1", vendor="b"),
        SeatConfig(name="codemind", mind="council.agents.codemind:CodeMind", vendor="B"),
    )
    assert rules_of(CouncilConfig(seats=seats)).shared == (
        ("model openai/gpt-4o", ("prime", "lite")),
        ("vendor b", ("lite", "codemind")),
    )


@pytest.mark.parametrize(
    "host", ["api.example.com。evil.example", "api․example.com", "xn--e1afmkfd．example"]
)
def test_a_host_that_only_looks_like_another_is_refused(host: str) -> None:
    """Mutation: a name is shown with a sign that looks like a dot, and the key goes to whoever has it."""
    with pytest.raises(ConfigError, match=r"base_url: found .*, expected http://host/v1 or https://host/v1"):
        SeatConfig(name="lite", model="m", base_url=f"https://{host}/v1")


SERVED = f"""
[seats.lite]
model = "m"
base_url = "{URL}"
api_key_env = "FIRST_KEY"
vendor = "first"
context_window = 9000
special_tokens = "text"
usd_per_million_input = 2.5
usd_per_million_output = 10.0
max_output_tokens = 333
"""


def test_another_server_does_not_inherit_the_first_ones_key_and_prices(tmp_path: Path) -> None:
    """Mutation: one address in the environment, and the key of the file's server is sent there."""
    address = {"COUNCIL_SEATS__LITE__BASE_URL": "http://10.0.0.9:8000/v1"}
    found = seat(tmp_path, SERVED, env=address)
    assert (found.base_url, found.model, found.max_output_tokens) == ("http://10.0.0.9:8000/v1", "m", 333)
    assert (found.api_key_env, found.vendor, found.usd_per_million_input) == (None, None, None)
    assert (found.context_window, found.special_tokens) == (None, "refuse")
    with_key = seat(tmp_path, SERVED, env=address | {"COUNCIL_SEATS__LITE__API_KEY_ENV": "OTHER_KEY"})
    assert with_key.api_key_env == "OTHER_KEY"
    same = seat(tmp_path, SERVED, env={"COUNCIL_SEATS__LITE__BASE_URL": URL})
    assert (same.api_key_env, same.usd_per_million_input) == ("FIRST_KEY", 2.5)
