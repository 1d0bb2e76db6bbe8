"""The files of the commands about cursors: the key that signs cursors, and the sockets of instances.

Every command under ``cursors`` uses it. All files are in the user's state directory, and only the user can access them.
Source: the XDG Base Directory Specification.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_state_path

from streamgroups.errors import InvalidOption
from streamgroups.home_paths import users_directory
from streamgroups.private_directories import make_private

_KEY_BYTES = 32
_SHORTEST_KEY_BYTES = 16

KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--signing-key-file",
        metavar="FILE",
        help="File with the key that signs cursors, at least 16 bytes. Default: a key of this user on this machine.",
        show_default=False,
    ),
]


def signing_key(file: Path | None) -> bytes:
    """Returns the key in a file, or the user's own, which is created at its first use.

    Raises:
        InvalidOption: if the file cannot be read or is too short. The error does not contain its content.
    """
    path = file if file is not None else _users_key()
    try:
        key = path.read_bytes()
    except OSError as e:
        raise InvalidOption(f"{path} cannot be read: {e.strerror}.", remedy="Set a file that contains a key.") from e
    if len(key) < _SHORTEST_KEY_BYTES:
        raise InvalidOption(
            f"The key in {path} has {len(key)} bytes; it needs at least {_SHORTEST_KEY_BYTES}.",
            remedy=f"Create a key with: head -c {_KEY_BYTES} /dev/urandom > FILE.",
        )
    return key


def instances() -> Path:
    """Returns the directory with a link to the socket of each instance, named by its session."""
    return _made(_state() / "instances")


def _users_key() -> Path:
    path = _made(_state()) / "cursor.key"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent) as new:
            new.write(secrets.token_bytes(_KEY_BYTES))
            new.flush()
            try:
                # Atomic, and only one of several commands that start together succeeds.
                os.link(new.name, path)
            except FileExistsError:
                return path
    return path


def _state() -> Path:
    return users_directory(lambda: user_state_path("streamgroups"), remedy="Set XDG_STATE_HOME or HOME.") / "cursors"


def _made(directory: Path) -> Path:
    try:
        make_private(directory)
    except OSError as e:
        raise InvalidOption(
            f"{directory} cannot be created: {e.strerror}.",
            remedy="Set XDG_STATE_HOME to a directory that you can write.",
        ) from e
    return directory
