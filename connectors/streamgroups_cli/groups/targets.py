"""The options that name the target of a reset: the scenarios of ``kafka-consumer-groups.sh --reset-offsets``.

``groups reset`` and ``checkpoint copy`` use them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import InvalidOption
from streamgroups.groups.reset_plan import Scenario, ShiftBy
from streamgroups.positions import AtOffset, AtTime, Latest, TrimHorizon, parse_time_ms
from streamgroups_admin.cluster import Cluster

#: The heading of these options.
TARGET_PANEL = "Target (use one)"
#: The names of these options.
OPTIONS = ("--to-earliest", "--to-latest", "--to-offset", "--shift-by", "--to-datetime", "--by-duration")


@dataclass(frozen=True, slots=True)
class Ago:
    """A duration before the time of its evaluation."""

    duration_ms: int


Target: TypeAlias = Scenario | Ago


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The options of each command that moves positions."""

    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="The earliest offset.", rich_help_panel=TARGET_PANEL)
    ] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="The latest offset.", rich_help_panel=TARGET_PANEL)] = (
        False
    )
    to_offset: Annotated[
        int | None,
        typer.Option("--to-offset", metavar="N", help="This offset.", rich_help_panel=TARGET_PANEL, show_default=False),
    ] = None
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            help="Shift the offset by N, forward or backward.",
            rich_help_panel=TARGET_PANEL,
            show_default=False,
        ),
    ] = None
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="The first record at or after a time, in ISO 8601; UTC without a time zone.",
            rich_help_panel=TARGET_PANEL,
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="DURATION",
            help="The first record at or after this duration before now, as in 1h30m.",
            rich_help_panel=TARGET_PANEL,
        ),
    ] = None

    def given(self) -> dict[str, Target]:
        """Returns the targets by the names of their options.

        Raises:
            InvalidOption: if a time or a duration is not one.
        """
        targets: Mapping[str, Target | None] = {
            "--to-earliest": TrimHorizon() if self.to_earliest else None,
            "--to-latest": Latest() if self.to_latest else None,
            "--to-offset": None if self.to_offset is None else AtOffset(self.to_offset),
            "--shift-by": None if self.shift_by is None else ShiftBy(self.shift_by),
            "--to-datetime": None
            if self.to_datetime is None
            else AtTime(parse_time_ms(self.to_datetime, option="--to-datetime")),
            "--by-duration": None
            if self.by_duration is None
            else Ago(parse_duration_ms(self.by_duration, option="--by-duration")),
        }
        return {name: target for name, target in targets.items() if target is not None}


def only(given: Mapping[str, Target], names: Collection[str]) -> Target:
    """Returns the only target.

    Args:
        given: the targets by the names of their options.
        names: the names of all options.

    Raises:
        InvalidOption: if there is not exactly one.
    """
    if len(given) != 1:
        raise InvalidOption("A reset requires exactly one target.", remedy=f"Use one of {', '.join(names)}.")
    return next(iter(given.values()))


def scenario_of(target: Target, cluster: Cluster) -> Scenario:
    """Returns the scenario of a target at the current time."""
    return AtTime(cluster.now_ms() - target.duration_ms) if isinstance(target, Ago) else target
