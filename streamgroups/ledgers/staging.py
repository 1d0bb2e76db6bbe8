"""The port of sinks that keep a ledger: tasks stage the output of a micro-batch, and the driver commits it.

Implemented by ``streamgroups_sinks.postgres`` and ``streamgroups_sinks.delta``, called by ``streamgroups_spark``. A sink is a
frozen dataclass with the target and the options. It holds no connection, and Spark pickles it to the tasks, each in its
own process. The stage of a task is not visible: only attempts that the driver names in the transaction of the ledger
become output. So a task may be retried, run twice or die. Source: SEMANTICS X2-X4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from streamgroups.errors import RecordRejected
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Ledger

#: Schema and records as Arrow objects. The rules do not depend on Arrow.
_Schema = TypeVar("_Schema", contravariant=True)
_Records = TypeVar("_Records", contravariant=True)
#: The stage of one batch: created on the driver, pickled to the tasks.
_Stage = TypeVar("_Stage")
#: The staged output of one attempt of a task: pickled back to the driver.
_Staged = TypeVar("_Staged")


class StagingSink(Protocol[_Schema, _Records, _Stage, _Staged]):
    """A sink that changes output and positions in one transaction. Every method may run in another process."""

    @property
    def output(self) -> str:
        """The output and its ledger as ``kind:name``, for the form of a program (:mod:`streamgroups.groups.program`).

        Users see it, and all members of a group have the same one, so it contains no secrets and no names of hosts.
        """
        ...

    def begin(self, schema: _Schema, token: str) -> _Stage:
        """On the driver, before the tasks of a batch: checks the target against the schema and creates the stage.

        It creates the target if the options permit that.

        Args:
            schema: the schema of the records.
            token: a unique name for the stage of this batch and attempt: letters, digits and ``_``, at most 32
                characters.

        Raises:
            StreamGroupsError: if the target does not fit the schema, is not accessible, or does not answer.
        """
        ...

    def write(self, stage: _Stage, records: Iterator[_Records], attempt: int) -> _Staged:
        """In a task: stages its records.

        Args:
            stage: the result of :meth:`begin`.
            records: the records of the task; possibly empty.
            attempt: a number that is unique among all attempts of all tasks of this batch.

        Raises:
            StreamGroupsError: if the sink rejects a record. The text names the record if possible.
        """
        ...

    def open(self, group_id: str) -> AbstractContextManager[Ledger[Sequence[_Staged]]]:
        """On the driver: connects to the ledger of a group, and creates it if it does not exist.

        ``write`` of the ledger accepts the staged output of the successful attempts of the batch.

        Raises:
            StreamGroupsError: if the sink does not answer, or is not accessible.
        """
        ...

    def discard(self, stage: _Stage) -> None:
        """Removes a stage, committed or not.

        Does nothing if it does not exist. Raises nothing, since a remaining stage has no effect.
        """
        ...


@runtime_checkable
class VersionedSink(Protocol):
    """A sink whose ledger is in the versions of its table."""

    @property
    def output(self) -> str:
        """See :attr:`StagingSink.output`."""
        ...

    def read_ledger(
        self, group_id: str, partitions: Collection[TopicPartition], version: int | None = None
    ) -> tuple[dict[TopicPartition, int], int]:
        """The positions of a group in a version of the table, and the version. It creates nothing.

        Args:
            group_id: the group.
            partitions: the partitions. Those without a position are left out.
            version: the version; ``None`` for the current one.

        Raises:
            SinkRejected: if the table or the version does not exist.
            SinkUnreachable: if the store does not respond.
        """
        ...


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A staged row that the target rejects.

    Args:
        values: its values by column.
        error: the error of the target.
        record: the whole row as an Arrow table, if ``values`` is only what the target needs of it. Otherwise ``None``.
    """

    values: Mapping[str, Any]
    error: RecordRejected
    record: Any = None


@dataclass(frozen=True, slots=True)
class Isolated:
    """The staged output of a batch, without the rows that the target rejects.

    Args:
        staged: what ``write`` of the ledger accepts instead of the output of the tasks.
        n_rows: the number of remaining rows.
        rejected: the other rows, in the order of the tasks and their rows.
    """

    staged: Sequence[Any]
    n_rows: int
    rejected: tuple[RejectedRow, ...]


class IsolatingSink(Protocol):
    """A sink that can find the rows that its target rejects in the transaction of the ledger."""

    def isolate(self, staged: Sequence[Any], most: int) -> Isolated:
        """On the driver, after the target has rejected the output: finds the rows that it rejects.

        It changes neither the target nor the ledger.

        Args:
            staged: the output of the tasks.
            most: the search ends when it has found more rows than this number.

        Raises:
            StreamGroupsError: if the target does not answer, or another transaction conflicts.
        """
        ...
