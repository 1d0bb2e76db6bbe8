"""Shared fixtures of component tests: a PostgreSQL server. The tests need neither Spark nor a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from component_tests.postgres_process import execute, token
from streamgroups_testkit.pytest_plugin import postgres, postgres_server

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
