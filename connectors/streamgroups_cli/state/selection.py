"""The arguments that all commands about state files share, and the operators that they select."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from streamgroups.errors import UnknownGroup
from streamgroups.printable import listed
from streamgroups_operators.locations import StateDirectory, directories_at, files_below, shown

Location = Annotated[str, typer.Argument(help="The option 'stateLocation' of the queries: a path or URI.")]
GroupsArgument = Annotated[list[str] | None, typer.Argument(metavar="[GROUP]...", help="Groups; default: all.")]


def selected(location: str, groups: list[str] | None) -> Iterator[tuple[str, str, StateDirectory]]:
    """Yields the group, the name and the files of each operator, once.

    Raises:
        UnknownGroup: if a group has no state files at the location.
        InvalidOption: if the location is not supported.
        StateUnreachable: if the storage does not answer.
    """
    existing = directories_at(location)
    unknown = sorted(set(groups or ()) - set(existing))
    if unknown:
        raise UnknownGroup(
            f"'{shown(location)}' contains no states of the groups {listed(unknown)}.",
            remedy=f"Groups with states there: {listed(existing) or 'none'}.",
        )
    for group_id in dict.fromkeys(groups or existing):
        for operator in directories_at(location, group_id):
            yield group_id, operator, files_below(location, group_id, operator)
