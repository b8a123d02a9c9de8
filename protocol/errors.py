"""All errors of the council.

Every error has its facts as attributes, says what happened and what to do, and pickles, because errors cross process
borders. Three families say who must act: ``CallerError`` (correct the call), ``OperatorError`` (correct the setting
or the machine) and ``InternalError`` (our fault).
"""

from __future__ import annotations

from typing import Any, Self


class CouncilError(Exception):
    """The base class of all errors of the council.

    ``code`` is stable and machine-readable. Facts given as keywords become attributes.
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
    """The call was wrong. The same call will fail again."""

    code = "caller_error"


class OperatorError(CouncilError):
    """The environment is wrong: configuration, cluster, capacity. Correct it, then call again."""

    code = "operator_error"


class InternalError(CouncilError):
    """The council broke one of its own rules. Please report it."""

    code = "internal_error"


# Messages on the wire


class EnvelopeError(CallerError):
    """An envelope, or the bytes that should hold one, is malformed.

    ``field`` is the dotted path of the error (``content.vote``), or ``envelope`` for the whole.
    """

    code = "malformed"

    @classmethod
    def at(cls, field: str, problem: str, **facts: Any) -> Self:
        """An error of a field. The message names the field too."""
        return cls(f"{field}: {problem}", field=field, **facts)


class EnvelopeTooLarge(EnvelopeError):
    """An envelope exceeds a limit on bytes, depth or collection size (``limit``, ``found``)."""

    code = "too_large"


class VersionError(EnvelopeError):
    """The bytes have a version of the protocol that this reader does not know (``found``, ``readable``)."""

    code = "version"


class SignatureError(CallerError):
    """An envelope is not signed by the sender that it names, was altered, or belongs to another council."""

    code = "forged"


class UnknownSender(CallerError):
    """No sender of this name (``sender``) has joined the council."""

    code = "unknown_sender"


# Refusals by the rules


class Refused(CallerError):
    """The rules do not allow a well-formed envelope, persona or change. ``code`` names the rule."""

    code = "refused"

    def __init__(self, message: str, *, code: str = "refused", **facts: Any) -> None:
        super().__init__(message, code=code, **facts)
        self.code = code


class IllegalMove(CallerError):
    """A state machine (``machine``) can't move from ``state`` to ``to``; ``allowed`` lists the possible moves."""

    code = "illegal_move"


class NotDispatched(CallerError):
    """A packet can't be dispatched for its ``task``: it has no handler, or something that it needs is missing."""

    code = "not_dispatched"


class TokenBudgetError(CallerError):
    """A text that a model must read exceeds its tokens (``field``, ``limit``, ``found``; rules 2.2, 2.4, 2.5)."""

    code = "token_budget"


class CallDenied(CallerError):
    """A model call exceeds the budget, or its proposal is not open any more (``seat``, ``model``; rules 2.6)."""

    code = "call_denied"


class NotEnrolled(CallerError):
    """This human (``name``) may not answer here, or not with this key; ``humans`` lists those who may."""

    code = "not_enrolled"


class TooManyOpen(OperatorError):
    """Back-pressure: the council has as many open proposals as it allows (``open``, ``limit``)."""

    code = "too_many_open"


# The environment of the council


class ConfigError(OperatorError):
    """The configuration is wrong. ``problems`` lists every error, each with its source and key."""

    code = "config"

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message, **{"problems": (message,), **facts})


class NotInstalled(ConfigError):
    """An optional package is not installed. Installing council-runtime with ``extra`` brings it."""

    code = "not_installed"


class MindError(OperatorError):
    """A seat's mind can't be imported, built or used (``seat``, ``mind``)."""

    code = "mind"


class ModelError(MindError):
    """A seat's model was not reached, or its answer could not be accepted (``model``, ``where``).

    ``status`` is the server's, if it gave one.
    """

    code = "model"


class TokenizerError(OperatorError):
    """A configured tokenizer is invalid or can't be read (``tokenizer``)."""

    code = "tokenizer"


