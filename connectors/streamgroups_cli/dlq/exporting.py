"""``streamgroups dlq export``: writes letters into a file of JSON lines, in which their values can be repaired.

``streamgroups_cli.dlq`` imports it. :mod:`streamgroups.dlq.letter_files` defines the lines.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.dlq.letter_files import document_of
from streamgroups.dlq.redrive import State
from streamgroups_admin.groups.stored_files import write_new
from streamgroups_cli.dlq.queue import DlqArgument, QueueOptions, SelectOptions
from streamgroups_cli.options import with_options
from streamgroups_cli.output import json_text, print_message


@with_options
def export(
    options: QueueOptions,
    select: SelectOptions,
    dlq: DlqArgument,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="A new file. Default: standard output.")
    ] = None,
) -> None:
    """Write the letters that were not redriven as JSON lines. 'redrive --from-file' reads them."""
    with options.queue(dlq) as queue:
        states = queue.states(select.selection)
        letters = {it.letter.id: it.letter for it, state in states if state is not State.REDRIVEN}
    text = "".join(json_text(document_of(it)) + "\n" for it in letters.values())
    if file is None:
        sys.stdout.write(text)
    else:
        write_new(file, text)
        print_message(f"{len(letters)} letters are in {file}.")
    queue.warn_of_foreign()
