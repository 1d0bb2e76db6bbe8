"""P4, X2: columns of the type VARIANT in Spark. The tests need no broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import streamgroups as sg
from streamgroups.errors import InvalidOption, SinkRejected
from streamgroups_sinks.delta.schema_conversion import as_delta
from streamgroups_sinks.postgres.column_types import record_columns
from streamgroups_spark.frames.binary_forms import check_no_binary_form
from streamgroups_spark.internals.spark_api import to_arrow_schema

TEXTS = ['{"delay":5}', "[1,2]", '"late"']


@pytest.fixture
def payloads(local_spark: SparkSession) -> DataFrame:
    values = [(f'{{"n": {n}, "payload": {text}}}',) for n, text in enumerate(TEXTS)]
    df = local_spark.createDataFrame(values, "value string")
    return sg.decode(df, sg.schemas.Json("n int, payload variant")).select("record.n", "record.payload")


def texts(df: DataFrame) -> list[str]:
    return [row[0] for row in df.orderBy("n").select(F.to_json("payload")).collect()]


def test_X2_a_decoded_variant_is_in_spark_s_binary_form(payloads: DataFrame) -> None:
    columns = to_arrow_schema(payloads.schema, timezone="UTC")
    for check in (record_columns, as_delta):
        with pytest.raises(SinkRejected, match="Column 'payload' of the records contains the type variant"):
            check(columns)
    with pytest.raises(InvalidOption, match=r"'payload' contains the type variant.*the sink DeltaSink has only"):
        check_no_binary_form(payloads.schema, "the sink DeltaSink")
    as_text = payloads.select("n", F.to_json("payload").alias("payload"))
    assert record_columns(to_arrow_schema(as_text.schema, timezone="UTC"))[1].type == "text"
    assert [row.payload for row in as_text.orderBy("n").collect()] == TEXTS


@pytest.mark.parametrize("takes", ["pandas", "record"])
def test_P4_a_function_passes_a_variant_that_it_does_not_receive(payloads: DataFrame, takes: str) -> None:
    def doubled(given: Any) -> Any:
        return {"m": 2 * given["n"]} if takes == "record" else given.assign(m=2 * given["n"])

    found = sg.safely(payloads, doubled, output="m int", takes=takes, columns=["n"])
    assert texts(found) == TEXTS
    assert [row.m for row in found.orderBy("n").collect()] == [0, 2, 4]
    with pytest.raises(InvalidOption, match=r"'payload' contains the type variant.*'doubled' has only"):
        sg.safely(payloads, doubled, output="m int", takes=takes)
    with pytest.raises(InvalidOption, match=r"'m' contains the type variant.*Return a string or bytes"):
        sg.safely(payloads, doubled, output="m variant", takes=takes, columns=["n"])


def test_P4_an_arrow_function_receives_and_returns_the_binary_form(payloads: DataFrame) -> None:
    def copied(given: pa.Table) -> pa.Table:
        assert given["payload"].type.field("metadata").metadata[b"variant"] == b"true"
        return given.append_column("copy", given["payload"])

    found = sg.safely(payloads, copied, output="copy variant", takes="arrow")
    rows = found.orderBy("n").select(F.to_json("copy"), "dead_letter").collect()
    assert [tuple(row) for row in rows] == [(text, None) for text in TEXTS]
