"""``streamgroups dlq export``: writes letters into a file of JSON lines, in which their values can be repaired.

``streamgroups_cli.dlq`` imports it. :mod:`streamgroups.dlq.letter_files` defines the lines.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.dlq.letter_files import document_of
from streamgroups.dlq.redrive import State, state_of
from streamgroups_admin.groups.undo_files import write_new
from streamgroups_cli.connection import Connect
from streamgroups_cli.dlq.queue import (
    DEFAULT_MAX_ATTEMPTS,
    DlqArgument,
    MaxAttemptsOption,
    SelectOptions,
    committed,
    queue_of,
)
from streamgroups_cli.dlq.tables import TableOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import json_text, print_message


@with_options
def export(
    connect: Connect,
    select: SelectOptions,
    table: TableOptions,
    dlq: DlqArgument,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A new file. Default: standard output.")
    ] = None,
    max_attempts: MaxAttemptsOption = DEFAULT_MAX_ATTEMPTS,
) -> None:
    """Write the letters that were not redriven as JSON lines. 'redrive --from-file' reads them."""
    with committed(connect)() as cluster:
        queue = queue_of(cluster, dlq, table)
        redriven = queue.redriven()
        letters = {
            it.letter.id: it.letter
            for it in queue.letters(select.selection)
            if state_of(it.letter, redriven, max_attempts) is not State.REDRIVEN
        }
    text = "".join(json_text(document_of(it)) + "\n" for it in letters.values())
    if file is None:
        sys.stdout.write(text)
    else:
        write_new(file, text)
        print_message(f"{len(letters)} letters are in {file}.")
    queue.warn_of_foreign()
