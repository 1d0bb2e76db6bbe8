"""The points, faults and sabotages of a campaign, and the order of its turns. Used by ``integration_tests.campaign``."""

from __future__ import annotations

import random
from collections.abc import Sequence

#: The kinds of queries. ``stateless``: write them. ``stateful``: drop duplicates. ``windows``: count them
#: in windows whose state follows its partition.
KINDS = ("stateless", "stateful", "windows")
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
#: the same, and delete the checkpoint, configure another one, or restore an older one, in turn. ``broker``: kill and
#: restart the broker. ``zombie``: freeze the query until other members own its partitions. ``silence``: freeze the query
#: for less than the session timeout. ``answer``: lose the response to a commit that has succeeded.
VICTIMS = ("worker", "executor", "query", "checkpoint", "broker", "zombie", "silence")
#: The faults of a query that is the only member of its group. No other member can own its partitions, and its state
#: needs its checkpoint.
STATEFUL_VICTIMS = ("worker", "executor", "query", "broker", "silence")
#: The faults of queries with windows. ``reset``: a tool resets the group back while the process waits.
WINDOWS_VICTIMS = (*VICTIMS, "reset")
#: The faults of each kind.
VICTIMS_OF = {"stateless": VICTIMS, "stateful": STATEFUL_VICTIMS, "windows": WINDOWS_VICTIMS}
#: The safeguards that a campaign can disable to verify that it detects the fault. ``ledger``: the transaction or the
#: ledger. ``fence``: the check that rejects a batch of a replaced member. ``batch-id``: identify batches by number
#: instead of by offsets. Of windows, ``state-offset``: load the state of the offset. ``state-segment``: name all segments
#: of a state. ``state-file``: name the file of the attempt that has succeeded.
SABOTAGES = ("ledger", "fence", "batch-id")
STATE_SABOTAGES = ("state-offset", "state-segment", "state-file")

#: A point, and the fault to inject there.
Turn = tuple[str, str]


def all_turns(
    sink: str, n_turns: int, victims: Sequence[str] = VICTIMS, seed: int = 1, kind: str = "stateless"
) -> list[Turn]:
    """Every fault at every point, in a random order that depends on the seed, repeated as needed.

    A short campaign covers as many different faults as possible: consecutive turns use each fault once before one
    repeats.
    """
    points = (POINTS if sink == "kafka" else LEDGER_POINTS) + (STATE_POINTS if kind == "windows" else ())
    choose = random.Random(f"{sink} {seed}")
    turns: list[Turn] = []
    while len(turns) < n_turns:
        order = {victim: choose.sample(points, len(points)) for victim in choose.sample(victims, len(victims))}
        turns += [(order[victim][i], victim) for i in range(len(points)) for victim in order]
        turns.append(("after-commit", "answer"))
    return turns[:n_turns]


def revealing_turns(sink: str, sabotaged: str, n_turns: int) -> list[Turn]:
    """The turns that detect a disabled safeguard."""
    if sabotaged == "ledger":
        # The output is at least once, so no process begins or commits a transaction.
        points = ("inside-transaction",) if sink == "kafka" else ("after-commit",)
        reported = [(point, victim) for point in points for victim in ("worker", "query")]
    elif sabotaged == "fence":
        reported = [("before-offsets" if sink == "kafka" else "before-commit", "zombie")]
    elif sabotaged in STATE_SABOTAGES:
        reported = [("after-commit", "query")]
    else:
        reported = [("before-offset-log", "checkpoint")]
    return [reported[i % len(reported)] for i in range(n_turns)]
