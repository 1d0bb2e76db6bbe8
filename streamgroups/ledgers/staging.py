"""What a sink that keeps a ledger does with a micro-batch: tasks stage its output, the driver commits it.

Implemented by ``streamgroups_postgres`` and ``streamgroups_delta``, called by ``streamgroups_spark``. A sink is a frozen dataclass that
says where and how; it holds no connection and is pickled to the tasks, each in a process of its own. What a task has staged
nobody sees: only what the driver names in the ledger's transaction becomes output, so a task may be tried again, run twice or die.
Source: SEMANTICS X2-X4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from streamgroups.ports import Ledger

#: A schema and records, as Arrow has them; the rules need not know Arrow.
_Schema = TypeVar("_Schema", contravariant=True)
_Records = TypeVar("_Records", contravariant=True)
#: Where the tasks of one batch put its output: made on the driver, pickled to the tasks.
_Stage = TypeVar("_Stage")
#: What one attempt of a task has staged: pickled back to the driver.
_Staged = TypeVar("_Staged")


class StagingSink(Protocol[_Schema, _Records, _Stage, _Staged]):
    """A sink whose output and positions change in one transaction of its own. Every method may run in another process."""

    def begin(self, schema: _Schema, token: str) -> _Stage:
        """On the driver, before the tasks of a batch: checks the target against the schema, makes it if that is wanted, makes the stage.

        Args:
            schema: of the records.
            token: a name for the stage that no other batch or attempt has: letters, digits and ``_``, at most 32.

        Raises:
            StreamGroupsError: if the target does not fit, may not be used, or does not answer; with the remedy.
        """
        ...

    def write(self, stage: _Stage, records: Iterator[_Records], attempt: int) -> _Staged:
        """In a task: stages its records.

        Args:
            stage: what :meth:`begin` made.
            records: the task's records; perhaps none.
            attempt: a number that no other attempt of any task of this batch has.

        Raises:
            StreamGroupsError: what the sink refuses, naming the record where it can.
        """
        ...

    def open(self, group_id: str) -> AbstractContextManager[Ledger[Sequence[_Staged]]]:
        """On the driver: connects to the ledger of a group. Its ``write`` takes what the batch's successful attempts have staged.

        It creates what the ledger needs, if it is not there.

        Raises:
            StreamGroupsError: if the sink does not answer, or may not be used.
        """
        ...

    def discard(self, stage: _Stage) -> None:
        """Removes a stage, committed or not. Does nothing if it is gone; raises nothing: what is left over harms nobody."""
        ...
