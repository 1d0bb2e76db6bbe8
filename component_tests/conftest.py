"""Shared fixtures of component tests: a PostgreSQL server. The tests need neither Spark nor a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from component_tests.postgres import PostgresServer

_ROOT = Path(__file__).parent.parent

# The processes that tests start import the same packages as the tests, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(_ROOT), str(_ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL server of the whole run."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """The connection string of an empty database that no other test uses."""
    with postgres_server.database() as conninfo:
        yield conninfo
