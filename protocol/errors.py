"""All errors of the council. Knows nothing of who raises them.

Every error carries its facts as attributes, says what happened and what to do, and pickles, because
errors cross process borders. Three families tell whose turn it is: ``CallerError`` (mend the call),
``OperatorError`` (mend the setting or the machine) and ``InternalError`` (our fault).
"""

from __future__ import annotations

from typing import Any, Self


class CouncilError(Exception):
    """The root of every error the council raises.

    ``code`` is stable and machine-readable; facts given as keywords become attributes.
    """

    code = "council_error"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["facts"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.facts)

    def __str__(self) -> str:
        return self.message


def _rebuild(kind: type[CouncilError], message: str, facts: dict[str, Any]) -> CouncilError:
    return kind(message, **facts)


class CallerError(CouncilError):
    """The call was wrong; calling again unchanged fails again."""

    code = "caller_error"


class OperatorError(CouncilError):
    """The surroundings are wrong: configuration, cluster, capacity. Mend them, then call again."""

    code = "operator_error"


class InternalError(CouncilError):
    """The council broke one of its own rules. Please report it."""

    code = "internal_error"


# What arrives on the wire


class EnvelopeError(CallerError):
    """An envelope, or the bytes that should hold one, is malformed.

    ``field`` is the dotted path of what is wrong (``content.vote``), or ``envelope`` for the whole.
    """

    code = "malformed"

    @classmethod
    def at(cls, field: str, problem: str, **facts: Any) -> Self:
        """What is wrong with a field, which the message names too."""
        return cls(f"{field}: {problem}", field=field, **facts)


class EnvelopeTooLarge(EnvelopeError):
    """An envelope passes a limit on bytes, depth or collection size (``limit``, ``found``)."""

    code = "too_large"


class VersionError(EnvelopeError):
    """The bytes speak a version of the protocol that this reader does not (``found``, ``readable``)."""

    code = "version"


class SignatureError(CallerError):
    """An envelope is not signed by the one it names, or was altered, or belongs to another council."""

    code = "forged"


class UnknownSender(CallerError):
    """Nobody with this name (``sender``) has joined the council."""

    code = "unknown_sender"


# What the rules refuse


class Refused(CallerError):
    """A well-formed envelope, persona or change that the rules do not allow. ``code`` says which rule."""

    code = "refused"

    def __init__(self, message: str, *, code: str = "refused", **facts: Any) -> None:
        super().__init__(message, code=code, **facts)
        self.code = code


class IllegalMove(CallerError):
    """A state machine (``machine``) has no move from where it is (``state``) to ``to``; ``allowed`` lists those."""

    code = "illegal_move"


class NotDispatched(CallerError):
    """A packet can't be handed to what does its ``task``: no handler, or what the task needs is not there."""

    code = "not_dispatched"


class TokenBudgetError(CallerError):
    """What must reach a model does not fit its tokens (``field``, ``limit``, ``found``; rules 2.2, 2.4, 2.5)."""

    code = "token_budget"


class CallDenied(CallerError):
    """A model call does not fit what may still be spent, or nobody waits for it (``seat``, ``model``; rules 2.6)."""

    code = "call_denied"


class NotEnrolled(CallerError):
    """This human (``name``) may not answer here, or not with this key; ``humans`` lists those who may."""

    code = "not_enrolled"


class TooManyOpen(OperatorError):
    """Back-pressure: as many proposals are open as the council allows (``open``, ``limit``)."""

    code = "too_many_open"


# What surrounds the council


class ConfigError(OperatorError):
    """The configuration is wrong; ``problems`` lists every fault found, each with its source and key."""

    code = "config"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message, **{"problems": (message,), **facts})


class MindError(OperatorError):
    """A seat's mind can't be imported, built or used (``seat``, ``mind``)."""

    code = "mind"


class ModelError(MindError):
    """A seat's model was not reached, or its answer is none that can be taken (``model``, ``where``).

    ``status`` is the server's, where it gave one.
    """

    code = "model"


class TokenizerError(OperatorError):
    """A tokenizer that was configured is none, or can't be read (``tokenizer``)."""

    code = "tokenizer"


class NameTaken(OperatorError):
    """A council, seat or sender of this name exists already (``name``)."""

    code = "name_taken"


