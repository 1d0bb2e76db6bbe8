"""The file of contexts: ``~/.config/streamgroups/config.toml``, or the file in ``STREAMGROUPS_CONFIG``.

``streamgroups_cli.connection`` reads it, and ``contexts`` changes it. A change keeps the comments and the order of
the file. Other users cannot read the files that it writes. Source: TOML 1.0; the XDG Base Directory Specification.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from streamgroups.contexts import Contexts, parse_contexts
from streamgroups.errors import InvalidOption

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def config_path() -> Path:
    """Returns the path of the file, which need not exist."""
    named = os.environ.get("STREAMGROUPS_CONFIG")
    if named:
        return Path(named).expanduser()
    from platformdirs import user_config_path

    return user_config_path("streamgroups") / "config.toml"


def read_contexts() -> Contexts:
    """Returns the contexts; none if there is no file.

    Raises:
        InvalidOption: if the file is invalid, or other users can read its secrets.
    """
    path = config_path()
    return Contexts() if not path.exists() else _parsed(path, _read(path))


def contexts_in(document: TOMLDocument) -> Contexts:
    """Returns the contexts of a document of :func:`changed_contexts`.

    Raises:
        InvalidOption: if the file is invalid.
    """
    return _parsed(config_path(), document, check_mode=False)


@contextmanager
def changed_contexts() -> Iterator[TOMLDocument]:
    """Reads the file, and writes it at the end of the ``with`` block, unless the change is invalid.

    Raises:
        InvalidOption: if the file or the change is invalid, or the file cannot be written. Nothing was changed.
    """
    from tomlkit import document, dumps

    path = config_path()
    found = _read(path) if path.exists() else document()
    yield found
    _parsed(path, found, check_mode=False)
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


def _read(path: Path) -> TOMLDocument:
    from tomlkit import parse
    from tomlkit.exceptions import ParseError

    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise InvalidOption(f"{path} cannot be read: {e.strerror}.", remedy="Check its permissions.") from e
    except UnicodeDecodeError:
        what = f"{path} is not UTF-8 text."
    except ParseError as e:
        # The text of the error can contain a part of the line, which can be a secret.
        what = f"{path} is not TOML: line {e.line}, column {e.col}."
    raise InvalidOption(what, remedy="Correct the file.")


def _parsed(path: Path, document: TOMLDocument, *, check_mode: bool = True) -> Contexts:
    try:
        found = parse_contexts(document.unwrap())
    except InvalidOption as e:
        raise e.with_text(f"{path}: {e.what}", e.remedy) from None
    if check_mode and _has_secrets(found) and path.stat().st_mode & _OF_OTHERS:
        raise InvalidOption(
            f"{path} contains secrets, and other users can read it.",
            remedy=f"Run: chmod 600 {path}. Or write the secrets into a properties file (command-config).",
        )
    return found


def _has_secrets(contexts: Contexts) -> bool:
    from streamgroups.connections.secret_names import KAFKA_SECRETS

    return any(name.lower() in KAFKA_SECRETS for context in contexts.named.values() for name in context.settings)
