"""``streamgroups groups undo``: reverts the last change of a group, with the undo file that the change has written.

An undo file contains the offsets before a change and those that the change has set. If the group is at other offsets
now, something else has moved it, and the undo is rejected. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1,
O2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from streamgroups.errors import GroupRejected, UnknownGroup
from streamgroups.groups.offset_files import ChangedTo, FiledOffset, Links
from streamgroups.groups.reset_plan import is_in_scope, parse_scope
from streamgroups.groups.undo_history import is_reached
from streamgroups.partitions import TopicPartition
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.stored_files import filed as filed_offsets
from streamgroups_admin.groups.stored_files import read_offsets_file, remove_marker, state_directory
from streamgroups_admin.groups.undo_search import StoredUndo, UndoSearch
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import ChangeOptions, carry_out
from streamgroups_cli.groups.reset_plans import plan_from_file
from streamgroups_cli.groups.scope import TopicsOption, offsets_in_scope
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message

#: The maximum number of partitions in an error.
_MAX_SHOWN = 5


@with_options
def undo(
    connect: Connect,
    change: ChangeOptions,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group.", show_default=False)],
    topic: TopicsOption = None,
    allow_progress: Annotated[
        bool,
        typer.Option(
            "--allow-progress", help="Accept partitions that were committed since the change; the offsets are replaced."
        ),
    ] = False,
) -> None:
    """Revert the last executed change of a group's offsets. The undo of an undo repeats the change."""
    scope = parse_scope(topic or [])
    with connect() as cluster:
        committed = filed_offsets(cluster.groups.committed_offsets([group])[group])
        last = _last_change(cluster, group, committed)
        path, filed = last.path, last.filed
        continued = last.links.reverts if last.is_unfinished else None
        if continued is not None:
            # The last change is an unfinished undo. Its undo would be the opposite, so it is completed.
            path = last.path.with_name(continued)
            filed = read_offsets_file(path, None).get(group, {})
            print_message(f"The undo of {path} was interrupted, and continues.")
        print_message(f"This reverts {path}")
        filed = offsets_in_scope(filed, scope, source=str(path))
        if not allow_progress:
            changed = {**filed, **{tp: it for tp, it in last.filed.items() if is_in_scope(tp, scope)}}
            _require_unchanged(group, changed, committed)
        plans = plan_from_file(
            cluster, {group: filed}, [group], source=str(path), allow_other_ids=change.allow_other_ids
        )
        carry_out(cluster, plans, change, why=f"before an undo of {path}", links=Links(reverts=path.name))
        if change.execute and not any(it.changes for it in plans) and is_reached(last.filed, committed):
            # Only the confirmation of the undo was missing. The next undo is that of this undo.
            remove_marker(last.path)


def _last_change(cluster: Cluster, group_id: str, committed: Mapping[TopicPartition, FiledOffset]) -> StoredUndo:
    """Returns the undo file of the last change of a group in this cluster.

    Raises:
        UnknownGroup: without one.
        InvalidOption: if a file that can be that of the last change cannot be read.
    """
    last = UndoSearch(cluster, notify=print_message).last_change(group_id, committed)
    if last is None:
        raise UnknownGroup(
            f"No undo file of group '{group_id}' in this cluster is in {state_directory()}.",
            remedy="If the change was made elsewhere or with --undo-file: streamgroups groups import FILE.",
            group=group_id,
        )
    return last


def _require_unchanged(
    group_id: str, filed: Mapping[TopicPartition, FiledOffset], committed: Mapping[TopicPartition, FiledOffset]
) -> None:
    """Rejects partitions that are neither where the change has set them nor, after a partial change, where they were."""
    moved = []
    for tp, before in sorted(filed.items()):
        now = committed[tp].next_offset if tp in committed else None
        match before.changed_to:
            case ChangedTo(next_offset=after) if now not in (after, before.next_offset):
                moved.append(f"{tp} (changed to {_shown(after)}, now {_shown(now)})")
    if moved:
        more = f" and {len(moved) - _MAX_SHOWN} more" if len(moved) > _MAX_SHOWN else ""
        raise GroupRejected(
            f"Group '{group_id}' has committed other offsets since the change: {', '.join(moved[:_MAX_SHOWN])}{more}; "
            "nothing was changed.",
            remedy="Members may have read on, or another command has changed the group. --allow-progress accepts this.",
            group=group_id,
        )


def _shown(offset: int | None) -> str:
    return "none" if offset is None else str(offset)
