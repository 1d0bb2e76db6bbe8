"""W11: the event time in a header: the last of its name, or none."""

from __future__ import annotations

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given

from streamgroups_kafka.read.columns import COLUMNS
from streamgroups_spark.source.header_column import header_times, read_schema, with_times

_VALUES = st.none() | st.binary(max_size=6) | st.integers(-(10**14), 10**14).map(lambda ms: str(ms).encode())
_HEADERS = st.none() | st.lists(st.tuples(st.sampled_from(["ts", "other", ""]), _VALUES), max_size=4)


def expected_us(headers: list[tuple[str, bytes | None]] | None) -> int | None:
    """One record at a time."""
    values = [value for name, value in headers or [] if name == "ts"]
    if not values or values[-1] is None:
        return None
    digits = values[-1].removeprefix(b"-")
    return int(values[-1]) * 1_000 if digits.isdigit() and len(digits) <= 15 else None


@given(records=st.lists(_HEADERS, max_size=20), first=st.integers(0, 5))
def test_each_record_has_that_of_its_last_header(
    records: list[list[tuple[str, bytes | None]] | None], first: int
) -> None:
    headers = pa.array(records, COLUMNS["headers"]).slice(first)
    times = header_times(headers, "ts")
    times.validate(full=True)
    assert times.type == COLUMNS["timestamp"]
    assert times.cast(pa.int64()).to_pylist() == [expected_us(it) for it in records[first:]]


def test_headers_are_read_for_it_and_returned_only_on_request() -> None:
    requested = pa.schema([("eventTime", COLUMNS["timestamp"]), ("offset", pa.int64())])
    both = pa.schema([*requested, ("headers", COLUMNS["headers"])])
    assert read_schema(requested).names == ["offset", "headers"]
    assert read_schema(both).names == ["offset", "headers"]
    read = pa.record_batch(
        [pa.array([7], pa.int64()), pa.array([[("ts", b"5")]], COLUMNS["headers"])], schema=read_schema(requested)
    )
    for schema in (requested, both):
        (batch,) = with_times(iter([read]), schema, "ts")
        assert batch.schema == schema
        assert batch.column("eventTime").cast(pa.int64()).to_pylist() == [5_000]
