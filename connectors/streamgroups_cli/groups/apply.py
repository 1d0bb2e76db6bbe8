"""Applies a change of committed offsets: first the undo file, then commit by commit, and finally a report.

``reset``, ``import``, ``delete`` and ``delete-offsets`` use it. An interrupted change leaves two files: one that undoes
it, and one that finishes it. Both contain absolute offsets, so each can be applied repeatedly. Source: SEMANTICS O1,
O2.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from streamgroups.durations import parse_duration_ms
from streamgroups.errors import PartlyDone, StreamGroupsError
from streamgroups.groups.offset_files import to_json
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.times import utc
from streamgroups_cli.connection import Cluster
from streamgroups_cli.groups.live_reset import cancel_reset_requests, marked_offsets, move_live
from streamgroups_cli.groups.plan_tables import GroupPlan, emit_plans, warn_of_clamping
from streamgroups_cli.groups.reset_states import require_states, with_states
from streamgroups_cli.groups.scope import StateLocationOption
from streamgroups_cli.groups.undo_files import Changes, Undo, filed, state_file, write_new, write_undo
from streamgroups_cli.output import Output, OutputOption, print_message

#: The number of partitions in one commit: far below a broker's limit (about 1 MB), and one step of the progress bar.
PARTITIONS_PER_COMMIT = 1_000

NOTHING_TO_DO = "There is nothing to do."
ONLY_A_PLAN = "Nothing was changed: this is the plan. --execute applies it."


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of each command that changes committed offsets."""

    execute: Annotated[
        bool,
        typer.Option("--execute/--dry-run", help="Apply the plan; otherwise only print it.", show_default="dry-run"),
    ] = False
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
class ChangeOptions(ApplyOptions):
    """The options of each command that sets committed offsets, also of groups with live members.

    Raises:
        InvalidOption: if ``wait`` is not a duration.
    """

    strict: Annotated[
        bool, typer.Option("--strict", help="Reject offsets outside a partition; otherwise the nearest offset is used.")
    ] = False
    allow_other_ids: Annotated[
        bool,
        typer.Option(
            "--allow-other-ids", help="Accept a file from another cluster, or from before a topic was recreated."
        ),
    ] = False
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="DURATION", help="Maximum time for members to finish their batches and apply the reset."
        ),
    ] = "1m"
    state_location: StateLocationOption = None
    ignore_state: Annotated[
        bool,
        typer.Option(
            "--ignore-state",
            help="Do not check that states lead to the new offsets. The option 'onMissingState' of the queries decides.",
        ),
    ] = False

    def __post_init__(self) -> None:
        _ = self.wait_s

    @property
    def wait_s(self) -> float:
        """The time for members, in seconds."""
        return parse_duration_ms(self.wait, option="--wait") / 1_000

    @property
    def state_options(self) -> str:
        """The options about states, for a command to paste, without the credentials of the location."""
        options = ["--ignore-state"] if self.ignore_state else []
        if self.state_location is not None:
            from streamgroups_operators.locations import shown

            options += ["--state-location", shown(self.state_location)]
        return "".join(f" {shlex.quote(it)}" for it in options)


def carry_out(cluster: Cluster, plans: Sequence[GroupPlan], change: ChangeOptions, *, why: str) -> None:
    """Prints plans and, with ``execute``, applies them: undo file, changes, report.

    Raises:
        InvalidOption: with ``strict``, if an offset is outside of its partition.
        GroupRejected: see :func:`~streamgroups_cli.groups.reset_states.require_states`.
        PartlyDone: see :func:`apply`.
    """
    warn_of_clamping(plans, strict=change.strict)
    plans = with_states(cluster, plans, change.state_location)
    emit_plans(cluster, plans, change.output, dry_run=not change.execute)
    if not change.ignore_state:
        require_states(plans, execute=change.execute)
    changes: Changes = {p.group_id: p.changes for p in plans if p.changes}
    if not changes:
        print_message(NOTHING_TO_DO)
    elif not change.execute:
        print_message(ONLY_A_PLAN)
    else:
        undo = write_undo(cluster, changes, change.undo_file, why=why, options=change.state_options)
        live = {p.group_id for p in plans if p.live is not None}
        for group_id in changes.keys() - live:
            cancel_reset_requests(cluster, group_id, changes[group_id].keys())
        apply(cluster, changes, undo, verb="moved", live=live, wait_s=change.wait_s)


@dataclass(slots=True)
class _Account:
    done: dict[str, list[TopicPartition]] = field(default_factory=dict)
    failures: dict[str, dict[TopicPartition, StreamGroupsError]] = field(default_factory=dict)


