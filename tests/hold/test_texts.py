"""Public names, settings, errors, options and shapes are what the text files in this folder say."""

from __future__ import annotations

import re

import pytest

from tests.hold import errors, names, options, settings, shapes, texts


@pytest.mark.parametrize(
    "module", [errors, names, options, settings, shapes], ids=lambda module: module.__name__
)
def test_it_is_as_it_was(module: object) -> None:
    name = module.__name__.rpartition(".")[2]  # type: ignore[attr-defined]
    texts.compare(name, module.lines())  # type: ignore[attr-defined]


def test_every_key_has_a_variable_that_is_tried() -> None:
    """So that no key is added without its variable being held."""
    tried = {name.rpartition("__")[2].lower() for name in settings.GIVEN | settings.FILES | {"RULES": ""}}
    seat = {key for key, _, _ in settings.forms(settings.SeatConfig)} - {"name"}
    council = {key for key, _, _ in settings.forms(settings.CouncilConfig)} - {"seats", "pool"}
    assert tried == seat | council | {"name"}


def test_every_command_is_tried() -> None:
    """So that no command is added without what it prints being held."""
    tried = [line for name in ("shapes", "shapes_on_ray") for line in texts.held(name)]
    for name, command in options.commands():
        is_group = hasattr(command, "commands")
        if not is_group and name != "top":  # see shapes.py
            assert [line for line in tried if re.match(rf"council {name}\b", line)], name


def test_a_line_that_is_gone_is_named() -> None:
    with pytest.raises(AssertionError, match="- own_stream"):
        texts.compare("errors", [line for line in texts.held("errors") if line != "own_stream"])
