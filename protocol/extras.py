"""Checks for the optional packages, which the extras of ``council-runtime`` install."""

from __future__ import annotations

from importlib.util import find_spec

from council.protocol.errors import NotInstalled


def is_installed(module: str) -> bool:
    """Whether ``module`` can be found. It is not imported, but the packages that it is in are."""
    try:
        found = find_spec(module)
    except ImportError:  # a package that it is in is missing
        return False
    return found is not None and found.has_location  # a folder of the name without modules has no location


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'council-runtime[{extra}]'"


def require(module: str, *, package: str, extra: str, what: str, otherwise: str = "") -> None:
    """Raises NotInstalled if ``module`` of ``package`` is not installed.

    ``what`` is what needs it, the subject of the message. ``otherwise`` ends the message, and says what works
    without the package.
    """
    if not is_installed(module):
        raise NotInstalled(
            f"{what} needs {package}, which is not installed: {install(extra)}{otherwise}", extra=extra
        )


def require_ray(what: str, otherwise: str = "") -> None:
    """Raises NotInstalled if Ray is not installed; see ``require``."""
    require("ray", package="Ray", extra="ray", what=what, otherwise=otherwise)
