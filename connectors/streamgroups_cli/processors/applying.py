"""``streamgroups processors apply``: defines the processors of a directory in an instance, and shows the difference first.

Source: SEMANTICS P1, P2; ``kubectl apply``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgroups.errors import GroupRejected, InvalidOption
from streamgroups.instances.definition_diff import Difference, Kind, differences
from streamgroups.instances.entries import Definition, Entry
from streamgroups.instances.entry_json import read_definition
from streamgroups.instances.instance_state import InstanceState
from streamgroups.instances.requests import dropped, is_stopped, started
from streamgroups.printable import listed
from streamgroups.processors.problems import check
from streamgroups.tables import Column, Table
from streamgroups_cli.instance_log import InstanceOptions, open_instance
from streamgroups_cli.options import ExecuteOption, with_options
from streamgroups_cli.output import Output, OutputOption, emit, print_message
from streamgroups_cli.processors.files import read_files

_COLUMNS = (
    Column("processor"),
    Column("change"),
    Column("running"),
    Column("details", is_prose=True),
)
_SUFFIXES = (".yaml", ".yml")
_ONLY_A_PLAN = "Nothing was changed: this is the plan. --execute applies it."


@with_options
def apply(
    options: InstanceOptions,
    files: Annotated[
        list[Path],
        typer.Option(
            "--filename",
            "-f",
            metavar="PATH",
            help="A YAML file, or a directory of them; repeatable.",
            show_default=False,
        ),
    ],
    execute: ExecuteOption = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Drop the stopped processors of the instance that no file declares.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Define processors in an instance. A running processor whose definition changes is restarted.

    New processors are not started: see 'streamgroups processors start'. A repeated command completes an interrupted one.

    Exit code: 0, 2 for a file with a mistake, 3 if a running processor would be dropped.
    """
    processors, problems = read_files(_paths(files), options.name)
    check(problems)
    given = {it.name: read_definition(it.name, {"document": it.document}) for it in processors}
    with open_instance(options, options.name) as instance:
        state = instance.state()
        found = differences(state, given)
        emit(output, document=lambda: _document(found), tables=lambda: [_table(found, prune=prune)])
        for it in found:
            for warning in it.warnings:
                print_message(f"Warning: {it.processor}: {warning}")
        entries = _entries(state, found, given, prune=prune)
        if not entries:
            print_message("There is nothing to do.")
        elif not execute:
            print_message(_ONLY_A_PLAN)
        else:
            instance.write(entries)
            new = [it.processor for it in found if it.kind is Kind.ADDED]
            print_message(f"{len(entries)} entries written.")
            if new:
                print_message(f"Start new processors with: streamgroups processors start {' '.join(new)}")


def _paths(files: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in files:
        try:
            inside = (
                sorted(it for it in path.iterdir() if it.suffix in _SUFFIXES and it.is_file())
                if path.is_dir()
                else None
            )
        except OSError as e:
            raise InvalidOption(
                f"Directory '{path}' cannot be read: {e.strerror}.", remedy="Check its permissions."
            ) from e
        if inside is None:
            found.append(path)
            continue
        if not inside:
            raise InvalidOption(
                f"Directory '{path}' contains no YAML file.", remedy="Name a directory with *.yaml files."
            )
        found += inside
    return found


def _entries(
    state: InstanceState, found: Sequence[Difference], given: Mapping[str, Definition], *, prune: bool
) -> list[Entry]:
    entries: list[Entry] = []
    running = [it.processor for it in found if it.kind is Kind.MISSING and not is_stopped(state, it.processor)]
    if prune and running:
        raise GroupRejected(
            f"No file declares the running processors {listed(running)}; nothing was changed.",
            remedy=f"Stop them first: streamgroups processors stop {' '.join(running)}",
        )
    for it in found:
        if it.kind in (Kind.ADDED, Kind.CHANGED):
            entries.append(given[it.processor])
        if it.is_restarted:
            entries.append(started(state, it.processor))
        if it.kind is Kind.MISSING and prune:
            entries += dropped(state, it.processor)
    return entries


def _document(found: Sequence[Difference]) -> dict[str, Any]:
    return {
        "processors": [
            {
                "processor": it.processor,
                "change": it.kind.value,
                "running": it.is_running,
                "outdated": it.is_outdated,
                "changes": [{"path": c.path, "before": c.before, "after": c.after} for c in it.changes],
                "warnings": list(it.warnings),
            }
            for it in found
        ]
    }


def _table(found: Sequence[Difference], *, prune: bool) -> Table:
    rows = []
    for it in found:
        details = "; ".join(map(str, it.changes))
        if it.kind is Kind.MISSING:
            details = (
                "no file declares it: it is dropped" if prune else "no file declares it: it stays; --prune drops it"
            )
        elif it.is_restarted:
            details = f"restarts; {details or 'its query has an earlier definition'}"
        rows.append([it.processor, it.kind.value, "yes" if it.is_running else "no", details or None])
    return Table(_COLUMNS, rows)
