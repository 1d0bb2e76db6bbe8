"""The options of a read with ``format("streamgroups")``, without those of its Kafka clients: one dataclass, checked completely.

Called by ``streamgroups_spark.source.source_options`` when Spark creates the data source, and by ``processors.reading`` for a file
of a processor. The options of Spark's ``kafka`` source keep their names and meanings. Source: SEMANTICS S4, S5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from streamgroups.checkpoints.restart import OnRestart
from streamgroups.cursors.argument_checks import MAX_GROUPS_PER_TOPIC, check_group_name
from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.event_time.settings import (
    STREAM_TIME_OPTIONS,
    generation_of,
    imported_group,
    on_violation,
    partition_idle_timeout,
    watermark_delay,
)
from streamgroups.event_time.violations import OnViolation
from streamgroups.groups.batch_lease import LeaseWord
from streamgroups.groups.join_policy import MembershipMode
from streamgroups.groups.program import OnOtherProgram
from streamgroups.groups.subscription import Partitions, Subscription, Topics
from streamgroups.option_values import choice, flag, shown_value, whole_number
from streamgroups.positions import Positions
from streamgroups.printable import listed
from streamgroups.query.data_loss import LossPolicies, loss_policies
from streamgroups.query.packing import Packing
from streamgroups.query.position_options import ENDING, STARTING, ending_positions, starting_positions
from streamgroups.query.state_options import STATE_OPTIONS, StateOptions, state_options
from streamgroups.query.subscription_options import SUBSCRIBING, names_of, subscription_of
from streamgroups.query.trigger_limits import Limits

#: A member polls every 50 ms and joins within a second, so a shorter lease would expire in normal operation.
_MIN_LEASE_MS = 1_000
#: These options have no effect in batch reads, which is logged: the same program can read a stream or bounded data.
_IGNORED_IN_BATCH = (
    "membership",
    "onRestart",
    "onOtherProgram",
    "leaseTimeout",
    "maxGroupsPerTopic",
    "historyDir",
    "directRecords",
    "stateCopies",
    *STATE_OPTIONS,
    # sg.windows handles violations in bounded data too.
    *(name for name in STREAM_TIME_OPTIONS if name != "onViolation"),
    "maxDrift",
    "targetBatchTime",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
)
OPTION_NAMES = (
    *SUBSCRIBING,
    *STARTING,
    *ENDING,
    *_IGNORED_IN_BATCH,
    "connection",
    "onViolation",
    "group.id",
    "groupIdPrefix",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "onDataLoss",
    "columns",
    "includeHeaders",
    "includeWatermark",
    "eventTimeHeader",
    "watermarkHeader",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The parsed options of a read, without those of its Kafka clients.

    Args:
        group_id: the group. ``None`` only in batch reads.
        group_id_prefix: the prefix of the group id in batch reads without a group.
        subscription: the topics or partitions to read.
        starting: the starting positions of a new group.
        ending: the ending positions of a batch read.
        mode: the option ``membership``.
        on_restart: the option ``onRestart``.
        on_other_program: the option ``onOtherProgram``.
        lease_timeout_ms: the option ``leaseTimeout``.
        max_groups_per_topic: the option ``maxGroupsPerTopic``.
        limits: the limits per trigger.
        min_tasks: the option ``minPartitions``.
        max_task_offsets: the option ``maxRecordsPerPartition``.
        on_data_loss: the policy for positions with deleted records.
        states: the options about states.
        direct_records: the option ``directRecords``.
        state_copies: the option ``stateCopies``.
        watermark_delay_ms: the option ``watermarkDelay``. ``None`` if it is not set.
        partition_idle_timeout_ms: the option ``partitionIdleTimeout``.
        import_from: the option ``importFrom``; ``None`` if it is not set.
        on_violation: the option ``onViolation``.
        columns: the option ``columns``. ``None``: all columns.
        include_watermark: whether the read has a column ``watermark``.
        include_headers: whether the read has a column ``headers``.
        event_time_header: the header that the column ``eventTime`` contains. ``None``: the read has no such column.
        watermark_header: the header with watermarks of the producer. ``None``: producers emit no watermarks.
        poll_timeout_ms: how long a reader waits for records of a partition.
        attempts: the maximum number of requests for offsets.
        retry_interval_ms: the wait between two of these requests.
        history_dir: the directory for the history of the member. ``None``: no history is written.
        without_effect: given options without effect.
    """

    group_id: str | None
    group_id_prefix: str
    subscription: Subscription
    starting: Positions
    ending: Positions
    mode: MembershipMode
    on_restart: OnRestart
    on_other_program: OnOtherProgram
    lease_timeout_ms: int | LeaseWord
    max_groups_per_topic: int
    limits: Limits
    min_tasks: int | None
    max_task_offsets: int | None
    on_data_loss: LossPolicies
    states: StateOptions
    direct_records: bool
    state_copies: bool
    watermark_delay_ms: int | None
    partition_idle_timeout_ms: int | None
    import_from: str | None
    on_violation: OnViolation
    columns: tuple[str, ...] | None
    include_watermark: bool
    include_headers: bool
    event_time_header: str | None
    watermark_header: str | None
    poll_timeout_ms: int
    attempts: int
    retry_interval_ms: int
    history_dir: str | None
    without_effect: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Whether partitions can move to other members while the query runs. With ``assign`` they cannot."""
        return self.mode is MembershipMode.SHARED and not isinstance(self.subscription, Partitions)

    @property
    def splitting(self) -> str | None:
        """The name of an option that can divide a partition among tasks; ``None`` if none is set."""
        if self.min_tasks is not None:
            return "minPartitions"
        return None if self.max_task_offsets is None else "maxRecordsPerPartition"

    def packing(self, parallelism: int) -> Packing:
        """Returns how the ranges of a batch are divided among tasks."""
        return Packing(parallelism, self.min_tasks, self.max_task_offsets)


def source_settings(known: Mapping[str, str], *, streaming: bool, kafka_group_id: str | None = None) -> SourceSettings:
    """Parses and checks the options.

    Args:
        known: the options under their documented names.
        streaming: whether they belong to ``readStream``. Otherwise to ``read``.
        kafka_group_id: the option ``kafka.group.id``, a synonym of ``group.id``.

    Raises:
        InvalidOption: for the first invalid option. The error contains its name, its value and the permitted values.

    >>> source_settings({"subscribe": "flights", "group.id": "board"}, streaming=True).is_shared
    True
    """
    group_id = _group_id(known, kafka_group_id, streaming=streaming)
    if streaming:
        _reject_ending(known)
    mode = choice(known, "membership", MembershipMode, MembershipMode.SHARED)
    default_restart = OnRestart.GROUP if mode is MembershipMode.SHARED else OnRestart.CHECKPOINT
    subscription = subscription_of(known)
    if mode is MembershipMode.EXCLUSIVE and isinstance(subscription, Partitions):
        raise InvalidOption(
            "Options 'assign' and membership=exclusive exclude each other: with 'assign' a query joins no group.",
            remedy="Use 'subscribe', or leave 'membership' out.",
        )
    # sg.with_event_time uses it.
    generation_of(known)
    return SourceSettings(
        group_id=group_id,
        group_id_prefix=known.get("groupIdPrefix", "streamgroups-batch"),
        subscription=subscription,
        starting=starting_positions(known, streaming=streaming),
        ending=ending_positions(known),
        mode=mode,
        on_restart=choice(known, "onRestart", OnRestart, default_restart),
        on_other_program=choice(known, "onOtherProgram", OnOtherProgram, OnOtherProgram.FAIL),
        lease_timeout_ms=_lease_timeout(known, subscription),
        max_groups_per_topic=_count(known, "maxGroupsPerTopic") or MAX_GROUPS_PER_TOPIC,
        limits=_limits(known),
        min_tasks=_count(known, "minPartitions"),
        max_task_offsets=_count(known, "maxRecordsPerPartition"),
        on_data_loss=_on_data_loss(known, subscription),
        states=state_options(known),
        direct_records=flag(known, "directRecords", default=True),
        state_copies=flag(known, "stateCopies", default=True),
        watermark_delay_ms=watermark_delay(known),
        partition_idle_timeout_ms=partition_idle_timeout(known),
        import_from=_import_from(known, group_id),
        on_violation=on_violation(known),
        columns=names_of(known, "columns", "columns"),
        include_watermark=flag(known, "includeWatermark", default=False),
        include_headers=flag(known, "includeHeaders", default=False),
        event_time_header=_header(known, "eventTimeHeader"),
        watermark_header=_watermark_header(known),
        poll_timeout_ms=_count(known, "kafkaConsumer.pollTimeoutMs") or 120_000,
        attempts=1 + _number(known, "fetchOffset.numRetries", 3),
        retry_interval_ms=_number(known, "fetchOffset.retryIntervalMs", 1_000),
        history_dir=known.get("historyDir"),
        without_effect=tuple(_without_effect(known, group_id, streaming=streaming)),
    )


def _on_data_loss(known: Mapping[str, str], subscription: Subscription) -> LossPolicies:
    """Parses ``onDataLoss``. A misspelt topic would leave the policy of the right one at its default."""
    found = loss_policies(known)
    if isinstance(subscription, Topics):
        read = set(subscription.names)
    elif isinstance(subscription, Partitions):
        read = {tp.topic for tp in subscription.topic_partitions}
    else:
        return found
    if others := {*found.by_topic, *(tp.topic for tp in found.by_partition)} - read:
        raise InvalidOption(
            f"Option 'onDataLoss' names {listed(map(repr, sorted(others)))}, which the query does not read.",
            remedy=f"Topics of the query: {listed(sorted(read))}.",
        )
    return found


def _limits(known: Mapping[str, str]) -> Limits:
    max_offsets, min_offsets = _count(known, "maxOffsetsPerTrigger"), _count(known, "minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise InvalidOption(
            f"Option 'minOffsetsPerTrigger' is {min_offsets}, which is greater than 'maxOffsetsPerTrigger' "
            f"({max_offsets}).",
            remedy="Set minOffsetsPerTrigger to the smaller number.",
        )
    for name in ("maxDrift", "targetBatchTime"):
        if name in known and min_offsets is not None:
            raise InvalidOption(
                f"Options 'minOffsetsPerTrigger' and '{name}' exclude each other: {name} can limit a batch to fewer "
                "offsets than the minimum.",
                remedy="Leave one of them out.",
            )
    return Limits(
        max_offsets,
        min_offsets,
        _duration_ms(known, "maxTriggerDelay", 15 * 60 * 1000),
        _positive_ms(known, "maxDrift", "how far a partition can be ahead of the watermark, such as 10m"),
        _positive_ms(known, "targetBatchTime", "the maximum duration of a batch, such as 10s"),
    )


def _lease_timeout(known: Mapping[str, str], subscription: Subscription) -> int | LeaseWord:
    value = known.get("leaseTimeout")
    if value is None:
        return LeaseWord.DEFAULT
    if isinstance(subscription, Partitions):
        raise InvalidOption(
            "Options 'assign' and 'leaseTimeout' exclude each other: with 'assign' a query joins no group "
            "that it could leave.",
            remedy="Use 'subscribe', or leave 'leaseTimeout' out.",
        )
    if value.strip().lower() == "off":
        return LeaseWord.OFF
    lease_ms = parse_duration_ms(value, option="leaseTimeout")
    if lease_ms < _MIN_LEASE_MS:
        raise InvalidOption(
            f"Option 'leaseTimeout' is '{value}', which is below 1 s.",
            remedy="Set it to more than the duration of the longest batch, such as 30m, or to 'off'.",
        )
    return lease_ms


def _group_id(known: Mapping[str, str], kafka_id: str | None, *, streaming: bool) -> str | None:
    own_id = known.get("group.id")
    if own_id is not None and kafka_id is not None and own_id != kafka_id:
        raise InvalidOption(
            f"Options 'group.id' ('{own_id}') and 'kafka.group.id' ('{kafka_id}') differ.",
            remedy="Set only 'group.id'.",
        )
    group_id = own_id or kafka_id
    if streaming and not group_id:
        raise InvalidOption(
            "Option 'group.id' is missing.",
            remedy=(
                "Set it to the name of the group: queries with the same group.id share the partitions of the topic."
            ),
        )
    if group_id:
        check_group_name(group_id)
    return group_id


def _import_from(known: Mapping[str, str], group_id: str | None) -> str | None:
    import_from = imported_group(known)
    if import_from is None:
        return None
    check_group_name(import_from)
    if import_from == group_id:
        raise InvalidOption(
            f"Option 'importFrom' is '{import_from}', the group of the same stream.",
            remedy="Name another group, or leave 'importFrom' out.",
        )
    return import_from


def _without_effect(known: Mapping[str, str], group_id: str | None, *, streaming: bool) -> list[str]:
    """Returns the given options without effect: those of streams in a batch read, and a prefix if the group has a name."""
    without_effect = () if streaming else _IGNORED_IN_BATCH
    if group_id is not None:
        without_effect = (*without_effect, "groupIdPrefix")
    return [name for name in without_effect if name in known]


def _reject_ending(known: Mapping[str, str]) -> None:
    for name in ENDING:
        if name in known:
            raise InvalidOption(
                f"Option '{name}' is not supported in streaming reads.", remedy="It applies to spark.read."
            )


def _header(known: Mapping[str, str], name: str) -> str | None:
    header = known.get(name)
    if header is not None and not header.strip():
        raise InvalidOption(
            f"Option '{name}' is '{header}', which is empty.",
            remedy="Set it to the name of a header, or leave it out.",
        )
    return header


def _watermark_header(known: Mapping[str, str]) -> str | None:
    header = _header(known, "watermarkHeader")
    # The value that removes any option of event time.
    return None if header is not None and header.strip().lower() == "none" else header


def _parsed(known: Mapping[str, str], name: str, read: Callable[[str], int], remedy: str) -> int | None:
    value = known.get(name)
    if value is None:
        return None
    try:
        return read(value.strip())
    except ValueError:
        raise InvalidOption(f"Option '{name}' is '{shown_value(value)}'.", remedy=remedy) from None


def _count(known: Mapping[str, str], name: str) -> int | None:
    return _parsed(known, name, partial(whole_number, least=1), "It must be a whole number greater than 0.")


def _number(known: Mapping[str, str], name: str, default: int) -> int:
    found = _parsed(known, name, whole_number, "It must be a whole number, 0 or greater.")
    return default if found is None else found


def _duration_ms(known: Mapping[str, str], name: str, default_ms: int) -> int:
    value = known.get(name)
    return default_ms if value is None else parse_duration_ms(value, option=name)


def _positive_ms(known: Mapping[str, str], name: str, meaning: str) -> int | None:
    value = known.get(name)
    if value is None:
        return None
    ms = parse_duration_ms(value, option=name)
    if not ms:
        raise InvalidOption(f"Option '{name}' is '{value}', which is 0.", remedy=f"Set it to {meaning}.")
    return ms
