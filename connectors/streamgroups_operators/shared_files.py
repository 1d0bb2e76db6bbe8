"""The state files of operators that process the output of each other: a position names one file of each of them.

Used by ``streamgroups_spark.source.stage_states`` on the driver, and by ``group_states`` for commands. The operators of a
task write files of the same name, and a commit names all of them at once. An attempt that was killed between two writes
has left the file of one operator only. Source: SEMANTICS S10, W13.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.state_lookup import Position
from streamgroups_operators.collection import Collectable, Collector


def sharing(
    files: Mapping[str, Collection[StateFileName]], operator: str, named: Collection[StateFileName] = ()
) -> list[str]:
    """Returns the other operators of a group that process the records of the same tasks as an operator.

    An operator that a changed program has renamed or removed has its files still, and lacks those of later batches.

    Args:
        files: the state files of each operator of the group.
        operator: one of them.
        named: the files that committed offsets name.

    >>> first, second = (StateFileName(ms, "1f3a9c2b7d10", 17, 42) for ms in (1732334879123, 1732334879456))
    >>> sharing({"minutes": [first], "peaks": [first], "old": [second]}, "minutes")
    ['peaks']
    >>> sharing({"minutes": [first, second], "removed": [first]}, "minutes", named=[first, second])
    []
    """
    own_files = frozenset(files[operator])
    newest = max(own_files.intersection(named), default=None)
    common = own_files if newest is None else {newest}
    return sorted(name for name, it in files.items() if name != operator and not common.isdisjoint(it))


def without_shared(plans: Mapping[str, Collectable]) -> dict[str, Collectable]:
    """Returns the plans of a group without the files that an operator needs under the same name.

    A state of a position needs the files of all operators.

    Args:
        plans: the files of each operator.
    """
    needed = frozenset[StateFileName]().union(*(it.sizes.keys() - it.files for it in plans.values()))
    return {operator: replace(it, files=it.files - needed) for operator, it in plans.items()}


def plan_all(
    collectors: Mapping[str, Collector],
    known: Collection[TopicPartition],
    committed: Collection[Position],
    read: Callable[[Collection[TopicPartition]], Collection[Position]],
) -> dict[str, Collectable]:
    """Finds the files that no state of any operator of a group needs, and old unfinished ones.

    A state can be of a partition that is not known: all offsets of a group omit the topics that the user may not describe, and
    the topics of a pattern omit those without a complete response. So the offsets of these partitions are read by their names
    (SEMANTICS G17).

    Args:
        collectors: the files of each operator.
        known: the partitions whose committed offsets were read.
        committed: these offsets. See :meth:`streamgroups_operators.collection.Collector.plan`.
        read: reads the committed offsets of partitions.

    Raises the errors of ``read`` and of :meth:`streamgroups_operators.collection.Collector.plan`.
    """
    known, committed = set(known), list(committed)
    while True:
        plans = {operator: it.plan(committed) for operator, it in collectors.items()}
        others = frozenset[TopicPartition]().union(*(it.partitions for it in plans.values())) - known
        found = read(others) if others else []
        if not found:
            return without_shared(plans)
        # The files are listed again: these offsets can name newer ones.
        known |= others
        committed += found


def collect_all(
    collectors: Sequence[Collector],
    known: Collection[TopicPartition],
    read: Callable[[Collection[TopicPartition]], Collection[Position]],
) -> frozenset[StateFileName]:
    """Deletes the files that no state of any operator of a query needs, and old unfinished ones. Returns the names of the
    former.

    Args:
        collectors: the files of each operator.
        known: the partitions that the query reads.
        read: reads the committed offsets of partitions.

    Raises the errors of :func:`plan_all`.
    """
    known = frozenset(known).union(*(it.partitions for it in collectors))
    numbered = {str(number): it for number, it in enumerate(collectors)}
    plans = plan_all(numbered, known, read(known), read)
    for number, collector in numbered.items():
        collector.delete(plans[number])
    return frozenset[StateFileName]().union(*(it.files for it in plans.values()))
