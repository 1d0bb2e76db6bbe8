"""Creates a savepoint: reads the committed offsets of a group, copies the files of their states, and writes the commit record.

Called by ``streamgroups savepoint create``. The group can run meanwhile: no member takes part. If retention deletes a file in
between, the cut is taken again. Files of the cut before are reused, and those that the last cut does not need are deleted before
the commit record is written. Source: SEMANTICS C3; KIP-709 (all offsets of a group in one request).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from streamgroups._version import __version__
from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import GroupRejected, NotAuthorized, StateMissing, StreamGroupsError, UnknownGroup
from streamgroups.groups.commit_metadata import position_of
from streamgroups.groups.lag import FirstOfLag, PartitionError
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import Bounds, StampedOffset, TopicPartition
from streamgroups.ports import Committed, GroupAdmin, TopicAdmin
from streamgroups.savepoints.checkpoint_record import CheckpointRecord
from streamgroups.savepoints.commit_record import CommitRecord, OperatorRecord, SavedPosition
from streamgroups.savepoints.cut import named_state, partitions_by_file, saved_metadata
from streamgroups.savepoints.output_record import OutputRecord
from streamgroups.state import origins
from streamgroups.state.file_names import StateFileName
from streamgroups.state.origins import Earlier, Named, StateOrigin
from streamgroups.state.state_lookup import Position
from streamgroups.times import utc
from streamgroups_operators.group_states import operators_of, states_in
from streamgroups_operators.locations import StateDirectory, shown
from streamgroups_operators.savepoints.copying import Copies, FileGone, copied, topics_with_states
from streamgroups_operators.savepoints.directory import SavepointDirectory

#: A running query deletes old files once a minute, so a second cut is rare.
_MAX_CUTS = 5
#: How far before a position its last record is searched. Markers of transactions are no records.
_SEARCHED_OFFSETS = (1, 2, 4, 16)


@dataclass(frozen=True, slots=True)
class _Cut:
    positions: Mapping[TopicPartition, Committed]
    states: Mapping[TopicPartition, StateOrigin]
    operators: Mapping[str, StateDirectory]
    identities: Mapping[str, TopicIdentity]
    times: Mapping[TopicPartition, Committed]
    made_ms: int
    #: The partitions without a state of an operator that was added to the program.
    without_state: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)

    def states_of(self, operator: str) -> dict[TopicPartition, StateOrigin]:
        left_out = self.without_state.get(operator, frozenset())
        return {tp: it for tp, it in self.states.items() if tp not in left_out}


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a savepoint beside the states of this library.

    Args:
        output: the output of the group.
        checkpoint: the copy of a checkpoint of Spark.
    """

    output: OutputRecord | None = None
    checkpoint: CheckpointRecord | None = None


#: Adds parts to a savepoint for committed offsets. Raises :class:`FileGone`.
AddParts: TypeAlias = Callable[[SavepointDirectory, Mapping[TopicPartition, Committed]], Parts]


def _no_parts(directory: SavepointDirectory, committed: Mapping[TopicPartition, Committed]) -> Parts:
    return Parts()


def new_savepoint_id(now_ms: int) -> str:
    """A new id of a savepoint.

    >>> new_savepoint_id(1732334879123)[:17]
    '20241123T040759Z-'
    """
    stamp = re.sub(r"[-:]|\.\d+", "", utc(now_ms) or "")
    return f"{stamp}-{secrets.token_hex(4)}"


