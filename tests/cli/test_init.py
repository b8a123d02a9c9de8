"""``council init``: what it finds, what it writes, and that what it writes is a council's settings."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import socket
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from council.agents.llm import calls
from council.cli.setup import init, servers, starter
from council.config.load import load
from council.config.settings import DEFAULT_SEATS, MODEL_MIND, CouncilConfig
from council.protocol.errors import Unreachable
from tests.cli.conftest import Cli
from tests.cli.server import Server, listed
from tests.examples import tried
from tests.models.stub import ballot, says, used
from tests.patience import HANG_S

SECRET = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs on the machine of whoever tests, and whatever keys there are."""
    monkeypatch.setattr(servers, "LOCAL", ())
    for vendor in starter.VENDORS:
        monkeypatch.delenv(vendor.variable, raising=False)


def here(monkeypatch: pytest.MonkeyPatch, *found: Server) -> None:
    monkeypatch.setattr(servers, "LOCAL", tuple(each.base_url for each in found))


def written(path: str = "council.toml") -> CouncilConfig:
    return load(Path(path), env={}).config


def models(config: CouncilConfig) -> list[str | None]:
    return [seat.model for seat in config.seats]


# What is found


def test_seats_get_different_models_of_the_servers_that_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = listed("qwen3:8b", "nomic-embed-text:latest", "llama3.1:8b", owner="library")
    with Server(own) as one, Server(listed("mistral-nemo")) as other:
        here(monkeypatch, one, other)
        said = cli("init")
        assert said.code == 0, said
        assert [path for path, _ in one.asked] == ["/v1/models", "/api/ps"]
        assert one.requests + other.requests == []  # no model is called
        config = written()
        assert [(seat.name, seat.model, seat.base_url) for seat in config.seats] == [
            ("prime", "qwen3:8b", one.base_url),
            ("lite", "mistral-nemo", other.base_url),
            ("codemind", "llama3.1:8b", one.base_url),
        ]
        assert {seat.mind for seat in config.seats} == {MODEL_MIND}
    text = Path("council.toml").read_text(encoding="utf-8")
    assert "#   Ollama at" in text
    assert "nomic-embed-text" in text.partition("Also found")[2]
    for words in ("Ollama at", "vLLM at", "it is valid", "council doctor --config council.toml"):
        assert words in " ".join(said.out.split())


def test_seats_on_one_model_are_told_what_that_means(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(listed("only-one")) as server:
        here(monkeypatch, server)
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)  # a server here goes before a key
        told = json.loads(cli("init", "--json").out)["init"]
    assert models(written()) == ["only-one"] * 3
    [shares] = told["shared"]
    assert shares["seats"] == ["prime", "lite", "codemind"]
    assert shares["what"][0] == "model only-one"
    text = Path("council.toml").read_text(encoding="utf-8")
    assert "prime, lite, codemind share model only-one" in text
    assert "rules 1.1" in text


