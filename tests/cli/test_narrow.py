"""The screen of ``council top`` on a terminal that is narrower than its tables."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from council.cli.operate.live import Top
from council.cli.report import Report

from .test_top import spenders


@pytest.mark.parametrize("width", [20, 40, 79])
def test_what_models_cost_fits_a_narrow_screen(width: int) -> None:
    """Mutation: the table of wide screens, whose columns are cut to nothing."""
    with spenders() as council:
        dear = council.propose("spend 900", wait_for="all").proposal_id
        report = Report()
        report.out = Console(file=io.StringIO(), width=width, color_system=None)
        top = Top(council, report)
        for event in council.events(follow=False):
            top.wants(event)
        report.out.print(*top.parts(council.status(), 24), sep="\n")
        assert isinstance(report.out.file, io.StringIO)
        lines = report.out.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert len([each for each in lines if each.startswith("prime 900 $0.01")]) == 1
    assert len([each for each in lines if each.startswith("all 2,700 $0.03")]) == 1
    assert any(each.startswith(f"{dear[:8]} 2,70") for each in lines)
