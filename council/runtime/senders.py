"""Checks who may send to a council, in which role and with which key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType

from council.protocol import signing
from council.protocol.errors import NameTaken, NotEnrolled, OperatorError, Refused
from council.protocol.values import quoted

# The greatest number of joined senders: each costs a key. It is more than any council's clients and humans.
SENDERS_MAX = 10_000
COORDINATOR = "coordinator"


class Senders:
    """The seats, humans and executors of a council, known from its launch, and those who joined (rules 1.14).

    ``roles`` gives the role of each: ``voter``, ``human``, ``executor`` or ``proposer``.
    """

    def __init__(
        self,
        council_id: str,
        seats: Mapping[str, bytes],
        humans: Mapping[str, bytes],
        executors: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        self.council_id = council_id
        self.keyring = signing.Keyring()
        for sender, key in (*seats.items(), *humans.items(), *executors.items()):
            self.keyring.add(sender, key)
        self.humans = sorted(humans)
        self._at_launch = frozenset((*seats, *humans, *executors))
        self.roles = dict.fromkeys(seats, "voter") | dict.fromkeys(humans, "human")
        self.roles |= dict.fromkeys(executors, "executor")
        self.proposers: dict[str, bytes] = {}
        self.leaving: set[str] = set()  # clients without a session that still have open proposals
        self._in_snapshots = 0

    def join(self, name: str, role: str, key: bytes) -> None:
        """Admits a client (``proposer``) or an ``executor`` with its own key, or a human with a greeting.

        See rules 1.14.

        Humans are enrolled at launch, and prove that they hold the key: ``key`` is then ``signing.greeting``. The
        same name, role and key again is a retry. Raises NameTaken, NotEnrolled, and Refused for a role or a name that
        is not allowed.
        """
        if role not in ("proposer", "executor", "human"):
            expected = "expected proposer, executor or human"
            raise Refused(f"nobody can join as {role!r}: {expected}", code="wrong_role")
        if role == "human":
            self._recognise(name, key)
            return
        self._admit(name, role, key)
        self.leaving.discard(name)

    def _admit(self, name: str, role: str, key: bytes) -> None:
        if name == COORDINATOR:
            raise NameTaken(f"the name {name} is the council's own; choose another", name=name)
        if name in self.keyring:
            if self.roles[name] == role and self.keyring.matches(name, key):
                return
            raise NameTaken(
                f"the name {name} belongs to a {self.roles[name]} with another key; choose another", name=name
            )
        if len(self.keyring) >= SENDERS_MAX:
            raise OperatorError(f"{SENDERS_MAX} senders have joined, the most a council admits; restart it")
        self.keyring.add(name, key)
        # The holder of a name may revise the proposals made under it (rules 1.3). So a name stays with its first
        # sender.
        if self.proposers.get(name) not in (None, _fingerprint(key)):
            self.keyring.remove(name)
            council = self.council_id.rpartition(".")[0]
            raise NameTaken(
                f"the name {name} was a client's with another key, and its proposals are in the journal: give that "
                f"key (key=), put back its file (journals/{council}.senders/{name}.key in the state folder of "
                "the user who launched the council then), or choose another name",
                name=name,
            )
        self.roles[name] = role

    def _recognise(self, name: str, greeting: bytes) -> None:
        who = f"those who may answer in {self.council_id}: {', '.join(self.humans) or 'nobody'}"
        if name not in self.humans:
            problem = f"{quoted(name)} is not enrolled; {who}"
            what_to_do = "answer as one of these, or name the human under humans and launch the council again"
        elif not self.keyring.greets(name, greeting, self.council_id):
            problem = f"this is not the key that {name} is enrolled with; {who}"
            what_to_do = f"say under humans.{name} where that key is, as at the launch"
        else:
            return
        raise NotEnrolled(f"{problem}; {what_to_do}", name=name, humans=self.humans)

    def mark(self, name: str) -> bytes:
        """The fingerprint of the key that ``name`` uses."""
        return self.proposers.get(name) or _fingerprint(self.keyring.key(name))

    def proposed(self, name: str, mark: bytes) -> None:
        """Records that ``name`` has proposed, or has run actions. Another key can't have the name from now on."""
        self.proposers.setdefault(name, mark)

    def take_new(self) -> dict[str, bytes]:
        """The proposers and their marks since the last call, for a snapshot."""
        seen, self._in_snapshots = self._in_snapshots, len(self.proposers)
        return dict(islice(self.proposers.items(), seen, None))

    def restore(self, proposers: Mapping[str, bytes]) -> None:
        """Adds the proposers of snapshots."""
        for name, mark in proposers.items():
            self.proposed(name, mark)
        self._in_snapshots = len(self.proposers)

    def retire(self, name: str, *, has_open: bool) -> None:
        """Removes a client that has left, once it has no open proposal. Humans stay."""
        if name in self._at_launch or name not in self.roles:
            return
        if has_open:
            self.leaving.add(name)
            return
        self.leaving.discard(name)
        self.keyring.remove(name)
        del self.roles[name]


def _fingerprint(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=16).digest()
