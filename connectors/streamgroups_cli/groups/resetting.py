"""``streamgroups groups reset``: resets the offsets of groups, also of those with live members of this library.

It has all scenarios of ``kafka-consumer-groups.sh --reset-offsets`` but ``--from-file``, which is ``import``. Without ``--execute`` it
only prints the plan. ``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1, S6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.groups.reset_plan import Scenario, ShiftBy, ToCurrent, parse_scope
from streamgroups.positions import AtOffset, AtTime, Latest, TrimHorizon, parse_time_ms
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.changes import ChangeOptions, carry_out
from streamgroups_cli.groups.reset_plans import plan_scenario
from streamgroups_cli.groups.scope import AllGroupsOption, GroupsArgument, TopicsOption, chosen_groups, group_ids
from streamgroups_cli.options import with_options

_SCENARIO = "Target (use one)"


@dataclass(frozen=True, slots=True)
class Ago:
    """A duration before the time of its evaluation."""

    duration_ms: int


_Target: TypeAlias = Scenario | Ago


@with_options
def reset(
    connect: Connect,
    change: ChangeOptions,
    groups: GroupsArgument = None,
    all_groups: AllGroupsOption = False,
    topic: TopicsOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="The earliest offset.", rich_help_panel=_SCENARIO)
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="The latest offset.", rich_help_panel=_SCENARIO)
    ] = False,
    to_current: Annotated[
        bool,
        typer.Option(
            "--to-current", help="The committed offset, or the latest offset without one.", rich_help_panel=_SCENARIO
        ),
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(metavar="N", help="This offset.", rich_help_panel=_SCENARIO, show_default=False)
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Shift the committed offset by N, forward or backward.",
            rich_help_panel=_SCENARIO,
            show_default=False,
        ),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The first record at or after a time, in ISO 8601; UTC without a time zone.",
            rich_help_panel=_SCENARIO,
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="The first record at or after this duration before now, as in 1h30m.",
            rich_help_panel=_SCENARIO,
        ),
    ] = None,
) -> None:
    """Reset the offsets of groups. Members of this library apply the reset; groups with other members are rejected."""
    chosen = chosen_groups(groups, all_groups)
    given = {
        "--to-earliest": TrimHorizon() if to_earliest else None,
        "--to-latest": Latest() if to_latest else None,
        "--to-current": ToCurrent() if to_current else None,
        "--to-offset": None if to_offset is None else AtOffset(to_offset),
        "--shift-by": None if shift_by is None else ShiftBy(shift_by),
        "--to-datetime": None if to_datetime is None else AtTime(parse_time_ms(to_datetime, option="--to-datetime")),
        "--by-duration": None if by_duration is None else Ago(parse_duration_ms(by_duration, option="--by-duration")),
    }
    where_to = _only(given)
    scope = None if all_topics else parse_scope(topic or [])
    if topic and all_topics:
        raise InvalidOption("--topic and --all-topics exclude each other.", remedy="Omit one of them.")
    if not topic and not all_topics:
        raise InvalidOption("The partitions are missing.", remedy="Use --topic TOPIC[:0,1], or --all-topics.")
    with connect() as cluster:
        ids = group_ids(cluster, chosen)
        scenario = AtTime(cluster.now_ms() - where_to.duration_ms) if isinstance(where_to, Ago) else where_to
        plans = plan_scenario(cluster, ids, scope, scenario)
        carry_out(cluster, plans, change, why=f"before a reset {_words(given)}")


def _only(given: Mapping[str, _Target | None]) -> _Target:
    chosen = [scenario for scenario in given.values() if scenario is not None]
    if len(chosen) != 1:
        raise InvalidOption("A reset requires exactly one target.", remedy=f"Use one of {', '.join(given)}.")
    return chosen[0]


def _words(given: Mapping[str, _Target | None]) -> str:
    return next(name for name, scenario in given.items() if scenario is not None)
