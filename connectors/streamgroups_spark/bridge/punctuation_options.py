"""The options of the punctuation source, by which the plan of a query contains its event-time settings.

``event_time.with_event_time`` writes the options. ``bridge.active_queries`` reads them from the plan of the running query, and
``event_time.punctuation_source`` in the process of the punctuation source. Source: SEMANTICS W10.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from streamgroups.event_time.settings import TimeSettings, time_settings
from streamgroups_spark.messages.time import StreamTime

#: For Spark a record at the watermark is late, for this library it is not. Punctuations are earlier by this difference.
SPARK_LATE_MS = 1


def options_of(group_id: str, given: Mapping[str, str], *, reported_as: str, read_column: str | None) -> dict[str, str]:
    """Returns the options of the punctuation source.

    They are part of the query's plan, which therefore contains all settings.

    Args:
        group_id: the group whose watermark it emits.
        given: the options of event time.
        reported_as: see :class:`StreamTime`.
        read_column: see :class:`StreamTime`.

    >>> options_of("trades", {"watermarkDelay": "5s"}, reported_as="5f2c", read_column="timestamp")
    {'group': 'trades', 'time': '{"watermarkDelay": "5s"}', 'reported_as': '5f2c', 'read_column': 'timestamp'}
    """
    options = {"group": group_id, "time": json.dumps(dict(given)), "reported_as": reported_as}
    return options if read_column is None else {**options, "read_column": read_column}


def stream_time(options: Mapping[str, str]) -> StreamTime:
    """Parses the event-time settings of a stream from the options of its punctuation source.

    >>> stream_time(options_of("trades", {"watermarkDelay": "5s"}, reported_as="5f2c", read_column=None)).settings.generation.delay_ms
    5000
    """
    settings = time_settings({}, json.loads(options["time"]))
    return StreamTime(options["group"], settings, options["reported_as"], options.get("read_column"))


def delay_in_spark_ms(settings: TimeSettings) -> int:
    """Returns the delay of Spark's watermark. dropDuplicatesWithinWatermark stores a record for this time.

    Spark subtracts the delay from the latest time, and this library has already subtracted it. Punctuations are
    therefore ahead of its watermark by the delay.

    >>> from streamgroups.event_time.strategy import Generation
    >>> delay_in_spark_ms(TimeSettings(Generation(delay_ms=5_000))), delay_in_spark_ms(TimeSettings(Generation(delay_ms=-1)))
    (5000, 0)
    """
    return max(0, settings.generation.delay_ms) if settings.generation is not None else 0
