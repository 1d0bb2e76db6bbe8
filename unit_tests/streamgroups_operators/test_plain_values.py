"""P4: any value of a record becomes an object of Python: for dead letters, for errors, and for the display of a state."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamgroups_operators.plain_values import json_of, numbers_of, texts_of
from unit_tests.extreme_times import EXTREME_TIMES_US, extreme_columns, extreme_timestamps


@pytest.mark.parametrize("values", extreme_columns().values(), ids=extreme_columns())
def test_each_time_has_a_number_and_a_text(values: pa.Array) -> None:
    assert len(numbers_of(values)) == len(numbers_of(pa.chunked_array([values]))) == len(values)
    (*_, last) = json_of(pa.table({"it": values}), 1_000)
    assert "datetime" not in str(texts_of(pa.table({"it": values})))
    assert last.startswith('{"it": ')


def test_a_number_is_that_of_spark() -> None:
    for zone in ("UTC", "America/New_York", None):
        assert numbers_of(extreme_timestamps(zone)) == list(EXTREME_TIMES_US.values())


def test_the_text_of_a_time_does_not_wrap() -> None:
    for zone in ("UTC", "America/New_York"):
        texts = [row["at"] for row in texts_of(pa.table({"at": extreme_timestamps(zone)}))]
        found = dict(zip(EXTREME_TIMES_US, texts, strict=True))
        assert found["the year 10,000"] == "10000-01-01 00:00:00.000000"
        assert found["microseconds as milliseconds"] == "<value out of range: 1795651200000000000>"
        assert found["the year -1"] == "-0001-01-01 00:00:00.000000"
        assert found["null"] is None


TEXT = pa.array([b"\xff\xed\xa0\x80", b"ok", None], pa.binary()).view(pa.string())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (TEXT, "\\xff\\xed\\xa0\\x80"),
        (pa.StructArray.from_arrays([TEXT], names=["a"]), {"a": "\\xff\\xed\\xa0\\x80"}),
        (pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), TEXT), ["\\xff\\xed\\xa0\\x80"]),
        (
            pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), TEXT[:2], TEXT[:2]),
            [("\\xff\\xed\\xa0\\x80", "\\xff\\xed\\xa0\\x80")],
        ),
    ],
    ids=["string", "struct", "list", "map"],
)
def test_a_string_that_is_not_utf8_has_escapes(values: pa.Array, expected: object) -> None:
    assert numbers_of(values)[0] == texts_of(pa.table({"a": values}))[0]["a"] == expected


def test_a_dead_letter_has_strict_json() -> None:
    rows = pa.table({"total": [float("nan"), float("inf"), 1.5]})
    assert json_of(rows, 100) == ['{"total": "NaN"}', '{"total": "Infinity"}', '{"total": 1.5}']
