"""``streamgroups savepoint restore``: a reset with states, of the same group or of a new one (a fork).

:mod:`streamgroups_admin.savepoints.restoring` plans it and carries it out. Source: SEMANTICS C3, O1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from streamgroups.errors import InvalidOption
from streamgroups.savepoints.restoring import Operators
from streamgroups_admin.savepoints.restoring import (
    Restore,
    carry_out_restore,
    effects,
    plan_restore,
    target_of,
)
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import ONLY_A_PLAN, LiveOptions, progress
from streamgroups_cli.groups.plan_tables import emit_plans
from streamgroups_cli.groups.scope import StateLocationOption
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message
from streamgroups_cli.savepoints.arguments import Location, SavepointId
from streamgroups_operators.savepoints.directory import SavepointDirectory


@dataclass(frozen=True, slots=True)
class RestoreOptions(LiveOptions):
    """The options that decide where and how a savepoint continues.

    Raises:
        InvalidOption: if ``wait`` is not a duration, or ``rename`` is invalid.
    """

    state_location: StateLocationOption = None
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Continue in this new group (fork), instead of the group of the savepoint.",
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="DIR",
            help="The new checkpointLocation of the query that continues, if the savepoint has a checkpoint of Spark.",
        ),
    ] = None
    state_only: Annotated[
        bool,
        typer.Option(
            "--state-only",
            help="Keep the committed offsets of the group, and use the states of the savepoint. The records in between are "
            "read without output.",
        ),
    ] = False
    rename: Annotated[
        list[str] | None,
        typer.Option(
            "--rename", metavar="OLD=NEW", help="The new name of an operator of a changed program; repeatable."
        ),
    ] = None
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="NAME", help="An operator that a changed program does not have; repeatable."),
    ] = None
    accept_repeated_output: Annotated[
        bool,
        typer.Option(
            "--accept-repeated-output",
            help="Accept that the output after the savepoint is written again, beside the old one.",
        ),
    ] = False
    accept_other_partitions: Annotated[
        bool,
        typer.Option(
            "--accept-other-partitions",
            help="Accept that partitions that the savepoint does not have keep their offsets and states.",
        ),
    ] = False

    def __post_init__(self) -> None:
        _ = self.wait_s, self.operators

    @property
    def operators(self) -> Operators:
        """The operators of the program that continues."""
        renamed = {}
        for text in self.rename or ():
            old, is_pair, new = text.partition("=")
            if not (old and is_pair and new) or old in renamed:
                raise InvalidOption(
                    f"--rename {text} is invalid.", remedy="Write --rename OLD=NEW, once for each operator."
                )
            renamed[old] = new
        return Operators(renamed, frozenset(self.without or ()))


@with_options
def restore(connect: Connect, location: Location, savepoint: SavepointId, options: RestoreOptions) -> None:
    """Restore a savepoint: set the group to its positions and states. Members of this library apply it while they run.

    Output that was written after the savepoint stays, and is written again.
    """
    directory = SavepointDirectory(location, savepoint)
    record = directory.read()
    target = target_of(
        record,
        options.operators,
        group=options.group,
        state_location=options.state_location,
        checkpoint=options.checkpoint,
        is_state_only=options.state_only,
    )
    restored = Restore(directory, record, target, options.operators, options.state_only, options.checkpoint)
    with connect() as cluster:
        plan = plan_restore(cluster, restored)
        emit_plans(cluster, [plan], options.output, dry_run=not options.execute)
        for effect in effects(restored, plan):
            print_message(effect)
        if not options.execute:
            print_message(ONLY_A_PLAN)
            return
        with progress({plan.group_id: plan.changes}) as advance:
            carry_out_restore(
                cluster,
                restored,
                plan,
                undo_file=options.undo_file,
                wait_s=options.wait_s,
                accept_repeated_output=options.accept_repeated_output,
                accept_other_partitions=options.accept_other_partitions,
                advance=advance,
            )
