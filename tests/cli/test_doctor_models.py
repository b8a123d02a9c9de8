"""``council doctor`` on seats that are backed by models: one short call each, and what is told of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from council.agents.llm import calls
from council.agents.llm.endpoint import is_loopback
from council.cli.setup import modelcheck
from tests.cli.conftest import Cli
from tests.cli.server import Server, listed
from tests.models.stub import Entry, hangs, refuse, says, without

SECRET = "sk-secret-0123456789"
# How an answer begins that is held to the schema, and is cut off.
HELD = says('{"control_packet": {"intent_classification": {"category"', finish="length")


@pytest.fixture(scope="module", autouse=True)
def _the_sdk_is_loaded() -> None:
    calls.load_sdk()


def settings(base_url: str, *lines: str, model: str = "qwen3:8b", seats: Sequence[str] = ("lite",)) -> None:
    """A council.toml with a model for these seats."""
    tables = [f'[seats.{seat}]\nmodel = "{model}"\nbase_url = "{base_url}"\n' for seat in seats]
    Path("council.toml").write_text(
        "".join(table + "\n".join([*lines, ""]) for table in tables), encoding="utf-8"
    )


def examined(cli: Cli, *arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and the findings by what they are about."""
    said = cli("doctor", "--config", "council.toml", "--json", *arguments)
    assert SECRET not in said.out + said.err
    checks = json.loads(said.out)["checks"]
    assert len({each["what"] for each in checks}) == len(checks)
    return said.code, {each["what"]: (each["level"], each["said"]) for each in checks}


def on(cli: Cli, script: Sequence[Entry], *lines: str, **more: Any) -> tuple[int, dict[str, tuple[str, str]]]:
    """What is found of a seat whose model answers by this script."""
    rows = more.pop("rows", listed("qwen3:8b", max_model_len=8_192))
    with Server(rows, {"qwen3:8b": script}, **more) as server:
        settings(server.base_url, *lines)
        return examined(cli)


def test_a_model_that_is_well_is_told_in_one_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", SECRET)
    prices = ("usd_per_million_input = 0.15", "usd_per_million_output = 0.6")
    code, found = on(cli, [HELD], 'api_key_env = "THEIR_KEY"', *prices, key=SECRET)
    assert code == 0
    level, said = found["seat lite"]
    assert level == "ok"
    for words in (
        "qwen3:8b at http://127.0.0.1:",
        "answers (",
        "120 tokens)",
        "key in THEIR_KEY",
        "answer format json_schema",
        "window 8,192",
        "tokens by qwen3",
        "$0.15 and $0.6 a million tokens",
    ):
        assert words in said
    assert not [what for what in found if what.startswith("seat lite ")]


def test_seats_on_one_endpoint_share_one_short_call(cli: Cli) -> None:
    with Server(listed("qwen3:8b"), {"qwen3:8b": [HELD]}) as server:
        settings(server.base_url, seats=("prime", "lite", "codemind"))
        code, found = examined(cli)
        [call] = server.requests
    assert code == 0
    assert call.body["max_tokens"] <= 64
    assert call.body["response_format"]["type"] == "json_schema"
    assert "control_packet" not in json.dumps(
        call.body["messages"]
    )  # else the test of the schema tests nothing
    assert found["votes"] == (
        "warn",
        "prime, lite, codemind share model qwen3:8b: their votes are not independent",
    )
    assert {found[f"seat {seat}"][0] for seat in ("prime", "lite", "codemind")} == {"ok"}


def test_offline_leaves_the_calls_out(cli: Cli) -> None:
    with Server(listed("qwen3:8b"), {"qwen3:8b": [HELD]}) as server:
        settings(server.base_url)
        code, found = examined(cli, "--offline")
        assert server.requests == [] == server.asked
    assert code == 0
    assert "not called: --offline" in found["seat lite"][1]
    assert "tokens by qwen3" in found["seat lite"][1]


