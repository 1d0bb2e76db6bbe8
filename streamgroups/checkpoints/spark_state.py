"""Decides which state files of a Spark checkpoint a batch needs, and which of them do not exist.

Called by :mod:`streamgroups.checkpoints.spark_copy` and by ``streamgroups_cli.checkpoint``. The state of a partition of an
operator is a directory of files that never change. Version ``n`` of the state is the one after batch ``n - 1``. It is a full
file, or the last full file before it with all files of changes in between. Version 0 is empty and has no file.

==========================  ================================  =================================
state store                 full files                        changes
==========================  ================================  =================================
HDFS-backed                 ``<version>.snapshot``            ``<version>.delta``
RocksDB                     ``<version>.zip``                 ``<version>.changelog``
RocksDB with unique ids     ``<version>_<id>.zip``            ``<version>_<id>.changelog``
==========================  ================================  =================================

With unique ids (``spark.sql.streaming.stateStore.checkpointFormatVersion`` 2) the commit log has the id of each batch, and
a file of changes has the versions and ids before it. A file ``<name>.crc`` has the size and checksum of another file. Source:
``HDFSBackedStateStoreProvider.loadMap``, ``RocksDB.load``, ``RocksDB.loadWithCheckpointId``, ``RocksDBFileManager``,
``StateStoreChangelogWriterV3``, ``ChecksumCheckpointFileManager``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streamgroups.json_values import items, read_json, string, whole

_NAME = re.compile(r"(\d{1,18})(?:_([^./]+))?\.(snapshot|zip|delta|changelog)", re.ASCII)
#: The suffix of the file with the checksum of another file.
CHECKSUM = ".crc"


class Kind(Enum):
    """The content of a state file."""

    SNAPSHOT = "snapshot"
    ZIP = "zip"
    DELTA = "delta"
    CHANGELOG = "changelog"

    @property
    def is_full(self) -> bool:
        """Whether it is the whole state."""
        return self in (Kind.SNAPSHOT, Kind.ZIP)


@dataclass(frozen=True, slots=True)
class StateFile:
    """A state file of a partition.

    Args:
        version: the version of the state after it.
        kind: its content.
        unique_id: its unique id; ``None`` for a store without unique ids.
    """

    version: int
    kind: Kind
    unique_id: str | None = None

    def __str__(self) -> str:
        unique = "" if self.unique_id is None else f"_{self.unique_id}"
        return f"{self.version}{unique}.{self.kind.value}"


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A version before that of a file of changes, with its unique id."""

    version: int
    unique_id: str


@dataclass(frozen=True, slots=True)
class Incomplete:
    """A version that cannot be restored, because a file does not exist.

    Args:
        missing: the file.
    """

    missing: StateFile


#: Returns the versions on which a file of changes is based, from the file.
Lineage = Callable[[StateFile], Sequence[Ancestor]]


def parse_name(name: str) -> StateFile | None:
    """Parses the name of a state file. Returns ``None`` for other files.

    >>> parse_name("7.delta"), parse_name("7.delta.crc")
    (StateFile(version=7, kind=<Kind.DELTA: 'delta'>, unique_id=None), None)
    >>> str(parse_name("7_4b7c.zip"))
    '7_4b7c.zip'
    """
    found = _NAME.fullmatch(name)
    return None if found is None else StateFile(int(found[1]), Kind(found[3]), found[2])


def files_of_version(files: Collection[StateFile], version: int) -> list[StateFile] | Incomplete:
    """Returns the files that a version of a store without unique ids needs, or the last one that does not exist.

    Args:
        files: the existing files of the store.
        version: the version: 1 more than the id of the batch.

    >>> files = [parse_name(name) for name in ("1.delta", "2.delta", "2.snapshot", "3.delta", "5.delta")]
    >>> [str(file) for file in files_of_version(files, 3)]
    ['2.snapshot', '3.delta']
    >>> str(files_of_version(files, 5).missing)
    '4.delta'
    """
    known = {it for it in files if it.unique_id is None}
    full = max((it for it in known if it.kind.is_full and it.version <= version), key=_version, default=None)
    changes = {it.version: it for it in known if not it.kind.is_full}
    first = 1 if full is None else full.version + 1
    number = version
    while number >= first and number in changes:
        number -= 1
    if number >= first:
        return Incomplete(StateFile(number, _kind_of_missing(known)))
    return [*([] if full is None else [full]), *(changes[it] for it in range(first, version + 1))]


