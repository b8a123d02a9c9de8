"""The keys of council.toml: type and limits, default, and variable. ``python -m tests.hold.settings --write``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from council import CouncilConfig, SeatConfig
from tests.hold import doors, texts

# What is no part of a value's form, or is told beside it.
LEFT_OUT = ("title", "description", "expected", "default")
# A text for each variable that is none of the default. Lite is backed by a model here, codemind is not.
GIVEN = {
    "NAME": "other",
    "PRIME": "codemind",
    "OBSERVER": "none",
    "QUORUM": "3",
    "TIME_BUDGET_S": "30",
    "HEARTBEAT_S": "10",
    "INACTIVITY_S": "40",
    "ESCALATION_TTL_S": "3600",
    "HUMANS": '{ada = "kept"}',
    "OUTPUT": '{web = {file = "/srv/web.jsonl"}, slack = {webhook = "env:HOOK", key = "env:HOOK_KEY"}}',
    "NOTIFY": '{command = ["page-me"], webhook = "env:HOOK", key = "env:HOOK_KEY", content = true, remind_s = 60.0}',
    "ACTION": '{root = "/srv/project", sandbox = "none", hosts = ["api.example.com"], cpu_s = 9}',
    "CREATOR": "ada",
    "UNKNOWN_TOOLS": "allow",
    "TOOLS": "shop.tools:TOOLS",
    "POLICY": '[{tool = "shell", args = {command = "^rm"}, then = "reject", reason = "no"}]',
    "SCANNERS": '[{command = ["gosec"], timeout_s = 9.0, levels = {error = "ask"}}]',
    "SOLE_SEAT": "allow-low-risk",
    "OPEN_MAX": "10",
    "ESCALATIONS_MAX": "20",
    "EVENTS_KEPT": "30",
    "DECISIONS_KEPT": "40",
    "KEEP_PACKETS": "1",
    "PROPOSAL_TOKENS_MAX": "1000",
    "PROPOSAL_USD_MAX": "1",
    "SEAT_TOKENS_MAX": "2000",
    "SEAT_USD_MAX": "2",
    "COUNCIL_TOKENS_MAX": "3000",
    "COUNCIL_USD_MAX": "3",
    "STORE": "memory",
    "CHECKPOINT": "/c",
    "METRICS_PORT": "9464",
    "METRICS_HOST": "0.0.0.0",
    "TRACES": "otlp",
    "PANEL": "true",
    "PANEL_PORT": "8000",
    "PANEL_HOST": "0.0.0.0",
    "RAY_DASHBOARD": "yes",
    "RAY_ADDRESS": "auto",
    "RAY_NAMESPACE": "elsewhere",
    "RAY_INSECURE": "on",
    "RAY_SHIP": "1",
    "CALL_TIMEOUT_S": "5",
    "SEATS__CODEMIND__MIND": "mine:Mind",
    "SEATS__CODEMIND__OPTIONS": "{limit = 3}",
    "SEATS__LITE__BASE_URL": "http://127.0.0.1:1/v1",
    "SEATS__LITE__MODEL": "small-1",
    "SEATS__LITE__VENDOR": "acme",
    "SEATS__LITE__TOKENS_MAX": "500",
    "SEATS__LITE__USD_MAX": "0.5",
    "SEATS__LITE__MAX_CONCURRENT": "2",
    "SEATS__LITE__RESOURCES": "{GPU = 1}",
    "SEATS__LITE__LABELS": '{accelerator = "a100"}',
    "SEATS__LITE__RUNTIME_ENV": '{pip = ["torch"]}',
    "SEATS__LITE__PROVIDER": "anthropic",
    "SEATS__LITE__API_KEY_ENV": "KEY",
    "SEATS__LITE__MAX_CONTEXT_TOKENS": "5000",
    "SEATS__LITE__MAX_OUTPUT_TOKENS": "600",
    "SEATS__LITE__CONTEXT_WINDOW": "8000",
    "SEATS__LITE__SPECIAL_TOKENS": "text",
    "SEATS__LITE__ROLE": "prime",
    "SEATS__LITE__PROMPTS": "/p",
    "SEATS__LITE__TOKENIZER": "o200k_base",
    "SEATS__LITE__TEMPERATURE": "0.5",
    "SEATS__LITE__TOP_P": "0.9",
    "SEATS__LITE__ANSWER_FORMAT": "text",
    "SEATS__LITE__STAGES": "one",
    "SEATS__LITE__SCAN": "off",
    "SEATS__LITE__TIMEOUT_S": "7",
    "SEATS__LITE__MAX_EXECUTION_TIME_S": "8",
    "SEATS__LITE__USD_PER_MILLION_INPUT": "0.25",
    "SEATS__LITE__USD_PER_MILLION_OUTPUT": "2",
    "SEATS__PRIME__BASE_URL": "http://127.0.0.1:1/v1",
    "SEATS__PRIME__MODEL": "small-1",
    "SEATS__PRIME__API_KEY_FILE": "/k",
    "SEATS__PRIME__USD_PER_MILLION_INPUT": "0",
    "SEATS__PRIME__USD_PER_MILLION_OUTPUT": "0",
}
# They name files, which are read with the settings.
FILES = {
    "CHARTER": '{"identity": {"core_rules": ["Be kind"]}}',
    "SCHEMAS": "",
    "PROFILES": "{}",
    "SEATS__LITE__PERSONA": '{"tone": "dry"}',
}


def lines() -> Iterator[str]:
    yield from ("# Keys of council.toml: default, form, variable", "")
    told = set(in_effect({}))
    for key, form, default in forms(CouncilConfig):
        if key == "seats" or key in told:  # `pool`, which CouncilPool sets, is told nobody
            yield f"{key} = {default}  {form}"
    yield from ("", "# Keys of a seat's table, [seats.NAME]; `enabled = false` leaves it out", "")
    for key, form, default in forms(SeatConfig):
        if key != "name":
            yield f"{key} = {default}  {form}"
    yield from ("", "# The seats of a council without settings", "")
    for key, (value, _) in in_effect({}).items():
        if key.startswith("seats.") and value:
            yield f"{key} = {json.dumps(value)}"
    yield from ("", "# Variables, and what council config makes of them", "")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            Path(folder, f"{name}.gl" if name == "SCHEMAS" else f"{name}.json").write_text(
                text, encoding="utf-8"
            )
        files = {name: f"{folder}/{name}.{'gl' if name == 'SCHEMAS' else 'json'}" for name in FILES}
        files["RULES"] = f"{folder}/rules"
        Path(files["RULES"]).mkdir()
        found = in_effect({f"COUNCIL_{name}": text for name, text in (GIVEN | files).items()})
    for key, (value, origin) in found.items():
        if origin != "default":
            yield f"{key} = {json.dumps(value).replace(folder, '/f')}  {origin}"


def forms(model: Any) -> Iterator[tuple[str, str, str]]:
    """Each key, what it takes (as JSON Schema), and its default."""
    schema = model.model_json_schema()
    for key, found in schema["properties"].items():
        form = {name: value for name, value in found.items() if name not in LEFT_OUT}
        default = "required" if key in schema.get("required", ()) else json.dumps(found.get("default", {}))
        if key == "seats":
            default, form = "prime, lite, codemind", {"type": "tables"}
        yield key, json.dumps(form, sort_keys=True), default


def in_effect(variables: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """The value of each key and where it is from, as ``council config --json`` tells them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COUNCIL_")}
    with mock.patch.dict(os.environ, {**kept, **variables}, clear=True):
        code, found = doors.command("config", "--json")
    assert code == 0, found
    return {each["key"]: (each["value"], each["origin"]) for each in found["settings"]}


if __name__ == "__main__":
    texts.command("settings", lines)