def apply(
    cluster: Cluster,
    changes: Changes,
    undo: Undo,
    *,
    verb: str,
    live: Collection[str] = (),
    wait_s: float = 0.0,
    is_restored: bool = False,
) -> None:
    """Applies the changes.

    Args:
        cluster: the cluster.
        changes: the changes.
        undo: the file that undoes them.
        verb: the change of a partition's offset: ``moved``, ``deleted``.
        live: the groups with members, which receive a reset request.
        wait_s: the timeout for them, in seconds.
        is_restored: whether the metadata of the offsets names the states and the program of a savepoint.

    Raises:
        PartlyDone: if some partitions were changed and some were not. The error names the file with the rest.
        StreamGroupsError: if no partition was changed: the first failure.
    """
    account = _Account()
    total = sum(map(len, changes.values()))
    with _progress(total) as advance:
        for group_id, partitions in changes.items():
            try:
                if group_id in live:
                    _move_live(cluster, group_id, partitions, account, wait_s, is_restored=is_restored)
                else:
                    _apply_to_group(cluster, group_id, partitions, account, advance, is_restored=is_restored)
            except StreamGroupsError as e:
                # An error of the connection, or of the coordinator, is the reason of all partitions of this group
                # without a result.
                reached = {*account.done.get(group_id, ()), *account.failures.get(group_id, ())}
                account.failures.setdefault(group_id, {}).update(dict.fromkeys(partitions.keys() - reached, e))
    if any(account.failures.values()):
        raise _failed(cluster, changes, account, undo, verb)
    print_message(f"{total} partition{'' if total == 1 else 's'} {verb}. Undo it with: {undo.command}")


def _move_live(
    cluster: Cluster,
    group_id: str,
    changes: Mapping[TopicPartition, Committed | None],
    account: _Account,
    wait_s: float,
    *,
    is_restored: bool,
) -> None:
    offsets = {tp: offset for tp, offset in changes.items() if offset is not None}
    failed = move_live(cluster, group_id, offsets, within_s=wait_s, is_restored=is_restored)
    account.failures[group_id] = failed
    account.done[group_id] = [tp for tp in offsets if tp not in failed]


def _apply_to_group(
    cluster: Cluster,
    group_id: str,
    changes: Mapping[TopicPartition, Committed | None],
    account: _Account,
    advance: Callable[[int], None],
    *,
    is_restored: bool,
) -> None:
    failures = account.failures.setdefault(group_id, {})
    done = account.done.setdefault(group_id, [])
    offsets = {tp: offset for tp, offset in changes.items() if offset is not None}
    marked = marked_offsets(cluster, group_id, offsets, is_restored=is_restored) if offsets else {}
    for kind in (list(marked), [tp for tp in changes if tp not in marked]):
        for i in range(0, len(kind), PARTITIONS_PER_COMMIT):
            portion = kind[i : i + PARTITIONS_PER_COMMIT]
            failed = (
                cluster.groups.alter_offsets(group_id, {tp: marked[tp] for tp in portion})
                if kind[0] in marked
                else cluster.groups.delete_offsets(group_id, portion)
            )
            failures.update(failed)
            done += [tp for tp in portion if tp not in failed]
            advance(len(portion))


def _failed(cluster: Cluster, changes: Changes, account: _Account, undo: Undo, verb: str) -> StreamGroupsError:
    done = sum(map(len, account.done.values()))
    first = next(error for failures in account.failures.values() for error in failures.values())
    # A written reset request will be applied at some time.
    if not done and not isinstance(first, PartlyDone):
        undo.path.unlink(missing_ok=True)
        return first
    rest = {
        group_id: {tp: changes[group_id][tp] for tp in failed}
        for group_id, failed in account.failures.items()
        if failed
    }
    offsets = {g: {tp: filed(offset) for tp, offset in partitions.items()} for g, partitions in rest.items()}
    now_ms = cluster.now_ms()
    text = to_json(offsets, undo.identities, made_at=utc(now_ms) or "", why="the rest")
    path = write_new(state_file("rest", list(rest), now_ms), text)
    complete = [f"'{g}'" for g in changes if not account.failures.get(g)]
    whole = f" Complete: group {', '.join(complete)}." if complete else ""
    not_done = "; ".join(f"{listed(sorted(partitions))} of group '{g}'" for g, partitions in rest.items())
    total = done + sum(map(len, rest.values()))
    return PartlyDone(
        f"{done} of {total} partitions were {verb}.{whole} Not {verb}: {not_done}. {first.what}",
        remedy=f"Apply the rest with: streamgroups groups import {path} --execute{undo.options}. "
        f"Undo the changes with: streamgroups groups import {undo.path} --execute{undo.options}.",
    )


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar on a terminal if there is more than one request."""
    if total <= PARTITIONS_PER_COMMIT or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("partitions", total=total)
        yield lambda count: progress.advance(task, count)
