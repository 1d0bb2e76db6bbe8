"""The Kafka releases that the embedded broker starts, and their differences.

Used by ``_cache``, ``_ivy``, ``_tools`` and ``embedded``. Pure functions. Source: Kafka 3 logs through log4j 1, and Kafka 4
through log4j 2 (KIP-653). The group protocol of KIP-848 is a preview in Kafka 3.7 to 3.9, and ready for use in Kafka 4.0.
"""

from __future__ import annotations

import re

from streamgroups.errors import InvalidOption

#: The default Kafka release.
DEFAULT_KAFKA_VERSION = "4.1.2"
#: The first release that is tested. Tools of earlier ones have other main classes.
MIN_KAFKA_VERSION = "3.7.0"
#: Main classes of tools that Kafka has moved in the meantime: the first release with the main class of today, and the
#: main class before.
_MOVED_TOOLS = {
    "org.apache.kafka.tools.consumer.ConsoleConsumer": ((3, 8), "kafka.tools.ConsoleConsumer"),
    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand": ((3, 8), "kafka.admin.ConsumerGroupCommand"),
    "org.apache.kafka.tools.ConsoleProducer": ((4, 0), "kafka.tools.ConsoleProducer"),
}


def check_version(version: str) -> str:
    """Accepts a Kafka release that the embedded broker supports.

    Raises:
        InvalidOption: if it is not a version, or is older than 3.7.0.

    >>> check_version("4.1.2")
    '4.1.2'
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or _release(version) < _release(MIN_KAFKA_VERSION):
        raise InvalidOption(
            f"Kafka version {version!r} cannot be embedded.",
            remedy=f"Use {MIN_KAFKA_VERSION} or newer, such as {DEFAULT_KAFKA_VERSION}.",
        )
    return version


def is_kafka_3(version: str) -> bool:
    """Returns whether a release logs through log4j 1, and has the protocol of KIP-848 only as a preview.

    >>> is_kafka_3("3.9.2"), is_kafka_3("4.0.0")
    (True, False)
    """
    return _release(version) < (4, 0)


def release_properties(version: str) -> dict[str, str]:
    """Returns the broker properties in which a release differs from the defaults of the embedded broker.

    >>> release_properties("3.9.2"), release_properties("4.1.2")
    ({'group.coordinator.rebalance.protocols': 'classic'}, {})
    """
    return {"group.coordinator.rebalance.protocols": "classic"} if is_kafka_3(version) else {}


def main_class(name: str, version: str) -> str:
    """Returns the main class of a tool in a release.

    Args:
        name: the main class in Kafka 4.1.
        version: the release.

    >>> main_class("org.apache.kafka.tools.ConsoleProducer", "3.9.2")
    'kafka.tools.ConsoleProducer'
    >>> main_class("org.apache.kafka.tools.ConsoleProducer", "4.1.2")
    'org.apache.kafka.tools.ConsoleProducer'
    """
    first, before = _MOVED_TOOLS.get(name, ((0, 0), name))
    return name if _release(version) >= first else before


def _release(version: str) -> tuple[int, int]:
    major, minor, _ = version.split(".")
    return int(major), int(minor)
