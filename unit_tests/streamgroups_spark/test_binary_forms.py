"""X2, P4: columns for which a sink or a function would receive Spark's binary form are rejected before a row is written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, IntegerType, MapType, StringType, StructField, StructType

import streamgroups as sg
from streamgroups.errors import InvalidOption, SinkRejected
from streamgroups_sinks.delta.schema_conversion import as_delta
from streamgroups_sinks.postgres.column_types import record_columns
from streamgroups_spark.dlq import safely
from streamgroups_spark.frames.binary_forms import check_no_binary_form
from streamgroups_spark.internals.spark_api import BINARY_FORM_TYPES, to_arrow_schema
from streamgroups_spark.sinks.exactly_once import _to_ledger


def _forms() -> list[DataType]:
    # A spatial type has the id of its reference system.
    found = [it() if it.typeName() == "variant" else it(4326) for it in BINARY_FORM_TYPES]  # type: ignore[call-arg]
    inner = found[0]
    return [
        *found,
        ArrayType(inner),
        MapType(StringType(), inner),
        StructType([StructField("n", IntegerType()), StructField("v", ArrayType(inner))]),
    ]


def _schema(of: DataType) -> StructType:
    return StructType([StructField("key", StringType()), StructField("payload", of)])


@pytest.mark.parametrize("of", _forms(), ids=lambda it: it.simpleString())
def test_X2_both_sinks_reject_a_binary_form_of_spark(of: DataType) -> None:
    columns = to_arrow_schema(_schema(of), timezone="UTC")
    for check in (record_columns, as_delta):
        with pytest.raises(SinkRejected, match=r"Column 'payload' of the records contains the type .* (to_json|ST_As)"):
            check(columns)


@pytest.mark.parametrize("of", _forms(), ids=lambda it: it.simpleString())
def test_X2_a_query_with_a_binary_form_does_not_start(of: DataType) -> None:
    df: Any = SimpleNamespace(schema=_schema(of))
    with pytest.raises(InvalidOption, match=r"Column 'payload' contains the type .*the sink DeltaSink has only"):
        _to_ledger(df, [], sg.DeltaSink(uri="/data/flights"), "/checkpoints/flights", None)


@pytest.mark.parametrize("of", _forms(), ids=lambda it: it.simpleString())
@pytest.mark.parametrize("takes", ["pandas", "record"])
def test_P4_a_python_function_neither_receives_nor_returns_a_binary_form(
    of: DataType, takes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    df: Any = SimpleNamespace(schema=_schema(of), columns=["key", "payload"])
    monkeypatch.setattr(safely, "columns_of", lambda *_: StructType([StructField("size", IntegerType())]))
    with pytest.raises(InvalidOption, match=r"Column 'payload' contains the type .*the function 'len' has only"):
        sg.safely(df, len, output="size int", takes=takes)
    monkeypatch.setattr(safely, "columns_of", lambda *_: StructType([StructField("result", of)]))
    with pytest.raises(
        InvalidOption, match=r"Column 'result' contains the type .*'len' has only .*Return a string or bytes"
    ):
        sg.safely(df, len, output="result variant", takes=takes, columns=["key"])


def test_X2_a_struct_of_bytes_and_its_text_pass() -> None:
    plain = StructType(
        [StructField("value", StringType()), StructField("metadata", StringType(), metadata={"variant": "true"})]
    )
    check_no_binary_form(_schema(ArrayType(plain)), "the sink DeltaSink")
    columns = to_arrow_schema(_schema(ArrayType(plain)), timezone="UTC")
    assert record_columns(columns)[1].type == "jsonb"
    assert pa.types.is_list(as_delta(columns).field("payload").type)
