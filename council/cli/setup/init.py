"""``council init``: writes a council.toml for the models that are available here.

Servers on this machine come first, then a key in the environment, of which only the variable's name is read. Without
either, the file says what to fill in, and the seats work by static checks.
"""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from council.cli.options import Json
from council.cli.report import DONE, Report, UsageFault

if TYPE_CHECKING:
    from council.cli.setup.servers import Listing
    from council.cli.setup.starter import Surroundings
    from council.config.load import Loaded

LOOK_S = 2.0  # for all servers together
MODELS_SHOWN = 8
# As the settings have them.
_URL_HELP = (
    "An OpenAI-compatible server to use; mostly ends in /v1. By default those that run on this machine."
)


def init(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The file to write; by default council.toml here."),
    ] = None,
    base_url: Annotated[str | None, typer.Option("--base-url", metavar="URL", help=_URL_HELP)] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable that has this server's key.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="One of the listed models; repeat it for Prime, Lite and CodeMind."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    only_print: Annotated[
        bool, typer.Option("--print", help="Show what would be written, and write nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Write a council.toml for the models found here.

    Asks the OpenAI-compatible servers that run on this machine (Ollama on
    11434, vLLM on 8000, llama.cpp on 8080) for their models; without one it
    takes the keys in the environment, by their names. No model is called.
    """
    from council.cli.setup import starter

    report = Report(as_json=json)
    path = config or Path("council.toml")
    if not only_print:
        _refuse(path, force)
    found = _surroundings(base_url, api_key_env, model or [])
    text = starter.text(found)
    checked = _checked(text)
    if not only_print:
        _write(path, text, force)
    told = {
        "file": None if only_print else str(path),
        "text": text,
        "found": [
            {"base_url": each.base_url, "kind": each.kind, "models": list(each.models)}
            for each in found.servers
        ],
        "locked": list(found.locked),
        "keys": list(found.keys),
        "seats": {
            seat.name: {"model": seat.model, "base_url": seat.base_url} for seat in checked.config.seats
        },
        "shared": [{"seats": seats, "what": what} for seats, what in starter.sharing(found.choices).items()],
    }
    if json:
        return report.result({"init": told}, None)
    if only_print:
        report.print(text, markup=False, soft_wrap=True, end="")
        return DONE
    return _report(report, path, found, checked)


def _refuse(path: Path, force: bool) -> None:
    """Raises UsageFault where the file may not be written, or would not count."""
    from council.config.load import FILE_BYTES_MAX

    if os.path.lexists(path) and not force:
        raise UsageFault(
            f"{path} is there already: --force writes over it, --print shows what would be written"
        )
    project = path.absolute().parent / "pyproject.toml"
    try:
        with project.open("rb") as file:
            tools = tomllib.loads(file.read(FILE_BYTES_MAX).decode()).get("tool", {})
    except (OSError, ValueError):
        return  # whoever reads it will say so
    if path.name == "council.toml" and isinstance(tools, dict) and "council" in tools:
        raise UsageFault(
            f"{project} has a [tool.council], and beside it no council.toml is read: --print shows what to put "
            "there, or name another file with --config"
        )


def _surroundings(base_url: str | None, api_key_env: str | None, wanted: Sequence[str]) -> Surroundings:
    """What the file is to be about. Raises UsageFault, and Unreachable for a server that was named."""
    from council.cli.setup import servers, starter
    from council.protocol.errors import Unreachable

    locked: list[str] = []
    if base_url is None:
        if api_key_env is not None:
            raise UsageFault("--api-key-env: give the server that it is for, with --base-url")
        answers = servers.ask_all(dict.fromkeys(servers.LOCAL), LOOK_S)
        listings = [each for each in answers.values() if not isinstance(each, Unreachable)]
        locked = [
            url
            for url, each in answers.items()
            if isinstance(each, Unreachable) and each.facts["status"] in (401, 403)
        ]
    else:
        listings = [_listing(base_url, api_key_env)]
    choices = starter.chosen(listings, wanted, api_key_env)
    if wanted and not choices:
        raise UsageFault("--model: no server runs here whose model it could be; name one with --base-url")
    keys = [vendor.variable for vendor in starter.VENDORS if os.environ.get(vendor.variable)]
    return starter.Surroundings(
        tuple(listings), tuple(keys), tuple(choices or starter.hosted(keys)), tuple(locked)
    )


def _listing(base_url: str, api_key_env: str | None) -> Listing:
    """What the server has that the user named. Raises UsageFault and Unreachable."""
    from pydantic import ValidationError

    from council.cli.setup import servers
    from council.config.settings import CHECK_SEAT, SeatConfig, expected
    from council.protocol.errors import Unreachable

    for option, name, value in (
        ("--base-url", "base_url", base_url),
        ("--api-key-env", "api_key_env", api_key_env),
    ):
        try:
            CHECK_SEAT[name].validate_python(value)
        except ValidationError:
            raise UsageFault(f"{option}: expected {expected(name, SeatConfig)}") from None
    key = None if api_key_env is None else os.environ.get(api_key_env, "").strip()
    if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
        raise UsageFault(
            f"--api-key-env {api_key_env}: the variable is not set, or holds no key in one line of ASCII"
        )
    # Many leave out the end of the path, which all of these servers have.
    tried = dict.fromkeys([base_url.rstrip("/"), f"{base_url.rstrip('/')}/v1"], key)
    answers = list(servers.ask_all(tried, LOOK_S).values())
    for answer in answers:
        if not isinstance(answer, Unreachable):
            return answer
    first = answers[0]
    assert isinstance(first, Unreachable)
    raise first


def _checked(text: str) -> Loaded:
    """What the settings make of the text, by itself. Raises InternalError: it is ours."""
    from council.config.load import load
    from council.protocol.errors import ConfigError, InternalError

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "council.toml")
        file.write_text(text, encoding="utf-8")
        try:
            return load(file, env={})
        except ConfigError as error:
            raise InternalError(f"what init would write is no configuration: {error.message}") from error


def _write(path: Path, text: str, force: bool) -> None:
    from council.config.files import whole
    from council.config.load import load

    try:
        with whole(path, replace=force) as stream:
            stream.write(text.encode())
        path.chmod(0o644)  # it holds no secret, and is the project's
    except OSError as error:
        raise UsageFault(f"{path}: can't be written: {error.strerror}") from error
    if path.read_bytes() != text.encode():
        raise UsageFault(f"{path} was written by somebody else meanwhile, and stays")
    load(path)  # as every command will, with the environment on top


def _report(report: Report, path: Path, found: Surroundings, loaded: Loaded) -> int:
    from rich.text import Text

    from council.cli.render import facts
    from council.cli.setup import starter
    from council.kinds.text import line

    rows = facts(())
    for server in found.servers:
        models = ", ".join(list(server.models)[:MODELS_SHOWN]) or "no model yet"
        more = len(server.models) - MODELS_SHOWN
        said = f"{server.kind} at {server.base_url}: {models}{f' and {more:,} more' if more > 0 else ''}"
        rows.add_row("found", Text(said))
    for url in found.locked:
        said = f"a server that wants a key: council init --base-url {url} --api-key-env NAME"
        rows.add_row("found", Text(said, "yellow"))
    if found.keys and not found.servers:
        rows.add_row("found", Text(f"{', '.join(found.keys)} in the environment"))
    if not found.choices:
        ports = "no model: no server on 11434, 8000 or 8080, and none of the known keys in the environment"
        rows.add_row("found", Text("no server with a model" if found.servers else ports))
    rows.add_row("wrote", Text(f"{path}, and read it back: it is valid", "green"))
    for seat in loaded.config.seats:
        where = f"{seat.model} at {seat.base_url}" if seat.base_url else "static checks, no model"
        rows.add_row("seat", Text(f"{seat.name:<9} {where}"))
    for seats, what in starter.sharing(found.choices).items():
        rows.add_row("shared", Text(f"{starter.shared_in_words(seats, what)} (see the file)", "yellow"))
    for problem in _unbuilt(loaded):
        rows.add_row("missing", Text(line(problem), "yellow"))
    named = "" if path == Path("council.toml") else f" --config {path}"
    steps = [
        f"council doctor --config {path}",
        f'council estimate "…"{named}',
        f'council propose "…" --inline{named}',
    ]
    for at, step in enumerate(steps if found.choices else [f"edit {path}", *steps[:1]]):
        rows.add_row("" if at else "next", Text(step, "bold"))
    return report.result({}, rows)


def _unbuilt(loaded: Loaded) -> list[str]:
    """What the seats' minds still lack, each thing once."""
    from council.config.build_minds import build_mind
    from council.protocol.errors import CouncilError

    wrong: dict[str, None] = {}
    for seat in loaded.config.seats:
        try:
            build_mind(seat)
        except CouncilError as error:
            wrong[error.message.partition(": ")[2]] = None
    return list(wrong)
