"""A council on a real cluster of several nodes, brought up by command as a user does.

The nodes are started by deploy/ray-node, with a token, beside whatever Ray the machine has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import HANG_S, until
from tests.ray.nodes import Nodes, free_port
from tests.ray.shells import Shell, alive, below

pytestmark = [pytest.mark.ray, pytest.mark.long]
SETTINGS = """
[seats.prime]
labels = {role = "big"}
resources = {gpuish = 1}
runtime_env = {env_vars = {OF_PRIME = "yes"}}
"""


@pytest.fixture(scope="package", autouse=True)
def a_ray() -> None:
    """No Ray in this process: these tests have one of several nodes beside it."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """A head and one node more, which has what Prime asks for."""
    found = Nodes("--include-dashboard=true")
    try:
        found.start("--labels=role=big", '--resources={"gpuish": 1}')
        yield found
    finally:
        found.end()


@pytest.fixture
def shell(tmp_path: Path, nodes: Nodes) -> Shell:
    found = Shell(tmp_path)
    found.env = {key: value for key, value in found.env.items() if not key.startswith("RAY_")}
    found.env["RAY_AUTH_TOKEN_PATH"] = str(nodes.token)
    return found


JOB = """
import sys
from council import Council
with Council.launch(store="memory", ray_namespace=sys.argv[1]) as council:
    print("decided:", council.propose("Raise the cache limit").outcome)
"""


def submit_a_job(nodes: Nodes, shell: Shell, namespace: str) -> None:
    """It launches on the cluster that it runs on. Mutation: without RAY_ADDRESS it starts a Ray inside of that."""
    job = shell.folder / "job"
    job.mkdir()
    (job / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--working-dir", str(job)]
    command += [
        "--address",
        f"http://127.0.0.1:{nodes.dashboard_port}",
        "--",
        sys.executable,
        "job.py",
        namespace,
    ]
    environment = {**shell.env, "RAY_AUTH_MODE": "token"}

    def submitted() -> subprocess.CompletedProcess[str] | None:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        # What runs jobs on a node is up some seconds after the node.
        return None if "No available agent" in done.stderr + done.stdout else done

    done = until(submitted)
    assert done is not None
    assert "decided: approved" in done.stdout, done.stdout + done.stderr


def test_a_council_is_spread_over_the_nodes_and_found_by_rays_own_variable(
    nodes: Nodes, shell: Shell
) -> None:
    """Mutations: without a node's label the seats lie together now and then; without RAY_ADDRESS nobody is found."""
    (shell.folder / "council.toml").write_text(SETTINGS)
    up = shell.run("up", "--address", nodes.address)
    assert up.returncode == 0, up.stderr
    assert "its journal is a file on this node" in up.stdout
    (shell.folder / "council.toml").unlink()
    try:
        # Another user's shell, which knows the cluster from its surroundings alone.
        stranger = Shell(shell.folder / "stranger")
        stranger.folder.mkdir()
        stranger.env = {**shell.env, "XDG_STATE_HOME": str(stranger.folder), "RAY_ADDRESS": nodes.address}
        placement = stranger.told("status")["placement"]
        assert (placement["nodes"], placement["pinned"]) == (2, True)
        seats = {name: place["node"] for name, place in placement["seats"].items()}
        # Four actors on two nodes; Prime's has what it asks for, and is not the coordinator's.
        assert [*seats.values(), placement["coordinator"]["node"]].count(seats["prime"]) == 2
        assert seats["prime"] != placement["coordinator"]["node"]
        assert "2 nodes: coordinator on" in shell.run("status").stdout
        assert shell.told("propose", "Raise the cache limit", "--wait-for", "all")["outcome"] == "approved"
        # One who keeps a council by this name is not to lose sight of it; another namespace may have one as well.
        shell.env, before = {**shell.env, "COUNCIL_RAY_NAMESPACE": "other"}, shell.env
        taken = shell.run("up", "--address", nodes.address)
        assert (taken.returncode, "was brought up from here already" in taken.stderr) == (2, True), (
            taken.stderr
        )
        shell.env = before
        submit_a_job(nodes, shell, namespace="other")
    finally:
        assert shell.run("down").returncode == 0


def test_a_token_that_is_not_the_clusters_is_told(nodes: Nodes, shell: Shell) -> None:
    shell.env["RAY_AUTH_TOKEN"] = "of-another-cluster"
    done = shell.run("up", "--address", nodes.address)
    assert (done.returncode, f"is not that of the Ray at {nodes.address}" in done.stderr) == (4, True), (
        done.stderr
    )
    assert "Traceback" not in done.stderr


