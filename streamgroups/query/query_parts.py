"""The parts of a query, from which ``streamgroups.query.micro_batches`` plans its batches.

``streamgroups_spark.source.running_query`` assembles them, and tests do with fakes. Source: SEMANTICS S1-S6.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamgroups.ports import Clock, Cluster, Recorder
from streamgroups.query.available_offsets import Start, at_once
from streamgroups.query.batch_ranges import BatchDuration
from streamgroups.query.continuity import REFRESH_MS
from streamgroups.query.query_ports import (
    BatchStates,
    CommitLog,
    GapRecorder,
    GroupLimit,
    NewMember,
    Resets,
    Times,
)
from streamgroups.query.skipped_range_store import SkippedRangeStore


@dataclass(frozen=True, slots=True)
class QueryRun:
    """One run of a query.

    Args:
        run_id: distinguishes its batches from those of all other queries. Two members of a group can read the same ranges in
            batches with the same number, if one has lost its partitions to the other. The sink must not accept the late
            output of one as that of the other.
        form: the form of its program. Empty if it is unknown.
        checkpoint: the location of the checkpoint, for errors.
        commits_offsets: whether the sink commits the offsets of the group with its output.
    """

    run_id: str = ""
    form: str = ""
    checkpoint: str = "CHECKPOINT"
    commits_offsets: bool = False


@dataclass(frozen=True, slots=True)
class QueryWaits:
    """How long a query waits.

    Args:
        join_timeout_ms: how long a start waits for the first assignment. Other members may finish their batches first,
            and a killed member counts until its session times out.
        whole_timeout_ms: how long an exclusive query waits until it owns all partitions.
        refresh_ms: how often the ids and the earliest offsets of topics are read.
    """

    join_timeout_ms: int = 360_000
    whole_timeout_ms: int = 30_000
    refresh_ms: int = REFRESH_MS


@dataclass(frozen=True, slots=True)
class QueryParts:
    """The ports of a query.

    Args:
        cluster: topics and groups of the Kafka cluster.
        new_member: creates the member when the query starts.
        clock: the current time in milliseconds.
        record: records events of the member.
        commit_log: Spark's commit log, which shows whether the last batch is done.
        left: the skipped ranges of earlier runs.
        gaps: records gaps.
        resets: the reset requests for the group.
        times: receives the progress of event time.
        states: the states of the operator of the query.
        start: starts jobs that Spark does not need to wait for.
        duration_ms: the duration of a finished batch, by its end offset.
        group_limit: the limit of groups that read a topic; ``None`` without one.
    """

    cluster: Cluster
    new_member: NewMember
    clock: Clock
    record: Recorder
    commit_log: CommitLog
    left: SkippedRangeStore
    gaps: GapRecorder
    resets: Resets = field(default_factory=Resets)
    times: Times = field(default_factory=Times)
    states: BatchStates = field(default_factory=BatchStates)
    start: Start = at_once
    duration_ms: BatchDuration = lambda _: None
    group_limit: GroupLimit | None = None
