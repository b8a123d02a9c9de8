"""``council cluster check``: what is wrong with a launcher's file, by Ray's own schema, its validator, and ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .conftest import Cli

ROOT = Path(__file__).parent.parent.parent
OURS = (ROOT / "cluster.yaml").read_text(encoding="utf-8")


@pytest.fixture
def placed(home: Path) -> Path:
    """Our file where it may be changed, with what it sends along beside it."""
    (home / "deploy").mkdir()
    (home / "deploy/ray-node").touch()
    (home / "token").touch()
    (home / "key").touch()
    file = home / "cluster.yaml"
    here = OURS.replace(": ~/.council/ray.token", ": ./token").replace("~/.ssh/council_cluster", "./key")
    file.write_text(here, encoding="utf-8")
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


def test_every_wrong_key_is_told_with_what_was_meant(cli: Cli, placed: Path) -> None:
    """Mutation: the first alone, as Ray's own validator does."""
    changed(placed, "head_start_ray_commands", "head_start_ray_command")
    changed(placed, "    ssh_user: council", "    sshuser: council")
    changed(placed, "idle_timeout_minutes: 1440", "idle_timeout_minutes: a day")
    code, found = findings(cli, placed)
    assert code == 1
    assert {level for level, _, _ in found} == {"fail"}
    by_key = {key: said for _, key, said in found}
    assert by_key.keys() == {"head_start_ray_command", "auth.sshuser", "idle_timeout_minutes"}
    assert by_key["head_start_ray_command"] == "unknown key; did you mean head_start_ray_commands?"
    assert "did you mean ssh_user?" in by_key["auth.sshuser"]
    assert "is not of type 'number'" in by_key["idle_timeout_minutes"]
    assert "auth.sshuser" in cli("cluster", "check", "cluster.yaml").out


def test_what_ray_finds_missing_on_its_way_is_told_before(cli: Cli, placed: Path) -> None:
    """Mutation: to say that ray up takes it, which then ends with KeyError: 'ssh_user'."""
    changed(placed, "    ssh_user: council ", "    # ")
    changed(placed, "ssh_private_key: ./key", "ssh_private_key: ./no-key")
    changed(placed, "head_ip: 192.0.2.10", "head_ip: 127.0.0.1")
    code, found = findings(cli, placed)
    assert (code, [(level, key) for level, key, _ in found]) == (
        1,
        [("fail", "auth.ssh_user"), ("warn", "auth.ssh_private_key"), ("warn", "provider.head_ip")],
    )


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


def test_what_rays_validator_refuses_is_told_in_its_words(cli: Cli, placed: Path) -> None:
    changed(placed, "type: local", "type: loca")
    code, [(level, _, said)] = findings(cli, placed)
    assert (code, level) == (1, "fail")
    assert said == "ray up would not take it: Unsupported node provider: loca"


def test_commands_that_end_every_ray_are_warned_of_also_where_they_are_rays_own(
    cli: Cli, placed: Path
) -> None:
    settings = yaml.safe_load(placed.read_text(encoding="utf-8"))
    del settings["head_start_ray_commands"]
    settings["worker_start_ray_commands"] = [
        "ray  stop --force",
        "RAY_AUTH_MODE=token ray start --address=$RAY_HEAD_IP",
    ]
    placed.write_text(yaml.safe_dump(settings), encoding="utf-8")
    code, found = findings(cli, placed)
    assert code == 0
    heads = [said for level, key, said in found if (level, key) == ("warn", "head_start_ray_commands")]
    assert heads[0].startswith("not given, so that Ray's own are taken: ray stop and its like end every Ray")
    assert heads[1].startswith("without RAY_AUTH_MODE=token")
    [worker] = [said for _, key, said in found if key == "worker_start_ray_commands"]
    assert worker.startswith("ray stop and its like")


def test_a_head_at_a_random_port_and_a_token_that_is_not_there_are_warned_of(cli: Cli, placed: Path) -> None:
    (placed.parent / "token").unlink()
    changed(placed, "~/.council/ray-node head", "RAY_AUTH_MODE=token ray start --head --port=0")
    code, found = findings(cli, placed)
    assert (code, [key for _, key, _ in found]) == (0, ["head_start_ray_commands", "file_mounts"])
    assert "port" in found[0][2]
    assert "there is no ./token" in found[1][2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read: No such file"),
        ("a: [", "is not YAML"),
        ("a: 1\n---\nb: 2\n", "is not YAML"),
        ("&a [*a]", "is not YAML"),
        ("- a\n", "is no cluster's file"),
        ("", "is no cluster's file"),
        (
            (ROOT / "deploy/kuberay.yaml").read_text(encoding="utf-8"),
            "is a manifest of Kubernetes (RayCluster)",
        ),
    ],
)
def test_what_is_no_clusters_file_is_wrong_usage(cli: Cli, home: Path, text: str | None, said: str) -> None:
    if text is not None:
        (home / "some.yaml").write_text(text, encoding="utf-8")
    told = cli("cluster", "check", "some.yaml")
    assert (told.code, told.out) == (2, "")
    assert said in told.err
