"""``council cluster``: looks over a file of Ray's cluster launcher before ``ray up`` does. Starts nothing."""

from __future__ import annotations

import contextlib
import io
import json as jsons
import logging
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from council.cli.options import EXIT_CODES, Json
from council.cli.report import DONE, REJECTED, Report, UsageFault
from council.cli.text import line

app = typer.Typer(help="Look over the file of a Ray cluster, before ray up.", no_args_is_help=True)
FILE_BYTES_MAX = 2**20  # far above any written by hand; a wrong path may be a device
_ENDS_EVERY_RAY = re.compile(r"\bray\s+(?:stop|down|teardown)\b|\b(?:pkill|killall)\b")
_BY_SSH = ("local", "aws", "azure", "gcp")  # what Ray's launcher reaches so, of what it knows
Finding = tuple[str, str, str]


@app.command(epilog=EXIT_CODES)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file; cluster.yaml is one.")],
    json: Json = False,
) -> int:
    """Say what is wrong with a cluster's file: each key, and what to do.

    By Ray's own schema and validator; and, as warnings, what a council wants of a cluster: a token, a port
    that stays, no command that ends somebody else's Ray. Exits 1 where ray up would not take the file.
    """
    raw = _read(file)
    found = list(_by_the_schema(raw)) or list(_as_completed(raw)) or [("ok", str(file), "ray up takes it")]
    code = REJECTED if any(level == "fail" for level, _, _ in found) else DONE
    from council.cli import show

    entries = [{"level": level, "key": key, "said": said} for level, key, said in found]
    shown = show.checks([(level, key or str(file), said) for level, key, said in found])
    return Report(as_json=json).result({"file": str(file), "findings": entries}, shown, code)


def _read(file: Path) -> dict[str, Any]:
    import yaml

    try:
        with file.open("rb") as stream:
            text = stream.read(FILE_BYTES_MAX + 1)
        for each in yaml.safe_load_all(text):
            if isinstance(each, dict) and {"apiVersion", "kind"} <= each.keys():
                raise UsageFault(
                    f"{file} is a manifest of Kubernetes ({line(str(each['kind']), 40)}), which ray up never reads: "
                    "kubectl apply --dry-run=server -f looks it over, by what the cluster's operator knows"
                )
        # As JSON, which Ray's schema is for: a key that is a number or a date becomes a text.
        found = jsons.loads(jsons.dumps(yaml.safe_load(text), default=str))
    except OSError as error:
        raise UsageFault(f"{file} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UsageFault(f"{file} is not YAML as Ray reads it: {line(str(error), 300)}") from error
    if len(text) > FILE_BYTES_MAX or not isinstance(found, dict):
        raise UsageFault(f"{file} is no cluster's file: expected keys and values, as in cluster.yaml")
    return found


def _by_the_schema(raw: dict[str, Any]) -> Iterator[Finding]:
    """All that is wrong with the keys; found, not imported, as Ray takes seconds to be."""
    import jsonschema

    from council.settings import did_you_mean

    spec = find_spec("ray")
    assert spec is not None
    assert spec.submodule_search_locations
    schema = jsons.loads(Path(spec.submodule_search_locations[0], "autoscaler/ray-schema.json").read_bytes())
    for error in jsonschema.validators.validator_for(schema)(schema).iter_errors(raw):
        at = ".".join(map(str, error.absolute_path))
        known = error.schema.get("properties", {})
        if error.validator != "additionalProperties" or not known:
            yield "fail", at, line(error.message, 300)
            continue
        for key in error.instance.keys() - known.keys():
            hint = did_you_mean(key, known) or f"; Ray knows {', '.join(known)}"
            yield "fail", f"{at}.{key}" if at else key, f"unknown key{hint}"


def _as_completed(raw: dict[str, Any]) -> Iterator[Finding]:
    """What Ray's validator says, and what is to be said of what Ray would do, its own defaults included."""
    from council.protocol.errors import ConfigError
    from council.runtime.ray_side import completed

    ray_says = io.StringIO()  # what is wrong it raises as well, and the rest is of no use here
    logging.disable(logging.INFO)
    try:
        with contextlib.redirect_stdout(ray_says), contextlib.redirect_stderr(ray_says):
            complete = completed(raw)
    except ConfigError as error:
        yield "fail", "", line(error.message, 500)
        return
    finally:
        logging.disable(logging.NOTSET)
    yield from _of_ssh(complete)
    mend = "have deploy/ray-node start Ray, as cluster.yaml does"
    for key in (key for key in complete if key.endswith("_commands")):
        commands = "\n".join(map(str, complete[key] or ()))
        if _ENDS_EVERY_RAY.search(commands):
            whose = "" if key in raw else "not given, so that Ray's own are taken: "
            said = f"{whose}ray stop and its like end every Ray of a machine, also somebody else's"
            yield "warn", key, f"{said}; {mend}"
        if "ray start" in commands and "RAY_AUTH_MODE=token" not in commands:
            yield "warn", key, f"without RAY_AUTH_MODE=token Ray may let in whoever reaches it; {mend}"
        if re.search(r"ray start .*--head\b.*--port[= ]0\b", commands):
            yield (
                "warn",
                key,
                "at a port of its own choosing a head that comes back is not found; give --port",
            )
    for source in map(str, complete["file_mounts"].values()):
        if not Path(source).expanduser().exists():
            yield "warn", "file_mounts", _not_here(source)


def _of_ssh(complete: dict[str, Any]) -> Iterator[Finding]:
    """What Ray finds missing only once it is on its way to the machines, with a traceback."""
    provider, auth = complete["provider"], complete["auth"]
    if provider["type"] in _BY_SSH and not auth.get("ssh_user"):
        yield "fail", "auth.ssh_user", "is missing: the user whom ssh logs in as, the same on all machines"
    key = str(auth.get("ssh_private_key") or "")
    if key and not Path(key).expanduser().exists():
        yield "warn", "auth.ssh_private_key", _not_here(key)
    head = str(provider.get("head_ip") or "")
    if provider.get("worker_ips") and (head == "localhost" or head.startswith("127.")):
        yield (
            "warn",
            "provider.head_ip",
            f"as {line(head)} its workers do not reach the head: by what they know it as",
        )


def _not_here(path: str) -> str:
    return f"there is no {line(path)}, seen from here, where ray up is to run"
