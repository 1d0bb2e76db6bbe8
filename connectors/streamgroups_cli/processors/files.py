"""The arguments of the commands for processors, and the files that they name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.connections.config_file import load_connections
from streamgroups.connections.named import Connections
from streamgroups.errors import InvalidOption
from streamgroups.processors.problems import Problem
from streamgroups.processors.processor import DEFAULT_INSTANCE, NAME, Processor, registries
from streamgroups.processors.rules import conflicts
from streamgroups_spark.processors.yaml_text import read_text

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="YAML files of processors.", show_default=False)]
OneFile = Annotated[Path, typer.Argument(metavar="FILE", help="The YAML file of the processor.", show_default=False)]
Instance = Annotated[
    str,
    typer.Option("--instance", "-i", metavar="NAME", help="The instance: the group is NAME.<name of the processor>."),
]
LOCAL = DEFAULT_INSTANCE


def check_instance(instance: str) -> str:
    """Returns the name of an instance.

    Raises:
        InvalidOption: if it is no such name.

    >>> check_instance("board.eu")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: 'board.eu' is not a name of an instance. Use letters, digits, '_' and '-'.
    """
    if not NAME.fullmatch(instance):
        raise InvalidOption(f"'{instance}' is not a name of an instance.", remedy="Use letters, digits, '_' and '-'.")
    return instance


def read_files(files: Sequence[Path], instance: str) -> tuple[list[Processor], list[Problem]]:
    """Returns the processors of files, and all problems of them.

    Args:
        files: the files.
        instance: the instance in which they run.

    Raises:
        InvalidOption: if the file of connections is invalid.
    """
    check_instance(instance)
    found, problems = [], []
    connections = load_connections()
    for file in files:
        try:
            content = file.read_bytes()
        except OSError as e:
            problems.append(Problem(0, "", f"The file cannot be read: {e.strerror}.", "Correct its path.", str(file)))
            continue
        processor, of_file = read_text(content, str(file))
        problems += of_file
        if processor is not None:
            found.append(processor)
            problems += connection_problems(processor, connections)
    return found, [*problems, *conflicts(found, instance)]


def connection_problems(processor: Processor, connections: Connections) -> Iterable[Problem]:
    """Returns the connections of a processor that do not exist, or are of another type.

    Args:
        processor: the processor.
        connections: the connections of this machine.
    """
    sinks = {"sink": processor.sink, "dead_letters": processor.dead_letters}
    required = [("source.connection", processor.source.connection, "kafka")]
    required += [
        (f"{field}.connection", str(sink.connection), sink.kind.value)
        for field, sink in sinks.items()
        if sink is not None and sink.connection is not None
    ]
    required += [(field, name, "schema-registry") for field, name in registries(processor.steps)]
    for field, name, kind in required:
        line = processor.lines.get(field, 0)
        try:
            found = connections.get(name)
        except InvalidOption as e:
            yield Problem(line, field, e.what, e.remedy, processor.file)
            continue
        if found.type != kind:
            what = f"Connection '{name}' is of type {found.type}, but type {kind} is required here."
            others = sorted(it.name for it in connections.named.values() if it.type == kind)
            remedy = f"Use one of: {', '.join(others)}." if others else "Name another connection."
            yield Problem(line, field, what, remedy, processor.file)
