"""Shortens rebalances: requests that let librdkafka join a group, or send a heartbeat, without a delay.

:class:`~streamgroups_kafka.membership.consumer_thread.ConsumerOwner` calls it on the owner thread, in each turn. Sources:
``rdkafka_cgrp.c`` and ``rdkafka_metadata.c`` of librdkafka 2.16; KIP-429, KIP-848.

**Classic protocol.** A partition moves in two rebalances: its owner releases it in the first, and the next owner
receives it in the second. librdkafka sends two JoinGroup requests at least a second apart, which delays the second
rebalance for all members. It lifts this delay when it receives metadata. So a member requests the metadata of one topic
after each rebalance. The leader of a group does so by itself. A JoinGroup after an error keeps its delay.

**KIP-848.** A member receives a partition with the first heartbeat after its owner has released it. The broker sets the
interval, 5 seconds by default. ``subscribe`` sends a heartbeat at once, also with the same topics. So a member repeats it
after its join, for longer than such an interval: until then each owner has released what it must. Each partition that it
receives extends this time.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

if TYPE_CHECKING:
    from confluent_kafka import Consumer

logger = logging.getLogger(__name__)

#: The timeout of the request for metadata. Without a response, the next JoinGroup is delayed.
_METADATA_TIMEOUT_S = 0.5
#: The interval of heartbeats of a new member, and for how long after its join or its last new partition it sends them.
_HEARTBEAT_EVERY_S = 0.2
_WAITING_S = 6.0


class PromptRebalance:
    """The requests of one member.

    Args:
        is_classic: whether the group has the classic protocol.
        clock_s: a monotonic clock in seconds.
    """

    def __init__(self, *, is_classic: bool, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._is_classic, self._clock_s = is_classic, clock_s
        self._is_delayed = False
        self._next_heartbeat_s, self._until_s = math.inf, -math.inf

    def joined(self) -> None:
        """Records that the member has begun to join its group."""
        now_s = self._clock_s()
        self._next_heartbeat_s, self._until_s = now_s + _HEARTBEAT_EVERY_S, now_s + _WAITING_S

    def rebalanced(self, *, new_partitions: bool) -> None:
        """Records that the member has received an assignment. librdkafka delays its next JoinGroup now.

        Args:
            new_partitions: whether it has received partitions.
        """
        self._is_delayed = self._is_classic
        now_s = self._clock_s()
        if new_partitions and now_s < self._until_s:
            self._until_s = now_s + _WAITING_S

    def is_heartbeat_due(self) -> bool:
        """Returns whether the member sends a heartbeat now, by ``subscribe``."""
        now_s = self._clock_s()
        if self._is_classic or not self._next_heartbeat_s <= now_s < self._until_s:
            return False
        self._next_heartbeat_s = now_s + _HEARTBEAT_EVERY_S
        return True

    def lift_delay(self, consumer: Consumer, topics: Collection[str]) -> None:
        """Requests the metadata of a topic if the next JoinGroup is delayed. Never fails.

        Args:
            consumer: the consumer of the member.
            topics: the topics of its subscription.
        """
        if not (self._is_delayed and topics):
            return
        self._is_delayed = False
        try:
            consumer.list_topics(min(topics), timeout=_METADATA_TIMEOUT_S)
        except KafkaException as e:
            logger.debug("The next rebalance takes up to a second longer: %s", e)
