"""Reads and writes files of committed offsets.

Called by the command line: ``groups export`` writes them, ``import`` and ``undo`` read them, and every change
writes one as its undo file. The CSV format is that of ``kafka-consumer-groups.sh``: ``topic,partition,offset`` or
``group,topic,partition,offset``, without a header line. The JSON format also contains the metadata of each offset. It
represents a missing committed offset as ``null``, so that an undo restores that too. Source: KIP-122, KIP-379.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.json_values import read_json
from streamgroups.partitions import TopicPartition
from streamgroups.tables import csv_line

_VERSION = 1
_ENDS_LIKE_CSV = re.compile(r",\d+,\d+\s*$")
_KIND = "streamgroups-offsets"
_LARGEST_OFFSET = 2**63 - 1
_LARGEST_PARTITION = 2**31 - 1
_MAX_DIGITS = 19


@dataclass(frozen=True, slots=True)
class ChangedTo:
    """The offset to which a change sets a partition.

    Args:
        next_offset: the offset; ``None`` if the change deletes the committed offset.
    """

    next_offset: int | None


@dataclass(frozen=True, slots=True)
class FiledOffset:
    """A committed offset in a file.

    Args:
        next_offset: the offset; ``None`` without a committed offset.
        metadata: the metadata of the commit.
        identity: the topic of the offset. CSV contains no ids.
        changed_to: in an undo file, the offset after the change; ``None`` in other files.
    """

    next_offset: int | None
    metadata: str = ""
    identity: TopicIdentity = UNKNOWN
    changed_to: ChangedTo | None = None


#: The offsets of each group by partition.
FiledOffsets = Mapping[str, Mapping[TopicPartition, FiledOffset]]


@dataclass(frozen=True, slots=True)
class Links:
    """The undo files that an offsets file names.

    Args:
        reverts: in the undo file of an undo: the name of the undo file that the undo reverts.
        completes: in a file with the rest of a change: the path of the undo file of this change.
    """

    reverts: str | None = None
    completes: str | None = None


NO_LINKS = Links()


def to_json(
    offsets: FiledOffsets,
    identities: Mapping[str, TopicIdentity],
    *,
    made_at: str,
    why: str,
    links: Links = NO_LINKS,
) -> str:
    """A file in the JSON format.

    Args:
        offsets: the offsets to write.
        identities: the ids of the topics. They are written once for each topic.
        made_at: the time of creation, for operators.
        why: the purpose of the file, for operators.
        links: the undo files that it names.

    >>> filed = {"board": {TopicPartition("flights", 0): FiledOffset(7)}}
    >>> text = to_json(filed, {"flights": TopicIdentity("c1", "t1")}, made_at="2013-01-01T05:00:00Z", why="before a reset")
    >>> parse(text, source="f", group_id=None)["board"][TopicPartition("flights", 0)].identity
    TopicIdentity(cluster_id='c1', topic_id='t1')
    """
    groups = [
        {
            "group": group_id,
            "partitions": [
                {"topic": tp.topic, "partition": tp.partition, "offset": o.next_offset, "metadata": o.metadata}
                | ({} if o.changed_to is None else {"changed_to": o.changed_to.next_offset})
                for tp, o in sorted(partitions.items())
            ],
        }
        for group_id, partitions in sorted(offsets.items())
    ]
    whole = {
        "kind": _KIND,
        "schema_version": _VERSION,
        "made_at": made_at,
        "why": why,
        **{name: value for name, value in (("reverts", links.reverts), ("completes", links.completes)) if value},
        "cluster_id": next((it.cluster_id for it in identities.values()), None),
        "topic_ids": {topic: it.topic_id for topic, it in sorted(identities.items())},
        "groups": groups,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def to_csv(offsets: FiledOffsets) -> str:
    """A file for Kafka's tools. It names groups only if there are several, as those tools do.

    >>> to_csv({"board": {TopicPartition("flights", 0): FiledOffset(7, "left out")}})
    'flights,0,7\\n'
    """
    lines = []
    for group_id, partitions in sorted(offsets.items()):
        for tp, offset in sorted(partitions.items()):
            if offset.next_offset is not None:
                name = [group_id] if len(offsets) > 1 else []
                lines.append(csv_line([*name, tp.topic, str(tp.partition), str(offset.next_offset)]))
    return "".join(f"{line}\n" for line in lines)


def parse(text: str, *, source: str, group_id: str | None) -> FiledOffsets:
    """Parses a file of either format.

    Args:
        text: the content.
        source: its name, for errors.
        group_id: the group of a CSV file without group names; ``None`` if no group was specified.

    Raises:
        InvalidOption: if it has neither format, or lists a partition twice. The text names file and line.

    >>> parse("flights,0,7\\n", source="f.csv", group_id="board")["board"][TopicPartition("flights", 0)].next_offset
    7
    >>> parse("flights,0\\n", source="f.csv", group_id="board")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: f.csv, line 1: a line must be topic,partition,offset or group,topic,partition,offset. \
