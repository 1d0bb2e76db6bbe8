"""Times that a record can have, and that Python's ``datetime`` cannot: one generator for the tests of all steps and sinks.

A producer chooses the timestamp of a record and the times in its value. Source: Kafka's int64 of milliseconds; Spark's
``TimestampType``, int64 of microseconds; Python's ``datetime``, the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamgroups.event_time.watermark import MAX_EVENT_TIME_MS
from streamgroups.json_values import MAX_TIME_MS

_DAY_US = 86_400_000_000
#: Microseconds since the epoch, by what they are.
EXTREME_TIMES_US: dict[str, int | None] = {
    "-2^63": -(2**63),
    "before -2^63 ms": -(2**63) // 1_000 * 1_000 + 1_000,
    "the year -1": -62_198_755_200_000_000,
    "the year 0": -62_167_219_200_000_000,
    "the year 1": -62_135_596_800_000_000,
    "-1": -1,
    "0": 0,
    "the year 9999": 253_402_300_799_999_999,
    "the year 10,000": 253_402_300_800_000_000,
    "the year 32,767": 971_890_963_199_999_999,
    "the year 32,768": 971_890_963_200_000_000,
    "microseconds as milliseconds": 1_795_651_200_000_000_000,
    "the year 294,000": 9_215_556_019_200_000_000,
    "2^63-1": 2**63 - 1,
    "null": None,
}
#: The same as milliseconds, which a record of Kafka has.
EXTREME_TIMES_MS: dict[str, int | None] = {
    name: None if us is None else us // 1_000 for name, us in EXTREME_TIMES_US.items()
}
#: Milliseconds around the limits of event times, and of all times that a state or an entry can contain.
LIMITS_MS: dict[str, int] = {
    f"{name}{sign:+}": sign * time_ms
    for sign in (-1, 1)
    for name, time_ms in (
        ("limit", MAX_EVENT_TIME_MS),
        ("after the limit", MAX_EVENT_TIME_MS + 1),
        ("2^62", MAX_TIME_MS),
        ("after 2^62", MAX_TIME_MS + 1),
    )
}
LIMITS_US = {name: 1_000 * time_ms for name, time_ms in LIMITS_MS.items()}


def extreme_timestamps(zone: str | None = "UTC") -> pa.Array:
    """All extreme times as timestamps in microseconds.

    >>> extreme_timestamps().null_count
    1
    """
    return pa.array(EXTREME_TIMES_US.values(), pa.int64()).cast(pa.timestamp("us", zone))


def extreme_columns() -> dict[str, pa.Array]:
    """Columns of each type of time that Spark has, also nested, with an extreme time in each row."""
    return dict(_columns())


def _columns() -> Iterator[tuple[str, pa.Array]]:
    times, naive = extreme_timestamps(), extreme_timestamps(None)
    numbers = pa.array(EXTREME_TIMES_US.values(), pa.int64())
    days = [None if us is None else us // _DAY_US for us in EXTREME_TIMES_US.values()]
    # Spark's dates have more years than its timestamps.
    days[0], days[-2] = -(2**31), 2**31 - 1
    yield "timestamp", times
    yield "timestamp of New York", extreme_timestamps("America/New_York")
    yield "timestamp_ntz", naive
    yield "date", pa.array(days, pa.int32()).cast(pa.date32())
    yield "interval", numbers.cast(pa.duration("us"))
    yield "time", pa.array([0, 1_000, 86_399_999_999_000, *[None] * (len(times) - 3)], pa.int64()).cast(pa.time64("ns"))
    yield "struct", pa.StructArray.from_arrays([times, naive], names=["at", "local"])
    ends = pa.array(range(len(times) + 1), pa.int32())
    yield "list", pa.ListArray.from_arrays(ends, times)
    keys = pa.array([str(it) for it in range(len(times))])
    yield "map", pa.MapArray.from_arrays(ends, keys, times)
