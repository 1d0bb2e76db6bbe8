"""All errors of streamgroups, as one class hierarchy.

Raised by all packages. Caught by users, by the CLI and by Spark. The CLI maps ``code`` to an exit code, and Spark prints
the error as the cause of a failed query::

    StreamGroupsError
    ├── InvalidOption           an option or argument is unknown, malformed or contradicts another
    ├── InvalidProcessor        the declaration of a processor has errors; the text has one line for each
    ├── MissingExtra            a package of an extra is not installed, or too old
    ├── BrokerUnreachable       no broker answered in time                                  (retriable)
    ├── UnknownTopic            a topic or partition does not exist
    ├── UnknownGroup            a consumer group does not exist
    ├── NotAuthorized           a broker or sink rejected the login, or a permission is missing
    ├── TokenUnavailable        a token provider or a token endpoint returned no valid token  (retriable)
    ├── GroupRejected           the current use of the group does not permit the operation
    ├── ProgramMismatch         the group belongs to another program
    ├── FencedMember            the group has replaced this member
    ├── FencedBatch             the batch does not begin at the position of the sink's ledger
    ├── LedgerConflict          another transaction changed the same positions of a ledger   (retriable)
    ├── TransactionFailed       a Kafka transaction has ended, or cannot be committed
    ├── SinkUnreachable         a sink's database or store did not answer                    (retriable)
    ├── SinkRejected            a sink's table is missing, does not fit the records, or is not writable
    ├── StageLost               the staged output of a batch no longer exists; the batch must run again
    ├── DataLoss                offsets to be read no longer exist in the topic
    ├── ReadTimedOut            a partition returned neither a record nor its end in time    (retriable)
    ├── RecordRejected          a record cannot be written: too large, or a part is missing
    ├── TooManyDeadLetters      a batch has more dead letters than the limits of its query allow
    ├── PositionsDiffer         checkpoint, ledger and group differ, which is not permitted here
    ├── PartlyDone              some parts of an operation succeeded, others failed
    ├── OffsetFormat            an offset in a checkpoint was not written by this library
    ├── CheckpointMismatch      a checkpoint belongs to another group
    ├── CheckpointRejected      a checkpoint cannot be copied as requested
    ├── StateMissing            no stored state of an operator leads to a position
    ├── StateDamaged            a state file is damaged, or cannot be read
    ├── StateMismatch           a state belongs to another topic, cluster, offset or operator
    ├── StateUnreachable        the storage of states did not answer                         (retriable)
    ├── PartitionsAdded         partitions were added to a topic whose operators keep state by key
    ├── UnknownSavepoint        a savepoint does not exist, or was not completed
    ├── SavepointDamaged        a file of a savepoint is missing, or was changed
    ├── PinDamaged              a file of pinned records is damaged, or does not exist
    ├── RegistryUnreachable     the schema registry did not answer                           (retriable)
    ├── SchemaRejected          a schema is missing in the registry, or the registry rejected it
    ├── FunctionFailed          a function of the user raised an error, or returned a wrong table
    ├── AggregateOverflow       the result of an aggregate exceeds its type
    ├── QueryUnknown            the process that started a query reports no facts about it   (retriable)
    ├── QueryGivenUp            a supervised query failed permanently, or too often
    ├── InvalidCursor           a cursor was altered, or created with another key or by another process
    ├── CursorExpired           a cursor was returned more than five minutes ago
    └── EmbeddedBrokerError     the embedded broker could not be started or has died

Each error describes the event and its subject, and contains a ``remedy``: the next action of the user. Spark pickles
the errors of its workers, so every error can be pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from streamgroups.printable import printable

_Error = TypeVar("_Error", bound="StreamGroupsError")


class StreamGroupsError(Exception):
    """The base class of all errors.

    Args:
        what: one sentence: the event, and the topic, partition or group.
        remedy: one sentence: the next action of the user.
        group: the consumer group, if the error is about one.
        topic: the topic, if the error is about one.
        partition: the partition of the topic, if the error is about one.

    >>> print(InvalidOption("Option 'startingTimestmp' is unknown.", remedy="Did you mean 'startingTimestamp'?"))
    Option 'startingTimestmp' is unknown. Did you mean 'startingTimestamp'?
    """

    #: Stable, machine-readable name of the error.
    code: ClassVar[str] = "error"
    #: Whether the same call may succeed later without any other change.
    retriable: ClassVar[bool] = False
    #: Control characters that its text may contain.
    _kept_characters: ClassVar[str] = ""

    def __init__(
        self,
        what: str,
        *,
        remedy: str = "",
        group: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy
        self.group = group
        self.topic = topic
        self.partition = partition

    def with_text(self: _Error, what: str, remedy: str) -> _Error:
        """The same error, about the same group and partition, with another text."""
        return type(self)(what, remedy=remedy, group=self.group, topic=self.topic, partition=self.partition)

    @property
    def document(self) -> dict[str, str | int | bool]:
        """The error as a JSON object. It contains ``group``, ``topic`` and ``partition`` only if they are known.

        >>> UnknownGroup("Group 'orders' does not exist.", group="orders").document
        {'class': 'UnknownGroup', 'code': 'unknown_group', 'message': "Group 'orders' does not exist.", 'remedy': '', \
'retriable': False, 'group': 'orders'}
        """
        about = {"group": self.group, "topic": self.topic, "partition": self.partition}
        return {
            "class": type(self).__name__,
            "code": self.code,
            "message": self.what,
            "remedy": self.remedy,
            "retriable": self.retriable,
            **{name: value for name, value in about.items() if value is not None},
        }

    def __str__(self) -> str:
        # Any client chooses names of groups and clients. An error must neither control a terminal nor forge a log line.
        return printable(f"{self.what} {self.remedy}".strip(), keep=self._kept_characters)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.remedy, self.group, self.topic, self.partition)


def _rebuild(
    cls: type[StreamGroupsError], what: str, remedy: str, group: str | None, topic: str | None, partition: int | None
) -> StreamGroupsError:
    return cls(what, remedy=remedy, group=group, topic=topic, partition=partition)


class InvalidOption(StreamGroupsError):
    """An option or argument is unknown, malformed, or contradicts another one."""

    code = "invalid_option"


class InvalidProcessor(StreamGroupsError):
    """The declaration of a processor has errors. The text has one line for each, with file, line, field and remedy (P1)."""

    code = "invalid_processor"
    _kept_characters = "\n"


class MissingExtra(StreamGroupsError, ImportError):
    """A package that belongs to an extra of the distribution is not installed, or too old."""

    code = "missing_extra"


class BrokerUnreachable(StreamGroupsError):
    """No broker answered in time."""

    code = "broker_unreachable"
    retriable = True


class UnknownTopic(StreamGroupsError):
    """A topic or a partition does not exist, or this user may not describe it."""

    code = "unknown_topic"


class UnknownGroup(StreamGroupsError):
    """A consumer group does not exist, or this user may not describe it."""

    code = "unknown_group"


class NotAuthorized(StreamGroupsError):
    """The broker or a sink rejected the login, or the user lacks a permission."""

    code = "not_authorized"


class TokenUnavailable(StreamGroupsError):
    """A token provider failed, a token endpoint did not answer, or a token has expired."""

    code = "token_unavailable"
    retriable = True


class GroupRejected(StreamGroupsError):
    """The current use of the group does not permit it: another subscription, protocol, or an exclusive member."""

    code = "group_rejected"


class ProgramMismatch(StreamGroupsError):
    """The positions of the group, or of the checkpoint, belong to another program (SEMANTICS S14)."""

    code = "program_mismatch"


class FencedMember(StreamGroupsError):
    """The group has replaced this member, and the broker has rejected its commit (SEMANTICS G7, S3)."""

    code = "fenced_member"


class FencedBatch(StreamGroupsError):
    """The batch does not begin at the position of the sink's ledger. None of it was written (SEMANTICS X3)."""

    code = "fenced_batch"


