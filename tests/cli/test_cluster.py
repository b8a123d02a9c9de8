"""``council cluster check``: whether Ray's own validator takes a launcher's file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .conftest import Cli

ROOT = Path(__file__).parent.parent.parent
OURS = (ROOT / "cluster.yaml").read_text(encoding="utf-8")


def test_our_own_file_is_taken_and_nothing_is_said_of_it(cli: Cli) -> None:
    said = cli("cluster", "check", str(ROOT / "cluster.yaml"))
    assert (said.code, said.err) == (0, "")
    assert said.out.split()[-4:] == ["ray", "up", "takes", "it"]


def test_what_rays_validator_refuses_is_told_in_its_words(cli: Cli, home: Path) -> None:
    file = home / "cluster.yaml"
    for before, after, key, words in (
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
    ):
        assert OURS.count(before) == 1
        file.write_text(OURS.replace(before, after), encoding="utf-8")
        said = cli("cluster", "check", str(file), "--json")
        [finding] = json.loads(said.out)["findings"]
        assert (said.code, finding["level"], finding["key"]) == (1, "fail", key or str(file))
        assert words in finding["said"]
    shown = " ".join(cli("cluster", "check", "cluster.yaml").out.split())
    assert shown.startswith("✗ fail cluster.yaml ")
    assert words in shown


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


def test_what_is_no_clusters_file_is_wrong_usage(cli: Cli, home: Path) -> None:
    file = home / "some.yaml"
    for text, words in (
        (None, "can't be read: No such file"),
        ("a: [", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("&a [*a]", "is not a cluster file"),
        ("- a\n", "is not a cluster file"),
        ("", "is not a cluster file"),
    ):
        if text is not None:
            file.write_text(text, encoding="utf-8")
        said = cli("cluster", "check", "some.yaml")
        assert (said.code, said.out) == (2, "")
        assert words in said.err
