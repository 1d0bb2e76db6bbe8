"""The points, faults and sabotages of a campaign, and the order of its turns. Used by ``integration_tests.campaign``."""

from __future__ import annotations

import random
from collections.abc import Sequence

from integration_tests.campaign.computed import COMPUTED
from integration_tests.campaign.network_faults import NETWORK_FAULTS, with_variants

#: The kinds of queries. ``stateless``: write them. ``stateful``: drop duplicates. ``windows``: count them
#: in windows whose state follows its partition. ``zombies``: write them and their dead letters, while resets are applied.
#: ``savepoints``: those of ``windows``, while savepoints are created. ``poison``: write them and the dead letters of some. The others
#: are those of ``campaign.computed``. ``dedup``: drop the duplicates of ids. ``function``: count with a function with state. ``join``: join
#: two topics. ``chained``: count in windows of windows. ``repartition``: write them to a topic by another key, which a second query reads. ``cursors``: instances read them without Spark.
CURSORS = "cursors"
KINDS = ("stateless", "stateful", "windows", "zombies", "savepoints", "poison", *COMPUTED, CURSORS)
#: The kinds whose operators have a state for each partition.
STATE_KINDS = ("windows", "savepoints", *(kind for kind, it in COMPUTED.items() if it.has_states))
#: The kinds whose output has the order of its input, and those with dead letters.
ORDERED_KINDS, LETTER_KINDS = ("stateless", "zombies", "poison"), ("zombies", "poison")
#: The kinds whose queries count in windows.
WINDOWS_KINDS = ("windows", "savepoints")
#: No point: the fault is injected at a random time after the last one, into a random member.
AT_RANDOM = "at-random"
#: The points of the abort of a transaction. Only a failed batch reaches them, so the campaign makes batches fail.
ABORT_POINTS = ("before-abort", "after-abort")
#: The points before and after requests of a transaction of Kafka, beside those of the methods that send them.
REQUEST_POINTS = (
    *("before-init-producer-id", "before-add-partitions", "after-add-partitions", "after-add-offsets"),
    *("after-commit-offsets", *ABORT_POINTS),
)
POINTS = (
    "before-offset-log",
    "mid-read",
    "transaction-begun",
    "inside-transaction",
    "before-offsets",
    "before-commit",
    "after-commit",
    *REQUEST_POINTS,
    AT_RANDOM,
)
#: A ledger stores the positions in the transaction of the sink.
LEDGER_POINTS = tuple(point for point in POINTS if point not in ("before-offsets", *REQUEST_POINTS))
#: The points of an instance with cursors, around a request and the processing of its messages.
CURSOR_POINTS = ("before-get", "after-get", "after-delivery", AT_RANDOM)
#: The points of a task with windows, beside those of its sink.
STATE_POINTS = ("before-state-file", "after-state-file")
#: The faults of one process of a query: SIGSTOP for longer than the timeouts of a session and of a transaction.
#: ``freeze-worker``: the Python process that reached the point. ``freeze-executor``: the JVM of the executor.
#: ``freeze-driver``: the JVM of the driver. ``freeze-source``: the Python process of the source.
FREEZES = ("freeze-source", "freeze-worker", "freeze-executor", "freeze-driver")
#: The faults at a point. ``worker``: kill the Python process that reached the point. ``executor``: kill the JVM of its
#: executor; at a point of the driver, any executor. ``query``: kill the driver and all its processes. ``checkpoint``:
#: the same, and delete the checkpoint, configure another one, or restore an older one, in turn. ``source``: kill the
#: process of its source. ``broker``: kill and restart the broker. ``hang``: pause the broker; its connections stay open.
#: ``zombie``: freeze the query until other members own its partitions. ``silence``: freeze the query for less than the
#: session timeout. ``clock``: the wall clock of the query jumps by an hour, forward or back. Those of ``NETWORK_FAULTS`` have an
#: API key or a time in their name.
VICTIMS = (
    "worker",
    "executor",
    "query",
    "checkpoint",
    "source",
    "broker",
    "hang",
    "zombie",
    "silence",
    *FREEZES,
    "clock",
    *NETWORK_FAULTS,
)
#: The faults of a query that is the only member of its group. No other member can own its partitions, and its state
#: needs its checkpoint.
STATEFUL_VICTIMS = (
    *("worker", "executor", "query", "source", "broker", "hang", "silence"),
    *FREEZES,
    "clock",
    *NETWORK_FAULTS,
)
#: The faults that only ``--faults`` or ``--turns`` select. ``freeze-poll``: the JVM of the driver is frozen for longer than
#: ``max.poll.interval.ms``. ``disk-full``: the disk of checkpoints and states has no space. It needs the right to mount one.
#: ``broker-disk-full``: the same of the data of the brokers, until one ends.
EXPLICIT_VICTIMS = ("freeze-poll", "disk-full", "broker-disk-full")
#: The faults that need separate executors.
EXECUTOR_VICTIMS = ("executor", "freeze-executor")
#: The faults of queries that write records. ``partitions``: the topic gets one more partition, without records.
STATELESS_VICTIMS = (*VICTIMS, "partitions")
#: The faults of queries with windows. ``reset``: a tool resets the group back while the process waits.
WINDOWS_VICTIMS = (*VICTIMS, "reset")
#: The faults of instances with cursors, which are a process each.
CURSOR_VICTIMS = ("query", "broker", "hang", "zombie", "silence", "clock", *NETWORK_FAULTS)
#: The faults of each kind.
VICTIMS_OF = {
    "stateless": STATELESS_VICTIMS,
    "stateful": STATEFUL_VICTIMS,
    "windows": WINDOWS_VICTIMS,
    "zombies": ("zombie",),
    "savepoints": WINDOWS_VICTIMS,
    "poison": STATELESS_VICTIMS,
    **dict.fromkeys(COMPUTED, VICTIMS),
    CURSORS: CURSOR_VICTIMS,
}
#: The faults of a sink. ``server``: a process of the server is killed; the server closes all connections and recovers.
#: ``answer``: lose the response to a commit that has succeeded. Of Kafka, ``response:EndTxn`` does this. ``commit-answer``: the server
#: has executed the next COMMIT, and its response is lost with its connection.
SINK_VICTIMS = {"none": (), "kafka": (), "postgres": ("server", "answer", "commit-answer"), "delta": ("answer",)}
#: The faults of an object store, with ``--storage s3``. ``store-errors``: requests fail with the status 500 or 503. ``store-slow``: they
#: take effect after the timeout of their client. ``store-lost``: they take effect, and their responses are lost.
STORE_VICTIMS = ("store-errors", "store-slow", "store-lost")
#: The faults that only ``--turns`` selects. ``stall``: the process stays at the point until the end of the campaign, and its member
#: loses its partitions at the end of its lease.
STALL = "stall"
#: The faults of the cluster and its other users, which ``--faults`` must name. ``storm``: other consumers join and leave the group for
#: 20 s. ``duplicate-member``: a consumer joins with the ``group.instance.id`` of a query. ``transactions``: a foreign producer aborts a
#: transaction on the input. ``hanging``: it leaves one open until its timeout. ``retention``: records after the position are deleted.
#: ``compaction``: all queries are frozen until a compaction has removed records after the position. It excludes ``retention``.
#: ``expiry``: all queries are killed, and stay down until the broker has forgotten the offsets, the transactional ids and the producer ids.
#: ``credentials``: the permissions of the queries on their group or their output topic are revoked for 10 s.
#: ``rotation``: the password of the queries is changed. It excludes the faults of the network.
#: ``topic-recreated``: the input is deleted and created again after its last record was read. It excludes ``retention``.
#: ``unclean-election``: the input is truncated behind the positions of the group. It needs three brokers.
CLUSTER_VICTIMS = (
    "storm",
    "duplicate-member",
    "transactions",
    "hanging",
    "retention",
    "compaction",
    "expiry",
    "credentials",
    "rotation",
    "topic-recreated",
    "unclean-election",
)
#: All faults that can be selected.
SELECTABLE = (*WINDOWS_VICTIMS, "partitions", "server", "answer", "commit-answer", *STORE_VICTIMS)
#: The safeguards that a campaign can disable to verify that it detects the fault. ``ledger``: the transaction or the
#: ledger. ``fence``: the check that rejects a batch of a replaced member. ``batch-id``: identify batches by number
#: instead of by offsets. Of windows, ``state-offset``: load the state of the offset. ``state-segment``: name all segments
#: of a state. ``state-file``: name the file of the attempt that has succeeded. ``watermark``: the delay of the watermark.
#: Of sinks with a ledger, ``output``: write the output of each batch.
#: Of zombies, ``epoch``: the ownership epoch of a reset.
SABOTAGES = ("ledger", "fence", "batch-id", "epoch", "output")
STATE_SABOTAGES = ("state-offset", "state-segment", "state-file", "watermark")
#: Of savepoints, ``savepoint-file``: leave one file out of each savepoint. ``savepoint-offset``: save the states with earlier
#: offsets.
SAVEPOINT_SABOTAGES = ("savepoint-file", "savepoint-offset")

