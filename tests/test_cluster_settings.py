"""The settings of a council on a cluster: where seats may run, and which Ray is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from council.cli import reach
from council.cli.report import UsageFault
from council.config.load import load
from council.protocol.errors import ConfigError

FILE = """
ray_insecure = true
[seats.prime]
resources = {GPU = 1, CPU = 0.5}
labels = {"council.seats" = "yes", "ray.io/accelerator-type" = "A100"}
runtime_env = {pip = ["torch"], env_vars = {A = "b"}}
"""


def test_a_seat_says_what_it_needs_of_its_node(tmp_path: Path) -> None:
    (tmp_path / "council.toml").write_text(FILE)
    loaded = load(
        start=tmp_path, env={"COUNCIL_SEATS__LITE__LABELS": "{zone = 'a'}", "COUNCIL_RAY_SHIP": "yes"}
    )
    prime, lite, codemind = loaded.config.seats
    assert prime.resources == {"GPU": 1, "CPU": 0.5}
    assert prime.labels["ray.io/accelerator-type"] == "A100"
    assert prime.runtime_env == {"pip": ["torch"], "env_vars": {"A": "b"}}
    assert lite.labels == {"zone": "a"}
    assert (codemind.resources, codemind.labels, codemind.runtime_env) == ({}, {}, {})
    assert (loaded.config.ray_insecure, loaded.config.ray_ship) == (True, True)
    assert loaded.origins["seats.lite.labels"] == "environment COUNCIL_SEATS__LITE__LABELS"


def test_what_ray_would_read_otherwise_is_refused_with_the_key() -> None:
    """Ray reads more than equality in a label that is asked for: "!a", "in(a,b)"."""
    amounts: list[Any] = [{"GPU": 0}, {"GPU": -1}, {"GPU": True}, {"": 1}, {"GPU": float("inf")}]
    labels: list[Any] = [{"zone": "!a"}, {"zone": "in(a,b)"}, {"zone": ""}, {"a b": "c"}, ["zone"]]
    for key, values in {"resources": amounts, "labels": labels, "runtime_env": ["torch"]}.items():
        for value in values:
            with pytest.raises(ConfigError, match=f"seats.prime.{key.replace('_', '-')}.*expected a table"):
                load(env={}, start=Path("/"), flags={f"seats.prime.{key}": value})


def test_rays_own_variable_names_the_ray(tmp_path: Path) -> None:
    (tmp_path / "council.toml").write_text('ray_address = "file:1"')
    both = {"RAY_ADDRESS": "ray:1", "COUNCIL_RAY_ADDRESS": "own:1"}
    found: list[tuple[dict[str, str], str, str]] = [
        ({}, "file:1", "council.toml"),
        ({"RAY_ADDRESS": "ray:1"}, "ray:1", "environment RAY_ADDRESS"),
        (both, "own:1", "environment COUNCIL_RAY_ADDRESS"),
        ({"RAY_ADDRESS": "local"}, "file:1", "council.toml"),
        ({"RAY_ADDRESS": " "}, "file:1", "council.toml"),
    ]
    for env, address, origin in found:
        loaded = load(start=tmp_path, env=env)
        assert loaded.config.ray_address == address
        assert loaded.origins["ray_address"].endswith(origin)


def test_a_file_that_lies_around_does_not_say_that_no_token_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "council.toml").write_text("ray_insecure = true")
    with pytest.raises(UsageFault, match="give --insecure"):
        reach.Where().refuse_insecure_found()
    reach.Where(config=tmp_path / "council.toml").refuse_insecure_found()
    reach.Where(insecure=True).refuse_insecure_found()
    (tmp_path / "council.toml").write_text("ray_insecure = false")
    reach.Where().refuse_insecure_found()
