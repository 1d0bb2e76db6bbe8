"""The view of ``streamgroups groups describe --state``: the states that committed offsets name.

``describing`` calls it. The name of the file of a state contains the time of its batch, so its age is known without the
files. Its size is in its file. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from streamgroups.durations import duration
from streamgroups.errors import StateDamaged, StateMismatch, StateMissing
from streamgroups.event_time.stored_time import StoredTime
from streamgroups.event_time.watermark import At
from streamgroups.groups.commit_metadata import position_of
from streamgroups.monitoring.monitor import state_times
from streamgroups.monitoring.snapshots import GroupSnapshot
from streamgroups.partitions import TopicPartition
from streamgroups.state.figures import StateSize, sum_of_sizes
from streamgroups.state.origins import Earlier, Named, New
from streamgroups.state.state_lookup import Position, Stored
from streamgroups.tables import Cell, Column
from streamgroups.times import utc
from streamgroups_cli.groups.styles import time_state_style

if TYPE_CHECKING:
    from streamgroups_operators.store import StoredStates

COLUMNS = (
    Column("topic"),
    Column("partition", right=True),
    Column("committed_offset", right=True),
    Column("state"),
    Column("state_offset", right=True, rank=1),
    Column("age", right=True, rank=2),
    Column("event_time", rank=5),
    Column("watermark", rank=3),
    Column("time_state", style=time_state_style, rank=4),
    Column("rows", right=True, rank=6),
    Column("bytes", right=True, rank=7),
    Column("files", right=True, rank=8),
    Column("file", rank=9),
    Column("detail", style=lambda _: "red"),
)


@dataclass(frozen=True, slots=True)
class CommittedState:
    """A committed offset and its state.

    Args:
        position: the offset, with the origin of its state.
        time: its event time; ``None`` if it has none.
        size: the size of the state; ``None`` if its file was not read.
        problem: why its file cannot be read, in a word; empty without a problem.
    """

    position: Position
    time: StoredTime | None = None
    size: StateSize | None = None
    problem: str = ""

    @property
    def kind(self) -> str:
        """Whether the commit names a state (``named``), an empty one (``empty``), or none (``none``)."""
        match self.position.origin:
            case Named() | Earlier():
                return "named"
            case New():
                return "empty"
        return "none"

    @property
    def named(self) -> Named | Earlier | None:
        """The name of the state."""
        return self.position.origin if isinstance(self.position.origin, Named | Earlier) else None

    def age_ms(self, now_ms: int) -> int | None:
        """The time since the batch of the state was planned. Clocks of machines differ, so it is at least 0."""
        return None if self.named is None else max(now_ms - self.named.file.planned_ms, 0)

    @property
    def watermark_ms(self) -> int | None:
        """The watermark of the partition; ``None`` without event time, and before its first record."""
        return self.time.asserts.time_ms if self.time is not None and isinstance(self.time.asserts, At) else None

    def cells(self, now_ms: int, *, human: bool) -> list[Cell]:
        """The cells after the partition."""
        size, named, age_ms, time = self.size, self.named, self.age_ms(now_ms), self.time
        event_time_ms = None if time is None else time.event_time_ms
        return [
            self.position.next_offset,
            self.kind,
            None if named is None else named.next_offset,
            duration(age_ms) if human else age_ms,
            *(utc(it) if human else it for it in (event_time_ms, self.watermark_ms)),
            None if time is None else time.state.value,
            *((None, None, None) if size is None else (size.rows, size.row_bytes, size.files)),
            None if named is None else str(named.file),
            self.problem,
        ]

    def document(self, now_ms: int) -> dict[str, Any] | None:
        """The state in JSON; ``None`` if the commit names none."""
        if self.kind == "none":
            return None
        size, named, time = self.size, self.named, self.time
        return {
            "kind": self.kind,
            "offset": None if named is None else named.next_offset,
            "file": None if named is None else str(named.file),
            "age_ms": self.age_ms(now_ms),
            "event_time_ms": None if time is None else time.event_time_ms,
            "watermark_ms": self.watermark_ms,
            "time_state": None if time is None else time.state.value,
            "rows": None if size is None else size.rows,
            "bytes": None if size is None else size.row_bytes,
            "files": None if size is None else size.files,
            "error": self.problem or None,
        }


States = Mapping[TopicPartition, CommittedState]


def committed_states(snapshots: Collection[GroupSnapshot], location: str | None) -> dict[str, States]:
    """Returns the states of the committed offsets of groups.

    Args:
        snapshots: the groups.
        location: where their state files are; ``None``: the sizes remain unknown.

    Raises:
        InvalidOption: if the location is not supported.
        StateUnreachable: if the storage does not answer.
    """
    return {
        snapshot.description.group_id: {it.position.topic_partition: it for it in _sized(snapshot, location)}
        for snapshot in snapshots
    }


def _sized(snapshot: GroupSnapshot, location: str | None) -> Iterable[CommittedState]:
    positions = [position_of(tp, it.next_offset, it.metadata) for tp, it in snapshot.committed.items()]
    group_time = state_times(snapshot)
    times = {} if group_time is None else group_time.partitions
    found = [CommittedState(it, times.get(it.topic_partition)) for it in positions]
    named = [it.origin.file for it in positions if isinstance(it.origin, Named | Earlier)]
    if location is None or not named:
        return found
    from streamgroups_operators.group_states import states_of

    stored = states_of(location, snapshot.description.group_id, named)
    return [_read(it, stored) for it in found]


def _read(committed: CommittedState, stored: Sequence[StoredStates]) -> CommittedState:
    if committed.named is None:
        return committed
    if not stored:
        return replace(committed, problem="missing")
    try:
        found = [it.find(committed.position) for it in stored]
    except (StateMissing, StateDamaged, StateMismatch) as e:
        return replace(committed, problem=e.code.removeprefix("state_"))
    sizes = [StateSize.of(it.state) for it in found if isinstance(it, Stored)]
    return replace(committed, size=sum_of_sizes(sizes))
