"""The dead letters of groups, for ``streamgroups groups describe --dlq``.

``describing`` calls it. Source: SEMANTICS P4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

from streamgroups.dlq.redrive import State, state_of
from streamgroups.dlq.stored import Selection
from streamgroups.errors import InvalidOption
from streamgroups_cli.connection import Connect
from streamgroups_cli.dlq.queue import committed, queue_of
from streamgroups_cli.dlq.tables import TableOptions

#: The number of letters by their states.
Letters: TypeAlias = Mapping[State, int]


def check_options(dlq: str | None, table: TableOptions) -> None:
    """Rejects the options of a table without ``--dlq``.

    Raises:
        InvalidOption: if the queue is missing.
    """
    if dlq is None and table.is_set:
        raise InvalidOption("--postgres names no table of dead letters.", remedy="Name it with --dlq.")


def letters_of(
    connect: Connect, dlq: str | None, table: TableOptions, groups: Collection[str]
) -> Mapping[str, Letters | None]:
    """Counts the dead letters of groups.

    Args:
        connect: the connection to the cluster.
        dlq: the queue; ``None``: nothing is counted.
        table: the database of the queue, if it is a table.
        groups: the groups.

    Returns:
        The counts of each group; ``None`` if nothing is counted.

    Raises:
        StreamGroupsError: if the queue does not exist, or is not accessible.
    """
    # An empty selection is one of all groups.
    if dlq is None or not groups:
        return dict.fromkeys(groups)
    counts: dict[str, Counter[State]] = {group: Counter() for group in groups}
    with committed(connect)() as cluster:
        queue = queue_of(cluster, dlq, table)
        redriven = queue.redriven()
        for stored in queue.letters(Selection(groups=frozenset(groups))):
            counts[stored.letter.group_id][state_of(stored.letter, redriven)] += 1
    queue.warn_of_foreign()
    return counts


def words(letters: Letters | None) -> list[str]:
    """Returns the counts for the heading of a group; empty without counts.

    >>> words({State.WAITING: 3, State.PARKED: 1})
    ['4 dead letters (3 waiting, 1 parked)']
    >>> words({})
    ['no dead letters']
    """
    if letters is None:
        return []
    total = sum(letters.values())
    counts = ", ".join(f"{letters[state]} {state.value}" for state in State if letters.get(state))
    return [f"{total} dead letter{'' if total == 1 else 's'} ({counts})" if total else "no dead letters"]


def document(dlq: str | None, letters: Letters | None) -> dict[str, Any]:
    """Returns the counts as a field of a JSON or YAML document; no field without counts.

    >>> document("orders.dlq", {State.PARKED: 1})["dead_letters"]
    {'dlq': 'orders.dlq', 'letters': 1, 'waiting': 0, 'redriven': 0, 'parked': 1, 'no_record': 0}
    """
    if letters is None:
        return {}
    counts = {state.name.lower(): letters.get(state, 0) for state in State}
    return {"dead_letters": {"dlq": dlq, "letters": sum(letters.values()), **counts}}