class LedgerConflict(StreamGroupsError):
    """Another transaction has changed the same positions of a ledger. This one wrote nothing."""

    code = "ledger_conflict"
    retriable = True


class TransactionFailed(StreamGroupsError):
    """A Kafka transaction has ended, or cannot be committed. None of it is visible.

    Another transaction can write the batch.
    """

    code = "transaction_failed"


class SinkUnreachable(StreamGroupsError):
    """A sink's database or store did not answer. Whether the commit succeeded is unknown."""

    code = "sink_unreachable"
    retriable = True


class SinkRejected(StreamGroupsError):
    """A sink's table is missing, does not fit the records, or is not writable for this user. Nothing was written."""

    code = "sink_rejected"


class StageLost(StreamGroupsError):
    """The staged output of a batch no longer exists. None of it was written, and the batch must run again."""

    code = "stage_lost"


class DataLoss(StreamGroupsError):
    """Offsets to be read no longer exist: retention, deleted records, or a recreated topic (SEMANTICS S7)."""

    code = "data_loss"


class ReadTimedOut(StreamGroupsError):
    """A partition returned neither a record nor its end within ``kafkaConsumer.pollTimeoutMs``."""

    code = "read_timed_out"
    retriable = True


class RecordRejected(StreamGroupsError):
    """A record cannot be written: it is too large, or a part of it is missing or invalid for the sink."""

    code = "record_rejected"


