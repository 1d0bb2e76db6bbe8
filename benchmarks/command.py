"""The command of ``python -m benchmarks``: runs the selected measurements, prints the table, and writes it for the
documentation.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeAlias

from rich.console import Console

from benchmarks.bench import QUICK, TASKS, Bench, Scale, session
from benchmarks.bounds import below
from benchmarks.bulk import LOOP, QUIX, bulk, catch_up
from benchmarks.decoding import decoding
from benchmarks.dedup import dedup
from benchmarks.event_time import event_time
from benchmarks.figures import Missing, Row, S
from benchmarks.groups_command import groups_command
from benchmarks.handover import CONSUMERS, handover
from benchmarks.machine import machine
from benchmarks.processors import processors
from benchmarks.queries import queries
from benchmarks.restart import restarts
from benchmarks.rounds import NotHere, in_short
from benchmarks.savepoints import savepoints
from benchmarks.shapes import compression, partitions, sizes
from benchmarks.sinks import ledger_sinks, sinks
from benchmarks.small_batches import SmallBatches
from benchmarks.sources import SPARK, SPARK_20, STREAMGROUPS
from benchmarks.starts import starts
from benchmarks.state import state, state_owners, state_triggers
from benchmarks.store_checkpoints import store_checkpoints
from benchmarks.tables import remarks, rst, terminal_table
from benchmarks.workers import workers
from streamgroups_broker import EmbeddedKafka

Family: TypeAlias = Callable[[Bench], Iterable[Row]]

_SMALL_BATCHES = SmallBatches()
#: Families of measurements by the names for ``--only``, in the order of the table.
FAMILIES: Mapping[str, Family] = {
    "bulk": bulk,
    "catch-up": catch_up,
    "queries": queries,
    "decoding": decoding,
    "event-time": event_time,
    "small-batches": _SMALL_BATCHES,
    "starts": starts,
    "handover": handover,
    "state": state,
    "state-triggers": state_triggers,
    "state-owners": state_owners,
    "savepoints": savepoints,
    "dedup": dedup,
    "partitions": partitions,
    "sizes": sizes,
    "compression": compression,
    "sinks": sinks,
    "ledger-sinks": ledger_sinks,
    "checkpoints": store_checkpoints,
    "restart": restarts,
    "processors": processors,
    "workers": workers,
    "groups-command": groups_command,
}

_FOOTNOTES = (
    "Figures are medians over the rounds, percentiles are over all triggers of all rounds; the spread is from the lowest to the "
    "highest round.",
    f"{SPARK} is Spark's own source with its defaults, {SPARK_20} the same with kafka.fetch.max.wait.ms=20, which is our reader's "
    "default. The ratio is to the faster of the two; the other has none.",
    f"{CONSUMERS} have the heartbeat interval of librdkafka, 3 seconds, or that of streamgroups. The ratio is to the faster of the two.",
    f"{LOOP} and {QUIX} are one process each; Spark has {TASKS} tasks at once.",
    'Streams read with the trigger availableNow; their figure is that of the trigger unless the line has "start to end".',
    "When a query joins, its first micro-batch starts Python workers and compiles code before it reads: a second or more that a plain "
    "consumer does not have.",
)
_MIN_WIDTH = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code: 1 if a measurement failed, or with ``--check`` is below its bound."""
    requested = _parser().parse_args(arguments)
    console, progress = Console(), Console(stderr=True)
    if not console.is_terminal:
        console = Console(width=max(console.width, _MIN_WIDTH))
    began_s = time.monotonic()
    footnotes = (
        ("A quick run, to see that it works: its figures mean nothing.", *_FOOTNOTES) if requested.quick else _FOOTNOTES
    )

    def report_step(text: str) -> None:
        progress.print(f"[dim]{time.monotonic() - began_s:5.0f} s  {text}[/]", highlight=False)

    with (
        tempfile.TemporaryDirectory(prefix="streamgroups-bench-", dir=requested.directory) as directory,
        # The JVM compiles fully, and the memory for the records remains in the page cache instead of the heap.
        EmbeddedKafka(data_dir=Path(directory) / "kafka", jvm_options=(), heap_mb=1024) as kafka,
    ):
        try:
            with session() as spark:
                bench = Bench(
                    spark,
                    kafka.bootstrap_servers,
                    Path(directory),
                    QUICK if requested.quick else Scale(),
                    quix_python=requested.quix_python,
                    report_step=report_step,
                )
                facts = machine(spark, kafka.version)
                rows: list[Row] = []
                for rows in measure(bench, requested.only or FAMILIES):
                    took_s = time.monotonic() - began_s
                    facts["When"] = f"{datetime.now(timezone.utc):%Y-%m-%d}, in {took_s / 60:.0f} minutes"
                    # After each family, so that an interrupted run keeps what it has measured.
                    if requested.out:
                        requested.out.write_text(rst(rows, facts, footnotes), encoding="utf-8")
        except NotHere as e:
            console.print(str(e), markup=False, highlight=False)
            return 1
    _print(console, rows, facts, footnotes)
    if requested.phases:
        console.print(_SMALL_BATCHES.phases_table())
    is_wrong = any(row.failures for row in rows) or (requested.check and bool(below(rows)))
    return 1 if is_wrong else 0


def measure(bench: Bench, names: Iterable[str]) -> Iterator[list[Row]]:
    """Runs families one after the other, and yields all rows so far after each of them.

    A failed family has a row with the reason; the others continue.
    """
    rows: list[Row] = []
    for name in names:
        try:
            # One by one, so that rows before a failure are kept.
            for row in FAMILIES[name](bench):
                rows.append(row)
        except Exception as e:
            rows.append(
                Row(name, S, Missing(f"{STREAMGROUPS}: {in_short(e)}"), "", Missing("", is_failure=False), None)
            )
        yield rows


def _print(console: Console, rows: Sequence[Row], facts: Mapping[str, str], footnotes: Sequence[str]) -> None:
    console.print(terminal_table(rows))
    for line in (*footnotes, *remarks(rows)):
        console.print(f"· {line}", markup=False, highlight=False)
    for name, value in facts.items():
        console.print(f"{name}: {value}", markup=False, highlight=False)
    slow = below(rows)
    console.print(f"Lines below their bounds: {len(slow)}", markup=False, highlight=False)
    for line in slow:
        console.print(f"  {line}", markup=False, highlight=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Our figures beside those of others.")
    parser.add_argument("--quick", action="store_true", help="everything once and small, to see that it works")
    parser.add_argument("--only", nargs="+", choices=FAMILIES, metavar="NAME", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a line is below its bound")
    parser.add_argument("--phases", action="store_true", help="also where the time of small batches goes")
    parser.add_argument("--out", type=Path, metavar="FILE.rst", help="write the table as reStructuredText, too")
    parser.add_argument("--quix-python", type=Path, metavar="PYTHON", help="a Python that has Quix Streams, to compare")
    parser.add_argument(
        "--directory", type=Path, help="for the broker's logs and checkpoints, on a disk with 5 GB free"
    )
    return parser
