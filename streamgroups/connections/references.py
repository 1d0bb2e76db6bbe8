"""References of secrets, and how the process that connects resolves them.

A connection contains references instead of secrets. So its pickle, its ``repr`` and Spark's plan contain no secret.
``streamgroups.connections.config_file`` has the resolver of a process. Source: SEMANTICS P3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamgroups.errors import InvalidOption

#: The names of the keys of a reference in the file.
ENVIRONMENT, FILE = "env", "file"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EVERYWHERE = "The driver and all executors resolve the references of a connection, so it must exist on all of them (docs/connections.rst)."


@dataclass(frozen=True, slots=True)
class FromEnvironment:
    """The value of an environment variable.

    Args:
        variable: its name.
    """

    variable: str

    def __str__(self) -> str:
        return f"environment variable {self.variable}"


@dataclass(frozen=True, slots=True)
class FromFile:
    """The content of a file, without a line break at its end.

    Args:
        path: its absolute path.
    """

    path: str

    def __str__(self) -> str:
        return f"file {self.path}"


@dataclass(frozen=True, slots=True)
class FromConnections:
    """A value in plain text in the file of connections.

    Args:
        path: the absolute path of the file of connections.
        keys: the keys of the value in it.
    """

    path: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{'.'.join(self.keys)} in {self.path}"


Reference = FromEnvironment | FromFile | FromConnections
#: A value of a connection: plain text that is no secret, or a reference.
Setting = str | Reference


@dataclass(frozen=True, slots=True)
class Resolver:
    """Resolves references in one process.

    Args:
        environ: the environment variables.
        read_file: returns the text of a file.
        read_document: returns the content of a file of connections, and rejects one that other users can read.
        host: the name of this machine, for errors.
    """

    environ: Mapping[str, str] = field(repr=False)
    read_file: Callable[[str], str]
    read_document: Callable[[str], Mapping[str, Any]]
    host: str


def resolved(setting: Setting, connection: str, key: str, resolver: Resolver) -> str:
    """Returns the value of a setting, in the process that connects. The caller neither stores nor prints it.

    Args:
        setting: the setting.
        connection: the name of its connection, for errors.
        key: the name of the setting, for errors.
        resolver: the resolver of this process.

    Raises:
        InvalidOption: if the reference cannot be resolved. The error contains the reference and the machine.

    >>> here = Resolver({"KAFKA_PASSWORD": "hunter2"}, lambda path: "hunter3\\n", dict, "worker-3")
    >>> resolved(FromEnvironment("KAFKA_PASSWORD"), "prod", "sasl.password", here)
    'hunter2'
    >>> resolved(FromFile("/run/secrets/kafka"), "prod", "sasl.password", here)
    'hunter3'
    >>> resolved(FromEnvironment("PASSWORD"), "prod", "sasl.password", here)
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Connection 'prod': environment variable PASSWORD of 'sasl.password' is not set on \
worker-3. The driver and all executors resolve the references of a connection, so it must exist on all of them \
(docs/connections.rst).
    """
    if isinstance(setting, str):
        return setting
    if isinstance(setting, FromEnvironment):
        found = resolver.environ.get(setting.variable)
        problem = "is not set" if found is None else "is empty"
    elif isinstance(setting, FromFile):
        found, problem = _content(setting, resolver)
    else:
        found, problem = _plain(setting, resolver), "does not exist"
    if not found:
        raise InvalidOption(
            f"Connection '{connection}': {setting} of '{key}' {problem} on {resolver.host}.", remedy=_EVERYWHERE
        )
    return found


def reference_in(table: Mapping[str, Any], directory: str) -> Reference | None:
    """Returns the reference that a table of the file contains; ``None`` if it contains something else.

    Args:
        table: the table.
        directory: the directory of the file, in which relative paths start.

    >>> reference_in({"file": "pg"}, "/run/secrets"), reference_in({"env": "A=B"}, "/")
    (FromFile(path='/run/secrets/pg'), None)
    """
    if len(table) != 1:
        return None
    [(kind, value)] = table.items()
    if kind == ENVIRONMENT and isinstance(value, str) and _VARIABLE.fullmatch(value):
        return FromEnvironment(str(value))
    if kind == FILE and isinstance(value, str) and value.strip() and "\0" not in value:
        return FromFile(absolute(str(value), directory))
    return None


def absolute(path: str, directory: str) -> str:
    """Returns an absolute path.

    Args:
        path: a path, also relative to ``directory`` or to the home directory (``~``).
        directory: an absolute path.

    >>> absolute("a/b", "/c"), absolute("/a", "/c")
    ('/c/a/b', '/a')
    """
    return os.path.normpath(os.path.join(directory, os.path.expanduser(path)))


def _content(reference: FromFile, resolver: Resolver) -> tuple[str | None, str]:
    try:
        text = resolver.read_file(reference.path)
    except UnicodeDecodeError:
        return None, "is not UTF-8 text"
    except OSError as e:
        return None, f"cannot be read ({e.strerror or type(e).__name__})"
    return text.removesuffix("\n").removesuffix("\r"), "is empty"


def _plain(reference: FromConnections, resolver: Resolver) -> str | None:
    found: Any = resolver.read_document(reference.path)
    for key in reference.keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return str(found) if isinstance(found, str) else None
