"""The groups and partitions of a command, from its arguments and options.

The commands under ``groups``, ``gaps``, ``metrics`` and ``state collect`` use it. A command that changes groups, and ``describe``, requires
their names or ``--all-groups``. Source: the options ``--group``,
``--all-groups`` and ``--topic`` of ``kafka-consumer-groups.sh``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption, UnknownTopic
from streamgroups.groups.commit_metadata import position_of
from streamgroups.groups.offset_files import FiledOffset
from streamgroups.groups.reset_plan import is_in_scope
from streamgroups.monitoring.snapshots import list_all
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.state.state_lookup import Position
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.groups.unlisted_groups import warn_of_unlisted

GroupsArgument = Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Groups.", show_default=False)]
#: For commands that only read.
GroupsOrAllArgument = Annotated[
    list[str] | None, typer.Argument(metavar="GROUP", help="Groups. Default: all.", show_default=False)
]
AllGroupsOption = Annotated[bool, typer.Option("--all-groups", help="All groups of the cluster.")]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1,...]", help="A topic, or partitions of it; repeatable."),
]

StateLocationOption = Annotated[
    str | None,
    typer.Option(
        "--state-location",
        metavar="LOCATION",
        help="Read the states there: the option 'stateLocation' of the queries, a path or URI.",
    ),
]


def chosen_groups(groups: Sequence[str] | None, all_groups: bool) -> list[str] | None:
    """Returns the named groups, without repetition; ``None`` for all.

    Raises:
        InvalidOption: if no group is named, or groups are named together with the option for all.
    """
    if groups and all_groups:
        raise InvalidOption("--all-groups and names of groups exclude each other.", remedy="Omit one of them.")
    if not groups and not all_groups:
        raise InvalidOption("The groups are missing.", remedy="Name one or more groups, or use --all-groups.")
    return named_groups(groups)


def named_groups(groups: Sequence[str] | None) -> list[str] | None:
    """Returns the named groups, without repetition; ``None`` for all, if none is named.

    >>> named_groups(["billing", "board", "billing"]), named_groups([])
    (['billing', 'board'], None)
    """
    return list(dict.fromkeys(groups)) if groups else None


def group_ids(cluster: Cluster, chosen: list[str] | None) -> list[str]:
    """Returns the names of the groups: the chosen ones, or all with committed offsets."""
    if chosen is not None:
        return chosen
    found = [g.group_id for g in list_all(cluster.groups)]
    warn_of_unlisted(cluster)
    return found


def all_groups_of(cluster: Cluster) -> list[str]:
    """Returns the names of all groups, of any type."""
    return [g.group_id for g in list_all(cluster.groups, every_type=True)]


def offsets_in_scope(
    filed: Mapping[TopicPartition, FiledOffset], scope: Mapping[str, frozenset[int] | None], *, source: str
) -> dict[TopicPartition, FiledOffset]:
    """Returns the offsets of a group in a file that are in the scope of ``--topic``.

    Args:
        filed: the offsets.
        scope: see :func:`~streamgroups.groups.reset_plan.parse_scope`.
        source: the name of the file, for the error.

    Raises:
        InvalidOption: if the file has no offset of a topic or a partition in the scope.
    """
    missing = [topic for topic in scope if not any(tp.topic == topic for tp in filed)]
    missing += [
        str(tp)
        for topic, numbers in scope.items()
        for tp in (TopicPartition(topic, p) for p in sorted(numbers or ()))
        if topic not in missing and tp not in filed
    ]
    if missing:
        raise InvalidOption(
            f"{source} contains no offsets of {listed(missing)}; nothing was changed.",
            remedy="Name topics and partitions that it contains with --topic.",
        )
    return {tp: it for tp, it in filed.items() if is_in_scope(tp, scope)}


def partitions_of(cluster: Cluster, scope: Mapping[str, frozenset[int] | None]) -> list[TopicPartition]:
    """Returns every partition in a scope. It requests the partitions of whole topics.

    Raises:
        UnknownTopic: if such a topic does not exist.
        NotAuthorized: if this user may not describe it.
    """
    whole = [topic for topic, numbers in scope.items() if numbers is None]
    found = cluster.topics.describe_topics(whole, operation="Read")
    missing = [topic for topic in whole if topic not in found]
    if missing:
        named = ", ".join(f"'{topic}'" for topic in missing)
        raise UnknownTopic(
            f"Topic {named} does not exist; nothing was changed.",
            remedy="List the topics with: kafka-topics.sh --list.",
            topic=missing[0] if len(missing) == 1 else None,
        )
    partitions = [TopicPartition(topic, p.partition) for topic in whole for p in found[topic].partitions]
    partitions += [TopicPartition(topic, p) for topic, numbers in scope.items() if numbers for p in numbers]
    return sorted(partitions)


def positions_of(
    cluster: Cluster, group_ids: Collection[str], partitions: Collection[TopicPartition] | None = None
) -> dict[str, list[Position]]:
    """Returns the committed offsets of groups, with the states that they name.

    Args:
        cluster: the cluster.
        group_ids: the groups.
        partitions: the partitions; ``None`` for all of topics that this user may describe.

    Raises:
        NotAuthorized: if this user may not describe the topic of one of these partitions.
    """
    committed = cluster.groups.committed_offsets(group_ids, partitions)
    return {
        group_id: [position_of(tp, it.next_offset, it.metadata) for tp, it in offsets.items()]
        for group_id, offsets in committed.items()
    }
