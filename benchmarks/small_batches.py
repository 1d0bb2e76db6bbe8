"""The duration of a micro-batch with few records.

A family of ``benchmarks.command``. The sources read the same records of the same topic with the same
``maxOffsetsPerTrigger`` into the sink ``noop``. The comparison uses ``durationMs.triggerExecution`` of Spark's progress
reports. Short runs alternate. The first batches of each run start processes and compile code, and are ignored. Source:
Spark's "Structured Streaming Programming Guide", Monitoring.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from rich.table import Table

from benchmarks.bench import Bench
from benchmarks.figures import MS, Missing, Row, compare, percentile_of
from benchmarks.rounds import WrongCount
from benchmarks.sources import EMPTY, SOURCES, SPARKS, STREAMGROUPS, micro_batches
from benchmarks.tables import number
from benchmarks.workload import TopicSpec

PARTITIONS = 8
#: The phases of a trigger by Spark's names, in the order of a micro-batch.
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")

#: The options of the writer. With the second ones Spark writes the checkpoint beside the batches.
WRITERS: Mapping[str, Mapping[str, str]] = {
    "": {},
    ", asynchronous progress": {"asyncProgressTrackingEnabled": "true"},
}
#: The durations of one trigger, by Spark's names, in milliseconds.
Durations: TypeAlias = Mapping[str, float]
Found: TypeAlias = Mapping[str, "list[list[Durations]] | Missing"]


class SmallBatches:
    """The family, and its detailed results.

    It stores the phases of every trigger for the table of ``--phases``.
    """

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def __call__(self, bench: Bench) -> Iterator[Row]:
        """Triggers of each size in the scale."""
        batches, warm_up = bench.scale.batches, bench.scale.warm_up_batches
        for records, (how, writer) in itertools.product(bench.scale.triggers, WRITERS.items()):
            topic = bench.topic(TopicSpec(records * (batches + warm_up), PARTITIONS))
            what = f"trigger of {records:,} records{how}"
            runs: dict[str, Callable[[], list[Durations]]] = {
                name: partial(_triggers, bench, name, topic, records, batches, warm_up, writer)
                for name in (*SOURCES, EMPTY)
            }
            found = self._found[what] = bench.race(what, runs, bench.scale.rounds)
            for percent in (50, 99):
                figures = {
                    name: cell
                    if isinstance(cell, Missing)
                    else percentile_of([[d["triggerExecution"] for d in run] for run in cell], percent)
                    for name, cell in found.items()
                }
                yield from compare(
                    f"{what}, p{percent}", MS, figures, own=STREAMGROUPS, alternatives=SPARKS, limits=(EMPTY,)
                )

    def phases_table(self) -> Table:
        """The durations of the phases of the triggers."""
        table = Table(title="Where a trigger's time goes: medians, milliseconds")
        for name in ("trigger", "source", *PHASES):
            table.add_column(name, justify="right" if name in PHASES else "left")
        for what, found in self._found.items():
            for name, cell in found.items():
                if not isinstance(cell, Missing):
                    triggers = [trigger for run in cell for trigger in run]
                    medians = (statistics.median(trigger.get(p, 0) for trigger in triggers) for p in PHASES)
                    table.add_row(what, name, *map(number, medians))
        return table


def _triggers(
    bench: Bench, name: str, topic: str, records: int, batches: int, warm_up: int, writer: Mapping[str, str]
) -> list[Durations]:
    """The triggers of one run of one source after the warm-up."""
    progress = micro_batches(bench, name, topic, records, batches + warm_up, writer)
    arrived = sum(p.numInputRows for p in progress)
    if arrived != records * (batches + warm_up):
        raise WrongCount(f"{arrived} of {records * (batches + warm_up)} records were read")
    # Each source distributes the offsets of a batch to partitions in its own way, as integers; the last batch may be
    # smaller.
    full: list[Durations] = [p.durationMs for p in progress if abs(p.numInputRows - records) <= PARTITIONS]
    if len(full) <= warm_up:
        raise WrongCount(f"only {len(full)} triggers read about {records} records")
    return full[warm_up:]
