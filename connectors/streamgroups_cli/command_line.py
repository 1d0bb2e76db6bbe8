"""The command ``streamgroups``: combines its command groups, one file each.

``streamgroups_cli.main`` calls it. The file of a command is imported when the command is called, and imports its
connector inside the command, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from streamgroups._version import __version__
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.extras import explained
from streamgroups_cli.bad_values import bad_value
from streamgroups_cli.exits import ExitCode, exit_code
from streamgroups_cli.lazy_commands import lazy_app
from streamgroups_cli.output import SCHEMA_VERSION, is_json_requested, json_text


def _print_version(required: bool) -> None:
    if required:
        print(f"streamgroups {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


app = lazy_app(
    "Kafka consumer groups for Spark Structured Streaming.",
    {
        "groups": "streamgroups_cli.groups:app",
        "topics": "streamgroups_cli.topics:app",
        "processors": "streamgroups_cli.processors:app",
        "connections": "streamgroups_cli.connections:app",
        "gaps": "streamgroups_cli.gaps:gaps",
        "dlq": "streamgroups_cli.dlq:app",
        "cursors": "streamgroups_cli.cursors:app",
        "broker": "streamgroups_cli.broker:app",
        "state": "streamgroups_cli.state:app",
        "savepoint": "streamgroups_cli.savepoints:app",
        "checkpoint": "streamgroups_cli.checkpoint:app",
        "instance": "streamgroups_cli.instances:app",
        "worker": "streamgroups_cli.workers:app",
        "metrics": "streamgroups_cli.metrics:metrics",
        "doctor": "streamgroups_cli.doctor:doctor",
    },
    name="streamgroups",
    callback=_options,
    # Commands inherit it.
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Runs the command line. :mod:`streamgroups_cli.exits` defines the exit code of an error.

    With ``-o json`` the last line of standard error is the error as a JSON object, including errors in the command
    line.
    """
    arguments = sys.argv[1:]
    as_json = is_json_requested(arguments)
    try:
        with _naming_extras():
            sys.exit(app(standalone_mode=False))
    except StreamGroupsError as e:
        error = e
    except typer.Abort:
        error = StreamGroupsError("The command was interrupted.")
    except Exception as e:
        # Releases of Typer with a copy of Click and those without one have no common name for this class.
        usage: Any = e
        if not hasattr(usage, "format_message"):
            raise
        found = bad_value(usage, arguments)
        if found is None and not as_json:
            usage.show()
            sys.exit(ExitCode.USAGE)
        error = found or InvalidOption(usage.format_message(), remedy="See --help.")
    text = json_text({"schema_version": SCHEMA_VERSION, "error": error.document}) if as_json else f"Error: {error}"
    print(text, file=sys.stderr)
    sys.exit(exit_code(error))


@contextmanager
def _naming_extras() -> Iterator[None]:
    try:
        yield
    except ImportError as e:
        raise explained(e, "This command") from e
