"""Notes: small JSON objects as the metadata of committed offsets, which a broker limits to 4,096 bytes.

Called by :mod:`streamgroups.groups.board`, :mod:`streamgroups.batches.left` and :mod:`streamgroups.event_time.seen`, which say what is in them. Source:
Kafka's OffsetCommit.
"""

from __future__ import annotations

import json
from typing import Any

_VERSION = 1


def write_note(fields: dict[str, object]) -> str:
    """A note as metadata.

    >>> write_note({"left": []})
    '{"v":1,"left":[]}'
    """
    return json.dumps({"v": _VERSION, **fields}, separators=(",", ":"))


def read_note(metadata: str) -> dict[str, Any]:
    """The fields of a note; none if it is no note, or one of a newer version.

    >>> read_note('{"v":1,"left":[]}')["left"], read_note("by hand")
    ([], {})
    """
    try:
        # What lies behind the note is none of it: confluent-kafka commits the NUL that ends a text in C along with it, and reads
        # on behind the text of one that was committed without.
        raw, _ = json.JSONDecoder().raw_decode(metadata)
    except ValueError:
        return {}
    return raw if isinstance(raw, dict) and raw.get("v") == _VERSION else {}
