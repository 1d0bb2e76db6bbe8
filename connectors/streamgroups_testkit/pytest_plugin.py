"""Fixtures of pytest: a broker, topics, groups, a Spark session and a PostgreSQL database.

A project loads them in its top ``conftest.py``: ``pytest_plugins = ["streamgroups_testkit.pytest_plugin"]``. A fixture
starts with the first test that uses it. A project with other settings overrides it. Source: pytest's
"Requiring/Loading plugins in a test module or conftest file".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from streamgroups_testkit.topics import create_topic

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from pyspark.sql import SparkSession

    from streamgroups_testkit.broker import Broker
    from streamgroups_testkit.postgres import PostgresServer


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """The broker of the whole run. Tests share it, so each test uses its own topics and groups."""
    from streamgroups_broker import EmbeddedKafka
    from streamgroups_testkit.broker import BROKER_PROPERTIES

    with EmbeddedKafka(properties=BROKER_PROPERTIES) as embedded:
        yield embedded


@pytest.fixture(scope="session")
def bootstrap(kafka: Broker) -> str:
    """The bootstrap servers."""
    return kafka.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    """An admin client."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def new_topic(admin: AdminClient) -> Callable[..., str]:
    """Creates a topic with a unique name: ``new_topic(8, retention_ms="1000")``."""

    def create(partitions: int = 4, *, name: str | None = None, **config: str) -> str:
        topic = name or f"t-{uuid.uuid4().hex[:8]}"
        create_topic(admin, topic, partitions, {key.replace("_", "."): value for key, value in config.items()})
        return topic

    return create


@pytest.fixture
def group() -> str:
    """The name of a new group."""
    return f"g-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of the whole run, with the data source ``streamgroups``."""
    import streamgroups as sg
    from streamgroups_testkit.spark_sessions import session_builder

    session = session_builder("tests").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    sg.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL server of the whole run."""
    from streamgroups_testkit.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """The connection string of an empty database that no other test uses."""
    with postgres_server.database() as conninfo:
        yield conninfo
