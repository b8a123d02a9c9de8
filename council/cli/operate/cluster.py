"""``council cluster``: has Ray validate a file of its cluster launcher."""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from council.cli.options import Json
from council.cli.report import DONE, REJECTED, Report, UsageFault
from council.kinds.text import line

app = typer.Typer(help="Check the file of a Ray cluster before you run ray up.", no_args_is_help=True)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file, such as cluster.yaml.")],
    json: Json = False,
) -> int:
    """Check a cluster file with Ray's own validator.

    Exits 1 with the first error that Ray finds.
    """
    level, key, said = _finding(file)
    from council.cli import overview

    shown = overview.checks([(level, str(file), f"{key}: {said}" if key else said)])
    document = {"file": str(file), "findings": [{"level": level, "key": key or str(file), "said": said}]}
    return Report(as_json=json).result(document, shown, DONE if level == "ok" else REJECTED)


def _finding(file: Path) -> tuple[str, str, str]:
    cluster = _read(file)
    from council.protocol.errors import ConfigError
    from council.protocol.extras import require_ray

    require_ray("council cluster check")
    from council.cluster.port import check_cluster

    aside = io.StringIO()  # Ray prints while it completes the file
    logging.disable(logging.INFO)
    try:
        with contextlib.redirect_stdout(aside), contextlib.redirect_stderr(aside):
            check_cluster(cluster)
    except ConfigError as error:
        return "fail", str(error.facts["key"]), line(error.message, 500)
    finally:
        logging.disable(logging.NOTSET)
    return "ok", "", "ray up takes it"


def _read(file: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise UsageFault(f"{file} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageFault(f"{file} is not YAML as Ray reads it: {line(str(error), 300)}") from error
    if not isinstance(found, dict):
        raise UsageFault(f"{file} is not a cluster file: expected keys and values, as in cluster.yaml")
    return found
