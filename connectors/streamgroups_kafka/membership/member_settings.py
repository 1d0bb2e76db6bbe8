"""The settings of a member of a Kafka group, as one value.

``streamgroups_spark.source.readers`` creates it from the options of the user;
:class:`streamgroups_kafka.membership.member.KafkaMember` uses it. Source: the consumer configuration of Kafka;
SEMANTICS G10, S8.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from streamgroups.errors import StreamGroupsError
from streamgroups.groups.applied_reset import AppliedReset, first_reset
from streamgroups.groups.batch_lease import LeaseLimits
from streamgroups.groups.membership import MoveLedger, Owned, TakeOver
from streamgroups.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The settings of one member.

    Args:
        group_id: the group.
        name: the ``client.id`` of the member, which ``kafka-consumer-groups.sh`` shows.
        consumer: the librdkafka configuration.
        topics: returns the topics to subscribe to. It is called repeatedly, so that a pattern finds new topics.
        assign: partitions to read without joining the group (the option ``assign``); ``None`` to join.
        exclusive: whether the query fails when the group assigns partitions to another member.
        rebalance_timeout_ms: how long a rebalance waits for a member to release partitions (``max.poll.interval.ms``).
        refresh_ms: the interval of calls to ``topics``.
        redact: removes secrets from texts of librdkafka.
        is_standby: queries the broker whether the member has joined a group without a partition for it. librdkafka
            reports an empty assignment with the classic protocol only, not with KIP-848.
        login_rejection: queries the brokers with a new client whether all of them reject the login. Called if one has rejected that of
            the member, on the query's thread while it joins, and later on the owner thread.
        lease: the limits of a batch in flight. ``None`` if there are no Spark batches (the option ``assign``, group
            cursors).
        has_others: queries the broker whether the group has another member. It runs on the owner thread.
        deleted: returns the partitions whose topic was deleted, or recreated since its position. It runs on the owner thread.
        is_done: whether Spark's commit log contains the batch of this number. It runs on the owner thread.
        is_owner: queries the broker whether the group has no other owner of partitions than the member with this id. It runs on
            the owner thread.
        take_over: returns the positions at which assigned partitions continue, given the positions of the group. It calls its
            second argument, which is ``is_owner`` for this member. It runs on the owner thread.
        next_reset: returns how a reset by a client without marks is recorded, for each of these partitions. It runs on the owner
            thread.
        move_ledger: sets the positions of a sink's ledger before the member moves there. It runs on the query's thread.
        form: the form of the program, for the marks of commits.
        check_positions: rejects assigned positions that belong to another program. It runs on the owner thread.
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
    is_standby: Callable[[], bool] = lambda: False
    login_rejection: Callable[[], StreamGroupsError | None] = lambda: None
    lease: LeaseLimits | None = None
    has_others: Callable[[], bool] = lambda: False
    deleted: Callable[[Mapping[TopicPartition, Owned]], Collection[TopicPartition]] = lambda _: ()
    is_done: Callable[[int], bool] = lambda _: False
    is_owner: Callable[[str, Collection[TopicPartition]], bool] = lambda *_: True
    take_over: TakeOver = lambda owned, _: owned
    next_reset: Callable[[Collection[TopicPartition], str], Mapping[TopicPartition, AppliedReset]] = first_reset
    move_ledger: MoveLedger = frozenset
    form: str = ""
    check_positions: Callable[[Mapping[TopicPartition, Owned]], None] = lambda _: None
