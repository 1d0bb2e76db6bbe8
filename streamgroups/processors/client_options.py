"""The options of Kafka clients on which a processor depends.

Called by ``rules`` and by ``streamgroups_spark.processors.building``. The names of these options have any case, and so have the
values of the group protocol. Source: SEMANTICS P1; KIP-848.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamgroups.connections.references import Setting

_PREFIX = "kafka."


def assigns_ranges(options: Mapping[str, str]) -> bool:
    """Returns whether the assignor ``range`` of the broker assigns the partitions.

    Args:
        options: the options of the source.

    >>> assigns_ranges({"kafka.group.protocol": "CONSUMER", "kafka.group.remote.assignor": "range"})
    True
    """
    given = _client_options(options)
    return _is_consumer(given.get("group.protocol", "")) and given.get("group.remote.assignor", "").lower() == "range"


def needs_session_timeout(options: Mapping[str, str], settings: Mapping[str, Setting]) -> bool:
    """Returns whether a processor sets the session timeout of its member.

    Args:
        options: the options of the source.
        settings: the settings of its connection, without their prefix.

    >>> needs_session_timeout({}, {}), needs_session_timeout({"kafka.group.protocol": "CONSUMER"}, {})
    (True, False)
    """
    given = {**settings, **_client_options(options)}
    protocol = given.get("group.protocol", "classic")
    # The protocol is unknown if it is a reference. The protocol 'consumer' rejects a session timeout.
    return "session.timeout.ms" not in given and isinstance(protocol, str) and not _is_consumer(protocol)


def _client_options(options: Mapping[str, str]) -> dict[str, str]:
    given = {name.strip().lower(): value.strip() for name, value in options.items()}
    return {name.removeprefix(_PREFIX): value for name, value in given.items() if name.startswith(_PREFIX)}


def _is_consumer(protocol: str) -> bool:
    return protocol.strip().lower() == "consumer"
