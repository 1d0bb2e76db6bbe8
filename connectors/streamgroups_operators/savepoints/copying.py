"""Copies the state files of an operator into a savepoint. Several files are copied at once, in parts.

Called by :mod:`streamgroups_operators.savepoints.creating`. A disk syncs several files in the time of one, and an object store
takes its time for each one. Source: SEMANTICS C3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from streamgroups.errors import StateDamaged, StateUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.commit_record import OperatorRecord, SavedFile
from streamgroups.savepoints.cut import partitions_by_file
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest, PartitionState, decode
from streamgroups.state.origins import StateOrigin
from streamgroups.threads import in_threads
from streamgroups_operators.file_format import checked_parts, manifest_in
from streamgroups_operators.locations import StateDirectory
from streamgroups_operators.savepoints.directory import SavepointDirectory

#: More than most manifests have.
_MANIFEST_BYTES = 1 << 16
#: The copied files of all cuts, by operator and name. A state file never changes, so a copy of it is reused.
Copies: TypeAlias = dict[tuple[str, StateFileName], SavedFile]


class FileGone(Exception):
    """A file was deleted since the offsets were read. The cut is taken again."""


def copied(
    name: str,
    files: StateDirectory,
    origins: Mapping[TopicPartition, StateOrigin],
    directory: SavepointDirectory,
    copies: Copies,
) -> OperatorRecord:
    """Copies the files of the states of an operator.

    Args:
        name: the operator.
        files: its files.
        origins: the state of each position.
        directory: the savepoint.
        copies: the files that earlier cuts have copied. New ones are added.

    Raises:
        FileGone: if retention has deleted a file meanwhile.
        StateDamaged: if a file is damaged.
        StateUnreachable: if a storage does not answer, or is full.
    """
    target, states, needed, form = directory.states(name), [], set[StateFileName](), ""
    for file, partitions in sorted(partitions_by_file(origins).items()):
        manifest = _manifest(files, file)
        form = manifest.form
        found = [_state_in(manifest, tp) for tp in sorted(partitions)]
        states += found
        needed |= {file}.union(*(it.files for it in found))
    _copy_all(name, files, [it for it in sorted(needed) if (name, it) not in copies], target, copies)
    saved = tuple(copies[name, file] for file in sorted(needed))
    rows = sum(segment.rows for it in states for part in it.parts.values() for segment in part)
    watermarks = [it.time.watermark_ms for it in states if it.time is not None and it.time.watermark_ms is not None]
    return OperatorRecord(name, form, len(states), rows, min(watermarks, default=None), saved)


def topics_with_states(operators: Mapping[str, StateDirectory]) -> frozenset[str]:
    """The topics of all states of a group. Reads the manifests only.

    Args:
        operators: the files of its operators that process the records of the same tasks: files of the same name have states of
            the same partitions.

    Raises:
        StateUnreachable: if the storage does not answer.
    """
    having = {file: files for files in operators.values() for file in files.list() if not file.is_apart}
    return frozenset[str]().union(*in_threads(_topics_in, having.items()))


def _topics_in(item: tuple[StateFileName, StateDirectory]) -> frozenset[str]:
    file, files = item
    try:
        return frozenset(it.topic_partition.topic for it in _manifest(files, file).states)
    except (FileGone, StateDamaged):
        # Retention has deleted it; or the savepoint does not need it, or its copy raises the error.
        return frozenset()


def _copy_all(
    name: str, files: StateDirectory, needed: Sequence[StateFileName], target: StateDirectory, copies: Copies
) -> None:
    target.create()

    def attempt(file: StateFileName) -> SavedFile | Exception:
        try:
            return _copy(files, file, target)
        except Exception as e:
            # The other files are copied, too: the next cut uses them.
            return e

    # An interrupted command does not copy the rest first.
    results = dict(zip(needed, in_threads(attempt, needed), strict=True))
    copies |= {(name, file): it for file, it in results.items() if not isinstance(it, Exception)}
    failed = [it for it in results.values() if isinstance(it, Exception)]
    if failed:
        raise failed[0]
    # Once for all files, and for those of an earlier cut.
    target.sync()


def _state_in(manifest: Manifest, tp: TopicPartition) -> PartitionState:
    state = manifest.state_of(tp)
    if state is None:
        raise _damaged(manifest.file, f"it has no state of {tp}")
    return state


def _manifest(files: StateDirectory, file: StateFileName) -> Manifest:
    try:
        return decode(manifest_in(files.parts(file, _MANIFEST_BYTES)), file)
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


def _damaged(file: StateFileName, why: str) -> StateDamaged:
    return StateDamaged(
        f"The state file '{file}' is damaged: {why}. No savepoint was created.",
        remedy="Restore the file from a backup, or reset the group to an earlier offset whose state is stored.",
    )
