"""``python -m benchmarks [--only codec omen inline …] [--scale 0.1]``; ``--help`` lists the groups."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks import acting, cluster, durable, growth, omen, pure, running, sight, thinking
from benchmarks.measure import Row, show

GROUPS: dict[str, Callable[[float], list[Row]]] = {
    "codec": pure.codec_rows,
    "omen": omen.omen_rows,
    "acting": acting.acting_rows,
    "import": pure.import_rows,
    "inline": running.inline_rows,
    "ray": running.ray_rows,
    "durable": durable.durable_rows,
    "growth": growth.growth_rows,
    "thinking": thinking.thinking_rows,
    "sight": sight.sight_rows,
    "cluster": cluster.cluster_rows,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--scale", type=float, default=1.0, help="fewer decisions, for a quick look")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.only:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        rows += GROUPS[name](arguments.scale)
    show(rows)
    return 1 if any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
