"""Shared fixtures of integration tests: a broker, topics, a PostgreSQL server, and a Spark session.

``pytest --broker=container`` runs the same suite against a container instead of the embedded broker.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import streamgroups as sg
from integration_tests import token_providers
from integration_tests.cursors import SETTINGS
from integration_tests.secured_brokers import Listeners, secured_broker
from integration_tests.spark_kafka import spark_kafka_jars
from streamgroups.fakes import FakeClock
from streamgroups_broker import EmbeddedKafka
from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION
from streamgroups_testkit.apicurio import ApicurioRegistry
from streamgroups_testkit.broker import BROKER_PROPERTIES, Broker
from streamgroups_testkit.pytest_plugin import admin, bootstrap, new_topic, postgres, postgres_server
from streamgroups_testkit.spark_sessions import ROCKSDB, STATE_STORE, session_builder, shared_spark_home

# ``token_providers`` sets an environment variable, which must precede the start of Spark.
__all__ = ["admin", "bootstrap", "new_topic", "postgres", "postgres_server", "token_providers"]

# A failed comparison in a helper of the tests shows both sides, as in a test.
pytest.register_assert_rewrite("integration_tests.collected_rows")

_ROOT = Path(__file__).parent.parent
#: The variable with the URL of a schema registry, as in ``http://localhost:8081``.
SCHEMA_REGISTRY = "STREAMGROUPS_SCHEMA_REGISTRY"
#: Groups of finished tests that the broker still has.
_old_groups: list[str] = []
_MAX_OLD_GROUPS = 15

# Spark's workers and the queries in other processes import the same packages as the tests, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(_ROOT), str(_ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_HOME", str(shared_spark_home()))

#: Tests that start several Spark processes, or use the schema registry. They run first, sequentially in one process.
HEAVY = frozenset(
    {
        "test_a_task_is_retried",
        "test_hostile_topic",
        "test_killed_in_the_middle_of_a_commit",
        "test_random_members",
        "test_savepoints_survive_kills",
        "test_schema_registries",
        "test_testkit",
        "test_the_demo",
        "test_workers_survive_faults",
    }
)
#: Files that share the broker with ACLs. Their tests run in one process.
SECURED = frozenset(
    {
        "test_an_instance_shows_no_secret",
        "test_connections",
        "test_doctor",
        "test_groups_cli_with_logins",
        "test_least_privilege",
        "test_transactions_need_permissions",
    }
)
#: Files that start a server of Spark Connect, which has one port. Their tests run in one process.
CONNECT = frozenset({"test_pipelines", "test_spark_connect"})
#: Files with a fixture that starts or fills a broker. All tests of such a file run in one process.
TOGETHER = frozenset(
    {
        "test_containers",
        "test_embedded_broker",
        "test_errors_of_single_topics",
        "test_groups_cli_is_quick",
        "test_parity_with_spark_kafka",
        "test_tls_stores",
        "test_tokens",
    }
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=["embedded", "container"], default="embedded", help="which Kafka to test on")
    parser.addoption("--kafka-version", default=DEFAULT_KAFKA_VERSION, help="the release of the embedded broker")


def unit_of_work(nodeid: str) -> str:
    """Tests of the same unit run in one process, one after the other.

    >>> unit_of_work("integration_tests/test_the_demo.py::test_the_demo")
    'heavy'
    >>> unit_of_work("integration_tests/test_doctor.py::test_a_broker")
    'secured'
    >>> unit_of_work("integration_tests/test_tokens.py::test_a_command")
    'test_tokens'
    >>> unit_of_work("integration_tests/test_restarting.py::test_a_restart")
    'integration_tests/test_restarting.py::test_a_restart'
    """
    file = Path(nodeid.split("::")[0]).stem
    if file in HEAVY:
        return "heavy"
    if file in SECURED:
        return "secured"
    if file in CONNECT:
        return "connect"
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
    """The heavy tests come first, then those that must run in one process: at the end, other processes would be idle."""
    items.sort(key=lambda item: (item.path.stem not in HEAVY, item.path.stem not in TOGETHER | SECURED))


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """The broker of the whole run."""
    if request.config.getoption("--broker") == "container":
        from streamgroups_testkit.containers import ContainerKafka

        with ContainerKafka(properties=BROKER_PROPERTIES) as container:
            yield container
        return
    with EmbeddedKafka(version=request.config.getoption("--kafka-version"), properties=BROKER_PROPERTIES) as embedded:
        yield embedded


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    """A broker with logins, TLS and ACLs. Each file uses topics and groups of its own."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as listeners:
        yield listeners


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[str]:
    """The URL of a real schema registry: of Apicurio, or of the one that an environment variable names."""
    if SCHEMA_REGISTRY in os.environ:
        yield os.environ[SCHEMA_REGISTRY]
        return
    with ApicurioRegistry() as server:
        yield server.url


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new group. Groups of earlier tests are deleted: the start of a new group reads the offsets of all
    groups, as soon as these are as many as the limit of groups for a topic.
    """
    name = f"g-{uuid.uuid4().hex[:8]}"
    client = request.getfixturevalue("admin") if "bootstrap" in request.fixturenames else None
    yield name
    if client is None:
        return
    _old_groups.append(name)
    if len(_old_groups) >= _MAX_OLD_GROUPS:
        _delete_groups(client, tuple(_old_groups))
        _old_groups.clear()


def _delete_groups(client: AdminClient, names: tuple[str, ...]) -> None:
    listed = client.list_consumer_groups(states={ConsumerGroupState.EMPTY}).result().valid
    if unused := [it.group_id for it in listed if it.group_id.startswith(names)]:
        for deleted in client.delete_consumer_groups(unused).values():
            with suppress(KafkaException):
                deleted.result()


@pytest.fixture
def clock() -> FakeClock:
    """A clock that a test advances."""
    return FakeClock(time.time_ns() // 1_000_000)


@pytest.fixture
def open_cursors(bootstrap: str) -> Iterator[Callable[..., sg.cursors.GroupCursors]]:
    """Creates instances of GroupCursors, each as if in a separate process, and closes them after the test.

    ``open_cursors("consumer", signing_key=..., **{"fetch.max.bytes": "2000"})``: a name with a dot is a Kafka setting.
    """
    opened: list[sg.cursors.GroupCursors] = []

    def make(protocol: str = "classic", **more: Any) -> sg.cursors.GroupCursors:
        settings = SETTINGS[protocol] | {name: value for name, value in more.items() if "." in name}
        arguments = {name: value for name, value in more.items() if "." not in name}
        opened.append(sg.cursors.GroupCursors(bootstrap, settings, **arguments))
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