#: Of campaigns with their own replacements (``campaign.sabotages``). ``order``: write the rows of a partition in their order.
#: ``range``: plan each range, or record a gap. ``partition``: plan each partition. ``abort``: abort the transaction of a failed
#: batch. ``checksum``: compare the checksum of a state file. ``idempotence``: the producer id of a record batch that is sent twice.
#: ``lease``: release the partitions of a batch that hangs. ``redaction``: remove secrets from the log of a failure. Of cursors,
#: ``cursor-commit``: commit the messages of the previous request, and not those that a request returns.
CONTROL_SABOTAGES = (
    "order",
    "range",
    "partition",
    "abort",
    "checksum",
    "idempotence",
    "lease",
    "redaction",
    "cursor-commit",
)

#: The points of zombies: before and after each write of a position, and between its reads and its commit. Those of a
#: reset are reached only while the members apply one, and those of a rebalance when partitions change their owner.
RESET_POINTS = ("before-reset-commit", "after-reset-commit")
LEDGER_RESET_POINTS = ("before-ledger-move", "ledger-move-read", "after-ledger-move")
REBALANCE_POINTS = ("before-revoke", "before-release", "after-revoke")
LEDGER_REBALANCE_POINTS = ("before-take-over", "take-over-read", "after-take-over")
ENTRY_POINTS = ("before-entry", "after-entry")
GROUP_POINTS = ("before-group-commit", "after-group-commit")
LETTER_POINTS = ("before-letters", "after-letters", "before-letters-end", "after-letters-end")
ZOMBIE_POINTS = {
    "kafka": (
        *("before-offsets", "before-commit", "after-commit", "inside-transaction"),
        *(*RESET_POINTS, *GROUP_POINTS, *REBALANCE_POINTS, *ENTRY_POINTS),
    ),
    "ledger": (
        *("before-commit", "commit-read", "after-commit", "inside-transaction"),
        *(*RESET_POINTS, *LEDGER_RESET_POINTS, *REBALANCE_POINTS, *LEDGER_REBALANCE_POINTS),
        *(*ENTRY_POINTS, *GROUP_POINTS, *LETTER_POINTS),
    ),
}