class PoolMismatch(OperatorError):
    """A journal belongs to a pool of another size, or to none (``journal_of``, ``opened_as``)."""

    code = "pool_mismatch"


class Unreachable(OperatorError):
    """No council, or no Ray, answers where one was expected (``address``, ``name``)."""

    code = "unreachable"


class VersionMismatch(OperatorError):
    """The cluster runs another version of Ray, Python or this package (``ours``, ``theirs``)."""

    code = "version_mismatch"


class CouncilDied(OperatorError):
    """The council crashed; what was open, its journal alone still has (``name``, ``open_ids``).

    With ``reconnecting``, the client tries to connect anew for as long as it is asked, and with each call.
    """

    code = "council_died"


class CouncilClosed(CouncilDied):
    """The council was ended on purpose, with ``council down`` or by whoever launched it."""

    code = "council_closed"


class NoAnswer(OperatorError):
    """The council did not answer within the time that its own rules allow (``waited_s``)."""

    code = "no_answer"


class PositionLost(CallerError):
    """The events asked for are no longer kept (``asked``, ``oldest``)."""

    code = "position_lost"


# What is kept


class PacketConflict(CallerError):
    """Another packet is kept under this id (``packet_id``); none is ever overwritten (rules 4.2)."""

    code = "conflict"


class UnknownPacket(CallerError):
    """No packet of this id (``packet_id``) is kept."""

    code = "unknown_packet"


class UnknownJournal(CallerError):
    """The store (``where``) holds no record of this ``journal``."""

    code = "unknown_journal"


class ImportRefused(CallerError):
    """A file of packets can't be taken from some ``line`` on; what stands before it is kept."""

    code = "import_refused"


class EpochFenced(OperatorError):
    """A newer run of the coordinator has begun (``journal``, ``epoch``, ``newest``): this one writes no more."""

    code = "epoch_fenced"


class ReplayDiverged(OperatorError):
    """What a journal holds comes to something else by this version's rules (``position``)."""

    code = "replay_diverged"


class JournalHeld(OperatorError):
    """Another coordinator that lives writes this journal (``journal``, ``where``)."""

    code = "journal_held"


class OutOfOrder(InternalError):
    """What was to be appended does not follow the journal's head (``journal``, ``expected``, ``found``)."""

    code = "out_of_order"


class StoreError(OperatorError):
    """The store of packets can't be used as asked (``where``); nothing of what was asked was kept."""

    code = "store"


class StoreUnreachable(StoreError):
    """The store can't be opened, or its connection or disk failed; what was just asked may be kept or not."""

    code = "store_unreachable"


class StoreLocked(StoreError):
    """Somebody else held the store for longer than one waits (``timeout_s``)."""

    code = "store_locked"


class StoreReadOnly(StoreError):
    """The store may be read, and not written."""

    code = "store_read_only"


class StoreFull(StoreError):
    """The store's disk, quota or size limit has no room left."""

    code = "store_full"


class StoreCorrupt(StoreError):
    """The store is damaged."""

    code = "store_corrupt"


class JournalCorrupt(StoreCorrupt):
    """A journal does not hold: ``what`` is wrong with its record at ``position``, the first bad one."""

    code = "journal_corrupt"


class CheckpointRefused(StoreError):
    """A checkpoint is none, or not by the key or of the journal that it should be."""

    code = "checkpoint_refused"


class ProofRefused(StoreError):
    """A proof of a packet's place in a journal does not prove it."""

    code = "proof_refused"


class StoreForeign(StoreError):
    """There is something, but no store of the council's."""

    code = "store_foreign"


class StoreNewer(StoreError):
    """The store was made by a newer version of this package (``found``, ``known``)."""

    code = "store_newer"


class StoreOutdated(StoreError):
    """The store is of an older version of this package, and is to be migrated first (``found``, ``known``)."""

    code = "store_outdated"


class NotApproved(CouncilError):
    """A guarded function was not run; ``decision`` is the council's answer."""

    code = "not_approved"


class NotVerified(CouncilError):
    """A guarded function ran, and verifying failed; ``decision`` approved it, ``reverted`` says if it was undone."""

    code = "not_verified"
