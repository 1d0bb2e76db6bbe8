"""The errors of option values that cannot be parsed, in the words of all other errors.

``streamgroups_cli.command_line`` calls it. Typer's releases parse with Click or with pydantic, whose texts are about
their own types. So the text here is made from the declaration of the option. Source: the attributes of
``typer.BadParameter``, which all releases have.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Annotated, Any, get_args, get_origin

from streamgroups.errors import InvalidOption
from streamgroups.printable import printable


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