Create an offsets file with: streamgroups groups export.
    """
    # A group may be called "{".
    if text.lstrip().startswith("{") and not _ENDS_LIKE_CSV.search(text.lstrip().partition("\n")[0]):
        return _parse_json(text, source)
    return _parse_csv(text, source, group_id)


def parse_links(text: str) -> Links:
    """The undo files that an offsets file names. A file that is not in the JSON format names none.

    >>> parse_links(to_json({}, {}, made_at="", why="", links=Links(reverts="undo-board-1.json"))).reverts
    'undo-board-1.json'
    >>> parse_links("flights,0,7")
    Links(reverts=None, completes=None)
    """
    try:
        whole = read_json(text)
    except ValueError:
        return NO_LINKS
    if not isinstance(whole, dict):
        return NO_LINKS
    reverts, completes = (it if isinstance(it := whole.get(name), str) else None for name in ("reverts", "completes"))
    return Links(reverts, completes)


def _parse_csv(text: str, source: str, group_id: str | None) -> FiledOffsets:
    found: dict[str, dict[TopicPartition, FiledOffset]] = {}
    try:
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as e:
        raise _malformed(source, f"it is not CSV ({e})") from None
    for number, row in enumerate(rows, 1):
        if not row:
            continue
        where = f"{source}, line {number}"
        if len(row) not in (3, 4):
            raise _malformed(where, "a line must be topic,partition,offset or group,topic,partition,offset")
        group = row[0] if len(row) == 4 else group_id
        if group is None:
            raise InvalidOption(f"{where}: the group is missing.", remedy="Name the group with --group.")
        topic, partition, offset = row[-3], row[-2].strip(), row[-1].strip()
        for value in (partition, offset):
            if not (value.isascii() and value.isdigit()) or len(value) > _MAX_DIGITS:
                raise _malformed(where, f"'{value[:_MAX_DIGITS]}' is not a number of at most {_MAX_DIGITS} digits")
        _add(found, where, group, topic, int(partition), FiledOffset(int(offset)))
    return found


def _parse_json(text: str, source: str) -> FiledOffsets:
    try:
        whole = read_json(text)
    except ValueError as e:
        raise _malformed(source, f"it is not valid JSON ({e})") from None
    if not isinstance(whole, dict) or whole.get("kind") != _KIND or whole.get("schema_version") != _VERSION:
        raise _malformed(source, "it is not an offsets file, or it has a newer version")
    identities, other = _identities(whole, source)
    found: dict[str, dict[TopicPartition, FiledOffset]] = {}
    for group in _listed(whole, "groups", source):
        for p in _listed(group, "partitions", source):
            values: list[Any] = [group.get("group"), *map(p.get, ("topic", "partition", "offset", "changed_to"))]
            name, topic, partition, offset, after = values
            metadata = p.get("metadata", "")
            types = ((name, str), (topic, str), (partition, int), (offset, int | None), (after, int | None))
            if any(not isinstance(value, kind) or isinstance(value, bool) for value, kind in (*types, (metadata, str))):
                raise _malformed(source, f"{json.dumps(p)[:100]} is not the offset of a partition")
            changed_to = ChangedTo(after) if "changed_to" in p else None
            filed = FiledOffset(offset, metadata, identities.get(topic, other), changed_to)
            _add(found, source, name, topic, partition, filed)
    return found


def _identities(whole: dict[str, Any], source: str) -> tuple[dict[str, TopicIdentity], TopicIdentity]:
    """The ids of the topics that the file names, and those of any other topic."""
    cluster_id, topic_ids = whole.get("cluster_id"), whole.get("topic_ids", {})
    if not isinstance(topic_ids, dict) or any(not isinstance(i, str | None) for i in (cluster_id, *topic_ids.values())):
        raise _malformed(source, "'cluster_id' and 'topic_ids' are not ids")
    return {topic: TopicIdentity(cluster_id, id_) for topic, id_ in topic_ids.items()}, TopicIdentity(cluster_id)


def _listed(owner: dict[str, Any], name: str, source: str) -> list[dict[str, Any]]:
    listed = owner.get(name)
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise _malformed(source, f"'{name}' is not a list of objects")
    return listed


def _add(
    found: dict[str, dict[TopicPartition, FiledOffset]],
    where: str,
    group_id: str,
    topic: str,
    partition: int,
    offset: FiledOffset,
) -> None:
    tp = TopicPartition(topic, partition)
    if tp in found.setdefault(group_id, {}):
        raise _malformed(where, f"{tp} of group '{group_id}' is listed twice")
    if not group_id or not topic or not 0 <= partition <= _LARGEST_PARTITION:
        raise _malformed(where, f"'{group_id}', '{topic}', {partition} are not a group, a topic and a partition")
    if offset.next_offset is not None and not 0 <= offset.next_offset <= _LARGEST_OFFSET:
        raise _malformed(where, f"{offset.next_offset} is not an offset")
    found[group_id][tp] = offset


def _malformed(where: str, what: str) -> InvalidOption:
    return InvalidOption(f"{where}: {what}.", remedy="Create an offsets file with: streamgroups groups export.")
