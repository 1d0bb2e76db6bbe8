"""Reads the state files of a location for operators: which states they contain, and whether they are intact.

Called by ``streamgroups state``. Unlike a query it reads the files of any group and definition. Source: SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from streamgroups.partitions import TopicPartition
from streamgroups.state.figures import StateSize
from streamgroups.state.file_names import StateFileName
from streamgroups.state.lineage import lineage
from streamgroups.state.manifest import Manifest, PartitionState, Segment, decode
from streamgroups.state.state_files import StateFiles
from streamgroups_operators.file_format import segment_of, unpack


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state files of one operator.

    Args:
        sizes: the size of each file in bytes.
        manifests: the manifests of intact files, oldest first.
        damaged: the reason for each damaged file.
    """

    sizes: dict[StateFileName, int]
    manifests: tuple[Manifest, ...]
    damaged: dict[StateFileName, str] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions with a state."""
        return frozenset(state.topic_partition for manifest in self.manifests for state in manifest.states)

    @property
    def missing(self) -> dict[StateFileName, frozenset[StateFileName]]:
        """The files that the newest state of a partition needs and that do not exist, by the file of the state.

        Rows of older states can be deleted, although the file of the state is kept for another partition.
        """
        found: dict[StateFileName, frozenset[StateFileName]] = {}
        for manifest, state in self.latest():
            missing = frozenset(file for file in state.files if file not in self.sizes)
            if missing:
                found[manifest.file] = found.get(manifest.file, frozenset()) | missing
        return found

    @property
    def state_sizes(self) -> dict[tuple[TopicPartition, int], StateSize]:
        """The size of each state, by its partition and offset."""
        states = (state for manifest in self.manifests for state in manifest.states)
        return {(state.topic_partition, state.next_offset): StateSize.of(state) for state in states}

    def latest(self, offset: int | None = None) -> Iterator[tuple[Manifest, PartitionState]]:
        """The newest state of each partition, or the state with which a reset to an offset continues.

        This is the latest complete one that is not after the offset and leads to the newest one.
        """
        found: dict[TopicPartition, dict[StateFileName, tuple[Manifest, PartitionState]]] = {}
        for manifest in self.manifests:
            for state in manifest.states if offset is None else manifest.complete(self.sizes).states:
                found.setdefault(state.topic_partition, {})[manifest.file] = (manifest, state)
        for _, states in sorted(found.items(), key=lambda it: it[0]):
            if offset is None:
                yield states[max(states)]
                continue
            preferred = lineage({file: state for file, (_, state) in states.items()})
            before = [it for it in states.values() if it[1].next_offset <= offset]
            if before:
                yield max(before, key=lambda it: (it[0].file in preferred, it[1].next_offset, it[0].file))


def inspect(files: StateFiles) -> Inspection:
    """Reads all files of an operator.

    Raises:
        StateUnreachable: if the storage does not answer.
    """
    sizes, manifests, damaged = files.list(), [], {}
    for file in sorted(sizes):
        try:
            text, segments = unpack(files.read(file))
            manifest = decode(text, file)
            _check_segments(manifest, segments)
            manifests.append(manifest)
        except FileNotFoundError:
            # Retention has deleted it.
            del sizes[file]
        except ValueError as e:
            damaged[file] = str(e)
    return Inspection(sizes, tuple(manifests), damaged)


def _check_segments(manifest: Manifest, segments: pa.ipc.RecordBatchFileReader) -> None:
    for state in manifest.states:
        for part in state.parts.values():
            for segment in part:
                if segment.file == manifest.file and segment.number >= segments.num_record_batches:
                    raise ValueError(f"it has no segment {segment.number}")


class StateRows:
    """The rows of the states of one operator. Each file is read once, and contains segments of many states.

    Args:
        files: its files.
    """

    def __init__(self, files: StateFiles) -> None:
        self._files = files
        self._opened: dict[StateFileName, pa.ipc.RecordBatchFileReader] = {}

    def of(self, segments: tuple[Segment, ...]) -> pa.Table:
        """The rows of a part of a state, oldest segment first.

        Raises:
            FileNotFoundError: if a file does not exist.
            ValueError: if a file is damaged.
            StateUnreachable: if the storage does not answer.
        """
        batches: list[pa.RecordBatch] = []
        for it in segments:
            if it.file not in self._opened:
                self._opened[it.file] = unpack(self._files.read(it.file))[1]
            schema = batches[0].schema if batches else None
            batches.append(segment_of(self._opened[it.file], it.number, it.rows, schema))
        return pa.Table.from_batches(batches)
