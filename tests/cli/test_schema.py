"""``council schema``: what it lists and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from council.cli.app import run
from council.protocol.omen.schema import schemas


def test_export_writes_each_schema_to_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "schemas"
    assert run(["schema", "export", str(folder)]) == 0
    assert capsys.readouterr().out.split() == ["21", "schemas", "in", *str(folder).split()]
    written = {
        file.relative_to(folder).as_posix(): json.loads(file.read_text(encoding="utf-8"))
        for file in folder.rglob("*.json")
    }
    assert written == schemas()


def test_list_names_the_files_and_ids(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["schemas"]
    assert {
        "file": "omen/v0.7/mcp/MCP.schema.json",
        "id": "urn:council-runtime:schema:omen:v0.7:mcp:MCP",
    } in rows
    assert len(rows) == len(schemas())


def test_a_file_in_place_of_the_folder_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("")
    assert run(["schema", "export", str(tmp_path / "taken")]) not in (0, 1)
    assert "taken" in capsys.readouterr().err
