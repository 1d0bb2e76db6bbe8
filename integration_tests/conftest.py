"""Shared fixtures of integration tests: a broker, topics, a PostgreSQL server, and a Spark session.

``pytest --broker=container`` runs the same suite against a container instead of the embedded broker.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import streamgroups as sg
from component_tests.conftest import postgres, postgres_server
from integration_tests.cursors import SETTINGS
from integration_tests.harness import Broker
from integration_tests.spark_kafka import spark_kafka_jars
from integration_tests.spark_sessions import ROCKSDB, STATE_STORE, session_builder
from streamgroups.fakes import FakeClock
from streamgroups_broker import EmbeddedKafka

__all__ = ["postgres", "postgres_server"]

_ROOT = Path(__file__).parent.parent

# Spark's workers and the queries in other processes import the same packages as the tests, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(_ROOT), str(_ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ["PYSPARK_PYTHON"] = sys.executable

#: The broker detects failed members within seconds, with both group protocols.
BROKER_PROPERTIES = {
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    # Compaction and the abort of an expired transaction must occur within the timeouts of the tests.
    "log.cleaner.backoff.ms": 200,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


#: Tests that start several Spark processes. They run first, sequentially in one process.
HEAVY = frozenset(
    {"test_a_task_is_tried_again", "test_killed_in_the_middle_of_a_commit", "test_random_members", "test_the_demo"}
)
#: Files with a fixture that starts or fills a broker. All tests of such a file run in one process.
TOGETHER = frozenset(
    {
        "test_containers",
        "test_doctor",
        "test_embedded_broker",
        "test_groups_cli_is_quick",
        "test_groups_cli_with_logins",
        "test_parity_with_spark_kafka",
        "test_transactions_need_permissions",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=["embedded", "container"], default="embedded", help="which Kafka to test on")


def unit_of_work(nodeid: str) -> str:
    """Tests of the same unit run in one process, one after the other.

    >>> unit_of_work("integration_tests/test_the_demo.py::test_the_demo")
    'heavy'
    >>> unit_of_work("integration_tests/test_doctor.py::test_a_broker")
    'test_doctor'
    >>> unit_of_work("integration_tests/test_restarting.py::test_a_restart")
    'integration_tests/test_restarting.py::test_a_restart'
    """
    file = Path(nodeid.split("::")[0]).stem
    if file in HEAVY:
        return "heavy"
    return file if file in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distributes units of work. pytest-xdist 3.8 ignores its own mark ``xdist_group`` under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of_work(nodeid)

    return Units(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The heavy tests come first."""
    items.sort(key=lambda item: item.path.stem not in HEAVY)


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker of the whole run."""
    if request.config.getoption("--broker") == "container":
        from integration_tests.containers import ContainerKafka

        with ContainerKafka(properties=BROKER_PROPERTIES) as container:
            yield container
        return
    with EmbeddedKafka(properties=BROKER_PROPERTIES) as embedded:
        yield embedded


@pytest.fixture(scope="session")
def bootstrap(kafka: Broker) -> str:
    """The bootstrap servers."""
    return kafka.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """An admin client."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def new_topic(admin: AdminClient) -> Callable[..., str]:
    """Creates a topic with a unique name: ``new_topic(partitions=8)``."""

    def make(partitions: int = 4, *, name: str | None = None, **config: str) -> str:
        topic = name or f"t-{uuid.uuid4().hex[:8]}"
        options = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, config=options)])[topic].result(30)
        return topic

    return make


@pytest.fixture
def group() -> str:
    """The name of a new group."""
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def clock() -> FakeClock:
    """A clock that a test advances."""
    return FakeClock(time.time_ns() // 1_000_000)


@pytest.fixture
def open_cursors(bootstrap: str) -> Iterator[Callable[..., sg.GroupCursors]]:
    """Creates instances of GroupCursors, each as if in a separate process, and closes them after the test.

    ``open_cursors("consumer", signing_key=..., **{"fetch.max.bytes": "2000"})``: a name with a dot is a Kafka setting.
    """
    opened: list[sg.GroupCursors] = []

    def make(protocol: str = "classic", **more: Any) -> sg.GroupCursors:
        settings = SETTINGS[protocol] | {name: value for name, value in more.items() if "." in name}
        arguments = {name: value for name, value in more.items() if "." not in name}
        opened.append(sg.GroupCursors(bootstrap, settings, **arguments))
        return opened[-1]

    yield make
    for cursors in opened:
        cursors.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for the whole run, with this data source and, if it is available, Spark's own."""
    session = (
        session_builder("streamgroups-tests")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.jars", spark_kafka_jars().option)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    sg.register(session)
    yield session
    session.stop()


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[None]:
    """Queries of this test store their state in RocksDB."""
    before = spark.conf.get(STATE_STORE)
    spark.conf.set(STATE_STORE, ROCKSDB)
    yield
    spark.conf.set(STATE_STORE, str(before))
