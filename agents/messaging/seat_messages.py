"""The messages from the council to a seat: an envelope, the proposal it is about, and the time that is left.

A message that leaves the process is sealed as a whole (``signing.seal_to``).
"""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

from council.protocol import codec
from council.protocol.envelope import Envelope
from council.protocol.errors import EnvelopeError

# Seconds left as a double, then the length of the attached proposal in bytes.
_HEAD = struct.Struct(">dI")


class Letter(NamedTuple):
    """``about`` is the PROPOSAL, unless ``envelope`` is one: a restarted seat does not have it."""

    envelope: Envelope
    about: Envelope | None
    time_left_s: float


def write(envelope: bytes, about: bytes, time_left_s: float) -> bytes:
    """A message's bytes, from those of its envelopes. ``about`` is empty if no proposal is attached."""
    return _HEAD.pack(time_left_s, len(about)) + about + envelope


def read(data: bytes) -> Letter:
    """The message that ``write`` wrote. Raises EnvelopeError for anything else."""
    if len(data) < _HEAD.size:
        raise EnvelopeError(f"letter: {len(data)} bytes are less than its head", field="letter")
    time_left_s, beside = _HEAD.unpack_from(data)
    about = data[_HEAD.size : _HEAD.size + beside]
    if len(about) < beside or not 0 <= time_left_s < math.inf:
        raise EnvelopeError("letter: its head does not fit what follows", field="letter")
    envelope = _trusted(data[_HEAD.size + beside :])
    return Letter(envelope, _trusted(about) if about else None, time_left_s)


@functools.lru_cache(maxsize=4)  # in process each seat gets the same proposal, and Prime gets it once more
def _trusted(data: bytes) -> Envelope:
    """Validates the envelope, but does not encode it again: the council has checked that its bytes are canonical."""
    return codec.decode(data, canonical=True)
