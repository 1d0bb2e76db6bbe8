"""``streamgroups groups export`` and ``import``: write committed offsets to a file, and commit those of a file.

``import`` also undoes a change. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1; the CSV format is that of
``kafka-consumer-groups.sh --export``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption, UnknownGroup
from streamgroups.groups.offset_files import FiledOffset, to_csv, to_json
from streamgroups.groups.reset_plan import parse_scope
from streamgroups.printable import printable
from streamgroups.times import utc
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.changes import ChangeOptions, carry_out
from streamgroups_cli.groups.reset_plans import plan_from_file, read_offsets_file
from streamgroups_cli.groups.scope import AllGroupsOption, GroupsArgument, TopicsOption, chosen_groups, group_ids
from streamgroups_cli.groups.undo_files import write_new
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, say


@with_options
def export(
    connect: Connect,
    groups: GroupsArgument = None,
    all_groups: AllGroupsOption = False,
    topic: TopicsOption = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file to write. Default: standard output.")
    ] = None,
    output: Annotated[
        Output | None,
        typer.Option(
            "--output",
            "-o",
            help="csv for Kafka's tool, json to include metadata. Default: by the file name, else csv.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Export the committed offsets of groups."""
    chosen = chosen_groups(groups, all_groups)
    scope = parse_scope(topic or [])
    if output not in (None, Output.csv, Output.json):
        raise InvalidOption(f"Option '--output' is '{output.value}'.", remedy="Allowed values: csv, json.")
    with connect() as cluster:
        ids = group_ids(cluster, chosen)
        committed = cluster.groups.committed_offsets(ids)
        identities = cluster.topics.identities({tp.topic for offsets in committed.values() for tp in offsets})
        now = utc(cluster.now_ms()) or ""
    unknown = [g for g in ids if not committed[g]]
    if unknown and chosen is not None:
        raise UnknownGroup(
            f"Group {', '.join(map(repr, unknown))} has no committed offsets.",
            remedy="See: streamgroups groups list.",
            group=unknown[0] if len(unknown) == 1 else None,
        )
    filed = {
        g: {
            tp: FiledOffset(c.next_offset, c.metadata)
            for tp, c in offsets.items()
            if not scope or (tp.topic in scope and tp.partition in (scope[tp.topic] or {tp.partition}))
        }
        for g, offsets in committed.items()
    }
    by_name = Output.json if file is not None and file.suffix == ".json" else Output.csv
    as_json = (output or by_name) is Output.json
    text = to_json(filed, identities, made_at=now, why="an export") if as_json else to_csv(filed)
    if file is None:
        print(printable(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_new(file, text)
        say(f"{sum(map(len, filed.values()))} offsets were written to {file}")


@with_options
def import_(
    connect: Connect,
    change: ChangeOptions,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Offsets file of an export, a reset or Kafka's tool.")],
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="The target group, if the file names no group or another one.",
        ),
    ] = None,
) -> None:
    """Reset groups to the offsets in a file. Members of this library apply it; groups with other members are rejected."""
    filed = read_offsets_file(file, group)
    if group is not None and group not in filed:
        if len(filed) != 1:
            raise InvalidOption(
                f"{file} contains {len(filed)} groups, but not '{group}'.",
                remedy="Omit --group, or export only the group to copy.",
            )
        filed = {group: next(iter(filed.values()))}
    elif group is not None:
        filed = {group: filed[group]}
    with connect() as cluster:
        plans = plan_from_file(cluster, filed, sorted(filed), source=file, allow_other_ids=change.allow_other_ids)
        carry_out(cluster, plans, change, why=f"before an import of {file}")
