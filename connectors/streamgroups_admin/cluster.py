"""A connected cluster, as the command line and ``sg.savepoints`` use it.

Source: the ports of administration, :class:`streamgroups.ports.GroupAdmin` and :class:`streamgroups.ports.TopicAdmin`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamgroups.ports import Clock, GroupAdmin, TopicAdmin
    from streamgroups_kafka.client.config import ClientConfig

_logger = logging.getLogger(__name__)


def _log(text: str) -> None:
    _logger.info("%s", text)


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connected cluster.

    Args:
        config: the settings of the connection.
        groups: its groups.
        topics: its topics.
        requests: the number of sent requests, by their names.
        now_ms: the time, in milliseconds since the epoch.
        notify: receives each effect of a change as a sentence, while the change is applied.
    """

    config: ClientConfig
    groups: GroupAdmin
    topics: TopicAdmin
    requests: Mapping[str, int]
    now_ms: Clock
    notify: Callable[[str], None] = _log


@contextmanager
def connected(config: ClientConfig, timeout_s: float, notify: Callable[[str], None] = _log) -> Iterator[Cluster]:
    """Connects to a cluster. The end of the ``with`` block closes the connection.

    Args:
        config: the settings.
        timeout_s: the timeout of each request, in seconds.
        notify: see :class:`Cluster`.

    Raises:
        StreamGroupsError: those of :class:`streamgroups.ports.Cluster`, when the cluster is used.
    """
    from streamgroups_kafka.admin.connection import AdminSession
    from streamgroups_kafka.admin.groups import KafkaGroupAdmin
    from streamgroups_kafka.admin.topics import KafkaTopicAdmin
    from streamgroups_kafka.client.clock import now_ms

    # The client logs each failed attempt as an error. The final result is reported once, at the end.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    session = AdminSession(config, timeout_s=timeout_s, waits_for_listener=False)
    try:
        yield Cluster(
            config, KafkaGroupAdmin(session), KafkaTopicAdmin(session, config), session.requests, now_ms, notify
        )
    finally:
        session.close()
