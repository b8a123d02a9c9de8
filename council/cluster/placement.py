"""Chooses the node of a cluster that a seat runs on, from nodes and needs as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from council.config.settings import MEMORY, CouncilConfig, SeatConfig
from council.protocol.errors import OperatorError, VersionMismatch

# An error lists at most this many nodes.
NODES_SHOWN = 8


class Node(NamedTuple):
    """A live node, as Ray reports it."""

    node_id: str
    host: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]

    @property
    def label(self) -> str:
        """Its name in an error. A host may have several nodes."""
        return f"{self.host} (node {self.node_id[:8]})"


def place(seat: SeatConfig, nodes: Iterable[Node], held: Iterable[str]) -> str | None:
    """The node for a seat: of those that have what it needs, the one with the fewest actors of the council.

    ``held`` names a node once for each of the council's actors on it. Returns None if no node will do.
    """
    load = Counter(held)
    fit = [node for node in nodes if fits(seat, node)]
    return min(fit, key=lambda node: (load[node.node_id], node.node_id)).node_id if fit else None


def fits(seat: SeatConfig, node: Node) -> bool:
    """Whether a node has a seat's labels, and in total as much as it needs; a part of that may be in use."""
    return all(node.labels.get(key) == value for key, value in seat.labels.items()) and all(
        node.resources.get(name, 0) >= amount for name, amount in seat.resources.items()
    )


def lacking(seat: SeatConfig, nodes: Iterable[Node]) -> str:
    """The reason why a seat does not start, if it is known: what it asks for, and what the nodes have."""
    every = list(nodes)
    wants = [f"{key}={value}" for key, value in seat.labels.items()]
    wants += [f"{amount:g} {name}" for name, amount in seat.resources.items()]
    if not wants or any(fits(seat, node) for node in every):
        return "see the cluster's resources (ray status)"
    shown = [_labelled(seat, node) for node in every[:NODES_SHOWN]]
    more = f", and {len(every) - NODES_SHOWN} more" if len(every) > NODES_SHOWN else ""
    return f"no node has {', '.join(wants)}: {'; '.join(shown)}{more}. Correct its labels or resources, or add a node"


def _labelled(seat: SeatConfig, node: Node) -> str:
    labels = [f"{key}={node.labels[key]}" for key in seat.labels if key in node.labels]
    resources = [f"{node.resources.get(name, 0):g} {name}" for name in seat.resources]
    return f"{node.label} has {', '.join([*labels, *resources]) or 'none of it'}"


def pinned(config: CouncilConfig) -> bool:
    """Whether the coordinator must stay on the node of its launch, because its journal is a file there."""
    return config.store != MEMORY and not (config.store or "").startswith("postgres")


def node_check(needed: str) -> Callable[[], tuple[str | None, str]]:
    """A function that a node runs. It returns the module that ``needed`` lacks there, or None, and our version.

    It is an inner function, because Ray sends these by value: nothing can be imported on a node without this package.
    """

    def check() -> tuple[str | None, str]:
        import importlib

        try:
            importlib.import_module(needed)
            return None, str(importlib.import_module("council").__version__)
        except ModuleNotFoundError as error:
            return error.name, ""

    return check


def refuse_unequal(found: Mapping[str, tuple[str | None, str]], ours: str) -> None:
    """Raises OperatorError or VersionMismatch that names the nodes on which a seat could not run.

    ``found`` is the answer of each node to ``node_check``.
    """
    lacks = [
        f"{host} (no module {module})" for host, (module, _) in sorted(found.items()) if module is not None
    ]
    other = {host: version for host, (module, version) in found.items() if module is None and version != ours}
    if lacks:
        raise OperatorError(
            f"a council can't run on these nodes of the cluster: {', '.join(lacks)}. Install council-runtime=={ours} "
            "there, or use --ship (setting ray_ship), which sends the package without its dependencies"
        )
    if other:
        versions = ", ".join(f"{version} on {host}" for host, version in sorted(other.items()))
        raise VersionMismatch(
            f"the cluster has council-runtime {versions}, this process {ours}: install the same, or use --ship "
            "(setting ray_ship), which sends this one",
            ours={"council": ours},
            theirs=other,
        )
