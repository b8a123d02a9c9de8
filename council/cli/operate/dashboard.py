"""``council dashboard``: the addresses of a council's panel and figures, and its dashboard for Grafana."""

from __future__ import annotations

import webbrowser
from typing import Annotated, Any

import typer

from council.cli.options import Address, Config, Json, Name
from council.cli.reach import Where, opened
from council.cli.report import DONE, Report
from council.gateway.grafana import UID
from council.protocol.errors import OperatorError

app = typer.Typer(
    help="Show the addresses of panel, Ray dashboard and Grafana.",
    invoke_without_command=True,
)
Token = Annotated[
    bool,
    typer.Option(
        "--token", help="Also show the tokens: the panel's, for the proposals' text, and that of our own Ray."
    ),
]
OFF = "off; council up --dashboard starts a Ray with it, ray start --include-dashboard=true a cluster's head"
NO_PANEL = "set panel = true, and bring the council up again"
PAGES_S = 30.0  # beyond the time of one call: Ray's dashboard and its head node are asked


@app.callback()
def dashboard(
    context: typer.Context,
    token: Token = False,
    name: Name = None,
    address: Address = None,
    config: Config = None,
    json: Json = False,
) -> int:
    """Show the addresses of panel, Ray dashboard and Grafana.

    The panel shows seats and their heartbeats, open proposals, decisions and spending; with its token, also the text
    of proposals. Ray's dashboard shows the actors, each heartbeat as a task, and the council's log under Logs.
    """
    if context.invoked_subcommand is not None:
        return DONE
    report = Report(as_json=json)
    seen = _addresses(Where(config, name, address), report)
    asks = "asked for by Ray's dialog; council dashboard --token prints it" if seen["ray_token"] else None
    if not token:
        seen |= {"panel_token": None, "ray_token": None}
    seen["panel_link"] = f"{seen['panel']}?token={seen['panel_token']}" if seen["panel"] and token else None
    if json:
        return report.result({"dashboard": seen}, None)
    lines = [
        ("panel", seen["panel_link"] or seen["panel"] or seen["notice"] or f"none; {NO_PANEL}"),
        ("Ray's dashboard", seen["dashboard"] or OFF),
        ("its Metrics tab", _metrics_tab(seen)),
        ("its token", seen["ray_token"] or asks),
    ]
    for label, text in lines:
        if text:
            report.print(f"{label + ':':18}{text}", soft_wrap=True)
    return DONE


@app.command("open")
def show(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Open the panel in a browser, with its token, so that it shows the proposals' text."""
    report = Report(as_json=json)
    seen = _addresses(Where(config, name, address), report)
    if seen["panel"] is None:
        raise OperatorError(f"there is no panel to open: {seen['notice'] or NO_PANEL}")
    if not webbrowser.open(f"{seen['panel']}?token={seen['panel_token']}"):
        raise OperatorError(
            f"no browser could be opened here: open {seen['panel']} yourself; council dashboard --token gives the "
            "address with its token"
        )
    return report.result({"opened": seen["panel"]}, f"opened {seen['panel']}")


@app.command()
def install(name: Name = None, address: Address = None, config: Config = None, json: Json = False) -> int:
    """Install the council's dashboard for Grafana.

    It is written to a folder of Ray's session on its head node. A Grafana that was started with Ray's own settings
    reads it within seconds. A file that is another dashboard is not replaced.
    """
    report = Report(as_json=json)
    pages, _ = _pages(Where(config, name, address), report, install=True)
    done, panel, grafana = pages["installed"], pages["panel"], pages["grafana"]
    host = None if grafana is None else grafana["host"]
    if panel is not None and _same(host, panel["url"]):
        host = None
    next_step = f"see it at {host}/d/{UID}"
    if host is None:
        next_step = (
            f"no Grafana answers this Ray yet: start one with --config {done['settings']}, or, if it runs elsewhere, "
            "set RAY_GRAFANA_HOST before Ray starts"
        )
    if json:
        return report.result({"installed": {**done, "grafana": host, "next": next_step}}, None)
    report.print(f"{done['path']} on {done['host']}: {done['how']}", soft_wrap=True)
    report.print(next_step, soft_wrap=True)
    return DONE


def _addresses(where: Where, report: Report) -> dict[str, Any]:
    """All addresses, with the tokens. Raises what ``opened`` raises."""
    pages, ray_token = _pages(where, report)
    panel = pages["panel"] or {"url": None, "notice": None, "token": None}
    return {
        "panel": panel["url"],
        "notice": panel["notice"] or None,
        "panel_token": panel["token"],
        "dashboard": pages["dashboard"],
        "ray_token": None if pages["dashboard"] is None else ray_token,
        "grafana": pages["grafana"],
    }


def _pages(where: Where, report: Report, *, install: bool = False) -> tuple[dict[str, Any], str | None]:
    """The answer to ``AskPages``, and the token of the council's own Ray. Raises what ``opened`` raises."""
    with opened(where, report, sole="running") as (council, _):
        from council.api.client import handle_of
        from council.cluster import known
        from council.runtime.questions import AskPages

        handle = handle_of(council)
        pages = handle.wait(handle.session.ask(AskPages(install), PAGES_S))
        kept = known.read(council.name)
        is_ours = kept is not None and kept.address == council.config.ray_address
        return pages, kept.token if kept is not None and is_ours else None


def _same(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.rstrip("/") == other.rstrip("/")


def _metrics_tab(seen: dict[str, Any]) -> str:
    grafana = seen["grafana"]
    if grafana is None:
        return "none without Ray's dashboard"
    if grafana["host"] is None:
        return "expects a Grafana, and none answers; the panel is at its own address"
    if _same(grafana["host"], seen["panel"]):
        return "shows the panel"
    return f"shows the Grafana at {grafana['host']}; council dashboard install puts the council's dashboard there"
