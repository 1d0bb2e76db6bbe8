"""``streamgroups processors validate``: all mistakes in files of processors, without Spark. Source: SEMANTICS P1."""

from __future__ import annotations

from dataclasses import asdict

import typer

from streamgroups.processors.problems import Problem
from streamgroups.tables import Column, Table
from streamgroups_cli.exits import ExitCode
from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.processors.files import LOCAL, Files, Instance, read_files

_COLUMNS = tuple(map(Column, ("file", "line", "field", "what", "remedy")))


def validate(files: Files, instance: Instance = LOCAL, output: OutputOption = Output.table) -> None:
    """Check files of processors, without Spark and without a connection to any system.

    All mistakes are reported, each with its file, line, field and remedy. Several files are checked together: each needs its
    own name.

    Exit code: 0 without a mistake, 2 with one.
    """
    processors, problems = read_files(files, instance)
    emit(
        output,
        document=lambda: {"valid": not problems, "problems": [_document(it) for it in problems]},
        tables=list,
        flat=lambda: Table(_COLUMNS, [[_document(it)[column.name] for column in _COLUMNS] for it in problems]),
    )
    if output is Output.table:
        for it in problems:
            typer.echo(str(it), err=True)
        if not problems:
            print("\n".join(f"{it.file}: processor '{it.name}' is valid." for it in processors))
    if problems:
        raise typer.Exit(ExitCode.USAGE)


def _document(problem: Problem) -> dict[str, str | int]:
    return asdict(problem)
