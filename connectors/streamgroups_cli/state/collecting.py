"""``streamgroups state collect``: deletes old state files, as running queries do in the background.

For groups whose queries are stopped, or with another retention. Committed offsets are read before the files are listed,
so that a query can commit meanwhile: its new state needs only files of the committed state, and young files. Source:
SEMANTICS S10.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, TypeAlias

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import GroupRejected, NotAuthorized, PartlyDone, StreamGroupsError, UnknownGroup
from streamgroups.partitions import TopicPartition
from streamgroups.printable import listed
from streamgroups.shell_quoting import command
from streamgroups.state.state_lookup import Position
from streamgroups.state.state_retention import Retention
from streamgroups.tables import Cell, Column, Table
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import NOTHING_TO_DO, ONLY_A_PLAN
from streamgroups_cli.groups.scope import positions_of
from streamgroups_cli.options import ExecuteOption, with_options
from streamgroups_cli.output import Output, OutputOption, emit_rows, print_message
from streamgroups_cli.state.selection import Location, selected
from streamgroups_kafka.client.clock import awake_ms
from streamgroups_operators.collection import Collectable, Collector
from streamgroups_operators.shared_files import plan_all

_COLUMNS = (
    Column("group"),
    Column("operator"),
    Column("files", right=True),
    Column("bytes", right=True),
    Column("files_to_delete", right=True),
    Column("bytes_to_delete", right=True),
)
#: A group, an operator, its files, and those to delete.
_Plan: TypeAlias = tuple[str, str, Collector, Collectable]


@with_options
def collect(
    connect: Connect,
    location: Location,
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="Groups.")],
    retention: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How far back a reset keeps its state: the option 'stateRetention' of the queries.",
        ),
    ] = "1h",
    execute: ExecuteOption = False,
    output: OutputOption = Output.table,
) -> None:
    """Delete the state files that no committed offset and no reset within the retention needs.

    Queries of the groups can run meanwhile. Files that are younger than an hour are kept, by the clock of the storage. To
    read this clock, the command writes a small file and deletes it, also in a dry run.
    """
    rule = Retention(parse_duration_ms(retention, option="--retention"))
    plans: list[_Plan] = []
    collectors: dict[str, dict[str, Collector]] = {}
    for group_id, operator, files in selected(location, groups):
        collectors.setdefault(group_id, {})[operator] = Collector(files, rule, awake_ms)
    with connect() as cluster:
        committed = {group_id: _committed(cluster, group_id) for group_id in dict.fromkeys(groups)}
        for group_id, of_group in collectors.items():
            found = _planned(cluster, group_id, of_group, committed[group_id])
            plans += [(group_id, operator, it, found[operator]) for operator, it in of_group.items()]
    rows = [_cells(group_id, operator, found) for group_id, operator, _, found in plans]
    emit_rows(output, "states", Table(_COLUMNS, rows), dry_run=not execute)
    count = sum(len(found.files) + len(found.unfinished) for *_, found in plans)
    if not count:
        print_message(NOTHING_TO_DO)
    elif not execute:
        print_message(ONLY_A_PLAN)
    else:
        _delete(plans)
        print_message(f"{count} file{'' if count == 1 else 's'} deleted.")


def _delete(plans: list[_Plan]) -> None:
    """Deletes the files of each operator.

    Raises:
        PartlyDone: if those of some operators were deleted, and then an error occurs.
    """
    done: list[str] = []
    for group_id, operator, collector, found in plans:
        try:
            collector.delete(found)
        except StreamGroupsError as e:
            if not done:
                raise
            raise PartlyDone(
                f"The files of {listed(done)} were deleted. {e.what}",
                remedy=f"{e.remedy} Then repeat the command: it deletes the others.".strip(),
            ) from e
        done.append(f"'{operator}' of group '{group_id}'")


def _planned(
    cluster: Cluster, group_id: str, collectors: Mapping[str, Collector], committed: list[Position]
) -> dict[str, Collectable]:
    """Plans the deletion for a group.

    Raises:
        NotAuthorized: if the broker hides the committed offset of a state: this state can be needed.
        GroupRejected: if there are states of another cluster.
    """

    def read(partitions: Collection[TopicPartition]) -> list[Position]:
        try:
            return positions_of(cluster, [group_id], partitions)[group_id]
        except NotAuthorized as e:
            raise e.with_text(
                f"{e.what} The location has states of group '{group_id}' of this partition, and they are needed if the "
                "group has a committed offset there; nothing was changed.",
                e.remedy,
            ) from e

    plans = plan_all(collectors, [it.topic_partition for it in committed], committed, read)
    for found in plans.values():
        _require_same_cluster(cluster, group_id, committed, found)
    return plans


def _cells(group_id: str, operator: str, found: Collectable) -> list[Cell]:
    left = list(found.unfinished.values())
    sizes, deleted = [*found.sizes.values(), *left], [*(found.sizes[file] for file in found.files), *left]
    return [group_id, operator, len(sizes), sum(sizes), len(deleted), sum(deleted)]


def _committed(cluster: Cluster, group_id: str) -> list[Position]:
    committed = positions_of(cluster, [group_id])[group_id]
    if not committed:
        raise UnknownGroup(
            f"Group '{group_id}' has no committed offsets in this cluster, so the states that it needs are unknown; "
            "nothing was changed.",
            remedy="Check --bootstrap-server. If the group is deleted, delete its directory at the location.",
            group=group_id,
        )
    return committed


def _require_same_cluster(cluster: Cluster, group_id: str, committed: list[Position], found: Collectable) -> None:
    """Rejects the states of a group of the same name in another cluster: its committed offsets are not here."""
    identities = cluster.topics.identities({it.topic_partition.topic for it in committed}).values()
    here = {it.cluster_id for it in identities if it.cluster_id is not None}
    others = found.cluster_ids - here
    if here and others:
        raise GroupRejected(
            f"The location has states of group '{group_id}' of cluster {', '.join(sorted(others))}, and this cluster is "
            f"{', '.join(sorted(here))}; nothing was changed.",
            remedy=f"Check --bootstrap-server, and the location with: "
            f"{command('groups describe', [group_id], '--state --state-location LOCATION')}.",
            group=group_id,
        )
