"""The files by which clusters are launched: valid by Ray's own schema and validator, and never in another's way."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
LAUNCHED = [ROOT / "cluster.yaml", DEPLOY / "aws.yaml"]
launched = pytest.mark.parametrize("path", LAUNCHED, ids=lambda path: path.name)


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def schema() -> dict[str, Any]:
    spec = find_spec("ray")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "autoscaler/ray-schema.json"
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def pinned(package: str) -> str:
    """The version that this project is tested with."""
    found = re.search(rf"^{package}(?:\[\w+\])?==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert found is not None
    return found[1]


@launched
def test_ray_takes_it_as_it_stands(path: Path) -> None:
    """The schema sees the file, the validator what Ray makes of it; a wrong key is an error of the first."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    raw = read(path)
    jsonschema.validate(raw, schema())
    complete = prepare_config(raw)
    validate_config(complete)
    with pytest.raises(jsonschema.ValidationError, match="'head_start_ray_command' was unexpected"):
        jsonschema.validate({**raw, "head_start_ray_command": []}, schema())


@launched
def test_every_command_is_ours_and_none_stops_another_ray(path: Path) -> None:
    """What a file leaves out, Ray fills in with commands of its own, and these begin with `ray stop`."""
    from ray.autoscaler._private.util import prepare_config

    complete = prepare_config(read(path))
    commands = [each for key, value in complete.items() if key.endswith("_commands") for each in value]
    for kind in complete["available_node_types"].values():
        commands += kind.get("worker_setup_commands", [])
    assert len(commands) >= 7
    assert not [each for each in commands if re.search(r"ray\s+(stop|down|teardown)|pkill|killall", each)]
    for key, what in (
        ("head_start_ray_commands", "head"),
        ("worker_start_ray_commands", 'worker "$RAY_HEAD_IP"'),
    ):
        (command,) = complete[key]
        assert command.endswith(f"/.council/ray-node {what}")
    assert complete["file_mounts"]["~/.council/ray-node"] == "./deploy/ray-node"
    assert any("chmod 600 ~/.council/ray.token" in each for each in complete["setup_commands"])


@launched
def test_what_is_installed_is_what_this_project_is_tested_with(path: Path) -> None:
    from council import __version__

    text = path.read_text(encoding="utf-8")
    assert re.findall(r"ray\[default\]==([\d.]+)", text) == [pinned("ray")]
    assert set(re.findall(r"council-runtime\[[\w,]+\]==([\d.]+)", text)) == {__version__}


def test_on_aws_each_machine_has_an_image_and_makes_its_environment_of_the_python_there() -> None:
    """Mutation: to leave the image to Ray 2.60, whose own are of Ubuntu 18.04, where Python is too old."""
    found = read(DEPLOY / "aws.yaml")
    images = [kind["node_config"]["ImageId"] for kind in found["available_node_types"].values()]
    assert all(re.fullmatch("ami-[0-9a-f]{17}", each) for each in images)
    venv = [each for each in found["setup_commands"] if "venv" in each]
    assert "install python3-venv" in venv[0]
    assert "python3 -m venv" in venv[1]
    marked = (DEPLOY / "aws.yaml").read_text(encoding="utf-8").split("marked <--.")[1]
    assert (marked.count("<--"), "Change the three lines" in (DEPLOY / "aws.yaml").read_text()) == (3, True)


def test_a_machines_own_part_sets_what_ray_leaves_open() -> None:
    """That it starts, ends, and leaves others alone is tried in tests/ray/test_cluster.py."""
    text = (DEPLOY / "ray-node").read_text(encoding="utf-8")
    code = "\n".join(line.partition("# ")[0] for line in text.splitlines() if not line.startswith("#"))
    assert "RAY_AUTH_MODE=token" in code
    assert "umask 077" in code
    assert "--dashboard-host=127.0.0.1" in code
    assert '--port="$port"' in code
    assert "ray stop" not in code
    limits = {key: int(value) for key, value in re.findall(r"RAY_health_check_(\w+)=(\d+)", code)}
    seconds = (limits["period_ms"] + limits["timeout_ms"]) * limits["failure_threshold"] / 1000
    assert seconds + limits["initial_delay_ms"] / 1000 == 9  # as its comment and kuberay.yaml's say
    assert subprocess.run(["bash", "-n", str(DEPLOY / "ray-node")], check=False).returncode == 0


def ray_node(home: Path, *arguments: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(home), "PATH": path}
    return subprocess.run([str(DEPLOY / "ray-node"), *arguments], env=env, capture_output=True, text=True)


def test_a_wrong_call_of_it_shows_how_it_is_called(tmp_path: Path) -> None:
    for arguments in ("", "heads", "worker", "head --prot 1", "head --port", "worker a --home"):
        done = ray_node(tmp_path, *arguments.split())
        assert done.returncode == 2, arguments
        assert "ray-node worker HOST [options]" in done.stderr
        assert done.stderr.endswith("--labels=accelerator=a100\n")  # whole, and no line of the code


