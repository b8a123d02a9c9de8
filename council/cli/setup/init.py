"""``council init``: writes a council.toml for the models that are available here.

Servers on this machine come first, then keys in the environment, of which only the variables' names are read. Without
either, the file says what to fill in, and the seats work by static checks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.options import Json
from council.cli.report import DONE, Report, UsageFault

if TYPE_CHECKING:
    from rich.console import RenderableType

    from council.cli.setup.servers import Listing
    from council.cli.setup.starter import Choice

LOOK_S = 2.0  # for all servers together
MODELS_SHOWN = 8


def init(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="The file to write; by default council.toml here."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url",
            metavar="URL",
            help="The URL of an OpenAI-compatible server; mostly ends in /v1. By default those that run on this "
            "machine.",
        ),
    ] = None,
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

    Asks the OpenAI-compatible servers on this machine (Ollama on 11434, vLLM on 8000, llama.cpp on 8080) for
    their models. If there is none, it looks for keys of model providers in the environment, by their names. No
    model is called.
    """
    from council.cli.setup import starter

    report = Report(as_json=json)
    path = config or Path("council.toml")
    if not only_print:
        _refuse(path, force)
    found = _look_around(base_url, api_key_env, model or [])
    text = starter.text(found.choices, found.listings)
    if not only_print:
        _write(path, text, force)
    if json:
        return report.result({"init": _document(None if only_print else path, text, found)}, None)
    if only_print:
        report.print(text, markup=False, soft_wrap=True, end="")
        return DONE
    return report.result({}, _rendered(path, found))


@dataclass(frozen=True, slots=True)
class _Found:
    """The servers here, the addresses of those that want a key, the known keys, and the choices made of them."""

    listings: Sequence[Listing]
    locked: Sequence[str]
    keys: Sequence[str]
    choices: Sequence[Choice]


def _refuse(path: Path, force: bool) -> None:
    """Raises UsageFault if the file may not be written, or would not be read."""
    from council.config.load import FILE_NAME, PROJECT_FILE_NAME, read_file
    from council.protocol.errors import ConfigError

    if os.path.lexists(path) and not force:
        raise UsageFault(
            f"{path} is there already: --force overwrites it, --print shows what would be written"
        )
    project = path.absolute().parent / PROJECT_FILE_NAME
    try:
        beside = read_file(project, named=False) if path.name == FILE_NAME and project.exists() else None
    except ConfigError:
        return  # the commands that read it will report it
    if beside is not None:
        raise UsageFault(
            f"{project} has a [tool.council], and beside it no {FILE_NAME} is read: --print shows what to put "
            "there, or name another file with --config"
        )


def _look_around(base_url: str | None, api_key_env: str | None, models: Sequence[str]) -> _Found:
    """Raises UsageFault, and Unreachable for a server that was named."""
    from council.cli.setup import starter

    listings, locked = _servers(base_url, api_key_env)
    choices = starter.choose(listings, models, api_key_env)
    if models and not choices:
        raise UsageFault("--model: no server runs here that could have it; name one with --base-url")
    keys = [vendor.variable for vendor in starter.VENDORS if os.environ.get(vendor.variable)]
    return _Found(listings, locked, keys, choices or starter.choose_hosted(keys))


def _servers(base_url: str | None, api_key_env: str | None) -> tuple[list[Listing], list[str]]:
    """The servers to use, and the addresses of those here that want a key."""
    from council.cli.setup import servers
    from council.protocol.errors import Unreachable

    if base_url is None:
        if api_key_env is not None:
            raise UsageFault("--api-key-env: give the server that it is for, with --base-url")
        answers = servers.ask_all(dict.fromkeys(servers.LOCAL), LOOK_S)
        listings = [each for each in answers.values() if not isinstance(each, Unreachable)]
        refused = {url: each for url, each in answers.items() if isinstance(each, Unreachable)}
        return listings, [url for url, each in refused.items() if each.facts["status"] in (401, 403)]
    key = _key(base_url, api_key_env)
    # Many users leave out the end of the path, which all of these servers have.
    tried = dict.fromkeys([base_url.rstrip("/"), f"{base_url.rstrip('/')}/v1"], key)
    first, *others = servers.ask_all(tried, LOOK_S).values()
    for answer in (first, *others):
        if not isinstance(answer, Unreachable):
            return [answer], []
    assert isinstance(first, Unreachable)
    raise first