@pytest.mark.parametrize("key", ["mind", "base_url"])
def test_no_model_is_called_that_a_file_of_the_working_folder_names(
    key: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a cloned repository's council.toml has a key of the environment sent to whoever it names."""
    monkeypatch.setenv("GITHUB_TOKEN", SECRET)
    with Server(listed("qwen3:8b"), {"qwen3:8b": [HELD]}) as server:
        if key == "mind":
            settings(server.base_url, 'api_key_env = "GITHUB_TOKEN"')
        else:  # the address is the user's own, and which key goes there is the file's
            Path("council.toml").write_text('[seats.lite]\napi_key_env = "GITHUB_TOKEN"\n', encoding="utf-8")
            monkeypatch.setenv("COUNCIL_SEATS__LITE__BASE_URL", server.base_url)
            monkeypatch.setenv("COUNCIL_SEATS__LITE__MODEL", "qwen3:8b")
        said = cli("doctor", "--json")
        assert server.requests == [] == server.asked
    found = {each["what"]: (each["level"], each["said"]) for each in json.loads(said.out)["checks"]}
    assert (said.code, found["seat lite"][0]) == (0, "warn")
    assert "to try it, name that file with --config" in found["seat lite"][1]


# What is wrong, and what to do


def test_a_server_that_is_not_there(cli: Cli) -> None:
    with Server() as server:
        gone = server.base_url
    settings(gone)
    code, found = examined(cli)
    assert (code, found["seat lite"][0]) == (1, "fail")
    assert "can't be reached" in found["seat lite"][1]


def test_a_key_that_is_missing_or_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    code, found = on(cli, [HELD], 'api_key_env = "THEIR_KEY"', key="another")
    assert (code, found["seat lite"][0]) == (1, "fail")
    assert "THEIR_KEY should hold its key, and is not set" in found["seat lite"][1]
    monkeypatch.setenv("THEIR_KEY", SECRET)
    code, found = on(cli, [HELD], 'api_key_env = "THEIR_KEY"', key="another")
    assert (code, found["seat lite"][0]) == (1, "fail")
    assert "refuses the key (401): see THEIR_KEY" in found["seat lite"][1]


def test_a_model_that_its_server_has_not(cli: Cli) -> None:
    with Server(listed("qwen3:14b", "other"), {"qwen3:14b": [HELD]}) as server:
        settings(server.base_url)
        code, found = examined(cli)
    assert code == 1
    assert "does not know the model" in found["seat lite"][1]
    assert "it has qwen3:14b, other; did you mean qwen3:14b?" in found["seat lite"][1]


def test_a_server_that_answers_for_a_model_that_it_does_not_list(cli: Cli) -> None:
    code, found = on(cli, [HELD], rows=listed("other"))
    assert (code, found["seat lite"][0]) == (0, "ok")
    assert "context window unknown" in found["seat lite"][1]
    level, said = found["seat lite model"]
    assert (level, "does not list qwen3:8b, but answered, perhaps as another; it has other" in said) == (
        "warn",
        True,
    )


def test_a_server_without_json_schema(cli: Cli) -> None:
    for refusal, form in (("json_schema", "json_object"), ("response_format", "text")):
        script = [without("response_format", f"{refusal} is not known", HELD, in_form="json_schema")]
        if form == "text":
            script = [without("response_format", "response_format is not known", HELD)]
        code, found = on(cli, script)
        assert (code, found["seat lite"][0]) == (0, "ok")
        assert f"answer format {form}" in found["seat lite"][1]


def test_a_model_that_uses_up_its_tokens_for_thinking_works(cli: Cli) -> None:
    message = "Could not finish the message because max_tokens or model output limit was reached."
    for script in ([says("", finish="length")], [refuse(400, message)]):
        code, found = on(cli, script)
        assert (code, found["seat lite"][0]) == (0, "ok")


def test_a_window_that_prompt_and_answer_do_not_fit(cli: Cli) -> None:
    """rules 2: a prompt has never more than the window less the answer's limit."""
    code, found = on(cli, [HELD], rows=listed("qwen3:8b", max_model_len=6_143))
    assert (code, found["seat lite window"][0]) == (1, "fail")
    assert "6,143 tokens, but a prompt may have 4,096 and its answer 2,048" in found["seat lite window"][1]
    assert "set context_window = 6143" in found["seat lite window"][1]
    assert on(cli, [HELD], rows=listed("qwen3:8b", max_model_len=6_144))[0] == 0
    # A smaller context_window makes the prompt fit.
    code, found = on(cli, [HELD], "context_window = 6143", rows=listed("qwen3:8b", max_model_len=6_143))
    assert (code, "window 6,143" in found["seat lite"][1]) == (0, True)
    rows = listed("qwen3:8b", owner="library")
    code, found = on(cli, [HELD], rows=rows, running=[{"model": "qwen3:8b", "context_length": 2_048}])
    assert (code, found["seat lite window"][0]) == (1, "fail")


def test_what_a_launch_warns_of_stands_beside_the_result(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: the log goes where the JSON goes."""
    monkeypatch.setenv("THEIR_KEY", SECRET)
    profiles = tmp_path / "config.json"
    profiles.write_text(
        '{"shard_profiles": {"lite": {"model": "m"}}, "core_limits": {"max_total_memory_mb": 100}}', "utf-8"
    )
    settings("http://models.example/v1", 'api_key_env = "THEIR_KEY"')
    file = Path("council.toml")
    file.write_text(f'profiles = "{profiles}"\n{file.read_text("utf-8")}', encoding="utf-8")
    code, found = examined(cli, "--offline")
    assert (code, found["seat lite key"][0]) == (0, "warn")


def test_a_server_that_is_silent_is_given_up(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modelcheck, "CALL_S", 0.3)
    code, found = on(cli, [hangs()])
    assert (code, found["seat lite"][0]) == (1, "fail")
    assert "silent for 0.3 s" in found["seat lite"][1]


def test_one_attempt_is_all(cli: Cli) -> None:
    script = [refuse(429, "\x1b[31mslow\ndown", retry_after="1")]
    with Server(listed("qwen3:8b"), {"qwen3:8b": script}) as server:
        settings(server.base_url)
        code, found = examined(cli)
        assert len(server.requests) == 1
        shown = cli("doctor", "--config", "council.toml").out
    assert code == 1
    assert "asked too often (429)" in found["seat lite"][1]
    assert ("\x1b" in shown, "✗ fail" in shown) == (False, True)


def test_a_mind_that_can_not_be_built_is_told_and_not_called(cli: Cli) -> None:
    with Server(listed("qwen3:8b"), {"qwen3:8b": [HELD]}) as server:
        settings(server.base_url, 'tokenizer = "nonsense"')
        code, found = examined(cli)
        assert server.requests == []
    assert (code, found["seat lite"][0]) == (1, "fail")
    assert "nonsense" in found["seat lite"][1]


def test_what_is_not_exact_or_not_known_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", SECRET)
    settings("http://models.example/v1", 'api_key_env = "THEIR_KEY"', model="claude-x")
    code, found = examined(cli, "--offline")
    assert code == 0
    assert "tokens estimated, on the high side; no price" in found["seat lite"][1]
    assert found["seat lite key"] == ("warn", "it goes over the network unencrypted: use https")
    assert found["prices"][0] == "warn"
    assert "claude-x" in found["prices"][1]


def test_a_file_that_lies_there_sends_no_key_anywhere(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: whoever works in a cloned folder gives its author any variable that its settings name."""
    monkeypatch.setenv("MY_SECRET", SECRET)
    with Server(listed("qwen3:8b"), {"qwen3:8b": [HELD]}) as server:
        settings(server.base_url, 'api_key_env = "MY_SECRET"', seats=("prime", "lite", "codemind"))
        for command in (("propose", "x", "--inline"), ("propose", "x", "--launch"), ("up",)):
            said = cli(*command)
            assert said.code == 2
            assert "send the key in MY_SECRET to" in said.err
            assert "--config" in said.err
            assert SECRET not in said.out + said.err
        assert not server.requests


def test_an_address_of_this_machine_is_not_a_name_that_looks_so() -> None:
    local = (
        "http://127.0.0.1:11434/v1",
        "http://127.9.9.9/v1",
        "http://[::1]:8000/v1",
        "http://localhost/v1",
    )
    other = ("http://127.0.0.1.evil.example/v1", "http://localhost.evil.example/v1", "http://10.0.0.1/v1")
    assert all(map(is_loopback, local))
    assert not any(map(is_loopback, other))
