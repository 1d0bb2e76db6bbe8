"""The duration of ``streamgroups groups`` with many groups, including its start, compared with Kafka's own tool.

A family of ``benchmarks.command``, on a separate broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.figures import Row, S
from benchmarks.many_groups import COMMANDS, GROUPS, PARTITIONS, many_groups, our_groups_command
from benchmarks.sources import STREAMGROUPS, stream_rows

_TOOL = "kafka-consumer-groups.sh"


def groups_command(bench: Bench) -> Iterator[Row]:
    """One row for each command."""
    with many_groups() as kafka:
        for what, (own, other) in COMMANDS.items():
            line = f"groups {what}, of {GROUPS} groups with {PARTITIONS} partitions"
            contestants = {
                STREAMGROUPS: partial(_took_s, partial(our_groups_command, kafka, *own)),
                _TOOL: partial(_took_s, partial(kafka.run_tool, "consumer-groups", *other)),
            }
            yield from stream_rows(bench, line, S, contestants, bench.scale.rounds)


def _took_s(run: Callable[[], object]) -> float:
    began_s = time.monotonic()
    run()
    return time.monotonic() - began_s
