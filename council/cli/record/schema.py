"""``council schema``: the JSON Schemas of the wire formats, for programs in other languages."""

from __future__ import annotations

import json as jsons
from pathlib import Path
from typing import Annotated

import typer

from council.cli.options import Json
from council.cli.report import Report, Unwritable
from council.kinds.text import count

app = typer.Typer(help="List and export the JSON Schemas of the wire formats.", no_args_is_help=True)


@app.command("list")
def list_(json: Json = False) -> int:
    """List the wire formats that have a JSON Schema: the file of each, and its $id."""
    from council.protocol.omen.schema import schemas

    rows = [{"file": name, "id": schema["$id"]} for name, schema in schemas().items()]
    return Report(as_json=json).result({"schemas": rows}, "\n".join(row["file"] for row in rows))


@app.command()
def export(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder to write to. It is made if it does not exist.")
    ],
    json: Json = False,
) -> int:
    """Write the JSON Schema of each wire format (draft 2020-12) to a file below DIR.

    Files of the same names are overwritten. Schemas of one family refer to each other by $id. Needs no council.
    """
    from council.protocol.omen.schema import schemas

    found = schemas()
    for name, schema in found.items():
        file = folder / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(jsons.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise Unwritable(f"{file}: {error.strerror or error}") from error
    document = {"folder": str(folder), "files": list(found)}
    return Report(as_json=json).result({"exported": document}, f"{count(len(found), 'schema')} in {folder}")
