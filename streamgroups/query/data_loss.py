"""Decides how a query continues if the records at its position no longer exist: the options ``onDataLoss`` and ``failOnDataLoss``.

Called by ``streamgroups.query.continuity`` before a batch is planned. A position is an offset of one topic of one
cluster (:class:`~streamgroups.identity.TopicIdentity`). It is compared with the current topic: its ids, its earliest
offset, its end, and the end of the position's leader epoch in the current log. Source: SEMANTICS S7, S11; Spark's
``failOnDataLoss``; Kafka's ``auto.offset.reset``; KIP-320.

``failOnDataLoss`` is Spark's option: ``true`` means ``onDataLoss=fail``, ``false`` means ``onDataLoss=earliest``. ``onDataLoss``
is a word, or JSON in the style of Spark's ``startingOffsets`` (SEMANTICS S4).

===============  ====================================================  ========  ==================
====================
cause            the position                                          ``fail``  ``skip``            ``earliest``
===============  ====================================================  ========  ==================
====================
expired          is before the earliest offset                         error     earliest offset     earliest offset
truncated        is past the end, or past the end of its leader        error     end, or end of the  earliest offset
                 epoch, and the ids do not differ                                epoch
recreated        is of another topic id                                error     end of the new one  its earliest offset
other-cluster    is of another cluster id                              error     end there           earliest there
===============  ====================================================  ========  ==================
====================

``skip`` reads no record that the group may have read before. ``earliest`` skips no record that exists. The first cause
that applies counts, in the order other-cluster, recreated, truncated, expired. An id that is unknown on either side is
not compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from streamgroups.errors import DataLoss, InvalidOption, UnknownTopic
from streamgroups.groups.gaps import Cause, Gap, PartitionGap
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.json_values import items, partition_number, read_unique_json
from streamgroups.option_values import flag, shown_value
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.printable import MAX_LISTED, listed
from streamgroups.shell_quoting import command, topic_options


class OnDataLoss(Enum):
    """How a gap is handled."""

    #: The query fails and changes nothing.
    FAIL = "fail"
    #: Reading continues where no record is read twice.
    SKIP = "skip"
    #: Reading continues at the earliest offset.
    EARLIEST = "earliest"


_WORDS = {policy.value: policy for policy in OnDataLoss}
_REMEDY = (
    "Allowed values: fail, skip, earliest, or a JSON text with one of them for each topic or partition, such as "
    '{"flights":"skip","orders":{"0":"earliest"}}.'
)


@dataclass(frozen=True, slots=True)
class LossPolicies:
    """The policy of every partition.

    Args:
        default: the policy of all other partitions.
        by_topic: policies of whole topics.
        by_partition: policies of single partitions.

    >>> LossPolicies(by_topic={"flights": OnDataLoss.SKIP}).of(TopicPartition("flights", 3)).value
    'skip'
    """

    default: OnDataLoss = OnDataLoss.FAIL
    by_topic: Mapping[str, OnDataLoss] = field(default_factory=dict)
    by_partition: Mapping[TopicPartition, OnDataLoss] = field(default_factory=dict)

    def of(self, topic_partition: TopicPartition) -> OnDataLoss:
        """The policy of one partition."""
        by_topic = self.by_topic.get(topic_partition.topic, self.default)
        return self.by_partition.get(topic_partition, by_topic)


#: The default of ``onDataLoss``.
FAIL_ON_LOSS = LossPolicies()


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """The position of a group in a partition.

    Args:
        next_offset: the offset; ``None`` if it was lost with the topic.
        identity: the topic of the offset.
    """

    next_offset: int | None
    identity: TopicIdentity = UNKNOWN


@dataclass(frozen=True, slots=True)
class Loss:
    """A position whose records no longer exist.

    Args:
        topic_partition: the partition.
        position: the position.
        now: the current topic.
        bounds: its earliest offset, and its end including the records of open transactions.
        cause: the cause.
        epoch_end: the end of the position's leader epoch in the current log; ``None`` if it is unknown.
    """

    topic_partition: TopicPartition
    position: StoredPosition
    now: TopicIdentity
    bounds: Bounds
    cause: Cause
    epoch_end: int | None = None

    def __str__(self) -> str:
        at = "unknown" if self.position.next_offset is None else self.position.next_offset
        there = f"[{self.bounds.beginning_offset}, {self.bounds.end_offset})"
        words = {
            Cause.EXPIRED: f"{self.topic_partition} (position {at}, available offsets {there}): records were deleted, possibly by retention",
            Cause.TRUNCATED: f"{self.topic_partition} (position {at}, available offsets {there}): {self._truncation}",
            Cause.RECREATED: f"{self.topic_partition} (position {at} of topic id {self.position.identity.topic_id}, current topic id {self.now.topic_id}, "
            f"available offsets {there}): the topic was deleted and recreated",
            Cause.OTHER_CLUSTER: f"{self.topic_partition} (position {at} of cluster id {self.position.identity.cluster_id}, current cluster id "
            f"{self.now.cluster_id}, available offsets {there}): the bootstrap servers belong to another cluster",
        }
        return words[self.cause]

    @property
    def _truncation(self) -> str:
        if self.epoch_end is None:
            return "the topic was truncated, or deleted and recreated"
        return f"the log was truncated at offset {self.epoch_end}, possibly by an unclean leader election, and has other records from there"

    def gap(self, policy: OnDataLoss, time_ms: int) -> PartitionGap:
        """The gap to record if reading continues.

        Args:
            policy: :attr:`OnDataLoss.SKIP` or :attr:`OnDataLoss.EARLIEST`.
            time_ms: the current time in milliseconds since the epoch.
        """
        to_offset = continue_at(self, policy)
        gap = Gap(self.position.next_offset, to_offset, self.cause, time_ms, self.position.identity, self.now)
        return PartitionGap(self.topic_partition, gap)


def find_loss(
    topic_partition: TopicPartition,
    position: StoredPosition,
    now: TopicIdentity,
    bounds: Bounds,
    epoch_end: int | None = None,
) -> Loss | None:
    """Compares a position with the current topic.

    Args:
        topic_partition: the partition.
        position: the position.
        now: the ids of the topic.
        bounds: its earliest offset, and its end including the records of open transactions.
        epoch_end: the end, in the current log, of a leader epoch whose log contained all records before the position. If it is
            before the position, the log was truncated there, also if it has grown past the position since. ``None`` if it is
            unknown.

    Returns:
        The loss; ``None`` if the records at the position exist or are still to be written.

    >>> p0, then, now = TopicPartition("flights", 0), TopicIdentity("c", "t1"), TopicIdentity("c", "t2")
    >>> [getattr(find_loss(p0, StoredPosition(20, then), it, Bounds(10, 30)), "cause", None) for it in (then, now)]
    [None, <Cause.RECREATED: 'recreated'>]
    >>> [find_loss(p0, StoredPosition(20), UNKNOWN, Bounds(0, 30), end) is None for end in (None, 20, 15)]
    [True, True, False]
    """
    cause = _cause(position, now, bounds, epoch_end)
    if cause is None:
        return None
    is_before = epoch_end is not None and position.next_offset is not None and epoch_end < position.next_offset
    end = epoch_end if is_before and cause is Cause.TRUNCATED else None
    return Loss(topic_partition, position, now, bounds, cause, end)


def _cause(position: StoredPosition, now: TopicIdentity, bounds: Bounds, epoch_end: int | None) -> Cause | None:
    if position.identity.is_of_another_cluster(now):
        return Cause.OTHER_CLUSTER
    if position.identity.differs_from(now):
        return Cause.RECREATED
    if position.next_offset is None:
        return None
    if position.next_offset > bounds.end_offset:
        return Cause.TRUNCATED
    # The end of an epoch can be at the earliest offset, if retention has deleted the epoch.
    if position.next_offset < bounds.beginning_offset:
        return Cause.EXPIRED
    return Cause.TRUNCATED if epoch_end is not None and position.next_offset > epoch_end else None


def continue_at(loss: Loss, policy: OnDataLoss) -> int:
    """The offset at which reading continues, according to the table of this module.

    Raises:
        ValueError: for :attr:`OnDataLoss.FAIL`.

    >>> p0, then, now = TopicPartition("flights", 0), TopicIdentity("c", "t1"), TopicIdentity("c", "t2")
    >>> loss = find_loss(p0, StoredPosition(20, then), now, Bounds(10, 30))
    >>> [continue_at(loss, policy) for policy in (OnDataLoss.SKIP, OnDataLoss.EARLIEST)]
    [30, 10]
    """
    if policy is OnDataLoss.FAIL:
        raise ValueError("the policy is to fail")
    if policy is OnDataLoss.EARLIEST or loss.cause is Cause.EXPIRED:
        return loss.bounds.beginning_offset
    if loss.epoch_end is None:
        return loss.bounds.end_offset
    # From there on the group has read no record of the current log.
    return max(loss.bounds.beginning_offset, min(loss.epoch_end, loss.bounds.end_offset))


def deleted(next_offsets: Mapping[TopicPartition, int], group_id: str) -> UnknownTopic:
    """The error under :attr:`OnDataLoss.FAIL` for partitions whose topic was deleted, with their positions.

    >>> print(deleted({TopicPartition("flights", 0): 20}, "billing").what)
    Group 'billing' cannot continue at its position: flights-0 (position 20): the topic does not exist any more.
    """
    found = listed((f"{tp} (position {n})" for tp, n in sorted(next_offsets.items())), separator="; ")
    topics = sorted({tp.topic for tp in next_offsets})
    return UnknownTopic(
        f"Group '{group_id}' cannot continue at its {'position' if len(next_offsets) == 1 else 'positions'}: {found}: "
        f"the {'topic does' if len(topics) == 1 else 'topics do'} not exist any more.",
        remedy="Set onDataLoss=skip to continue with the other topics, and leave a deleted topic out of 'subscribe'. If the topic "
        "is created again, onDataLoss decides where the query continues.",
        topic=topics[0],
    )


def data_loss(losses: Iterable[Loss], group_id: str) -> DataLoss:
    """The error under :attr:`OnDataLoss.FAIL`, with the lost positions and the remedy.

    >>> p0, then, now = TopicPartition("flights", 0), TopicIdentity("c", "t1"), TopicIdentity("c", "t2")
    >>> error = data_loss([find_loss(p0, StoredPosition(20, then), now, Bounds(0, 30))], "billing")
    >>> print(error.what)  # doctest: +NORMALIZE_WHITESPACE
    Group 'billing' cannot continue at its position: flights-0 (position 20 of topic id t1, current topic id t2, available
    offsets [0, 30)): the topic was deleted and recreated.
    """
    found = sorted(losses, key=lambda loss: loss.topic_partition)
    names = {loss.topic_partition.topic for loss in found}
    topics = topic_options(sorted(names)) if len(names) <= MAX_LISTED else "--topic TOPIC (for each topic)"
    positions = "position" if len(found) == 1 else "positions"
    return DataLoss(
        f"Group '{group_id}' cannot continue at its {positions}: {listed(found, separator='; ')}.",
        remedy="Set onDataLoss=earliest to continue at the earliest offset, or onDataLoss=skip to skip records that may have been read before. "
        "Each gap is recorded (streamgroups gaps). "
        f"Or reset the offsets of the group: {command('groups reset', [group_id], f'{topics} --to-earliest --execute')}.",
    )


def loss_policies(known: Mapping[str, str]) -> LossPolicies:
    """How a loss is handled in each partition.

    Args:
        known: options under their canonical names.

    Raises:
        InvalidOption: if a value is malformed, or if the two options contradict each other.

    >>> policies = loss_policies({"onDataLoss": '{"flights":"skip","orders":{"0":"earliest"}}'})
    >>> [policies.of(TopicPartition(*tp)).value for tp in (("flights", 3), ("orders", 0), ("orders", 1))]
    ['skip', 'earliest', 'fail']
    """
    fails = flag(known, "failOnDataLoss", default=True)
    default = OnDataLoss.FAIL if fails else OnDataLoss.EARLIEST
    value = known.get("onDataLoss")
    if value is None:
        return LossPolicies(default)
    word = _WORDS.get(value.strip().lower())
    policies = LossPolicies(word) if word is not None else _by_partition(value, default)
    given = {policies.default, *policies.by_topic.values(), *policies.by_partition.values()}
    if "failOnDataLoss" in known and (given != {OnDataLoss.FAIL} if fails else OnDataLoss.FAIL in given):
        raise InvalidOption(
            f"Options 'failOnDataLoss' ('{known['failOnDataLoss']}') and 'onDataLoss' ('{value}') contradict each other.",
            remedy="Set only 'onDataLoss': fail equals failOnDataLoss=true, and earliest equals failOnDataLoss=false.",
        )
    return policies


def _by_partition(value: str, default: OnDataLoss) -> LossPolicies:
    by_topic: dict[str, OnDataLoss] = {}
    by_partition: dict[TopicPartition, OnDataLoss] = {}
    try:
        for topic, policy in items(read_unique_json(value)):
            if isinstance(policy, str):
                by_topic[topic] = _WORDS[policy.strip().lower()]
            else:
                by_partition |= {
                    TopicPartition(topic, partition_number(partition)): _WORDS[it.strip().lower()]
                    for partition, it in items(policy)
                }
        if not by_topic and not by_partition:
            raise ValueError
    except (ValueError, AttributeError, KeyError):
        raise InvalidOption(f"Option 'onDataLoss' is '{shown_value(value)}'.", remedy=_REMEDY) from None
    return LossPolicies(default, by_topic, by_partition)
