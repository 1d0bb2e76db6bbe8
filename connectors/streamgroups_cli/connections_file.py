"""Changes of the file of connections.

``connections`` changes it. :mod:`streamgroups.connections.config_file` reads it, here too. A change keeps the comments and the
order of the file. Other users cannot read the files that it writes. Source: TOML 1.0.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamgroups.connections.config_file import checked, config_path, read_document
from streamgroups.connections.named import Connections
from streamgroups.errors import InvalidOption

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def connections_in(document: TOMLDocument) -> Connections:
    """Returns the connections of a document of :func:`changed_connections`.

    Raises:
        InvalidOption: if the file is invalid.
    """
    return checked(config_path(), document.unwrap(), check_mode=False)


@contextmanager
def changed_connections(*, dry_run: bool = False) -> Iterator[TOMLDocument]:
    """Reads the file, and writes it at the end of the ``with`` block, unless the change is invalid.

    Args:
        dry_run: whether the change is checked and not written.

    Raises:
        InvalidOption: if the file or the change is invalid, or the file cannot be written. Nothing was changed.
    """
    from tomlkit import document, dumps, parse

    path = config_path()
    found = document()
    if path.exists():
        # It rejects an invalid text: an error of tomlkit can contain a part of a line, which can be a secret.
        text, _ = read_document(path)
        found = parse(text)
    yield found
    connections_in(found)
    if dry_run:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A new file that replaces the old one: a reader or a kill never sees half of it. Its mode is 0600.
        number, new = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.")
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(dumps(found))
        os.replace(new, path.resolve())
    except OSError as e:
        raise InvalidOption(
            f"{path} cannot be written: {e.strerror}.", remedy="Set STREAMGROUPS_CONFIG to a file that you can write."
        ) from e
