"""An embedded Apache Kafka (KRaft, no ZooKeeper, no Docker) started from Python, for demos and tests.

Used by the command ``streamgroups broker``, by the pytest plugin, and by users with
``from streamgroups_broker import EmbeddedKafka``. The Ivy in PySpark's wheel downloads Kafka's jars once. The broker
runs on the Java that PySpark also requires. Source: KIP-500, KIP-631 (KRaft).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamgroups._lazy import accessors, places

if TYPE_CHECKING:
    from streamgroups_broker._releases import DEFAULT_KAFKA_VERSION as DEFAULT_KAFKA_VERSION
    from streamgroups_broker.embedded import EmbeddedKafka as EmbeddedKafka

_PLACES = places(
    {"streamgroups_broker._releases": "DEFAULT_KAFKA_VERSION", "streamgroups_broker.embedded": "EmbeddedKafka"}
)
__all__ = sorted(_PLACES)
__getattr__, __dir__ = accessors(__name__, _PLACES)
