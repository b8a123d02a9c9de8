"""``council cluster check``: whether Ray's own validator takes a launcher's file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Cli

ROOT = Path(__file__).parent.parent.parent
OURS = (ROOT / "cluster.yaml").read_text(encoding="utf-8")


@pytest.fixture
def placed(home: Path) -> Path:
    """Our file where it may be changed."""
    file = home / "cluster.yaml"
    file.write_text(OURS, encoding="utf-8")
    return file


def changed(file: Path, before: str, after: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")


def findings(cli: Cli, file: Path) -> tuple[int, list[tuple[str, str, str]]]:
    said = cli("cluster", "check", str(file), "--json")
    told = json.loads(said.out)
    assert (told["file"], told["exit_code"]) == (str(file), said.code)
    return said.code, [(each["level"], each["key"], each["said"]) for each in told["findings"]]


def test_our_own_file_is_taken_and_nothing_is_said_of_it(cli: Cli, placed: Path) -> None:
    said = cli("cluster", "check", "cluster.yaml")
    assert (said.code, said.err) == (0, "")
    assert said.out.split() == ["✓", "ok", "cluster.yaml", "ray", "up", "takes", "it"]


@pytest.mark.parametrize(
    ("before", "after", "key", "said"),
    [
        ("head_start_ray_commands", "head_start_ray_command", "", "'head_start_ray_command' was unexpected"),
        ("    ssh_user: council", "    sshuser: council", "auth", "'sshuser' was unexpected"),
        ("minutes: 1440", "minutes: a day", "idle_timeout_minutes", "is not of type 'number'"),
        (
            "type: local",
            "type: loca",
            "",
            "ray up ends with NotImplementedError: Unsupported node provider: loca",
        ),
        ("provider:", "providers:", "", "ray up ends with KeyError: 'provider'"),
    ],
)
def test_what_rays_validator_refuses_is_told_in_its_words(
    cli: Cli, placed: Path, before: str, after: str, key: str, said: str
) -> None:
    changed(placed, before, after)
    code, [(level, at, told)] = findings(cli, placed)
    assert (code, level, at) == (1, "fail", key or str(placed))
    assert said in told
    shown = " ".join(cli("cluster", "check", "cluster.yaml").out.split())
    assert shown.startswith("✗ fail cluster.yaml ")
    assert said in shown


def test_the_file_for_aws_is_taken_without_a_word_of_rays(home: Path) -> None:
    """Mutation: what Ray's launcher logs of what it fills in, before the findings."""
    command = [
        sys.executable,
        "-m",
        "council.cli",
        "cluster",
        "check",
        str(ROOT / "deploy/aws.yaml"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read: No such file"),
        ("a: [", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("&a [*a]", "is no cluster's file"),
        ("- a\n", "is no cluster's file"),
        ("", "is no cluster's file"),
        ((ROOT / "deploy/kuberay.yaml").read_text(encoding="utf-8"), "is not YAML"),
    ],
)
def test_what_is_no_clusters_file_is_wrong_usage(cli: Cli, home: Path, text: str | None, said: str) -> None:
    if text is not None:
        (home / "some.yaml").write_text(text, encoding="utf-8")
    told = cli("cluster", "check", "some.yaml")
    assert (told.code, told.out) == (2, "")
    assert said in told.err
