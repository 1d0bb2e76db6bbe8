"""S13: the source that Spark registers by itself: what it rejects, and that it is cheap to import."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroups import DefaultSource
from streamgroups.errors import InvalidOption
from streamgroups_spark import session
from streamgroups_spark.sinks.kafka_batch import KafkaBatchWriter
from streamgroups_spark.source.readers import BatchReader, RejectedStream, StreamReader

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}
EXCLUSIVE = {**OPTIONS, "membership": "exclusive"}
#: Any DataFrame of a classic session.
DF: Any = object()
VALUE = StructType([StructField("value", BinaryType())])


def rejection(**more: str) -> str:
    reader = DefaultSource({**EXCLUSIVE, **more}).streamReader(VALUE)
    assert isinstance(reader, RejectedStream)
    with pytest.raises(InvalidOption) as rejected:
        reader.initialOffset()
    return str(rejected.value)


def test_it_has_the_name_and_the_columns_of_the_complete_source() -> None:
    source = pickle.loads(pickle.dumps(DefaultSource(OPTIONS)))
    assert source.name() == "streamgroups"
    assert source.schema().startswith("key binary, value binary, topic string")
    assert isinstance(source.reader(VALUE), BatchReader)


def test_batches_are_written() -> None:
    source = DefaultSource({"kafka.bootstrap.servers": "broker:9092", "topic": "board"})
    assert isinstance(source.writer(VALUE, False), KafkaBatchWriter)
    with pytest.raises(InvalidOption, match=r'Use mode\("append"\)'):
        source.writer(VALUE, True)


@pytest.mark.parametrize("options", [EXCLUSIVE, {**OPTIONS, "subscribe": "", "assign": '{"flights":[0]}'}])
def test_S13_streams_of_one_member_are_read(options: dict[str, str]) -> None:
    given = {name: value for name, value in options.items() if value}
    first, second = (DefaultSource(given).streamReader(VALUE) for _ in range(2))
    assert isinstance(first, StreamReader)
    assert isinstance(second, StreamReader)
    assert first._session != second._session


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxDrift", "1h"),
        ("targetBatchTime", "10s"),
        ("includeWatermark", "true"),
        ("importFrom", "prices"),
        ("leaseTimeout", "1h"),
    ],
)
def test_S13_options_that_need_the_users_process_are_rejected(option: str, value: str) -> None:
    assert rejection(**{option: value}) == (
        f"Option '{option}' needs the registration of this library with the Spark session. Call sg.register(spark) once, "
        "before spark.readStream and df.writeStream."
    )


def test_S13_a_shared_stream_and_the_sink_are_rejected() -> None:
    assert "The stream of group 'board' is shared" in rejection(membership="shared")
    with pytest.raises(InvalidOption, match=r"Call sg\.register"):
        DefaultSource(OPTIONS).streamWriter(VALUE, False)


def test_invalid_options_keep_their_own_error() -> None:
    assert "Did you mean 'startingOffsets'" in rejection(startingOffset="latest")


def test_S13_functions_of_the_api_need_a_registered_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_registered", False)
    with pytest.raises(InvalidOption, match=r"sg\.windows needs the registration of this library"):
        session.require_registered("sg.windows", DF)
    monkeypatch.setattr(session, "_registered", True)
    session.require_registered("sg.windows", DF)


def test_its_import_loads_no_client_and_no_arrow() -> None:
    program = "import sys, pyspark_streamgroups; print([m for m in sys.modules if m.split('.')[0] in sys.argv])"
    command = [sys.executable, "-c", program, "confluent_kafka", "streamgroups_kafka", "streamgroups_spark"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
