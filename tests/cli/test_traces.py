"""``council show`` tells which trace a proposal belongs to, where it came with one."""

from __future__ import annotations

import json
from pathlib import Path

from council import Council
from council.protocol.metadata import Metadata
from tests.cli.conftest import Cli

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_show_tells_the_trace(tmp_path: Path, cli: Cli) -> None:
    """Whether the council makes spans or not: it is the proposer's own."""
    store = str(tmp_path / "journal.db")
    with Council.inline(store=store) as council:
        draft = council.draft("Delete it").model_copy(update={"metadata": Metadata(traceparent=PARENT)})
        traced, plain = council.propose(draft), council.propose("Delete that")
    shown = cli("show", traced.proposal_id, "--url", store)
    assert f"trace     {TRACE}" in shown.out
    told = json.loads(cli("show", traced.proposal_id, "--url", store, "--json").out)
    assert told["records"][0]["envelope"]["metadata"] == {"traceparent": PARENT}
    assert "trace  " not in cli("show", plain.proposal_id, "--url", store).out
