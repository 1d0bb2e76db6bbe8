"""Creates a savepoint: reads the committed offsets of a group, copies the files of their states, and writes the commit record.

Called by ``streamgroups savepoint create``. The group can run meanwhile: no member takes part. If retention deletes a file in
between, the cut is taken again. Files of the cut before are reused, and those that the last cut does not need are deleted before
the commit record is written. Source: SEMANTICS C3; KIP-709 (all offsets of a group in one request).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from streamgroups._version import __version__
from streamgroups.coordination.reset_protocol import event_time_group_of
from streamgroups.errors import (
    GroupRejected,
    StateDamaged,
    StateMissing,
    StateUnreachable,
    StreamGroupsError,
    UnknownGroup,
)
from streamgroups.groups.commit_metadata import position_of
from streamgroups.groups.lag import FirstOfLag, PartitionError
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import Bounds, StampedOffset, TopicPartition
from streamgroups.ports import Committed, GroupAdmin, TopicAdmin
from streamgroups.savepoints.checkpoint_record import CheckpointRecord
from streamgroups.savepoints.commit_record import CommitRecord, OperatorRecord, SavedFile, SavedPosition
from streamgroups.savepoints.cut import named_state, partitions_by_file, saved_metadata
from streamgroups.savepoints.output_record import OutputRecord
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState, decode
from streamgroups.state.origins import Earlier, Named, StateOrigin
from streamgroups.state.state_lookup import Position
from streamgroups.times import utc
from streamgroups_operators.file_format import checked_parts, manifest_in
from streamgroups_operators.group_states import operators_of, states_in
from streamgroups_operators.locations import StateDirectory, shown
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


#: The copied files of all cuts, by operator and name. A state file never changes, so a copy of it is reused.
_Copies: TypeAlias = dict[tuple[str, StateFileName], SavedFile]


class FileGone(Exception):
    """A file was deleted since the offsets were read. The cut is taken again."""


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
        """
        directory, copies = SavepointDirectory(to, new_savepoint_id(now_ms)), _Copies()
        for number in range(1, _MAX_CUTS + 1):
            try:
                cut = self._cut(group_id, state_location, now_ms)
                operators = tuple(_copied(name, files, cut, directory, copies) for name, files in cut.operators.items())
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
        states = {
            tp: named_state(it, search.find_beside(it, positions), group_id) for tp, it in sorted(positions.items())
        }
        return _Cut(committed, states, operators, identities, times, now_ms)

    def _record(self, id_: str, group_id: str, cut: _Cut, operators: tuple[OperatorRecord, ...]) -> CommitRecord:
        next_offsets = {tp: it.next_offset for tp, it in cut.positions.items()}
        before_ms = times_before(self._topics, next_offsets, self._topics.bounds(next_offsets))
        positions = {
            tp: SavedPosition(it.next_offset, _metadata(tp, it, cut), before_ms.get(tp))
            for tp, it in cut.positions.items()
        }
        times = {tp: SavedPosition(it.next_offset, it.metadata) for tp, it in cut.times.items() if tp in positions}
        return CommitRecord(id_, group_id, cut.made_ms, __version__, cut.identities, positions, times, operators)


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
            if isinstance(first, StampedOffset) and first.offset < next_offsets[tp]:
                found[tp] = first.timestamp_ms
    return found


def _copied(
    name: str, files: StateDirectory, cut: _Cut, directory: SavepointDirectory, copies: _Copies
) -> OperatorRecord:
    target, states, needed, form = directory.states(name), [], set[StateFileName](), ""
    for file, partitions in sorted(partitions_by_file(cut.states).items()):
        manifest = _manifest(files, file)
        form = manifest.form
        found = [_state_in(manifest, tp) for tp in sorted(partitions)]
        states += found
        needed |= {file}.union(*(it.files for it in found))
    for file in sorted(needed):
        if (name, file) not in copies:
            copies[name, file] = _copy(files, file, target)
    copied = tuple(copies[name, file] for file in sorted(needed))
    rows = sum(segment.rows for it in states for part in it.parts.values() for segment in part)
    watermarks = [it.time.watermark_ms for it in states if it.time is not None and it.time.watermark_ms is not None]
    return OperatorRecord(name, form, len(states), rows, min(watermarks, default=None), copied)


def _state_in(manifest: Manifest, tp: TopicPartition) -> PartitionState:
    state = manifest.state_of(tp)
    if state is None:
        raise _damaged(manifest.file, f"it has no state of {tp}")
    return state


def _manifest(files: StateDirectory, file: StateFileName) -> Manifest:
    try:
        return decode(manifest_in(files.parts(file)), file)
    except FileNotFoundError:
        raise FileGone(str(file)) from None
    except ValueError as e:
        raise _damaged(file, str(e)) from e


def _copy(files: StateDirectory, file: StateFileName, target: StateDirectory) -> SavedFile:
    digest, n_bytes = hashlib.sha256(), 0

    def parts() -> Iterator[bytes]:
        nonlocal n_bytes
        for part in checked_parts(files.parts(file)):
            digest.update(part)
            n_bytes += len(part)
            yield part

    try:
        target.write_parts(file, parts())
    except FileNotFoundError:
        raise FileGone(str(file)) from None
    except StateUnreachable as e:
        raise e.with_text(
            f"The state file '{file}' was not copied, and no savepoint was created. {e.what}", e.remedy
        ) from e
    except ValueError as e:
        raise _damaged(file, str(e)) from e
    return SavedFile(file, n_bytes, digest.hexdigest())


def _delete_unnamed(directory: SavepointDirectory, copies: _Copies, operators: Iterable[OperatorRecord]) -> None:
    """Deletes the files of earlier cuts that the commit record does not name."""
    named = {(operator.name, file.name) for operator in operators for file in operator.files}
    for name, file in copies.keys() - named:
        directory.states(name).delete([file])


def _damaged(file: StateFileName, why: str) -> StateDamaged:
    return StateDamaged(
        f"The state file '{file}' is damaged: {why}. No savepoint was created.",
        remedy="Restore the file from a backup, or reset the group to an earlier offset whose state is stored.",
    )


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
