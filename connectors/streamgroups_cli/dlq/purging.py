"""``streamgroups dlq purge``: deletes letters from the beginning of each partition of a topic, or rows of a table.

It prints a plan, and ``--execute`` applies it. ``streamgroups_cli.dlq`` imports it. Source: KIP-107; SEMANTICS O2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Annotated

import typer

from streamgroups.dlq.redrive import Purge, State, plan_purge
from streamgroups.dlq.stored_letters import Selection, StoredLetter
from streamgroups.dlq.table_letters import AnyLetter, TablePurge, plan_table_purge
from streamgroups.errors import PartlyDone
from streamgroups.partitions import TopicPartition
from streamgroups.positions import parse_time_ms
from streamgroups.printable import listed
from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.dlq import queue as queues
from streamgroups_cli.dlq.queue import DlqArgument, Queue, QueueOptions, TableQueue, TopicQueue
from streamgroups_cli.groups.apply import NOTHING_TO_DO, ONLY_A_PLAN
from streamgroups_cli.options import ExecuteOption, with_options
from streamgroups_cli.output import Output, OutputOption, emit, emit_rows, print_message

_COUNTS = (Column("deleted", right=True), *(Column(state.name.lower(), right=True) for state in State))
_COLUMNS = (
    Column("partition", right=True),
    Column("beginning_offset", right=True),
    Column("new_beginning_offset", right=True),
    *_COUNTS,
)


@with_options
def purge(
    options: QueueOptions,
    dlq: DlqArgument,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="Only letters that failed before this time.")
    ] = None,
    include_waiting: Annotated[
        bool, typer.Option("--include-waiting", help="Delete letters that were not redriven too.")
    ] = False,
    execute: ExecuteOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Delete redriven letters. In a topic, up to the first letter of each partition that must remain."""
    before_ms = None if before is None else parse_time_ms(before, option="--before")
    with options.queue(dlq) as queue:
        states = _states(queue)
        if isinstance(queue, TableQueue):
            letters = ((it.letter, state) for it, state in states)
            rows = plan_table_purge(letters, before_ms=before_ms, include_waiting=include_waiting)
            _emit_counts(dlq, rows, output, dry_run=not execute)
            queue.warn_of_foreign()
            if _is_applied(rows.letters, execute):
                _print_deleted(queue.table.delete(rows.letters))
            return
        found = [(it, state) for it, state in states if isinstance(it, StoredLetter)]
        plan = plan_purge(found, queue.ends, queue.first_foreign, before_ms=before_ms, include_waiting=include_waiting)
        _emit(dlq, plan, queue, output, dry_run=not execute)
        queue.warn_of_foreign()
        _warn_of_kept(plan)
        due = {it.topic_partition: it.next_offset for it in plan if it.deleted}
        if _is_applied(due, execute):
            _delete_before(queue.cluster, due, options.timeout)
            _print_deleted(sum(sum(it.deleted.values()) for it in plan))


def _states(queue: Queue) -> Iterator[tuple[AnyLetter, State]]:
    """All letters with their states. Their values can be large, and are left out."""
    for stored, state in queue.states(Selection()):
        yield replace(stored, letter=replace(stored.letter, key=None, value=None, headers=())), state


def _warn_of_kept(plan: Sequence[Purge]) -> None:
    kept = sum(it.kept for it in plan)
    if kept:
        print_message(
            f"{kept} letters remain because a letter before them must remain. Kafka deletes from the beginning of a "
            "partition only."
        )


def _is_applied(due: Sized, execute: bool) -> bool:
    """Returns whether letters are deleted now, and reports why they are not."""
    if due and execute:
        return True
    print_message(ONLY_A_PLAN if due else NOTHING_TO_DO)
    return False


def _delete_before(cluster: Cluster, due: Mapping[TopicPartition, int], timeout: str) -> None:
    failures = queues.delete_before(cluster, due, timeout)
    if failures.keys() >= due.keys():
        raise next(iter(failures.values()))
    if failures:
        raise PartlyDone(
            f"The letters of {listed(failures)} could not be deleted. {next(iter(failures.values())).what}",
            remedy="Remove the cause, and run the command again.",
        )


def _print_deleted(count: int) -> None:
    print_message(f"{count} letter{'' if count == 1 else 's'} deleted.")


def _emit_counts(dlq: str, plan: TablePurge, output: Output, *, dry_run: bool) -> None:
    table = Table(_COUNTS, [_counts(plan.deleted)])
    emit(
        output,
        document=lambda: {"dry_run": dry_run, "dlq": dlq, **table.documents[0]},
        tables=lambda: [table],
    )


def _counts(deleted: Mapping[State, int]) -> list[Cell]:
    return [sum(deleted.values()), *(deleted.get(state, 0) for state in State)]


def _emit(dlq: str, plan: Sequence[Purge], queue: TopicQueue, output: Output, *, dry_run: bool) -> None:
    rows: list[Sequence[Cell]] = []
    for it in plan:
        beginning = queue.beginnings[it.topic_partition]
        new = it.next_offset if it.deleted else beginning
        rows.append([it.topic_partition.partition, beginning, new, *_counts(it.deleted)])
    emit_rows(output, "partitions", Table(_COLUMNS, rows), dry_run=dry_run, dlq=dlq)
