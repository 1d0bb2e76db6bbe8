"""S13: the source that Spark registers by itself: what it rejects, and that it is cheap to import."""

from __future__ import annotations

import pickle
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamgroups import DefaultSource
from streamgroups.errors import InvalidOption
from streamgroups_spark import session
from streamgroups_spark.sinks.kafka import KafkaLettersDataSource, KafkaStreamWriter
from streamgroups_spark.sinks.kafka_batch import KafkaBatchWriter
from streamgroups_spark.sinks.ledger_writer import LedgerDataSource
from streamgroups_spark.source.readers import BatchReader, RejectedStream, StreamReader

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}
EXCLUSIVE = {**OPTIONS, "membership": "exclusive"}
SINK = {"kafka.bootstrap.servers": "broker:9092", "topic": "board"}
VALUE = StructType([StructField("value", BinaryType())])


class Classic:
    """A classic session of an application."""

    def __init__(self, application: str) -> None:
        self.sparkContext = SimpleNamespace(applicationId=application)
        settings: dict[str, str] = {}
        self.conf = SimpleNamespace(set=settings.__setitem__, get=settings.get, settings=settings)


def rejection(**more: str) -> str:
    reader = DefaultSource({**EXCLUSIVE, **more}).streamReader(VALUE)
    assert isinstance(reader, RejectedStream)
    with pytest.raises(InvalidOption) as rejected:
        reader.initialOffset()
    return str(rejected.value)


def test_it_has_the_name_and_the_columns_of_the_complete_source() -> None:
    source = pickle.loads(cloudpickle.dumps(DefaultSource(OPTIONS)))
    assert source.name() == "streamgroups"
    assert source.schema().names[:3] == ["key", "value", "topic"]
    assert isinstance(source.reader(VALUE), BatchReader)


def test_batches_are_written() -> None:
    source = DefaultSource(SINK)
    assert isinstance(source.writer(VALUE, False), KafkaBatchWriter)
    with pytest.raises(InvalidOption, match=r'Use mode\("append"\)'):
        source.writer(VALUE, True)


@pytest.mark.parametrize("options", [EXCLUSIVE, {**OPTIONS, "subscribe": "", "assign": '{"flights":[0]}'}])
def test_S13_streams_of_one_member_are_read(options: dict[str, str]) -> None:
    given = {name: value for name, value in options.items() if value}
    assert isinstance(DefaultSource(given).streamReader(VALUE), StreamReader)


def test_S13_a_sink_finds_its_source_by_the_key_of_the_application() -> None:
    program = (
        "import sys; from pyspark import cloudpickle; import pyspark_streamgroups as it;"
        "sys.stdout.buffer.write(cloudpickle.dumps(it.DefaultSource))"
    )
    looked_up = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    # Each process of Spark unpickles it, and has also imported a class of its own.
    sources = [pickle.loads(looked_up), pickle.loads(cloudpickle.dumps(pickle.loads(looked_up)))]
    reader = sources[0](EXCLUSIVE).streamReader(VALUE)
    writer = sources[1]({**SINK, "checkpointLocation": "/checkpoints/board"}).streamWriter(VALUE, False)
    assert isinstance(reader, StreamReader)
    assert isinstance(writer, KafkaStreamWriter)
    assert reader._session == writer._session == sources[0].session
    assert len({reader._session, DefaultSource.session}) == 2


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
        "before spark.readStream and df.writeStream. A declarative pipeline does not support it: use a program or a "
        "processor (docs/pipelines.rst)."
    )


def test_S13_a_shared_stream_is_rejected() -> None:
    assert "The stream of group 'board' is shared" in rejection(membership="shared")


def test_S13_the_sink_rejects_its_options() -> None:
    with pytest.raises(InvalidOption, match="Did you mean 'topic'"):
        DefaultSource({**SINK, "tpic": "board"}).streamWriter(VALUE, False)


@pytest.mark.parametrize("source", [DefaultSource, LedgerDataSource, KafkaLettersDataSource])
def test_X1_the_output_mode_complete_is_rejected(source: type[DataSource]) -> None:
    """Spark passes the whole result again in each batch."""
    with pytest.raises(InvalidOption, match="Output mode 'complete'"):
        source({**SINK, "checkpointLocation": "/checkpoints/board"}).streamWriter(VALUE, True)


def test_invalid_options_keep_their_own_error() -> None:
    assert "Did you mean 'startingOffsets'" in rejection(startingOffset="latest")


def test_S13_functions_of_the_api_need_a_registered_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_application", None)
    first: Any = Classic("local-1")
    second: Any = Classic("local-2")
    of_first: Any = SimpleNamespace(sparkSession=first)
    of_second: Any = SimpleNamespace(sparkSession=second)
    error = r"sg\.windows needs the registration of this library with the Spark session. Call sg\.register\(spark\)"
    with pytest.raises(InvalidOption, match=error):
        session.require_registered("sg.windows", of_first)
    session.set_registered(first, 2)
    session.require_registered("sg.windows", of_first)
    # After spark.stop() the process has another application, with the same session key.
    with pytest.raises(InvalidOption, match=error):
        session.require_registered("sg.windows", of_second)
    session.set_registered(second, 2)
    session.require_registered("sg.windows", of_second)


def test_S13_a_setting_of_an_ended_application_registers_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_application", None)
    first: Any = Classic("local-1")
    second: Any = Classic("local-2")
    session.set_registered(first, 2)
    assert session.is_registered(first)
    # A program can pass the settings of one session on to the next.
    second.conf.settings.update(first.conf.settings)
    assert not session.is_registered(second)


def test_its_import_loads_no_client_and_no_arrow() -> None:
    program = "import sys, pyspark_streamgroups; print([m for m in sys.modules if m.split('.')[0] in sys.argv])"
    command = [sys.executable, "-c", program, "confluent_kafka", "streamgroups_kafka", "streamgroups_spark"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"