#: A point, and the fault to inject there.
Turn = tuple[str, str]


#: The turns that reveal the damage of ``CONTROL_SABOTAGES``. ``idempotence`` writes without a transaction.
CONTROL_TURNS: dict[str, Turn] = {
    "order": ("after-commit", "query"),
    "range": ("after-commit", "query"),
    "partition": ("after-commit", "query"),
    "abort": ("before-offsets", "answer"),
    "checksum": ("after-commit", "query"),
    "idempotence": ("mid-read", "silence"),
    "lease": ("mid-read", STALL),
    "redaction": ("after-commit", "answer"),
    "cursor-commit": ("after-get", "query"),
}


def all_turns(
    sink: str,
    n_turns: int,
    victims: Sequence[str] = VICTIMS,
    seed: int = 1,
    kind: str = "stateless",
    protocol: str = "classic",
) -> list[Turn]:
    """Every fault at every point, in a random order that depends on the seed, repeated as needed.

    A short campaign covers as many different faults as possible: consecutive turns use each fault once before one
    repeats. A lost response to a commit (``answer``) has only the point after it. Faults of the network have each API key that the
    queries send with this sink and protocol once before one repeats.
    """
    points = (POINTS if sink == "kafka" else LEDGER_POINTS) + (STATE_POINTS if kind in STATE_KINDS else ())
    points = CURSOR_POINTS if kind == CURSORS else points
    choose = random.Random(f"{sink} {seed}")
    turns: list[Turn] = []
    while len(turns) < n_turns:
        order = {victim: choose.sample(points, len(points)) for victim in choose.sample(victims, len(victims))}
        turns += [
            ("after-commit" if victim == "answer" else order[victim][i], victim)
            for i in range(len(points))
            for victim in order
        ]
    return with_variants(turns[:n_turns], sink, protocol, seed)


