"""The pytest fixture ``embedded_kafka``: one broker for the whole session, started by the first test that asks for it.

A project loads it in its top ``conftest.py``: ``pytest_plugins = ["streamgroups_broker.pytest_plugin"]``. A project that wants other
settings overrides the fixture there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamgroups_broker.embedded import EmbeddedKafka


@pytest.fixture(scope="session")
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """A running one-node Kafka; ``embedded_kafka.bootstrap_servers`` is what clients connect to.

    Tests share it: let each use topics and groups of its own.
    """
    from streamgroups_broker import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        yield kafka
