"""The manifest of a state file: the partitions and offsets of its states, and the segments of each state.

Written and read by ``streamgroups_operators.files``, as JSON beside the segments. A batch appends a *segment* to each
*part* of a state that it changes, for example one for each open window. A segment contains only the changes of its
batch, so the cost of a write follows the batch and not the state. The manifest names all segments of each part, also
those in files of earlier batches: a reader needs one manifest and no chain of them. Source: SEMANTICS S10, S11.

The format, version 1, with files as indexes into ``files``, where 0 is the file itself::

    {"version": 1, "operator": "windows", "form": "...", "group": "billing", "cluster": "MkU3...",
     "files": ["1732334879123-1f3a9c2b7d10-16-40.state"],
     "states": [{"topic": "flights", "id": "59qr...", "partition": 3, "from": 10, "to": 25, "began": 0,
                 "values": {"newest_ms": 1732334870000}, "due_ms": null,
                 "time": [1732334870000, 1732334870000, false, null], "after": "1732334879123-1f3a9c2b7d10-16-40.state",
                 "parts": {"1732334820000": [[1, 0, 12, 840], [0, 0, 7, 490]]}}]}

``after`` is null for a state that began with an empty one. ``time`` contains the fields of :class:`~streamgroups.state.state_time.StateTime`, in their order, and is null for an
operator without event time.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.identity import TopicIdentity
from streamgroups.json_values import (
    elements,
    flag,
    items,
    read_json,
    string,
    string_or_none,
    time_ms_or_none,
    whole,
    whole_or_none,
)
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_time import GroupWindows, StateTime

VERSION = 1


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """The changes of one batch to one part of a state.

    Args:
        file: the state file that contains it.
        number: its number in the file.
        rows: how many rows it has.
        row_bytes: the bytes of its rows, uncompressed.
    """

    file: StateFileName
    number: int
    rows: int
    row_bytes: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of an operator for one partition, after the records of a range.

    Args:
        range: the records that the batch has processed. The state belongs to the end of the range.
        began_offset: the offset at which the state was empty. It contains the records from there on.
        identity: the topic of the partition.
        parts: the segments of each part of the state, oldest first.
        values: small values of the operator, such as the newest event time.
        due_ms: when the operator must run without new records, in milliseconds since the epoch; ``None``: never.
        time: the event time of the state; ``None`` if the operator has none.
        after: the file of the state with which the batch continued; ``None``: it began with an empty one.
    """

    range: OffsetRange
    began_offset: int
    identity: TopicIdentity
    parts: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    values: Mapping[str, int | str | None] = field(default_factory=dict)
    due_ms: int | None = None
    time: StateTime | None = None
    after: StateFileName | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.range.topic_partition

    @property
    def next_offset(self) -> int:
        """The offset to which the state belongs: it contains all records before it."""
        return self.range.end_offset

    @property
    def is_first(self) -> bool:
        """Whether its batch began with an empty state."""
        return self.range.next_offset == self.began_offset

    @property
    def files(self) -> frozenset[StateFileName]:
        """The files that contain its segments."""
        return frozenset(segment.file for segments in self.parts.values() for segment in segments)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a state file, without the rows of its segments.

    Args:
        file: the name of the file.
        group_id: the group of the query.
        operator: the name of the operator in its query.
        form: the definition of the operator. Only the same definition can continue with the state.
        states: the states, one for each range of the task.
    """

    file: StateFileName
    group_id: str
    operator: str
    form: str
    states: tuple[PartitionState, ...]
    _by_partition: Mapping[TopicPartition, PartitionState] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Of two states of one partition, which no query writes, the first one counts.
        object.__setattr__(self, "_by_partition", {it.topic_partition: it for it in reversed(self.states)})

    def state_of(self, topic_partition: TopicPartition) -> PartitionState | None:
        """The state of a partition; ``None`` if the file contains none."""
        return self._by_partition.get(topic_partition)

    def complete(self, existing: Container[StateFileName]) -> Manifest:
        """The manifest with the states whose rows all exist.

        Retention keeps a file that the state of one partition needs. The states of its other partitions can be older, and
        their rows in other files are deleted.

        Args:
            existing: the files of the operator.
        """
        states = tuple(it for it in self.states if all(file in existing for file in it.files))
        return self if len(states) == len(self.states) else replace(self, states=states)

    @property
    def files(self) -> frozenset[StateFileName]:
        """The file itself, and all other files that its states need."""
        return frozenset((self.file,)).union(*(state.files for state in self.states))


def encode(manifest: Manifest) -> str:
    """The JSON document of a manifest.

    >>> file = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 42)
    >>> decode(encode(Manifest(file, "billing", "windows", "count(*)", ())), file).form
    'count(*)'
    """
    others = sorted(manifest.files - {manifest.file})
    index = {manifest.file: 0, **{file: i for i, file in enumerate(others, 1)}}
    clusters = {state.identity.cluster_id for state in manifest.states}
    if len(clusters) > 1:
        raise ValueError("the states of one file belong to one cluster")
    return json.dumps(
        {
            "version": VERSION,
            "operator": manifest.operator,
            "form": manifest.form,
            "group": manifest.group_id,
            "cluster": next(iter(clusters), None),
            "files": [str(file) for file in others],
            "states": [_encoded(state, index) for state in manifest.states],
        },
        separators=(",", ":"),
    )


def _encoded(state: PartitionState, index: Mapping[StateFileName, int]) -> dict[str, Any]:
    return {
        "topic": state.topic_partition.topic,
        "id": state.identity.topic_id,
        "partition": state.topic_partition.partition,
        "from": state.range.next_offset,
        "to": state.range.end_offset,
        "began": state.began_offset,
        "values": dict(state.values),
        "due_ms": state.due_ms,
        "time": None if state.time is None else _encoded_time(state.time),
        "after": None if state.after is None else str(state.after),
        "parts": {
            part: [[index[s.file], s.number, s.rows, s.row_bytes] for s in segments]
            for part, segments in state.parts.items()
        },
    }


def _encoded_time(time: StateTime) -> list[Any]:
    group = None if time.group is None else [time.group.watermark_ms, time.group.next_end_ms]
    return [time.watermark_ms, time.event_time_ms, time.is_idle, group]


def decode(text: str, file: StateFileName) -> Manifest:
    """Parses a manifest.

    Args:
        text: the JSON document.
        file: the name of the file that contains it.

    Raises:
        ValueError: if it is damaged, or has another version.
    """
    document = read_json(text)
    fields = dict(items(document))
    if fields.get("version") != VERSION:
        raise ValueError(
            f"it has format version {str(fields.get('version'))[:20]}, and the supported version is {VERSION}"
        )
    try:
        files = (file, *(StateFileName.parse(string(name)) for name in elements(fields["files"])))
        cluster_id = string_or_none(fields["cluster"])
        states = tuple(_decoded(state, files, cluster_id) for state in elements(fields["states"]))
        return Manifest(
            file, string(fields["group"]), string(fields["operator"]), string(fields["form"], most=1_000_000), states
        )
    except (KeyError, IndexError, TypeError, InvalidOption) as e:
        raise ValueError(f"its manifest is damaged ({type(e).__name__}: {e})") from e


def _decoded(document: Any, files: tuple[StateFileName, ...], cluster_id: str | None) -> PartitionState:
    fields = dict(items(document))
    tp = TopicPartition(string(fields["topic"]), whole(fields["partition"]))
    return PartitionState(
        range=OffsetRange(tp, whole(fields["from"]), whole(fields["to"])),
        began_offset=whole(fields["began"]),
        identity=TopicIdentity(cluster_id, string_or_none(fields["id"])),
        parts={part: tuple(_segments(listed, files)) for part, listed in items(fields["parts"])},
        values={name: _value(value) for name, value in items(fields["values"])},
        due_ms=time_ms_or_none(fields["due_ms"]),
        time=_time(fields["time"]),
        after=None if fields.get("after") is None else StateFileName.parse(string(fields["after"])),
    )


def _segments(listed: Any, files: tuple[StateFileName, ...]) -> Iterable[Segment]:
    for file, number, rows, row_bytes in elements(listed):
        yield Segment(files[whole(file)], whole(number), whole(rows), whole(row_bytes))


def _time(value: Any) -> StateTime | None:
    if value is None:
        return None
    watermark_ms, event_time_ms, is_idle, group = elements(value)
    return StateTime(_event_time_ms(watermark_ms), _event_time_ms(event_time_ms), flag(is_idle), _group(group))


def _group(value: Any) -> GroupWindows | None:
    if value is None:
        return None
    watermark_ms, next_end_ms = elements(value)
    return GroupWindows(_event_time_ms(watermark_ms), _event_time_ms(next_end_ms))


def _event_time_ms(value: Any) -> int | None:
    return whole_or_none(value, least=-(2**63))


def _value(value: Any) -> int | str | None:
    if isinstance(value, str):
        return string(value)
    return None if value is None else whole(value, least=-(2**63))
