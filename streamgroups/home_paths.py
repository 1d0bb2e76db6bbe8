"""Paths in the home directory of this user.

Called where a file has its default place there. A container can run with a user id that has neither a name nor ``HOME``. Source:
``os.path.expanduser``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from streamgroups.errors import InvalidOption


def expanded(path: str | Path, *, remedy: str) -> Path:
    """Returns the absolute path that a path with ``~`` means.

    Args:
        path: the path.
        remedy: what the user can set, for the error.

    Raises:
        InvalidOption: if the path begins with ``~``, and the user has no home directory.

    >>> print(expanded("/etc/../etc/streamgroups.toml", remedy="Set HOME."))
    /etc/../etc/streamgroups.toml
    """
    return _resolved(lambda: Path(path), f"The path {path}", remedy)


def users_directory(find: Callable[[], Path], *, remedy: str) -> Path:
    """Returns a directory of the user that platformdirs finds.

    Args:
        find: returns the directory. Some versions of platformdirs return a path with ``~`` without a home directory.
        remedy: what the user can set, for the error.

    Raises:
        InvalidOption: if the user has no home directory.
    """
    return _resolved(find, "The directory for files of this user", remedy)


def _resolved(find: Callable[[], Path], what: str, remedy: str) -> Path:
    try:
        return find().expanduser().absolute()
    except RuntimeError as e:
        raise InvalidOption(f"{what} cannot be resolved: this user has no home directory.", remedy=remedy) from e
