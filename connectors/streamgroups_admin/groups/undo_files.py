"""The files that undo a change of committed offsets, or finish an interrupted one.

``apply``, ``deleting`` and ``transfer`` use it. Source: SEMANTICS O2.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from streamgroups.errors import InvalidOption, PartlyDone, StreamGroupsError
from streamgroups.extras import explained
from streamgroups.groups.offset_files import ChangedTo, FiledOffset, to_json
from streamgroups.groups.undo_history import next_stamp_ms
from streamgroups.home_paths import users_directory
from streamgroups.identity import TopicIdentity
from streamgroups.partitions import TopicPartition
from streamgroups.path_names import label
from streamgroups.ports import Committed
from streamgroups.private_directories import make_private
from streamgroups.shell_quoting import command
from streamgroups.times import utc
from streamgroups_admin.cluster import Cluster
from streamgroups_operators.local_files import sync_directory

#: For each group, the new offset of each partition; ``None`` to delete it.
Changes: TypeAlias = Mapping[str, Mapping[TopicPartition, Committed | None]]
#: File systems without hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


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
            self.path.unlink(missing_ok=True)
            return errors[0]
        return unclear.with_text(
            f"{unclear.what} It is unknown whether the change has taken effect; the previous offsets stay in {self.path}.",
            f"{unclear.remedy} If it has, undo it with: {self.command}.".strip(),
        )


def is_rejection(error: StreamGroupsError) -> bool:
    """Returns whether an error of a change proves that it has no effect.

    Without a response the change can have taken effect, and after an error code without a meaning too.

    >>> from streamgroups.errors import BrokerUnreachable, GroupRejected
    >>> is_rejection(GroupRejected("It has members.")), is_rejection(BrokerUnreachable("No broker responded."))
    (True, False)
    """
    return not (error.retriable or isinstance(error, PartlyDone) or type(error) is StreamGroupsError)


def write_undo(cluster: Cluster, changes: Changes, file: Path | None, *, why: str, options: str = "") -> Undo:
    """Writes the committed offsets of the partitions that will change to a file, and prints its name.

    Groups without such partitions are left out. If no group is left, no file is written.

    Raises:
        InvalidOption: if it cannot be written, or exists already. Nothing was changed.
    """
    changes = {group_id: partitions for group_id, partitions in changes.items() if partitions}
    if not changes:
        if file is not None:
            cluster.notify(f"There are no offsets to store, so {file} is not written.")
        return Undo(None, {}, "")
    committed = cluster.groups.committed_offsets(list(changes))
    offsets = {
        group_id: {
            tp: replace(
                filed(committed[group_id].get(tp)), changed_to=ChangedTo(None if new is None else new.next_offset)
            )
            for tp, new in partitions.items()
        }
        for group_id, partitions in changes.items()
    }
    now_ms = cluster.now_ms()
    path = file if file is not None else state_file("undo", list(changes), now_ms)
    identities = cluster.topics.identities({tp.topic for partitions in changes.values() for tp in partitions})
    write_new(path, to_json(offsets, identities, made_at=utc(now_ms) or "", why=why))
    count = sum(map(len, changes.values()))
    cluster.notify(f"The previous offsets are stored in {path} ({count} partition{'' if count == 1 else 's'})")
    # groups undo finds only files in the state directory, and reverts one group.
    is_found = file is None and len(changes) == 1
    words, arguments = ("groups undo", list(changes)) if is_found else ("groups import", [str(path)])
    return Undo(path, identities, command(words, arguments, f"--execute{options}"), options)


def filed(committed: Committed | None) -> FiledOffset:
    """Returns a committed offset for an offsets file."""
    return FiledOffset(None) if committed is None else FiledOffset(committed.next_offset, committed.metadata)


def state_file(kind: str, group_ids: list[str], now_ms: int) -> Path:
    """Returns a file in the user's state directory. Its name contains the kind of the file, its group and the time.

    The file is the last one in the order of :mod:`streamgroups.groups.undo_history`, also if the clock was ahead before.
    """
    name = group_ids[0] if len(group_ids) == 1 else f"{len(group_ids)}-groups"
    directory = state_directory()
    stamp = re.sub(r"[-:.]", "", utc(next_stamp_ms(now_ms, (it.name for it in directory.glob("*.json")))) or "")
    return next(
        path for n in range(1_000) if not (path := directory / f"{kind}-{label(name)}-{stamp}{_suffix(n)}").exists()
    )


def state_directory() -> Path:
    """Returns the directory of the files that changes write by default.

    Raises:
        MissingExtra: if the extra ``cli`` is not installed.
        InvalidOption: if it is in the home directory of a user who has none.
    """
    try:
        from platformdirs import user_state_path
    except ImportError as e:
        raise explained(e, "The default place of the undo file") from e
    return users_directory(lambda: user_state_path("streamgroups"), remedy="Set XDG_STATE_HOME or HOME.") / "offsets"


def _suffix(n: int) -> str:
    return f"-{n}.json" if n else ".json"


def write_new(path: Path, text: str) -> Path:
    """Writes a file that must not exist yet, and that other users cannot read. It is visible as a whole, or not at all.

    Raises:
        InvalidOption: if it exists, or cannot be written.
    """
    try:
        make_private(path.parent)
        # Its mode is 0600. "groups undo" does not find this name.
        number, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".streamgroups-")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _name_new(unfinished, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(unfinished)
        sync_directory(str(path.parent))
    except OSError as e:
        raise InvalidOption(
            f"{path} cannot be written: {e.strerror}.", remedy="Nothing was changed; use another file."
        ) from e
    return path


def _name_new(unfinished: str, path: Path) -> None:
    """Gives a finished file its name, unless another file has it."""
    try:
        # Atomic, and never replaces a file.
        os.link(unfinished, path)
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(unfinished, path)
