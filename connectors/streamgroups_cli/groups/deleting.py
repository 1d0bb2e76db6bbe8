"""``streamgroups groups delete`` and ``delete-offsets``: delete groups, or some of their committed offsets.

Both write an undo file first: ``import`` recreates a deleted group at its former positions. The metadata groups of a
group are deleted with it (:mod:`streamgroups.coordination.reset_protocol`). The undo file does not contain them,
because their entries describe former members. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1, O2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.acls import grant
from streamgroups.coordination.reset_protocol import group_of, is_metadata_group, metadata_groups_of, resets_group_of
from streamgroups.errors import GroupRejected, PartlyDone, StreamGroupsError, UnknownGroup, UnknownTopic
from streamgroups.groups.deletion import HIDDEN_OFFSETS, require_offsets, without_offsets
from streamgroups.groups.description import GroupDescription, require_inactive
from streamgroups.groups.reset_plan import is_in_scope, parse_scope
from streamgroups.monitoring.group_tables import see_groups
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.shell_quoting import command, names
from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.applying import apply
from streamgroups_admin.groups.undo_files import write_undo
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import NOTHING_TO_DO, ONLY_A_PLAN, ApplyOptions, progress
from streamgroups_cli.groups.scope import AllGroupsOption, GroupsArgument, all_groups_of, chosen_groups, group_ids
from streamgroups_cli.options import with_options
from streamgroups_cli.output import emit_rows, print_message

_GROUPS = (Column("group"), Column("state"), Column("committed_partitions", right=True))
_OFFSETS = (Column("group"), Column("topic"), Column("partition", right=True), Column("committed_offset", right=True))


@with_options
def delete(
    connect: Connect,
    change: ApplyOptions,
    groups: GroupsArgument = None,
    all_groups: AllGroupsOption = False,
    allow_no_offsets: Annotated[
        bool,
        typer.Option(
            "--allow-no-offsets",
            help="Delete also groups without a visible committed offset, which no undo file restores.",
        ),
    ] = False,
) -> None:
    """Delete groups with all their committed offsets. Groups with members are rejected."""
    chosen = chosen_groups(groups, all_groups)
    with connect() as cluster:
        ids = group_ids(cluster, chosen)
        requested = with_metadata_groups(ids)
        described = cluster.groups.describe_groups(requested)
        committed = cluster.groups.committed_offsets(requested)
        _require_known(cluster, {g: described[g] for g in ids}, committed)
        there = [*ids, *(g for g in requested[len(ids) :] if described[g].state != "Dead")]
        require_inactive([described[g] for g in there], doing="deleted")
        if not allow_no_offsets:
            require_offsets(restorable(ids), committed)
        rows: list[Sequence[Cell]] = [[g, described[g].state, len(committed[g])] for g in there]
        emit_rows(change.output, "groups", Table(_GROUPS, rows), dry_run=not change.execute)
        metadata_groups = there[len(ids) :]
        if metadata_groups:
            print_message(
                f"{', '.join(metadata_groups)}: metadata groups, deleted with their group; an import does not restore them."
            )
        if ids:
            print_message(HIDDEN_OFFSETS)
        if not ids or not change.execute:
            print_message(ONLY_A_PLAN if ids else NOTHING_TO_DO)
            return
        delete_groups(cluster, ids, there, committed, change.undo_file, why="before groups were deleted")


def delete_groups(
    cluster: Cluster,
    ids: Sequence[str],
    there: Sequence[str],
    committed: Mapping[str, Mapping[TopicPartition, Committed]],
    undo_file: Path | None,
    *,
    why: str,
) -> None:
    """Writes the undo file, and deletes groups.

    Args:
        cluster: the cluster.
        ids: the groups.
        there: the groups and then their metadata groups.
        committed: the committed offsets of the groups.
        undo_file: the undo file; ``None`` for the default.
        why: the reason, for the undo file.

    Raises:
        PartlyDone: if some were deleted and some were not.
        StreamGroupsError: if none was deleted. If that is unknown, the undo file stays, and the error names it.
    """
    undo = write_undo(cluster, {g: dict.fromkeys(committed[g]) for g in ids}, undo_file, why=why)
    for group in without_offsets(restorable(ids), committed):
        print_message(f"Group '{group}' shows no committed offset, so no undo file restores it.")
    failures = _delete(cluster, there)
    if not failures:
        undo.complete()
        metadata_groups = len(there) - len(ids)
        also = f" and {metadata_groups} metadata group{'' if metadata_groups == 1 else 's'}" if metadata_groups else ""
        print_message(f"{len(ids)} group{'' if len(ids) == 1 else 's'}{also} deleted.")
        return
    if failures.keys() >= set(ids):
        raise undo.failed(list(failures.values()))
    raise PartlyDone(
        f"{len(there) - len(failures)} of {len(there)} groups were deleted. {_reasons(failures)}",
        remedy="Remove the cause, then delete the others with: "
        f"streamgroups groups delete --execute {names(sorted(failures))}.",
    )


def with_metadata_groups(ids: Sequence[str]) -> list[str]:
    """The groups, and then their metadata groups that are not among them."""
    known = frozenset(ids)
    return [*ids, *(name for g in ids for name in metadata_groups_to_delete(g) if name not in known)]


def restorable(ids: Iterable[str]) -> list[str]:
    """The groups without metadata groups, whose entries describe former members."""
    return [g for g in ids if not is_metadata_group(g)]


def metadata_groups_to_delete(group: str) -> list[str]:
    """The metadata groups that are deleted with a group."""
    return [] if is_metadata_group(group) else list(metadata_groups_of(group))


def _delete(cluster: Cluster, groups: Collection[str]) -> dict[str, StreamGroupsError]:
    """Deletes groups and their metadata groups. Returns the groups that were not deleted, and why.

    If a group, or its metadata group of reset requests, is not deleted, its other metadata groups remain. The command has
    described all of them. So one that does not exist is deleted: if a response is lost, the repeated request finds no group.
    """
    failures: dict[str, StreamGroupsError] = {}
    about = {name: group_of(name) for name in groups}
    for turn in zip(*((g, *metadata_groups_of(g)) for g in about.values()), strict=True):
        of_turn = frozenset(turn)
        due = {name: of for name, of in about.items() if name in of_turn}
        held_up = {name: failures[n] for name, g in due.items() for n in (g, resets_group_of(g)) if n in failures}
        failures |= held_up
        try:
            rejected = cluster.groups.delete_groups(sorted(due.keys() - held_up.keys()))
            failures |= {name: e for name, e in rejected.items() if not isinstance(e, UnknownGroup)}
        except StreamGroupsError as e:
            failures |= dict.fromkeys(due.keys() - held_up.keys(), e)
    return failures


@with_options
def delete_offsets(
    connect: Connect,
    change: ApplyOptions,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group.")],
    topic: Annotated[
        list[str],
        typer.Option("--topic", metavar="TOPIC[:0,1,...]", help="A topic, or partitions of it; repeatable."),
    ],
) -> None:
    """Delete the committed offsets of a group for some topics. Topics that a member reads are rejected."""
    scope = parse_scope(topic)
    with connect() as cluster:
        described = cluster.groups.describe_groups([group])
        committed = cluster.groups.committed_offsets([group])
        _require_known(cluster, described, committed)
        _require_available(described[group], scope)
        found = sorted(tp for tp in committed[group] if is_in_scope(tp, scope))
        topics = {tp.topic for tp in found}
        missing = [name for name in scope if name not in topics]
        if missing:
            raise UnknownTopic(
                f"Group '{group}' has no committed offsets for {', '.join(map(repr, missing))}; nothing was changed.",
                remedy=f"See: {command('groups describe', [group])}. If it has: {grant('Read', 'Topic', missing)}",
                group=group,
            )
        rows: list[Sequence[Cell]] = [[group, tp.topic, tp.partition, committed[group][tp].next_offset] for tp in found]
        emit_rows(change.output, "offsets", Table(_OFFSETS, rows), dry_run=not change.execute)
        if not change.execute:
            print_message(ONLY_A_PLAN)
            return
        changes: dict[TopicPartition, Committed | None] = dict.fromkeys(found)
        undo = write_undo(cluster, {group: changes}, change.undo_file, why="before offsets were deleted")
        with progress({group: changes}) as advance:
            apply(cluster, {group: changes}, undo, verb="deleted", advance=advance)


def _require_known(
    cluster: Cluster,
    described: Mapping[str, GroupDescription],
    committed: Mapping[str, Mapping[TopicPartition, Committed]],
) -> None:
    unknown = [g for g, d in described.items() if d.state == "Dead" and not committed[g]]
    if unknown:
        raise UnknownGroup(
            f"Group {', '.join(map(repr, unknown))} does not exist; nothing was changed.",
            remedy=see_groups(unknown, all_groups_of(cluster)),
            group=unknown[0] if len(unknown) == 1 else None,
        )


def _require_available(group: GroupDescription, topics: Collection[str]) -> None:
    """Rejects topics with an owner early. Only the broker detects subscribers without partitions, and rejects them."""
    reading = [m for m in group.members if any(tp.topic in topics for tp in m.partitions)]
    if reading:
        raise GroupRejected(
            f"Group '{group.group_id}' is reading {', '.join(map(repr, topics))} ({listed(reading)}): "
            "its offsets cannot be deleted; nothing was changed.",
            remedy="Stop these members first (a killed member counts until its session times out).",
            group=group.group_id,
        )


def _reasons(failures: Mapping[str, StreamGroupsError]) -> str:
    return " ".join(dict.fromkeys(error.what for _, error in sorted(failures.items())))
