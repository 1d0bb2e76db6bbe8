"""S4, X1: the number of tasks of a query follows the executors until the query starts."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StructField, StructType

from streamgroups.errors import InvalidOption
from streamgroups_spark import register, session
from streamgroups_spark.bridge.rpc import USER, SessionServer
from streamgroups_spark.formats.data_source import StreamGroupsDataSource
from streamgroups_spark.source import cluster_clients, running_query
from unit_tests.no_home import remove_home

OPTIONS = {"kafka.bootstrap.servers": "broker:9092", "group.id": "board", "subscribe": "flights"}
OUTPUT = {"kafka.bootstrap.servers": "broker:9092", "topic": "board"}
VALUE = StructType([StructField("value", BinaryType())])


class Application:
    """A Spark application in a cluster. No executor has registered when its session is."""

    def __init__(self, **settings: str) -> None:
        self.applicationId, self.master, self.defaultParallelism = f"app-{id(self)}", "spark://host:7077", 2
        self.conf: dict[str, str] = {}
        self.settings = settings
        self.sources: dict[str, Any] = {}
        self.answers: dict[type, Callable[[Any], Any]] = {}

    def getConf(self) -> dict[str, str]:
        return self.settings

    @property
    def spark(self) -> Any:
        conf = SimpleNamespace(get=self.conf.get, set=self.conf.__setitem__)
        return SimpleNamespace(sparkContext=self, conf=conf)

    def answer(self, request: Any) -> Any:
        return self.answers[type(request)](request)


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    found = Application()
    monkeypatch.setattr(session, "_application", None)
    for name, function in {
        "show_last_lines": lambda: None,
        "warn_if_plain": lambda: None,
        "is_connect": lambda _: False,
        "channel_of": lambda *_: None,
        "session_active": lambda _: nullcontext(),
        "register_source": lambda _, source: found.sources.update({source.__name__: source}),
        "answer_sources": lambda _: None,
        "answer": found.answers.__setitem__,
    }.items():
        monkeypatch.setattr(register, name, function)
    with TemporaryDirectory() as directory:
        monkeypatch.setattr("tempfile.tempdir", directory)
        monkeypatch.setattr(register, "SESSION", session.session_of_process())
        yield found


def shipped(application: Application) -> type[StreamGroupsDataSource]:
    """The data source in a process of Spark."""
    source: type[StreamGroupsDataSource] = pickle.loads(
        cloudpickle.dumps(application.sources[StreamGroupsDataSource.__name__])
    )
    return source


def cores_of_stream(monkeypatch: pytest.MonkeyPatch, source: type[StreamGroupsDataSource]) -> int:
    """The number of tasks of a stream at its start."""
    started: list[int] = []

    def start(_options: Any, packing: Any, *_: Any) -> Any:
        started.append(packing.cores)
        return SimpleNamespace(micro_batches=SimpleNamespace(initial_offset=dict))

    monkeypatch.setattr(running_query, "RunningQuery", start)
    monkeypatch.setattr(cluster_clients, "cluster_of", lambda _: SimpleNamespace(connect=lambda _: None))
    source(OPTIONS).streamReader(VALUE).initialOffset()
    return started[0]


def cores_of_batch(source: type[StreamGroupsDataSource]) -> tuple[int, int]:
    """The numbers of tasks of a batch read and of a batch write."""
    writer: Any = source(OUTPUT).writer(VALUE, overwrite=False)
    return source(OPTIONS).reader(VALUE)._packing.cores, writer._settings.tasks


def test_S4_executors_that_register_after_the_session_count(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark Standalone does not wait for executors, and with dynamic allocation there is no executor before a task."""
    register.register(application.spark)
    application.defaultParallelism = 48
    source = shipped(application)
    with closing(SessionServer(source.session, USER, application.answer)):
        assert cores_of_stream(monkeypatch, source) == 48
        assert cores_of_batch(source) == (48, 48)
    assert session.parallelism_of(application.spark) == 48


def test_S4_a_number_of_the_user_stays(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    register.register(application.spark, parallelism=7)
    application.defaultParallelism = 48
    source = shipped(application)
    with closing(SessionServer(source.session, USER, application.answer)):
        assert cores_of_stream(monkeypatch, source) == 7
        assert cores_of_batch(source) == (7, 7)
    assert session.parallelism_of(application.spark) == 7


def test_S4_without_a_reply_the_number_is_that_of_the_registration(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application has ended meanwhile, or its process does not listen."""
    register.register(application.spark)
    source = shipped(application)
    assert cores_of_batch(source) == (2, 2)

    def fail(_: object) -> None:
        raise OSError("Answer from Java side is empty")

    with closing(SessionServer(source.session, USER, fail)):
        assert cores_of_stream(monkeypatch, source) == 2


@pytest.mark.parametrize(
    ("settings", "master", "tasks", "warning"),
    [
        ({}, "spark://host:7077", 2, "It is also Spark's number before an executor registers."),
        ({}, "spark://host:7077", 48, None),
        (
            {"spark.dynamicAllocation.enabled": "True"},
            "yarn",
            4,
            "With spark.dynamicAllocation.enabled, others can follow.",
        ),
        ({"spark.default.parallelism": "2"}, "yarn", 2, None),
        ({}, "local[2]", 2, None),
    ],
)
def test_S4_a_number_that_can_be_too_low_is_a_warning(
    caplog: pytest.LogCaptureFixture, settings: dict[str, str], master: str, tasks: int, warning: str | None
) -> None:
    context: Any = Application(**settings)
    context.master, context.defaultParallelism = master, tasks
    with caplog.at_level(logging.WARNING):
        assert [session.default_parallelism(context) for _ in range(2)] == [tasks, tasks]
    expected = [] if warning is None else [warning]
    assert len(caplog.messages) == len(expected), "once for a number"
    assert all(it in caplog.text and "sg.register(spark, parallelism=...)" in caplog.text for it in expected)


def test_a_parallelism_of_the_default_is_no_option() -> None:
    with pytest.raises(InvalidOption, match="Option 'parallelism' is 'default'"):
        register.register(Application().spark, parallelism="default")  # type: ignore[arg-type]


def test_a_user_without_a_home_directory_registers(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container can run with a user id that has no name. Only the use of a connection needs its file."""
    remove_home(monkeypatch)
    register.register(application.spark)
    source = shipped(application)
    assert source.connections_file is None
    assert source(OPTIONS).schema()
    with pytest.raises(InvalidOption, match=r"Connection 'prod' is unknown\..*Set STREAMGROUPS_CONFIG"):
        source({"connection": "prod", "group.id": "board", "subscribe": "flights"}).schema()
