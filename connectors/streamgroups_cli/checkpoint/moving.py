"""Plans other positions of the Kafka sources in a copy of a checkpoint, by a scenario of ``groups reset``.

``streamgroups checkpoint copy`` uses it. Source: SEMANTICS C5, O1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from streamgroups.checkpoints.spark_batches import SourceKind
from streamgroups.checkpoints.spark_copy import with_positions
from streamgroups.checkpoints.spark_logs import Operator
from streamgroups.errors import CheckpointRejected, InvalidOption
from streamgroups.groups.reset_plan import Facts, Move, is_in_scope, plan, require_bounds
from streamgroups.positions import AtTime
from streamgroups.printable import listed
from streamgroups.shell_quoting import command
from streamgroups.times import utc
from streamgroups_admin.checkpoints.batches import Batch
from streamgroups_admin.checkpoints.checkpoint_files import CheckpointFiles
from streamgroups_admin.checkpoints.copying import CopyPlan
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.groups.targets import Target, scenario_of
from streamgroups_cli.output import print_message


def plan_moves(
    cluster: Cluster, batch: Batch, target: Target, scope: Mapping[str, frozenset[int] | None]
) -> list[Move]:
    """Returns the new position of each partition.

    Args:
        cluster: the cluster of the topics.
        batch: the batch of the copy. Its end offsets are the current positions.
        target: the target.
        scope: the partitions to move; all if empty.

    Raises:
        InvalidOption: if no source of ``format("kafka")`` has such a partition.
        UnknownTopic: if a topic or partition does not exist.
    """
    positions = {
        tp: it.end_offset
        for source in batch.sources
        if source.kind is SourceKind.KAFKA
        for tp, it in source.ranges.items()
        if is_in_scope(tp, scope)
    }
    if not positions:
        groups = sorted({it.group_id for it in batch.sources if it.group_id is not None})
        raise InvalidOption(
            "The checkpoint has no such partition of a source of format('kafka'), whose position can be moved.",
            remedy=f"The group stores the positions: {command('groups reset', [groups[0]])}."
            if groups
            else "Omit the target, or use --topic with a topic of the query.",
        )
    scenario = scenario_of(target, cluster)
    bounds = require_bounds(cluster.topics.bounds(positions.keys()))
    times = (
        cluster.topics.at_times(dict.fromkeys(bounds, scenario.timestamp_ms)) if isinstance(scenario, AtTime) else {}
    )
    facts = {
        tp: Facts(n, bounds[tp], None if (found := times.get(tp)) is None else found.offset)
        for tp, n in positions.items()
    }
    return plan(scenario, facts, group_id="")


def at_positions(plan: CopyPlan, files: CheckpointFiles, moves: Sequence[Move]) -> CopyPlan:
    """Returns the plan with other positions.

    The batch before has them, too: no source then reads a range from it to the batch when the query starts.

    Args:
        plan: the plan.
        files: the old checkpoint.
        moves: the position of each partition.
    """
    positions = {it.topic_partition: it.to_offset for it in moves if it.change}
    logs = {path: plan.changed.get(path) or files.content(path) for path in plan.paths if path.startswith("offsets/")}
    changed = {path: with_positions(bytes(text).decode(), positions).encode() for path, text in logs.items()}
    return replace(plan, changed={**plan.changed, **changed}, moves=moves)


def require_keep_state(operators: Mapping[int, Operator | None], *, keep_state: bool) -> None:
    """Checks that the user accepts that a state does not move with the positions.

    Raises:
        CheckpointRejected: if it does not.
    """
    if operators and not keep_state:
        raise CheckpointRejected(
            f"The query has state (operators {_names(operators)}), which does not move with the positions.",
            remedy="Add --keep-state if the effects in the plan are right, or copy an earlier batch without a target.",
        )


def explain_state(batch: Batch, operators: Mapping[int, Operator | None]) -> None:
    """Prints the effects of a state that is kept."""
    if not operators or batch.commit is None:
        return
    watermark_ms = batch.commit.next_watermark_ms
    late = f" Rows before the watermark {utc(watermark_ms)} are dropped as late." if watermark_ms else ""
    print_message(
        f"Warning: the state of operators {_names(operators)} stays that after batch {batch.batch_id}. Open windows count records "
        f"twice that are read again, and lack records that are skipped.{late}"
    )


def _names(operators: Mapping[int, Operator | None]) -> str:
    return listed(str(n) if it is None else f"{n} ({it.name})" for n, it in operators.items())