class NameTaken(OperatorError):
    """There is already a council, seat or sender of this name (``name``)."""

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
    """The council crashed. Only its journal still has the open proposals (``name``, ``open_ids``).

    With ``reconnecting``, the client tries to connect again while calls wait, and at each new call.
    """

    code = "council_died"


class CouncilClosed(CouncilDied):
    """The council was ended on purpose, by ``council down`` or by the program that launched it."""

    code = "council_closed"


class NoAnswer(OperatorError):
    """The council did not answer within the time that its rules allow (``waited_s``)."""

    code = "no_answer"


class PositionLost(CallerError):
    """The requested events are not kept any more (``asked``, ``oldest``)."""

    code = "position_lost"


# Journals and stores


class PacketConflict(CallerError):
    """Another packet has this id (``packet_id``). A packet is never overwritten (rules 4.2)."""

    code = "conflict"


class UnknownPacket(CallerError):
    """There is no packet with this id (``packet_id``)."""

    code = "unknown_packet"


class UnknownJournal(CallerError):
    """The store (``where``) has no records of this ``journal``."""

    code = "unknown_journal"


class ImportRefused(CallerError):
    """A file of packets can't be imported from a certain ``line`` on. Earlier lines are kept."""

    code = "import_refused"


class EpochFenced(OperatorError):
    """A newer run of the coordinator has begun (``journal``, ``epoch``, ``newest``), so this one may not write."""

    code = "epoch_fenced"


class ReplayDiverged(OperatorError):
    """A replay by this version's rules differs from the journal (``position``)."""

    code = "replay_diverged"


class JournalHeld(OperatorError):
    """Another live coordinator writes this journal (``journal``, ``where``)."""

    code = "journal_held"


class OutOfOrder(InternalError):
    """New rows do not follow the journal's head (``journal``, ``expected``, ``found``)."""

    code = "out_of_order"


class StoreError(OperatorError):
    """An operation on the packet store failed (``where``); nothing of it was kept."""

    code = "store"


class StoreUnreachable(StoreError):
    """The store can't be opened, or its connection or disk failed. The last operation may or may not be kept."""

    code = "store_unreachable"


class StoreLocked(StoreError):
    """Another process held the store for longer than the limit (``timeout_s``)."""

    code = "store_locked"


class StoreReadOnly(StoreError):
    """The store can be read but not written."""

    code = "store_read_only"


class StoreFull(StoreError):
    """The store's disk, quota or size limit is exhausted."""

    code = "store_full"


# Errors of a store that may be temporary: the operation is tried again.
PASSING = (StoreLocked, StoreUnreachable, StoreFull)


class StoreCorrupt(StoreError):
    """The store is damaged."""

    code = "store_corrupt"


class JournalCorrupt(StoreCorrupt):
    """A journal is invalid: ``what`` is wrong with the record at ``position``, the first bad one."""

    code = "journal_corrupt"


class CheckpointRefused(StoreError):
    """A checkpoint is invalid, or has another key or journal than expected."""

    code = "checkpoint_refused"


class ProofRefused(StoreError):
    """A proof does not prove a packet's place in a journal."""

    code = "proof_refused"


class StoreForeign(StoreError):
    """The file or database exists, but is not a store of the council."""

    code = "store_foreign"


class StoreNewer(StoreError):
    """A newer version of this package made the store (``found``, ``known``)."""

    code = "store_newer"


class StoreOutdated(StoreError):
    """An older version of this package made the store; it must be migrated first (``found``, ``known``)."""

    code = "store_outdated"


class NotApproved(CouncilError):
    """A guarded function was not run. The text says why; ``decision`` is the council's answer.

    ``error.decision.explain()`` has all objections and what can be done, for the agent's model.
    """

    code = "not_approved"


class NotVerified(CouncilError):
    """A guarded function ran, but its verification failed. ``decision`` approved it; ``reverted``: it was undone."""

    code = "not_verified"


class ActionFailed(CouncilError):
    """An approved action ran and failed. The text says how; ``result`` is the ActionResult."""

    code = "action_failed"


class OutcomeUnknown(CouncilError):
    """An approved action may have run, and its result is not known (``token``). It is not run again."""

    code = "outcome_unknown"
