"""The states of one operator, for one task: finds the state of each position, reads segments, and writes the new states.

Created by ``streamgroups_operators.operator`` in a Python worker. The rules are in :mod:`streamgroups.state.state_lookup`. Files
never change, so what was read once stays valid. Source: SEMANTICS S10, S11.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from streamgroups.errors import StateDamaged, StateMismatch, StateMissing
from streamgroups.partitions import TopicPartition
from streamgroups.state import changed_definition
from streamgroups.state.figures import TaskFigures
from streamgroups.state.file_names import StateFileName
from streamgroups.state.joined_lookup import Choices, choose_together, is_together, partner_of
from streamgroups.state.lineage import lineage
from streamgroups.state.manifest import Manifest, PartitionState, Segment, decode, encode
from streamgroups.state.origins import Earlier, Fingerprinted, Named, New, StateOrigin, Unnamed
from streamgroups.state.state_files import StateFiles
from streamgroups.state.state_lookup import (
    Choice,
    Empty,
    OnMissingState,
    Position,
    Stored,
    choose,
    is_continued,
    is_exactly,
    newest_committed,
    require_not_later,
)
from streamgroups.threads import in_threads
from streamgroups_operators.file_format import pack, segment_of, unpack
from streamgroups_operators.large_tables import combined
from streamgroups_operators.operator import Part

#: Returns how the rows of a state of another definition are converted.
Migration: TypeAlias = Callable[[str], Callable[[pa.Table], pa.Table] | None]


def _no_migration(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator with state.

    Args:
        group_id: the group of its query.
        name: its name in the query.
        form: its definition, as text. Only the same definition continues with a state.
        schema: the columns of its segments.
        migration: returns how the rows of a state of another definition are converted, by this definition; ``None`` if they
            cannot be.
    """

    group_id: str
    name: str
    form: str
    schema: pa.Schema
    migration: Migration = _no_migration


