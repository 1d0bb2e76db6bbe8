"""The pytest fixture ``embedded_kafka``: one broker for the whole session, started by the first test that asks for it.

Loaded by pytest through the entry point ``pytest11`` of this distribution; a session that does not use the fixture pays for
the import of this file only. A project that wants other settings overrides the fixture in its ``conftest.py``.
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
