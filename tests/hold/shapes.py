"""Exit codes, and the keys and types of what commands print with ``--json``: ``python -m tests.hold.shapes --write``.

Each is of a real run: against the kept journal, or a council in this process, which the commands find as one that is
up. What needs Ray (up, down, dashboard) is in ``shapes_on_ray.py``. Not run: ``top --json`` prints those events of
``watch --json`` that are about spending, by the same code; ``doctor --ray`` prints one check more, and ``--launch``
and ``log --follow`` print what is printed without them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from council import Ballot, Case, Council, Decision, Escalation, Opinion, Ruling, SeatConfig, Tally
from tests.cli.conftest import Chair
from tests.cli.server import Server, listed
from tests.hold import doors, kept, names, story, texts
from tests.hold.doors import Account, Answer, Option, PrimesRuling, TieBreak
from tests.patience import HANG_S

ROOT = Path(__file__).parent.parent.parent
PATCH = ROOT / "tests" / "corpus" / "changes" / "002-check-sources.patch"
# Objects whose keys are data: names of seats, stages and instructions, codes, outcomes.
MAPS = {
    *("seats", "voted", "lost", "personas", "task_instructions", "instructions"),
    *("stages", "decided", "refused", "ignored", "models"),
}
# Objects that stand in many documents, known by their keys and written once.
NAMED = (Answer, Ballot, Decision, Escalation, Option, PrimesRuling, Tally, TieBreak, Account)
MODELS = """
proposal_tokens_max = 60000
[seats.lite]
model = "gpt-4o"
base_url = "http://127.0.0.1:1/v1"
usd_per_million_input = 1.0
usd_per_million_output = 2.0
"""


Shape = dict[str, set[str]]


def _keys(kind: type) -> tuple[frozenset[str], frozenset[str]]:
    """The keys of these objects with all fields, and without those that are left out where nothing sets them."""
    fields = [*names.fields_of(kind)]
    unset = {name for name, hint, _ in fields if "UnsetType" in str(hint)}
    every = frozenset(name for name, _, _ in fields)
    return every, every - unset


_NAMES = {keys: kind.__name__ for kind in NAMED for keys in _keys(kind)}


def lines(told: Iterable[tuple[str, int, Any]] | None = None) -> Iterator[str]:
    named: dict[str, Shape] = {}
    for title, code, documents in runs() if told is None else told:
        error = documents["error"]["code"] if isinstance(documents, dict) and "error" in documents else ""
        if title == "council doctor --offline":  # it depends on the machine
            yield title
        else:
            yield f"{title}: exit code {code}" + (f", {error}" if error else "")
        yield from (f"    {line}" for line in written(shape_of(documents, named)))
    for name, shape in sorted(named.items()):
        yield f"{name}, wherever it stands"
        yield from (f"    {line}" for line in written(shape))


def shape_of(documents: Any, named: dict[str, Shape]) -> Shape:
    """The keys of these documents, each with all the types that its values have."""
    found: Shape = {}
    for document in documents if isinstance(documents, list) else [documents]:
        look(document, "", found, named)
    return found


def written(shape: Shape) -> list[str]:
    return [f"{path}: {' | '.join(sorted(kinds))}" for path, kinds in sorted(shape.items()) if path]


def look(value: Any, path: str, found: Shape, named: dict[str, Shape]) -> None:
    kinds = found.setdefault(path, set())
    if isinstance(value, dict):
        name = _NAMES.get(frozenset(value))
        kinds.add(name or "object")
        within = f"{path}." if path else ""
        if name is not None:
            within, found = "", named.setdefault(name, {})
        is_map = path.rpartition(".")[2] in MAPS
        for key, each in value.items():
            look(each, f"{within}{'*' if is_map else key}", found, named)
    elif isinstance(value, list):
        kinds.add("array")
        for each in value:
            look(each, f"{path}[]", found, named)
    else:
        kinds.add("null" if value is None else type(value).__name__)


async def agrees(case: Case) -> Opinion:
    return Opinion.yes("agreed", confidence=0.9, escalate="it pays" if "pay" in case.summary else "")


async def wary(case: Case) -> Opinion:
    return Opinion.no("too risky", confidence=0.8) if "drop" in case.summary else Opinion.yes("fine")


class Spender:
    """Asks for what a call may cost, and tells what it did cost."""

    def set_budget(self, purse: Any) -> None:
        self.purse = purse

    async def review(self, case: Case) -> Opinion:
        call = await self.purse.reserve(case.proposal_id, "ballot", "small-1", doors.cost(500, 50))
        self.purse.settle(call, doors.cost(100, 10))
        return await wary(case)


def seats() -> list[SeatConfig]:
    chair = Chair(Opinion.yes("agreed", confidence=0.9), Ruling("human", "a person must see this"))
    minds = {"prime": chair, "lite": Spender(), "codemind": agrees}
    return [SeatConfig(name=name, mind=mind) for name, mind in minds.items()]


def runs() -> Iterator[tuple[str, int, Any]]:
    """What was run, its exit code, and the documents that it printed."""
    folder = Path(tempfile.mkdtemp())
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("COUNCIL_")]:
            patch.delenv(name)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.chdir(folder)
        yield from of_the_kept_journal(folder)
        yield from alone(folder)
        yield from of_a_council(patch, folder)
    shutil.rmtree(folder)


def run(*arguments: str) -> tuple[str, int, Any]:
    code, documents = doors.command(*arguments, "--json")
    return "council " + " ".join(arguments), code, documents


def of_the_kept_journal(folder: Path) -> Iterator[tuple[str, int, Any]]:
    kept.put_keys()
    store, ids = kept.put_sqlite(folder / "kept.db"), kept.told()["ids"]

    def told(title: str, *arguments: str) -> tuple[str, int, Any]:
        _, code, documents = run(*arguments)
        return f"council {title}", code, documents

    here = ("--url", store)
    named = ("--name", story.NAME, *here)
    _, code, records = told("log", "log", "--limit", "0", *named)
    for kind in dict.fromkeys(record["kind"] for record in records):
        yield f"council log, a {kind}", code, [each for each in records if each["kind"] == kind]
    shown = {name: told("", "show", ids[name], *named) for name in (*kept.SHOWN, "approved")}
    for name, (_, code, document) in shown.items():
        document["records"] = document["revised"] = []  # these are the log's, with their envelopes
        yield f"council show, {name.replace('_', ' ')}", code, {"exit_code": code}
    yield "council show, any of these", 0, [document for _, _, document in shown.values()]
    yield told("show, a record", "show", "#3", *named)
    yield told("show --packets, of none", "show", ids["approved"], "--packets", *named)
    yield told("replay", "replay", *named)
    yield told("replay --what-if", "replay", "--what-if", "without=lite", *named)
    yield told("verify", "verify", *named)
    yield told("checkpoint", "checkpoint", "c.json", *named)
    yield told("verify --checkpoint", "verify", "--checkpoint", "c.json", *named)
    yield told("prove", "prove", ids["approved"], "p.json", *named)
    yield told("verify --proof", "verify", "--proof", "p.json")
    for file in ("c.json", "p.json"):
        yield f"the file {file}", 0, json.loads(Path(file).read_text(encoding="utf-8"))
    yield told("identity show --journal", "identity", "show", "--journal", *named)
    yield told("store info", "store", "info", *here)
    yield told("store migrate", "store", "migrate", *here)
    yield told("store gc", "store", "gc", *here)
    yield told("store export", "store", "export", "e.jsonl", *here)
    yield told("store import", "store", "import", "e.jsonl", "--url", str(folder / "other.db"))
    yield told("log of no journal", "log", "--name", "nobody", *here)
    yield told("log of no store", "log", "--url", str(folder / "nothing.db"))
    damaged = folder / "damaged.db"
    damaged.write_bytes(Path(store).read_bytes().replace(b"Rotate the staging", b"Rotute the staging"))
    yield told("verify of a changed record", "verify", "--name", story.NAME, "--url", str(damaged))


def alone(folder: Path) -> Iterator[tuple[str, int, Any]]:
    """Commands that need no council, or run one for themselves."""
    header = {"packet_id": "pkt_1", "correlation_id": "corr_1", "packet_type": "ObservationPacket"}
    seen = {
        "header": {**header, "created_at": "2026-11-26T12:00:00Z", "layer_source": 6},
        "payload": {"observation_type": "user_input", "data": {"text": "hello"}},
    }
    Path("episode.json").write_text(json.dumps([seen, {"header": {}}]), encoding="utf-8")
    yield run("validate", "episode.json")
    yield run("schema", "list")
    yield run("schema", "export", "schemas")
    yield run("propose", "Rotate the staging key", "--wait-for", "all", "--inline")
    yield run("propose", "Run it", "--action", "shell", '{"command": "rm -rf /"}', "--inline")
    title, code, document = run("review", str(PATCH), "--inline")
    yield title.replace(str(PATCH), "PATCH"), code, document
    yield run("review", "nothing.patch", "--inline")
    yield run("propose", "--no-such-option")
    yield run("demo", "--inline")
    yield run("status")
    yield run("down")
    yield run("dashboard")
    yield run("config")
    yield run("doctor", "--offline")
    yield run("rules", "list")
    yield run("rules", "show", "docker-user-root")
    yield run("rules", "new", "my-rule")
    yield run("rules", "test")
    yield run("policy", "test", "shell", "command=ls")
    yield run("identity", "show")
    _, code, document = run("cluster", "check", str(ROOT / "cluster.yaml"))
    yield "council cluster check", code, document
    (folder / "council.toml").write_text(MODELS, encoding="utf-8")
    yield run("estimate", "Rotate the staging key")
    yield run("identity", "show")
    (folder / "council.toml").write_text("quorum = 99\n", encoding="utf-8")
    yield run("config")
    (folder / "council.toml").unlink()
    yield run("init", "--print", "--base-url", "http://127.0.0.1:1/v1")
    with Server(listed("qwen3:8b")) as server:
        _, code, document = run("init", "--base-url", server.base_url)
        yield "council init", code, document


def of_an_rfc(patch: pytest.MonkeyPatch, folder: Path, store: str) -> Iterator[tuple[str, int, Any]]:
    """An RFC, from the draft to the merge."""
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        patch.setenv(f"{name}_NAME", "Ada")
        patch.setenv(f"{name}_EMAIL", "ada@example.com")
    file = folder / "rfcs" / "retry.md"
    file.parent.mkdir()
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "First"]):
        subprocess.run(["git", *command], cwd=folder, check=True, timeout=HANG_S)
    file.write_text("---\ntitle: Retry\nstatus: draft\nauthor: Ada\n---\n", encoding="utf-8")
    for verb, *more in (("propose",), ("merge", "--url", store), ("review",), ("merge", "--url", store)):
        _, code, document = run("rfc", verb, str(file), *more)
        yield f"council rfc {verb}", code, document


def of_a_council(patch: pytest.MonkeyPatch, folder: Path) -> Iterator[tuple[str, int, Any]]:
    """Commands that ask one that is up."""
    settings: dict[str, Any] = {"store": str(folder / "up.db"), "humans": {"ada": "kept"}, "creator": "ada"}
    patch.setenv("LOGNAME", "ada")
    (folder / "wider.toml").write_text('[identity]\ncore_rules = ["Be kind"]\n', encoding="utf-8")
    with Council.inline(seats=seats(), council_tokens_max=100_000, **settings) as council:
        doors.put_up(patch, council)
        yield run("propose", "Rotate the key", "--wait-for", "all")
        title, code, asked = run("propose", "pay the invoice")
        yield title, code, asked
        yield from of_an_rfc(patch, folder, settings["store"])
        yield run("escalations")
        yield run("status")
        yield run("answer", "no-such-id", "--approve", "--as", "ada")
        waiting = council.escalations()[0].escalation_id
        _, code, answered = run("answer", waiting, "--approve", "--as", "ada")
        yield "council answer", code, answered
        _, _, unpaid = run("propose", "pay the rent")
        _, code, cancelled = run("cancel", unpaid["proposal_id"][:12], "--as", "ada")
        yield "council cancel", code, cancelled
        yield run("cancel", "0000000000000000", "--as", "ada")
        allows = {"executor": "exec", "operations": ["write"], "resources": ["file:/srv/x"]}
        action = {"tool": "put", "args": {"path": "/srv/x"}, "authorization": allows}
        council.propose("Rotate the key", action=action)
        _, code, tokens = run("tokens")
        yield "council tokens", code, tokens
        _, code, revoked = run("revoke", tokens["tokens"][0]["token_id"], "--as", "ada")
        yield "council revoke", code, revoked
        yield run("revoke", "no-such-token", "--as", "ada")
        yield run("identity", "propose-change", "wider.toml", "--why", "it is time")
        yield run("escalations")
        _, code, events = run("watch", "--once")
        for kind in dict.fromkeys(event["kind"] for event in events):
            yield f"council watch, a {kind}", code, [each for each in events if each["kind"] == kind]
        yield run("budget")


if __name__ == "__main__":
    texts.command("shapes", lines)
