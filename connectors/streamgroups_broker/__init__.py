"""An embedded Apache Kafka (KRaft, no ZooKeeper, no Docker) started from Python, for demos and tests.

Used by the command ``streamgroups broker``, by the pytest plugin, and by users with
``from streamgroups_broker import EmbeddedKafka``. The Ivy in PySpark's wheel downloads Kafka's jars once. The broker
runs on the Java that PySpark also requires. Source: KIP-500, KIP-631 (KRaft).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION
    from streamgroups_broker.embedded import EmbeddedKafka

__all__ = ["DEFAULT_KAFKA_VERSION", "EmbeddedKafka"]


def __getattr__(name: str) -> object:
    if name == "EmbeddedKafka":
        from streamgroups_broker.embedded import EmbeddedKafka

        return EmbeddedKafka
    if name == "DEFAULT_KAFKA_VERSION":
        from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION

        return DEFAULT_KAFKA_VERSION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
