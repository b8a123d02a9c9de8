"""The lowest version of each package that pyproject.toml allows, as constraints for pip (make test-lowest)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
_FLOOR = re.compile(r"([\w.-]+)(?:\[[^]]*\])?>=([\w.]+)")


def lowest() -> list[str]:
    """The floor of each direct dependency, those of the extras too."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    wanted = sum(project["optional-dependencies"].values(), project["dependencies"])
    floors = filter(None, map(_FLOOR.match, wanted))
    return sorted({f"{name}=={version}" for name, version in (floor.groups() for floor in floors)})


if __name__ == "__main__":
    print("\n".join(lowest()))
