"""Encodes and parses metadata entries: small JSON objects as the metadata of committed offsets. A broker limits them to
4,096 bytes.

Called by :mod:`streamgroups.coordination.reset_protocol`, :mod:`streamgroups.query.skipped_range_store` and
:mod:`streamgroups.event_time.time_entries`, which define their fields. Every principal with Read on the group can write
an entry. An unreadable entry is therefore ignored, with a warning, if its owner writes it again or the next value replaces it.
An entry that adds up earlier values is not overwritten then, and an entry that decides about output is an error (SEMANTICS
G17): :mod:`streamgroups.coordination.unreadable_entries` has the text. Source: Kafka's OffsetCommit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from streamgroups.json_values import read_json_prefix
from streamgroups.printable import listed

logger = logging.getLogger(__name__)

_VERSION = 1
#: How many partitions with unreadable entries are remembered, so that each is named once.
_MAX_NAMED = 10_000
_named: dict[tuple[str, object], None] = {}

_Place = TypeVar("_Place")
_Entry = TypeVar("_Entry")


def write_entry(fields: dict[str, object]) -> str:
    """The fields of an entry as metadata.

    >>> write_entry({"left": []})
    '{"v":1,"left":[]}'
    """
    return json.dumps({"v": _VERSION, **fields}, separators=(",", ":"))


def read_entry(metadata: str) -> dict[str, Any]:
    """The fields of an entry; empty if the metadata is not an entry, or has a newer version.

    >>> read_entry('{"v":1,"left":[]}')["left"], read_entry("by hand")
    ([], {})
    """
    try:
        # Bytes after the entry do not belong to it. confluent-kafka commits the NUL at the end of a C text, and reads
        # past the end of a text that was committed without it.
        raw = read_json_prefix(metadata)
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) and type(raw.get("v")) is int and raw["v"] == _VERSION else {}


def read_entries(
    group_id: str, metadata: Mapping[_Place, str], parse: Callable[[_Place, str], _Entry | None]
) -> dict[_Place, _Entry]:
    """The entries of a metadata group. One warning names all partitions whose entry is unreadable for the first time.

    Args:
        group_id: the metadata group.
        metadata: the text of each partition; an empty text is no entry.
        parse: parses the text of a partition; ``None`` if it is unreadable.

    >>> read_entries("billing.streamgroups", {"flights-0": "{}"}, lambda place, text: read_entry(text) or None)
    {}
    """
    parsed = ((place, parse(place, text)) for place, text in metadata.items() if text)
    found = {place: entry for place, entry in parsed if entry is not None}
    warn_of_unreadable(group_id, unreadable_in(metadata, found))
    return found


def unreadable_in(metadata: Mapping[_Place, str], found: Collection[_Place]) -> list[_Place]:
    """The partitions whose entry is unreadable.

    Args:
        metadata: the text of each partition; an empty text is no entry.
        found: the partitions with a readable entry.

    >>> unreadable_in({"flights-0": "by hand", "flights-1": "", "flights-2": "{}"}, ["flights-2"])
    ['flights-0']
    """
    return [place for place, text in metadata.items() if text and place not in found]


def warn_of_unreadable(group_id: str, places: list[_Place]) -> None:
    """Logs the partitions whose entries are unreadable: each once in the life of the process."""
    new = [place for place in places if (group_id, place) not in _named]
    if not new:
        return
    _named.update(dict.fromkeys((group_id, place) for place in new))
    for oldest in list(_named)[:-_MAX_NAMED]:
        _named.pop(oldest, None)
    logger.warning(
        "The metadata entries of group %r at %s cannot be read: they are damaged, have a newer version or come from another program. "
        "Every principal with Read on the group can write them.",
        group_id,
        listed(new),
    )