def test_without_a_token_it_starts_nothing(tmp_path: Path) -> None:
    done = ray_node(tmp_path, "head", "--home", str(tmp_path / "home"))
    assert (done.returncode, "there is no token in" in done.stderr) == (1, True)
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_a_ray_that_does_not_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    """Mutation: to leave the process, which may start yet, and its id behind."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "ray.token").write_text("a")
    ray = tmp_path / "bin/ray"
    ray.parent.mkdir()
    ray.write_text('#!/bin/sh\necho "port 6379 is taken, mode $RAY_AUTH_MODE, $*"; exit 1\n')
    ray.chmod(0o700)
    path = f"{ray.parent}:/usr/bin:/bin"
    done = ray_node(tmp_path, "worker", "192.0.2.10", "--home", str(folder), "--", "--labels=a=b", path=path)
    assert done.returncode == 1
    told = "mode token, start --block --disable-usage-stats --address=192.0.2.10:6379 --labels=a=b"
    assert told in done.stderr
    assert not (folder / "ray-node.pid").exists()
    assert (folder / "ray.token").stat().st_mode & 0o777 == 0o600


# Orphans below it become its children, which it never waits for: as below a driver of Ray, or without an init.
HEEDLESS = """
import ctypes, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
for what in ("head", "end"):
    subprocess.run([sys.argv[1], what, "--home", sys.argv[2]], check=True)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers")
def test_a_node_that_its_parent_does_not_wait_for_is_seen_to_end(tmp_path: Path) -> None:
    """It stayed for 40 s, and then the end failed: a zombie has an id, too."""
    ray = tmp_path / "bin" / "ray"
    ray.parent.mkdir()
    ray.write_text("#!/bin/sh\necho Ray runtime started\nexec sleep 600\n")
    ray.chmod(0o700)
    (tmp_path / "ray.token").write_text("0" * 64)
    command = [sys.executable, "-c", HEEDLESS, str(DEPLOY / "ray-node"), str(tmp_path)]
    env = {**os.environ, "PATH": f"{ray.parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ray-node.pid").exists()


def test_a_node_that_an_earlier_version_started_is_ended(tmp_path: Path) -> None:
    """Mutation: to compare only with the form of the time that this version keeps."""
    node = subprocess.Popen(["sleep", "600"])
    try:
        began = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(node.pid)], capture_output=True, text=True, check=True
        )
        (tmp_path / "ray-node.pid").write_text(f"{node.pid}\n{began.stdout}")
        subprocess.run([str(DEPLOY / "ray-node"), "end", "--home", str(tmp_path)], check=True, timeout=HANG_S)
        assert node.wait(HANG_S) == -15
    finally:
        node.kill()
        node.wait()


def test_the_ray_cluster_of_kubernetes_holds_together() -> None:
    """What can be seen without a cluster: its own definitions are checked by KubeRay when it is applied."""
    cluster, policy = yaml.safe_load_all((DEPLOY / "kuberay.yaml").read_text(encoding="utf-8"))
    spec = cluster["spec"]
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    assert spec["authOptions"] == {"mode": "token"}
    assert spec["rayVersion"] == pinned("ray")
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    images = set()
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        images.add(container["image"])
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["RAY_health_check_timeout_ms"] == "2000"
        assert environment["COUNCIL_STORE"].startswith("postgresql://")
        # A password is a secret of Kubernetes'; none stands in the file. Mounted, it would be root's: Ray's image
        # has a user of its own, and libpq passes over a file that a group may read, as fsGroup would have it.
        assert "volumes" not in pod
        (password,) = (each["valueFrom"] for each in container["env"] if each["name"] == "PGPASSWORD")
        assert password == {"secretKeyRef": {"name": "council-postgres", "key": "password"}}
    assert len(images) == 1
    (workers,) = spec["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    label = {"ray.io/cluster": cluster["metadata"]["name"]}
    assert policy["spec"]["podSelector"]["matchLabels"] == label
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {"matchLabels": label}}]}]


def test_the_unit_of_the_head_brings_it_back(tmp_path: Path) -> None:
    path = DEPLOY / "council-ray-head.service"
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text(encoding="utf-8"))
    assert unit["Service"]["Restart"] == "always"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert unit["Service"]["ExecStart"].endswith("ray-node head --port 6379 --foreground")
    text = path.read_text(encoding="utf-8")
    assert "Environment=RAY_gcs_storage=rocksdb" in text
    assert "ALPHA" in text.partition("Environment=RAY_gcs_storage=rocksdb")[0]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd's own check of units is not here")
    here = text.replace("/home/council/.council/ray-node", "/bin/sh")  # it looks whether that is there
    (tmp_path / path.name).write_text(here, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / path.name)], capture_output=True, text=True, check=False
    )
    assert not [line for line in done.stderr.splitlines() if path.name in line], done.stderr


def test_the_page_on_security_names_every_file_and_no_more() -> None:
    page = (DEPLOY / "SECURITY.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w-]+\.yaml)|ray-node)`", page))
    assert named == {"cluster.yaml", "aws.yaml", "kuberay.yaml", "ray-node"}
    if shutil.which("nft") is not None:
        (rules,) = re.findall(r"```\n(table .*?)```", page, re.S)
        done = subprocess.run(["nft", "--check", "--file", "-"], input=rules, text=True, capture_output=True)
        assert done.returncode == 0 or "Operation not permitted" in done.stderr, done.stderr
