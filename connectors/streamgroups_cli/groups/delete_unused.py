"""``streamgroups groups sweep``: finds unused groups, and deletes them.

:mod:`streamgroups.groups.unused_groups` decides, and ``deleting`` deletes. The times of commits are those of the records in
``__consumer_offsets``. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS G14, G15, O2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from streamgroups.acls import grant
from streamgroups.coordination.reset_protocol import group_of, is_metadata_group, metadata_groups_of
from streamgroups.durations import duration, parse_duration_ms
from streamgroups.errors import StreamGroupsError
from streamgroups.groups.deletion import HIDDEN_OFFSETS, without_offsets
from streamgroups.groups.description import INACTIVE_STATES, GroupListing
from streamgroups.groups.unused_groups import (
    OFFSETS_TOPIC,
    GroupUse,
    Verdict,
    group_in_key,
    judge,
    partition_of_group,
    reason_to_keep,
    with_unknown_use,
)
from streamgroups.monitoring.snapshots import list_all
from streamgroups.partitions import Bounds, TopicPartition
from streamgroups.shell_quoting import names
from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import ONLY_A_PLAN, ApplyOptions
from streamgroups_cli.groups.deleting import delete_groups, metadata_groups_to_delete, restorable, with_metadata_groups
from streamgroups_cli.options import with_options
from streamgroups_cli.output import emit_rows, print_message

_COLUMNS = (
    Column("group"),
    Column("action", style=lambda text: "red" if text == "delete" else ""),
    Column("reason", is_prose=True),
)


@with_options
def sweep(
    connect: Connect,
    change: ApplyOptions,
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="DURATION", help="The time without use after which a group is unused."),
    ] = "7d",
    trust_clock: Annotated[
        bool,
        typer.Option(
            "--trust-clock", help="Trust the clock of this machine, if no group has committed for a long time."
        ),
    ] = False,
) -> None:
    """Find groups without members and recent commits, and delete them. Groups with members are kept."""
    older_than_ms = parse_duration_ms(older_than, option="--older-than")
    with connect() as cluster:
        listed = list_all(cluster.groups, every_type=True, internal=True)
        uses, now_ms = _uses(cluster, listed), cluster.now_ms()
        verdicts = _verdicts(listed, uses, older_than_ms, now_ms, trust_clock=trust_clock)
        unused = [group for group, verdict in verdicts.items() if verdict.is_unused]
        rows: list[Sequence[Cell]] = [
            [group, "delete" if verdict.is_unused else "keep", verdict.reason] for group, verdict in verdicts.items()
        ]
        emit_rows(change.output, "groups", Table(_COLUMNS, rows), dry_run=not change.execute)
        if any(it.depends_on_clock for it in verdicts.values()):
            print_message(_clock_differs(now_ms - uses.newest_ms))
        if unused:
            print_message(HIDDEN_OFFSETS)
        if not unused or not change.execute:
            print_message(ONLY_A_PLAN if unused else "There is nothing to delete.")
            return
        _delete(cluster, unused, {it.group_id for it in listed}, change)


@dataclass(frozen=True, slots=True)
class _Uses:
    """The times of records in ``__consumer_offsets``.

    Args:
        by_group: the last use of each group.
        newest_ms: the newest record of all groups; 0 without one.
    """

    by_group: Mapping[str, int]
    newest_ms: int = 0


def _clock_differs(ahead_ms: int) -> str:
    return (
        f"The clock of this machine is {duration(ahead_ms)} after the newest record of {OFFSETS_TOPIC}. Groups are kept whose "
        "time without use depends on it. Check the clock with: date -u. If it is right, use --trust-clock."
    )


def _delete(cluster: Cluster, unused: Sequence[str], listed: Collection[str], change: ApplyOptions) -> None:
    """Deletes groups with their metadata groups. A group that has members by now is kept; the broker ensures it too.

    The list of groups omits those of an unavailable coordinator, so all groups are described again. A group without a
    visible committed offset is kept too.
    """
    requested, names_of = with_metadata_groups(unused), _names(unused)
    # A listing omits groups that this user may not see. Their description is an error, so nothing is deleted.
    described = cluster.groups.describe_groups(sorted(name for of in names_of.values() for name in of))
    missed = {name for name, it in described.items() if it.state != "Dead"} - set(listed)
    in_use = {}
    for group in unused:
        owner = group_of(group)
        unlisted = [name for name in names_of[owner] if name != owner and name in missed]
        reason = reason_to_keep(group, owner, described[owner].state, unlisted)
        if reason is not None:
            in_use[group] = reason
            print_message(f"Group '{group}' is kept: {reason}.")
    committed = cluster.groups.committed_offsets([g for g in unused if g not in in_use])
    hidden = without_offsets(restorable(committed), committed)
    for group in hidden:
        print_message(
            f"Group '{group}' is kept: it shows no committed offset, and no undo file could restore it. "
            f"{grant('Describe', 'Topic')}. If it has none: streamgroups groups delete --allow-no-offsets {names([group])}"
        )
    kept = {name for g in (*in_use, *hidden) for name in (g, *metadata_groups_to_delete(g))}
    ids = [g for g in unused if g not in kept]
    there = [*ids, *(g for g in requested[len(unused) :] if described[g].state != "Dead" and g not in kept)]
    if ids:
        delete_groups(cluster, ids, there, committed, change.undo_file, why="before unused groups were deleted")


def _names(group_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of each group and of all its metadata groups. A metadata group stands for its group."""
    return {owner: (owner, *metadata_groups_of(owner)) for owner in map(group_of, group_ids)}


