"""Contexts: named clusters of the command line, as those of ``kubectl``, and which one a command uses.

``streamgroups_cli.contexts`` reads and writes their file, and ``streamgroups_cli.connection`` connects to the chosen one.
Source: ``kubectl config``, whose words these are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from streamgroups.errors import InvalidOption

#: The names of the keys in the file.
CURRENT, CONTEXTS, SERVERS, FILE, SETTINGS = (
    "current-context",
    "contexts",
    "bootstrap-servers",
    "command-config",
    "settings",
)
_NAME = re.compile(r"[\w.-]+")
_SERVERS_SETTING = "bootstrap.servers"


@dataclass(frozen=True, slots=True)
class Context:
    """A named cluster.

    Args:
        name: the name.
        bootstrap_servers: ``host:port[,host:port]``; ``None`` if the properties file contains them.
        command_config: a Java properties file, relative to the file of contexts; ``None`` without one.
        settings: client settings, which override the properties file. They can contain secrets: do not print them.
    """

    name: str
    bootstrap_servers: str | None = None
    command_config: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Contexts:
    """The content of the file.

    Args:
        named: each context by its name.
        current: the name of the current context; ``None`` without one.
    """

    named: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Context:
        """Returns a context.

        Raises:
            InvalidOption: if it does not exist.

        >>> Contexts({"prod": Context("prod")}).get("test")
        Traceback (most recent call last):
        streamgroups.errors.InvalidOption: Context 'test' does not exist. Use one of: prod. \
