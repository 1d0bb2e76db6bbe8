"""The commit record of a savepoint: the file ``savepoint.json``, which is written last.

Written and read by ``streamgroups_operators.savepoints``. It names all files with their checksums, so that a missing or changed
file is found before anything is restored. Source: SEMANTICS C1, C3.

The format, version 1::

    {"kind": "streamgroups-savepoint", "version": 1, "id": "20241123T040000Z-5f2c9a01", "group": "board", "made_ms": 1732334400000,
     "made_by": "0.1.0", "cluster": "MkU3...", "topics": {"flights": "59qr..."},
     "positions": [{"topic": "flights", "partition": 0, "next_offset": 20, "metadata": "streamgroups:...", "before_ms": 1732334399000}],
     "times": [{"topic": "flights", "partition": 0, "next_offset": 20, "metadata": "{...}"}],
     "operators": [{"name": "windows", "form": "...", "rows": 7, "states": 1, "watermark_ms": 1732334390000,
                    "files": [{"name": "1732334879123-1f3a9c2b7d10-16-40.state", "bytes": 1840, "sha256": "..."}]}],
     "output": {"name": "delta:/data/board", "table_version": 7, "positions": [{"topic": "flights", "partition": 0, "next_offset": 20}]},
     "checkpoint": {"batch": 41, "files": [{"path": "commits/41", "bytes": 29, "sha256": "..."}]},
     "checksum": "..."}

``output`` and ``checkpoint`` are null without them. ``checksum`` is the SHA-256 of the other fields, as compact JSON with sorted names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroups.errors import SavepointDamaged
from streamgroups.identity import TopicIdentity
from streamgroups.json_values import elements, items, read_json, string, string_or_none, time_ms, time_ms_or_none, whole
from streamgroups.partitions import TopicPartition
from streamgroups.savepoints.checkpoint_record import CheckpointRecord, decode_checkpoint, encode_checkpoint
from streamgroups.savepoints.output_record import OutputRecord, decode_output, encode_output
from streamgroups.state.file_names import StateFileName

FILE = "savepoint.json"
VERSION = 1
_KIND = "streamgroups-savepoint"
_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-[0-9a-f]{8}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: The metadata of an offset has 4,096 bytes by default. A cluster can permit more.
_MAX_METADATA = 1_000_000


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file of a savepoint.

    Args:
        name: its name, which is that of the copied state file.
        n_bytes: its size.
        sha256: its checksum, in hexadecimal digits.
    """

    name: StateFileName
    n_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """The states of one operator in a savepoint (SEMANTICS C1).

    Args:
        name: the name of the operator.
        form: its definition. Only the same definition continues with the states.
        states: the number of partitions with a state.
        rows: the number of rows of all states.
        watermark_ms: the earliest watermark of its states, in milliseconds since the epoch; ``None`` without watermarks.
        files: all files that the states need.
    """

    name: str
    form: str
    states: int
    rows: int
    watermark_ms: int | None
    files: tuple[SavedFile, ...]

    @property
    def n_bytes(self) -> int:
        """The size of all files."""
        return sum(it.n_bytes for it in self.files)


@dataclass(frozen=True, slots=True)
class SavedPosition:
    """A committed offset in a savepoint.

    Args:
        next_offset: the offset.
        metadata: the metadata of its commit. It names the state.
        before_ms: the timestamp of the record before it, in milliseconds since the epoch. It identifies the log in another
            cluster. ``None`` if no such record exists.
    """

    next_offset: int
    metadata: str
    before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """A complete savepoint.

    Args:
        id: its id, which is unique: the time of its creation and a random number.
        group_id: the group.
        made_ms: when its offsets were read, in milliseconds since the epoch.
        made_by: the version of this library.
        identities: the cluster and the id of each topic.
        positions: the committed offset of each partition.
        times: the entries of the group's event time, with the offsets at which they were written.
        operators: the operators with state.
        output: the output of the group; ``None`` if no sink was named.
        checkpoint: the copy of the checkpoint of an exclusive query; ``None`` without one.

    >>> p0 = TopicPartition("flights", 0)
    >>> made = CommitRecord("20241123T040000Z-5f2c9a01", "board", 7, "0.1.0", {}, {p0: SavedPosition(20, "")})
    >>> decode(encode(made), "/savepoints") == made
    True
    """

    id: str
    group_id: str
    made_ms: int
    made_by: str
    identities: Mapping[str, TopicIdentity]
    positions: Mapping[TopicPartition, SavedPosition]
    times: Mapping[TopicPartition, SavedPosition] = field(default_factory=dict)
    operators: tuple[OperatorRecord, ...] = ()
    output: OutputRecord | None = None
    checkpoint: CheckpointRecord | None = None

    @property
    def next_offsets(self) -> dict[TopicPartition, int]:
        """The committed offset of each partition."""
        return {tp: it.next_offset for tp, it in self.positions.items()}


