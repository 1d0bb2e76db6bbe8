"""The states with which queries continue after a reset: part of its plan.

``apply`` uses it. A group has states if its committed offsets name some. At the target of a reset a query searches for
a state, as :mod:`streamgroups.state.state_lookup` decides; the plan makes the same search. Source: SEMANTICS S10, O1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from streamgroups.errors import GroupRejected, PartitionsAdded, UnknownGroup
from streamgroups.groups.commit_metadata import position_of
from streamgroups.groups.reset_plan import Move
from streamgroups.identity import UNKNOWN, TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.shell_quoting import command, topic_options
from streamgroups.state.continuation import Continues, Stops, continuation
from streamgroups.state.origins import Earlier, Named, Unnamed
from streamgroups.state.state_lookup import Position
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.plans import GroupPlan
from streamgroups_cli.groups.scope import positions_of
from streamgroups_cli.output import print_message

_DECIDES = (
    "Then the option 'onMissingState' of the queries decides: 'fail', the default, stops them, and 'empty' continues "
    "with an empty state."
)


def with_states(cluster: Cluster, plans: Sequence[GroupPlan], location: str | None) -> list[GroupPlan]:
    """Adds to each plan of a group with states the states with which its queries continue.

    Args:
        cluster: the cluster.
        plans: the plans.
        location: the location of their states; ``None`` if it is not known.

    Raises:
        UnknownGroup: if the location has no states of a group whose committed offsets name some.
        InvalidOption: if the location is not supported.
        StateUnreachable: if the storage does not answer.
    """
    committed = positions_of(cluster, [p.group_id for p in plans])
    named = {
        g: [it.origin for it in positions if isinstance(it.origin, Named | Earlier)]
        for g, positions in committed.items()
    }
    plans = [replace(p, has_states=bool(named[p.group_id])) for p in plans]
    if location is None:
        return plans
    identities = cluster.topics.identities({m.topic_partition.topic for p in plans for m in p.moves})
    return [_with_stored(p, committed[p.group_id], location, identities) for p in plans]


def _with_stored(
    plan: GroupPlan, committed: Sequence[Position], location: str, identities: Mapping[str, TopicIdentity]
) -> GroupPlan:
    from streamgroups_operators.group_states import states_of
    from streamgroups_operators.locations import shown

    named = [it.origin for it in committed if isinstance(it.origin, Named | Earlier)]
    stored = states_of(location, plan.group_id, [it.file for it in named])
    if not stored and named:
        raise UnknownGroup(
            f"'{shown(location)}' contains no states of group '{plan.group_id}', whose committed offsets name some; "
            "nothing was changed.",
            remedy="Use the option 'stateLocation' of its queries, or their default: 'streamgroups-state' in the "
            "directory of the checkpoint.",
            group=plan.group_id,
        )
    if not stored:
        return plan
    search = stored[0]
    targets = [_target(plan, move, identities) for move in plan.moves]
    after = {it.topic_partition: it for it in (*committed, *targets)}
    found = {
        move.topic_partition: continuation(target, move.bounds, lambda it: search.find_beside(it, after))
        for move, target in zip(plan.moves, targets, strict=True)
    }
    return replace(plan, has_states=True, states=found)


def _target(plan: GroupPlan, move: Move, identities: Mapping[str, TopicIdentity]) -> Position:
    """The position after the reset. Members apply offsets only; a commit has the metadata of the plan."""
    tp = move.topic_partition
    metadata = plan.metadata.get(tp, "") if plan.live is None else ""
    position = position_of(tp, move.to_offset, metadata)
    return replace(position, identity=identities.get(tp.topic, UNKNOWN))


def require_no_added(plans: Sequence[GroupPlan]) -> None:
    """Rejects an offset for an added partition of a group with states: it would end the check of its queries.

    A live group needs no check. Its members own an added partition only if they accept it, and only an owner applies a
    reset. Source: SEMANTICS C4.

    Args:
        plans: the plans, with their states.

    Raises:
        PartitionsAdded: if a reset of all partitions of a topic contains a partition that was added to it.
    """
    for plan in plans:
        if not (plan.has_states and plan.added) or plan.live is not None:
            continue
        count, topics = len(plan.added), {tp.topic for tp in plan.added}
        others = {m.topic_partition for m in plan.moves} - set(plan.added)
        others_only = command("groups reset", [plan.group_id], _scope(others))
        raise PartitionsAdded(
            f"{listed(plan.added)} {'has' if count == 1 else 'have'} no committed offset, and the partitions before have one: "
            f"partitions were added to the topic, or their offsets were deleted. Group '{plan.group_id}' keeps state by key, and its queries read a partition "
            "that has an offset. The later records of a key can be in another partition than its state, which would split "
            "its results. Nothing was changed.",
            remedy=f"Reset the other partitions, to the same target: {others_only}. The queries then fail before they "
            "read the added ones, unless they have onAddedPartitions=continue. If the producers choose the partition of each key "
            f"themselves, and keep it, name the added partitions too: {_scope(plan.added)}.",
            group=plan.group_id,
            topic=topics.pop() if len(topics) == 1 else None,
            partition=plan.added[0].partition if count == 1 else None,
        )


def _scope(partitions: Collection[TopicPartition]) -> str:
    """The options ``--topic`` with these partitions."""
    by_topic = groupby(sorted(partitions), key=lambda tp: tp.topic)
    named = (f"{topic}:{','.join(str(tp.partition) for tp in of_topic)}" for topic, of_topic in by_topic)
    return topic_options(named)


def require_states(plans: Sequence[GroupPlan], *, execute: bool) -> None:
    """Shows what the resets cost, and rejects those whose queries would stop.

    Args:
        plans: the plans.
        execute: whether the plans are applied. Otherwise an unknown cost is only a warning.

    Raises:
        GroupRejected: if no state leads to a target, or if that is unknown.
    """
    for plan in plans:
        again = sum(it.read_again for it in plan.states.values() if isinstance(it, Continues))
        if again:
            print_message(
                f"Group '{plan.group_id}' reads {again} offsets again before the new positions, without output, to "
                "rebuild its states."
            )
        stopped = {tp: it.error for tp, it in plan.states.items() if isinstance(it, Stops)}
        if stopped:
            raise GroupRejected(
                f"No state leads group '{plan.group_id}' to the new offset of {listed(sorted(stopped))}; nothing was "
                f"changed. {next(iter(stopped.values())).what}",
                remedy="Reset to a later offset; 'streamgroups state show --offset' shows the stored states. Or use "
                f"--ignore-state. {_DECIDES}",
                group=plan.group_id,
            )
        if plan.has_states and not plan.states and any(_is_searched(plan, move) for move in plan.moves):
            _require_location(plan.group_id, execute=execute)


def _is_searched(plan: GroupPlan, move: Move) -> bool:
    return isinstance(_target(plan, move, {}).origin, Unnamed)


def _require_location(group_id: str, *, execute: bool) -> None:
    what = f"The committed offsets of group '{group_id}' name states, and its queries need states of the new offsets."
    if not execute:
        print_message(
            f"Warning: {what} With --state-location the plan shows these states, and the offsets to read again."
        )
        return
    raise GroupRejected(
        f"{what} Without --state-location it is unknown whether they are stored; nothing was changed.",
        remedy=f"Use --state-location; "
        f"{command('groups describe', [group_id], '--state')} shows the states. Or "
        f"use --ignore-state. {_DECIDES}",
        group=group_id,
    )