class SavepointCreator:
    """Creates savepoints of one cluster.

    Args:
        groups: the groups of the cluster.
        topics: its topics.
    """

    def __init__(self, groups: GroupAdmin, topics: TopicAdmin) -> None:
        self._groups, self._topics = groups, topics

    def create(
        self, group_id: str, state_location: str | None, to: str, now_ms: int, add_parts: AddParts = _no_parts
    ) -> CommitRecord:
        """Creates a savepoint of a group.

        Args:
            group_id: the group.
            state_location: the option ``stateLocation`` of its queries; ``None`` for queries without state.
            to: the location of savepoints.
            now_ms: the time in milliseconds since the epoch.
            add_parts: adds other parts.

        Returns:
            Its commit record.

        Raises:
            UnknownGroup: if the group has no committed offsets, or the location has none of its states.
            GroupRejected: if the location of states is missing, or a reset of the group is not applied yet.
            StateMissing: if a state does not exist.
            StateDamaged: if a state file is damaged.
            StateUnreachable: if a storage does not answer.
            NotAuthorized: if the user may not describe the group, or a topic of its members or its states.
        """
        directory, copies = SavepointDirectory(to, new_savepoint_id(now_ms)), Copies()
        for number in range(1, _MAX_CUTS + 1):
            try:
                cut = self._cut(group_id, state_location, now_ms)
                if number == 1:
                    self._require_described(group_id, cut)
                operators = tuple(
                    copied(name, files, cut.states_of(name), directory, copies) for name, files in cut.operators.items()
                )
                parts = add_parts(directory, cut.positions)
            except (FileGone, StateMissing) as e:
                if number < _MAX_CUTS:
                    continue
                raise e if isinstance(e, StreamGroupsError) else _deleted(group_id, state_location or "", str(e)) from e
            record = self._record(directory.id, group_id, cut, operators)
            _delete_unnamed(directory, copies, operators)
            record = replace(record, output=parts.output, checkpoint=parts.checkpoint)
            directory.write(record)
            return record
        raise AssertionError("unreachable: the last cut returns or raises")

    def _cut(self, group_id: str, state_location: str | None, now_ms: int) -> _Cut:
        of_times = event_time_group_of(group_id)
        # Read first: an entry must not be later than its position.
        times = self._groups.committed_offsets([of_times])[of_times]
        committed = self._groups.committed_offsets([group_id])[group_id]
        if not committed:
            raise UnknownGroup(
                f"Group '{group_id}' has no committed offsets; no savepoint was created.",
                remedy="Check the name with: streamgroups groups list.",
                group=group_id,
            )
        identities = self._topics.identities({tp.topic for tp in committed})
        positions = {tp: _position(tp, it, identities) for tp, it in committed.items()}
        named = [it.origin.file for it in positions.values() if isinstance(it.origin, Named | Earlier)]
        if state_location is None:
            if named:
                raise _without_location(group_id, len(named))
            return _Cut(committed, {}, {}, identities, times, now_ms)
        operators = operators_of(state_location, group_id, named)
        if not operators:
            if named:
                raise _no_states(group_id, state_location)
            return _Cut(committed, {}, {}, identities, times, now_ms)
        search = states_in(group_id, operators)[0]
        states: dict[TopicPartition, StateOrigin] = {}
        for tp, it in sorted(positions.items()):
            # A search reads whole files, and a position that names its state needs none.
            is_named = isinstance(it.origin, Named | Earlier)
            states[tp] = it.origin if is_named else named_state(it, search.find_beside(it, positions), group_id)
        without_state = _without_state(states, operators)
        if without_state:
            # Retention keeps the states of committed offsets, so these states were never written.
            now = self._groups.committed_offsets([group_id])[group_id]
            for tp in sorted(frozenset().union(*without_state.values())):
                if now.get(tp) != committed[tp]:
                    raise FileGone(origins.encode(states[tp]))
        return _Cut(committed, states, operators, identities, times, now_ms, without_state)

    def _require_described(self, group_id: str, cut: _Cut) -> None:
        """All offsets of a group omit the topics that the user may not describe. A request that names them has an error."""
        members = self._groups.describe_groups([group_id])[group_id].members
        topics = topics_with_states(cut.operators).union(*(it.topics for it in members))
        try:
            self._topics.describe_topics(topics - {tp.topic for tp in cut.positions})
        except NotAuthorized as e:
            raise e.with_text(
                f"{e.what} Group '{group_id}' has members or states of this topic, and its committed offsets there are "
                "hidden from this user; no savepoint was created.",
                e.remedy,
            ) from e

    def _record(self, id_: str, group_id: str, cut: _Cut, operators: tuple[OperatorRecord, ...]) -> CommitRecord:
        next_offsets = {tp: it.next_offset for tp, it in cut.positions.items()}
        before_ms = times_before(self._topics, next_offsets, self._topics.bounds(next_offsets))
        positions = {
            tp: SavedPosition(it.next_offset, _metadata(tp, it, cut), before_ms.get(tp))
            for tp, it in cut.positions.items()
        }
        times = {tp: SavedPosition(it.next_offset, it.metadata) for tp, it in cut.times.items() if tp in positions}
        return CommitRecord(id_, group_id, cut.made_ms, __version__, cut.identities, positions, times, operators)


