"""``streamgroups groups reset``: resets the offsets of groups, also of those with live members of this library.

It has all scenarios of ``kafka-consumer-groups.sh --reset-offsets`` but ``--from-file``, which is ``import``. Without ``--execute`` it
only prints the plan. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1, S6.
"""

from __future__ import annotations

from typing import Annotated

import typer

from streamgroups.errors import InvalidOption
from streamgroups.groups.reset_plan import ToCurrent, parse_scope
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import ChangeOptions, carry_out
from streamgroups_cli.groups.reset_plans import plan_scenario
from streamgroups_cli.groups.scope import AllGroupsOption, GroupsArgument, TopicsOption, chosen_groups, group_ids
from streamgroups_cli.groups.targets import OPTIONS, TARGET_PANEL, TargetOptions, only, scenario_of
from streamgroups_cli.options import with_options


@with_options
def reset(
    connect: Connect,
    change: ChangeOptions,
    targets: TargetOptions,
    groups: GroupsArgument = None,
    all_groups: AllGroupsOption = False,
    topic: TopicsOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="The committed offset, or the latest offset without one.", rich_help_panel=TARGET_PANEL
        ),
    ] = False,
) -> None:
    """Reset the offsets of groups. Members of this library apply the reset; groups with other members are rejected."""
    chosen = chosen_groups(groups, all_groups)
    given = {**targets.given(), **({"--to-current": ToCurrent()} if to_current else {})}
    target = only(given, [*OPTIONS, "--to-current"])
    scope = None if all_topics else parse_scope(topic or [])
    if topic and all_topics:
        raise InvalidOption("--topic and --all-topics exclude each other.", remedy="Omit one of them.")
    if not topic and not all_topics:
        raise InvalidOption("The partitions are missing.", remedy="Use --topic TOPIC[:0,1], or --all-topics.")
    with connect() as cluster:
        ids = group_ids(cluster, chosen)
        plans = plan_scenario(cluster, ids, scope, scenario_of(target, cluster))
        carry_out(cluster, plans, change, why=f"before a reset {next(iter(given))}")
