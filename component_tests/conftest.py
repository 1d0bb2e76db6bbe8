"""What component tests share: a PostgreSQL server. They need neither Spark nor a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from component_tests.postgres import PostgresServer

_ROOT = Path(__file__).parent.parent

# The processes that tests start import what the tests import, installed or not.
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
    """How to connect to an empty database that nobody else uses, as libpq's connection string."""
    with postgres_server.database() as conninfo:
        yield conninfo
