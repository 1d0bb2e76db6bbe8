"""Applies a change of committed offsets, commit by commit, and reports what was changed.

The commands about groups and the restore of a savepoint use it, after they have written the undo file. An interrupted change
leaves two files: one that undoes it, and one that finishes it. Both contain absolute offsets, so each can be applied
repeatedly. Source: SEMANTICS O1, O2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from streamgroups.errors import InvalidOption, PartlyDone, StreamGroupsError, UnknownGroup
from streamgroups.groups.offset_files import Links, to_json
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.printable import listed
from streamgroups.shell_quoting import command
from streamgroups.times import utc
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.live_reset import marked_offsets, move_live
from streamgroups_admin.groups.stored_files import filed, state_file, write_new
from streamgroups_admin.groups.undo_files import Changes, Undo, is_rejection

#: The number of partitions in one step of the progress bar. A large step takes several commits.
PARTITIONS_PER_COMMIT = 1_000
_INTERRUPTED = "The command was interrupted."


@dataclass(slots=True)
class _Account:
    done: dict[str, list[TopicPartition]] = field(default_factory=dict)
    failures: dict[str, dict[TopicPartition, StreamGroupsError]] = field(default_factory=dict)
    #: Whether a request was sent that changes offsets.
    is_begun: bool = False

    def fail_rest(self, group_id: str, partitions: Collection[TopicPartition], error: StreamGroupsError) -> None:
        """Adds the error to all partitions of a group that have no result."""
        reached = {*self.done.get(group_id, ()), *self.failures.get(group_id, ())}
        self.failures.setdefault(group_id, {}).update(dict.fromkeys(set(partitions) - reached, error))


def apply(
    cluster: Cluster,
    changes: Changes,
    undo: Undo,
    *,
    verb: str,
    live: Collection[str] = (),
    wait_s: float = 0.0,
    is_restored: bool = False,
    is_repeatable: bool = False,
    prepare: Callable[[], None] = lambda: None,
    advance: Callable[[int], None] = lambda count: None,
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
        is_repeatable: whether the user completes the change with the same command, and not with a file with the rest.
        prepare: requests of the change before its first offset.
        advance: receives the number of partitions of each commit.

    Raises:
        PartlyDone: if some partitions were changed and some were not. The error names the file with the rest.
        StreamGroupsError: if no partition was changed: the first failure. If it is unknown whether one was changed, the
            file that undoes the change stays, and the error names it.
        KeyboardInterrupt: at Ctrl-C, with the same text, which is also a message.
    """
    _prepare(undo, prepare)
    account, is_interrupted = _Account(), False
    total = sum(map(len, changes.values()))
    for group_id, partitions in changes.items():
        try:
            if group_id in live:
                _move_live(cluster, group_id, partitions, account, wait_s, is_restored=is_restored)
            else:
                _apply_to_group(cluster, group_id, partitions, account, advance, is_restored=is_restored)
        except StreamGroupsError as e:
            # An error of the connection, or of the coordinator, is the reason of all partitions of this group
            # without a result.
            account.fail_rest(group_id, partitions, e)
        except KeyboardInterrupt:
            is_interrupted = True
            account.fail_rest(group_id, partitions, _interrupted(group_id, is_live=group_id in live))
            for later, not_reached in changes.items():
                account.fail_rest(later, not_reached, StreamGroupsError(_INTERRUPTED))
            break
    if any(account.failures.values()):
        failed = _failed(cluster, changes, account, undo, verb, is_repeatable=is_repeatable)
        if is_interrupted:
            cluster.notify(str(failed))
            raise KeyboardInterrupt(str(failed)) from failed
        raise failed
    undo.complete()
    how_to_undo = f" Undo it with: {undo.command}" if undo.command else ""
    cluster.notify(f"{total} partition{'' if total == 1 else 's'} {verb}.{how_to_undo}")


def _prepare(undo: Undo, prepare: Callable[[], None]) -> None:
    try:
        prepare()
    except StreamGroupsError as e:
        undo.discard()
        raise e.with_text(f"{e.what} No offset was changed.", e.remedy) from e
    except (Exception, KeyboardInterrupt):
        undo.discard()
        raise


def _interrupted(group_id: str, *, is_live: bool) -> StreamGroupsError:
    if is_live:
        return PartlyDone(
            f"{_INTERRUPTED} If the reset request of group '{group_id}' is written, its members apply it.",
            group=group_id,
        )
    return StreamGroupsError(_INTERRUPTED)


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
    account.is_begun = True
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
            account.is_begun = True
            failed = (
                cluster.groups.alter_offsets(group_id, {tp: marked[tp] for tp in portion})
                if kind[0] in marked
                else _delete_offsets(cluster, group_id, portion)
            )
            failures.update(failed)
            done += [tp for tp in portion if tp not in failed]
            advance(len(portion))


def _delete_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, StreamGroupsError]:
    try:
        return cluster.groups.delete_offsets(group_id, partitions)
    except UnknownGroup:
        # The group had these offsets. A broker can delete a group with its last offset. If its response is lost, the
        # repeated request finds no group.
        return {}


def _failed(
    cluster: Cluster, changes: Changes, account: _Account, undo: Undo, verb: str, *, is_repeatable: bool
) -> StreamGroupsError:
    done = sum(map(len, account.done.values()))
    errors = [error for failures in account.failures.values() for error in failures.values()]
    if not account.is_begun:
        undo.discard()
        return errors[0]
    # A written reset request will be applied at some time.
    if not done and not any(isinstance(it, PartlyDone) for it in errors):
        return undo.failed(errors)
    rest = {
        group_id: {tp: changes[group_id][tp] for tp in failed}
        for group_id, failed in account.failures.items()
        if failed
    }
    apply_rest = "Repeat the command to apply the rest." if is_repeatable else _stored_rest(cluster, rest, undo)
    complete = [f"'{g}'" for g in changes if not account.failures.get(g)]
    whole = f" Complete: group {', '.join(complete)}." if complete else ""
    not_done = "; ".join(f"{listed(sorted(partitions))} of group '{g}'" for g, partitions in rest.items())
    total = done + sum(map(len, rest.values()))
    # A request without a response can have taken effect. Both files contain absolute offsets, so this does no harm.
    is_clear = all(is_rejection(it) or isinstance(it, PartlyDone) for it in errors)
    unclear = "" if is_clear else " It is unknown whether a part of these was changed too."
    return PartlyDone(
        f"{done} of {total} partitions were {verb}.{whole} Not {verb}: {not_done}. {errors[0].what}{unclear}",
        remedy=f"{apply_rest} Undo the changes with: {undo.import_command}.",
    )


def _stored_rest(cluster: Cluster, rest: Changes, undo: Undo) -> str:
    """Writes a file that completes the change. Returns the remedy that names it."""
    offsets = {g: filed(partitions) for g, partitions in rest.items()}
    now_ms = cluster.now_ms()
    links = Links(completes=None if undo.path is None else str(undo.path.absolute()))
    text = to_json(offsets, undo.identities, made_at=utc(now_ms) or "", why="the rest", links=links)
    try:
        path = write_new(state_file("rest", list(rest), now_ms), text)
    except InvalidOption as e:
        return f"The file with the rest cannot be written: {e.what}"
    return f"Apply the rest with: {command('groups import', [str(path)], f'--execute{undo.options}')}."
