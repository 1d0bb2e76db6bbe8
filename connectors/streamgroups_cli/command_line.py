"""The command ``streamgroups``: combines its command groups, one file each.

``streamgroups_cli.main`` calls it. The file of a command is imported when the command is called, and imports its
connector inside the command, so that ``--help`` is fast. Option values that cannot be parsed have errors in the words of all
other errors: Typer's releases parse with Click or with pydantic, whose texts are about their own types, so the text is made
from the declaration of the option. Source: the attributes of ``typer.BadParameter``, which all releases have.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

import typer

from streamgroups._version import __version__
from streamgroups.errors import InvalidOption, StreamGroupsError
from streamgroups.extras import explained
from streamgroups.printable import printable
from streamgroups_cli import standard_output
from streamgroups_cli.exits import ExitCode, Interrupted, exit_code
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
    standard_output.prepare()
    try:
        with _naming_extras():
            code = app(standalone_mode=False)
            # A full disk is an error of the command, and not of the exit of Python.
            sys.stdout.flush()
        sys.exit(code)
    except StreamGroupsError as e:
        error = e
    except Interrupted as e:
        # The message of the command precedes it.
        if as_json:
            print(_as_json(e.error), file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe, such as head, has ended.
        standard_output.drop()
        sys.exit(ExitCode.ERROR)
    except (OSError, UnicodeError) as e:
        standard_output.drop()
        error = standard_output.failure(e)
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
    print(_as_json(error) if as_json else f"Error: {error}", file=sys.stderr)
    sys.exit(exit_code(error))


def _as_json(error: StreamGroupsError) -> str:
    return json_text({"schema_version": SCHEMA_VERSION, "error": error.document})


@contextmanager
def _naming_extras() -> Iterator[None]:
    try:
        yield
    except ImportError as e:
        raise explained(e, "This command") from e


def bad_value(error: Exception, arguments: Sequence[str]) -> InvalidOption | None:
    """Returns the error for a value that an option rejects; ``None`` for any other usage error.

    Args:
        error: the usage error.
        arguments: the command line.
    """
    param, context = getattr(error, "param", None), getattr(error, "ctx", None)
    names = [name for name in getattr(param, "opts", ()) if name.startswith("-")]
    if not names or context is None or type(error).__name__ != "BadParameter":
        return None
    shown = max(names, key=len)
    values = _values(names, arguments)
    # Of several values of a repeatable option, any can be the invalid one.
    value = values[-1] if values and not (getattr(param, "multiple", False) and len(values) > 1) else None
    what = f"Option '{shown}' has an invalid value." if value is None else f"Option '{shown}' is '{printable(value)}'."
    declared = inspect.signature(context.command.callback, eval_str=True).parameters.get(
        str(getattr(param, "name", ""))
    )
    return InvalidOption(what, remedy="See --help." if declared is None else _expected(declared.annotation))


def _values(names: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The values of an option in a command line: ``--limit x``, ``--limit=x``, ``-n x`` or ``-nx``.

    >>> _values(["--limit", "-n"], ["list", "--limit=7", "-n", "8", "-nx"]), _values(["--limit"], ["list"])
    (['7', '8', 'x'], [])
    """
    found = []
    for argument, following in zip(arguments, [*arguments[1:], None], strict=True):
        for name in names:
            if argument == name:
                found += [] if following is None else [following]
            elif argument.startswith(f"{name}=" if name.startswith("--") else name):
                found.append(argument.removeprefix(name).removeprefix("=" if name.startswith("--") else ""))
    return found


def _expected(annotation: Any) -> str:
    """Returns what the option accepts.

    >>> _expected(int | None), _expected(list[float])
    ('It must be a whole number.', 'It must be a number.')
    """
    options: Any = None
    if get_origin(annotation) is Annotated:
        annotation, options = get_args(annotation)[:2]
    types = list(_types(annotation))
    for it in types:
        if issubclass(it, Enum):
            return f"Allowed values: {', '.join(str(member.value) for member in it)}."
    if float in types or int in types:
        number = "a number" if float in types else "a whole number"
        low, high = getattr(options, "min", None), getattr(options, "max", None)
        limits = {(True, True): f" from {low} to {high}", (True, False): f" of at least {low}"}
        return f"It must be {number}{limits.get((low is not None, high is not None), '')}."
    return "See --help."


def _types(annotation: Any) -> Iterator[type]:
    inner = get_args(annotation)
    if not inner and isinstance(annotation, type):
        yield annotation
    for it in inner:
        yield from _types(it)
