"""The format of a pin file: the ranges of one batch, and the stored records of each.

Written and read by ``streamgroups_operators.pin_store``, as JSON. Source: SEMANTICS X7, S11. The format, version 1, with files
as indexes into ``files``::

    {"version": 1, "group": "billing", "name": "effect", "generation": 3, "columns": "struct<...>",
     "files": ["1732334879123-1f3a9c2b7d10-16-40.state"],
     "pins": [{"topic": "orders", "cluster": "MkU3...", "id": "59qr...", "partition": 3, "from": 10, "to": 25,
               "segments": [[0, 0, 12]]}]}
"""

from __future__ import annotations

import json
from typing import Any

from streamgroups.errors import InvalidOption
from streamgroups.identity import TopicIdentity
from streamgroups.json_values import elements, items, read_json, string, string_or_none, whole
from streamgroups.partitions import OffsetRange, TopicPartition
from streamgroups.stable_input.pins import Pin, PinFile, RecordSegment
from streamgroups.state.file_names import StateFileName

VERSION = 1
_MAX_COLUMNS = 1_000_000


def encode(file: PinFile) -> str:
    """The JSON document of a pin file.

    >>> name = StateFileName(1732334879123, "1f3a9c2b7d10", 17, 0)
    >>> file = PinFile(name, "billing", "effect", 3, "struct<value:binary>", ())
    >>> decode(encode(file), name) == file
    True
    """
    names = sorted(file.record_files)
    index = {name: i for i, name in enumerate(names)}
    return json.dumps(
        {
            "version": VERSION,
            "group": file.group_id,
            "name": file.name,
            "generation": file.generation,
            "columns": file.columns,
            "files": [str(name) for name in names],
            "pins": [
                {
                    "topic": pin.range.topic_partition.topic,
                    "cluster": pin.identity.cluster_id,
                    "id": pin.identity.topic_id,
                    "partition": pin.range.topic_partition.partition,
                    "from": pin.range.next_offset,
                    "to": pin.range.end_offset,
                    "segments": [[index[it.file], it.number, it.rows] for it in pin.segments],
                }
                for pin in file.pins
            ],
        },
        separators=(",", ":"),
    )


def decode(text: str, file: StateFileName) -> PinFile:
    """Parses a pin file.

    Args:
        text: the JSON document.
        file: the name of the file.

    Raises:
        ValueError: if it is damaged, or has another version.
    """
    fields = dict(items(read_json(text)))
    if fields.get("version") != VERSION:
        raise ValueError(
            f"it has format version {str(fields.get('version'))[:20]}, and the supported version is {VERSION}"
        )
    try:
        names = tuple(StateFileName.parse(string(name)) for name in elements(fields["files"]))
        return PinFile(
            file,
            string(fields["group"]),
            string(fields["name"]),
            whole(fields["generation"]),
            string(fields["columns"], most=_MAX_COLUMNS),
            tuple(_pin(pin, names) for pin in elements(fields["pins"])),
        )
    except (KeyError, IndexError, TypeError, InvalidOption) as e:
        raise ValueError(f"its pins are damaged ({type(e).__name__}: {e})") from e


def _pin(document: Any, names: tuple[StateFileName, ...]) -> Pin:
    fields = dict(items(document))
    tp = TopicPartition(string(fields["topic"]), whole(fields["partition"]))
    return Pin(
        OffsetRange(tp, whole(fields["from"]), whole(fields["to"])),
        TopicIdentity(string_or_none(fields["cluster"]), string_or_none(fields["id"])),
        tuple(_segment(it, names) for it in elements(fields["segments"])),
    )


def _segment(document: Any, names: tuple[StateFileName, ...]) -> RecordSegment:
    numbers = [whole(it) for it in elements(document)]
    return RecordSegment(names[numbers[0]], numbers[1], numbers[2])
