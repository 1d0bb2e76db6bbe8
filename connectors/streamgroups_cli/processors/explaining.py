"""``streamgroups processors explain``: what processors do, where they keep state, and what they need. Source: SEMANTICS P1."""

from __future__ import annotations

from typing import Any

from streamgroups.processors.explanation import Explanation, explained
from streamgroups.processors.problems import check
from streamgroups.processors.rules import warnings
from streamgroups.tables import Column, Table
from streamgroups_cli.output import Output, OutputOption, emit
from streamgroups_cli.processors.files import LOCAL, Files, Instance, read_files
from streamgroups_spark.processors.run_directories import state_directory

_FACTS = (Column("processor"), Column("fact"), Column("value", is_prose=True))
_STEPS = (Column("processor"), Column("step"), Column("function"), Column("arguments", is_prose=True), Column("state"))
_REQUIREMENTS = tuple(map(Column, ("processor", "resource", "permission", "needed_for")))


def explain(files: Files, instance: Instance = LOCAL, output: OutputOption = Output.table) -> None:
    """Show the steps, the delivery, the state and the required permissions of processors.

    Several files are explained together, with a warning for each table that several of them append to.

    Exit code: 0, or 2 for a file with a mistake.
    """
    processors, problems = read_files(files, instance)
    check(problems)
    found = {
        it.name: explained(it, instance, state_directory=state_directory(it.group_id(instance))) for it in processors
    }
    given = warnings(processors, instance)
    emit(output, document=lambda: _document(found, given), tables=lambda: _tables(found, given))


def _document(found: dict[str, Explanation], given: tuple[str, ...]) -> dict[str, Any]:
    return {
        "processors": [{"name": name, **it.document} for name, it in found.items()],
        "warnings": list(given),
    }


def _tables(found: dict[str, Explanation], given: tuple[str, ...]) -> list[Table]:
    tables = [
        Table(_FACTS, [(name, *fact) for name, it in found.items() for fact in it.facts.items()]),
        Table(_STEPS, [(name, *step) for name, it in found.items() for step in it.steps]),
        Table(_REQUIREMENTS, [(name, *needed) for name, it in found.items() for needed in it.requirements]),
    ]
    if given:
        tables.append(Table((Column("warning", is_prose=True),), [(it,) for it in given]))
    return tables
