"""The event time in a header of one record.

``streamgroups_cli.groups.event_time_cuts`` calls this module for records that it scans. Tasks read the same times in
whole columns (``streamgroups_spark.source.header_column``). Source: SEMANTICS W11; Kafka's ``Headers.lastHeader``: of
several headers with one name the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Decimal milliseconds in the range of Spark's timestamps.
MILLISECONDS = "-?[0-9]{1,15}"
_MILLISECONDS = re.compile(MILLISECONDS.encode())


def header_time_ms(headers: Iterable[tuple[str, bytes | None]], name: str) -> int | None:
    """Returns the event time of a record, in milliseconds since the epoch.

    ``None`` if the header is missing or has another format.

    Args:
        headers: the names and values of the headers of the record, in order.
        name: the name of the header.

    >>> header_time_ms([("ts", b"1000"), ("ts", b"2000")], "ts"), header_time_ms([("ts", b"soon")], "ts")
    (2000, None)
    """
    values = [value for key, value in headers if key == name]
    if not values or values[-1] is None or _MILLISECONDS.fullmatch(values[-1]) is None:
        return None
    return int(values[-1])
