"""Opens the states of a group from outside of its queries.

Called by ``streamgroups groups``, which reads the committed offsets of the group. They do not contain its operator. Source: SEMANTICS
S10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_lookup import operator_in_use
from streamgroups_operators.locations import StateDirectory, directories_at, files_below
from streamgroups_operators.shared_files import sharing
from streamgroups_operators.store import StoredStates


def states_of(location: str, group_id: str, named: Collection[StateFileName]) -> list[StoredStates]:
    """The stored states of the operators of a group.

    Args:
        location: the option ``stateLocation`` of its queries.
        group_id: the group.
        named: the files that its committed offsets name.

    Returns:
        The states of each operator. A search needs the first one only: the join, or any of several operators that
        process the output of each other. Empty if the location has no states of the group.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    return states_in(group_id, operators_of(location, group_id, named))


def states_in(group_id: str, files: Mapping[str, StateDirectory]) -> list[StoredStates]:
    """The stored states of operators. See :func:`states_of`.

    Args:
        group_id: the group.
        files: the result of :func:`operators_of`.
    """
    found = [
        StoredStates(
            group_id,
            name,
            own,
            beside=[StoredStates(group_id, other, it) for other, it in files.items() if other != name],
        )
        for name, own in files.items()
    ]
    return found if len(found) == 1 else sorted(found, key=lambda it: not it.is_joined)


def operators_of(location: str, group_id: str, named: Collection[StateFileName]) -> dict[str, StateDirectory]:
    """The files of the operators of a group that process the records of the same tasks. See :func:`states_of`."""
    files = {operator: files_below(location, group_id, operator) for operator in directories_at(location, group_id)}
    listed = {name: it.list() for name, it in files.items()}
    operator = operator_in_use(listed, named)
    if operator is None:
        return {}
    return {name: files[name] for name in (operator, *sharing(listed, operator, named))}
