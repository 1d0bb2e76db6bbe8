"""``streamgroups groups export`` and ``import``: write committed offsets to a file, and commit those of a file.

``import`` also undoes a change. Both also convert from and to Spark's own ``kafka`` source. ``streamgroups_cli.groups``
imports it. Source: SEMANTICS O1, O5; the CSV format is that of ``kafka-consumer-groups.sh --export``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption, UnknownGroup
from streamgroups.groups.offset_files import FiledOffset, FiledOffsets, Links, to_csv, to_json
from streamgroups.groups.reset_plan import is_in_scope, parse_scope
from streamgroups.monitoring.group_tables import see_groups
from streamgroups.printable import listed, printable
from streamgroups.shell_quoting import command
from streamgroups.times import utc
from streamgroups_admin.groups.stored_files import read_links, read_offsets_file, write_new
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import ChangeOptions, carry_out
from streamgroups_cli.groups.reset_plans import plan_from_file
from streamgroups_cli.groups.scope import (
    AllGroupsOption,
    GroupsArgument,
    TopicsOption,
    all_groups_of,
    chosen_groups,
    group_ids,
    offsets_in_scope,
)
from streamgroups_cli.groups.spark_positions import plan_from_checkpoint, print_spark_options
from streamgroups_cli.options import with_options
from streamgroups_cli.output import Output, print_message

_CHECKPOINT = "Checkpoint of Spark's Kafka source"


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
    to_spark_options: Annotated[
        bool,
        typer.Option(
            "--to-spark-options", help="Print the options with which format('kafka') continues at the offsets, as JSON."
        ),
    ] = False,
) -> None:
    """Export the committed offsets of groups."""
    chosen = chosen_groups(groups, all_groups)
    scope = parse_scope(topic or [])
    if output not in (None, Output.csv, Output.json):
        raise InvalidOption(f"Option '--output' is '{output.value}'.", remedy="Allowed values: csv, json.")
    if to_spark_options:
        if output is not None or chosen is None or len(chosen) != 1:
            raise InvalidOption(
                "--to-spark-options needs exactly one group, and has no --output.",
                remedy="Use: streamgroups groups export GROUP --to-spark-options.",
            )
        with connect() as cluster:
            print_spark_options(cluster, chosen[0], scope, file)
        return
    with connect() as cluster:
        ids = group_ids(cluster, chosen)
        committed = cluster.groups.committed_offsets(ids)
        identities = cluster.topics.identities({tp.topic for offsets in committed.values() for tp in offsets})
        now = utc(cluster.now_ms()) or ""
        unknown = [g for g in ids if not committed[g]] if chosen is not None else []
        known = all_groups_of(cluster) if unknown else []
    if unknown:
        raise UnknownGroup(
            f"Group {', '.join(map(repr, unknown))} has no committed offsets.",
            remedy=see_groups(unknown, known),
            group=unknown[0] if len(unknown) == 1 else None,
        )
    filed = {
        g: {tp: FiledOffset(c.next_offset, c.metadata) for tp, c in offsets.items() if is_in_scope(tp, scope)}
        for g, offsets in committed.items()
    }
    _require_topics(scope, filed)
    by_name = Output.json if file is not None and file.suffix == ".json" else Output.csv
    as_json = (output or by_name) is Output.json
    text = to_json(filed, identities, made_at=now, why="an export") if as_json else to_csv(filed)
    if file is None:
        print(printable(text, keep="\n") if sys.stdout.isatty() else text, end="")
    else:
        write_new(file, text)
        print_message(f"{sum(map(len, filed.values()))} offsets were written to {file}")


def _require_topics(scope: Mapping[str, frozenset[int] | None] | None, filed: FiledOffsets) -> None:
    """Rejects a topic without an offset: the user has named it."""
    found = {tp.topic for offsets in filed.values() for tp in offsets}
    missing = [topic for topic in scope or () if topic not in found]
    if missing:
        named = listed(map(repr, filed))
        raise UnknownGroup(
            f"Group {named} has no committed offsets of {listed(map(repr, missing))}; nothing was written.",
            remedy=f"See: {command('groups describe', list(filed))}.",
            group=next(iter(filed)) if len(filed) == 1 else None,
        )


@with_options
def import_(
    connect: Connect,
    change: ChangeOptions,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Offsets file of an export, a reset or Kafka's tool.", show_default=False),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="The target group, if the file names no group or another one.",
        ),
    ] = None,
    from_spark_checkpoint: Annotated[
        str | None,
        typer.Option(
            "--from-spark-checkpoint",
            metavar="DIR",
            help="Instead of a file: the checkpoint of a query of format('kafka'), a path or URI.",
            rich_help_panel=_CHECKPOINT,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="N",
            help="Number or name of a source of the query; repeatable. Default: all Kafka sources.",
            rich_help_panel=_CHECKPOINT,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1,...]",
            help="Import only this topic, or partitions of it; repeatable.",
        ),
    ] = None,
    nearest: Annotated[
        bool,
        typer.Option(
            "--nearest",
            help="Use the nearest offset for one outside of its partition; otherwise it is rejected.",
            rich_help_panel=_CHECKPOINT,
        ),
    ] = False,
) -> None:
    """Reset groups to the offsets in a file. Members of this library apply it; groups with other members are rejected.

    With --from-spark-checkpoint: commit the positions of a query of format('kafka') for a group without members.
    """
    scope = parse_scope(topic or [])
    if from_spark_checkpoint is not None:
        if file is not None or group is None:
            raise InvalidOption(
                "--from-spark-checkpoint needs --group, and no file.",
                remedy="Use: streamgroups groups import --from-spark-checkpoint DIR --group GROUP.",
            )
        with connect() as cluster:
            plan = plan_from_checkpoint(
                cluster, from_spark_checkpoint, group, sources=source or (), scope=scope, nearest=nearest
            )
            carry_out(cluster, [plan], change, why="before an import of a checkpoint")
        return
    if source or nearest:
        raise InvalidOption(
            "--source and --nearest need --from-spark-checkpoint.", remedy="Omit them, or name a checkpoint."
        )
    if file is None:
        raise InvalidOption("The file is missing.", remedy="Name an offsets file, or use --from-spark-checkpoint.")
    filed = _imported(file, group, scope)
    with connect() as cluster:
        plans = plan_from_file(cluster, filed, sorted(filed), source=str(file), allow_other_ids=change.allow_other_ids)
        links = Links(completes=read_links(file).completes)
        carry_out(cluster, plans, change, why=f"before an import of {file}", links=links)


def _imported(file: Path, group: str | None, scope: Mapping[str, frozenset[int] | None]) -> FiledOffsets:
    """Returns the offsets of a file in a scope, for the group of the option, or for all groups in the file."""
    filed = read_offsets_file(file, group)
    if group is not None and group not in filed:
        if len(filed) != 1:
            raise InvalidOption(
                f"{file} contains {len(filed)} groups, but not '{group}'.",
                remedy="Omit --group, or export only the group to copy.",
            )
        filed = {group: next(iter(filed.values()))}
    elif group is not None:
        others = [it for it in filed if it != group]
        if others:
            print_message(
                f"Warning: {file} also contains offsets of {listed(map(repr, others))}. --group leaves them out."
            )
        filed = {group: filed[group]}
    together = {tp: it for of_group in filed.values() for tp, it in of_group.items()}
    chosen = offsets_in_scope(together, scope, source=str(file)).keys()
    found = {g: {tp: it for tp, it in of_group.items() if tp in chosen} for g, of_group in filed.items()}
    return {g: of_group for g, of_group in found.items() if of_group}
