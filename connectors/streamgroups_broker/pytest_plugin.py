"""The pytest fixture ``embedded_kafka``: one broker for the session, started by the first test that uses it.

A project loads it in its top ``conftest.py``: ``pytest_plugins = ["streamgroups_broker.pytest_plugin"]``. A project
with other settings overrides the fixture there. Source: pytest's "Requiring/Loading plugins in a test module or
conftest file".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from streamgroups_broker.embedded import EmbeddedKafka


@pytest.fixture(scope="session")
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """Returns a running one-node Kafka. ``embedded_kafka.bootstrap_servers`` is the address for clients.

    Tests share it, so each test uses its own topics and groups.
    """
    from streamgroups_broker import EmbeddedKafka

    with EmbeddedKafka() as kafka:
        yield kafka
