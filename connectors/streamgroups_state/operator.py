"""The port of an operator with state: a function of (state, records, time) to (state, output), for one partition.

Implemented by ``window_operator`` and ``function_operator``, and run by ``task_states`` in a Python worker. A state is a
function of the records before its offset, in their order, however batches cut them: any file for the same offset is
right, and a state can be computed again from an earlier one. An operator that uses a clock or the watermark of the group
is still exact, because the commit names the file. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from streamgroups.state.manifest import Segment
from streamgroups.state.state_time import StateTime

#: The rows of a part of a state: segments of files, oldest first, and new rows in memory.
Part: TypeAlias = Sequence[Segment | pa.Table]
#: Reads the rows of a part.
ReadPart: TypeAlias = Callable[[Part], pa.Table]


@dataclass(frozen=True, slots=True)
class State:
    """The state of one partition, in a task.

    Args:
        parts: the rows of each part.
        values: small values, such as the newest event time.
        due_ms: when the operator must run without new records, in milliseconds since the epoch; ``None``: never.
        time: its event time; ``None`` if the operator does not use the watermark of the group.
    """

    parts: Mapping[str, Part] = field(default_factory=dict)
    values: Mapping[str, int | str | None] = field(default_factory=dict)
    due_ms: int | None = None
    time: StateTime | None = None


@dataclass(frozen=True, slots=True)
class BatchTime:
    """The time of a batch, for one partition. A retried task has the same time.

    Args:
        now_ms: when the batch was planned, in milliseconds since the epoch.
        idle_until_ms: when the partition was last seen without available records. ``None`` if the batch reads offsets of
            it, also if a filter removes their records, or if it has available records.
        group_watermark_ms: the watermark of the group, in milliseconds since the epoch; ``None`` if it has none yet.
    """

    now_ms: int
    idle_until_ms: int | None = None
    group_watermark_ms: int | None = None


class Run(Protocol):
    """One batch of one partition. Used by one thread."""

    def add(self, records: pa.Table) -> None:
        """Processes records, in the order of their offsets."""
        ...

    def finish(self) -> tuple[State, list[pa.Table]]:
        """Ends the batch. Returns the new state, and the output rows."""
        ...


class StatefulOperator(Protocol):
    """An operator with state. Pickled into Python workers."""

    @property
    def name(self) -> str:
        """The name of the operator in its query."""
        ...

    @property
    def form(self) -> str:
        """The definition, as text. Only the same definition continues with a state."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The columns of the state."""
        ...

    @property
    def output(self) -> pa.Schema:
        """The columns of the output."""
        ...

    def begin(self, state: State, read: ReadPart, time: BatchTime) -> Run:
        """Begins a batch of one partition."""
        ...
