"""``python -m benchmarks.peers [--environments .venv-peers] [--rounds 5] [--scale 1] [--only …]``: prints the tables.

Each peer does the job in a process of its own, one after the other, and all of them again in each round. So what else
the machine does meets all alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.job import LEVELS
from benchmarks.measure import markdown, number, ratios

ROOT = Path(__file__).resolve().parent.parent.parent
WITHIN_S = 3_600.0


@dataclass(frozen=True)
class Peer:
    """``opened``: the module and function that do the job; ``beside``: the peer that its rate is set against."""

    name: str
    environment: str | None
    opened: str
    beside: str

    def python(self, environments: Path) -> str:
        return str(environments / self.environment / "bin" / "python") if self.environment else sys.executable


MEMORY, DURABLE = "council, no journal", "council, journal in SQLite"
PEERS = (
    Peer(MEMORY, None, "ours:in_memory", MEMORY),
    Peer("agent-framework, custom agents", "agent-framework", "agent_framework:custom_agents", MEMORY),
    Peer("agent-framework, chat agents", "agent-framework", "agent_framework:chat_agents", MEMORY),
    Peer("agent-framework, workflows", "agent-framework", "agent_framework:workflows", MEMORY),
    Peer("autogen-core", "autogen", "autogen:runtime", MEMORY),
    Peer("langgraph, no checkpoints", "langgraph", "langgraph:in_memory", MEMORY),
    Peer(DURABLE, None, "ours:durable", DURABLE),
    Peer("langgraph, SQLite, the last state", "langgraph", "langgraph:last_state", DURABLE),
    Peer("langgraph, SQLite, each step", "langgraph", "langgraph:each_step", DURABLE),
)
Round = dict[str, dict[str, Any]]


def run(peer: Peer, environments: Path, scale: float) -> dict[str, Any]:
    """What ``child.measured`` found. Raises CalledProcessError or TimeoutExpired where the peer fails."""
    with tempfile.TemporaryDirectory(prefix="council-peers-") as folder:
        command = [peer.python(environments), "-m", "benchmarks.peers.child", peer.opened, folder, str(scale)]
        done = subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True, timeout=WITHIN_S
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def tables(rounds: list[Round]) -> str:
    """Two tables in Markdown: medians of the rounds, with the lowest and the highest."""
    waits = [["", *(f"{level} in flight" for level in LEVELS), "CPU of one, 100 in flight"]]
    rates = [["", *(f"{level} in flight" for level in LEVELS), "RSS; grew"]]
    for name in rounds[0]:
        mine = [each[name] for each in rounds]
        waits.append(
            [name, *(_wait(mine, level) for level in LEVELS), f"{_beside(rounds, name, 100, 'cpu')} ms"]
        )
        memory = "; ".join(number(statistics.median(each[key] for each in mine)) for key in ("rss", "grew"))
        rates.append([name, *(_rate(rounds, name, level) for level in LEVELS), f"{memory} MB"])
    return f"p50; p99 of a decision, in ms\n\n{markdown(waits)}\n\nDecisions a second\n\n{markdown(rates)}"


def _values(mine: list[dict[str, Any]], level: int, key: str) -> list[float]:
    return [each["levels"][str(level)][key] for each in mine]


def _wait(mine: list[dict[str, Any]], level: int) -> str:
    return "; ".join(number(statistics.median(_values(mine, level, key))) for key in ("p50", "p99"))


def _rate(rounds: list[Round], name: str, level: int) -> str:
    rates = _values([each[name] for each in rounds], level, "rate")
    median, *ratio = _beside(rounds, name, level, "rate").partition(" × ")
    return f"{median} ({number(min(rates))} to {number(max(rates))}){''.join(ratio)}"


def _beside(rounds: list[Round], name: str, level: int, key: str) -> str:
    """The median, and the median of the ratios to what the peer is set against, round by round."""
    mine = _values([each[name] for each in rounds], level, key)
    (other,) = (peer.beside for peer in PEERS if peer.name == name)
    if other == name or other not in rounds[0]:
        return number(statistics.median(mine))
    theirs = _values([each[other] for each in rounds], level, key)
    return f"{number(statistics.median(mine))} × {ratios(mine, theirs):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv-peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="fewer decisions, for a quick look")
    parser.add_argument("--only", nargs="+", metavar="PART", help="peers whose names have one of these parts")
    arguments = parser.parse_args()
    wanted = [p for p in PEERS if not arguments.only or any(part in p.name for part in arguments.only)]
    rounds: list[Round] = []
    for turn in range(arguments.rounds):
        rounds.append({})
        for peer in wanted:
            print(f"round {turn + 1} of {arguments.rounds}: {peer.name}", file=sys.stderr, flush=True)
            rounds[-1][peer.name] = run(peer, arguments.environments.absolute(), arguments.scale)
        print(json.dumps(rounds[-1]), flush=True)
    print(tables(rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
