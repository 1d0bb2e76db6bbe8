"""Copies the state files of a savepoint, or of a group, to the place where a group continues with them.

Called by ``streamgroups savepoint restore`` and ``streamgroups groups copy --with-state``, before any offset is committed. A file that
exists already stays if it has the same bytes. For another group, or another name of an operator, each file gets a manifest with
the new names, and with the states of the positions only. Source: SEMANTICS C3.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import IO

from streamgroups.errors import SavepointDamaged, StateUnreachable
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.commit_record import CommitRecord, SavedFile
from streamgroups.savepoints.cut import partitions_by_file, restricted, state_of
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import decode, encode
from streamgroups_operators.file_format import repack
from streamgroups_operators.locations import StateDirectory, files_below
from streamgroups_operators.savepoints.directory import PART_BYTES, SavepointDirectory, is_same, sum_of


@dataclass(frozen=True, slots=True)
class Target:
    """Where the states continue.

    Args:
        location: the option ``stateLocation`` of the queries.
        group_id: their group.
        names: the name of each operator, by its name in the savepoint. Others are left out.
    """

    location: str
    group_id: str
    names: Mapping[str, str]


def place(directory: SavepointDirectory, record: CommitRecord, target: Target) -> int:
    """Copies the files of a savepoint.

    Args:
        directory: the savepoint.
        record: its commit record.
        target: where the states continue.

    Returns:
        The number of files that the states need there.

    Raises:
        SavepointDamaged: if a file is missing or was changed. Files that were copied before have no effect.
        StateUnreachable: if a storage does not answer, or is full.
    """
    named = partitions_by_file({tp: state_of(it.metadata) for tp, it in record.positions.items()})
    count = 0
    for operator in record.operators:
        name = target.names.get(operator.name)
        if name is None:
            continue
        source, files = directory.states(operator.name), files_below(target.location, target.group_id, name)
        keeps_names = (target.group_id, name) == (record.group_id, operator.name)
        for saved in operator.files:
            change = None if keeps_names else partial(_renamed, saved.name, named, target.group_id, name)
            try:
                _place_one(directory, source, saved, files, change)
            except StateUnreachable as e:
                raise e.with_text(
                    f"The file '{saved.name}' was not copied, and no offset was changed. {e.what}", e.remedy
                ) from e
            count += 1
        # Also for files of a restore that was killed.
        files.sync()
    return count


def _renamed(
    file: StateFileName,
    named: Mapping[StateFileName, frozenset[TopicPartition]],
    group_id: str,
    operator: str,
    text: str,
) -> str:
    manifest = restricted(decode(text, file), named.get(file, frozenset()), group_id)
    return encode(replace(manifest, operator=operator))


def _place_one(
    directory: SavepointDirectory,
    source: StateDirectory,
    saved: SavedFile,
    files: StateDirectory,
    change: Callable[[str], str] | None,
) -> None:
    if change is None and is_same(files, saved):
        return
    # A file that was changed must not become a state. So it is verified before it is written.
    with tempfile.TemporaryFile() as copy:
        _fetch(directory, source, saved, copy)

        def parts() -> Iterator[bytes]:
            copy.seek(0)
            return iter(partial(copy.read, PART_BYTES), b"") if change is None else repack(copy, change)

        try:
            # Committed offsets can name the file already. In an object store an interrupted write would replace it.
            if change is None or not is_same(files, SavedFile(saved.name, *sum_of(parts()))):
                files.write_parts(saved.name, parts())
        except ValueError as e:
            raise _damaged(directory, saved, f"cannot be read: {e}") from e


def _fetch(directory: SavepointDirectory, source: StateDirectory, saved: SavedFile, copy: IO[bytes]) -> None:
    try:
        found = sum_of(source.parts(saved.name), copy.write)
    except FileNotFoundError:
        raise _damaged(directory, saved, "does not exist") from None
    if found != (saved.n_bytes, saved.sha256):
        raise _damaged(directory, saved, "was changed: its size or its checksum is wrong")


def _damaged(directory: SavepointDirectory, saved: SavedFile, why: str) -> SavepointDamaged:
    return SavepointDamaged(
        f"The file '{saved.name}' of the savepoint '{directory}' {why}; no offset was changed.",
        remedy="Restore the directory from a backup, or use another savepoint. 'streamgroups savepoint verify' reads all files.",
    )
