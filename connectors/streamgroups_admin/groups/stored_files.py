"""Offsets files on the disk of a user: the directory of undo files, new files, and the search for undo files.

Used by :mod:`streamgroups_admin.groups.undo_files` and by the commands that read and write offsets files. Source:
SEMANTICS O2.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from streamgroups.errors import InvalidOption
from streamgroups.extras import explained
from streamgroups.groups.offset_files import FiledOffset, FiledOffsets, Links, parse, parse_links
from streamgroups.groups.undo_history import UndoName, next_stamp_ms, parse_undo_name
from streamgroups.home_paths import users_directory
from streamgroups.partitions import TopicPartition
from streamgroups.path_names import label
from streamgroups.ports import Committed
from streamgroups.private_directories import make_private
from streamgroups.times import utc
from streamgroups_operators.local_files import sync_directory

#: File systems without hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


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


def filed(offsets: Mapping[TopicPartition, Committed | None]) -> dict[TopicPartition, FiledOffset]:
    """Returns the offsets of a group for an offsets file; ``None`` for a partition without one.

    >>> filed({TopicPartition("flights", 0): None})[TopicPartition("flights", 0)].next_offset is None
    True
    """
    return {
        tp: FiledOffset(None) if it is None else FiledOffset(it.next_offset, it.metadata) for tp, it in offsets.items()
    }


def newest_undo_files() -> Iterator[tuple[UndoName, Path]]:
    """Yields the undo files in the state directory, from the last change to the first one."""
    named = [(name, path) for path in state_directory().glob("undo-*.json") if (name := parse_undo_name(path.name))]
    yield from sorted(named, reverse=True)


def marker_of(path: Path) -> Path:
    """Returns the hidden file that exists while the change of an undo file is unfinished.

    >>> print(marker_of(Path("/offsets/undo-board-1.json")))
    /offsets/.undo-board-1.json.unfinished
    """
    return path.with_name(f".{path.name}.unfinished")


def write_marker(path: Path) -> None:
    """Marks the change of an undo file as unfinished, before the file is written.

    Raises:
        InvalidOption: if the marker cannot be written.
    """
    try:
        make_private(path.parent)
        marker_of(path).touch(mode=0o600)
    except OSError as e:
        raise InvalidOption(
            f"{marker_of(path)} cannot be written: {e.strerror}.", remedy="Nothing was changed; use --undo-file."
        ) from e


def remove_marker(path: Path) -> None:
    """Removes the marker of an undo file, whose whole change is confirmed."""
    # With a marker that stays, the committed offsets show that the change has an effect.
    with suppress(OSError):
        marker_of(path).unlink()


def has_unfinished() -> bool:
    """Whether the state directory has the undo file of an unfinished change."""
    return next(state_directory().glob(".undo-*.unfinished"), None) is not None


def read_offsets_file(file: Path, group_id: str | None) -> FiledOffsets:
    """Returns the content of an offsets file.

    Args:
        file: the file.
        group_id: the group of a CSV file without group names; ``None`` if no group was specified.

    Raises:
        InvalidOption: if it cannot be read, or is not an offsets file.
    """
    filed = parse(_text(file), source=str(file), group_id=group_id)
    if not any(filed.values()):
        raise InvalidOption(f"{file} contains no offsets.", remedy="Create one with: streamgroups groups export.")
    return filed


def read_links(file: Path) -> Links:
    """Returns the undo files that an offsets file names.

    Raises:
        InvalidOption: if it cannot be read.
    """
    return parse_links(_text(file))


def _text(file: Path) -> str:
    try:
        # Spreadsheets begin a file with a byte order mark, which would belong to the name of the first group.
        return file.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InvalidOption(f"{file} cannot be read: {e.strerror}.", remedy="Use an offsets file.") from e
    except UnicodeDecodeError:
        raise InvalidOption(f"{file} is not text in UTF-8.", remedy="Use an offsets file.") from None
