"""``streamgroups dlq list``: the letters of a queue, one line each.

``streamgroups_cli.dlq`` imports it. Source: SEMANTICS P4.
"""

from __future__ import annotations

from collections import deque
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
        count = 0
        kept: deque[tuple[AnyLetter, State]] = deque(maxlen=limit)
        for letter, found in queue.states(select.selection):
            if not state or found in state:
                count += 1
                kept.append((letter, found))
    shown = sorted(kept, key=lambda it: it[0].letter.failed_at_ms)
    emit(
        output,
        document=lambda: {"dlq": dlq, "letters": [document(*it) for it in shown], "count": count},
        tables=lambda: [Table(_COLUMNS, [_row(*it, cut=True) for it in shown])],
        flat=lambda: Table(_COLUMNS, [_row(*it, cut=False) for it in shown]),
    )
    queue.warn_of_foreign()
    if count > len(shown):
        print_message(f"{len(shown)} of {count} letters. --limit {count} lists all.")


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