class TooManyDeadLetters(StreamGroupsError):
    """A batch has more dead letters than the limits of its query allow. None of it was written (SEMANTICS P4)."""

    code = "too_many_dead_letters"


class PositionsDiffer(StreamGroupsError):
    """Checkpoint, ledger and group have different positions.

    Raised if ``onRestart`` is ``fail`` (SEMANTICS S5), or if the state depends on the positions.
    """

    code = "positions_differ"


class PartlyDone(StreamGroupsError):
    """Some parts of an operation succeeded and others failed (SEMANTICS O2).

    The text names both, and the remedy the next action.
    """

    code = "partly_done"


class OffsetFormat(StreamGroupsError):
    """An offset in a checkpoint was not written by this library, or has a newer version."""

    code = "offset_format"


class CheckpointMismatch(StreamGroupsError):
    """A checkpoint belongs to another group (SEMANTICS S15)."""

    code = "checkpoint_mismatch"


class CheckpointRejected(StreamGroupsError):
    """A checkpoint cannot be copied as requested; nothing was written (SEMANTICS C5)."""

    code = "checkpoint_rejected"


class StateMissing(StreamGroupsError):
    """No stored state of an operator leads to a position: its file does not exist, or retention has deleted it."""

    code = "state_missing"


class StateDamaged(StreamGroupsError):
    """A state file is damaged: its checksum, its length or its format is wrong."""

    code = "state_damaged"


class StateMismatch(StreamGroupsError):
    """A state belongs to another topic, another cluster, another offset or another definition of the operator."""

    code = "state_mismatch"


class StateUnreachable(StreamGroupsError):
    """The storage of states does not answer, or rejects a request."""

    code = "state_unreachable"
    retriable = True


class PartitionsAdded(StreamGroupsError):
    """Partitions were added to a topic of a query that keeps state by key (SEMANTICS C4)."""

    code = "partitions_added"


class UnknownSavepoint(StreamGroupsError):
    """A savepoint does not exist, or was not completed: it has no commit record (SEMANTICS C3)."""

    code = "unknown_savepoint"


class SavepointDamaged(StreamGroupsError):
    """A file of a savepoint is missing, or was changed (SEMANTICS C3)."""

    code = "savepoint_damaged"


class PinDamaged(StreamGroupsError):
    """A file of pinned records is damaged or does not exist, or belongs to another group (SEMANTICS X7)."""

    code = "pin_damaged"


class RegistryUnreachable(StreamGroupsError):
    """The schema registry did not answer, or has an internal error. No record became a dead letter (SEMANTICS P4)."""

    code = "registry_unreachable"
    retriable = True


class SchemaRejected(StreamGroupsError):
    """A schema is missing in the schema registry, or the registry rejected a schema or a request."""

    code = "schema_rejected"


class FunctionFailed(StreamGroupsError):
    """A function of the user has raised an error, or has returned another table than it must. Nothing was written."""

    code = "function_failed"


class AggregateOverflow(StreamGroupsError):
    """The result of an aggregate of windows exceeds its type, as in Spark's ARITHMETIC_OVERFLOW. Nothing was written."""

    code = "aggregate_overflow"


class QueryUnknown(StreamGroupsError):
    """The process that started a query does not report whether it keeps state, and where its checkpoint is."""

    code = "query_unknown"
    retriable = True


class QueryGivenUp(StreamGroupsError):
    """A supervised query is not restarted: it failed permanently, or too often without progress."""

    code = "query_given_up"


class InvalidCursor(StreamGroupsError):
    """A cursor is malformed, was altered, was signed with another key, or belongs to an instance of another process."""

    code = "invalid_cursor"


class CursorExpired(StreamGroupsError):
    """A cursor was returned more than five minutes ago (SEMANTICS G5)."""

    code = "cursor_expired"


class EmbeddedBrokerError(StreamGroupsError):
    """The embedded broker could not be started, or has died. The text contains the last lines of its output."""

    code = "embedded_broker"
    _kept_characters = "\n\t"


_BY_CODE = {kind.code: kind for kind in StreamGroupsError.__subclasses__()}


def error_of(document: Mapping[str, Any]) -> StreamGroupsError:
    """Returns the error of a :attr:`StreamGroupsError.document`. An unknown code is a :class:`StreamGroupsError`.

    >>> error_of(FencedMember("It left.", remedy="Join again.", group="board").document)
    FencedMember('It left.', 'Join again.')
    """
    about = {name: document.get(name) for name in ("group", "topic", "partition")}
    return _BY_CODE.get(document["code"], StreamGroupsError)(document["message"], remedy=document["remedy"], **about)
