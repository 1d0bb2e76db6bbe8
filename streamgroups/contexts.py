"""Contexts: which Kafka connection a command uses.

``streamgroups_cli.connection`` connects to it. :mod:`streamgroups.connections` has the connections. Source: ``kubectl config``,
whose words these are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from streamgroups.errors import InvalidOption

_SERVERS_SETTING = "bootstrap.servers"


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
