"""S13: the source that a session of Spark Connect registers, and the errors that name a classic session."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

import streamgroups as sg
from streamgroups.errors import InvalidOption
from streamgroups_spark import register, session
from streamgroups_spark.bridge.plan import analyzed
from streamgroups_spark.internals.connect import is_connect, is_in_flow
from streamgroups_spark.source.readers import RejectedStream, StreamReader

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}
EXCLUSIVE = {**OPTIONS, "membership": "exclusive"}
VALUE = StructType([StructField("value", BinaryType())])


class Remote:
    """A session or a DataFrame whose class is in Spark's package, and that has no JVM."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self) -> None:
        self.registered: list[Any] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)


def registered(**settings: Any) -> Any:
    """The source that a server of Spark Connect receives."""
    remote: Any = Remote()
    register.register(remote, **settings)
    (source,) = remote.registered
    return pickle.loads(cloudpickle.dumps(source))


def rejection(**more: str) -> str:
    reader = registered()({**EXCLUSIVE, **more}).streamReader(VALUE)
    assert isinstance(reader, RejectedStream)
    with pytest.raises(InvalidOption) as rejected:
        reader.initialOffset()
    return str(rejected.value)


def test_it_is_recognized_without_its_packages() -> None:
    assert is_connect(Remote())
    assert not is_connect(SimpleNamespace())


def test_S13_a_stream_of_one_member_and_its_sink_are_in_one_session() -> None:
    source = registered(parallelism=3)
    reader = source(EXCLUSIVE).streamReader(VALUE)
    assert isinstance(reader, StreamReader)
    assert reader._session == source.session != session.SESSION
    assert source.parallelism == 3
    assert registered().session != source.session


@pytest.mark.parametrize("parallelism", [0, -1, True, 2.0])
def test_a_parallelism_without_a_task_is_rejected(parallelism: Any) -> None:
    with pytest.raises(InvalidOption, match="Option 'parallelism' is"):
        registered(parallelism=parallelism)


@pytest.mark.parametrize("option", ["maxDrift", "targetBatchTime", "leaseTimeout"])
def test_S13_options_that_need_the_users_process_are_rejected(option: str) -> None:
    assert rejection(**{option: "1h"}).startswith(f"Option '{option}' needs a classic Spark session")


def test_S13_a_shared_stream_names_both_remedies() -> None:
    assert rejection(membership="shared") == (
        "The stream of group 'board' is shared, and a shared stream needs a classic Spark session; this one uses Spark "
        "Connect. Create the session on the driver, without SparkSession.builder.remote and without SPARK_REMOTE. A "
        "declarative pipeline always uses Spark Connect: use a program or a processor (docs/pipelines.rst). Or set "
        "membership=exclusive: one query then reads all partitions."
    )


def test_functions_of_the_api_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    remote: Any = Remote()
    monkeypatch.setattr(session, "_application", "app-1")
    with pytest.raises(InvalidOption, match=r"sg\.exactly_once needs a classic Spark session"):
        session.require_registered("sg.exactly_once", remote)
    with pytest.raises(InvalidOption, match="on the plan of a DataFrame needs a classic Spark session"):
        analyzed(remote)


#: Calls that need the columns of a DataFrame.
_CALLS: dict[str, Callable[[Any], Any]] = {
    "decode": lambda df: sg.decode(df, sg.schemas.Json("delay int")),
    "dedup": lambda df: sg.dedup(df, id="key", on="timestamp", horizon="1 hour"),
    "encode": lambda df: sg.encode(df, sg.schemas.Json()),
    "join": lambda df: sg.join(df, left="flights", right="prices", on="timestamp", by=["key"], within="1 hour"),
    "repartition": lambda df: sg.repartition(df, by=["key"], topic="by-key", checkpoint="/checkpoints/by-key"),
    "safely": lambda df: sg.safely(df, len, output="n long"),
    "stateful": lambda df: sg.stateful(df, by=["key"], function=print, output="n long", state="n long"),
    "windows": lambda df: sg.windows(
        df, on="timestamp", by=["key"], window=sg.shapes.tumbling("1 hour"), aggregate={"n": "count(*)"}
    ),
    "with_event_time": lambda df: sg.with_event_time(df, "timestamp"),
}


@pytest.mark.parametrize("function", _CALLS)
def test_functions_of_the_api_are_rejected_in_a_flow_before_a_request(function: str) -> None:
    pytest.importorskip("grpc", reason="pipelines need grpcio: pip install 'pyspark[pipelines]'")
    pipelines = pytest.importorskip("pyspark.pipelines.add_pipeline_analysis_context", reason="PySpark before 4.1")
    from pyspark.sql.connect.client import SparkConnectClient

    remote: Any = Remote()
    error = rf"sg\.{function} needs the columns .* a declarative pipeline"

    def in_context(flow: str | None) -> Any:
        return pipelines.add_pipeline_analysis_context(remote.sparkSession, "graph", flow)

    # It connects with its first request. Without a close, the exit of the interpreter sends one, for ten minutes.
    with closing(SparkConnectClient("sc://127.0.0.1:1")) as client:
        remote.sparkSession = SimpleNamespace(client=client)
        # The context of a file surrounds those of its flows.
        with in_context(None):
            assert not is_in_flow(remote)
            with in_context("board"), pytest.raises(InvalidOption, match=error):
                _CALLS[function](remote)
        assert not is_in_flow(remote)
