"""Decides which files a copy of a Spark checkpoint at one committed batch has, and in which order they are written.

Called by ``streamgroups checkpoint copy`` and ``verify``. A copy has the logs of the batch, the logs of its sources, and the
state files that its version of the state needs. All files keep their names: the numbers of batches continue, since they are
the versions of the state. The log of a source can contain more than the batch has read, as after a crash of Spark: the next
batch reads the rest. Source: ``MicroBatchExecution.populateStartOffsets``, which reads the offsets of the last batch and of the
batch before it, and fails if only the latter do not exist; ``FileStreamSource``; ``StateStoreMetadataV2``. SEMANTICS C5.

Spark 4.2 rejects a checkpoint without the file ``metadata``. Earlier versions create one with a new id, so they would start an
incomplete copy. The offsets of the batch before the last one are therefore written after all other files, and only ``metadata``
follows. Batch 0 has no batch before it. The file of its offsets first contains a text that each version of Spark rejects
(``MetadataVersionUtil.validateVersion``), and the offsets replace it after all other files.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streamgroups.checkpoints.spark_kafka import is_own_offset, kafka_offset, punctuation_group
from streamgroups.checkpoints.spark_logs import CommitEntry, OffsetEntry, Operator, lines_of_sources
from streamgroups.checkpoints.spark_state import (
    CHECKSUM,
    Ancestor,
    Incomplete,
    Kind,
    StateFile,
    files_of_id,
    files_of_version,
    parse_name,
)
from streamgroups.errors import CheckpointRejected
from streamgroups.json_values import items, read_json
from streamgroups.partitions import TopicPartition

_METADATA = re.compile(r"state/\d{1,18}/_metadata/(?:metadata|v2/(\d{1,18}))", re.ASCII)
#: The directory of a store, with its name after a slash.
_STORE = re.compile(r"state/(\d{1,18})/(\d{1,18})((?:/.+)?)", re.ASCII)
_OF_BATCH = re.compile(r"(\d{1,18})(?:_.*)?", re.ASCII)
#: The name of the only store of an operator.
_DEFAULT_STORE = "default"
#: Spark requires a version at the beginning, such as ``v1``.
_INCOMPLETE = "This copy is incomplete. Delete it, and copy the checkpoint again."
#: Folders of a store that contain the parts of full files of RocksDB.
_PARTS = ("SSTs", "logs")


class StateContents(Protocol):
    """Reads the state files that name other files."""

    def lineage(self, path: str) -> Sequence[Ancestor]:
        """The versions on which a file of changes is based.

        Raises:
            StateDamaged: if it cannot be parsed.
        """
        ...

    def files_of_zip(self, path: str) -> Mapping[str, int]:
        """The sizes in bytes of the files that a full file of RocksDB needs, by their paths below the store.

        Raises:
            StateDamaged: if it cannot be parsed.
        """
        ...


@dataclass(frozen=True, slots=True)
class StateNeeds:
    """The state files that a version of a store needs.

    Args:
        files: the paths of the files below the checkpoint, with their sizes in bytes if a file names them.
        missing: the path of a file that does not exist; ``None`` if all exist.
    """

    files: Mapping[str, int | None]
    missing: str | None = None


def stores_in(paths: Iterable[str]) -> dict[str, frozenset[StateFile]]:
    """Groups state files by the directories of their stores.

    Args:
        paths: the paths of files below the checkpoint.

    >>> sorted(stores_in(["state/0/1/3.delta", "state/0/1/_metadata/schema"]))
    ['state/0/1']
    """
    found: defaultdict[str, set[StateFile]] = defaultdict(set)
    for path in paths:
        directory, _, name = path.rpartition("/")
        file = parse_name(name)
        if file is not None:
            found[directory].add(file)
    return {store: frozenset(files) for store, files in found.items()}


def needs_of(
    store: str,
    files: Collection[StateFile],
    batch_id: int,
    unique_ids: Collection[str] | None,
    contents: StateContents,
) -> StateNeeds:
    """Returns the files that the state after a batch needs.

    Args:
        store: the path of the directory of the store.
        files: its state files.
        batch_id: the batch.
        unique_ids: the ids of the stores of this partition after the batch; ``None`` for a store without unique ids.
        contents: reads files that name others. Its errors are raised.
    """
    version = batch_id + 1
    if unique_ids is None:
        chain = files_of_version(files, version)
    else:
        known = {it.unique_id for it in files if it.version == version}
        unique_id = min([it for it in unique_ids if it in known] or unique_ids, default="")
        chain = files_of_id(files, version, unique_id, lambda it: contents.lineage(f"{store}/{it}"))
    if isinstance(chain, Incomplete):
        return StateNeeds({}, f"{store}/{chain.missing}")
    needed: dict[str, int | None] = {}
    for file in chain:
        needed[f"{store}/{file}"] = None
        if file.kind is Kind.ZIP:
            parts = contents.files_of_zip(f"{store}/{file}")
            needed |= {f"{store}/{part}": size_bytes for part, size_bytes in parts.items()}
    return StateNeeds(needed)


def expected_stores(
    operators: Mapping[int, Operator | None], entry: OffsetEntry, existing: Collection[str]
) -> dict[str, tuple[int, int]]:
    """Returns the stores of all operators: their operator and partition by the paths of their directories.

    Args:
        operators: the metadata of the operators; ``None`` for an operator without it.
        entry: the batch in the offset log.
        existing: the paths of directories with state files.

    >>> from streamgroups.checkpoints.spark_logs import Store
    >>> operators = {0: Operator(1, "stateStoreSave", (Store("default", 2),))}
    >>> expected_stores(operators, OffsetEntry(1, 0, 0, {}), [])
    {'state/0/0': (0, 0), 'state/0/1': (0, 1)}
    """
    found: dict[str, tuple[int, int]] = {}
    # Before Spark 3.5 only the directories show the stores. All partitions of an operator have the same ones.
    names: defaultdict[int, set[str]] = defaultdict(set)
    for path in sorted(existing):
        store_at = _STORE.fullmatch(path)
        if store_at is not None and operators.get(number := int(store_at[1])) is None:
            found[path] = number, int(store_at[2])
            names[number].add(store_at[3])
    for number, operator in operators.items():
        for store in () if operator is None else operator.stores:
            # Spark has no directory for the only store of an operator.
            below = "" if store.name == _DEFAULT_STORE else f"/{store.name}"
            found |= {f"state/{number}/{n}{below}": (number, n) for n in range(entry.partitions_of(store))}
        for below in sorted(names[number] or {""}) if operator is None else ():
            found |= {f"state/{number}/{n}{below}": (number, n) for n in range(entry.shuffle_partitions or 0)}
    return found


def metadata_batch(path: str) -> int | None:
    """Returns the first batch to which a file with the metadata of an operator applies. ``None`` for other files.

    Args:
        path: the path of a file below the checkpoint.

    >>> metadata_batch("state/0/_metadata/v2/7"), metadata_batch("state/0/_metadata/metadata"), metadata_batch("state/0/0/7.delta")
    (7, 0, None)
    """
    found = _METADATA.fullmatch(path)
    return None if found is None else int(found[1] or 0)


def unique_ids_of(commit: CommitEntry, operator: int, partition: int) -> tuple[str, ...] | None:
    """Returns the ids of the stores of a partition after a batch. ``None`` if the names of state files contain no ids.

    >>> unique_ids_of(CommitEntry(2, 0, {0: (("a",), ("b",))}), 0, 1)
    ('b',)
    """
    if commit.unique_ids is None:
        return None
    partitions = commit.unique_ids.get(operator, ())
    return partitions[partition] if partition < len(partitions) else ()


def files_of_state(
    paths: Collection[str],
    operators: Mapping[int, Operator | None],
    entry: OffsetEntry,
    commit: CommitEntry,
    batch_id: int,
    contents: StateContents,
) -> list[str]:
    """Returns the paths of all files below ``state`` that a copy at a batch needs.

    Args:
        paths: the paths of all files below ``state``.
        operators: the metadata of the operators for the batch.
        entry: the batch in the offset log.
        commit: the batch in the commit log.
        batch_id: the batch.
        contents: reads state files that name others.

    Raises:
        CheckpointRejected: if a state file does not exist.
        StateDamaged: if a state file that names others cannot be parsed.
    """
    known = set(paths)
    stores = stores_in(known)
    needed: set[str] = set()
    for store, (operator, partition) in expected_stores(operators, entry, stores).items():
        ids = unique_ids_of(commit, operator, partition)
        needs = needs_of(store, stores.get(store, frozenset()), batch_id, ids, contents)
        missing = needs.missing or next((it for it in sorted(needs.files) if it not in known), None)
        if missing is not None:
            raise CheckpointRejected(
                f"The state after batch {batch_id} cannot be restored: '{missing}' does not exist.",
                remedy="Use --batch with a batch that can be restored: 'streamgroups checkpoint verify' lists them.",
            )
        needed |= needs.files.keys()
    needed |= {it for it in known if it.removesuffix(CHECKSUM) in needed}
    return sorted(needed | {it for it in known if not is_state(it) and _applies(it, batch_id)})


def is_state(path: str) -> bool:
    """Returns whether a file below ``state/<operator>`` is a part of the state of some version.

    >>> is_state("state/0/1/SSTs/7-a.sst"), is_state("state/0/1/7.delta.crc"), is_state("state/0/_metadata/metadata")
    (True, True, False)
    """
    *folders, name = path.split("/")
    return bool(folders) and (folders[-1] in _PARTS or parse_name(name.removesuffix(CHECKSUM)) is not None)


def in_order(batch_id: int, sources: Sequence[str], state: Collection[str]) -> list[str]:
    """Returns the files of a copy in the order in which they are written. ``metadata`` follows.

    >>> in_order(7, ["sources/0/0"], {"state/0/0/8.delta"})
    ['offsets/7', 'commits/7', 'sources/0/0', 'state/0/0/8.delta', 'offsets/6']
    >>> in_order(0, ["sources/0/0"], {"state/0/0/1.delta"})
    ['commits/0', 'sources/0/0', 'state/0/0/1.delta', 'offsets/0']
    """
    first, last = ([f"offsets/{batch_id}"], f"offsets/{batch_id - 1}") if batch_id else ([], "offsets/0")
    return [*first, f"commits/{batch_id}", *sources, *sorted(state), last]


def replaced_files(batch_id: int) -> dict[str, str]:
    """Returns the files with which a copy begins, and which :func:`in_order` replaces. Spark rejects the copy until then.

    >>> replaced_files(7)
    {}
    """
    return {} if batch_id else {"offsets/0": _INCOMPLETE}


def with_group(log: str, group_id: str) -> str:
    """Returns a file of the offset log whose sources of this library belong to another group, with their punctuations.

    Args:
        log: the content of the file.
        group_id: the other group.

    Raises:
        ValueError: if the content has another format.
        OffsetFormat: if a newer version of Spark has written it.

    >>> with_group('v1\\n{"batchWatermarkMs":0}\\n{"version":2,"n":1,"ranges":{},"resting":{},"group":"a"}', "b")[-12:]
    '"group":"b"}'
    """

    def moved(value: Any) -> Any:
        is_of_group = is_own_offset(value) or punctuation_group(value) is not None
        return {**value, "group": group_id} if is_of_group else value

    return _with_offsets(log, moved)


def with_positions(log: str, positions: Mapping[TopicPartition, int]) -> str:
    """Returns a file of the offset log whose Kafka sources are at other positions.

    Args:
        log: the content of the file.
        positions: the position of each partition to move. The sources do not get other partitions.

    Raises:
        ValueError: if the content has another format.
        OffsetFormat: if a newer version of Spark has written it.

    >>> with_positions('v1\\n{"batchWatermarkMs":0}\\n{"t":{"0":7,"1":8}}', {TopicPartition("t", 0): 3})
    'v1\\n{"batchWatermarkMs":0}\\n{"t":{"0":3,"1":8}}'
    """

    def moved(value: Any) -> Any:
        known = kafka_offset(value)
        if not known:
            return value
        return {
            topic: {n: positions.get(TopicPartition(topic, int(n)), offset) for n, offset in partitions.items()}
            for topic, partitions in value.items()
        }

    return _with_offsets(log, moved)


def _with_offsets(log: str, change: Callable[[Any], Any]) -> str:
    first, metadata, *_ = log.split("\n")
    lines = []
    for name, logged in lines_of_sources(log).items():
        line, value = logged, read_json(logged) if logged.startswith("{") else None
        changed = change(value)
        if changed != value:
            line = _compact(changed)
        lines.append(f"{name}:{line}" if first.strip() == "v2" else line)
    return "\n".join([first, metadata, *lines])


def with_schemas_at(metadata: str, operator: int, root: str) -> str:
    """Returns the metadata of an operator whose files of schemas are in another checkpoint.

    Version 2 of the metadata names the files with the schemas of its stores by absolute locations.

    Args:
        metadata: the content of the file.
        operator: the number of the operator.
        root: the location of the other checkpoint, as Spark writes it.

    Raises:
        ValueError: if the content has another format.

    >>> with_schemas_at('v2\\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/a/state/0/_stateSchema/x/0_b"]}]}', 0, "file:/new")
    'v2\\n{"stateStoreInfo":[{"stateSchemaFilePaths":["file:/new/state/0/_stateSchema/x/0_b"]}]}'
    """
    first, _, value = metadata.partition("\n")
    found = dict(items(read_json(value)))
    marker = f"/state/{operator}/_stateSchema/"
    is_changed = False
    for store in found.get("stateStoreInfo") or []:
        paths = dict(items(store)).get("stateSchemaFilePaths") or []
        moved = [root + it[it.rindex(marker) :] if isinstance(it, str) and marker in it else it for it in paths]
        if moved != paths:
            store["stateSchemaFilePaths"] = moved
            is_changed = True
    return f"{first}\n{_compact(found)}" if is_changed else metadata


def spark_location(schema_file: str, old_path: str, new_path: str, new_location: str, *, is_same_system: bool) -> str:
    """Returns the location of a new checkpoint as Spark writes it, from a file of the old one.

    Args:
        schema_file: the location of a file of the old checkpoint, as Spark has written it.
        old_path: the path of the old checkpoint in its file system.
        new_path: the path of the new checkpoint in its file system.
        new_location: the location of the new checkpoint without credentials.
        is_same_system: whether both are in the same kind of file system.

    >>> spark_location("s3a://b/old/state/0/_stateSchema/x/0_a", "b/old", "b/new", "s3://b/new", is_same_system=True)
    's3a://b/new'
    """
    old = schema_file.partition("/state/")[0]
    if is_same_system and old.endswith(old_path):
        return old.removesuffix(old_path) + new_path
    return f"file:{new_location}" if new_location.startswith("/") else new_location


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _applies(path: str, batch_id: int) -> bool:
    """Whether a file that is no state is one of the batch or of one before it, as metadata and schemas are."""
    of_batch = _OF_BATCH.fullmatch(path.rpartition("/")[2].removesuffix(CHECKSUM))
    return of_batch is None or int(of_batch[1]) <= batch_id