def files_of_id(
    files: Collection[StateFile], version: int, unique_id: str, lineage: Lineage
) -> list[StateFile] | Incomplete:
    """Returns the files that a version of a store with unique ids needs, or the first one that does not exist.

    Args:
        files: the existing files of the store.
        version: the version: 1 more than the id of the batch.
        unique_id: the id of the version, from the commit log.
        lineage: reads the versions on which a file of changes is based. Its errors are raised.

    >>> files = [parse_name(name) for name in ("1_a.zip", "2_b.changelog", "2_x.changelog", "3_c.changelog")]
    >>> before = {3: [Ancestor(1, "a"), Ancestor(2, "b")]}
    >>> [str(file) for file in files_of_id(files, 3, "c", lambda file: before[file.version])]
    ['1_a.zip', '2_b.changelog', '3_c.changelog']
    """
    known = set(files)
    full = StateFile(version, Kind.ZIP, unique_id)
    if full in known:
        return [full]
    changes = StateFile(version, Kind.CHANGELOG, unique_id)
    if changes not in known:
        return Incomplete(changes if _has_changes(known) else full)
    before = sorted((it for it in lineage(changes) if it.version < version), key=lambda it: it.version)
    chain = [StateFile(it.version, Kind.CHANGELOG, it.unique_id) for it in before] + [changes]
    zips = [StateFile(it.version, Kind.ZIP, it.unique_id) for it in before]
    base = next((it for it in reversed(zips) if it in known), None)
    if base is None and chain[0].version != 1:
        return Incomplete(zips[0] if zips else full)
    needed = [] if base is None else [base]
    for number, it in enumerate(chain, chain[0].version):
        if base is None or it.version > base.version:
            if it.version != number:
                return Incomplete(StateFile(number, Kind.CHANGELOG, it.unique_id))
            if it not in known:
                return Incomplete(it)
            needed.append(it)
    return needed


def parse_lineage(text: str) -> list[Ancestor]:
    """Parses the versions and ids before a file of changes, from its second line.

    Args:
        text: the JSON of the line.

    Raises:
        ValueError: if it is something else.

    >>> parse_lineage('[{"version":1,"checkpointUniqueId":"a"}]')
    [Ancestor(version=1, unique_id='a')]
    """
    found = read_json(text)
    if not isinstance(found, list):
        raise ValueError("it has no lineage")
    pairs = [dict(items(it)) for it in found]
    return [Ancestor(whole(it.get("version")), string(it.get("checkpointUniqueId"))) for it in pairs]


def parse_files_of_zip(metadata: str) -> dict[str, int]:
    """Parses the files outside of a full file of RocksDB that it needs.

    Args:
        metadata: the content of the file ``metadata`` in it.

    Returns:
        Their sizes in bytes by their paths below the directory of the store: ``SSTs/<name>`` and ``logs/<name>``.

    Raises:
        ValueError: if it has another format, or its version is not supported.

    >>> parse_files_of_zip('v1\\n{"sstFiles":[{"localFileName":"9.sst","dfsSstFileName":"9-a.sst","sizeBytes":7}],"numKeys":1}')
    {'SSTs/9-a.sst': 7}
    """
    first, _, value = metadata.partition("\n")
    if first.strip() != "v1":
        raise ValueError(f"version '{first[:20]}' of its metadata is not supported")
    found = dict(items(read_json(value)))
    needed = {}
    for list_, folder, name in (("sstFiles", "SSTs", "dfsSstFileName"), ("logFiles", "logs", "dfsLogFileName")):
        for it in found.get(list_) or []:
            entry = dict(items(it))
            file = string(entry.get(name))
            if "/" in file or file in ("", ".", ".."):
                raise ValueError(f"'{file[:80]}' is not the name of a file")
            needed[f"{folder}/{file}"] = whole(entry.get("sizeBytes"))
    return needed


def parse_checksum(text: str) -> int:
    """Parses the size of a file in bytes from the file with its checksum.

    Raises:
        ValueError: if it has another format.

    >>> parse_checksum('{"algorithm":"CRC32C","value":7,"mainFileSize":46,"timestampMs":1}')
    46
    """
    found: dict[str, Any] = dict(items(read_json(text)))
    return whole(found.get("mainFileSize"))


def _version(file: StateFile) -> int:
    return file.version


def _kind_of_missing(files: Collection[StateFile]) -> Kind:
    kinds = {it.kind for it in files}
    if Kind.CHANGELOG in kinds:
        return Kind.CHANGELOG
    return Kind.ZIP if Kind.ZIP in kinds else Kind.DELTA


def _has_changes(files: Collection[StateFile]) -> bool:
    return any(it.kind is Kind.CHANGELOG for it in files)
