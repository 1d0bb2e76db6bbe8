"""Decides which states belong to a savepoint, and how the savepoint names them.

Called by ``streamgroups_operators.savepoints.creating``. A commit of a member names its state. For an offset that a tool has
committed, the state is searched as a query does, and the savepoint names the result: so a restored group needs no search.
Source: SEMANTICS C3, S10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from streamgroups.errors import GroupRejected
from streamgroups.groups.applied_reset import NO_RESET
from streamgroups.groups.commit_metadata import ToolMark, mark_of
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.state.file_names import StateFileName
from streamgroups.state.manifest import Manifest
from streamgroups.state.origins import UNNAMED, Earlier, Named, New, StateOrigin
from streamgroups.state.state_lookup import Choice, Position, Stored


def named_state(position: Position, choice: Choice, group_id: str) -> StateOrigin:
    """The state of a position, as a savepoint names it.

    Args:
        position: the committed offset.
        choice: the state from which a query continues there.
        group_id: the group, for errors.

    Raises:
        GroupRejected: if the query reads records before the position to build its first state.

    >>> from streamgroups.state.state_lookup import Empty
    >>> named_state(Position(TopicPartition("flights", 0), 5, UNNAMED), Empty(5), "board")
    New()
    """
    if isinstance(position.origin, Named | Earlier):
        return position.origin
    if isinstance(choice, Stored):
        is_here = choice.read_from == position.next_offset
        return choice.origin if is_here else Earlier(choice.file, choice.read_from)
    if choice.read_from == position.next_offset:
        return New()
    tp = position.topic_partition
    raise GroupRejected(
        f"{tp}: group '{group_id}' was reset to offset {position.next_offset}, and no state of this offset is stored yet; "
        "no savepoint was created.",
        remedy="Create the savepoint after the queries have committed a batch.",
        group=group_id,
        topic=tp.topic,
        partition=tp.partition,
    )


def saved_metadata(metadata: str, state: StateOrigin, identity: TopicIdentity) -> str:
    """The metadata of a saved offset: that of its commit, or a mark of a tool that names the state.

    Args:
        metadata: the metadata of the commit. Any client can have written it.
        state: the state of the offset.
        identity: the topic of the offset, if the metadata does not name it.

    >>> from streamgroups.identity import UNKNOWN
    >>> saved_metadata("by hand", New(), UNKNOWN)
    'streamgroups:tool;cluster=;topic=;state=empty;end;'
    """
    mark = mark_of(metadata)
    if mark is None:
        return ToolMark(NO_RESET, identity, state).encode()
    return metadata if mark.state == state else ToolMark(mark.reset, mark.identity, state, mark.form).encode()


def state_of(metadata: str) -> StateOrigin:
    """The state that the metadata of a saved offset names."""
    mark = mark_of(metadata)
    return UNNAMED if mark is None else mark.state


def partitions_by_file(states: Mapping[TopicPartition, StateOrigin]) -> dict[StateFileName, frozenset[TopicPartition]]:
    """The partitions whose state each file contains.

    Args:
        states: the state of each position.
    """
    found: dict[StateFileName, set[TopicPartition]] = {}
    for tp, state in states.items():
        if isinstance(state, Named | Earlier):
            found.setdefault(state.file, set()).add(tp)
    return {file: frozenset(partitions) for file, partitions in found.items()}


def restricted(manifest: Manifest, partitions: Collection[TopicPartition], group_id: str | None = None) -> Manifest:
    """The manifest of a copied file: only with the states of these partitions.

    Others are older than the position of their partition, and their segments may be deleted.

    Args:
        manifest: the manifest of the original file.
        partitions: the partitions whose saved position names the file. Empty for a file that has only segments of others.
        group_id: the group that continues with the states; ``None``: the same one.
    """
    states = tuple(state for state in manifest.states if state.topic_partition in partitions)
    return replace(manifest, states=states, group_id=manifest.group_id if group_id is None else group_id)
