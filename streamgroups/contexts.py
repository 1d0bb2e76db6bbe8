"""Contexts: which Kafka connection a command uses.

``streamgroups_cli.connection`` connects to it. :mod:`streamgroups.connections` has the connections. Source: ``kubectl config``,
whose words these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from streamgroups.errors import InvalidOption


class Choice(Enum):
    """Which context a command uses, if none is named."""

    #: No context: the command line or the environment names the cluster.
    NONE = "none"
    #: The current context, if the file has one.
    CURRENT = "current"


def choose(
    context: str | None,
    named_by: Sequence[str] = (),
    *,
    context_variable: str | None = None,
    bootstrap_variable: str | None = None,
) -> str | Choice:
    """Returns the name of the context that a command uses.

    The command line is stronger than the environment, and the environment is stronger than the current context. A
    context is used as a whole or not at all: its credentials are never sent to a server that another option names.

    Args:
        context: ``--context``.
        named_by: the other options of the command that name a cluster.
        context_variable: the environment variable ``STREAMGROUPS_CONTEXT``.
        bootstrap_variable: the environment variable ``STREAMGROUPS_BOOTSTRAP_SERVER``.

    Raises:
        InvalidOption: if two sources of the same strength name a cluster.

    >>> choose("prod", bootstrap_variable="test:9092")
    'prod'
    >>> choose(None, ["--bootstrap-server"], context_variable="prod")
    <Choice.NONE: 'none'>
    >>> choose(None)
    <Choice.CURRENT: 'current'>
    >>> choose("prod", ["--bootstrap-server"])
    Traceback (most recent call last):
    streamgroups.errors.InvalidOption: --context and --bootstrap-server both name a cluster. Use one of them.
    """
    if context is not None:
        if named_by:
            raise InvalidOption(f"--context and {named_by[0]} both name a cluster.", remedy="Use one of them.")
        return context
    if named_by:
        return Choice.NONE
    if context_variable and bootstrap_variable:
        raise InvalidOption(
            "STREAMGROUPS_CONTEXT and STREAMGROUPS_BOOTSTRAP_SERVER both name a cluster.",
            remedy="Unset one of them, or use --context or --bootstrap-server.",
        )
    if context_variable:
        return context_variable
    return Choice.NONE if bootstrap_variable else Choice.CURRENT
