"""Plans an import of the positions of a query that reads with Spark's own ``kafka`` source, and prints options for one.

``import --from-spark-checkpoint`` and ``export --to-spark-options`` use it. An import detects all errors before anything changes: another kind of checkpoint,
groups in use, topics of another cluster, offsets outside of their partition. Source: SEMANTICS O5; ``docs/migration.rst``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from streamgroups.checkpoints.spark_kafka import KafkaPositions, SparkCheckpoint, kafka_positions, spark_options
from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.durations import duration
from streamgroups.errors import GroupRejected, InvalidOption, UnknownGroup, UnknownTopic
from streamgroups.groups.description import is_active, require_inactive
from streamgroups.groups.reset_plan import Facts, Move, ToListed, is_in_scope, out_of_range, plan, require_bounds
from streamgroups.json_values import write_json
from streamgroups.monitoring.group_tables import see_groups
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.printable import listed, printable
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.plans import GroupPlan
from streamgroups_admin.groups.stored_files import write_new
from streamgroups_cli.groups.scope import all_groups_of
from streamgroups_cli.output import print_message

#: The query may still run if its checkpoint was written within this time.
_RECENT_MS = 60_000


def plan_from_checkpoint(
    cluster: Cluster,
    location: str,
    group_id: str,
    *,
    sources: Sequence[str],
    scope: Mapping[str, frozenset[int] | None],
    nearest: bool,
) -> GroupPlan:
    """Returns the plan for the positions of a checkpoint, and prints what the positions do not contain.

    Args:
        cluster: the cluster of the topics.
        location: the checkpoint.
        group_id: the group.
        sources: the sources to use; all Kafka sources if empty.
        scope: the partitions to use; all if empty.
        nearest: whether the nearest offset replaces one outside of its partition.

    Raises:
        InvalidOption: if it is not the checkpoint of a query with a Kafka source, or has no positions; or if no query
            can have this group.
        GroupRejected: if the group has members, or an offset is outside of its partition.
        UnknownTopic: if a topic or partition does not exist.
    """
    from streamgroups_admin.checkpoints.batches import read_checkpoint

    if not group_id or is_metadata_group(group_id):
        raise InvalidOption(
            f"--group is '{group_id}', which no query can use as its group.id.", remedy="Use another name."
        )
    checkpoint = read_checkpoint(location)
    positions = kafka_positions(checkpoint, sources)
    next_offsets = {tp: n for tp, n in positions.next_offsets.items() if is_in_scope(tp, scope)}
    if not next_offsets:
        raise InvalidOption(
            f"The checkpoint '{checkpoint.location}' has no position of the partitions of --topic.",
            remedy=f"Use: {listed(sorted({tp.topic for tp in positions.next_offsets}))}.",
        )
    group = cluster.groups.describe_groups([group_id])[group_id]
    require_inactive([group], doing="changed by this import")
    if group.state == "Dead":
        print_message(f"Group '{group_id}' will be created by the commit.")
    bounds = _bounds(cluster, checkpoint, next_offsets)
    committed = cluster.groups.committed_offsets([group_id])[group_id]
    facts = {tp: Facts(committed[tp].next_offset if tp in committed else None, bounds[tp]) for tp in next_offsets}
    moves = plan(ToListed(next_offsets), facts, group_id=group_id)
    if not nearest:
        _reject_outside(checkpoint, out_of_range(moves))
    _explain(checkpoint, positions, scope)
    written_ms = checkpoint.written_ms
    if written_ms is not None and (age_ms := max(0, cluster.now_ms() - written_ms)) < _RECENT_MS:
        print_message(
            f"Warning: the checkpoint was written {duration(age_ms)} ago. Stop its query first, or records are read twice."
        )
    return GroupPlan(group_id, moves)


def _bounds(
    cluster: Cluster, checkpoint: SparkCheckpoint, next_offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Bounds]:
    try:
        return require_bounds(cluster.topics.bounds(next_offsets.keys()), has_scope=True)
    except UnknownTopic as e:
        raise e.with_text(
            f"{e.what} The checkpoint '{checkpoint.location}' has its position.",
            "Use the cluster of the old query, or import the other topics with --topic.",
        ) from None


def _reject_outside(checkpoint: SparkCheckpoint, outside: Sequence[Move]) -> None:
    if not outside:
        return
    lost = [m for m in outside if m.requested_offset is not None and m.requested_offset < m.bounds.beginning_offset]
    first = outside[0]
    more = f", and {len(outside) - 1} more" if len(outside) > 1 else ""
    why = (
        "The records at this offset are deleted."
        if first in lost
        else "The topic was recreated, or belongs to another cluster."
    )
    raise GroupRejected(
        f"Offset {first.requested_offset} of the checkpoint '{checkpoint.location}' is outside {first.topic_partition} "
        f"[{first.bounds.beginning_offset}, {first.bounds.end_offset}]{more}. {why} Nothing was changed.",
        remedy="--nearest continues at the nearest offset of each such partition; --topic imports only other partitions.",
        topic=first.topic_partition.topic,
        partition=first.topic_partition.partition,
    )


def _explain(
    checkpoint: SparkCheckpoint, positions: KafkaPositions, scope: Mapping[str, frozenset[int] | None]
) -> None:
    after = "before the first batch" if positions.batch_id is None else f"after batch {positions.batch_id}"
    print_message(f"These are the positions of the checkpoint '{checkpoint.location}' {after}, its last committed one.")
    planned = {tp: it for tp, it in positions.planned.items() if is_in_scope(tp, scope)}
    if checkpoint.planned is not None and planned:
        counts = [it.count for it in planned.values()]
        known = [it for it in counts if it is not None]
        is_known = len(known) == len(counts)
        new = "The checkpoint does not contain where a new partition begins (?): the group reads it from its earliest record. "
        print_message(
            f"Warning: batch {checkpoint.planned.batch_id} is planned and not committed. Its output may exist, completely "
            f"or in part. The group reads its {f'{sum(known)} ' if is_known else ''}offsets again: "
            f"{listed(f'{tp}{it}' for tp, it in planned.items())}. {'' if is_known else new}To avoid that, start the "
            "old query once with the trigger availableNow, which finishes the batch, and repeat this import."
        )
    if checkpoint.operators:
        print_message(
            f"Warning: the state of operators {', '.join(checkpoint.operators)} stays in the checkpoint, in its directory "
            "'state'. The new query starts with an empty state."
        )
    if positions.other_sources:
        print_message(f"Not imported: source {', '.join(positions.other_sources)} of the query.")


def print_spark_options(
    cluster: Cluster, group_id: str, scope: Mapping[str, frozenset[int] | None], file: Path | None
) -> None:
    """Prints the options with which Spark's ``kafka`` source continues at the committed offsets of a group, as JSON.

    Args:
        cluster: the cluster of the group.
        group_id: the group.
        scope: the topics; all if empty.
        file: a new file for the options; ``None`` for standard output.

    Raises:
        InvalidOption: if ``scope`` contains single partitions, which Spark's option cannot express.
        UnknownGroup: if the group has no committed offset of the topics.
    """
    if any(numbers is not None for numbers in scope.values()):
        raise InvalidOption("--to-spark-options exports whole topics.", remedy="Omit the partitions of --topic.")
    committed = cluster.groups.committed_offsets([group_id])[group_id]
    next_offsets = {tp: it.next_offset for tp, it in committed.items() if is_in_scope(tp, scope)}
    if not next_offsets:
        raise UnknownGroup(
            f"Group '{group_id}' has no committed offsets{' of these topics' if scope else ''}.",
            remedy=see_groups([group_id], all_groups_of(cluster)),
            group=group_id,
        )
    if is_active(cluster.groups.describe_groups([group_id])[group_id]):
        print_message(
            f"Warning: group '{group_id}' has members, so these offsets will change. Stop them, and export again."
        )
    described = cluster.topics.describe_topics({tp.topic for tp in next_offsets})
    partitions = {TopicPartition(topic, p.partition) for topic, it in described.items() for p in it.partitions}
    deleted = sorted(next_offsets.keys() - partitions)
    if deleted:
        print_message(f"Skipped, because they no longer exist: {listed(deleted)}.")
    without = sorted(partitions - next_offsets.keys())
    if without:
        print_message(f"Without a committed offset, so they start at their earliest record (-2): {listed(without)}.")
    options = spark_options({tp: n for tp, n in next_offsets.items() if tp in partitions}, partitions)
    text = write_json(options, indent=1) + "\n"
    if file is None:
        print(printable(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_new(file, text)
        print_message(f"The options were written to {file}")
    print_message(
        "Start the query of format('kafka') with a new checkpointLocation: with an old one, Spark ignores startingOffsets."
    )