@dataclass(frozen=True, slots=True)
class NewState:
    """A state to write.

    Args:
        state: the state without its parts.
        parts: the rows of each part.
        apart: the parts whose new rows are written into a file apart.
    """

    state: PartitionState
    parts: Mapping[str, Part]
    apart: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A file to write, and its segments."""

    name: StateFileName
    batches: list[pa.RecordBatch] = field(default_factory=list)


class StoredStates:
    """The state files of one operator, and their manifests. Used by one thread.

    Args:
        group_id: the group of the query.
        operator: the name of the operator.
        files: its files.
        on_missing: what happens if no state leads to a position.
        beside: the states of the other operators of the query. A search requires a state of all operators.
    """

    def __init__(
        self,
        group_id: str,
        operator: str,
        files: StateFiles,
        on_missing: OnMissingState = OnMissingState.FAIL,
        beside: Sequence[StoredStates] = (),
    ) -> None:
        self._group_id, self._name, self._files, self._on_missing = group_id, operator, files, on_missing
        self._beside = beside
        self._opened: dict[StateFileName, tuple[Manifest, pa.ipc.RecordBatchFileReader]] = {}
        #: All files; ``None`` before the first search.
        self._listed: frozenset[StateFileName] | None = None
        self._complete: dict[StateFileName, Manifest] = {}
        #: The work so far.
        self.figures = TaskFigures()

    @property
    def is_joined(self) -> bool:
        """Whether the newest file contains states of a join.

        Raises:
            StateDamaged: if the file is damaged.
            StateMismatch: if the file belongs to another group or operator.
            StateUnreachable: if the storage does not answer.
        """
        newest = next(self._manifests(TopicPartition("", 0)), None)
        return newest is not None and any(partner_of(it) is not None for it in newest.states)

    def find(self, position: Position) -> Choice:
        """The state from which a batch continues.

        Raises:
            StateMissing: if no state leads to the position, or the file that it names does not exist.
            StateDamaged: if the file is damaged.
            StateMismatch: if the state belongs to another topic, cluster, offset, group or definition.
            StateUnreachable: if the storage does not answer.
        """
        require_not_later(position, [self._name])
        return self.find_planned(position)

    def find_planned(self, position: Position) -> Choice:
        """The state of the plan of a task. Ids that a reset keeps are those of a later offset.

        Raises the errors of :meth:`find`.
        """
        if isinstance(position.origin, New):
            return choose(position, (), self._on_missing)
        if not isinstance(position.origin, Named | Earlier):
            return choose(position, self._searched(position), self._on_missing)
        try:
            manifest, _ = self._open(position.origin.file, position.topic_partition)
        except StateMissing:
            if self._on_missing is OnMissingState.EMPTY:
                return Empty(position.next_offset)
            raise
        return choose(position, [manifest], self._on_missing)

    def is_written(self, position: Position, origin: StateOrigin) -> bool:
        """Whether the state of a position exists, written by a batch that has continued with another state.

        Raises:
            StateDamaged: if a file is damaged.
            StateMismatch: if a file belongs to another group or operator.
            StateUnreachable: if the storage does not answer.
        """
        found = (it.state_of(position.topic_partition) for it in self._manifests(position.topic_partition))
        return is_continued(position, origin, (it for it in found if it is not None))

    def find_kept(self, position: Position) -> Choice:
        """The state from which a batch continues, if ids of records after the position stay seen.

        Raises the errors of :meth:`find`.
        """
        if isinstance(position.origin, Unnamed):
            kept = newest_committed(position, self._manifests(position.topic_partition))
            if kept is not None:
                return kept
        return self.find(position)

    def find_both(self, left: Position, right: Position) -> Choices:
        """The states from which a join continues with two partitions, if their positions do not name them together.

        Raises:
            StateMissing: if no states lead to both positions.
            StateDamaged: if a file is damaged.
            StateMismatch: if a file belongs to another group or operator.
            StateUnreachable: if the storage does not answer.
        """
        return choose_together(left, right, list(self._manifests(left.topic_partition)), self._on_missing)

    def find_beside(self, position: Position, positions: Mapping[TopicPartition, Position]) -> Choice:
        """The state from which a batch continues, for an operator whose definition is not known.

        Args:
            position: the position.
            positions: the positions of other partitions. A join also needs that of the partner.

        Raises the errors of :meth:`find`.
        """
        choice = self.find(position)
        partner = partner_of(choice.state) if isinstance(choice, Stored) else None
        other = None if partner is None else positions.get(partner)
        if other is None or is_together(position, other):
            return choice
        return self.find_both(position, other)[0]

    def _searched(self, position: Position) -> list[Manifest]:
        """The manifests with a state of the partition, up to the first one with the state of exactly this position.

        It leads to the newest state. A ledger identifies the state that is committed.
        """
        found: list[Manifest] = []
        states: dict[StateFileName, PartitionState] = {}
        for manifest in self._manifests(position.topic_partition):
            state = manifest.state_of(position.topic_partition)
            if state is None:
                continue
            found.append(manifest)
            if not state.identity.differs_from(position.identity):
                states[manifest.file] = state
            is_in_ledger = isinstance(position.origin, Fingerprinted)
            if is_exactly(position, Stored(manifest.file, state)) and (
                is_in_ledger or manifest.file in lineage(states)
            ):
                break
        return found

    def _manifests(self, topic_partition: TopicPartition) -> Iterator[Manifest]:
        """The manifests of all files of the first search, newest first, with the states whose rows all exist.

        Files that retention deletes meanwhile are left out.
        """
        found = self._existing.intersection(*(it._existing for it in self._beside))
        # Files apart have no states, and can be large.
        for file in sorted((it for it in found if not it.is_apart), reverse=True):
            with suppress(StateMissing):
                yield self._complete_manifest(file, topic_partition)

    @property
    def _existing(self) -> frozenset[StateFileName]:
        if self._listed is None:
            self._listed = frozenset(self._files.list())
        return self._listed

    def _complete_manifest(self, file: StateFileName, topic_partition: TopicPartition) -> Manifest:
        if file not in self._complete:
            found = self._open(file, topic_partition)[0].complete(self._existing)
            for other in self._beside:
                there = other._complete_manifest(file, topic_partition)
                found = replace(found, states=tuple(it for it in found.states if there.state_of(it.topic_partition)))
            self._complete[file] = found
        return self._complete[file]

    def _open(
        self, file: StateFileName, topic_partition: TopicPartition
    ) -> tuple[Manifest, pa.ipc.RecordBatchFileReader]:
        if file not in self._opened:
            self._open_all([file], topic_partition)
        return self._opened[file]

    def _open_all(self, files: Iterable[StateFileName], topic_partition: TopicPartition) -> None:
        """Reads files that were not read before, at once: each is a round trip to an object store."""
        missing = [it for it in dict.fromkeys(files) if it not in self._opened]
        if not missing:
            return
        started_s = time.perf_counter()
        if len(missing) == 1:
            contents = [self._read(missing[0], topic_partition)]
        else:
            contents = list(in_threads(lambda it: self._read(it, topic_partition), missing))
        self._opened |= {it: self._unpacked(it, topic_partition, c) for it, c in zip(missing, contents, strict=True)}
        done = self.figures
        self.figures = replace(
            done,
            read_files=done.read_files + len(missing),
            read_bytes=done.read_bytes + sum(map(len, contents)),
            load_s=done.load_s + time.perf_counter() - started_s,
        )

    def _read(self, file: StateFileName, topic_partition: TopicPartition) -> memoryview:
        try:
            return self._files.read(file)
        except FileNotFoundError:
            raise StateMissing(
                f"{topic_partition}: the state file '{file}' of operator '{self._name}' does not exist in "
                f"'{self._files.location}'.",
                remedy="Check that all queries of the group have the same 'stateLocation', and that their hosts share it. If the "
                "file is lost, reset the group to an earlier offset whose state is stored, or set onMissingState=empty. If the operator is new in "
                "the program, or has another name, 'streamgroups savepoint restore' has --without and --rename.",
                group=self._group_id,
                topic=topic_partition.topic,
                partition=topic_partition.partition,
            ) from None

    def _unpacked(
        self, file: StateFileName, topic_partition: TopicPartition, content: memoryview
    ) -> tuple[Manifest, pa.ipc.RecordBatchFileReader]:
        try:
            text, reader = unpack(content)
            manifest = decode(text, file)
        except ValueError as e:
            raise self._damaged(file, topic_partition, str(e)) from e
        self._check(manifest, topic_partition)
        return manifest, reader

    def _check(self, manifest: Manifest, topic_partition: TopicPartition) -> None:
        if (manifest.group_id, manifest.operator) != (self._group_id, self._name):
            raise StateMismatch(
                f"{topic_partition}: the state file '{manifest.file}' belongs to operator '{manifest.operator}' of group "
                f"'{manifest.group_id}', not to '{self._name}' of '{self._group_id}'.",
                remedy="Do not copy state files from one directory to another.",
                group=self._group_id,
                topic=topic_partition.topic,
                partition=topic_partition.partition,
            )

    def _damaged(self, file: StateFileName, topic_partition: TopicPartition, reason: str) -> StateDamaged:
        return StateDamaged(
            f"{topic_partition}: the state file '{file}' of operator '{self._name}' in '{self._files.location}' is "
            f"damaged: {reason}.",
            remedy="Restore the file from a backup. Or reset the group to an earlier offset whose state is stored: "
            "the records from there on are read again.",
            group=self._group_id,
            topic=topic_partition.topic,
            partition=topic_partition.partition,
        )


class StateStore(StoredStates):
    """The states of one operator, with their rows. Used by one thread.

    Args:
        operator: the operator.
        files: its files.
        on_missing: what happens if no state leads to a position.
    """

    def __init__(self, operator: Operator, files: StateFiles, on_missing: OnMissingState = OnMissingState.FAIL) -> None:
        super().__init__(operator.group_id, operator.name, files, on_missing)
        self._operator = operator

    def prefetch(self, files: Iterable[StateFileName]) -> None:
        """Reads files of states at once, before :meth:`find_planned` reads one after the other.

        A file that is lost or damaged is reported there.

        Raises:
            StateUnreachable: if the storage does not answer.
        """
        found = set(files)
        if len(found) > 1:
            with suppress(StateMissing, StateDamaged, StateMismatch):
                self._open_all(found, TopicPartition("", 0))

    def parts_of(self, topic_partition: TopicPartition, stored: Stored) -> Mapping[str, Part]:
        """The parts of a state, converted if the state has an earlier definition. Then all its rows are read.

        Raises:
            FunctionFailed: if the function of the conversion fails.
            StateMissing: if a file does not exist.
            StateDamaged: if a file is damaged.
            StateUnreachable: if the storage does not answer.
        """
        form = self._open(stored.file, topic_partition)[0].form
        change = None if form == self._operator.form else self._operator.migration(form)
        if change is None:
            return stored.state.parts
        return {
            name: [change(pa.Table.from_batches(self._batches(topic_partition, segments)))]
            for name, segments in stored.state.parts.items()
        }

    def each(self, topic_partition: TopicPartition, segments: Sequence[Segment]) -> Iterator[pa.Table]:
        """The rows of one segment after the other. All their files are read before the first one.

        Raises:
            StateMissing: if a file does not exist.
            StateDamaged: if a file is damaged.
            StateUnreachable: if the storage does not answer.
        """
        schema = self._operator.schema
        return (pa.Table.from_batches([it], schema) for it in self._batches(topic_partition, segments, schema))

    def _batches(
        self, topic_partition: TopicPartition, segments: Sequence[Segment], schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        self._open_all((it.file for it in segments), topic_partition)
        for segment in segments:
            _, reader = self._open(segment.file, topic_partition)
            try:
                yield segment_of(reader, segment.number, segment.rows, schema)
            except ValueError as e:
                raise self._damaged(segment.file, topic_partition, str(e)) from e

    def write(self, file: StateFileName, states: Sequence[NewState]) -> Manifest:
        """Writes the states of a task into one file, and the rows of parts that are apart into another one.

        Args:
            file: the name of the file.
            states: the new states, at most one for each partition.

        Returns:
            The manifest of the file.

        Raises:
            StateUnreachable: if the storage does not answer.
        """
        started_s = time.perf_counter()
        here, apart = _NewFile(file), _NewFile(replace(file, is_apart=True))
        written = tuple(replace(new.state, parts=self._placed(new, here, apart)) for new in states)
        # A state must not name a file that does not exist.
        size = self._write(apart, ()) if apart.batches else 0
        size += self._write(here, written)
        self.figures = replace(
            self.figures,
            written_rows=sum(it.num_rows for it in (*here.batches, *apart.batches)),
            written_bytes=size,
            write_s=time.perf_counter() - started_s,
        )
        return self._manifest(file, written)

    def _write(self, new: _NewFile, states: tuple[PartitionState, ...]) -> int:
        content = pack(encode(self._manifest(new.name, states)), self._operator.schema, new.batches)
        self._files.write(new.name, content)
        return len(content)

    def _manifest(self, file: StateFileName, states: tuple[PartitionState, ...]) -> Manifest:
        return Manifest(file, self._operator.group_id, self._operator.name, self._operator.form, states)

    def _placed(self, new: NewState, here: _NewFile, apart: _NewFile) -> dict[str, tuple[Segment, ...]]:
        parts = {}
        for name, rows in new.parts.items():
            file = apart if name in new.apart else here
            segments = []
            for it in rows:
                if isinstance(it, Segment):
                    segments.append(it)
                elif it.num_rows:
                    for batch in _batches(it, self._operator.schema):
                        segments.append(Segment(file.name, len(file.batches), batch.num_rows, batch.nbytes))
                        file.batches.append(batch)
            if segments:
                parts[name] = tuple(segments)
        return parts

    def _check(self, manifest: Manifest, topic_partition: TopicPartition) -> None:
        super()._check(manifest, topic_partition)
        if manifest.form != self._operator.form and self._operator.migration(manifest.form) is None:
            raise StateMismatch(
                f"{topic_partition}: the state of operator '{self._operator.name}' in the file '{manifest.file}' was written by "
                f"another definition: {manifest.form}. The query defines: {self._operator.form}.",
                remedy=changed_definition.remedy(manifest),
                group=self._operator.group_id,
                topic=topic_partition.topic,
                partition=topic_partition.partition,
            )


def _batches(rows: pa.Table, schema: pa.Schema) -> list[pa.RecordBatch]:
    """Returns the rows in as few batches as possible: each becomes a segment, and is read by itself."""
    batches: list[pa.RecordBatch] = _combined(rows.select(schema.names).cast(schema)).to_batches()
    return batches


def _combined(rows: pa.Table) -> pa.Table:
    """Combines the chunks of each column, up to 2 GiB, which is Arrow's limit for strings and bytes."""
    try:
        return rows.combine_chunks()
    except pa.ArrowInvalid:
        # A string in a struct is not divided: the limit is an error.
        return pa.Table.from_batches(combined(rows))
