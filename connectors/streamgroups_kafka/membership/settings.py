"""How to be a member of a Kafka group, as one value.

Made by ``streamgroups_spark.source.data_source`` from the user's options; used by :class:`streamgroups_kafka.membership.member.KafkaMember`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamgroups.groups.batch_lease import LeaseLimits
from streamgroups.groups.membership import Owned
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How to be a member.

    Args:
        group_id: the group.
        name: the member's ``client.id``, which lists show.
        consumer: librdkafka's configuration.
        topics: asks for the topics to subscribe to now; called again and again, so that a pattern finds new topics.
        assign: read exactly these partitions without joining (the option ``assign``); ``None`` to join.
        exclusive: fail when the group gives partitions to anybody else.
        rebalance_timeout_ms: how long the group waits for a member to give partitions back (``max.poll.interval.ms``).
        refresh_ms: how often ``topics`` is asked.
        redact: takes secrets out of what librdkafka says.
        is_surplus: asks the broker whether the member has joined a group that has no partition for it. The client says so of the
            classic protocol only: of an empty assignment under KIP-848 librdkafka says nothing.
        lease: by what its batches are measured; ``None``: nothing is a batch of Spark's here (the option ``assign``, group cursors).
        has_others: asks the broker whether the group has another member.
        is_done: whether Spark's commit log says that the batch of this number is done. It and ``has_others`` run on the member's thread.
        take_over: decides where partitions that came in are read on, given what the group says. It runs on the member's thread.
    """

    group_id: str
    name: str
    consumer: Mapping[str, object]
    topics: Callable[[], Collection[str]]
    assign: tuple[TopicPartition, ...] | None = None
    exclusive: bool = False
    rebalance_timeout_ms: int = 300_000
    refresh_ms: int = 5_000
    redact: Callable[[str], str] = str
    is_surplus: Callable[[], bool] = lambda: False
    lease: LeaseLimits | None = None
    has_others: Callable[[], bool] = lambda: False
    is_done: Callable[[int], bool] = lambda _: False
    take_over: Callable[[Mapping[TopicPartition, Owned]], Mapping[TopicPartition, Owned]] = dict
