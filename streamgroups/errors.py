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
    ├── NotAuthorized           this user lacks a permission
    ├── LoginRejected           a broker, a sink or a service rejected the login
    ├── TokenUnavailable        a token provider or a token endpoint returned no valid token  (retriable)
    ├── GroupRejected           the current use of the group does not permit the operation
    ├── ProgramMismatch         the group belongs to another program
    ├── FencedMember            the group has replaced this member
    ├── FencedBatch             the sink rejects the batch: its positions, or its checkpoint, belong to another run
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
    ├── FunctionChanged         the code of a function has changed since this process imported it
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

import re
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

    #: Stable, machine-readable name of the error: that of its class, as in ``unknown_group``.
    code: ClassVar[str] = "error"
    #: Whether the same call may succeed later without any other change.
    retriable: ClassVar[bool] = False
    #: Control characters that its text may contain.
    _kept_characters: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.code = re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower().removesuffix("_error")

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


class InvalidProcessor(StreamGroupsError):
    """The declaration of a processor has errors. The text has one line for each, with file, line, field and remedy (P1)."""

    _kept_characters = "\n"


class MissingExtra(StreamGroupsError, ImportError):
    """A package that belongs to an extra of the distribution is not installed, or too old."""


class BrokerUnreachable(StreamGroupsError):
    """No broker answered in time."""

    retriable = True


class UnknownTopic(StreamGroupsError):
    """A topic or a partition does not exist, or this user may not describe it."""


class UnknownGroup(StreamGroupsError):
    """A consumer group does not exist, or this user may not describe it."""


class NotAuthorized(StreamGroupsError):
    """The user lacks a permission of the broker or of a sink."""


class LoginRejected(StreamGroupsError):
    """The brokers, a sink, a token endpoint or a schema registry rejected the login: its password, token or certificate."""


class TokenUnavailable(StreamGroupsError):
    """A token provider failed, a token endpoint did not answer, or a token has expired."""

    retriable = True


class GroupRejected(StreamGroupsError):
    """The current use of the group does not permit it: another subscription, protocol, or an exclusive member."""


class ProgramMismatch(StreamGroupsError):
    """The positions of the group, or of the checkpoint, belong to another program (SEMANTICS S14)."""


class FencedMember(StreamGroupsError):
    """The group has replaced this member, and the broker has rejected its commit (SEMANTICS G7, S3)."""


class FencedBatch(StreamGroupsError):
    """The sink rejects a batch. None of it was written (SEMANTICS X3).

    The batch is not at the position of the ledger or the group, another process uses its checkpoint, the checkpoint is an old
    copy, or the sink could not detect a replay of the output.
    """


class LedgerConflict(StreamGroupsError):
    """Another transaction has changed the same positions of a ledger. This one wrote nothing."""

    retriable = True


class TransactionFailed(StreamGroupsError):
    """A Kafka transaction has ended, or cannot be committed. None of it is visible.

    Another transaction can write the batch.
    """


class SinkUnreachable(StreamGroupsError):
    """A sink's database or store did not answer. Whether the commit succeeded is unknown."""

    retriable = True


class SinkRejected(StreamGroupsError):
    """A sink's table is missing, does not fit the records, or is not writable for this user. Nothing was written."""


class StageLost(StreamGroupsError):
    """The staged output of a batch no longer exists. None of it was written, and the batch must run again."""


class DataLoss(StreamGroupsError):
    """Offsets to be read no longer exist: retention, deleted records, or a recreated topic (SEMANTICS S7)."""


class ReadTimedOut(StreamGroupsError):
    """A partition returned neither a record nor its end within ``kafkaConsumer.pollTimeoutMs``."""

    retriable = True


class RecordRejected(StreamGroupsError):
    """A record cannot be written: it is too large, or a part of it is missing or invalid for the sink."""


class TooManyDeadLetters(StreamGroupsError):
    """A batch has more dead letters than the limits of its query allow. None of it was written (SEMANTICS P4)."""


