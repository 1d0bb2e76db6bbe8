"""``streamgroups instance status``: the workers of an instance with their slots, and its processors. Source: SEMANTICS P2."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgroups.instances.overview import Overview, WorkerView, overview
from streamgroups.tables import Column, Table
from streamgroups_cli.connection import Connect
from streamgroups_cli.instance_log import InstanceArgument, OpenInstance, open_instance
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, OutputOption, emit, page_file, print_message
from streamgroups_cli.replica_tables import replica_document, replica_table

_WORKERS = (
    Column("worker"),
    Column("state"),
    Column("slots", right=True),
    Column("used", right=True),
    Column("processors", is_prose=True),
    Column("host", rank=1),
    Column("pid", right=True, rank=2),
)
_INTERVAL_S = 2.0
#: Clears the screen, and moves the cursor to its start.
_CLEAR = "\x1b[2J\x1b[H"


@with_options
def status(
    connect: Connect,
    name: InstanceArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C ends it.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page with a picture of the instance.", show_default=False),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Show the workers and the processors of an instance."""
    with open_instance(connect, name) as instance, suppress(KeyboardInterrupt):
        for number, found in enumerate(_overviews(instance, repeated=watch)):
            if html is not None:
                _write_page(html, found, instance.cluster.now_ms())
            if number and output is Output.table and sys.stdout.isatty():
                sys.stdout.write(_CLEAR)
            if output is Output.table:
                print(f"Instance '{name}': manager {found.manager}.\n")
            if number and output is Output.yaml:
                print("---")
            emit(output, document=lambda shown=found: document(shown), tables=lambda shown=found: tables(shown))  # type: ignore[misc]
            sys.stdout.flush()


def _overviews(instance: OpenInstance, *, repeated: bool) -> Iterator[Overview]:
    with closing(instance.log.reader()) as reader:
        while True:
            reader.read_to_end(instance.timeout_s)
            yield overview(instance.name, reader.state, instance.cluster.now_ms())
            if not repeated:
                return
            time.sleep(_INTERVAL_S)


def document(found: Overview) -> dict[str, Any]:
    """The instance as a document."""
    return {
        "instance": found.instance,
        "manager": found.manager,
        "workers": [_worker(it) for it in found.workers],
        "processors": [replica_document(it) for it in found.replicas],
    }


def tables(found: Overview) -> list[Table]:
    """The instance as tables."""
    rows = [list(_worker(it).values()) for it in found.workers]
    shown = [[", ".join(cell) if isinstance(cell, list) else cell for cell in row] for row in rows]
    return [Table(_WORKERS, shown), replica_table(found.replicas)]


def _worker(view: WorkerView) -> dict[str, Any]:
    worker = view.worker
    return {
        "worker": worker.id,
        "state": view.state,
        "slots": worker.slots,
        "used": len(view.replicas),
        "processors": [str(it.replica) for it in view.replicas],
        "host": worker.host,
        "pid": worker.pid,
    }


def _write_page(file: Path, found: Overview, now_ms: int) -> None:
    from streamgroups_admin.reports.instance_page import instance_page

    with page_file(file):
        file.write_text(instance_page(found, now_ms), encoding="utf-8")
    print_message(f"Wrote {file}")
