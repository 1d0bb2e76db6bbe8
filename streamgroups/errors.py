"""Every error streamgroups raises, as one tree.

Raised by all packages; caught by users, the CLI (which turns ``code`` into an exit code) and Spark (which prints it as the
cause of a failed query)::

    StreamGroupsError
    ├── InvalidOption           an option or argument is unknown, malformed or contradicts another
    ├── MissingExtra            a package of an extra is not installed, or too old
    ├── BrokerUnreachable       no broker answered in time                                  (retriable)
    ├── UnknownTopic            a topic or partition does not exist
    ├── UnknownGroup            a consumer group does not exist
    ├── NotAuthorized           a broker or sink refused for lack of a permission or a login
    ├── GroupRejected            the group is in use in a way that does not fit ours
    ├── FencedMember            this member is no longer the one the group knows
    ├── FencedBatch             the sink's ledger does not stand where the batch begins
    ├── LedgerConflict          another transaction moved the same positions of a ledger     (retriable)
    ├── TransactionFailed       a Kafka transaction is over, or cannot be committed
    ├── SinkUnreachable         a sink's database or store did not answer                    (retriable)
    ├── SinkRejected             a sink's table is missing, does not fit the records, or may not be written
    ├── StageLost               what tasks had staged for a batch is gone; the batch must be run again
    ├── DataLoss                offsets that were to be read are gone from the topic
    ├── ReadTimedOut            a partition gave no record and no end for too long          (retriable)
    ├── RecordRejected           a record cannot be written: too large, or a part is missing
    ├── PositionsDiffer         checkpoint, ledger and group disagree, and that must not be
    ├── PartlyDone              some of what was asked for was done, some was not
    ├── OffsetFormat            an offset in a checkpoint was not written by this library
    ├── QueryUnknown            the process that started a query gives no facts about it         (retriable)
    ├── QueryGivenUp            a supervised query failed for good, or too often
    ├── InvalidCursor           a cursor was altered, or made with another key or by another process
    ├── CursorExpired           a cursor was returned more than five minutes ago
    └── EmbeddedBrokerError     the embedded broker could not be started or has died

Each error says what happened and to what, and carries a ``remedy``: what to do next. Errors cross process borders (Spark
pickles them from its workers), so each one pickles.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from streamgroups.printable import printable

_Error = TypeVar("_Error", bound="StreamGroupsError")


class StreamGroupsError(Exception):
    """The root of the tree.

    Args:
        what: one sentence: what happened, to which topic, partition or group.
        remedy: one sentence: what to do next.
        group: the consumer group, if the error is about one.
        topic: the topic, if the error is about one.
        partition: the partition of the topic, if the error is about one.

    >>> print(InvalidOption("Option 'startingTme' is unknown.", remedy="Did you mean 'startingTime'?"))
    Option 'startingTme' is unknown. Did you mean 'startingTime'?
    """

    #: Stable, machine-readable name of the error.
    code: ClassVar[str] = "error"
    #: Whether the same call may succeed later without anybody changing anything.
    retriable: ClassVar[bool] = False
    #: Control characters that its text may have.
    _keeps: ClassVar[str] = ""

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
        """The same error, about the same group and partition, in other words."""
        return type(self)(what, remedy=remedy, group=self.group, topic=self.topic, partition=self.partition)

    @property
    def document(self) -> dict[str, str | int | bool]:
        """The error as a JSON object; ``group``, ``topic`` and ``partition`` only where they are known.

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
        # Names of groups and clients are anybody's: an error must neither drive a terminal nor forge a line of a log.
        return printable(f"{self.what} {self.remedy}".strip(), keep=self._keeps)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.remedy, self.group, self.topic, self.partition)


def _rebuild(
    cls: type[StreamGroupsError], what: str, remedy: str, group: str | None, topic: str | None, partition: int | None
) -> StreamGroupsError:
    return cls(what, remedy=remedy, group=group, topic=topic, partition=partition)


class InvalidOption(StreamGroupsError):
    """An option or argument is unknown, malformed, or contradicts another one."""

    code = "invalid_option"


