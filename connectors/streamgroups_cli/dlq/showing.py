"""``streamgroups dlq show``: everything that a letter contains.

``streamgroups_cli.dlq`` imports it. Source: SEMANTICS P4.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from streamgroups.dlq.redrive import State
from streamgroups.dlq.stored_letters import Selection
from streamgroups.dlq.table_letters import AnyLetter
from streamgroups.errors import InvalidOption
from streamgroups.printable import listed
from streamgroups.shell_quoting import command
from streamgroups.tables import Cell, Column, Table
from streamgroups.times import utc
from streamgroups_cli.dlq.listing import document
from streamgroups_cli.dlq.queue import DlqArgument, QueueOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.record_output import Show, ShowOption, words_of

_COLUMNS = (Column("field"), Column("content"))
_FLAT = (Column("id"), *_COLUMNS)


@with_options
def show_letters(
    options: QueueOptions,
    dlq: DlqArgument,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="The ids of letters.")],
    show: ShowOption = Show.auto,
    output: OutputOption = Output.table,
) -> None:
    """Show letters with their keys, values and headers."""
    with options.queue(dlq) as queue:
        found = list(queue.states(Selection(ids=frozenset(ids))))
    emit(
        output,
        document=lambda: {"dlq": dlq, "letters": [document(*it) for it in found]},
        tables=lambda: [Table(_COLUMNS, list(_rows(*it, show)), f"Letter {it[0].letter.id}") for it in found],
        flat=lambda: Table(_FLAT, [[it[0].letter.id, *row] for it in found for row in _rows(*it, show)]),
    )
    missing = sorted(set(ids) - {it.letter.id for it, _ in found})
    if missing:
        raise InvalidOption(
            f"'{dlq}' contains no letter {listed(missing)}.", remedy=f"See: {command('dlq list', [dlq])}."
        )


def _rows(stored: AnyLetter, state: State, show: Show) -> Iterator[list[Cell]]:
    letter, origin = stored.letter, stored.letter.origin
    yield ["state", state.value]
    yield ["attempt", letter.attempt]
    yield ["failed at", utc(letter.failed_at_ms)]
    yield ["group", letter.group_id]
    yield ["query", letter.query]
    yield ["step", letter.step]
    yield ["error", f"{letter.error_class}: {letter.error}"]
    for name, text in letter.details.items():
        yield [name, text]
    if origin is not None:
        yield ["source", f"{origin.topic_partition}@{origin.offset}"]
        yield ["timestamp", utc(origin.timestamp_ms)]
    yield ["stored in", stored.place]
    for name, value in letter.headers:
        yield [f"header {name}", _words(value, show)]
    yield ["key", _words(letter.key, show)]
    yield ["value", _words(letter.value, show)]


def _words(field: bytes | None, show: Show) -> str | None:
    return None if field is None else words_of(field, show)
