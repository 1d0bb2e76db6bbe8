"""The file of connections: ``~/.config/streamgroups/config.toml``, or the file in ``STREAMGROUPS_CONFIG``.

Each process that resolves a connection reads it: driver, source, tasks and the command line. So it needs the standard library
only. Python 3.10 has no ``tomllib``: there it is ``tomli``, the same parser, which the core installs. The command line writes
the file with tomlkit, which keeps comments and parses slower. Source: TOML 1.0; the XDG Base Directory Specification.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from streamgroups.connections.named import Connections
from streamgroups.connections.parsing import parse_connections
from streamgroups.connections.references import Resolver
from streamgroups.connections.variants import Connection
from streamgroups.errors import InvalidOption
from streamgroups.home_paths import expanded
from streamgroups.shell_quoting import names

_Variant = TypeVar("_Variant", bound=Connection)
_VARIABLE = "STREAMGROUPS_CONFIG"
_REMEDY = f"Set {_VARIABLE} to the path of the file of connections, or set HOME."
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
#: The largest file of a secret or of connections. A device could have no end.
_MAX_BYTES = 1 << 20
_PLACE = re.compile(r"at (line \d+, column \d+|end of document)\)$")


def config_path() -> Path:
    """Returns the absolute path of the file, which need not exist.

    Raises:
        InvalidOption: if it is in the home directory of a user who has none.
    """
    named = os.environ.get(_VARIABLE)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return expanded(named or Path(base) / "streamgroups" / "config.toml", remedy=_REMEDY)


def config_path_for_others() -> str | None:
    """Returns the path of the file for other processes.

    ``None`` if it is in the home directory of a user who has none. A process raises this error when it uses a connection.
    """
    try:
        return str(config_path())
    except InvalidOption:
        return None


def load_connections(path: str | None = None) -> Connections:
    """Returns the connections of the file; none if there is no file, or the user has no home directory for it.

    Args:
        path: the path of the file. ``None``: :func:`config_path`.

    Raises:
        InvalidOption: if the file is invalid, or other users can read its secrets.
    """
    try:
        file = config_path() if path is None else Path(path)
    except InvalidOption as e:
        return Connections(missing=e)
    if not file.exists():
        return Connections(path=str(file))
    return checked(file, read_document(file)[1])


def connection_named(name: str, variant: type[_Variant], path: str | None = None) -> _Variant:
    """Returns a connection of one type.

    Args:
        name: its name.
        variant: its type.
        path: the path of the file. ``None``: :func:`config_path`.

    Raises:
        InvalidOption: if it does not exist or is of another type, or the file is invalid.
    """
    return load_connections(path).typed(name, variant)


def resolver() -> Resolver:
    """Returns the resolver of this process. It reads variables and files at each use, so a changed secret applies."""
    return Resolver(os.environ, _read_text, _read_secrets, platform.node() or "this machine")


def checked(file: Path, document: Mapping[str, Any], *, check_mode: bool = True) -> Connections:
    """Returns the connections of a document.

    Args:
        file: the file of the document.
        document: its content.
        check_mode: whether the file must be closed to other users if it contains secrets.

    Raises:
        InvalidOption: if the document is invalid, or other users can read its secrets.
    """
    try:
        found = parse_connections(document, str(file))
    except InvalidOption as e:
        raise e.with_text(f"{file}: {e.what}", e.remedy) from None
    if check_mode and found.has_plain_secrets:
        _check_mode(file)
    return found


def _check_mode(file: Path) -> None:
    if file.stat().st_mode & _OF_OTHERS:
        raise InvalidOption(
            f"{file} contains secrets in plain text, and other users can read it.",
            remedy=f'Run: chmod 600 {names([str(file)])}. Or write a reference: {{env = "VARIABLE"}} or {{file = "/path"}}.',
        )


def _read_secrets(path: str) -> Mapping[str, Any]:
    """Reads the file again, for a secret in plain text."""
    file = Path(path)
    if not file.exists():
        return {}
    _check_mode(file)
    return read_document(file)[1]


def read_document(file: Path) -> tuple[str, Mapping[str, Any]]:
    """Reads the file. Returns its text, and the document in it.

    Raises:
        InvalidOption: if it cannot be read, or is not TOML. The error contains no part of it.
    """
    try:
        text = _read_text(str(file))
        return text, parse_toml(text)
    except OSError as e:
        raise InvalidOption(f"{file} cannot be read: {e.strerror}.", remedy="Check its permissions.") from e
    except UnicodeDecodeError:
        what = "is not UTF-8 text"
    except RecursionError:
        what = "is not TOML: its values are nested too deeply"
    except ValueError as e:
        # The text of the error can contain a part of the line, which can be a secret.
        place = _PLACE.search(str(e))
        what = f"is not TOML{': ' + place[1] if place else ''}"
    # Raised outside the handler, so that the first error is not the context of this one.
    raise InvalidOption(f"{file} {what}.", remedy="Correct the file.")


def parse_toml(text: str) -> Mapping[str, Any]:
    """Returns the document in a text.

    Raises:
        ValueError: if it is not TOML.
        RecursionError: if its values are nested too deeply.

    >>> parse_toml('connections.prod.type = "kafka"')
    {'connections': {'prod': {'type': 'kafka'}}}
    """
    # Most processes of Spark have no connection, so they do not load the parser.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    document: Mapping[str, Any] = tomllib.loads(text)
    return document


def _read_text(path: str) -> str:
    with open(path, "rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise OSError(0, f"larger than {_MAX_BYTES} bytes")
    # Windows' editors begin a file with a byte order mark.
    return content.decode("utf-8-sig")
