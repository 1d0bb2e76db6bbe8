"""The points, faults and sabotages of a campaign, and the order of its turns. Used by ``integration_tests.campaign``."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: The kinds of queries. ``stateless``: write them. ``stateful``: drop duplicates. ``windows``: count them
#: in windows whose state follows its partition. ``zombies``: write them and their dead letters, while resets are applied.
#: ``savepoints``: those of ``windows``, while savepoints are created.
KINDS = ("stateless", "stateful", "windows", "zombies", "savepoints")
#: The kinds whose queries count in windows.
WINDOWS_KINDS = ("windows", "savepoints")
POINTS = (
    "before-offset-log",
    "mid-read",
    "transaction-begun",
    "inside-transaction",
    "before-offsets",
    "before-commit",
    "after-commit",
)
#: A ledger stores the positions in the transaction of the sink.
LEDGER_POINTS = tuple(point for point in POINTS if point != "before-offsets")
#: The points of a task with windows, beside those of its sink.
STATE_POINTS = ("before-state-file", "after-state-file")
#: The faults at a point. ``worker``: kill the Python process that reached the point. ``executor``: kill the JVM of its
#: executor; at a point of the driver, any executor. ``query``: kill the driver and all its processes. ``checkpoint``:
#: the same, and delete the checkpoint, configure another one, or restore an older one, in turn. ``source``: kill the
#: process of its source. ``broker``: kill and restart the broker. ``hang``: pause the broker; its connections stay open.
#: ``zombie``: freeze the query until other members own its partitions. ``silence``: freeze the query for less than the
#: session timeout. ``answer``: lose the response to a commit that has succeeded.
VICTIMS = ("worker", "executor", "query", "checkpoint", "source", "broker", "hang", "zombie", "silence")
#: The faults of a query that is the only member of its group. No other member can own its partitions, and its state
#: needs its checkpoint.
STATEFUL_VICTIMS = ("worker", "executor", "query", "source", "broker", "hang", "silence")
#: The faults of queries that write records. ``partitions``: the topic gets one more partition, without records.
STATELESS_VICTIMS = (*VICTIMS, "partitions")
#: The faults of queries with windows. ``reset``: a tool resets the group back while the process waits.
WINDOWS_VICTIMS = (*VICTIMS, "reset")
#: The faults of each kind.
VICTIMS_OF = {
    "stateless": STATELESS_VICTIMS,
    "stateful": STATEFUL_VICTIMS,
    "windows": WINDOWS_VICTIMS,
    "zombies": ("zombie",),
    "savepoints": WINDOWS_VICTIMS,
}
#: The faults of a sink. ``server``: a process of the server is killed; the server closes all connections and recovers.
SINK_VICTIMS = {"kafka": (), "postgres": ("server",), "delta": ()}
#: The faults of the cluster and its other users, which ``--faults`` must name. ``storm``: other consumers join and leave the group for
#: 20 s. ``duplicate``: a consumer joins with the ``group.instance.id`` of a query. ``transactions``: a foreign producer aborts a
#: transaction on the input. ``hanging``: it leaves one open until its timeout. ``retention``: records after the position are deleted.
#: ``expiry``: all queries are killed, and stay down until the broker has forgotten the offsets and the transactional ids.
#: ``credentials``: the permissions of the queries on their group or their output topic are revoked for 10 s.
#: ``topic-recreated``: the input is deleted and created again after its last record was read. It excludes ``retention``.
CLUSTER_VICTIMS = (
    "storm",
    "duplicate",
    "transactions",
    "hanging",
    "retention",
    "expiry",
    "credentials",
    "topic-recreated",
)
#: All faults that can be selected.
SELECTABLE = (*WINDOWS_VICTIMS, "partitions", "server")
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


def all_turns(
    sink: str, n_turns: int, victims: Sequence[str] = VICTIMS, seed: int = 1, kind: str = "stateless"
) -> list[Turn]:
    """Every fault at every point, in a random order that depends on the seed, repeated as needed.

    A short campaign covers as many different faults as possible: consecutive turns use each fault once before one
    repeats.
    """
    points = (POINTS if sink == "kafka" else LEDGER_POINTS) + (STATE_POINTS if kind in WINDOWS_KINDS else ())
    choose = random.Random(f"{sink} {seed}")
    turns: list[Turn] = []
    while len(turns) < n_turns:
        order = {victim: choose.sample(points, len(points)) for victim in choose.sample(victims, len(victims))}
        turns += [(order[victim][i], victim) for i in range(len(points)) for victim in order]
        turns.append(("after-commit", "answer"))
    return turns[:n_turns]


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
    else:
        reported = [("before-offset-log", "checkpoint")]
    return [reported[i % len(reported)] for i in range(n_turns)]
