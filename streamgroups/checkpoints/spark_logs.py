"""Parses the files of a Spark checkpoint that do not depend on its sources: its logs, and the metadata of its operators.

Called by ``streamgroups_spark.bridge``, which reads the files, and by the other modules of this package about checkpoints of
Spark. Source: Spark's ``OffsetSeqLog`` (versions 1 and 2; 2 has named sources), ``CommitLog`` (versions 1 and 2; 2 has the
ids of state files), ``StreamMetadata`` and ``OperatorStateMetadata`` (versions 1 and 2).

A file of offsets contains a version, a line of metadata, and a line for each source of the query. The line is its offset in
version 1, and its name and offset in version 2. A file of any of these kinds can contain anything: another program, or half
of a copy, can have written it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroups.errors import OffsetFormat
from streamgroups.json_values import MAX_INT64, items, partition_number, read_json, string, whole

#: The line of a source without an offset.
_VOID = "-"
#: The supported versions of the offset log, of the commit log, and of the metadata of operators.
_SUPPORTED = (1, 2)
#: Far more than queries have, and little enough that each one has a name in memory.
_MAX_PARTITIONS = 100_000
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_CODEC = "spark.sql.streaming.stateStore.compression.codec"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
#: Settings of a state that a query keeps for its lifetime, with the names that commands show.
_FORMATS = {
    "aggregation": "spark.sql.streaming.aggregation.stateFormatVersion",
    "flatMapGroupsWithState": "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "join": "spark.sql.streaming.join.stateFormatVersion",
    "rocksdb": "spark.sql.streaming.stateStore.rocksdb.formatVersion",
    "encoding": "spark.sql.streaming.stateStore.encodingFormat",
}


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """A file of Spark's offset log: a planned batch.

    Args:
        version: the version of its format.
        watermark_ms: the watermark of the batch, in milliseconds since the epoch; 0 before the first one.
        time_ms: when Spark planned the batch, in milliseconds since the epoch.
        ends: the end offset of each source, by its name, or by its number if it has no name. ``None`` for a source without
            an offset.
        conf: the settings that Spark keeps for the lifetime of the query.
    """

    version: int
    watermark_ms: int
    time_ms: int
    ends: Mapping[str, Any]
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def provider(self) -> str | None:
        """The class of the state store, without its package. ``None`` if it is unknown."""
        provider = self.conf.get(_PROVIDER)
        return None if provider is None else provider.rpartition(".")[2]

    @property
    def codec(self) -> str | None:
        """The compression of the state files. ``None`` if it is unknown."""
        return self.conf.get(_CODEC)

    @property
    def shuffle_partitions(self) -> int | None:
        """The number of partitions of the state. ``None`` if it is unknown."""
        text = self.conf.get(_SHUFFLE_PARTITIONS, "")
        return min(int(text), _MAX_PARTITIONS) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None

    def partitions_of(self, store: Store) -> int:
        """The number of partitions of a store in this batch.

        ``StreamingCheckpointManager.repartition`` of Spark writes it to this log only, and the metadata of the operator stays.

        >>> OffsetEntry(1, 0, 0, {}, {"spark.sql.shuffle.partitions": "5"}).partitions_of(Store("default", 2))
        5
        """
        return self.shuffle_partitions or store.partitions

    @property
    def formats(self) -> dict[str, str]:
        """The versions of the formats of the state, by a short name."""
        return {name: self.conf[key] for name, key in _FORMATS.items() if key in self.conf}


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """A file of Spark's commit log: a batch whose output is written.

    Args:
        version: the version of its format.
        next_watermark_ms: the watermark of the next batch, in milliseconds since the epoch.
        unique_ids: the ids of the state files of the batch, by the number of the operator, its partition, and the position of
            the store. ``None`` if the names of state files contain no ids.
    """

    version: int
    next_watermark_ms: int
    unique_ids: Mapping[int, tuple[tuple[str, ...], ...]] | None = None


@dataclass(frozen=True, slots=True)
class Store:
    """A state store of an operator.

    Args:
        name: its name, such as ``default``.
        partitions: the number of its partitions.
    """

    name: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Operator:
    """The metadata of a stateful operator.

    Args:
        version: the version of their format.
        name: its name, such as ``stateStoreSave``.
        stores: its state stores.
        schema_files: the absolute locations of the files with the schemas of its stores.
    """

    version: int
    name: str
    stores: tuple[Store, ...]
    schema_files: tuple[str, ...] = ()


def ends_in(log: str) -> dict[str, Any]:
    """Parses the end offset of each source from a file of Spark's offset log.

    Args:
        log: the content of the file.

    Returns:
        The offset by the name of the source, or by its number if it has no name. ``None`` for a source without an
        offset.

    Raises:
        ValueError: if the content has another format.
        OffsetFormat: if a newer version of Spark has written it.

    >>> ends_in('v1\\n{"batchWatermarkMs":0}\\n-\\n{"n": 3}')
    {'0': None, '1': {'n': 3}}
    >>> ends_in('v2\\n{"batchWatermarkMs":0}\\nflights:{"n": 3}\\nweather:-')
    {'flights': {'n': 3}, 'weather': None}
    """
    return {name: _end(line) for name, line in lines_of_sources(log).items()}


def lines_of_sources(log: str) -> dict[str, str]:
    """Parses the text of the end offset of each source from a file of Spark's offset log. Raises the errors of :func:`ends_in`.

    >>> lines_of_sources('v1\\n{"batchWatermarkMs":0}\\n-\\n{"n": 3}')
    {'0': '-', '1': '{"n": 3}'}
    """
    first, _metadata, *lines = log.split("\n")
    version = _version(first, "offset log")
    if version == 1:
        return {str(i): line for i, line in enumerate(lines)}
    split = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in split):
        raise ValueError("a source has no name")
    return {name: end for name, _, end in split}


def parse_offsets(log: str) -> OffsetEntry:
    """Parses a file of Spark's offset log.

    Args:
        log: the content of the file.

    Raises:
        ValueError: if the content has another format, or is truncated.
        OffsetFormat: if a newer version of Spark has written it.

    >>> parse_offsets('v1\\n{"batchWatermarkMs":7,"batchTimestampMs":9,"conf":{"a":"b"}}\\n{"n": 3}')
    OffsetEntry(version=1, watermark_ms=7, time_ms=9, ends={'0': {'n': 3}}, conf={'a': 'b'})
    """
    ends = ends_in(log)
    first, metadata, *_ = log.split("\n")
    found = dict(items(read_json(metadata)))
    return OffsetEntry(
        _version(first, "offset log"),
        _time(found, "batchWatermarkMs", "watermark"),
        _time(found, "batchTimestampMs", "time"),
        ends,
        {name: value for name, value in items(found.get("conf") or {}) if isinstance(value, str)},
    )


def parse_commit(log: str) -> CommitEntry:
    """Parses a file of Spark's commit log.

    Args:
        log: the content of the file.

    Raises:
        ValueError: if the content has another format, or is truncated.
        OffsetFormat: if a newer version of Spark has written it.

    >>> parse_commit('v1\\n{"nextBatchWatermarkMs":7}')
    CommitEntry(version=1, next_watermark_ms=7, unique_ids=None)
    >>> parse_commit('v2\\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a"],["b"]]}}').unique_ids
    {0: (('a',), ('b',))}
    """
    first, _, metadata = log.partition("\n")
    version = _version(first, "commit log")
    found = dict(items(read_json(metadata)))
    ids = found.get("stateUniqueIds")
    return CommitEntry(
        version,
        whole(found.get("nextBatchWatermarkMs"), least=-MAX_INT64),
        None
        if ids is None
        else {
            partition_number(operator): tuple(tuple(map(string, _list(stores))) for stores in _list(partitions))
            for operator, partitions in items(ids)
        },
    )


def parse_query_id(text: str) -> str:
    """Parses the query id from the file ``metadata`` of a checkpoint.

    Args:
        text: the content of the file.

    Raises:
        ValueError: if it contains no id.

    >>> parse_query_id('{"id":"250e5eb1-1465-4d3c-804d-df4f606787e6"}')
    '250e5eb1-1465-4d3c-804d-df4f606787e6'
    """
    return string(dict(items(read_json(text))).get("id"))


def parse_operator(text: str) -> Operator:
    """Parses the metadata of a stateful operator.

    Args:
        text: the content of ``state/<operator>/_metadata/metadata``, or of ``state/<operator>/_metadata/v2/<batch>``.

    Raises:
        ValueError: if the content has another format, or is truncated.
        OffsetFormat: if a newer version of Spark has written it.

    >>> parse_operator('v1\\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},'
    ...     '"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}')
    Operator(version=1, name='dedupe', stores=(Store(name='default', partitions=2),), schema_files=())
    """
    first, _, value = text.partition("\n")
    version = _version(first, "operator metadata")
    found = dict(items(read_json(value)))
    stores = [dict(items(it)) for it in _list(found.get("stateStoreInfo"))]
    return Operator(
        version,
        string(dict(items(found.get("operatorInfo"))).get("operatorName")),
        tuple(
            Store(string(it.get("storeName")), whole(it.get("numPartitions"), most=_MAX_PARTITIONS)) for it in stores
        ),
        tuple(file for it in stores for file in map(string, _list(it.get("stateSchemaFilePaths") or []))),
    )


def _version(line: str, log: str) -> int:
    version = re.fullmatch(r"v(\d{1,9})", line.strip(), re.ASCII)
    if version is None:
        raise ValueError(f"it begins with '{line[:20]}', not with a version")
    if int(version[1]) not in _SUPPORTED:
        raise OffsetFormat(
            f"Version {version[1]} of Spark's {log} is not supported; versions 1 and 2 are.",
            remedy=(
                "Install a release of streamgroups that supports this version of Spark, or run the query with "
                "the Spark that wrote its checkpoint."
            ),
        )
    return int(version[1])


def _time(found: Mapping[str, Any], name: str, what: str) -> int:
    time_ms = found.get(name)
    if type(time_ms) is not int:
        raise ValueError(f"its metadata contains no {what}")
    return time_ms


def _end(logged: str) -> Any:
    # Offsets of other sources need not be JSON. Ours are JSON, and a truncated one must not pass for another source's.
    if logged == _VOID:
        return None
    try:
        return read_json(logged)
    except ValueError:
        if logged.startswith("{"):
            raise
        return logged


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{type(value).__name__} is not a list")
    return value