def needs_reset(sink: str, point: str) -> bool:
    """Whether a member reaches a point only while it applies a reset.

    The sink of Kafka commits the offsets of the group itself.
    """
    return point in (*RESET_POINTS, *LEDGER_RESET_POINTS) or (sink == "kafka" and point in GROUP_POINTS)


def needs_rebalance(point: str) -> bool:
    """Whether a member reaches a point only while partitions change their owner."""
    return point in (*REBALANCE_POINTS, *LEDGER_REBALANCE_POINTS)


def zombie_turns(sink: str, n_turns: int, n_resets: int, seed: int = 1, *, skipped: int = 0) -> list[Turn]:
    """A zombie at every point, in a random order that depends on the seed, repeated as needed.

    A ``zombie-reset`` is a zombie that sleeps while the group applies a reset. The points of resets have one too.

    Args:
        sink: the sink.
        n_turns: the number of turns.
        n_resets: the number of resets in these turns. If it is 0, the points of resets are left out. If it is smaller than the
            number of these points, so are the others of them.
        seed: the seed of the order.
        skipped: how many turns of the order precede the first one: campaigns with both protocols have other points.
    """
    points = ZOMBIE_POINTS["kafka" if sink == "kafka" else "ledger"]
    choose = random.Random(f"{sink} {seed}")
    order: list[str] = []
    while len(order) < skipped + 2 * n_turns:
        order += choose.sample(points, len(points))
    turns: list[Turn] = []
    for point in order[skipped:]:
        of_reset, n_left = needs_reset(sink, point), n_resets - sum(fault == "zombie-reset" for _, fault in turns)
        if len(turns) < n_turns and (n_left > 0 or not of_reset):
            # The last turns receive the remaining resets.
            takes = of_reset or choose.random() < n_left / (n_turns - len(turns))
            turns.append((point, "zombie-reset" if takes else "zombie"))
    return turns


def revealing_turns(sink: str, sabotaged: str, n_turns: int) -> list[Turn]:
    """The turns that detect a disabled safeguard."""
    if sabotaged == "ledger":
        # The output is at least once, so no process begins or commits a transaction.
        points = ("inside-transaction",) if sink == "kafka" else ("after-commit",)
        reported = [(point, victim) for point in points for victim in ("worker", "query")]
    elif sabotaged == "fence":
        reported = [("before-offsets" if sink == "kafka" else "before-commit", "zombie")]
    elif sabotaged == "epoch":
        reported = [("before-ledger-move", "zombie-reset")]
    elif sabotaged in ("output", *STATE_SABOTAGES, *SAVEPOINT_SABOTAGES):
        reported = [("after-commit", "query")]
    elif sabotaged in CONTROL_TURNS:
        reported = [CONTROL_TURNS[sabotaged]]
    else:
        reported = [("before-offset-log", "checkpoint")]
    return [reported[i % len(reported)] for i in range(n_turns)]
