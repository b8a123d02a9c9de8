"""``council validate``: checks OMEN packets and whole episodes of files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from council.cli.options import Json
from council.cli.report import DONE, REJECTED, Report, UsageFault
from council.kinds.text import clean, count

if TYPE_CHECKING:
    from council.governance.episode import Episode
    from council.governance.results import Result

FILE_BYTES_MAX = 64 << 20
COMMAS_MAX = 4_000_000
PACKETS_MAX = 100_000
# So many problems are shown; the rest is counted.
PROBLEMS_MAX = 1_000


@dataclass
class _Found:
    """What the checks of all files have come to."""

    packets: int = 0
    errors: int = 0
    warnings: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)
    episodes: list[dict[str, Any]] = field(default_factory=list)

    def add(self, file: str, position: str, results: tuple[Result, ...]) -> None:
        from msgspec.structs import asdict

        for each in results:
            if each.severity == "ERROR":
                self.errors += 1
            else:
                self.warnings += 1
            if len(self.problems) < PROBLEMS_MAX:
                self.problems.append({"file": file, "position": position, **asdict(each)})


def validate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|-", help="Files of packets; - for standard input.")
    ],
    json: Json = False,
) -> int:
    """Check OMEN packets and whole episodes: form, order, invariants and budgets.

    council show --omen prints the packets of a proposal. A file holds one packet, a list of packets, an object with
    the key packets, or JSON Lines. A list is checked in its order, and may mix several episodes: packets with the
    same correlation_id form an episode. If a file holds a single packet, its order and its token are not checked.

    Exits 1 if a packet is not valid. Warnings alone exit 0.
    """
    report = Report(as_json=json)
    if files.count("-") > 1:
        raise UsageFault("- stands for standard input, which can be read once")
    given = [(name, _read(name)) for name in files]
    found = _Found()
    for name, data in given:
        _check_file(name, data, found)
    document = {
        "valid": not found.errors,
        "packets": found.packets,
        "errors": found.errors,
        "warnings": found.warnings,
        "episodes": found.episodes,
        "problems": found.problems,
        "problems_left_out": found.errors + found.warnings - len(found.problems),
    }
    shown = "\n".join(_lines(found))
    return report.result(document, shown, REJECTED if found.errors else DONE)


def _read(name: str) -> bytes:
    """The bytes of a file, or of standard input. Raises UsageFault."""
    where = "standard input" if name == "-" else name
    try:
        if name == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise UsageFault(f"{where}: can't be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UsageFault(f"{where}: more than {FILE_BYTES_MAX >> 20} MiB; split it by episodes")
    return data


def _check_file(name: str, data: bytes, found: _Found) -> None:
    """Checks the packets of one file in their order, each in the episode of its correlation id."""
    from council.governance import machine
    from council.governance.episode import Episode
    from council.protocol.errors import EnvelopeError
    from council.protocol.omen import read_packet

    episodes: dict[str, tuple[Episode, str]] = {}
    alone, packets = _packets(data)
    for number, (position, given) in enumerate(packets):
        if number >= PACKETS_MAX:
            raise UsageFault(f"{name}: more than {PACKETS_MAX:,} packets; split it by episodes")
        found.packets += 1
        if isinstance(given, EnvelopeError):
            found.add(name, position, machine.schema_results(None, given))
            continue
        try:
            packet = read_packet(given)
        except EnvelopeError as error:
            found.add(name, position, machine.schema_results(given, error))
            continue
        if alone:
            found.add(name, position, machine.check_alone(packet))
            continue
        correlation_id = packet.header.correlation_id
        episode, _ = episodes.get(correlation_id, (Episode(correlation_id), ""))
        stepped = machine.step(episode, packet)
        found.add(name, position, stepped.results)
        episodes[correlation_id] = stepped.episode, position
    for episode, position in episodes.values():
        found.add(name, position, machine.unfinished(episode))
        found.episodes.append(
            {
                "file": name,
                "correlation_id": episode.correlation_id,
                "state": episode.state,
                "accepted": len(episode.packet_ids),
            }
        )


def _packets(data: bytes) -> tuple[bool, Iterator[tuple[str, Any]]]:
    """Whether the file is one packet, and its packets with their positions. An unreadable one is an EnvelopeError."""
    from council.protocol.errors import EnvelopeError
    from council.protocol.values import read_json

    first, _, rest = data.strip().partition(b"\n")
    if rest.strip() and _is_object(first):
        return False, _lines_of(data)
    try:
        whole = read_json(data, field="", bytes_max=FILE_BYTES_MAX, commas_max=COMMAS_MAX)
    except EnvelopeError as error:
        return False, iter([("the file", error)])
    if isinstance(whole, dict) and isinstance(whole.get("packets"), list):
        return False, ((f"packets[{number}]", each) for number, each in enumerate(whole["packets"]))
    if isinstance(whole, list):
        return False, ((f"[{number}]", each) for number, each in enumerate(whole))
    return True, iter([("the file", whole)])


def _is_object(line: bytes) -> bool:
    from council.protocol.errors import EnvelopeError
    from council.protocol.values import read_object

    try:
        read_object(line, field="")
    except EnvelopeError:
        return False
    return True


def _lines_of(data: bytes) -> Iterator[tuple[str, Any]]:
    from council.protocol.errors import EnvelopeError
    from council.protocol.values import read_json

    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield f"line {number}", read_json(line, field="")
        except EnvelopeError as error:
            yield f"line {number}", error


def _lines(found: _Found) -> Iterator[str]:
    for each in found.problems:
        place = f"{each['path']}: " if each["path"] else ""
        yield clean(
            f"{each['file']}: {each['position']}: {each['severity']} {each['packet_id']}: {each['layer']} "
            f"{each['rule']}: {place}expected {each['expected']}, found {each['found']}"
        )
    left_out = found.errors + found.warnings - len(found.problems)
    if left_out:
        yield f"and {count(left_out, 'problem')} more"
    verdict = "not valid" if found.errors else "valid"
    faults = f"{count(found.errors, 'error')}, {count(found.warnings, 'warning')}"
    yield f"{verdict}: {count(found.packets, 'packet')}, {count(len(found.episodes), 'episode')}, {faults}"
