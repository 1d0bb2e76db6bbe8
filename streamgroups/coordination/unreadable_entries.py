"""The text about metadata entries that cannot be read, and that must not be ignored or overwritten.

Called by ``streamgroups gaps``, and by the modules that write gaps, no-data batches and dead letters. Source: SEMANTICS G17;
:mod:`streamgroups.metadata_entries`.
"""

from __future__ import annotations

from collections.abc import Collection

from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.shell_quoting import command, topic_options


def unreadable(group_id: str, partitions: Collection[TopicPartition]) -> tuple[str, str]:
    """The text and the remedy for entries that cannot be read and must not be ignored.

    Args:
        group_id: the metadata group.
        partitions: the partitions of the entries.

    >>> print(*unreadable("billing.streamgroups.gaps", [TopicPartition("flights", 3)]))
    The entries of the metadata group 'billing.streamgroups.gaps' at flights-3 cannot be read: they are damaged, or have a newer \
version. Use the newer version of streamgroups. To delete damaged ones: \
streamgroups groups delete-offsets billing.streamgroups.gaps --topic flights:3 --execute
    """
    numbers: dict[str, list[str]] = {}
    for tp in sorted(partitions):
        numbers.setdefault(tp.topic, []).append(str(tp.partition))
    scope = topic_options(f"{topic}:{','.join(of_topic)}" for topic, of_topic in numbers.items())
    return (
        f"The entries of the metadata group {group_id!r} at {listed(sorted(partitions))} cannot be read: they are damaged, or have a "
        "newer version.",
        "Use the newer version of streamgroups. To delete damaged ones: "
        f"{command('groups delete-offsets', [group_id], f'{scope} --execute')}",
    )