class PositionsDiffer(StreamGroupsError):
    """Checkpoint, ledger and group have different positions.

    Raised if ``onRestart`` is ``fail`` (SEMANTICS S5), if a ledger lacks a reset of the group, if state or output depends on the
    positions, or if only expired offsets show whether output is written (SEMANTICS F5). The remedy depends on the cause.
    """


class PartlyDone(StreamGroupsError):
    """Some parts of an operation succeeded and others failed (SEMANTICS O2).

    The text names both, and the remedy the next action.
    """


class OffsetFormat(StreamGroupsError):
    """An offset in a checkpoint was not written by this library, or has a newer version."""


class CheckpointMismatch(StreamGroupsError):
    """A checkpoint belongs to another group (SEMANTICS S15)."""


class CheckpointRejected(StreamGroupsError):
    """A checkpoint cannot be copied as requested; nothing was written (SEMANTICS C5)."""


class StateMissing(StreamGroupsError):
    """No stored state of an operator leads to a position: its file does not exist, or retention has deleted it."""


class StateDamaged(StreamGroupsError):
    """A state file is damaged: its checksum, its length or its format is wrong."""


class StateMismatch(StreamGroupsError):
    """A state belongs to another topic, another cluster, another offset or another definition of the operator."""


class StateUnreachable(StreamGroupsError):
    """The storage of states does not answer, or rejects a request."""

    retriable = True


class PartitionsAdded(StreamGroupsError):
    """Partitions were added to a topic of a query that keeps state by key (SEMANTICS C4)."""


class UnknownSavepoint(StreamGroupsError):
    """A savepoint does not exist, or was not completed: it has no commit record (SEMANTICS C3)."""


class SavepointDamaged(StreamGroupsError):
    """A file of a savepoint is missing, or was changed (SEMANTICS C3)."""


class PinDamaged(StreamGroupsError):
    """A file of pinned records is damaged or does not exist, or belongs to another group (SEMANTICS X7)."""


class RegistryUnreachable(StreamGroupsError):
    """The schema registry did not answer, or has an internal error. No record became a dead letter (SEMANTICS P4)."""

    retriable = True


class SchemaRejected(StreamGroupsError):
    """A schema is missing in the schema registry, or the registry rejected a schema or a request."""


class FunctionFailed(StreamGroupsError):
    """A function of the user has raised an error, or has returned another table than it must. Nothing was written."""


class FunctionChanged(StreamGroupsError):
    """The code of a function of a processor has changed since this process imported it. Nothing was started (P2)."""


class AggregateOverflow(StreamGroupsError):
    """The result of an aggregate of windows exceeds its type, as in Spark's ARITHMETIC_OVERFLOW. Nothing was written."""


class QueryUnknown(StreamGroupsError):
    """The process that started a query does not respond, or does not report what its source needs.

    Such are the operators with state, the checkpoint, the sink with its ledger, and the reports of tasks.
    """

    retriable = True


class QueryGivenUp(StreamGroupsError):
    """A supervised query is not restarted: it failed permanently, or too often without progress."""


class InvalidCursor(StreamGroupsError):
    """A cursor is malformed, was altered, was signed with another key, or belongs to an instance of another process."""


class CursorExpired(StreamGroupsError):
    """A cursor was returned more than five minutes ago (SEMANTICS G5)."""


class EmbeddedBrokerError(StreamGroupsError):
    """The embedded broker could not be started, or has died. The text contains the last lines of its output."""

    _kept_characters = "\n\t"


_BY_CODE = {kind.code: kind for kind in StreamGroupsError.__subclasses__()}


def error_of(document: Mapping[str, Any]) -> StreamGroupsError:
    """Returns the error of a :attr:`StreamGroupsError.document`. An unknown code is a :class:`StreamGroupsError`.

    >>> error_of(FencedMember("It left.", remedy="Join again.", group="board").document)
    FencedMember('It left.', 'Join again.')
    """
    about = {name: document.get(name) for name in ("group", "topic", "partition")}
    return _BY_CODE.get(document["code"], StreamGroupsError)(document["message"], remedy=document["remedy"], **about)
