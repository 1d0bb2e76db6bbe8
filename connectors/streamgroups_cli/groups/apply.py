"""Applies a change of committed offsets: first the undo file, then commit by commit, and finally a report.

``reset``, ``import``, ``delete`` and ``delete-offsets`` use it. An interrupted change leaves two files: one that undoes
it, and one that finishes it. Both contain absolute offsets, so each can be applied repeatedly. Source: SEMANTICS O1,
O2.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.groups.offset_files import NO_LINKS, Links
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.applying import PARTITIONS_PER_COMMIT, apply
from streamgroups_admin.groups.live_reset import cancel_reset_requests
from streamgroups_admin.groups.plans import GroupPlan
from streamgroups_admin.groups.undo_files import Changes, write_undo
from streamgroups_cli.groups.plan_tables import emit_plans, warn_of_clamping
from streamgroups_cli.groups.reset_states import require_no_added, require_states, with_states
from streamgroups_cli.groups.scope import StateLocationOption
from streamgroups_cli.options import ExecuteOption
from streamgroups_cli.output import Output, OutputOption, print_message

NOTHING_TO_DO = "There is nothing to do."
ONLY_A_PLAN = "Nothing was changed: this is the plan. --execute applies it."


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of each command that changes committed offsets."""

    execute: ExecuteOption = False
    undo_file: Annotated[
        Path | None,
        typer.Option(
            "--undo-file",
            metavar="FILE",
            help="File for the previous offsets, for undo. Default: a new file in the state directory.",
        ),
    ] = None
    output: OutputOption = Output.table


@dataclass(frozen=True, slots=True)
class LiveOptions(ApplyOptions):
    """The options of each command that sets committed offsets, also of groups with live members.

    Raises:
        InvalidOption: if ``wait`` is not a duration.
    """

    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="Maximum time for members to finish their batches and apply the change."
        ),
    ] = "1m"

    def __post_init__(self) -> None:
        _ = self.wait_s

    @property
    def wait_s(self) -> float:
        """The time for members, in seconds."""
        return parse_duration_ms(self.wait, option="--wait") / 1_000


@dataclass(frozen=True, slots=True)
class ChangeOptions(LiveOptions):
    """The options of each command that sets committed offsets to positions of the user."""

    strict: Annotated[
        bool, typer.Option("--strict", help="Reject offsets outside a partition; otherwise the nearest offset is used.")
    ] = False
    allow_other_ids: Annotated[
        bool,
        typer.Option(
            "--allow-other-ids", help="Accept a file from another cluster, or from before a topic was recreated."
        ),
    ] = False
    state_location: StateLocationOption = None
    ignore_state: Annotated[
        bool,
        typer.Option(
            "--ignore-state",
            help="Do not check that states lead to the new offsets. The option 'onMissingState' of the queries decides.",
        ),
    ] = False

    @property
    def state_options(self) -> str:
        """The options about states, for a command to paste, without the credentials of the location."""
        options = ["--ignore-state"] if self.ignore_state else []
        if self.state_location is not None:
            from streamgroups_operators.locations import shown

            options += ["--state-location", shown(self.state_location)]
        return "".join(f" {shlex.quote(it)}" for it in options)


def carry_out(
    cluster: Cluster, plans: Sequence[GroupPlan], change: ChangeOptions, *, why: str, links: Links = NO_LINKS
) -> None:
    """Prints plans and, with ``execute``, applies them: undo file, changes, report.

    Args:
        cluster: the cluster.
        plans: the plans.
        change: the options.
        why: the reason, for the undo file.
        links: the undo file that the change reverts, or that of the change that it completes.

    Raises:
        GroupRejected: with ``strict``, if an offset is outside of its partition; and see
            :func:`~streamgroups_cli.groups.reset_states.require_states`.
        PartitionsAdded: see :func:`~streamgroups_cli.groups.reset_states.require_no_added`.
        PartlyDone: see :func:`apply`.
    """
    plans = checked(cluster, plans, change)
    if any(p.changes for p in plans) and not change.execute:
        print_message(ONLY_A_PLAN)
    else:
        apply_plans(cluster, plans, change, why=why, links=links)


def checked(cluster: Cluster, plans: Sequence[GroupPlan], change: ChangeOptions) -> Sequence[GroupPlan]:
    """Prints plans, and checks them. Nothing is changed.

    Returns:
        The plans with their states, for :func:`apply_plans`.

    Raises:
        StreamGroupsError: as :func:`carry_out`.
    """
    warn_of_clamping(plans, strict=change.strict)
    plans = with_states(cluster, plans, change.state_location)
    emit_plans(cluster, plans, change.output, dry_run=not change.execute)
    require_no_added(plans)
    if not change.ignore_state:
        require_states(plans, execute=change.execute)
    return plans


def apply_plans(
    cluster: Cluster, plans: Sequence[GroupPlan], change: ChangeOptions, *, why: str, links: Links = NO_LINKS
) -> bool:
    """Applies plans that are :func:`checked`: undo file, changes, report.

    Args:
        cluster: the cluster.
        plans: the plans.
        change: the options.
        why: the reason, for the undo file.
        links: the undo file that the change reverts, or that of the change that it completes.

    Returns:
        Whether they change anything.

    Raises:
        PartlyDone: see :func:`apply`.
    """
    changes: Changes = {p.group_id: p.changes for p in plans if p.changes}
    if not changes:
        print_message(NOTHING_TO_DO)
        return False
    undo = write_undo(cluster, changes, change.undo_file, why=why, options=change.state_options, links=links)
    live = {p.group_id for p in plans if p.live is not None}

    def prepare() -> None:
        for group_id in changes.keys() - live:
            cancel_reset_requests(cluster, group_id, changes[group_id].keys())

    with progress(changes) as advance:
        apply(cluster, changes, undo, verb="moved", live=live, wait_s=change.wait_s, prepare=prepare, advance=advance)
    return True


@contextmanager
def progress(changes: Changes) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on a terminal if there is more than one request."""
    total = sum(map(len, changes.values()))
    if total <= PARTITIONS_PER_COMMIT or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("partitions", total=total)
        yield lambda count: progress.advance(task, count)