def _key(base_url: str, api_key_env: str | None) -> str | None:
    """The key for this server. Raises UsageFault if the server or the variable is wrong."""
    from pydantic import ValidationError

    from council.agents.llm.endpoint import Endpoint
    from council.config.settings import SeatConfig, checker, expected
    from council.protocol.errors import ModelError

    for option, name, value in (
        ("--base-url", "base_url", base_url),
        ("--api-key-env", "api_key_env", api_key_env),
    ):
        try:
            checker(SeatConfig, name).validate_python(value)
        except ValidationError:
            raise UsageFault(f"{option}: expected {expected(name, SeatConfig)}") from None
    if api_key_env is None:
        return None
    try:
        return Endpoint(model="any model", base_url=base_url, api_key_env=api_key_env).key()
    except ModelError as error:
        raise UsageFault(f"--api-key-env: {error.message}") from None


def _write(path: Path, text: str, force: bool) -> None:
    """Checks the text, and writes it whole. Raises UsageFault, and ConfigError if the environment contradicts it."""
    import tempfile

    from council.config.files import whole
    from council.config.load import load

    try:
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder, "council.toml")
            draft.write_text(text, encoding="utf-8")
            load(draft, env={})
        with whole(path, replace=force) as stream:
            stream.write(text.encode())
        if path.read_bytes() != text.encode():
            raise UsageFault(f"{path} was written by another program meanwhile, and stays")
        path.chmod(0o644)  # it holds no secret
    except OSError as error:
        raise UsageFault(f"{path}: can't be written: {error.strerror}") from error
    load(path)  # as every command will, with the environment


def _document(path: Path | None, text: str, found: _Found) -> dict[str, Any]:
    from council.cli.setup import starter

    seats = {each.seat: {"model": each.model, "base_url": each.base_url} for each in found.choices}
    return {
        "file": None if path is None else str(path),
        "text": text,
        "found": [
            {"base_url": each.base_url, "kind": each.kind, "models": list(each.models)}
            for each in found.listings
        ],
        "locked": found.locked,
        "keys": found.keys,
        "seats": {seat: seats.get(seat, {"model": None, "base_url": None}) for seat in starter.SEATS},
        "shared": [{"seats": seats, "what": what} for seats, what in starter.sharing(found.choices).items()],
    }


def _rendered(path: Path, found: _Found) -> RenderableType:
    from rich.text import Text

    from council.cli.render import facts
    from council.cli.setup import starter

    rows = facts(())
    for server in found.listings:
        models = ", ".join(list(server.models)[:MODELS_SHOWN]) or "no model yet"
        more = len(server.models) - MODELS_SHOWN
        more_shown = f" and {more:,} more" if more > 0 else ""
        rows.add_row("found", Text(f"{server.kind} at {server.base_url}: {models}{more_shown}"))
    for url in found.locked:
        hint = f"a server that wants a key: council init --base-url {url} --api-key-env NAME"
        rows.add_row("found", Text(hint, "yellow"))
    if found.keys and not found.listings:
        rows.add_row("found", Text(f"{', '.join(found.keys)} in the environment"))
    if not found.choices:
        nothing = "no model: no server on 11434, 8000 or 8080, and none of the known keys in the environment"
        rows.add_row("found", Text("no server with a model" if found.listings else nothing))
    rows.add_row("wrote", Text(f"{path}, and read it back: it is valid", "green"))
    where = {each.seat: f"{each.model} at {each.base_url}" for each in found.choices}
    for seat in starter.SEATS:
        rows.add_row("seat", Text(f"{seat:<9} {where.get(seat, 'static checks, no model')}"))
    for seats, what in starter.sharing(found.choices).items():
        rows.add_row("shared", Text(f"{starter.describe_sharing(seats, what)} (see the file)", "yellow"))
    named = "" if path == Path("council.toml") else f" --config {path}"
    steps = [f"council doctor --config {path}"]
    if found.choices:
        steps += [f'council estimate "…"{named}', f'council propose "…" --inline{named}']
    else:
        steps.insert(0, f"edit {path}")
    for at, step in enumerate(steps):
        rows.add_row("" if at else "next", Text(step, "bold"))
    return rows
