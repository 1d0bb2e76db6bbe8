"""W7: the column ``watermark`` has the same value in all rows of a batch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streamgroups.errors import InvalidOption
from streamgroups_kafka.read.columns import COLUMNS
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.source.watermark_column import read_schema, with_watermark

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "airline", "subscribe": "flights"}


@pytest.mark.parametrize("watermark_ms", [None, 0, -1_500, 1_357_016_400_001])
@pytest.mark.parametrize("others", [["offset"], ["value", "offset"], []])
def test_it_is_added_to_the_columns_that_are_read(watermark_ms: int | None, others: list[str]) -> None:
    types = {"offset": pa.int64(), "value": pa.binary(), "watermark": COLUMNS["timestamp"]}
    schema = pa.schema([(name, types[name]) for name in ("watermark", *others)])
    read = read_schema(schema)
    rows = [pa.array([None] * count, field.type) for field in read for count in [3]]
    (batch,) = with_watermark(iter([pa.record_batch(rows, schema=read)]), schema, watermark_ms)
    assert batch.schema == schema
    expected_us = None if watermark_ms is None else watermark_ms * 1_000
    assert batch.column("watermark").cast(pa.int64()).to_pylist() == [expected_us] * 3


def test_an_option_adds_it() -> None:
    def columns(**options: str) -> str:
        return StreamGroupsDataSource({**OPTIONS, **options}).schema()

    assert "watermark" not in columns()
    assert columns(includeWatermark="TRUE") == f"{columns()}, watermark timestamp"
    with pytest.raises(InvalidOption, match="'includeWatermark' is 'yes'"):
        columns(includeWatermark="yes")