class MissingExtra(StreamGroupsError, ImportError):
    """A package that belongs to an extra of the distribution is not installed, or too old."""

    code = "missing_extra"


class BrokerUnreachable(StreamGroupsError):
    """No broker answered in time."""

    code = "broker_unreachable"
    retriable = True


class UnknownTopic(StreamGroupsError):
    """A topic or a partition does not exist (or may not be seen by this user)."""

    code = "unknown_topic"


class UnknownGroup(StreamGroupsError):
    """A consumer group does not exist (or may not be seen by this user)."""

    code = "unknown_group"


class NotAuthorized(StreamGroupsError):
    """The broker or a sink refused the login, or the logged-in user lacks a permission."""

    code = "not_authorized"


class GroupRejected(StreamGroupsError):
    """The group is in use in a way that does not fit: another subscription, protocol, or an exclusive member."""

    code = "group_refused"


class FencedMember(StreamGroupsError):
    """The group went on without this member; what it wanted to commit was refused (SEMANTICS G7, S3)."""

    code = "fenced_member"


class FencedBatch(StreamGroupsError):
    """The sink's ledger does not stand where the batch begins; nothing of the batch was written (SEMANTICS X3)."""

    code = "fenced_batch"


class LedgerConflict(StreamGroupsError):
    """Another transaction moved the same positions of a ledger meanwhile; this one wrote nothing."""

    code = "ledger_conflict"
    retriable = True


class TransactionFailed(StreamGroupsError):
    """A Kafka transaction is over, or cannot be committed; nothing of it is visible. The batch can be written in a new one."""

    code = "transaction_failed"


class SinkUnreachable(StreamGroupsError):
    """A sink's database or store did not answer; what was being committed may be there, or not."""

    code = "sink_unreachable"
    retriable = True


class SinkRejected(StreamGroupsError):
    """A sink's table is missing, does not fit the records, or may not be written by this user; nothing was written."""

    code = "sink_refused"


class StageLost(StreamGroupsError):
    """What the tasks of a batch had staged in a sink is gone; nothing of the batch was written, and it must be run again."""

    code = "stage_lost"


class DataLoss(StreamGroupsError):
    """Offsets that were to be read are gone: retention, deleted records, or a recreated topic (SEMANTICS S7)."""

    code = "data_loss"


class ReadTimedOut(StreamGroupsError):
    """A partition gave neither a record nor its end for longer than ``kafkaConsumer.pollTimeoutMs``."""

    code = "read_timed_out"
    retriable = True


class RecordRejected(StreamGroupsError):
    """A record cannot be written: it is too large, or a part of it is missing or none that the sink can hold."""

    code = "record_refused"


class PositionsDiffer(StreamGroupsError):
    """Checkpoint, ledger and group disagree about positions and ``onRestart`` is ``fail`` (SEMANTICS S5), or state depends on it."""

    code = "positions_differ"


class PartlyDone(StreamGroupsError):
    """Some of what was asked for was done and some was not; the text says which, the remedy how to go on (SEMANTICS O2)."""

    code = "partly_done"


class OffsetFormat(StreamGroupsError):
    """An offset read from a checkpoint was not written by this library, or by a newer version of it."""

    code = "offset_format"


class QueryUnknown(StreamGroupsError):
    """The process that started a query gives no facts about it: whether it keeps state, and where its checkpoint is."""

    code = "query_unknown"
    retriable = True


class QueryGivenUp(StreamGroupsError):
    """A supervised query is not started again: it failed for good, or too often without progress."""

    code = "query_given_up"


class InvalidCursor(StreamGroupsError):
    """A cursor is none, was altered, was signed with another key, or belongs to an instance that is not here."""

    code = "invalid_cursor"


class CursorExpired(StreamGroupsError):
    """A cursor was returned more than five minutes ago (SEMANTICS G5)."""

    code = "cursor_expired"


class EmbeddedBrokerError(StreamGroupsError):
    """The embedded broker could not be started, or has died. The text has the last lines that it printed."""

    code = "embedded_broker"
    _keeps = "\n\t"
