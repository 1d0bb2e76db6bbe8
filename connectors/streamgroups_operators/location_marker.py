"""Detects that a directory has lost its files: a volume that is not mounted lists as an empty directory.

Used by ``streamgroups_spark.stable_input`` on the driver. A missing state is an error, because a committed offset names it. No
position names a pin, so an empty directory would mean that no effect has run. An object store and HDFS cannot be unmounted, and
need no marker. Source: SEMANTICS X7, G17.
"""

from __future__ import annotations

import uuid

from pyarrow import fs

from streamgroups.errors import StateUnreachable
from streamgroups_operators.locations import opened, shown, translated, write_file

_PREFIX = "location-"


#: The markers that this process has found or written, by location and directory. A restarted query requires the same one.
_MARKERS: dict[tuple[str, str], str] = {}


def require_marker(location: str, directory: str) -> None:
    """Requires a file that stays in a directory of a location. The first call of a process finds or writes it.

    Processes that start at the same time can write one each. Each requires the one that it has found or written.

    Args:
        location: a path, or a URI.
        directory: the directory in it.

    Raises:
        StateUnreachable: if a later call does not find the file of the first one, or the storage does not answer.
    """
    with translated(location):
        files, root = opened(location)
        if not isinstance(files, fs.LocalFileSystem):
            return
        place, path = (location, directory), f"{root}/{directory}"
        if place not in _MARKERS:
            _MARKERS[place] = _found_or_written(files, root, path)
        elif files.get_file_info(f"{path}/{_MARKERS[place]}").type != fs.FileType.File:
            raise StateUnreachable(
                f"The location '{shown(location)}' cannot be used: the file '{directory}/{_MARKERS[place]}', which the first batch "
                "has found there, does not exist. The volume is not mounted, or its files were deleted.",
                remedy="Mount the volume. After an intended deletion, start the program again.",
            )


def _found_or_written(files: fs.FileSystem, root: str, directory: str) -> str:
    found = files.get_file_info(fs.FileSelector(directory, allow_not_found=True))
    names = sorted(it.base_name for it in found if it.type == fs.FileType.File and it.base_name.startswith(_PREFIX))
    if names:
        return str(names[0])
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    write_file(files, root, f"{directory}/{name}", [])
    return name
