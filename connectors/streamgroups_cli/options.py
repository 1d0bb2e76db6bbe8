"""Options that several commands share: the fields of a dataclass, which is a parameter of each of these commands.

``connection`` and ``groups.apply`` declare such dataclasses. typer itself reads options from the parameters of a
function only.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints


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
