"""Changes of the file of connections.

``connections`` changes it. :mod:`streamgroups.connections.config_file` reads it, here too. A change keeps the comments and the
order of the file. Other users cannot read the files that it writes. Commands that run at the same time change the file one
after the other. Source: TOML 1.0.

A command changes a plain document. tomlkit applies the change to the text, and the result is parsed again: with dotted keys
tomlkit can write a text that is invalid or has another meaning.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from streamgroups.connections.config_file import checked, config_path, parse_toml, read_document
from streamgroups.connections.named import Connections
from streamgroups.connections.references import ENVIRONMENT, FILE
from streamgroups.errors import InvalidOption
from streamgroups.private_directories import make_private
from streamgroups_cli.file_changes import locked, replace_file


def connections_in(document: Mapping[str, Any]) -> Connections:
    """Returns the connections of a document of :func:`changed_connections`.

    Raises:
        InvalidOption: if the file is invalid.
    """
    return checked(config_path(), document, check_mode=False)


@contextmanager
def changed_connections(*, dry_run: bool = False) -> Iterator[dict[str, Any]]:
    """Reads the file, and writes it at the end of the ``with`` block, unless the change is invalid.

    Other changes of the file wait meanwhile.

    Args:
        dry_run: whether the change is checked and not written.

    Raises:
        InvalidOption: if the file or the change is invalid, or the file cannot be written. Nothing was changed.
    """
    path = config_path()
    with ExitStack() as lock:
        if not dry_run:
            _lock(path, lock)
        text, found = read_document(path) if path.exists() else ("", {})
        connections_in(found)
        document = copy.deepcopy(dict(found))
        yield document
        connections_in(document)
        changed = _changed(path, text, document)
        if not dry_run:
            _write(path, changed)


def _changed(path: Path, text: str, document: Mapping[str, Any]) -> str:
    """Returns the text with the content of a document."""
    from tomlkit import dumps, parse
    from tomlkit.exceptions import TOMLKitError

    try:
        content = parse(text)
        _apply(content, document)
        changed = dumps(content)
        if parse_toml(changed) == document:
            return changed
    except (TOMLKitError, ValueError):
        # The text of the error can contain a part of a line, which can be a secret.
        pass
    raise InvalidOption(
        f"{path} has a form that cannot be changed, such as dotted keys. Nothing was changed.",
        remedy="Write each connection as a table, [connections.NAME], and repeat the command.",
    )


def _apply(content: MutableMapping[str, Any], document: Mapping[str, Any]) -> None:
    from tomlkit import inline_table, table

    for key in [key for key in content if key not in document]:
        del content[key]
    for key, value in document.items():
        existing = content.get(key)
        if not isinstance(value, Mapping):
            if existing != value:
                content[key] = value
        elif isinstance(existing, MutableMapping):
            _apply(existing, value)
        else:
            new = inline_table() if set(value) <= {ENVIRONMENT, FILE} else table()
            _apply(new, value)
            content[key] = new


def _lock(path: Path, lock: ExitStack) -> None:
    try:
        make_private(path.parent)
        lock.enter_context(locked(path))
    except OSError as e:
        raise _not_written(path, e) from e


def _write(path: Path, text: str) -> None:
    try:
        replace_file(path, text)
    except OSError as e:
        raise _not_written(path, e) from e


def _not_written(path: Path, error: OSError) -> InvalidOption:
    return InvalidOption(
        f"{path} cannot be written: {error.strerror}.", remedy="Set STREAMGROUPS_CONFIG to a file that you can write."
    )
