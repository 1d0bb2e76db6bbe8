"""Opens the states of a group from outside of its queries.

Called by ``streamgroups groups``, which reads the committed offsets of the group. They do not contain its operator. Source: SEMANTICS
S10.
"""

from __future__ import annotations

from collections.abc import Collection

from streamgroups.state.lookup import operator_in_use
from streamgroups.state.names import StateFileName
from streamgroups_state.locations import operator_files, operators_at
from streamgroups_state.store import StoredStates


def states_of(location: str, group_id: str, named: Collection[StateFileName]) -> StoredStates | None:
    """The stored states of the operator of a group.

    Args:
        location: the option ``stateLocation`` of its queries.
        group_id: the group.
        named: the files that its committed offsets name.

    Returns:
        The states, or ``None`` if the location has no states of the group.

    Raises:
        InvalidOption: if Arrow does not support the location.
        StateUnreachable: if the storage does not answer.
    """
    files = {operator: operator_files(location, group_id, operator) for operator in operators_at(location, group_id)}
    operator = operator_in_use({name: it.list() for name, it in files.items()}, named)
    return None if operator is None else StoredStates(group_id, operator, files[operator])