def is_savepoint_id(text: str) -> bool:
    """Whether a text has the form of the id of a savepoint.

    >>> is_savepoint_id("20241123T040000Z-5f2c9a01"), is_savepoint_id("../board")
    (True, False)
    """
    return _ID.fullmatch(text) is not None


def encode(record: CommitRecord) -> str:
    """The text of the file."""
    cluster = next((it.cluster_id for it in record.identities.values()), None)
    fields = {
        "kind": _KIND,
        "version": VERSION,
        "id": record.id,
        "group": record.group_id,
        "made_ms": record.made_ms,
        "made_by": record.made_by,
        "cluster": cluster,
        "topics": {topic: it.topic_id for topic, it in sorted(record.identities.items())},
        "positions": [_position(tp, it) for tp, it in sorted(record.positions.items())],
        "times": [_position(tp, it) for tp, it in sorted(record.times.items())],
        "operators": [_operator(it) for it in record.operators],
        "output": None if record.output is None else encode_output(record.output),
        "checkpoint": None if record.checkpoint is None else encode_checkpoint(record.checkpoint),
    }
    return json.dumps({**fields, "checksum": _checksum(fields)}, indent=1, ensure_ascii=False) + "\n"


def decode(text: str, where: str) -> CommitRecord:
    """Parses the file.

    Args:
        text: the text.
        where: the directory of the savepoint, for errors.

    Raises:
        SavepointDamaged: if the text is not the commit record of a savepoint, or was changed.
    """
    try:
        fields = dict(items(read_json(text)))
        if (fields.get("kind"), fields.get("version")) != (_KIND, VERSION):
            raise ValueError("it is not the commit record of a savepoint, or has a newer version")
        checksum = fields.pop("checksum", None)
        if checksum != _checksum(fields):
            raise ValueError("its checksum is wrong")
        return _record(fields)
    except (ValueError, TypeError, KeyError) as e:
        raise SavepointDamaged(
            f"The commit record of the savepoint in '{where}' is damaged: {e}.",
            remedy="Restore the directory from a backup, or use another savepoint.",
        ) from e


def _checksum(fields: Mapping[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _position(tp: TopicPartition, position: SavedPosition) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "next_offset": position.next_offset,
        "metadata": position.metadata,
        "before_ms": position.before_ms,
    }


def _operator(record: OperatorRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "form": record.form,
        "states": record.states,
        "rows": record.rows,
        "watermark_ms": record.watermark_ms,
        "files": [{"name": str(it.name), "bytes": it.n_bytes, "sha256": it.sha256} for it in record.files],
    }


def _record(fields: Mapping[str, Any]) -> CommitRecord:
    id_ = string(fields["id"])
    if not is_savepoint_id(id_):
        raise ValueError(f"{id_[:100]!r} is not the id of a savepoint")
    cluster_id = string_or_none(fields["cluster"])
    return CommitRecord(
        id=id_,
        group_id=string(fields["group"]),
        made_ms=time_ms(fields["made_ms"]),
        made_by=string(fields["made_by"]),
        identities={
            topic: TopicIdentity(cluster_id, string_or_none(topic_id)) for topic, topic_id in items(fields["topics"])
        },
        positions=dict(map(_read_position, elements(fields["positions"]))),
        times=dict(map(_read_position, elements(fields["times"]))),
        operators=tuple(map(_read_operator, elements(fields["operators"]))),
        output=None if fields["output"] is None else decode_output(fields["output"]),
        checkpoint=None if fields["checkpoint"] is None else decode_checkpoint(fields["checkpoint"]),
    )


def _read_position(value: Any) -> tuple[TopicPartition, SavedPosition]:
    fields = dict(items(value))
    tp = TopicPartition(string(fields["topic"]), whole(fields["partition"]))
    metadata = string(fields["metadata"], most=_MAX_METADATA)
    return tp, SavedPosition(whole(fields["next_offset"]), metadata, time_ms_or_none(fields["before_ms"]))


def _read_operator(value: Any) -> OperatorRecord:
    fields = dict(items(value))
    return OperatorRecord(
        name=string(fields["name"]),
        form=string(fields["form"], most=_MAX_METADATA),
        states=whole(fields["states"]),
        rows=whole(fields["rows"]),
        watermark_ms=time_ms_or_none(fields["watermark_ms"]),
        files=tuple(map(_read_file, elements(fields["files"]))),
    )


def _read_file(value: Any) -> SavedFile:
    fields = dict(items(value))
    sha256 = string(fields["sha256"])
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"{sha256[:100]!r} is not a checksum")
    return SavedFile(StateFileName.parse(string(fields["name"])), whole(fields["bytes"]), sha256)
