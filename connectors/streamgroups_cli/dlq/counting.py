"""``streamgroups dlq stats``: counts the letters of a queue.

``streamgroups_cli.dlq`` imports it. Source: SEMANTICS P4.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated

import typer

from streamgroups.dlq.letter import DeadLetter
from streamgroups.dlq.redrive import State
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.dlq.queue import DlqArgument, QueueOptions, SelectOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit_rows

_HOUR_MS = 3_600_000


class By(str, Enum):
    """A field by which letters are counted."""

    step = "step"
    error = "error"
    topic = "topic"
    output_topic = "output_topic"
    group = "group"
    query = "query"
    attempt = "attempt"
    hour = "hour"


_FIELDS: Mapping[By, Callable[[DeadLetter], Cell]] = {
    By.step: lambda it: it.step,
    By.error: lambda it: it.error_class,
    By.topic: lambda it: None if it.origin is None else it.origin.topic_partition.topic,
    By.output_topic: lambda it: it.details.get("output_topic"),
    By.group: lambda it: it.group_id,
    By.query: lambda it: it.query,
    By.attempt: lambda it: it.attempt,
    By.hour: lambda it: utc(it.failed_at_ms - it.failed_at_ms % _HOUR_MS),
}


@with_options
def stats(
    options: QueueOptions,
    select: SelectOptions,
    dlq: DlqArgument,
    by: Annotated[
        list[By] | None, typer.Option("--by", help="A field to count by; repeatable. Default: step, error and topic.")
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Count dead letters by step, error and topic, or by other fields."""
    fields = list(dict.fromkeys(by or (By.step, By.error, By.topic)))
    counts: defaultdict[tuple[Cell, ...], Counter[State]] = defaultdict(Counter)
    times: dict[tuple[Cell, ...], tuple[int, int]] = {}
    with options.queue(dlq) as queue:
        for stored, state in queue.states(select.selection):
            letter = stored.letter
            key = tuple(_FIELDS[it](letter) for it in fields)
            counts[key][state] += 1
            first, last = times.get(key, (letter.failed_at_ms, letter.failed_at_ms))
            times[key] = min(first, letter.failed_at_ms), max(last, letter.failed_at_ms)
    columns = [*(Column(it.value) for it in fields), *(Column(name, right=True) for name in _NUMBERS), *_TIMES]
    order = sorted(counts, key=lambda key: (-counts[key].total(), tuple(map(str, key))))
    rows: list[Sequence[Cell]] = [[*key, *_numbers(counts[key]), *map(utc, times[key])] for key in order]
    emit_rows(output, "counts", Table(columns, rows), dlq=dlq)
    queue.warn_of_foreign()


_NUMBERS = ("letters", *(it.name.lower() for it in State))
_TIMES = (Column("first"), Column("last"))


def _numbers(counts: Counter[State]) -> list[int]:
    return [counts.total(), *(counts[it] for it in State)]
