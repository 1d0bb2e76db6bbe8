"""The undo file of a change of committed offsets, from before the change until the change is complete.

``apply``, ``deleting`` and the restore of a savepoint use it. A file in the state directory has a marker until its change is
confirmed as a whole (:mod:`streamgroups.groups.undo_history`). Source: SEMANTICS O2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from streamgroups.errors import InvalidOption, PartlyDone, StreamGroupsError
from streamgroups.groups.offset_files import NO_LINKS, FiledOffsets, Links, to_json
from streamgroups.groups.undo_history import is_repeated, undo_entries
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.ports import Committed
from streamgroups.shell_quoting import command
from streamgroups.times import utc
from streamgroups_admin.cluster import Cluster
from streamgroups_admin.groups.stored_files import (
    filed,
    has_unfinished,
    marker_of,
    read_links,
    read_offsets_file,
    remove_marker,
    state_file,
    write_marker,
    write_new,
)
from streamgroups_admin.groups.undo_search import StoredUndo, UndoSearch

#: For each group, the new offset of each partition; ``None`` to delete it.
Changes: TypeAlias = Mapping[str, Mapping[TopicPartition, Committed | None]]


@dataclass(frozen=True, slots=True)
class Undo:
    """The file that undoes a change, and the ids of the changed topics.

    Args:
        path: the file; ``None`` if the groups had no offsets.
        identities: the ids.
        command: the command that undoes the change.
        options: the options that an import needs, with a leading space.
    """

    path: Path | None
    identities: Mapping[str, TopicIdentity]
    command: str
    options: str = ""

    @property
    def import_command(self) -> str:
        """The command that sets the previous offsets, also if the change has no effect."""
        return command("groups import", [str(self.path)], f"--execute{self.options}")

    def complete(self) -> None:
        """Makes the file that of a change that is confirmed as a whole."""
        if self.path is not None:
            remove_marker(self.path)

    def discard(self) -> None:
        """Removes the file of a change that has no effect."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.complete()

    def failed(self, errors: Sequence[StreamGroupsError]) -> StreamGroupsError:
        """Returns the error of a change without a confirmed part.

        If the brokers have rejected all of it, the file is removed. Otherwise it stays, and the error names it.

        Args:
            errors: the errors of its parts; not empty.
        """
        unclear = next((it for it in errors if not is_rejection(it)), None)
        if self.path is None:
            return unclear or errors[0]
        if unclear is None:
            self.discard()
            return errors[0]
        return unclear.with_text(
            f"{unclear.what} It is unknown whether the change has taken effect; the previous offsets stay in {self.path}.",
            f"{unclear.remedy} If it has, undo it with: {self.import_command}.".strip(),
        )


def is_rejection(error: StreamGroupsError) -> bool:
    """Returns whether an error of a change proves that it has no effect.

    Without a response the change can have taken effect, and after an error code without a meaning too.

    >>> from streamgroups.errors import BrokerUnreachable, GroupRejected
    >>> is_rejection(GroupRejected("It has members.")), is_rejection(BrokerUnreachable("No broker responded."))
    (True, False)
    """
    return not (error.retriable or isinstance(error, PartlyDone) or type(error) is StreamGroupsError)


def write_undo(
    cluster: Cluster, changes: Changes, file: Path | None, *, why: str, options: str = "", links: Links = NO_LINKS
) -> Undo:
    """Writes the committed offsets of the partitions that will change to a file, and prints its name.

    Groups without such partitions are left out. If no group is left, no file is written. If the change completes an earlier
    one, the file undoes both.

    Args:
        cluster: the cluster.
        changes: the changes.
        file: the file; ``None`` for a new one in the state directory.
        why: the reason, for operators.
        options: the options that an import of the file needs, with a leading space.
        links: the undo file that the change reverts, or that of the change that it completes.

    Raises:
        InvalidOption: if it cannot be written, or exists already. Nothing was changed.
    """
    changes = {group_id: partitions for group_id, partitions in changes.items() if partitions}
    if not changes:
        if file is not None:
            cluster.notify(f"There are no offsets to store, so {file} is not written.")
        return Undo(None, {}, "")
    committed = {g: filed(it) for g, it in cluster.groups.committed_offsets(list(changes)).items()}
    earlier = _earlier(cluster, changes, committed, links)
    offsets = {
        g: undo_entries(earlier[g].filed if g in earlier else {}, filed(partitions), committed[g])
        for g, partitions in changes.items()
    }
    now_ms = cluster.now_ms()
    identities = cluster.topics.identities({tp.topic for partitions in offsets.values() for tp in partitions})
    # The rest of an undo continues it.
    reverts = links.reverts or next((it.links.reverts for it in earlier.values() if len(changes) == 1), None)
    path = file if file is not None else state_file("undo", list(changes), now_ms)
    if file is None:
        write_marker(path)
    write_new(path, to_json(offsets, identities, made_at=utc(now_ms) or "", why=why, links=Links(reverts)))
    count = sum(map(len, offsets.values()))
    cluster.notify(f"The previous offsets are stored in {path} ({count} partition{'' if count == 1 else 's'})")
    # groups undo finds only files in the state directory, and reverts one group.
    is_found = file is None and len(changes) == 1
    words, arguments = ("groups undo", list(changes)) if is_found else ("groups import", [str(path)])
    return Undo(path, identities, command(words, arguments, f"--execute{options}"), options)


def _earlier(
    cluster: Cluster,
    changes: Changes,
    committed: FiledOffsets,
    links: Links,
) -> dict[str, StoredUndo]:
    """The undo file of the change that each group's change completes."""
    if links.completes is not None:
        return _named(cluster, changes, Path(links.completes))
    found: dict[str, StoredUndo] = {}
    search = UndoSearch(cluster, notify=lambda text: None)
    for group_id, partitions in changes.items() if has_unfinished() else ():
        # A file that cannot be read is an error of an undo only.
        with suppress(InvalidOption):
            last = search.last_change(group_id, committed[group_id])
            if (
                last is not None
                and last.is_unfinished
                and is_repeated(last.filed, filed(partitions), committed[group_id])
            ):
                found[group_id] = last
    return found


def _named(cluster: Cluster, changes: Changes, path: Path) -> dict[str, StoredUndo]:
    try:
        content, links = read_offsets_file(path, None), read_links(path)
    except InvalidOption as e:
        cluster.notify(f"Warning: An undo of this change reverts only the rest. {e.what}")
        return {}
    is_unfinished = marker_of(path).exists()
    return {g: StoredUndo(path, content[g], links, is_unfinished) for g in changes if g in content}