'streamgroups contexts set' creates a context.
        """
        if name not in self.named:
            use = f"Use one of: {', '.join(sorted(self.named))}. " if self.named else ""
            raise InvalidOption(
                f"Context '{name}' does not exist.", remedy=f"{use}'streamgroups contexts set' creates a context."
            )
        return self.named[name]


class Choice(Enum):
    """Which context a command uses, if none is named."""

    #: No context: the command line or the environment names the cluster.
    NONE = "none"
    #: The current context, if the file has one.
    CURRENT = "current"


@dataclass(frozen=True, slots=True)
class Given:
    """The cluster options of a command, by their source.

    Args:
        context: ``--context``.
        bootstrap_server: ``--bootstrap-server``.
        has_file: whether ``--command-config`` is given.
        settings: the names of ``--kafka``.
        context_variable: the environment variable ``STREAMGROUPS_CONTEXT``.
        bootstrap_variable: the environment variable ``STREAMGROUPS_BOOTSTRAP_SERVER``.
    """

    context: str | None = None
    bootstrap_server: str | None = None
    has_file: bool = False
    settings: frozenset[str] = frozenset()
    context_variable: str | None = None
    bootstrap_variable: str | None = None


def choose(given: Given) -> str | Choice:
    """Returns the name of the context that a command uses.

    The command line is stronger than the environment, and the environment is stronger than the current context. A
    context is used as a whole or not at all: its credentials are never sent to a server that another option names.

    Raises:
        InvalidOption: if two sources of the same strength name a cluster.

    >>> choose(Given(context="prod", bootstrap_variable="test:9092"))
    'prod'
    >>> choose(Given(bootstrap_server="test:9092", context_variable="prod"))
    <Choice.NONE: 'none'>
    >>> choose(Given(settings=frozenset({"client.id"})))
    <Choice.CURRENT: 'current'>
    >>> choose(Given(context="prod", bootstrap_server="test:9092"))
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --context and --bootstrap-server both name a cluster. Use one of them.
    """
    named_by = [
        name
        for name, is_given in (
            ("--bootstrap-server", given.bootstrap_server is not None),
            ("--command-config", given.has_file),
            (f"--kafka {_SERVERS_SETTING}", _SERVERS_SETTING in given.settings),
        )
        if is_given
    ]
    if given.context is not None:
        if named_by:
            raise InvalidOption(f"--context and {named_by[0]} both name a cluster.", remedy="Use one of them.")
        return given.context
    if named_by:
        return Choice.NONE
    if given.context_variable and given.bootstrap_variable:
        raise InvalidOption(
            "STREAMGROUPS_CONTEXT and STREAMGROUPS_BOOTSTRAP_SERVER both name a cluster.",
            remedy="Unset one of them, or use --context or --bootstrap-server.",
        )
    if given.context_variable:
        return given.context_variable
    return Choice.NONE if given.bootstrap_variable else Choice.CURRENT


def parse_contexts(document: Mapping[str, Any]) -> Contexts:
    """Returns the contexts of a parsed file.

    Raises:
        InvalidOption: if a key is unknown, or a value has the wrong type. The error contains no value, which can be a
            secret.

    >>> parse_contexts({"contexts": {"prod": {"bootstrap-servers": "kafka:9092"}}, "current-context": "prod"})
    Contexts(named={'prod': Context(name='prod', bootstrap_servers='kafka:9092', command_config=None)}, current='prod')
    >>> parse_contexts({"contexts": {"prod": {"bootstrap": "kafka:9092"}}})
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: Key 'bootstrap' of context 'prod' is unknown. Use: bootstrap-servers, command-config, settings.
    """
    _only(document, (CURRENT, CONTEXTS), "of the file")
    tables = document.get(CONTEXTS, {})
    if not isinstance(tables, Mapping):
        raise _of_type(CONTEXTS, "of the file", "a table")
    current = _text(document, CURRENT, "of the file")
    found = Contexts({str(name): _context(str(name), table) for name, table in tables.items()}, current)
    if current is not None:
        found.get(current)
    return found


def check_name(name: str) -> str:
    """Returns the name of a context.

    Raises:
        InvalidOption: if it contains other characters than letters, digits, ``.``, ``_`` and ``-``.

    >>> check_name("prod/eu")
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: 'prod/eu' is not a name of a context. Use letters, digits, '.', '_' and '-'.
    """
    if not _NAME.fullmatch(name):
        raise InvalidOption(f"'{name}' is not a name of a context.", remedy="Use letters, digits, '.', '_' and '-'.")
    return name


def _context(name: str, table: Any) -> Context:
    check_name(name)
    where = f"of context '{name}'"
    if not isinstance(table, Mapping):
        raise _of_type(name, "of the contexts", "a table")
    _only(table, (SERVERS, FILE, SETTINGS), where)
    settings = table.get(SETTINGS, {})
    if not isinstance(settings, Mapping):
        raise _of_type(SETTINGS, where, "a table")
    texts: dict[str, str] = {}
    for setting, value in settings.items():
        if not isinstance(value, str):
            raise _of_type(str(setting), f"in the settings {where}", "a text in quotes")
        texts[str(setting).strip().removeprefix("kafka.")] = str(value)
    if _SERVERS_SETTING in texts:
        raise InvalidOption(f"The settings {where} contain {_SERVERS_SETTING}.", remedy=f"Use the key {SERVERS}.")
    context = Context(name, _text(table, SERVERS, where), _text(table, FILE, where), texts)
    if context.bootstrap_servers is None and context.command_config is None:
        raise InvalidOption(
            f"Context '{name}' names no cluster.",
            remedy=f"Set {SERVERS}, or {FILE} with a file that contains {_SERVERS_SETTING}.",
        )
    return context


def _text(table: Mapping[str, Any], key: str, where: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise _of_type(key, where, "a text in quotes")
    return None if value is None else str(value)


def _only(table: Mapping[str, Any], keys: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(table) - set(keys))
    if unknown:
        raise InvalidOption(f"Key '{unknown[0]}' {where} is unknown.", remedy=f"Use: {', '.join(keys)}.")


def _of_type(key: str, where: str, required: str) -> InvalidOption:
    return InvalidOption(f"Key '{key}' {where} has the wrong type.", remedy=f"Write {required}.")
