"""Detects whether a value has changed, however deep: a hash of its pickle, which is neither kept nor read.

Classes, modules and locks count by identity, and functions by their code, defaults, attributes and closures.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import threading
import types
from typing import Any

# The most parts of a value. Reading this many takes some seconds, and no call needs nearly as many.
PARTS_MAX = 300_000
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_BY_IDENTITY = (type, types.ModuleType, type(threading.Lock()), type(threading.RLock()), property)


class NotComparable(Exception):
    """A value has a part for which a change can't be detected."""


class Fingerprint:
    """The present state of a value. It holds parts that are compared by identity, so that their ids stay valid."""

    def __init__(self, value: Any) -> None:
        """Raises NotComparable."""
        pickler = _Pickler()
        try:
            pickler.dump(value)
        except NotComparable:
            raise
        except RecursionError as error:
            raise NotComparable("it is nested too deeply") from error
        except Exception as error:  # also of the value's own code
            raise NotComparable(f"{type(error).__name__}: {error}") from error
        self.digest = pickler.hash.digest()
        self._held = pickler.held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class _Pickler(pickle.Pickler):
    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.held: list[Any] = []
        self._parts = 0
        super().__init__(types.SimpleNamespace(write=self.hash.update), protocol=4)

    def persistent_id(self, value: Any) -> int | None:
        if type(value) in _PLAIN:
            return None
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise NotComparable(f"it holds more than {PARTS_MAX:,} values")
        if isinstance(value, _BY_IDENTITY) or (inspect.isbuiltin(value) and _of_module(value)):
            return self._id(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, types.MappingProxyType):
            return object, (), dict(value)
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            code = self._id(value.__code__)
            # As the state, because that may contain the function itself.
            return object, (), (code, value.__defaults__, value.__kwdefaults__, value.__dict__, cells)
        return NotImplemented

    def _id(self, value: Any) -> int:
        self.held.append(value)
        return id(value)


def _of_module(function: Any) -> bool:
    return function.__self__ is None or isinstance(function.__self__, types.ModuleType)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if the cell is empty
    except ValueError:
        return False
    return True
