"""Options that several commands share: the fields of a dataclass, which is a parameter of each of these commands.

``connection`` and ``groups.apply`` declare such dataclasses. typer itself reads options from the parameters of a
function only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from streamgroups.errors import InvalidOption

ExecuteOption = Annotated[
    bool,
    typer.Option("--execute/--dry-run", help="Apply the plan; otherwise only print it.", show_default="dry-run"),
]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces each parameter that is a dataclass by its fields, after the other parameters.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Limits:
    ...     most: int = 3
    >>> def show(limits: Limits, name: str) -> None:
    ...     print(name, limits)
    >>> with_options(show)(name="flights", most=5)
    flights Limits(most=5)
    """
    own = inspect.signature(command, eval_str=True).parameters.values()
    shared: dict[str, Any] = {p.name: p.annotation for p in own if is_dataclass(p.annotation)}
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name not in shared]
    for options in shared.values():
        hints = get_type_hints(options, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
            for f in fields(options)
        ]

    def run(**arguments: Any) -> None:
        given = {
            name: options(**{f.name: arguments.pop(f.name) for f in fields(options)})
            for name, options in shared.items()
        }
        command(**given, **arguments)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    # typer reads these attributes.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def name_values(option: str, assignments: Iterable[str] | None, *, example: str) -> list[tuple[str, str]]:
    """Parses the values of a repeatable option of the form ``NAME=VALUE``.

    Args:
        option: the name of the option.
        assignments: its values.
        example: a valid value.

    Raises:
        InvalidOption: if a value has no ``=`` or no name. The error does not contain it, because it can be a secret.

    >>> name_values("--conf", ["spark.cores.max=4", "a=b=c"], example="a=b")
    [('spark.cores.max', '4'), ('a', 'b=c')]
    >>> name_values("--conf", ["hunter2"], example="spark.cores.max=4")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: A --conf option is not NAME=VALUE. Write it as --conf spark.cores.max=4.
    """
    parts = [assignment.partition("=") for assignment in assignments or ()]
    if not all(separator and name.strip() for name, separator, _ in parts):
        raise InvalidOption(f"A {option} option is not NAME=VALUE.", remedy=f"Write it as {option} {example}.")
    return [(name.strip(), value) for name, _, value in parts]