def _without_state(
    states: Mapping[TopicPartition, StateOrigin], operators: Mapping[str, StateDirectory]
) -> dict[str, frozenset[TopicPartition]]:
    """The partitions whose file another operator has, by the operators that do not have it.

    An operator that was added to the program writes its first state of a partition in the next batch of the partition. So
    all its files are newer. Otherwise a file is lost.
    """
    if len(operators) < 2:
        return {}
    listed = {name: it.list() for name, it in operators.items()}
    known = frozenset[StateFileName]().union(*listed.values())
    partitions = partitions_by_file(states)
    found = {
        name: frozenset[TopicPartition]().union(
            *(tps for file, tps in partitions.items() if file in known and file < min(files, default=file))
        )
        for name, files in listed.items()
    }
    return {name: it for name, it in found.items() if it}


def _position(tp: TopicPartition, committed: Committed, identities: Mapping[str, TopicIdentity]) -> Position:
    position = position_of(tp, committed.next_offset, committed.metadata)
    return (
        position
        if isinstance(position.origin, Named | Earlier)
        else replace(position, identity=identities.get(tp.topic, UNKNOWN))
    )


def _metadata(tp: TopicPartition, committed: Committed, cut: _Cut) -> str:
    origin = position_of(tp, committed.next_offset, committed.metadata).origin
    return saved_metadata(committed.metadata, cut.states.get(tp, origin), cut.identities.get(tp.topic, UNKNOWN))


def times_before(
    topics: TopicAdmin,
    next_offsets: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds | PartitionError],
) -> dict[TopicPartition, int]:
    """The timestamp of the last record before an offset of each partition, in milliseconds since the epoch.

    Args:
        topics: the topics of the cluster.
        next_offsets: the offsets.
        bounds: the earliest offset and the end of each partition.

    Returns:
        The timestamps. Partitions without a record within the last 16 offsets are left out.
    """
    found: dict[TopicPartition, int] = {}
    for back in _SEARCHED_OFFSETS:
        starts = {
            tp: max(n - back, it.beginning_offset)
            for tp, n in next_offsets.items()
            if tp not in found and isinstance(it := bounds[tp], Bounds) and it.beginning_offset < n <= it.end_offset
        }
        firsts: Mapping[TopicPartition, FirstOfLag] = topics.first_records(starts) if starts else {}
        for tp, first in firsts.items():
            if isinstance(first, StampedOffset) and first.offset < next_offsets[tp] and first.timestamp_ms is not None:
                found[tp] = first.timestamp_ms
    return found


def _delete_unnamed(directory: SavepointDirectory, copies: Copies, operators: Iterable[OperatorRecord]) -> None:
    """Deletes the files of earlier cuts that the commit record does not name."""
    named = {(operator.name, file.name) for operator in operators for file in operator.files}
    for name, file in copies.keys() - named:
        directory.states(name).delete([file])


def _deleted(group_id: str, location: str, file: str) -> StateMissing:
    return StateMissing(
        f"The file '{file}' of group '{group_id}' was deleted from '{shown(location)}' while it was copied; no savepoint "
        "was created.",
        remedy="Increase 'stateRetention' of the queries, or create the savepoint again.",
        group=group_id,
    )


def _without_location(group_id: str, count: int) -> GroupRejected:
    return GroupRejected(
        f"{count} committed offsets of group '{group_id}' name states, and their location is not known; no savepoint was created.",
        remedy="Use --state-location: the option 'stateLocation' of the queries, or their default: 'streamgroups-state' in the "
        "directory of the checkpoint.",
        group=group_id,
    )


def _no_states(group_id: str, location: str) -> UnknownGroup:
    return UnknownGroup(
        f"'{shown(location)}' contains no states of group '{group_id}', whose committed offsets name some; no savepoint was "
        "created.",
        remedy="Use the option 'stateLocation' of its queries, or their default: 'streamgroups-state' in the directory of "
        "the checkpoint.",
        group=group_id,
    )