def _verdicts(
    listed: Iterable[GroupListing], uses: _Uses, older_than_ms: int, now_ms: int, *, trust_clock: bool
) -> dict[str, Verdict]:
    """Judges each group. A metadata group has the fate of its group, and is judged only if that does not exist."""
    by_name = {it.group_id: it for it in listed}
    found = {}
    for name, it in by_name.items():
        owner = group_of(name) if is_metadata_group(name) else None
        if owner in by_name:
            continue
        use = GroupUse(it.state, it.type, it.protocol_type, uses.by_group.get(group_of(name)), owner)
        found[name] = judge(use, older_than_ms, now_ms, None if trust_clock else uses.newest_ms)
    return found


def _uses(cluster: Cluster, listed: Iterable[GroupListing]) -> _Uses:
    """Returns when each group without members was last used, itself or by its metadata groups.

    A record of a group is written when an offset is committed, and when its members change. Of partitions without such a
    group only the last offset is read, for the newest time.
    """
    idle = {it.group_id for it in listed if it.state in INACTIVE_STATES}
    found: dict[str, int] = {}
    newest_ms = 0
    try:
        topic = cluster.topics.describe_topics([OFFSETS_TOPIC]).get(OFFSETS_TOPIC)
        if topic is None or not idle:
            return _Uses(found)
        count, names_of = len(topic.partitions), _names(idle)
        own = {partition_of_group(group, count) for group in idle}
        bounds = cluster.topics.bounds({TopicPartition(OFFSETS_TOPIC, number) for number in range(count)})
        unknown = {tp.partition for tp, it in bounds.items() if not isinstance(it, Bounds)}
        # A name can have the suffixes of several metadata groups.
        known = {tp: it for tp, it in bounds.items() if isinstance(it, Bounds)}
        starts = {
            tp: it.beginning_offset if tp.partition in own else max(it.beginning_offset, it.end_offset - 1)
            for tp, it in known.items()
        }
        for record in cluster.topics.read(starts, {tp: it.end_offset for tp, it in known.items()}):
            newest_ms = max(newest_ms, record.timestamp_ms or 0)
            group = group_in_key(record.key)
            if group in idle and record.timestamp_ms is not None:
                owner = group_of(group)
                found[owner] = max(found.get(owner, 0), record.timestamp_ms)
    except StreamGroupsError as e:
        print_message(
            f"The times of the last commits are unknown, so groups are kept. They need Read on {OFFSETS_TOPIC}. {e}"
        )
        return _Uses({})
    kept = with_unknown_use(names_of, unknown, count)
    if kept:
        print_message(
            f"Partitions of {OFFSETS_TOPIC} are not available, such as {min(unknown)}. The groups that they store are kept: "
            "try again later."
        )
    return _Uses({owner: time_ms for owner, time_ms in found.items() if owner not in kept}, newest_ms)
