"""``council dashboard`` without a council to be seen; with one it is tried in tests/ray."""

from __future__ import annotations

import json
import os
from dataclasses import replace

from council.cli.operate.dashboard import _metrics_tab
from council.cli.operate.host_launch import notes_on
from council.config.settings import CouncilConfig
from tests.cli.conftest import Cli, entry


def test_without_a_council_it_says_so(cli: Cli) -> None:
    for command in ([], ["open"], ["install"]):
        said = cli("dashboard", *command, "--name", "nowhere")
        assert (said.code, said.out) == (4, "")
        assert "no council named 'nowhere' is up" in said.err
        told = json.loads(cli("dashboard", *command, "--name", "nowhere", "--json").out)
        assert (told["exit_code"], told["error"]["code"]) == (4, "unreachable")


def test_what_the_metrics_tab_shows_is_said_in_words() -> None:
    for grafana, said in (
        (None, "none without Ray's dashboard"),
        ({"host": None}, "expects a Grafana, and none answers"),
        ({"host": "http://127.0.0.1:7"}, "shows the panel"),
        (
            {"host": "http://grafana:3000"},
            "shows the Grafana at http://grafana:3000; council dashboard install",
        ),
    ):
        assert _metrics_tab({"grafana": grafana, "panel": "http://127.0.0.1:7/"}).startswith(said)


def test_up_says_how_to_get_the_token_that_rays_own_dialog_asks_for() -> None:
    """That dialog names a command of Ray's, which does not know the token of the council's own Ray."""
    own = replace(entry("council", pid=os.getpid()), dashboard="http://127.0.0.1:8265/")
    for token, told in (("0" * 64, True), (None, False)):
        said = "\n".join(notes_on(replace(own, token=token), CouncilConfig()))
        assert "Ray's dashboard http://127.0.0.1:8265/" in said
        assert ("it asks for a token, which council dashboard --token prints" in said) == told
