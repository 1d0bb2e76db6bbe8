"""``streamgroups groups copy``: commits the positions of one group for another.

The metadata of a commit names states and the mode of a member, which belong to the group that committed it. So only offsets are
copied. With ``--with-state`` the new group is a fork with its own states, as if a savepoint was restored into it.
``streamgroups_cli.groups`` imports it. Source: SEMANTICS O1, C3.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from streamgroups.coordination.reset_protocol import is_metadata_group
from streamgroups.errors import GroupRejected, InvalidOption, UnknownGroup
from streamgroups.groups.commit_metadata import mark_of, position_of
from streamgroups.groups.offset_files import FiledOffset
from streamgroups.groups.reset_plan import is_in_scope, parse_scope
from streamgroups.identity import UNKNOWN
from streamgroups.monitoring.group_tables import see_groups
from streamgroups.ports import Committed
from streamgroups.shell_quoting import command
from streamgroups.state.origins import Earlier, Named
from streamgroups_admin.cluster import Cluster
from streamgroups_cli.connection import Connect
from streamgroups_cli.groups.apply import ONLY_A_PLAN, ChangeOptions, carry_out, progress
from streamgroups_cli.groups.plan_tables import emit_plans
from streamgroups_cli.groups.reset_plans import plan_from_file
from streamgroups_cli.groups.scope import TopicsOption, all_groups_of
from streamgroups_cli.options import with_options
from streamgroups_cli.output import print_message


@with_options
def copy(
    connect: Connect,
    change: ChangeOptions,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The group to copy.", show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TO", help="The group that receives the positions.")],
    topic: TopicsOption = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Accept a target with committed offsets; those of other partitions stay."),
    ] = False,
    with_state: Annotated[
        bool,
        typer.Option(
            "--with-state",
            help="Also copy the states, below --state-location, into a new group. Its queries can run meanwhile.",
        ),
    ] = False,
) -> None:
    """Copy the committed offsets of a group to another group, without the states that they name unless --with-state."""
    _require_two_groups(source, target)
    if with_state:
        if topic or overwrite or change.state_location is None:
            raise InvalidOption(
                "--with-state needs --state-location, and copies all partitions into a new group.",
                remedy="Add --state-location, and omit --topic and --overwrite.",
            )
        _copy_with_state(connect, change, source, target, change.state_location)
        return
    scope = parse_scope(topic or [])
    with connect() as cluster:
        committed = cluster.groups.committed_offsets([source, target])
        filed = {tp: _without_metadata(it) for tp, it in committed[source].items() if is_in_scope(tp, scope)}
        if not filed:
            of_topics = f" of {', '.join(map(repr, scope))}" if scope else ""
            raise UnknownGroup(
                f"Group '{source}' has no committed offsets{of_topics}; nothing was changed.",
                remedy=see_groups([source], all_groups_of(cluster)),
                group=source,
            )
        if committed[target] and not overwrite:
            raise GroupRejected(
                f"Group '{target}' has committed offsets for {len(committed[target])} partitions; nothing was changed.",
                remedy=f"See: {command('groups describe', [target])}. Replace them with --overwrite.",
                group=target,
            )
        plans = plan_from_file(
            cluster,
            {target: filed},
            [target],
            source=f"Group '{source}'",
            allow_other_ids=change.allow_other_ids,
        )
        _print_not_copied(cluster, source, target)
        carry_out(cluster, plans, change, why=f"before a copy of group '{source}'")


def _copy_with_state(connect: Connect, change: ChangeOptions, source: str, target: str, location: str) -> None:
    from streamgroups_admin.savepoints.restoring import Restore, carry_out_restore, effects, plan_restore
    from streamgroups_operators.savepoints.creating import SavepointCreator
    from streamgroups_operators.savepoints.directory import SavepointDirectory
    from streamgroups_operators.savepoints.placing import Target

    with connect() as cluster, TemporaryDirectory(prefix="streamgroups-") as folder:
        record = SavepointCreator(cluster.groups, cluster.topics).create(source, location, folder, cluster.now_ms())
        operators = {it.name: it.name for it in record.operators}
        fork = Restore(SavepointDirectory(folder, record.id), record, Target(location, target, operators))
        plan = plan_restore(cluster, fork)
        emit_plans(cluster, [plan], change.output, dry_run=not change.execute)
        for effect in effects(fork, plan):
            print_message(effect)
        if change.execute:
            with progress({plan.group_id: plan.changes}) as advance:
                # The savepoint does not remain. A fork has no program before, so an import of the rest keeps none.
                carry_out_restore(
                    cluster,
                    fork,
                    plan,
                    undo_file=change.undo_file,
                    wait_s=change.wait_s,
                    is_repeatable=False,
                    advance=advance,
                )
        else:
            print_message(ONLY_A_PLAN)


def _require_two_groups(source: str, target: str) -> None:
    if source == target:
        raise InvalidOption(f"Group '{source}' is both FROM and TO.", remedy="Name two groups.")
    for group_id in (source, target):
        if is_metadata_group(group_id):
            raise InvalidOption(
                f"'{group_id}' is a metadata group, which describes the members of its group.",
                remedy="Name the group itself.",
            )


def _without_metadata(committed: Committed) -> FiledOffset:
    mark = mark_of(committed.metadata)
    return FiledOffset(committed.next_offset, identity=UNKNOWN if mark is None else mark.identity)


def _print_not_copied(cluster: Cluster, source: str, target: str) -> None:
    committed = cluster.groups.committed_offsets([source])[source]
    named = [
        tp
        for tp, it in committed.items()
        if isinstance(position_of(tp, it.next_offset, it.metadata).origin, Named | Earlier)
    ]
    if named:
        print_message(
            f"Warning: Only the offsets are copied. Group '{source}' has stored states for {len(named)} of them, which "
            f"are not copied. For a query with state in group '{target}' the option 'onMissingState' decides. --with-state "
            "copies them."
        )