def test_a_machine_that_is_no_node_is_told(nodes: Nodes, shell: Shell) -> None:
    """In a namespace of its own a process sees no Ray beside it, as on another machine."""
    alone = ["unshare", "--fork", "--pid", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let a process be by itself")
    command = [*alone, sys.executable, "-P", "-m", "council.cli", "up", "--address", nodes.address]
    done = subprocess.run(
        command,
        env=shell.env,
        cwd=shell.folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, "is not a node of the Ray at" in done.stderr) == (4, True), done.stderr


def end_alone(nodes: Nodes, home: Path) -> None:
    """Ends a node, and nothing else: not the other nodes, nor a process that has its id by now.

    Mutations: `ray stop` in place of the node's own process; an id alone, without when the process began.
    """
    kept, aside = home / "ray-node.pid", home / "aside"
    pid, other = nodes.pid(home), subprocess.Popen(["sleep", "600"])
    try:
        kept.rename(aside)
        kept.write_text(f"{other.pid}\nMon Jan  1 00:00:00 2001\n")
        nodes.tell(home, "end")
        assert (other.poll(), kept.exists(), alive({pid})) == (None, False, {pid})
    finally:
        other.kill()
        other.wait()
        aside.rename(kept)
        nodes.tell(home, "end")
    assert not alive({pid})
    others = {nodes.pid(each) for each in nodes.running()}
    assert others
    assert alive(others) == others


def test_a_node_without_the_package_is_named_and_can_be_sent_it(
    nodes: Nodes, shell: Shell, tmp_path: Path
) -> None:
    """Its Python has Ray and what the package depends on, but not the package."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    (site,) = (bare / "lib").glob("python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if (
        subprocess.run([bare / "bin/python", "-P", "-c", "import council"], capture_output=True).returncode
        == 0
    ):
        pytest.skip("the package itself lies beside what it depends on here")
    home = nodes.start(python=str(bare / "bin/python"))
    try:
        done = shell.run("up", "--address", nodes.address)
        told = ("(no module council)" in done.stderr, "--ship" in done.stderr, "Traceback" in done.stderr)
        assert (done.returncode, *told) == (4, True, True, False), done.stderr
        up = shell.run("up", "--address", nodes.address, "--ship")
        assert up.returncode == 0, up.stderr
        placement = shell.told("status")["placement"]
        assert len({place["node"] for place in placement["seats"].values()}) >= 2
        assert shell.told("propose", "Raise the cache limit", "--wait-for", "all")["outcome"] == "approved"
        assert shell.run("down").returncode == 0
    finally:
        end_alone(nodes, home)


def test_a_cluster_without_a_token_is_refused_unless_that_is_said(tmp_path: Path) -> None:
    """Mutation: to believe one's own RAY_AUTH_MODE, for it says nothing of the cluster's."""
    shell = Shell(tmp_path)
    shell.env = {key: value for key, value in shell.env.items() if not key.startswith("RAY_")}
    shell.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "shown-to-nobody"}
    port, folder = free_port(), Path(os.path.realpath("/tmp")) / f"co-{os.getpid()}"
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += [f"--temp-dir={folder}", "--include-dashboard=false", "--num-cpus=2", "--disable-usage-stats"]
    command += ["--object-store-memory=80000000"]
    head = subprocess.Popen(
        command,
        env={**shell.env, "RAY_AUTH_MODE": "disabled"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert head.stdout is not None
        until(lambda: b"Ray runtime started" in head.stdout.readline())  # type: ignore[union-attr]
        refused = shell.run("up", "--address", f"127.0.0.1:{port}")
        assert (refused.returncode, "demands no token" in refused.stderr) == (2, True), refused.stderr
        assert "--insecure" in refused.stderr
        up = shell.run("up", "--address", f"127.0.0.1:{port}", "--insecure")
        assert (up.returncode, "anybody who reaches its ports" in up.stdout) == (0, True), up.stderr
        assert shell.run("down").returncode == 0  # else the node waits half a minute for it when it is ended
    finally:
        family = below(head.pid)
        head.terminate()
        head.wait(HANG_S)
        until(lambda: not alive(family))
        shutil.rmtree(folder, ignore_errors=True)
