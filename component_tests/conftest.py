"""Shared fixtures of component tests: a PostgreSQL server, and a small Spark. The tests need no broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from component_tests.postgres_process import execute, token
from streamgroups_testkit.pytest_plugin import postgres, postgres_server
from streamgroups_testkit.spark_sessions import JVM, builder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["postgres", "postgres_server"]

_ROOT = Path(__file__).parent.parent

# The processes that tests start import the same packages as the tests, installed or not.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(_ROOT), str(_ROOT / "connectors"), *filter(None, [os.environ.get("PYTHONPATH")])]
)


@pytest.fixture
def role(postgres: str) -> Iterator[str]:
    """A user without permissions."""
    name = "u_" + token()[:8]
    execute(postgres, f"CREATE ROLE {name} LOGIN")
    yield name
    execute(postgres, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture(scope="session")
def local_spark() -> Iterator[SparkSession]:
    """A session for tests of Spark itself. Those have the group ``spark``, so that only one process starts it."""
    spark = builder("facts", JVM).getOrCreate()
    yield spark
    spark.stop()
