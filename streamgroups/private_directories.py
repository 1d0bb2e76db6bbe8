"""Creates directories that only their owner can access.

Called for every directory of this library with keys, records, positions or programs: ``mkdir`` with ``parents`` applies a mode to
the last directory only. A user who can write to one of its parents can replace it. Some containers have the umask 000.
Source: the XDG Base Directory Specification; ``mkdir(2)``.
"""

from __future__ import annotations

from pathlib import Path


def make_private(directory: Path) -> None:
    """Creates a directory and its missing parents, each with mode 0700. One that exists keeps its mode.

    Args:
        directory: the directory.

    Raises:
        OSError: if it cannot be created, or is no directory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     make_private(Path(root, "a", "b"))
    ...     [oct(it.stat().st_mode & 0o777) for it in sorted(Path(root).rglob("*"))]
    ['0o700', '0o700']
    """
    try:
        directory.mkdir(0o700)
    except FileNotFoundError:
        if directory.parent == directory:
            raise
        make_private(directory.parent)
        # Another process can create it at the same time.
        directory.mkdir(0o700, exist_ok=True)
    except OSError:
        # It exists, or its parent denies it and it exists.
        if not directory.is_dir():
            raise
