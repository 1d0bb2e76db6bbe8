"""``streamgroups dlq list``: the letters of a queue, one line each.

``streamgroups_cli.dlq`` imports it. Source: SEMANTICS P4.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from streamgroups.dlq.letter_files import document_of
from streamgroups.dlq.redrive import State
from streamgroups.dlq.table_letters import AnyLetter
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.dlq.queue import DlqArgument, QueueOptions, SelectOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message

_COLUMNS = (
    Column("failed_at"),
    Column("state"),
    Column("attempt", right=True, rank=1),
    Column("step"),
    Column("error_class"),
    Column("error", is_prose=True),
    Column("id"),
)
_CHARACTERS_SHOWN = 60


@with_options
def list_letters(
    options: QueueOptions,
    select: SelectOptions,
    dlq: DlqArgument,
    state: Annotated[list[State] | None, typer.Option("--state", help="The state of a letter; repeatable.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="The newest N letters.")] = 100,
    output: OutputOption = Output.table,
) -> None:
    """List dead letters, the newest last."""
    with options.queue(dlq) as queue:
        shown, count = _newest((it for it in queue.states(select.selection) if not state or it[1] in state), limit)
    emit(
        output,
        document=lambda: {"dlq": dlq, "letters": [document(*it) for it in shown], "count": count},
        tables=lambda: [Table(_COLUMNS, [_row(*it, cut=True) for it in shown])],
        flat=lambda: Table(_COLUMNS, [_row(*it, cut=False) for it in shown]),
    )
    queue.warn_of_foreign()
    if count > len(shown):
        print_message(f"{len(shown)} of {count} letters. --limit {count} lists all.")


def _newest(letters: Iterable[tuple[AnyLetter, State]], limit: int) -> tuple[list[tuple[AnyLetter, State]], int]:
    """Returns the newest letters, the newest last, and the number of all. Letters of one time stay in their order.

    A queue can have several partitions, which are read one after the other.
    """
    heap: list[tuple[int, int, AnyLetter, State]] = []
    count = 0
    for count, (stored, state) in enumerate(letters, 1):
        heapq.heappush(heap, (stored.letter.failed_at_ms, count, stored, state))
        if count > limit:
            heapq.heappop(heap)
    return [(stored, state) for _, _, stored, state in sorted(heap)], count


def document(stored: AnyLetter, state: State) -> dict[str, Any]:
    """Returns a letter with its state and its place, as an object of a JSON or YAML document."""
    return {**document_of(stored.letter), "state": state.value, **stored.place_fields}


def _row(stored: AnyLetter, state: State, *, cut: bool) -> list[Cell]:
    letter = stored.letter
    error = letter.error
    if cut and len(error) > _CHARACTERS_SHOWN:
        error = error[:_CHARACTERS_SHOWN] + "…"
    return [
        utc(letter.failed_at_ms),
        state.value,
        letter.attempt,
        letter.step,
        letter.error_class,
        error,
        letter.id,
    ]
