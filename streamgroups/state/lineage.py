"""Decides which states of a partition lead to its newest one.

Used by the lookups of states (:mod:`streamgroups.state.state_lookup`). Each state names the file of the state with which its batch
has continued. A batch that is killed has a state that no other one continues. After a reset or a restore of a savepoint, the
queries continue with an earlier state, and the later states stay until retention deletes them. Another program can have written
them. So a search prefers the states that lead to the newest one. Source: SEMANTICS S10, C3.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import PartitionState


def lineage(states: Mapping[StateFileName, PartitionState]) -> frozenset[StateFileName]:
    """The files of the states that lead to the newest state of a partition.

    If one of them is deleted, the newest state that is older than the deleted one counts instead.

    Args:
        states: the states of a partition, by their files.

    >>> lineage({})
    frozenset()
    """
    found = set[StateFileName]()
    files = sorted(states)
    file = files[-1] if files else None
    # Only damaged manifests have a cycle.
    while file is not None and file not in found:
        found.add(file)
        file = _before(file, states, files)
    return frozenset(found)


def _before(
    file: StateFileName, states: Mapping[StateFileName, PartitionState], files: Sequence[StateFileName]
) -> StateFileName | None:
    state = states[file]
    if state.after in states:
        return state.after
    # A batch whose state was lost begins with an empty one, if the user chooses that.
    if state.after is None or state.is_first:
        return None
    # The clocks of drivers differ.
    older = bisect_left(files, min(file, state.after))
    return files[older - 1] if older else None