def test_prompt_and_answer_fit_the_window(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """rules 2: never more than the model's window less its output limit."""
    for tokens in (2_048, 3_000, 4_096, 6_143, 6_144, 131_072):
        with Server(listed("small", max_model_len=tokens)) as server:
            here(monkeypatch, server)
            assert cli("init", "--force").code == 0
        for seat in written().seats:
            assert seat.max_context_tokens + seat.max_output_tokens <= seat.context_window == tokens
            assert seat.max_context_tokens <= 4_096
            assert seat.max_context_tokens >= 2 * seat.max_output_tokens >= 1_000


def test_a_model_that_does_not_chat_or_whose_window_holds_no_prompt_is_not_taken(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = [*listed("tiny", max_model_len=1_024), *listed("bge-m3", "whisper-1")]
    for rows, taken in ((tiny, None), ([*tiny, *listed("fair", meta={"n_ctx": 8_192})], "fair")):
        with Server(rows) as server:
            here(monkeypatch, server)
            said = cli("init", "--force")
        assert (said.code, models(written())) == (0, [taken] * 3)
        assert ("no server with a model" in said.out) == (taken is None)


def test_what_ollama_gives_a_model_counts_and_not_what_it_could_read(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: a window of 40,960 from the list is believed, and Ollama drops the beginning of every prompt."""
    rows = listed("loaded:8b", "idle:8b", owner="library", context_length=40_960)
    with Server(rows, running=[{"model": "loaded:8b", "context_length": 16_384}]) as server:
        here(monkeypatch, server)
        cli("init")
    limits = {seat.model: (seat.max_context_tokens, seat.max_output_tokens) for seat in written().seats}
    assert limits == {"loaded:8b": (4_096, 2_048), "idle:8b": (3_072, 1_024)}


def test_what_llama_cpp_was_trained_for_is_not_its_window(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(listed("model.gguf", owner="llamacpp", meta={"n_ctx_train": 131_072})) as server:
        here(monkeypatch, server)
        cli("init")
    assert {seat.context_window for seat in written().seats} == {None}


def test_a_server_here_that_wants_a_key_is_told_of(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(listed("a"), key="a key") as server:
        here(monkeypatch, server)
        said = cli("init")
    assert said.code == 0
    assert f"council init --base-url {server.base_url} --api-key-env NAME" in " ".join(said.out.split())


def test_keys_of_the_environment_are_named_and_never_shown(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(variable, SECRET)
    said = [cli("init"), cli("init", "--force", "--json"), cli("init", "--print")]
    assert [each.code for each in said] == [0, 0, 0]
    everything = "".join(each.out + each.err for each in said) + (home / "council.toml").read_text("utf-8")
    assert SECRET not in everything
    assert [(seat.vendor, seat.api_key_env) for seat in written().seats] == [
        ("openai", "OPENAI_API_KEY"),
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("google", "GEMINI_API_KEY"),
    ]
    assert json.loads(said[1].out)["init"]["shared"] == []
    assert written().proposal_tokens_max is not None  # what costs money is capped


def test_without_anything_the_seats_work_by_static_checks(cli: Cli, home: Path) -> None:
    said = cli("init")
    assert said.code == 0
    assert written().seats == DEFAULT_SEATS
    assert "static checks, no model" in said.out
    # The lines of a model only want their # taken away.
    text = (home / "council.toml").read_text("utf-8")
    lines = [
        line.removeprefix("# ") if re.match(r"# (\[seats|\w+ = )", line) else line
        for line in text.splitlines()
    ]
    kept = [line for line in lines if not line.startswith("council_usd_max")]  # which wants prices
    (home / "other.toml").write_text("\n".join(kept), encoding="utf-8")
    assert models(written("other.toml")) == ["qwen3:8b"] * 3


def test_a_server_that_hangs_keeps_nobody_waiting(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init, "LOOK_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setattr(servers, "LOCAL", (f"http://127.0.0.1:{mute.getsockname()[1]}/v1",))
        assert cli("init").code == 0
    assert written().seats == DEFAULT_SEATS


def test_all_servers_are_looked_for_at_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hang up when the third has been asked. Mutation: one after another, each waits for its whole limit."""
    monkeypatch.setattr(init, "LOOK_S", HANG_S)
    with socket.create_server(("127.0.0.1", 0)) as mute, Server(listed("qwen3:8b")) as server:
        hanging = [f"http://127.0.0.1:{mute.getsockname()[1]}/v{number}" for number in range(3)]
        monkeypatch.setattr(servers, "LOCAL", (*hanging, server.base_url))

        def hang_up() -> None:
            for line in [mute.accept()[0] for _ in hanging]:
                line.close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        assert cli("init").code == 0
        hanging_up.join()
    assert models(written()) == ["qwen3:8b"] * 3


def test_what_answers_there_may_be_anything(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [
        *listed('quo"ted\\name', "fine"),
        *listed("two\nlines", "\x1b[31mred", "", "ü", "x" * 200, "a b"),
        {"id": 7},
        {"no": "id"},
        "text",
        None,
        {"id": "fine2", "meta": "none", "max_model_len": "many"},
    ]
    with Server(rows) as server:
        here(monkeypatch, server)
        said = cli("init")
    assert said.code == 0
    assert models(written()) == ['quo"ted\\name', "fine", "fine2"]
    assert "\x1b" not in said.out
    for document in ([1], {"data": {}}, {"data": None}, "text", None):
        with Server() as server:
            server._documents["/v1/models"] = document  # type: ignore[assignment]
            here(monkeypatch, server)
            assert cli("init", "--print").code == 0


@settings(max_examples=tried(30))
@given(st.lists(st.from_regex(r"\A[\x21-\x7e]{1,40}\Z"), min_size=1, max_size=4, unique=True))
def test_any_name_of_a_model_comes_back_from_the_file(names: list[str]) -> None:
    listing = servers.Listing("http://127.0.0.1:1/v1", "vLLM", dict.fromkeys(names))
    choices = starter.choose([listing], [], None)
    text = tomllib.loads(starter.text(choices, [listing]))
    assert [seat["model"] for seat in text.get("seats", {}).values()] == [each.model for each in choices]


def test_a_council_runs_with_what_was_written(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.load_sdk()
    with Server(
        listed("qwen3:8b", "other:1b"),
        {name: [says(ballot(), usage=used(650))] for name in ("qwen3:8b", "other:1b")},
    ) as server:
        here(monkeypatch, server)
        assert cli("init").code == 0
        said = cli("propose", "Rotate the staging key", "--inline", "--json")
        assert len(server.requests) >= 2
    decision = json.loads(said.out)
    assert (said.code, decision["outcome"]) == (0, "approved")
    assert decision["shared"][0][0] == "model qwen3:8b"


# A server that is named


def test_a_server_is_named_with_its_key_and_models(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("THEIR_KEY", SECRET)
    with Server(listed("a/big", "b/small"), key=SECRET) as server:
        told = ["--base-url", server.base_url.removesuffix("/v1"), "--api-key-env", "THEIR_KEY"]
        said = cli("init", *told, "--model", "b/small", "--model", "a/big")
        assert ("/v1/models", f"Bearer {SECRET}") in server.asked
    assert said.code == 0, said
    assert models(written()) == ["b/small", "a/big", "b/small"]
    assert {(seat.api_key_env, seat.base_url) for seat in written().seats} == {("THEIR_KEY", server.base_url)}
    assert SECRET not in said.out + said.err + (home / "council.toml").read_text("utf-8")


def test_a_server_that_refuses_is_an_error_without_its_key(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", SECRET)
    with Server(listed("a"), key="another") as server:
        with_key = cli("init", "--base-url", server.base_url, "--api-key-env", "THEIR_KEY")
        without = cli("init", "--base-url", server.base_url)
    assert (with_key.code, without.code) == (4, 4)
    assert "refuses the key (401)" in with_key.err
    assert "wants a key (401)" in without.err
    assert SECRET not in with_key.err
    assert not Path("council.toml").exists()


def test_a_key_is_sent_nowhere_else(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: a redirection is followed, and the key with it."""
    monkeypatch.setenv("THEIR_KEY", SECRET)
    with Server(listed("a")) as elsewhere, Server(moved=f"{elsewhere.base_url}/models") as server:
        said = cli("init", "--base-url", server.base_url, "--api-key-env", "THEIR_KEY")
        assert (said.code, elsewhere.asked) == (4, [])


def test_a_key_is_not_sent_to_ollamas_own_path(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", SECRET)
    with Server(listed("qwen3:8b", owner="library"), key=SECRET) as server:
        assert cli("init", "--base-url", server.base_url, "--api-key-env", "THEIR_KEY").code == 0
    assert "/api/ps" not in [path for path, _ in server.asked]


def test_the_usual_port_names_only_a_server_of_an_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, kind in (("vllm", "vLLM"), ("llamacpp", "llama.cpp"), ("unknown", "Ollama")):
        with Server(listed("one", owner=owner, max_model_len=8_192)) as server:
            monkeypatch.setattr(servers, "_OLLAMAS_PORT", urlsplit(server.base_url).port)
            found = servers.ask(server.base_url, None, HANG_S)
        assert (found.kind, found.window("one")) == (kind, None if kind == "Ollama" else 8_192)


def test_a_server_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: each read has the whole time-out to itself."""
    clock = itertools.count(0, 2 * HANG_S)
    monkeypatch.setattr(servers, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b" ")

        dripping = threading.Thread(target=drip)
        dripping.start()
        with pytest.raises(Unreachable, match="it did not answer in time"):
            servers.ask(f"http://127.0.0.1:{listening.getsockname()[1]}/v1", None, HANG_S)
        dripping.join()


def test_wrong_usage_says_what_is_wrong(cli: Cli) -> None:
    for arguments, words in (
        ("--base-url 127.0.0.1:8000", "expected http://host/v1"),
        ("--base-url http://me:secret@host/v1", "without name, password"),
        ("--base-url http://127.0.0.1:1/v1 --api-key-env COUNCIL_KEY", "not COUNCIL_"),
        ("--base-url http://127.0.0.1:1/v1 --api-key-env NOT_SET", "is not set"),
        ("--api-key-env NOT_SET", "give the server"),
        ("--model qwen3:8b", "no server runs here"),
    ):
        said = cli("init", *arguments.split())
        assert said.code == 2
        assert words in " ".join(said.err.split())
        assert "secret" not in said.err
    assert not Path("council.toml").exists()


def test_a_model_that_is_not_there_is_wrong_usage(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(listed("qwen3:8b")) as server:
        here(monkeypatch, server)
        said = cli("init", "--model", "qwen3:8")
    assert said.code == 2
    assert "did you mean qwen3:8b?" in " ".join(said.err.split())


# The file


def test_a_file_that_is_there_stays_unless_forced(cli: Cli, home: Path) -> None:
    file = home / "council.toml"
    file.write_text("quorum = 3\n", encoding="utf-8")
    said = cli("init")
    assert said.code == 2
    assert "--force" in said.err
    assert file.read_text("utf-8") == "quorum = 3\n"
    assert cli("init", "--force").code == 0
    assert "quorum = 3" not in file.read_text("utf-8")
    said = cli("init", "--config", "no/such/folder/council.toml")
    assert (said.code, "can't be written" in said.err) == (2, True)
    (home / "link.toml").symlink_to(home / "nowhere")
    assert cli("init", "--config", "link.toml").code == 2


def test_print_shows_what_would_be_written_and_writes_nothing(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(listed("a" * 100)) as server:  # longer than a line of the terminal
        here(monkeypatch, server)
        shown = cli("init", "--print").out
        assert list(home.iterdir()) == []
        cli("init", "--config", "mine.toml")
    assert (home / "mine.toml").read_text("utf-8") == shown
    assert not (home / "council.toml").exists()


def test_a_file_that_would_not_be_read_is_not_written(cli: Cli, home: Path) -> None:
    """A folder with both is an error for every other command."""
    (home / "pyproject.toml").write_text("[tool.council]\nquorum = 2\n", encoding="utf-8")
    said = cli("init")
    assert said.code == 2
    assert "[tool.council]" in said.err
    assert not (home / "council.toml").exists()
    assert cli("init", "--config", "mine.toml").code == 0
    for text in ("[tool.other]\n", "no TOML"):
        (home / "pyproject.toml").write_text(text, encoding="utf-8")
        assert cli("init", "--force").code == 0


def test_a_file_is_written_whole_or_stays_as_it_was(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "council.toml"
    file.write_text("quorum = 2\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        said = cli("init", "--force")
    assert (said.code, "No space left" in said.err) == (2, True)
    with monkeypatch.context() as patch:
        patch.setattr(starter, "text", lambda *_: "quorum = 0\n")
        assert cli("init", "--force").code == 2
    assert file.read_text(encoding="utf-8") == "quorum = 2\n"
    assert cli("init", "--force").code == 0
    assert file.stat().st_mode & 0o777 == 0o644
    os.mkfifo(home / "pipe")
    assert cli("init", "--force", "--config", "pipe").code == 2  # and nobody is waited for


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_is_written_is_judged_with_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: it says that the file is valid, and the next command fails."""
    monkeypatch.setenv("COUNCIL_QUORUM", "9")
    said = cli("init")
    assert said.code == 2
    assert "COUNCIL_QUORUM" in said.err
    assert "valid" not in said.out
